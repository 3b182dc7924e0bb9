// usage: node launch.mjs pi|dm launch INSTALLED WORK BUILT
//
// Launcher and runner of different makes, as real processes, in one store of one peer:
//
// * our launcher starts the peer's runner, and our runner, as their parent or under our shim;
// * the peer's launcher starts our runner;
// * `runstore run` starts a run as its users do.
//
// After each run the peer's own list, status, reconciliation, finalisation and result code, and `runstore
// inspect`, must say of it what was meant. The steps are commands (`external-cli`), which need no model.
import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { isDeepStrictEqual } from "node:util";
import { LAUNCHING, launchAsUs, loadPeer, runnerWords } from "./load.mjs";

const [peerName, , installed, work, built] = process.argv.slice(2);
const [runner, runstore] = ["peer-runner", "runstore"].map((name) => path.join(built, name));
const root = path.join(work, "store");
const project = path.join(work, "project");
const runs = path.join(root, "async-subagent-runs");
const results = path.join(root, "async-subagent-results");
const SESSION = "session-peers";
const OWNER = "owner-peers";
const LIMIT = 3;
const PATIENCE_MS = 60_000;

fs.rmSync(work, { recursive: true, force: true });
for (const made of [root, project, path.join(work, "home"), path.join(work, "agent")]) fs.mkdirSync(made, { recursive: true, mode: 0o700 });
// Nothing of the user's own host may be found, and nothing is fetched.
Object.assign(process.env, { HOME: path.join(work, "home"), PI_OFFLINE: "1", DM_OFFLINE: "1", PI_CODING_AGENT_DIR: path.join(work, "agent"), DM_CODING_AGENT_DIR: path.join(work, "agent") });
process.chdir(project);
const peer = await loadPeer(peerName, installed, root, LAUNCHING);
const node = process.execPath;

const runDir = (run) => path.join(runs, run);
const file = (run, name) => path.join(runDir(run), name);
const json = (name) => { try { return JSON.parse(fs.readFileSync(name, "utf8")); } catch { return undefined; } };
const text = (answer) => answer.content.map((part) => part.text).join("\n");

let pair = "";
function check(what, got, wanted) {
	const same = isDeepStrictEqual(got, wanted);
	console.log(`${same ? "ok  " : "FAIL"} ${peerName} ${pair}: ${what}`);
	if (!same) console.log(`     got    ${JSON.stringify(got)}\n     wanted ${JSON.stringify(wanted)}`);
}

async function until(what, holds) {
	for (const end = Date.now() + PATIENCE_MS; !holds();) {
		if (Date.now() > end) throw new Error(`${pair}: ${what} did not come`);
		await new Promise((resolve) => { setTimeout(resolve, 20); });
	}
}

// A program that ends in what the words start, which gets the arguments of the program behind its own.
function program(name, words) {
	const place = path.join(work, name);
	const quoted = words.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
	fs.mkdirSync(path.dirname(place), { recursive: true });
	fs.writeFileSync(place, `#!/bin/sh\nexec ${quoted} "$@"\n`, { mode: 0o755 });
	return place;
}
const RUNNERS = { theirs: program("runner-theirs", [node, ...runnerWords(peerName, installed)]), ours: runner };

const session = (run) => { const place = path.join(work, `${run}.jsonl`); fs.writeFileSync(place, "{}\n"); return place; };
const command = (script) => ({ type: "external-cli", command: "/bin/sh", args: ["-c", `cat >/dev/null; ${script}`] });

// --- our launcher

function wish(run, who, script, more = {}) {
	const flags = { inheritProjectContext: false, inheritGlobalContext: false, inheritSkills: false };
	const step = { agent: "external", task: "Say something.", systemPrompt: "You answer.", runner: command(script), cwd: project, requestedCwd: project, ...flags, ...(more.revival ? { parentSessionId: SESSION } : {}) };
	const descriptor = { agent: step.agent, systemPromptMode: "replace", maxSubagentDepth: 1, runFanoutBudget: peer.budget.createRunFanoutBudget(run, 64), ...(more.revival ? { sessionFile: session(run) } : {}) };
	return {
		runId: run, mode: "single", cwd: project, runner: [RUNNERS[who]], steps: [step], session: SESSION, completionOwner: OWNER, toolCall: `toolu_${run}`, slotLimit: LIMIT, stay: "prove",
		config: { resultMode: "single", share: false, artifactConfig: { enabled: false } }, descriptor,
		...(more.revival ? { parentSession: SESSION, revival: { sessionFile: descriptor.sessionFile, sourceRunId: "run-source" } } : {}), ...more.launch,
	};
}

