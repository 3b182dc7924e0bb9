// usage: node round-trip.mjs pi|dm ours|theirs INSTALLED WORK DRIVER RUNSTORE
//
// One peer, one direction. `ours`: our writer makes the store, then the peer reads it, goes on in it, and
// we read what it made of it. `theirs`: the peer's functions make the same store, and we do the same.
// After each step the peer's readers, our library (the driver) and `runstore inspect` must agree, and
// they must agree on what was meant, since two readers that both see nothing agree as well.
import { execFileSync, spawn } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { createInterface } from "node:readline";
import { isDeepStrictEqual } from "node:util";
import { DONE, LIVE, RUNS, SESSION, TOOL_CALL, instance, peerFacts } from "./facts.mjs";
import { loadPeer } from "./load.mjs";

const [peerName, direction, installed, work, driver, runstore] = process.argv.slice(2);
const root = path.join(work, "store");
// The same one for all, so that what is named by its hash has one name.
const sessionFile = path.join(path.dirname(work), "session.jsonl");
const STARTED = 1700000000000;
const CLOSED = 1700000009000;
const LIMIT = 3;

fs.rmSync(work, { recursive: true, force: true });
fs.mkdirSync(root, { recursive: true, mode: 0o700 });
fs.writeFileSync(sessionFile, "{}\n");
const peer = await loadPeer(peerName, installed, root);
const runDir = (run) => path.join(root, "async-subagent-runs", run);
const resultsDir = path.join(root, "async-subagent-results");
const ask = (verb) => JSON.parse(execFileSync(driver, [verb, root, sessionFile, ...(verb === "finish" ? [peerName] : [])], { encoding: "utf8" }));

function check(what, got, wanted) {
	const same = isDeepStrictEqual(got, wanted);
	console.log(`${same ? "ok  " : "FAIL"} ${peerName} ${direction}: ${what}`);
	if (!same) console.log(`     got    ${JSON.stringify(got)}\n     wanted ${JSON.stringify(wanted)}`);
}

// The answer of `inspect`; its exit code speaks of the runs and not of the program.
function inspect() {
	try {
		return JSON.parse(execFileSync(runstore, ["inspect", "--format", "json", root], { encoding: "utf8" }));
	} catch (error) {
		return JSON.parse(error.stdout);
	}
}

const LABELS = { status: "status.json with its overlay", candidate: "candidate", proof: "proof", active: "active index", byToolCall: "active index by tool call", ended: "terminal index", slots: "slots and which may be released", lease: "lease", resultsByToolCall: "results by tool call", result: "result by session and run" };

// The peer, the library and the program on the same store. A lookup of the peer may change it, so ours come first.
function compare(when, ours, meant, options) {
	const report = inspect();
	const theirs = peerFacts(peer, root, sessionFile, options);
	for (const [key, label] of Object.entries(LABELS)) if (key in theirs) check(`${label}, ${when}`, theirs[key], ours[key]);
	const seen = {
		states: Object.fromEntries(RUNS.map((run) => [run, theirs.status[run]?.state])),
		proofs: Object.fromEntries(RUNS.map((run) => [run, theirs.proof[run]?.state])),
		active: theirs.active, byToolCall: theirs.byToolCall, ended: theirs.ended,
		places: Object.fromEntries(RUNS.map((run) => [run, theirs.result[run]?.place])),
		slots: Object.fromEntries(theirs.slots.map((slot) => [slot.runId, slot.releasable])),
		lease: theirs.lease.owner?.token,
	};
	check(`what was meant, ${when}`, seen, meant);
	const run = (id) => report.runs.find((found) => found.runId === id);
	const told = {
		states: Object.fromEntries(RUNS.map((id) => [id, run(id)?.recordedState])),
		proofs: Object.fromEntries(RUNS.map((id) => [id, run(id)?.proof?.state])),
		places: Object.fromEntries(RUNS.map((id) => [id, report.results.find((found) => found.runId === id)?.place])),
		slots: Object.fromEntries(report.slots.map((slot) => [slot.runId, slot.releasable])),
		leases: report.leases.length, problems: report.problems, done: run(DONE)?.verdict,
	};
	const { states, places, slots } = meant;
	// Without a proof file the program goes by the status, whose overlay says the same.
	const proofs = { ...meant.proofs, [LIVE]: meant.proofs[LIVE] ?? "pending" };
	check(`runstore inspect, ${when}`, told, { states, proofs, places, slots, leases: meant.lease ? 1 : 0, problems: [], done: "finished" });
}

