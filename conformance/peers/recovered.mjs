// usage: node recovered.mjs pi|dm recovered|reconciled|recorded INSTALLED WORK BUILT
//
// Runs whose runner is gone, repaired by one side and read by the other.
//
// * `recovered`: runs of every kind, made (`orphans.mjs`) and real ones that are killed, are repaired by `runstore
//   recover --apply`. The peer's list, status, reconciliation, lookup of results, wait, slots, indexes, retention and
//   delivery must then agree with that, and change no byte but by delivering.
// * `reconciled`: the peer's own reconciler repairs the same runs, and our plan must find nothing to do.
// * `recorded`: both directions with every store that was recorded of this peer.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { isDeepStrictEqual } from "node:util";
import { LAUNCHING, READING, launchAsUs, loadPeer, runnerWords } from "./load.mjs";
import { KINDS, LIMIT, NESTED, OWNER, SESSION, makeOrphans } from "./orphans.mjs";

const [peerName, direction, installed, work, built] = process.argv.slice(2);
const [runner, runstore] = ["peer-runner", "runstore"].map((name) => path.join(built, name));
const recordings = path.join(import.meta.dirname, "../../tests/golden/peer-runs");
const root = path.join(work, "store");
const project = path.join(work, "project");
const sessionFile = path.join(work, "session.jsonl");
const PATIENCE_MS = 60_000;
const MONTH_MS = 31 * 86_400_000;

fs.rmSync(work, { recursive: true, force: true });
for (const made of [root, project, path.join(work, "home"), path.join(work, "agent")]) fs.mkdirSync(made, { recursive: true, mode: 0o700 });
Object.assign(process.env, { HOME: path.join(work, "home"), PI_OFFLINE: "1", DM_OFFLINE: "1", PI_CODING_AGENT_DIR: path.join(work, "agent"), DM_CODING_AGENT_DIR: path.join(work, "agent") });
process.chdir(project);
const peer = await loadPeer(peerName, installed, root, { ...LAUNCHING, ...READING });

const json = (file) => { try { return JSON.parse(fs.readFileSync(file, "utf8")); } catch { return undefined; } };
const text = (answer) => answer.content.map((part) => part.text).join("\n");
const fail = (what, detail) => { console.log(`FAIL ${peerName} ${direction}: ${what}`); for (const line of detail) console.log(`     ${line}`); };
function check(what, got, wanted) {
	if (isDeepStrictEqual(got, wanted)) console.log(`ok   ${peerName} ${direction}: ${what}`);
	else fail(what, [`got    ${JSON.stringify(got)}`, `wanted ${JSON.stringify(wanted)}`]);
}

async function until(what, holds) {
	for (const end = Date.now() + PATIENCE_MS; !holds();) {
		if (Date.now() > end) throw new Error(`${what} did not come`);
		await new Promise((resolve) => { setTimeout(resolve, 20); });
	}
}

// Runs the program; its exit code speaks of the runs.
function ask(...args) {
	try {
		return JSON.parse(execFileSync(runstore, [...args, "--format", "json"], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 }));
	} catch (error) {
		if (error.stdout) return JSON.parse(error.stdout);
		throw new Error(`runstore ${args.join(" ")}: ${error.stderr}`, { cause: error });
	}
}
// What was written in this very millisecond has not been quiet.
function recover(store, ...more) {
	for (const now = Date.now(); Date.now() <= now + 1;);
	return ask("recover", store, "--grace-ms", "0", ...more);
}

// Name, mode and content of everything in a store but the records of our recoverer.
function files(store) {
	const found = {};
	for (const entry of fs.readdirSync(store, { recursive: true, withFileTypes: true })) {
		const file = path.join(entry.parentPath, entry.name);
		const name = path.relative(store, file);
		if (name.split(path.sep).includes(".runstore")) continue;
		const mode = (fs.lstatSync(file).mode & 0o777).toString(8);
		found[name] = entry.isFile() ? `${mode} ${createHash("sha256").update(fs.readFileSync(file)).digest("hex")}` : mode;
	}
	return found;
}
const changed = (before, after) => Object.keys({ ...before, ...after }).filter((name) => before[name] !== after[name]).sort();

// --- what a peer sees

const areas = (store) => ({ runs: path.join(store, "async-subagent-runs"), results: path.join(store, "async-subagent-results") });
const reconcile = (dir, results) => { try { return peer.reconciler.reconcileAsyncRun(dir, { resultsDir: results }); } catch (error) { return { error: error.message }; } };
const seen = (run) => run && [run.state, run.steps.map((step) => step.status)];