const launch = (run, who, script, more) => launchAsUs(runstore, root, wish(run, who, script, more));

// --- the peer's launcher

const closed = new Map();
const bus = { emit: (_, proof) => { if (proof?.runnerProcessInstanceId) closed.set(proof.runId, proof); }, on: () => () => {} };
const host = { events: bus, getAllTools: () => [] };

// The peer's launcher starts its runner with the node that it runs in. For this time that is our runner.
const asNode = program("bin/node", [runner]);
function launchAsPeer(run, script, { revival = false } = {}) {
	const agent = { name: "external", description: "a command", systemPromptMode: "replace", inheritProjectContext: false, inheritGlobalContext: false, inheritSkills: false, systemPrompt: "You answer.", source: "project", filePath: path.join(project, "external.md"), runner: command(script) };
	const slot = peer.capacity.acquireActiveAsyncCapacity({ sessionId: SESSION, limit: LIMIT, runId: run, kind: "runner", asyncDir: runDir(run) });
	const sessionFile = session(run);
	process.execPath = asNode;
	try {
		return peer.execution.executeAsyncSingle(run, {
			agent: agent.name, agentConfig: agent, task: "Say something.", cwd: project, artifactConfig: { enabled: false }, shareEnabled: false, maxSubagentDepth: 1, sessionFile, activeAsyncCapacity: slot,
			ctx: { pi: host, dm: host, cwd: project, currentSessionId: SESSION, completionOwnerId: OWNER },
			...(revival ? { revivalLease: { sessionFile, runId: run, sourceRunId: "run-source", parentSessionId: SESSION } } : {}),
		});
	} finally {
		process.execPath = node;
	}
}

// --- what everybody sees

const inspect = (run) => {
	try {
		return JSON.parse(execFileSync(runstore, ["inspect", "--format", "json", runDir(run)], { encoding: "utf8" })).runs[0];
	} catch (error) {
		return JSON.parse(error.stdout).runs[0];
	}
};

const slots = () => fs.globSync("session-active-async-capacity/*/slot-*/owner.json", { cwd: root }).length;
const instances = (proof) => (proof?.instances ?? []).map((it) => [it.kind, it.exitCode, it.signal, it.processTree?.state]);
const WRITER = [peer.writerKind, 0, null, "observed"];
const runnerEnd = (code, signal = null) => ["runner", code, signal, undefined];

// A run that has ended: every reader of the peer, then ours. `meant` is what was to come of it.
function readers(run, meant) {
	const { state, proof = "observed", reason, verdict = "finished", slot = "not-owned", owner = "owner" in meant ? meant.owner : OWNER } = meant;
	const step = meant.step ?? state;
	// One that was not let in is in no index; a list that is asked for it finds it.
	const listed = peer.list.listAsyncRuns(runs, { sessionId: SESSION, resultsDir: results, ...(meant.noResult ? { runId: run } : {}) }).find((found) => found.id === run);
	check(`list, ${meant.of}`, listed && [listed.state, listed.mode, listed.steps.map(({ agent, status }) => [agent, status]), listed.processTerminal?.state], [state, "single", [["external", step]], proof]);

	const told = peer.status.inspectSubagentStatus({ id: run }, {});
	check(`status, ${meant.of}`, [told.isError ?? false, /^State: (\S+)/m.exec(text(told))?.[1]], [false, state]);
	const debug = text(peer.status.inspectSubagentStatus({ id: run, action: "debug.run" }, {}));
	const word = (line) => new RegExp(`^${line}: (\\S+)`, "m").exec(debug)?.[1];
	check(`status with its proof and slot, ${meant.of}`, [word("Status process terminal"), word("Sidecar process terminal"), word("Active capacity")], [proof, proof, slot]);

	const reconciled = peer.reconciler.reconcileAsyncRun(runDir(run), { resultsDir: results });
	check(`reconciliation leaves it, ${meant.of}`, [reconciled.repaired, reconciled.status?.state], [false, state]);

	// Another end of the same instance is told: the proof that is there wins.
	const before = fs.readFileSync(file(run, "process-terminal.json"), "utf8");
	const instance = JSON.parse(before).runnerProcessInstanceId;
	const again = peer.proof.finalizeProcessTerminal(runDir(run), run, { processInstanceId: instance, closeObservedAt: Date.now(), exitCode: 99, signal: null });
	check(`finalisation finds it proven, ${meant.of}`, [again.state, again.reason, instances(again)], [proof, reason, meant.instances ?? []]);
	check(`finalisation leaves it, ${meant.of}`, fs.readFileSync(file(run, "process-terminal.json"), "utf8"), before);

	const place = peer.results.resultPayloadPathForSessionRun(results, SESSION, run);
	const payload = place && json(place);
	check(`result, ${meant.of}`, payload && [path.relative(results, place), payload.runId ?? payload.id, payload.state, payload.success, payload.sessionId, payload.completionOwnerId], meant.noResult ? undefined : [`${run}.json`, run, state, state === "complete", SESSION, owner]);

	check(`indexes, ${meant.of}`, [peer.active.readActiveRunIndex(runs).includes(run), peer.terminal.readRecentTerminalRunIndex(runs, { sessionId: SESSION }).includes(run)], [false, !meant.noResult]);

	const ours = inspect(run);
	check(`runstore inspect, ${meant.of}`, [ours.recordedState, ours.verdict, ours.liveness, ours.proof?.state, ours.findings.map(({ id }) => id)], [state, verdict, "dead", proof, meant.findings ?? []]);
}

