#!/usr/bin/env node
// A minimal runner of level L1, written from `spec/` alone. No packages. Usage: runner.mjs CONFIG
//
// It takes fresh starts, runs the steps of each group side by side, and ends in order. It leads no revival and looks into
// no inbox. A step runs `command`, a list of words; one without does nothing. Its processes are the runner's own children,
// in its group, and are waited for: so no writer is recorded, and the expected count of every step is 0 (RS-START-81).
import { createHash, randomBytes } from "node:crypto";
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

const { O_RDONLY, O_RDWR, O_WRONLY, O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK } = fs.constants;
const now = () => Date.now();
const sleep = (ms) => new Promise((resume) => setTimeout(resume, ms));
const filled = (value) => typeof value === "string" && value !== "";
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function fail(why) {
  process.stderr.write(`runner: ${why}\n`);
  process.exit(1);
}

/** A plain file as JSON; undefined if it is not there (RS-START-29). */
function read(file, limit = 65536) {
  let fd;
  try {
    fd = fs.openSync(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  } catch (error) {
    if (error.code === "ENOENT") return undefined;
    throw error;
  }
  try {
    const { size } = fs.fstatSync(fd);
    if (!fs.fstatSync(fd).isFile() || size > limit) throw new Error(`${path.basename(file)} is no plain file of this size`);
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(fs.readFileSync(fd));
    return JSON.parse(text);
  } finally {
    fs.closeSync(fd);
  }
}

function flushDir(folder) {
  const fd = fs.openSync(folder, O_RDONLY);
  fs.fsyncSync(fd);
  fs.closeSync(fd);
}

/** Replaces a file as a whole, durably (chapter 12). */
function put(file, value) {
  const [folder, name] = [path.dirname(file), path.basename(file)];
  fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
  const there = fs.lstatSync(file, { throwIfNoEntry: false });
  if (there && !there.isFile()) throw new Error(`${name} is no plain file`);
  const temp = path.join(folder, `.${name}.${process.pid}.${now()}.${randomBytes(8).toString("hex")}.tmp`);
  const fd = fs.openSync(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    fs.writeFileSync(fd, JSON.stringify(value, null, 2));
    fs.fsyncSync(fd);
    fs.renameSync(temp, file);
  } catch (error) {
    fs.rmSync(temp, { force: true });
    throw error;
  } finally {
    fs.closeSync(fd);
  }
  flushDir(folder);
}

/** An id made fit for a file name (8.3). */
function segment(text, limit = 255) {
  const plain = text.isWellFormed() ? encodeURIComponent(text) : "";
  const device = /^(con|prn|aux|nul|com[1-9]|lpt[1-9])(\.|$)/i.test(plain);
  const bad = plain === "" || plain.endsWith(".") || device || /%5c/i.test(plain) || /\.[A-Za-z][A-Za-z0-9]{0,7}$/.test(plain);
  if (!bad && plain.length <= limit) return plain;
  return `~sha256-${createHash("sha256").update(text.toWellFormed()).digest("hex")}`;
}

/** What is wrong with a configuration: the name of a member, never its value (RS-START-45). */
function check(config) {
  if (!isObject(config)) return "the configuration is no object";
  for (const key of ["id", "resultPath", "cwd", "asyncDir", "runnerProcessInstanceId", "launchBarrierToken"]) {
    if (!filled(config[key])) return `${key} is not a non-empty string`;
  }
  if (typeof config.placeholder !== "string") return "placeholder is not a string";
  if (!path.isAbsolute(config.asyncDir) || path.basename(config.asyncDir) !== config.id) return "asyncDir is not the directory of this run";
  if (config.launchBarrierToken !== config.runnerProcessInstanceId) return "launchBarrierToken is not the instance";
  if (!Array.isArray(config.steps) || config.steps.length === 0) return "steps is not a non-empty array";
  for (const [i, group] of config.steps.entries()) {
    const members = isObject(group) ? group.parallel ?? [group] : [];
    if (!Array.isArray(members) || members.length === 0) return `steps[${i}] is no step`;
    for (const step of members) {
      if (!isObject(step) || !filled(step.agent)) return `steps[${i}].agent is not a non-empty string`;
      if (typeof step.task !== "string") return `steps[${i}].task is not a string`;
      for (const key of ["inheritProjectContext", "inheritGlobalContext", "inheritSkills"]) {
        if (typeof step[key] !== "boolean") return `steps[${i}].${key} is not a boolean`;
      }
    }
  }
  return undefined;
}

process.umask(0o077);
let config;
try {
  config = read(process.argv[2], 16 << 20);
  if (config === undefined) throw new Error("it is not there");
  fs.rmSync(process.argv[2]);
} catch {
  fail("the configuration cannot be read");
}
const wrong = check(config);
if (wrong) fail(wrong);

const { id, asyncDir: dir, sessionId: session, runnerProcessInstanceId: instance, resultPath, cwd } = config;
const [runs, results, began] = [path.dirname(dir), path.dirname(resultPath), now()];
const groups = config.steps.map((group) => group.parallel ?? [group]);
const steps = groups.flat().map(({ agent }) => ({ agent, status: "pending" }));
const mode = config.resultMode ?? (steps.length > 1 ? "chain" : "single");
const within = (name) => path.join(dir, name);

/** RS-START-07, RS-START-48: judged in this order, for at most 30 s. */
async function waitForProceed() {
  const file = within("runner-startup-proceed.json");
  const until = performance.now() + 30_000;
  while (performance.now() <= until) {
    const control = read(file);
    if (control !== undefined) {
      if (!isObject(control) || control.token !== instance) throw new Error("the control names another launch");
      if (control.action === "proceed") return fs.rmSync(file, { force: true });
      if (!["ack", "confirm"].includes(control.action)) throw new Error("the control has an unknown action");
    }
    await sleep(20);
  }
  throw new Error("nobody said proceed within 30 s");
}

function status(state, more = {}) {
  const processTerminal = { version: 1, state: "pending", runId: id, runnerProcessInstanceId: instance };
  put(within("status.json"), {
    lifecycleArtifactVersion: 3, runId: id, sessionId: session, mode, state, startedAt: began, lastUpdate: now(),
    steps, pid: process.pid, cwd, processTerminal, ...more,
  });
}

/** One line with one write (RS-EVENT-08); advice, so a failure is nobody's (RS-EVENT-11). */
function tell(type, more = {}) {
  const line = `${JSON.stringify({ type, ts: now(), runId: id, ...more })}\n`;
  try {
    const fd = fs.openSync(within("events.jsonl"), O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600);
    const { size } = fs.fstatSync(fd);
    const last = Buffer.alloc(1);
    if (size > 0) fs.readSync(fd, last, 0, 1, size - 1);
    fs.writeSync(fd, (size > 0 && last[0] !== 10 ? "\n" : "") + line);
    fs.closeSync(fd);
  } catch {}
}

/** Runs one step to its end; the exit code, or null. */
function run(index, step) {
  Object.assign(steps[index], { status: "running", startedAt: now() });
  tell("subagent.step.started", { stepIndex: index, agent: step.agent });
  status("running", { currentStep: index });
  if (!Array.isArray(step.command)) return Promise.resolve(0);
  let log = "ignore";
  try {
    log = fs.openSync(within(`output-${index}.log`), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600);
  } catch {}
  return new Promise((ended) => {
    const child = spawn(step.command[0], step.command.slice(1), { cwd: step.cwd ?? cwd, stdio: ["ignore", log, log] });
    child.on("error", (error) => { steps[index].error = error.message; ended(127); });
    child.on("exit", (code) => ended(code));
  });
}

async function work() {
  let first = 0;
  for (const group of groups) {
    await Promise.all(group.map(async (step, i) => {
      const code = await run(first + i, step);
      const word = code === 0 ? "complete" : "failed";
      Object.assign(steps[first + i], { status: word, endedAt: now(), exitCode: code === 0 ? 0 : 1 });
      tell(code === 0 ? "subagent.step.completed" : "subagent.step.failed", { stepIndex: first + i, agent: step.agent });
      status("running");
    }));
    first += group.length;
    if (steps.some((step) => step.status === "failed")) return "failed";
  }
  return "complete";
}

/** Pending file, session index, run index, public name (8.4). Without a session there is none. */
function publish(state) {
  if (!filled(session)) return;
  const [name, success, timestamp] = [`${segment(id, 250)}.json`, state === "complete", now()];
  const pending = path.join(results, "result-pending", segment(session), name);
  put(pending, {
    id, agent: steps[0].agent, mode, success, state, summary: `${steps.length} steps, ${state}`,
    results: steps.map((step) => ({ agent: step.agent, output: "", success: step.status === "complete" })),
    exitCode: success ? 0 : 1, timestamp, durationMs: timestamp - began, cwd, asyncDir: dir, sessionId: session,
  });
  const entry = { version: 1, runId: id, sessionId: session, file: path.basename(resultPath), writtenAt: now(), asyncDir: dir };
  put(path.join(results, "result-index", "sessions", segment(session), name), entry);
  put(path.join(results, "result-index", "runs", name), entry);
  fs.renameSync(pending, resultPath);
  flushDir(results);
  flushDir(path.dirname(pending));
}

/** The order of RS-STEP-07. */
function finish(state) {
  for (const name of ["stop-inbox-closed.json", "steer-inbox-closed.json"]) {
    put(within(`control/${name}`), { version: 1, closedAt: now(), state });
  }
  publish(state);
  const endedAt = now();
  status(state, { endedAt, lastUpdate: endedAt, currentStep: steps.length - 1 });
  if (filled(session)) {
    const name = `${String(endedAt).padStart(16, "0")}-${segment(id, 250)}.json`;
    put(path.join(runs, ".terminal-runs", segment(session), name), { version: 1, runId: id, sessionId: session, endedAt });
  }
  fs.rmSync(path.join(runs, ".active-runs", id), { force: true });
  tell("subagent.run.completed", { lifecycleArtifactVersion: 3, status: state, durationMs: endedAt - began });
  const each = (value) => Object.fromEntries(steps.map((_, i) => [String(i), value]));
  put(within("process-terminal-candidate.json"), {
    version: 1, runId: id, runnerProcessInstanceId: instance, writers: each([]), expectedWriters: each(0),
  });
}

try {
  await waitForProceed();
} catch (error) {
  put(within("runner-startup.json"), { state: "error", pid: process.pid, error: error.message.slice(0, 4000) });
  fail(error.message);
}
const before = read(within("status.json"), 16 << 20);
if (["complete", "failed", "partial", "stopped", "rejected"].includes(before?.state)) fail("the run has ended before");
status("running", { currentStep: 0 });
tell("subagent.run.started", { lifecycleArtifactVersion: 3, mode, cwd, pid: process.pid });
try {
  fs.mkdirSync(results, { recursive: true, mode: 0o700 });
} catch (error) {
  status("failed", { endedAt: now(), error: error.message });
  process.exit(0);
}
finish(await work());
