// A published peer as a subject of `runstore conformance`: one operation, by the peer's own functions.
// usage: node subject.mjs pi|dm INSTALLED OPERATION ROOT [RUNDIR INSTANCE WORD…]
//
// `inspect`: what its readers say of each run directory. `observe`: it waits for a runner as its parent and finalises
// the end, as its launcher does. `launch`: its launcher starts the runner of the request on standard input.
// `recover`: its reconciler looks at each run. The answers have the form of docs/conformance-adapter.md, as far as the peer tells it.
import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { LAUNCHING, loadPeer } from "./load.mjs";

const [peerName, installed, operation, root, runDir, instance, ...words] = process.argv.slice(2);
const home = `${root}-home`;
fs.mkdirSync(home, { recursive: true, mode: 0o700 });
// Nothing of the user's own host may be found, and nothing is fetched.
Object.assign(process.env, { HOME: home, PI_OFFLINE: "1", DM_OFFLINE: "1", PI_CODING_AGENT_DIR: path.join(home, "agent"), DM_CODING_AGENT_DIR: path.join(home, "agent") });
const node = process.execPath;
const peer = await loadPeer(peerName, installed, root, operation === "launch" || operation === "recover" ? LAUNCHING : {});
const runs = path.join(root, "async-subagent-runs");
const results = path.join(root, "async-subagent-results");

const answer = (value) => { fs.writeSync(1, `${JSON.stringify(value)}\n`); };
const attempt = (read) => { try { return [read(), undefined]; } catch (error) { return [undefined, String(error?.message ?? error)]; } };

// The directories that the peer's own scan takes for runs.
const runDirs = () => fs.readdirSync(runs).filter((name) => ![".active-runs", ".terminal-runs"].includes(name) && fs.statSync(path.join(runs, name), { throwIfNoEntry: false })?.isDirectory());

function inspect() {
	const reports = runDirs().map((runId) => {
		const dir = path.join(runs, runId);
		const [status, why] = attempt(() => peer.utils.readStatus(dir));
		const claimed = status?.processTerminal?.runnerProcessInstanceId;
		const [proof] = attempt(() => peer.proof.readProcessTerminal(dir, { runId, ...(claimed ? { runnerProcessInstanceId: claimed } : {}) }));
		return { runId, recordedState: status?.state ?? null, proof: { state: proof?.state ?? "missing", counts: proof?.state === "observed" }, ...(why ? { because: why } : {}) };
	});
	answer({ runs: reports });
}

// The suite's accounts name writers of the first family; a peer knows only the word of its own. So the account says that word while the
// peer settles the end, and is put back after.
function account() {
	const place = path.join(runDir, "process-terminal-candidate.json");
	const [text] = attempt(() => fs.readFileSync(place, "utf8"));
	if (peer.writerKind === "pi-writer" || !text?.includes('"pi-writer"')) return () => {};
	fs.writeFileSync(place, text.replaceAll('"pi-writer"', `"${peer.writerKind}"`));
	return () => fs.writeFileSync(place, text);
}

function observe() {
	const [program, ...args] = words;
	const putBack = account();
	const child = spawn(program, args, { stdio: "ignore" });
	child.once("error", (error) => { console.error(error.message); process.exitCode = 1; });
	child.once("close", (exitCode, signal) => {
		peer.proof.finalizeProcessTerminal(runDir, path.basename(runDir), { processInstanceId: instance, closeObservedAt: Date.now(), exitCode, signal });
		const session = attempt(() => peer.utils.readStatus(runDir))[0]?.sessionId;
		if (session) attempt(() => peer.capacity.reconcileActiveAsyncCapacity(session, 64));
		putBack();
	});
}

function recover() {
	const reports = runDirs().map((runId) => {
		const [done, why] = attempt(() => peer.reconciler.reconcileAsyncRun(path.join(runs, runId), { resultsDir: results }));
		return { runId, repaired: done?.repaired ?? false, state: done?.status?.state ?? null, ...(why ? { because: why } : {}) };
	});
	answer({ runs: reports });
}

