// Runs whose runner is gone, of every kind that a recoverer meets, made with the functions of one peer.
//
// Each entry of KINDS is one run: what it is like, and what is to become of it when it is repaired (`state` and
// `steps`). `kept` runs are left alone by both sides. `after` is what we still have to say of a run when the peer's
// reconciler has been at work, and `retention` how the reasons differ for which it is kept a month later
// (`theirs/ours`).
import * as fs from "node:fs";
import * as path from "node:path";

export const SESSION = "session-peers";
export const OWNER = "owner-peers";
export const LIMIT = 16;
// Ended before any table of processes knew it.
const NOBODY = 999_999_999;
const STARTED = Date.now() - 60_000;
const AGENTS = ["worker", "checker", "writer"];

const steps = (...states) => states.map((status, at) => ({ agent: AGENTS[at], status, ...(status === "pending" ? {} : { startedAt: STARTED }), ...(status === "complete" ? { endedAt: STARTED + 500, exitCode: 0 } : {}) }));
const said = (success, state, more = {}) => ({ success, state, exitCode: success ? 0 : 1, ...more });
const failed = { state: "failed", steps: ["failed"] };

export const KINDS = {
	// The common case, with everything that a run of today has.
	lost: { ...failed, slot: true },
	// Nobody would take a result of it.
	"lost-without-session": { ...failed, without: ["sessionId"] },
	"lost-of-an-old-version": { ...failed, without: ["lifecycleArtifactVersion", "processTerminal"] },
	// No listing of the peers would have found it.
	"lost-without-marker": { ...failed, marker: false },
	"lost-with-words": { ...failed, stderr: "worker: cannot open /dev/null/x\nworker: giving up\n" },
	"lost-with-a-tool-call": { ...failed, status: { toolCallId: "toolu_lost" } },
	"lost-with-a-lease": { ...failed, lease: true, after: ["free-lease"] },
	chain: { state: "failed", steps: ["complete", "failed", "failed"], status: { mode: "chain", currentStep: 1, chainStepCount: 3, steps: steps("complete", "running", "pending") } },
	workflow: { ...failed, status: { mode: "workflow" } },
	"start-up-error": { state: "failed", steps: ["failed"], startup: { state: "error", error: "it could not read its configuration" }, status: { steps: steps("pending") } },

	public: { state: "complete", steps: ["complete"], slot: true, result: said(true, "complete") },
	"public-failed": { state: "failed", steps: ["failed"], result: said(false, "failed") },
	"public-stopped": { state: "stopped", steps: ["stopped"], result: said(false, "stopped") },
	"public-partial": { state: "partial", steps: ["complete", "partial"], result: said(false, "partial"), status: { steps: steps("complete", "running") } },
	"public-paused": { state: "paused", steps: ["paused"], result: said(false, "paused") },
	"public-by-child": { state: "failed", steps: ["complete", "failed"], result: said(false, "failed", { results: [{ agent: "worker", success: true }, { agent: "checker", success: false, error: "no" }] }), status: { steps: steps("running", "running") } },
	pending: { state: "complete", steps: ["complete"], result: said(true, "complete"), place: "pending" },
	"pending-failed": { state: "failed", steps: ["failed"], result: said(false, "failed"), place: "pending" },
	"queued-with-a-result": { state: "complete", steps: ["complete"], result: said(true, "complete"), status: { state: "queued", steps: steps("pending") } },
	"hidden-with-a-result": { state: "complete", steps: ["complete"], result: said(true, "complete"), status: { displayDismissedAt: STARTED } },
	// Its result was delivered and only the replay is left. The peers do not look there: theirs is a second,
	// failed result over a success (RS-REC-05).
	replayed: { state: "complete", steps: ["complete"], result: said(true, "complete"), place: "replay", after: ["conflict"] },

	// Its end is proven, and the observer died between the proof and what follows (CW-30; RS-REC-15).
	"half-proven": { state: "complete", steps: ["complete"], ended: true, proof: "half", result: said(true, "complete"), slot: true, after: ["complete-end"] },
	// Ended as it should be, before all others: the terminal index was in use by then.
	"well-ended": { over: true, state: "complete", steps: ["complete"], ended: true, endedAt: STARTED + 600, proof: "whole", result: said(true, "complete") },
	// Nothing but its entry in the terminal index is missing (RS-REC-17).
	"not-indexed": { state: "complete", steps: ["complete"], ended: true, proof: "whole", result: said(true, "complete"), indexed: false, after: ["index-run"] },

	"kept-queued": { kept: true, state: "queued", steps: ["pending"], status: { state: "queued", steps: steps("pending") }, after: ["orphaned"], retention: "active-index/non-terminal" },
	"kept-paused": { kept: true, state: "paused", steps: ["paused"], status: { state: "paused", steps: steps("paused") }, marker: false, after: ["orphaned"] },
	"kept-hidden": { kept: true, hidden: true, state: "running", steps: ["running"], status: { displayDismissedAt: STARTED }, after: ["orphaned"], retention: "invalid-status/non-terminal" },
	// Only a bare pid is recorded. After a day of silence the peers close such a run; unknown is never dead (RS-REC-03).
	"kept-live": { kept: true, state: "running", steps: ["running"], status: { pid: process.pid }, after: ["running-unverified"], retention: "recent/non-terminal" },
};

// A nested run lies elsewhere; the run that it belongs to is `chain`.
export const NESTED = { root: "chain", id: "nested-lost" };