// One run after its repair, by the readers that are told where to look. `meant` is what was to come of it.
function readers(where, dir, run, results, meant) {
	const runs = path.dirname(dir);
	const what = (reader) => `${reader}, ${where}${run}`;
	const listed = (more) => peer.list.listAsyncRuns(runs, { resultsDir: results, includeNested: false, ...more }).find((found) => found.id === run);
	const target = [meant.state, meant.steps];
	check(what("list by id"), seen(listed({ runId: run, exactRunId: true })), meant.hidden ? undefined : target);
	const session = json(path.join(dir, "status.json"))?.sessionId;
	// The listing of a session goes by the indexes alone.
	if (session) check(what("list of its session"), seen(listed({ sessionId: session })), meant.unlisted ? undefined : target);
	const reconciled = reconcile(dir, results);
	check(what("reconciliation leaves it"), [reconciled.repaired, reconciled.status?.state], [false, meant.hidden ? undefined : meant.state]);
	if (!session) {
		check(what("no result without a session"), fs.existsSync(path.join(results, `${run}.json`)), false);
		return;
	}
	const place = peer.results.resultPayloadPathForSessionRun(results, session, run);
	const told = place && json(place);
	const wanted = meant.noResult ? undefined : [`${run}.json`, run, meant.state, meant.state === "complete"];
	check(what("result by session"), told && [path.relative(results, place), told.runId ?? told.id, told.state, told.success], wanted);
	const all = peer.results.resultCandidateFilesForSession(results, session).filter((name) => name === `${run}.json`);
	check(what("one result"), all.length, wanted ? 1 : 0);
	check(what("indexes"), [peer.active.readActiveRunIndex(runs)?.includes(run) ?? false, peer.terminal.readRecentTerminalRunIndex(runs, { sessionId: session }).includes(run)], meant.indexes ?? [false, true]);
}

// --- real runs, killed with everybody who could prove their end

const gate = (run) => path.join(project, `${run}.go`);
const gates = [];
const wait = (run) => { execFileSync("mkfifo", [gate(run)]); gates.push(run); return `: >'${gate(run)}.met'; exec cat '${gate(run)}'`; };
process.once("exit", () => { for (const run of gates) try { fs.closeSync(fs.openSync(gate(run), fs.constants.O_WRONLY | fs.constants.O_NONBLOCK)); } catch { /* nobody waits there */ } });
const gone = (pid) => { try { process.kill(pid, 0); return /^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, "utf8")); } catch { return true; } };

async function killed(dir, at) {
	const status = () => json(path.join(dir, "status.json"));
	await until("the step", () => fs.existsSync(`${gate(at)}.met`) && status()?.steps?.[0]?.status === "running");
	// The observer first, else it proves what is to be an orphan.
	const observer = json(path.join(dir, ".runstore-observer.json"))?.pid;
	for (const pid of [observer, status().pid].filter(Boolean)) { process.kill(pid, "SIGKILL"); await until("its end", () => gone(pid)); }
}

async function realOrphans() {
	const made = [];
	const begun = JSON.parse(execFileSync(runstore, ["run", "--detach", "--format", "json", "--root", root, "--session", SESSION, "--slot-limit", `${LIMIT}`, "--name", "external", "--", "sh", "-c", wait("program")], { encoding: "utf8" }));
	await killed(begun.path, "program");
	made.push(begun.runId);
	const words = [process.execPath, ...runnerWords(peerName, installed)].map((word) => `'${word}'`).join(" ");
	const theirs = path.join(work, "runner-theirs");
	fs.writeFileSync(theirs, `#!/bin/sh\nexec ${words} "$@"\n`, { mode: 0o755 });
	for (const [run, program] of [["killed-ours", runner], ["killed-theirs", theirs]]) {
		const command = { type: "external-cli", command: "/bin/sh", args: ["-c", `cat >/dev/null; ${wait(run)}`] };
		const flags = { inheritProjectContext: false, inheritGlobalContext: false, inheritSkills: false };
		const steps = [{ agent: "external", task: "Say something.", systemPrompt: "You answer.", runner: command, cwd: project, requestedCwd: project, ...flags }];
		const descriptor = { agent: "external", systemPromptMode: "replace", maxSubagentDepth: 1, runFanoutBudget: peer.budget.createRunFanoutBudget(run, 64) };
		const ended = launchAsUs(runstore, root, { runId: run, mode: "single", cwd: project, runner: [program], steps, session: SESSION, completionOwner: OWNER, slotLimit: LIMIT, stay: "wait", config: { resultMode: "single", share: false, artifactConfig: { enabled: false } }, descriptor });
		await killed(path.join(areas(root).runs, run), run);
		await ended;
		made.push(run);
	}
	return made;
}