// A step that goes on until somebody opens the pipe.
const gate = (run) => path.join(project, `${run}.go`);
const gates = [];
const wait = (run) => { execFileSync("mkfifo", [gate(run)]); gates.push(run); return `: >'${gate(run)}.met'; exec cat '${gate(run)}'`; };
const met = (run, at = run) => until("the step", () => fs.existsSync(`${gate(at)}.met`) && json(file(run, "status.json"))?.steps?.[0]?.status === "running");
const open = (at) => { try { fs.closeSync(fs.openSync(gate(at), fs.constants.O_WRONLY | fs.constants.O_NONBLOCK)); } catch { /* nobody waits there any more */ } };
// Whatever comes, nothing of this goes on.
process.once("exit", () => gates.forEach(open));

// A run that goes on, by the peer's readers; it is ended by the peer's own request.
async function live(run, who, more) {
	const told = launch(run, who, wait(run), more);
	await met(run);
	const status = json(file(run, "status.json"));
	const of = "a run that goes on";
	const listed = peer.list.listAsyncRuns(runs, { sessionId: SESSION, states: ["running"], resultsDir: results }).find((found) => found.id === run);
	check(`list, ${of}`, listed && [listed.state, listed.steps.map((step) => step.status), listed.processTerminal?.state], ["running", ["running"], "pending"]);
	check(`status, ${of}`, /^State: (\S+)/m.exec(text(peer.status.inspectSubagentStatus({ id: run }, {})))?.[1], "running");
	check(`reconciliation leaves it, ${of}`, peer.reconciler.reconcileAsyncRun(runDir(run), { resultsDir: results }).repaired, false);
	check(`indexes, ${of}`, [peer.active.readActiveRunIndex(runs).includes(run), peer.active.readActiveRunToolCallIndex(runs, `toolu_${run}`)], [true, [run]]);
	check(`its slot is kept, ${of}`, [peer.capacity.reconcileActiveAsyncCapacity(SESSION, LIMIT).used, peer.capacity.inspectActiveAsyncCapacityOwner({ runId: run, sessionId: SESSION }).owner?.runnerProcessInstanceId], [1, status.processTerminal.runnerProcessInstanceId]);
	const ours = inspect(run);
	check(`runstore inspect, ${of}`, [ours.verdict, ours.liveness, ours.findings.map(({ id }) => id)], ["running", "live", []]);
	peer.control.requestAsyncStop(runDir(run), { reason: "enough" });
	const { exit, proof } = await told;
	check("a stop that the peer asks for ends it", [exit, proof], [0, "observed"]);
	return status;
}