// What the adapter cannot ask of the peer: its launcher gets it from its host and its environment. Of other members that the peer has no
// place for (`config`, `descriptor`, `toolCall`, `budget`) it makes what it always makes.
const UNDRIVEN = ["route", "nestedSelf", "runsRoot", "resultPath"];

// The peer's launcher starts its runner with the node that it runs in, so that is the runner of the request for this time. It takes
// only a program of that name.
function launch() {
	const { args } = JSON.parse(fs.readFileSync(0, "utf8"));
	const foreign = Object.keys(args).filter((key) => UNDRIVEN.includes(key));
	if (foreign.length || args.steps.length !== 1 || (args.mode ?? "single") !== "single") {
		answer({ outcome: "not-driven", cause: `the adapter cannot ask the peer for this launch: ${foreign.join(", ") || "its shape"}` });
		process.exit(1);
	}
	const [step] = args.steps;
	const [program, ...rest] = step.command ?? ["true"];
	const agent = { name: step.agent, description: "a command", systemPromptMode: "replace", inheritProjectContext: false, inheritGlobalContext: false, inheritSkills: false, systemPrompt: "You answer.", source: "project", filePath: path.join(home, "agent.md"), runner: { type: "external-cli", command: program, args: rest } };
	const quoted = args.runner.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
	const place = path.join(home, "bin", "node");
	fs.mkdirSync(path.dirname(place), { recursive: true });
	fs.writeFileSync(place, `#!/bin/sh\nfor config; do :; done\nexec ${quoted} "$config"\n`, { mode: 0o755 });
	const host = { events: { emit: () => {}, on: () => () => {} }, getAllTools: () => [] };
	const { session, revival, runId } = args;
	const slotOf = { sessionId: session, limit: args.slotLimit, runId, asyncDir: path.join(runs, runId) };
	const takeSlot = () => (revival ? peer.capacity.transferActiveAsyncCapacity({ ...slotOf, sourceRunId: revival.sourceRunId }) : peer.capacity.acquireActiveAsyncCapacity({ ...slotOf, kind: "runner" }));
	const [slot, full] = args.slotLimit && session ? attempt(takeSlot) : [];
	Object.assign(process.env, args.env);
	for (const name of args.removeEnv ?? []) delete process.env[name];
	process.execPath = place;
	const [started, thrown] = full ? [] : attempt(() => peer.execution.executeAsyncSingle(runId, {
		agent: agent.name, agentConfig: agent, task: step.task ?? "t", cwd: args.cwd, artifactConfig: { enabled: false }, shareEnabled: false, maxSubagentDepth: 1, activeAsyncCapacity: slot,
		...(args.timeoutMs ? { timeoutMs: args.timeoutMs } : {}), ...(args.deadlineAt ? { absoluteDeadlineAt: args.deadlineAt } : {}),
		ctx: { pi: host, dm: host, cwd: args.cwd, currentSessionId: session, ...(args.parentSession ? { parentSessionId: args.parentSession } : {}) },
		...(revival ? { sessionFile: revival.sessionFile, revivalLease: { ...revival, runId, ...(session ? { parentSessionId: session } : {}) } } : {}),
	}));
	process.execPath = node;
	const text = started?.content?.map((part) => part.text).join("\n");
	const failed = full ?? thrown ?? (started?.isError ? text : undefined);
	const status = attempt(() => peer.utils.readStatus(path.join(runs, runId)))[0];
	answer({ outcome: failed === undefined ? "started" : outcome(failed, status), ...(failed ? { cause: failed } : {}), pid: status?.pid ?? null, instanceId: status?.processTerminal?.runnerProcessInstanceId ?? null });
	// The runner goes on without its launcher.
	process.exit(failed === undefined ? 0 : 1);
}

// The peer tells its failures apart only by their sentences.
function outcome(sentence, status) {
	if (/Timed out/.test(sentence)) return "timed-out";
	return status?.state === "failed" && !/invalid .* handshake/.test(sentence) ? "died" : "refused";
}

({ inspect, observe, recover, launch })[operation]();