const instance = (run) => `instance-of-${run}`;
const write = (file, value) => { fs.mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 }); fs.writeFileSync(file, typeof value === "string" ? value : JSON.stringify(value)); };

function status(run, kind) {
	const pending = { version: 1, state: "pending", runId: run, runnerProcessInstanceId: instance(run) };
	const endedAt = kind.endedAt ?? STARTED + 1000;
	const ended = kind.ended ? { state: kind.state, endedAt, lastUpdate: endedAt, steps: steps(...kind.steps) } : {};
	const whole = { lifecycleArtifactVersion: 3, runId: run, sessionId: SESSION, completionOwnerId: OWNER, mode: "single", state: "running", startedAt: STARTED, lastUpdate: STARTED, pid: NOBODY, cwd: "/", currentStep: 0, chainStepCount: 1, steps: steps("running"), processTerminal: pending, ...ended, ...kind.status };
	for (const member of kind.without ?? []) delete whole[member];
	return whole;
}

function payload(run, kind, dir) {
	return { id: run, runId: run, sessionId: SESSION, completionOwnerId: OWNER, agent: "worker", mode: "single", summary: "said", timestamp: STARTED + 900, durationMs: 900, asyncDir: dir, results: [], ...kind.result };
}

function putResult(peer, results, run, kind, dir) {
	const made = payload(run, kind, dir);
	const file = path.join(results, `${run}.json`);
	if (kind.place === "pending") peer.results.writePendingAsyncResultFile(file, made);
	else if (kind.place === "replay") {
		const archivePath = path.join(results, "output-archives", `${run}.json`);
		write(archivePath, { version: 1, runId: run, createdAt: STARTED + 950, entries: [] });
		write(path.join(results, "completion-replay", `${run}.json`), { version: 1, runId: run, sessionId: SESSION, completedAt: STARTED + 950, expiresAt: Date.now() + 3_600_000, completion: made, archivePath });
	} else peer.results.writeAsyncResultFile(file, made);
}

function prove(peer, dir, run, kind) {
	peer.proof.writeProcessTerminalCandidate(dir, { version: 1, runId: run, runnerProcessInstanceId: instance(run), writers: { 0: [] }, expectedWriters: { 0: 0 } });
	if (kind.indexed === false) peer.active.releaseActiveRunIndex(dir);
	else peer.active.updateActiveRunIndex(dir, kind.state);
	const before = fs.readFileSync(path.join(dir, "status.json"), "utf8");
	peer.proof.finalizeProcessTerminal(dir, run, { processInstanceId: instance(run), closeObservedAt: STARTED + 1100, exitCode: 0, signal: null });
	if (kind.proof === "whole") return;
	// As if the observer had ended right after the proof itself.
	fs.writeFileSync(path.join(dir, "status.json"), before);
	fs.rmSync(path.join(dir, "events.jsonl"), { force: true });
	peer.active.updateActiveRunIndex(dir, "running");
}

function make(peer, runs, results, run, kind) {
	const dir = path.join(runs, run);
	fs.mkdirSync(dir, { recursive: true });
	const first = status(run, kind);
	peer.json.writeAtomicJson(path.join(dir, "status.json"), first);
	if (first.processTerminal && peer.proof.initializeProcessTerminal) peer.proof.initializeProcessTerminal(dir, run, instance(run));
	if (kind.marker !== false) peer.active.updateActiveRunIndex(dir, "running", first.toolCallId);
	if (kind.slot) peer.capacity.acquireActiveAsyncCapacity({ sessionId: SESSION, runId: run, asyncDir: dir, kind: "runner", limit: LIMIT }).markStarted(instance(run));
	if (kind.stderr) write(path.join(dir, "runner.stderr.log"), kind.stderr);
	if (kind.startup) write(path.join(dir, "runner-startup.json"), { token: "token", pid: NOBODY, ...kind.startup });
	if (kind.result) putResult(peer, results, run, kind, dir);
	if (kind.ended) prove(peer, dir, run, kind);
}

// Makes them all. The peer's slots are those of the root that it was loaded for.
export function makeOrphans(peer, root, sessionFile) {
	const [runs, results] = ["async-subagent-runs", "async-subagent-results"].map((name) => path.join(root, name));
	for (const [run, kind] of Object.entries(KINDS)) make(peer, runs, results, run, kind);
	// Its owner is this process until the record says otherwise.
	fs.writeFileSync(sessionFile, "{}\n");
	const [leased] = Object.keys(KINDS).filter((run) => KINDS[run].lease);
	peer.lease.acquireSessionLease({ sessionFile, runId: leased, sourceRunId: "run-source", parentSessionId: SESSION });
	const [owner] = fs.globSync("session-leases/*/owner.json", { cwd: root }).map((name) => path.join(root, name));
	const record = JSON.parse(fs.readFileSync(owner, "utf8"));
	delete record.processStartIdentity;
	write(owner, { ...record, pid: NOBODY });
	const { root: parent, id } = NESTED;
	const nested = path.join(root, "nested-subagent-runs", parent);
	make(peer, nested, path.join(results, "nested", parent), id, failed);
	const route = peer.nested.createNestedRoute(parent);
	const dir = path.join(nested, id);
	peer.nested.writeNestedEvent(route, { type: "subagent.nested.started", ts: STARTED, parentRunId: parent, parentStepIndex: 1, child: peer.nested.nestedSummaryFromAsyncStatus(status(id, failed), dir, { id, parentRunId: parent, parentStepIndex: 1, depth: 1, mode: "single", ts: STARTED }) });
	peer.nested.projectNestedEvents(route);
	return route;
}
