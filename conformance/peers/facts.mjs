// How a peer reads the store, in the words in which the driver says how we read it. Every answer comes
// from a reader of the peer; it has none that lists slots, so each run is asked for its slot.
import * as fs from "node:fs";
import * as path from "node:path";

export const SESSION = "session-peers";
export const TOOL_CALL = "toolu_peers.json";
export const LIVE = "run-live";
export const DONE = "run-done";
export const RUNS = [LIVE, DONE];
export const instance = (run) => `instance-of-${run}`;

const orNull = (value) => value ?? null;

const record = (r) => ({ kind: r.kind, id: r.processInstanceId, closedAt: r.closeObservedAt, exitCode: r.exitCode, signal: r.signal, attempt: orNull(r.attempt), hasTree: r.processTree !== undefined });

const proofFacts = (p) => p && ({ state: p.state, runId: p.runId, instance: p.runnerProcessInstanceId, observedAt: orNull(p.observedAt), instances: (p.instances ?? []).map(record), resumeDisposition: orNull(p.resumeDisposition), reason: orNull(p.reason) });

const candidateFacts = (c) => c && ({ runId: c.runId, instance: c.runnerProcessInstanceId, writers: Object.fromEntries(Object.entries(c.writers).map(([step, list]) => [step, list.map(record)])), expectedWriters: orNull(c.expectedWriters), sessionFile: orNull(c.sessionFile) });

const statusFacts = (peer, s, run) => s && ({
	runId: s.runId, sessionId: orNull(s.sessionId), toolCallId: orNull(s.toolCallId), state: s.state, pid: orNull(s.pid), startedAt: orNull(s.startedAt), endedAt: orNull(s.endedAt), lastUpdate: orNull(s.lastUpdate),
	steps: (s.steps ?? []).map((step) => ({ agent: step.agent, status: step.status, startedAt: orNull(step.startedAt), endedAt: orNull(step.endedAt) })),
	overlay: orNull(proofFacts(peer.proof.sanitizeProcessTerminal(s.processTerminal, { runId: run, runnerProcessInstanceId: instance(run) }))),
});

function resultFacts(peer, root, run) {
	const results = path.join(root, "async-subagent-results");
	// The first lookup leaves a pending result where it is; the second would make it public.
	const pending = peer.results.fallbackResultPayloadPathForSessionRun(results, SESSION, run);
	const file = pending ?? peer.results.resultPayloadPathForSessionRun(results, SESSION, run);
	if (!file) return null;
	return { place: pending ? "pending" : "public", file: path.relative(root, file), payload: JSON.parse(fs.readFileSync(file, "utf8")) };
}

const resultsByToolCall = (peer, root) => peer.results.resultCandidateFilesForToolCall(path.join(root, "async-subagent-results"), TOOL_CALL).map((file) => path.basename(file, ".json")).toSorted();

function leaseFacts(peer, sessionFile) {
	const found = peer.lease.inspectSessionLease(sessionFile);
	const facts = { state: found.state, id: found.canonicalSessionId };
	const o = found.owner;
	return o ? { ...facts, owner: { token: o.token, sessionFile: o.canonicalSessionFile, runId: o.runId, sourceRunId: o.sourceRunId, parentSessionId: orNull(o.parentSessionId), pid: o.pid, hostname: o.hostname, start: orNull(o.processStartIdentity), writerState: o.writerState, acquiredAt: o.acquiredAt, acquiredAtMs: o.acquiredAtMs, updatedAtMs: o.updatedAtMs } } : facts;
}

const slotFacts = (peer) => RUNS.map((runId) => peer.capacity.inspectActiveAsyncCapacityOwner({ sessionId: SESSION, runId }))
	.filter((found) => found.owner)
	.map(({ owner: o, release }) => ({ slot: o.slot, runId: o.runId, generation: o.generation, token: o.reservationToken, session: o.ownerSessionId, pool: o.ownerSessionKey, dir: o.asyncDir, kind: o.kind, instance: orNull(o.runnerProcessInstanceId), releasable: release.state === "releasable" }))
	.sort((a, b) => a.slot - b.slot);

// With `lookOnly` nothing is asked whose answer the peer prepares by making pending results public.
export function peerFacts(peer, root, sessionFile, { lookOnly = false } = {}) {
	const runs = path.join(root, "async-subagent-runs");
	const dir = (run) => path.join(runs, run);
	const each = (read) => Object.fromEntries(RUNS.map((run) => [run, orNull(read(run))]));
	return {
		status: each((run) => statusFacts(peer, peer.utils.readStatus(dir(run)), run)),
		candidate: each((run) => candidateFacts(peer.proof.readProcessTerminalCandidate(dir(run)))),
		proof: each((run) => proofFacts(peer.proof.readProcessTerminal(dir(run), { runId: run, runnerProcessInstanceId: instance(run) }))),
		active: orNull(peer.active.readActiveRunIndex(runs)?.toSorted()),
		byToolCall: peer.active.readActiveRunToolCallIndex(runs, TOOL_CALL).toSorted(),
		ended: peer.terminal.readRecentTerminalRunIndex(runs, { sessionId: SESSION }),
		slots: slotFacts(peer),
		lease: leaseFacts(peer, sessionFile),
		result: each((run) => resultFacts(peer, root, run)),
		...(lookOnly ? {} : { resultsByToolCall: resultsByToolCall(peer, root) }),
	};
}