// --- ours repairs, the peer reads

// What the peer's retention does with each run a month later: in a copy, one run each time, so that its reason is known.
async function retention(store) {
	const aged = path.join(work, "aged");
	fs.rmSync(aged, { recursive: true, force: true });
	fs.cpSync(store, aged, { recursive: true, preserveTimestamps: true });
	const { runs, results } = areas(aged);
	const told = {};
	for (const run of (fs.existsSync(runs) ? fs.readdirSync(runs) : []).filter((name) => name !== ".active-runs").sort()) {
		const pass = await peer.retention.cleanupAsyncRetention({ asyncDirRoot: runs, resultsDir: results, maintenanceRoot: aged, batchSize: 1, now: () => Date.now() + MONTH_MS });
		if (pass.scanned !== 1 || pass.errors.length) throw new Error(`retention of ${run}: ${JSON.stringify(pass)}`);
		if (!run.startsWith(".")) told[run] = pass.deletedRuns === 1 ? "removed" : Object.keys(pass.skipped)[0];
	}
	return told;
}

// What we would do then, in the same words: the same, or we keep what they remove, or another reason that is named.
const STRICTER = ["unread", "unproven"];
const SAME = ["invalid-status/damaged"];
async function retentions(where, store, named = {}) {
	const theirs = await retention(store);
	const plan = ask("prune", store, "--now", `${Date.now() + MONTH_MS}`);
	const ours = Object.fromEntries([...plan.remove.map((one) => [one.runId, "removed"]), ...plan.kept.map((one) => [one.runId, one.reason])]);
	for (const [run, word] of Object.entries(theirs)) {
		const ok = ours[run] === word || STRICTER.includes(ours[run]) || [...SAME, named[run]].includes(`${word}/${ours[run]}`);
		check(`retention, ${where}${run}`, ok || `${word}/${ours[run]}`, true);
	}
}

// Each slot that is left, by both: whether it may be freed. Then the peer goes by its rules and frees none.
function slots() {
	const ours = ask("inspect", root).slots.map(({ runId, releasable }) => [runId, releasable]).sort();
	const theirs = ours.map(([runId]) => [runId, peer.capacity.inspectActiveAsyncCapacityOwner({ sessionId: SESSION, runId }).release?.state === "releasable"]);
	check("which slots may be freed", theirs, ours);
	check("the peer frees none that we left", peer.capacity.reconcileActiveAsyncCapacity(SESSION, LIMIT).used, ours.length);
	return ours.map(([runId]) => runId);
}

async function waits(live) {
	const deps = { state: { currentSessionId: SESSION, foregroundRuns: new Map(), asyncJobs: new Map() }, asyncDirRoot: areas(root).runs, resultsDir: areas(root).results, pollIntervalMs: 250, defaultTimeoutMs: 300 };
	for (const run of live) {
		const told = await peer.wait.waitForSubagents({ id: run }, undefined, deps);
		check(`a wait goes on, ${run}`, [told.isError ?? false, told.details.wait?.activeRunIds], [false, [run]]);
	}
	const all = await peer.wait.waitForSubagents({ all: true }, undefined, deps);
	check("a wait for all is for those that live", [all.isError ?? false, all.details.wait?.activeRunIds?.toSorted()], [false, live.toSorted()]);
	return async (run) => {
		const told = await peer.wait.waitForSubagents({ id: run }, undefined, deps);
		check(`a wait is settled, ${run}`, [told.isError ?? false, /Nothing to wait for/.test(text(told))], [false, true]);
	};
}

// What the owner of the session is told by the peer, once.
async function delivered(expected) {
	const got = [];
	const { results } = areas(root);
	const state = { currentSessionId: SESSION, completionOwnerId: OWNER, completionSeen: new Map(), asyncJobs: new Map(), watcher: null, watcherRestartTimer: null, resultFileCoalescer: { schedule: () => false, clear: () => {} } };
	const events = { on: () => () => {}, emit: (name, data) => { if (name === "subagent:async-complete") got.push([data.runId, data.success]); } };
	const watcher = peer.watcher.createResultWatcher({ events }, state, results, 60_000, {});
	watcher.startResultWatcher();
	watcher.primeExistingResults();
	await until("every result", () => got.length >= expected.length && !expected.some(([run]) => fs.existsSync(path.join(results, `${run}.json`))));
	watcher.stopResultWatcher();
	check("the peer delivers every result once", got.toSorted(), expected.toSorted());
}

const states = (run) => { const status = json(path.join(areas(root).runs, run, "status.json")); return [status.state, status.steps.map((step) => step.status)]; };