const MEANT = {
	states: { [LIVE]: "running", [DONE]: "complete" }, proofs: { [LIVE]: "pending", [DONE]: "observed" },
	active: [LIVE], byToolCall: [LIVE], ended: [DONE], places: { [LIVE]: "pending", [DONE]: "public" },
	slots: { [LIVE]: false, [DONE]: true },
};
const wentOn = (lease) => ({ ...MEANT, places: { [LIVE]: "public", [DONE]: "public" }, slots: { [LIVE]: false }, lease });

const leaseRequest = { sessionFile, runId: LIVE, sourceRunId: "run-source", parentSessionId: SESSION };
function takeLease(token) {
	try {
		const held = peer.lease.acquireSessionLease(leaseRequest, { token: () => token });
		return { taken: held.owner.token };
	} catch (error) {
		return { refused: error instanceof peer.lease.SessionLeaseConflictError };
	}
}
const leaseNames = () => fs.readdirSync(path.join(root, "session-leases")).filter((name) => name.includes(".")).map((name) => name.slice(name.indexOf(".")));

// Every file by its name and its text, without what differs by moment, process or place. What the caller of
// a writer composed itself (status, candidate of the ended run, payload) is known by its name only.
const CALLERS = [/\/status\.json$/, new RegExp(`/${DONE}/process-terminal-candidate\\.json$`), /^async-subagent-results\/(result-pending\/.*\/)?[^/]*\.json$/];
const ADDITIVE = /\n *"(bootId|pidfdInode|pidNamespaceScope|exitEvidence)": [^\n]*?(?=,?\n)/g;
function files(store) {
	const found = {};
	for (const entry of fs.readdirSync(store, { recursive: true, withFileTypes: true })) {
		if (!entry.isFile()) continue;
		const file = path.join(entry.parentPath, entry.name);
		const name = path.relative(store, file);
		if (CALLERS.some((pattern) => pattern.test(name))) { found[name] = "(its caller's)"; continue; }
		found[name] = fs.readFileSync(file, "utf8").replaceAll(store, "ROOT")
			.replace(/("(?:token|reservationToken|acquiredAt|processStartIdentity)": )"[^"]*"/g, "$1\"\"")
			.replace(/("(?:writtenAt|reservedAt|runnerStartedAt|acquiredAtMs|updatedAtMs|pid|ts)": ?)\d+/g, "$10")
			.replace(ADDITIVE, "").replace(/,+(?=\n\})/, "").replace(/,"exitEvidence":"[a-z-]+"/g, "");
		// The peers end a slot's record with a newline when they make it and without when they bind it; we keep it.
		if (/\/slot-\d+\/owner\.json$/.test(name)) found[name] = found[name].trimEnd();
	}
	return found;
}

// The store as our writer left it and as the peer did, name by name and byte by byte.
function compareFiles() {
	const kept = path.join(path.dirname(work), `${peerName}-ours`, "files.json");
	const [mine, other] = [JSON.parse(fs.readFileSync(kept, "utf8")), files(root)];
	if (!peer.proof.initializeProcessTerminal) delete mine[`async-subagent-runs/${LIVE}/process-terminal.json`];
	check("both left files of the same names", Object.keys(mine).sort(), Object.keys(other).sort());
	for (const name of Object.keys(other).sort()) if (other[name] !== "(its caller's)") check(`the same text in ${name}`, mine[name], other[name]);
}