// What its session's owner is told by the peer, once, and what is gone then.
async function delivered(expected) {
	const got = [];
	const state = { currentSessionId: SESSION, completionOwnerId: OWNER, completionSeen: new Map(), asyncJobs: new Map(), watcher: null, watcherRestartTimer: null, resultFileCoalescer: { schedule: () => false, clear: () => {} } };
	const events = { on: () => () => {}, emit: (name, data) => { if (name === "subagent:async-complete") got.push([data.runId, data.state]); } };
	const watcher = peer.watcher.createResultWatcher({ events }, state, results, 60_000, {});
	watcher.startResultWatcher();
	watcher.primeExistingResults();
	const kept = (run) => fs.existsSync(path.join(results, `${run}.json`));
	await until("every result", () => got.length >= expected.length && !expected.some(([run]) => kept(run)));
	watcher.stopResultWatcher();
	check("the peer delivers every result once", got.toSorted(), expected.toSorted());
	const left = peer.results.resultCandidateFilesForSession(results, SESSION).map((name) => path.basename(name, ".json"));
	check("what is of no owner is left", left.toSorted(), unowned.toSorted());
}

const expected = [];
const unowned = [];
const ends = (run, state) => expected.push([run, state]);
const started = (answer) => [answer.outcome, answer.proof, answer.exit];

// A runner that is killed while its step runs. What its step leaves is ended here, should nobody else have.
async function killed(run, end, at = run) {
	await met(run, at);
	process.kill(json(file(run, "status.json")).pid, "SIGKILL");
	const answer = await end();
	open(at);
	return answer;
}

// Nobody has told the outcome. Where the end is unproven the marker stays, and the peer's list repairs the run; where it
// is proven the marker is gone, and the peer repairs it once it is asked for.
function afterKill(run, proven, answer, meant = {}) {
	const proof = proven ? { proof: "observed", instances: [runnerEnd(null, "SIGKILL")] } : { proof: "unknown", reason: "writer-close-unverified", verdict: "finished-unproven" };
	// A proof that is unknown names no end, and a shim tells what its proof names.
	check("a killed runner", [answer.outcome, answer.proof, answer.exit ?? "SIGKILL"], ["started", proof.proof, "SIGKILL"]);
	const listed = (more) => peer.list.listAsyncRuns(runs, { sessionId: SESSION, resultsDir: results, ...more }).find((found) => found.id === run)?.state;
	check("the peer repairs the killed run", [listed(), listed({ runId: run })], [proven ? undefined : "failed", "failed"]);
	check("it holds no slot", slots(), 0);
	readers(run, { of: "killed", state: "failed", ...proof, ...meant });
}

async function ourLauncher(who, shim) {
	pair = `our launcher, ${who === "ours" ? "our" : "their"} runner, ${shim ? "under our shim" : "its parent"}`;
	// The peer's runner counts no writers for commands; ours has one for each.
	const writers = (...ended) => (who === "ours" ? ended : []);
	const parent = shim ? { shim } : {};
	const launched = (more) => ({ ...more, launch: { ...more?.launch, ...parent } });
	const name = (what) => `${who}-${shim ? "shim" : "parent"}-${what}`;

	let run = name("fresh");
	check("a fresh run is let in and its end is proven", started(await launch(run, who, "echo said", launched())), ["started", "observed", 0]);
	readers(run, { of: "fresh", state: "complete", instances: [runnerEnd(0), ...writers(WRITER)] });
	const resumed = peer.resume.resolveAsyncResumeTarget({ id: run }, {}, { requireSessionFile: false, sessionId: SESSION });
	check("the peer's resume takes our recovery descriptor", [resumed.kind, resumed.state, resumed.recoveryDescriptor?.sourceRunId, resumed.recoveryDescriptor?.agent], ["revive", "complete", run, "external"]);
	ends(run, "complete");

	run = name("failed");
	check("a run that fails ends in order", started(await launch(run, who, "exit 3", launched())), ["started", "observed", 0]);
	readers(run, { of: "failed", state: "failed", instances: [runnerEnd(0), ...writers([peer.writerKind, 3, null, "observed"])] });
	ends(run, "failed");

	run = name("revived");
	check("a revival is let in and its end is proven", started(await launch(run, who, "echo said", launched({ revival: true, launch: who === "ours" ? {} : { confirm: "never" } }))), ["started", "observed", 0]);
	readers(run, { of: "revived", state: "complete", instances: [runnerEnd(0), ...writers(WRITER)] });
	check("its lease is free", peer.lease.inspectSessionLease(path.join(work, `${run}.jsonl`)).state, "free");
	ends(run, "complete");

	run = name("killed");
	// Their runner starts commands in sessions of their own, which our shim leaves alone: then it cannot say that
	// nothing is left. A run whose end is not proven keeps its slot, so it has none here.
	const proven = shim && who === "ours";
	const told = launch(run, who, wait(run), { launch: { ...parent, slotLimit: proven ? LIMIT : 0 } });
	afterKill(run, proven, await killed(run, () => told));
	ends(run, "failed");

	if (!shim) {
		run = name("theirs");
		const answer = await launch(run, who, "echo said", { launch: { stay: "wait" } });
		const proof = peer.proof.finalizeProcessTerminal(runDir(run), run, { processInstanceId: answer.instanceId, closeObservedAt: answer.closedAt, exitCode: answer.exit, signal: null });
		check("the peer proves the end of our launch", [proof.state, proof.reason, instances(proof)], ["observed", undefined, [runnerEnd(0), ...writers(WRITER)]]);
		check("and releases its slot", peer.capacity.reconcileActiveAsyncCapacity(SESSION, LIMIT).used, 0);
		readers(run, { of: "proven by the peer", state: "complete", instances: [runnerEnd(0), ...writers(WRITER)] });
		ends(run, "complete");
	}

	run = name("live");
	await live(run, who, launched());
	readers(run, { of: "stopped", state: "stopped", instances: [runnerEnd(0), ...writers([peer.writerKind, null, "SIGTERM", "observed"])] });
	ends(run, "stopped");

	if (who === "theirs") {
		run = name("asked");
		const late = await launch(run, who, "echo said", launched({ revival: true }));
		check("a runner that knows no confirm is not let in if it is asked for one", started(late), ["timed-out", "observed", "SIGTERM"]);
		readers(run, { of: "not let in", state: "failed", step: "pending", verdict: "start-failed", instances: [runnerEnd(null, "SIGTERM")], noResult: true });
		check("its lease is free", peer.lease.inspectSessionLease(path.join(work, `${run}.jsonl`)).state, "free");
	}
}