async function recovered() {
	const killed = await realOrphans();
	const route = makeOrphans(peer, root, sessionFile);
	const { runs, results } = areas(root);
	const kinds = { ...KINDS, ...Object.fromEntries(killed.map((run) => [run, { state: "failed", steps: ["failed"], ...(run.startsWith("killed") ? {} : { owner: null }) }])) };
	const todo = Object.keys(kinds).filter((run) => !kinds[run].kept && !kinds[run].over);

	const applied = recover(root, "--apply");
	check("every run that is to be repaired is", [[...new Set(applied.done.map((one) => one.runId))].sort(), applied.left, applied.problems], [[...todo, NESTED.id].sort(), [], []]);
	check("the rest is left alone, with a reason", applied.refused.map((one) => one.runId).sort(), ["kept-hidden", "kept-live", "kept-paused", "kept-queued"]);
	check("nothing more is to be done", recover(root).actions, []);
	const before = files(root);

	for (const [run, kind] of Object.entries(kinds)) {
		const meant = kind.kept ? { noResult: true, unlisted: kind.marker === false || kind.hidden, indexes: [kind.marker !== false, false] } : { noResult: kind.place === "replay" };
		readers("", path.join(runs, run), run, results, { ...kind, ...meant });
		const ours = ask("inspect", path.join(runs, run)).runs[0];
		check(`what was meant, ${run}`, [ours.recordedState, states(run)], [kind.state, [kind.state, kind.steps]]);
		const told = peer.status.inspectSubagentStatus({ id: run }, {});
		if (!kind.hidden) check(`status, ${run}`, [told.isError ?? false, /^State: (\S+)/m.exec(text(told))?.[1]], [false, kind.state]);
	}
	const nested = path.join(root, "nested-subagent-runs", NESTED.root);
	readers("nested: ", path.join(nested, NESTED.id), NESTED.id, path.join(results, "nested", NESTED.root), { state: "failed", steps: ["failed"] });
	check("the lease of a run that is gone is free", peer.lease.inspectSessionLease(sessionFile).state, "free");
	const held = slots();
	check("those of runs whose end nobody saw are kept", held, ["killed-ours", "killed-theirs", "lost", "public", ...killed.slice(0, 1)].sort());
	const settled = await waits(["kept-live", "kept-queued"]);
	for (const run of todo) await settled(run);
	// Asked for a root run, the peer tells it what became of the runs below, in events of its own.
	const after = changed(before, files(root));
	check("the peer has changed nothing but what the root of the nested run knows", after.filter((name) => !name.startsWith("nested-subagent-events/")), []);
	check("and the root knows the end of the nested run", peer.nested.projectNestedEvents(route).children.map(({ id, state }) => [id, state]), [[NESTED.id, "failed"]]);
	await retentions("", root, Object.fromEntries(Object.entries(kinds).map(([run, kind]) => [run, kind.retention])));
	const owned = Object.keys(kinds).filter((run) => !kinds[run].kept && kinds[run].owner !== null && kinds[run].place !== "replay" && !kinds[run].without?.includes("sessionId"));
	await delivered(owned.map((run) => [run, kinds[run].state === "complete"]));
}

// --- the peer repairs, ours looks

async function reconciled() {
	const route = makeOrphans(peer, root, sessionFile);
	const { runs, results } = areas(root);
	for (const run of Object.keys(KINDS)) {
		const answer = reconcile(path.join(runs, run), results);
		const repairs = !KINDS[run].kept && !KINDS[run].ended;
		check(`the peer repairs it or leaves it, ${run}`, answer.repaired, repairs);
		// Of a delivered result that is only replayed it knows nothing: it puts a failure over the success (RS-REC-05).
		const end = KINDS[run].place === "replay" ? ["failed", ["failed"]] : [KINDS[run].state, KINDS[run].steps];
		if (repairs) check(`it comes to the same end, ${run}`, states(run), end);
	}
	peer.reconciler.reconcileNestedAsyncDescendants(route, { resultsDir: results });
	peer.capacity.reconcileActiveAsyncCapacity(SESSION, LIMIT);
	const plan = recover(root);
	for (const [run, kind] of [...Object.entries(KINDS), [NESTED.id, {}]]) {
		const actions = plan.actions.filter((action) => action.runId === run).map(({ action }) => action);
		const refused = plan.refused.filter((one) => one.runId === run).map(({ verdict }) => verdict);
		check(kind.after ? `what the peer leaves to us, ${run}` : `we find nothing to do, ${run}`, [...actions, ...refused], kind.after ?? []);
	}
}