async function ours() {
	const writer = spawn(driver, ["write", root, sessionFile, peerName], { stdio: ["pipe", "pipe", "inherit"] });
	const ended = new Promise((resolve) => writer.on("close", resolve));
	let facts;
	for await (const line of createInterface({ input: writer.stdout })) { facts = JSON.parse(line); break; }
	if (!facts) throw new Error(`our writer ended with ${await ended}`);
	fs.writeFileSync(path.join(work, "files.json"), JSON.stringify(files(root)));
	compare("as we wrote it", facts, { ...MEANT, lease: "token-ours" }, { lookOnly: true });

	check("the peer refuses our lease while we live", takeLease("token-early"), { refused: true });
	const capacity = peer.capacity.reconcileActiveAsyncCapacity(SESSION, LIMIT);
	check("the peer releases the slot of the ended run only", { used: capacity.used, limit: capacity.limit }, { used: 1, limit: LIMIT });
	check("the peer makes our pending result public", peer.results.promotePendingResultFile(resultsDir, SESSION, LIVE), "promoted");
	compare("after the peer went on", ask("facts"), wentOn("token-ours"));

	writer.stdin.end();
	await ended;
	check("the peer takes our lease over once we are gone", takeLease("token-peer"), { taken: "token-peer" });
	check("our lease was set aside as the peers do it", leaseNames(), [".stale-token-ours"]);
	compare("after the peer took the lease", ask("facts"), wentOn("token-peer"));
	finish();
}

// The run whose proof we prepared is ended by the peer.
function finish() {
	fs.rmSync(path.join(root, "session-leases"), { recursive: true, force: true });
	const candidate = { version: 1, runId: LIVE, runnerProcessInstanceId: instance(LIVE), writers: { 0: [] }, expectedWriters: { 0: 0 } };
	peer.proof.writeProcessTerminalCandidate(runDir(LIVE), candidate);
	const proof = peer.proof.finalizeProcessTerminal(runDir(LIVE), LIVE, { processInstanceId: instance(LIVE), closeObservedAt: CLOSED, exitCode: 0, signal: null });
	check("the peer finalises the proof that we prepared", proof.state, "observed");
	const facts = ask("facts");
	const theirs = peerFacts(peer, root, sessionFile);
	for (const key of ["status", "proof", "active", "byToolCall"]) check(`${LABELS[key]}, after that`, theirs[key], facts[key]);
	check("the marker and its alias went with it", [theirs.active, theirs.byToolCall], [[], []]);
}

function start(run) {
	const dir = runDir(run);
	fs.mkdirSync(dir, { recursive: true });
	const pending = { version: 1, state: "pending", runId: run, runnerProcessInstanceId: instance(run) };
	peer.json.writeAtomicJson(path.join(dir, "status.json"), { lifecycleArtifactVersion: 3, runId: run, sessionId: SESSION, toolCallId: TOOL_CALL, mode: "single", state: "running", startedAt: STARTED, lastUpdate: STARTED, pid: process.pid, currentStep: 0, steps: [{ agent: "worker", status: "running", startedAt: STARTED }], processTerminal: pending });
	// Only one of the peers prepares a proof; of the other the status alone says "pending".
	if (peer.proof.initializeProcessTerminal) peer.proof.initializeProcessTerminal(dir, run, instance(run));
	else peer.proof.writeProcessTerminalCandidate(dir, { version: 1, runId: run, runnerProcessInstanceId: instance(run), writers: {} });
	peer.active.updateActiveRunIndex(dir, "running", TOOL_CALL);
	const slot = peer.capacity.acquireActiveAsyncCapacity({ sessionId: SESSION, runId: run, asyncDir: dir, kind: "runner", limit: LIMIT });
	slot.markStarted(instance(run));
}

