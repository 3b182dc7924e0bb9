// usage: node report.mjs INSTALLED RUNSTORE [--write] [PEER ROLE]…
//
// Each peer in each role is judged by `runstore conformance run`. A kept report (`reports/PEER-ROLE.json`) has the verdict of each check
// that is not passed or skipped, by clause, with a sentence for each that fails, and how many checks passed. Sentences stand in
// `reports/sentences.json`: by role, or by peer and role, and there by check, or by clause where one sentence holds for all its checks.
// A check that fails without a sentence is an error. `unsteady` there names scenarios and checks whose verdict depends on the speed of the machine,
// and `undriven` scenarios and checks that ask for what the adapter cannot ask of the peer, each with the reason: they are named in
// the report and not compared. `left` counts the latter.
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
const ROLES = ["runner", "reader", "observer", "launcher"];
const all = ["pi", "dm"].flatMap((peer) => ROLES.map((role) => [peer, role]));
const wanted = named.length ? Array.from({ length: named.length / 2 }, (_, i) => [named[2 * i], named[2 * i + 1]]) : all;
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "peer-reports-"));

// The suite names the store in the variable of the first family; each peer reads its own.
const STORE = { pi: [], dm: ["/bin/sh", "-c", 'DM_SUBAGENTS_TEMP_ROOT="${DM_SUBAGENTS_TEMP_ROOT:-$PI_SUBAGENTS_TEMP_ROOT}" exec "$@"', "sh"] };

function declaration(peer, role) {
	const words = (...more) => [process.execPath, path.join(here, "subject.mjs"), peer, installed, ...more];
	return {
		schema: "runstore.conformance.subject/1", name: peer, gaps: [],
		answers: role === "launcher" ? ["outcome", "cause", "pid", "instanceId"] : ["recordedState", "proof"],
		// Their runners start commands in this way.
		step: { systemPrompt: "You answer.", runner: { type: "external-cli", command: "/bin/sh", args: ["-c", "cat >/dev/null; ${script}"] } },
		operations: {
			run: [...STORE[peer], process.execPath, ...runnerWords(peer, installed), "{config}"],
			inspect: words("inspect", "{root}"),
			observe: words("observe", "{root}", "{runDir}", "{instance}"),
			launch: words("launch", "{root}"),
			recover: words("recover", "{root}"),
		},
	};
}

const told = JSON.parse(fs.readFileSync(path.join(here, "reports", "sentences.json"), "utf8"));

const wordsOf = (where, peer, role) => ({ ...where[role], ...where[`${peer} ${role}`] });

// The verdicts that matter, without what differs from time to time; and the checks that fail without a sentence.
function digest(report) {
	const of = (where) => wordsOf(where, report.peer, report.role);
	const [sentences, unsteady, undriven] = [of(told), of(told.unsteady), of(told.undriven)];
	let left = 0;
	const [rows, untold] = [{}, []];
	let [passed, skipped] = [0, 0];
	for (const check of report.checks) {
		if (check.id in unsteady || check.scenario in unsteady) continue;
		if (check.verdict !== "skipped" && (check.scenario in undriven || check.id in undriven)) left += 1;
		else if (check.verdict === "pass") passed += 1;
		else if (check.verdict === "skipped") skipped += 1;
		else {
			const why = sentences[check.id] ?? sentences[check.clause];
			if (check.verdict === "fail" && !why) untold.push(check.id);
			(rows[check.clause] ??= {})[check.id] = check.verdict === "fail" ? { verdict: check.verdict, why: why ?? "" } : { verdict: check.verdict };
		}
	}
	const others = Object.fromEntries(Object.entries(rows).toSorted(([a], [b]) => (a < b ? -1 : 1)));
	return [{ peer: report.peer, role: report.role, passed, skipped, left, unsteady, undriven, others }, untold];
}