// --- recorded stores

function materialise(recording, snapshot, to) {
	fs.cpSync(path.join(recording.folder, snapshot), to, { recursive: true });
	const lines = recording.files[snapshot].map((line) => /^(\d+) (.*?)(\/| \d+)$/.exec(line)).map(([, mode, name, tail]) => ({ mode: Number.parseInt(mode, 8), file: path.join(to, name), isDir: tail === "/" }));
	for (const { file, isDir } of lines) if (isDir) fs.mkdirSync(file, { recursive: true });
	// They were recorded of this host: of another one nobody can say that a process is gone (RS-REC-03).
	for (const file of fs.globSync("session-leases/*/owner.json", { cwd: to }).map((name) => path.join(to, name))) fs.writeFileSync(file, fs.readFileSync(file, "utf8").replace('"host-a"', JSON.stringify(os.hostname())));
	// From the inside out, so that a directory that may not be entered is closed last.
	for (const { mode, file } of lines.sort((a, b) => (a.file < b.file ? 1 : -1))) if (fs.existsSync(file)) fs.chmodSync(file, mode);
}

function runDirs(store) {
	const found = [];
	for (const [runs, results] of [["async-subagent-runs", "async-subagent-results"], ...(fs.existsSync(path.join(store, "nested-subagent-runs")) ? fs.readdirSync(path.join(store, "nested-subagent-runs")).map((id) => [`nested-subagent-runs/${id}`, `async-subagent-results/nested/${id}`]) : [])]) {
		if (!fs.existsSync(path.join(store, runs))) continue;
		for (const run of fs.readdirSync(path.join(store, runs))) if (!run.startsWith(".")) found.push([path.join(store, runs, run), run, path.join(store, results)]);
	}
	return found;
}

const hasStatus = (dir) => fs.existsSync(path.join(dir, "status.json"));
// What the peer's reconciler of runs is not for.
const UNTOUCHED = ["free-slot", "free-lease", "index-run"];

async function recorded() {
	let repaired = 0;
	const top = path.join(recordings, fs.readdirSync(recordings).find((name) => name.startsWith(`${peerName}-`)));
	for (const name of fs.readdirSync(top).filter((entry) => fs.existsSync(path.join(top, entry, "case.json")))) {
		const recording = { folder: path.join(top, name), ...json(path.join(top, name, "case.json")) };
		for (const snapshot of Object.keys(recording.files)) {
			const where = `${name}/${snapshot}: `;
			const [mine, other] = ["mine", "other"].map((kind) => path.join(work, "recorded", name, `${snapshot}-${kind}`));
			for (const store of [mine, other]) materialise(recording, snapshot, store);
			const applied = recover(mine, "--apply");
			check(`${where}everything is done, and nothing more is to be done`, [applied.left, applied.problems, recover(mine).actions], [[], [], []]);
			const done = new Set(applied.done.map((one) => one.path));
			const before = files(mine);
			repaired += done.size;
			for (const [dir, run, results] of runDirs(mine).filter(([dir]) => done.has(dir))) {
				const { state, steps } = json(path.join(dir, "status.json"));
				// An ended run that is only indexed has the result that it had.
				const noResult = !fs.existsSync(path.join(results, `${run}.json`)) && applied.done.every((one) => one.path !== dir || one.action === "index-run");
				readers(where, dir, run, results, { state, steps: steps.map((step) => step.status), noResult });
			}
			// Some recordings lack a status, and the peer drops the entry of such a run.
			const bare = runDirs(mine).filter(([dir]) => !hasStatus(dir)).map(([, run]) => `-${run}.json`);
			const own = changed(before, files(mine)).filter((file) => !(file.includes("/.terminal-runs/") && bare.some((end) => file.endsWith(end))));
			check(`${where}the peer has changed nothing`, own, []);
			await retentions(where, mine);

			for (const [dir, , results] of runDirs(other)) reconcile(dir, results);
			const plan = recover(other);
			const ends = plan.actions.filter(({ action }) => !UNTOUCHED.includes(action));
			check(`${where}we end no run after the peer`, ends.map(({ runId, action, why }) => [runId, action, why]), []);
			const left = plan.refused.filter(({ verdict, path: dir }) => verdict !== "corrupt" || hasStatus(dir));
			check(`${where}none that it repaired is odd to us`, left.map(({ runId, verdict, why }) => [runId, verdict, why]), []);
		}
	}
	check(`runs were repaired (${repaired})`, repaired >= 20, true);
}

await ({ recovered, reconciled, recorded })[direction]();
// Failed checks have their lines; another exit code than 0 means that not all were made.
process.exit(0);