// The program as its user has it: its own launcher, shim and runner.
async function ourProgram() {
	pair = "runstore run";
	const begin = (...script) => JSON.parse(execFileSync(runstore, ["run", "--detach", "--format", "json", "--root", root, "--session", SESSION, "--slot-limit", `${LIMIT}`, "--name", "external", "--", "sh", "-c", ...script], { encoding: "utf8" })).runId;
	const over = async (run) => {
		await until("the proof", () => json(file(run, "status.json"))?.processTerminal?.state === "observed" && slots() === 0);
		const [end] = json(file(run, "process-terminal.json")).instances;
		return { outcome: "started", proof: "observed", exit: end.signal ?? end.exitCode };
	};
	for (const [script, state, code] of [["echo said", "complete", 0], ["exit 3", "failed", 3]]) {
		const run = begin(script);
		check(`it ends in order, ${state}`, started(await over(run)), ["started", "observed", 0]);
		readers(run, { of: state, state, instances: [runnerEnd(0), [peer.writerKind, code, null, "observed"]], owner: undefined });
		unowned.push(run);
	}
	const run = begin(wait("program"));
	afterKill(run, true, await killed(run, () => over(run), "program"), { owner: undefined });
	unowned.push(run);
}

async function theirLauncher() {
	pair = "their launcher, our runner";
	for (const [run, script, state, more] of [["peer-fresh", "echo said", "complete", {}], ["peer-failed", "exit 3", "failed", {}], ["peer-revived", "echo said", "complete", { revival: true }]]) {
		const answer = launchAsPeer(run, script, more);
		check(`it is let in, ${run}`, [answer.isError ?? false, answer.isError ? text(answer) : ""], [false, ""]);
		await until("its end", () => closed.has(run));
		check(`its end is proven, ${run}`, closed.get(run).state, "observed");
		check(`its slot is released, ${run}`, peer.capacity.reconcileActiveAsyncCapacity(SESSION, LIMIT).used, 0);
		readers(run, { of: run, state, instances: [runnerEnd(0), [peer.writerKind, state === "failed" ? 3 : 0, null, "observed"]] });
		ends(run, state);
	}
}

for (const shim of [false, true]) for (const who of ["theirs", "ours"]) await ourLauncher(who, shim);
await theirLauncher();
await ourProgram();
pair = "results";
await delivered(expected);
// Failed checks have their lines; another exit code than 0 means that not all were made.
process.exit(0);