// The suite waits for seconds where a peer on a busy machine takes tens of them to start. A scenario in which the peer did nothing for this
// long is played again, with nothing beside it, and what is seen then counts.
const SLOW_START_MS = 9000;
const TRIES = 3;

function play(role, subject, jobs, scenarios = []) {
	const named = scenarios.flatMap((id) => ["--scenario", id]);
	const ran = spawnSync(runstore, ["conformance", "run", "--role", role, "--subject", subject, "--format", "json", "--jobs", jobs, ...named], { encoding: "utf8", maxBuffer: 1 << 28 });
	return ran.stdout.startsWith("{") ? [JSON.parse(ran.stdout)] : [undefined, ran.stderr.trim()];
}

function slow({ id, trace, missed }, role) {
	// A runner may wait for ever in what it is judged by; a launcher and an observer end.
	if (role !== "runner" && /did not come within/.test(missed ?? "")) return [id];
	const [start, first] = [trace.find((it) => it.path === "start"), trace.find((it) => it.by === "subject")];
	return start && first && first.atMs - start.atMs > SLOW_START_MS ? [id] : [];
}

function judge(peer, role, subject) {
	const of = (where) => wordsOf(where, peer, role);
	let [report, why] = play(role, subject, "2");
	// Of a reader no more is asked than an answer at last. What is not compared need not be played again.
	const counts = ({ id }) => !(id in of(told.unsteady) || id in of(told.undriven));
	const late = () => (role === "reader" ? [] : (report?.scenarios ?? []).filter(counts).flatMap((it) => slow(it, role)));
	let again = late();
	for (let n = 1; n < TRIES && again.length > 0; n += 1) {
		const [anew] = play(role, subject, "1", again);
		if (!anew) break;
		const isAnew = (id) => again.includes(id);
		report.checks = report.checks.map((check) => (isAnew(check.scenario) ? anew.checks.find((it) => it.id === check.id) ?? check : check));
		report.scenarios = report.scenarios.map((it) => (isAnew(it.id) ? anew.scenarios.find((one) => one.id === it.id) ?? it : it));
		again = late();
	}
	return [report, why];
}

let wrong = 0;
for (const [peer, role] of wanted) {
	const subject = path.join(scratch, `${peer}.json`);
	fs.writeFileSync(subject, JSON.stringify(declaration(peer, role)));
	const kept = path.join(here, "reports", `${peer}-${role}.json`);
	const [ran, why] = judge(peer, role, subject);
	if (!ran) {
		console.log(`FAIL ${peer} ${role}: no report: ${why}`);
		wrong += 1;
		continue;
	}
	const report = { ...ran, peer };
	fs.writeFileSync(path.join(scratch, `${peer}-${role}-full.json`), JSON.stringify(report));
	const [digested, untold] = digest(report);
	const now = `${JSON.stringify(digested, null, "\t")}\n`;
	if (write) {
		fs.mkdirSync(path.dirname(kept), { recursive: true });
		fs.writeFileSync(kept, now);
	}
	const same = untold.length === 0 && fs.existsSync(kept) && fs.readFileSync(kept, "utf8") === now;
	if (!same) wrong += 1;
	const others = Object.values(digested.others).flatMap((row) => Object.values(row));
	const count = (word) => `${others.filter((it) => it.verdict === word).length} ${word}`;
	console.log(`${same ? "ok  " : "FAIL"} ${peer} ${role}: ${["fail", "inconclusive", "non-strict"].map(count).join(", ")}, ${digested.passed} pass, ${digested.skipped} skipped, ${digested.left} not driven`);
	if (untold.length) console.log(`     reports/sentences.json says nothing of: ${untold.join(" ")}`);
	if (!same) fs.writeFileSync(path.join(scratch, `${peer}-${role}-now.json`), now);
}
console.log(wrong ? `${wrong} reports are not as they are kept; those of now are in ${scratch}` : "every report is as it is kept");
if (!wrong) fs.rmSync(scratch, { recursive: true });
process.exit(wrong ? 1 : 0);
