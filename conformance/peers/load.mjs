// Loads the modules of one published peer from the directory that `install` made.
//
// A peer reads its temp root from the environment when it is loaded, so one process is for one peer and
// one store. The first peer is published as TypeScript and goes through jiti; the second as JavaScript.
import { execFile } from "node:child_process";
import * as path from "node:path";
import { pathToFileURL } from "node:url";

const PEERS = {
	pi: { base: "node_modules/pi-subagents", ext: ".ts", tempEnv: "PI_SUBAGENTS_TEMP_ROOT", writerKind: "pi-writer", preload: "runner-peer-preload.mjs" },
	dm: { base: "dm/extensions/dm-subagents", ext: ".js", tempEnv: "DM_SUBAGENTS_TEMP_ROOT", writerKind: "dm-writer" },
};

const MODULES = {
	active: "runs/background/active-run-index",
	terminal: "runs/background/terminal-run-index",
	proof: "runs/background/process-terminal",
	results: "runs/background/result-files",
	capacity: "runs/background/active-async-capacity",
	lease: "runs/shared/session-lease",
	json: "shared/atomic-json",
	utils: "shared/utils",
};

// What launching and observing needs beside that; these load the peer's host as well.
export const LAUNCHING = {
	execution: "runs/background/async-execution",
	list: "runs/background/async-status",
	status: "runs/background/run-status",
	reconciler: "runs/background/stale-run-reconciler",
	resume: "runs/background/async-resume",
	control: "runs/background/control-channel",
	watcher: "runs/background/result-watcher",
	budget: "runs/shared/run-fanout-budget",
};

// What only reads, or removes by rule.
export const READING = {
	wait: "runs/background/subagent-wait",
	retention: "runs/background/async-retention",
	nested: "runs/shared/nested-events",
};

// The words that start the peer's runner, without the configuration that comes last. They are those of its
// launcher, but for the places of its host's packages: those lie beside it here.
export function runnerWords(name, installed) {
	const { base, ext, preload } = PEERS[name];
	const words = [path.join(installed, "node_modules/jiti/lib/jiti-cli.mjs"), path.join(installed, base, `src/runs/background/subagent-runner${ext}`)];
	return preload ? ["--import", pathToFileURL(path.join(installed, base, preload)).href, ...words] : words;
}

// Our launcher: a request to `runstore conformance adapter` (docs/conformance-adapter.md), and what it answers at the end.
export function launchAsUs(runstore, root, args) {
	return new Promise((resolve, reject) => {
		// Its exit code speaks of the launch.
		const child = execFile(runstore, ["conformance", "adapter"], { encoding: "utf8" }, (error, out, told) => {
			try { resolve(JSON.parse(out)); } catch { reject(error ?? new Error(told)); }
		});
		child.stdin.end(JSON.stringify({ schema: "runstore.conformance.request/1", op: "launch", root, args }));
	});
}

export async function loadPeer(name, installed, tempRoot, more = {}) {
	const peer = PEERS[name];
	process.env[peer.tempEnv] = tempRoot;
	const base = path.join(installed, peer.base);
	let load = (file) => import(pathToFileURL(file).href);
	if (peer.ext === ".ts") {
		const { createJiti } = await import(pathToFileURL(path.join(installed, "node_modules/jiti/lib/jiti.mjs")).href);
		const jiti = createJiti(path.join(base, "index.ts"), { tryNative: false, fsCache: path.join(installed, "jiti-cache") });
		load = (file) => jiti.import(file);
	}
	const modules = {};
	for (const [key, file] of Object.entries({ ...MODULES, ...more })) modules[key] = await load(path.join(base, "src", file + peer.ext));
	return { name, writerKind: peer.writerKind, ...modules };
}