const payload = (run, state) => ({ id: run, runId: run, sessionId: SESSION, toolCallId: TOOL_CALL, agent: "worker", mode: "single", success: state === "complete", state, summary: "done \u4f1a", exitCode: 0, timestamp: CLOSED - 400, asyncDir: runDir(run), results: [{ agent: "worker", output: "x", success: true }] });

function end(run) {
	const dir = runDir(run);
	const writer = { kind: peer.writerKind, processInstanceId: "writer-1", attempt: 0, closeObservedAt: CLOSED - 1000, exitCode: 0, signal: null, processTree: { state: "observed", mechanism: "posix-process-group", processGroupId: 777, verifiedAt: CLOSED - 900 } };
	peer.proof.writeProcessTerminalCandidate(dir, { version: 1, runId: run, runnerProcessInstanceId: instance(run), writers: { 0: [writer] }, expectedWriters: { 0: 1 }, sessionFile });
	const written = peer.results.writeAsyncResultFile(path.join(resultsDir, `${run}.json`), payload(run, "complete"));
	check("the peer's result is public", written, { state: "public" });
	const status = JSON.parse(fs.readFileSync(path.join(dir, "status.json"), "utf8"));
	peer.json.writeAtomicJson(path.join(dir, "status.json"), { ...status, state: "complete", endedAt: CLOSED - 500, lastUpdate: CLOSED - 500, steps: [{ agent: "worker", status: "complete", startedAt: STARTED, endedAt: CLOSED - 500, exitCode: 0, sessionFile }] });
	peer.terminal.updateTerminalRunIndex(dir, peer.utils.readStatus(dir));
	peer.proof.finalizeProcessTerminal(dir, run, { processInstanceId: instance(run), closeObservedAt: CLOSED, exitCode: 0, signal: null });
}

function theirs() {
	for (const run of RUNS) start(run);
	end(DONE);
	peer.results.writePendingAsyncResultFile(path.join(resultsDir, `${LIVE}.json`), payload(LIVE, "paused"));
	const lease = peer.lease.acquireSessionLease(leaseRequest, { token: () => "token-peer" });
	compareFiles();
	// A peer without `initialize...` leaves the proof to the status.
	const meant = peer.proof.initializeProcessTerminal ? MEANT : { ...MEANT, proofs: { ...MEANT.proofs, [LIVE]: undefined } };
	compare("as the peer wrote it", ask("facts"), { ...meant, lease: "token-peer" }, { lookOnly: true });

	check("we refuse the peer's lease, release one slot and make the result public", ask("go-on"), { lease: { heldBy: "token-peer" }, releasedSlots: [DONE], usedSlots: 1, promoted: true });
	compare("after we went on", ask("facts"), { ...wentOn("token-peer"), proofs: meant.proofs });

	lease.updateWriter({ state: "running", pid: process.pid });
	check("the writer that the peer recorded in its lease", [ask("facts").lease.owner.writerState, ask("go-on").lease], ["running", { heldBy: "token-peer" }]);
	check("a lease that the peer released is free", [lease.release(), ask("facts").lease.state], [true, "free"]);
	ask("finish");
	const done = { states: { [LIVE]: "complete", [DONE]: "complete" }, proofs: { [LIVE]: "observed", [DONE]: "observed" }, active: [], byToolCall: [], ended: [LIVE, DONE], places: { [LIVE]: "public", [DONE]: "public" }, slots: { [LIVE]: true }, lease: undefined };
	compare("after we ended the run that the peer prepared", ask("facts"), done);
	// The owner of this one ends with this process; what we then make of it is asked by `run`.
	peer.lease.acquireSessionLease(leaseRequest, { token: () => "token-peer" });
}

await (direction === "ours" ? ours() : theirs());
// Failed checks have their lines; another exit code than 0 means that not all were made.
process.exit(0);
