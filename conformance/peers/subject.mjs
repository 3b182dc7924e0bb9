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

function observe() {
	const [program, ...args] = words;
	const child = spawn(program, args, { stdio: "ignore" });
	child.once("error", (error) => { console.error(error.message); process.exitCode = 1; });
	child.once("close", (exitCode, signal) => {
		peer.proof.finalizeProcessTerminal(runDir, path.basename(runDir), { processInstanceId: instance, closeObservedAt: Date.now(), exitCode, signal });
		const session = attempt(() => peer.utils.readStatus(runDir))[0]?.sessionId;
		if (session) attempt(() => peer.capacity.reconcileActiveAsyncCapacity(session, 64));
	});
}

function recover() {
	const reports = runDirs().map((runId) => {
		const [done, why] = attempt(() => peer.reconciler.reconcileAsyncRun(path.join(runs, runId), { resultsDir: results }));
		return { runId, repaired: done?.repaired ?? false, state: done?.status?.state ?? null, ...(why ? { because: why } : {}) };
	});
	answer({ runs: reports });
}

// The peer's launcher starts its runner with the node that it runs in, so that is the runner of the request for this time.
function launch() {
	const { args } = JSON.parse(fs.readFileSync(0, "utf8"));
	const [step] = args.steps;
	const [program, ...rest] = step.command;
	const agent = { name: step.agent, description: "a command", systemPromptMode: "replace", inheritProjectContext: false, inheritGlobalContext: false, inheritSkills: false, systemPrompt: "You answer.", source: "project", filePath: path.join(home, "agent.md"), runner: { type: "external-cli", command: program, args: rest } };
	const quoted = args.runner.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
	const place = path.join(home, "runner");
	fs.writeFileSync(place, `#!/bin/sh\nfor config; do :; done\nexec ${quoted} "$config"\n`, { mode: 0o755 });
	const host = { events: { emit: () => {}, on: () => () => {} }, getAllTools: () => [] };
	const session = args.session;
	const slot = args.slotLimit && session ? peer.capacity.acquireActiveAsyncCapacity({ sessionId: session, limit: args.slotLimit, runId: args.runId, kind: "runner", asyncDir: path.join(runs, args.runId) }) : undefined;
	process.execPath = place;
	const [started, why] = attempt(() => peer.execution.executeAsyncSingle(args.runId, {
		agent: agent.name, agentConfig: agent, task: step.task ?? "t", cwd: args.cwd, artifactConfig: { enabled: false }, shareEnabled: false, maxSubagentDepth: 1, ...(args.revival ? { sessionFile: args.revival.sessionFile } : {}), activeAsyncCapacity: slot,
		ctx: { pi: host, dm: host, cwd: args.cwd, currentSessionId: session },
		...(args.revival ? { revivalLease: { ...args.revival, runId: args.runId, ...(session ? { parentSessionId: session } : {}) } } : {}),
	}));
	process.execPath = node;
	const text = started?.content?.map((part) => part.text).join("\n");
	const failed = why ?? (started?.isError ? text : undefined);
	const status = attempt(() => peer.utils.readStatus(path.join(runs, args.runId)))[0];
	answer({ outcome: failed === undefined ? "started" : status?.state === "failed" ? "died" : "refused", ...(failed ? { cause: failed } : {}), pid: status?.pid ?? null, instanceId: status?.processTerminal?.runnerProcessInstanceId ?? null });
	// The runner goes on without its launcher.
	process.exit(failed === undefined ? 0 : 1);
}

({ inspect, observe, recover, launch })[operation]();
