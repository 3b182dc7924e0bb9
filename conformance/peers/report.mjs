// usage: node report.mjs INSTALLED RUNSTORE [--write] [PEER ROLE]…
//
// Each peer in each role is judged by `runstore conformance run`. A kept report (`reports/PEER-ROLE.json`) has the verdict of each check
// that is not passed or skipped, by clause, with a sentence for each that fails, and how many checks passed.
import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { fileURLToPath } from "node:url";
import { runnerWords } from "./load.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const [installed, runstore, ...rest] = process.argv.slice(2);
const write = rest[0] === "--write";
const named = write ? rest.slice(1) : rest;
const ROLES = ["runner", "reader", "observer", "launcher", "repairer"];
const all = ["pi", "dm"].flatMap((peer) => ROLES.map((role) => [peer, role]));
const wanted = named.length ? Array.from({ length: named.length / 2 }, (_, i) => [named[2 * i], named[2 * i + 1]]) : all;
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "peer-reports-"));

function declaration(peer) {
	const words = (...more) => [process.execPath, path.join(here, "subject.mjs"), peer, installed, ...more];
	return {
		schema: "runstore.conformance.subject/1", name: peer, gaps: [],
		answers: ["recordedState", "proof"],
		// Their runners start commands in this way.
		step: { systemPrompt: "You answer.", runner: { type: "external-cli", command: "/bin/sh", args: ["-c", "cat >/dev/null; ${script}"] } },
		operations: {
			run: [process.execPath, ...runnerWords(peer, installed), "{config}"],
			inspect: words("inspect", "{root}"),
			observe: words("observe", "{root}", "{runDir}", "{instance}"),
			launch: words("launch", "{root}"),
			recover: words("recover", "{root}"),
		},
	};
}

// The verdicts that matter, without what differs from time to time.
function digest(report, sentences) {
	const rows = {};
	for (const check of report.checks) {
		if (check.verdict === "pass" || check.verdict === "skipped") continue;
		const why = sentences[check.id] ?? sentences[check.clause];
		(rows[check.clause] ??= {})[check.id] = check.verdict === "fail" ? { verdict: check.verdict, why: why ?? "" } : { verdict: check.verdict };
	}
	const { pass, skipped } = report.summary.verdicts;
	return { peer: report.peer, role: report.role, levelReached: report.levelReached, passed: pass, skipped, others: Object.fromEntries(Object.entries(rows).toSorted(([a], [b]) => (a < b ? -1 : 1))) };
}

let wrong = 0;
for (const [peer, role] of wanted) {
	const subject = path.join(scratch, `${peer}.json`);
	fs.writeFileSync(subject, JSON.stringify(declaration(peer)));
	const kept = path.join(here, "reports", `${peer}-${role}.json`);
	const told = path.join(here, "reports", "sentences.json");
	const sentences = fs.existsSync(told) ? JSON.parse(fs.readFileSync(told, "utf8"))[`${peer} ${role}`] ?? {} : {};
	const ran = spawnSync(runstore, ["conformance", "run", "--role", role, "--subject", subject, "--format", "json", "--jobs", "4"], { encoding: "utf8", maxBuffer: 1 << 28 });
	if (!ran.stdout.startsWith("{")) {
		console.log(`FAIL ${peer} ${role}: no report: ${ran.stderr.trim()}`);
		wrong += 1;
		continue;
	}
	const report = { ...JSON.parse(ran.stdout), peer };
	fs.writeFileSync(path.join(scratch, `${peer}-${role}-full.json`), ran.stdout);
	const now = `${JSON.stringify(digest(report, sentences), null, "\t")}\n`;
	if (write) {
		fs.mkdirSync(path.dirname(kept), { recursive: true });
		fs.writeFileSync(kept, now);
	}
	const same = fs.existsSync(kept) && fs.readFileSync(kept, "utf8") === now;
	if (!same) wrong += 1;
	const { verdicts } = report.summary;
	console.log(`${same ? "ok  " : "FAIL"} ${peer} ${role}: ${Object.entries(verdicts).map(([word, n]) => `${n} ${word}`).join(", ")}`);
	if (!same) fs.writeFileSync(path.join(scratch, `${peer}-${role}-now.json`), now);
}
console.log(wrong ? `${wrong} reports are not as they are kept; those of now are in ${scratch}` : "every report is as it is kept");
if (!wrong) fs.rmSync(scratch, { recursive: true });
process.exit(wrong ? 1 : 0);
