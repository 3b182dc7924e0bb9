#!/usr/bin/env python3
"""A minimal runner of level L1, written from `spec/` alone. Standard library only. Usage: runner.py CONFIG

It takes fresh starts, runs the steps of each group side by side, and ends in order. It leads no revival and
looks into no inbox. A step runs `command`, a list of words; one without does nothing but note its task. Its
processes are the runner's own children, in its group, and are waited for: so no writer is recorded, and the
expected count of every step is 0 (RS-START-81).
"""
import hashlib, json, os, re, secrets, stat, subprocess, sys, time, urllib.parse

ENDED = ("complete", "failed", "partial", "stopped", "rejected")


def now():
    return int(time.time() * 1000)


def read(path, limit=65536):
    """A plain file as JSON; None if it is not there (RS-START-29)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError(f"{os.path.basename(path)} is no plain file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{os.path.basename(path)} is too large")
    return json.loads(data.decode("utf-8"))


def flush_dir(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def put(path, value):
    """Replaces a file as a whole, durably (chapter 12)."""
    folder, name = os.path.split(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(f"{name} is no plain file")
    temp = os.path.join(folder, f".{name}.{os.getpid()}.{now()}.{secrets.token_hex(8)}.tmp")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(fd, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.rename(temp, path)
    except OSError:
        os.unlink(temp)
        raise
    flush_dir(folder)


def segment(text, limit=255):
    """An id made fit for a file name (8.3)."""
    plain = urllib.parse.quote(text, safe="-_.!~*'()")
    device = re.match(r"(con|prn|aux|nul|com[1-9]|lpt[1-9])(\.|$)", plain, re.I)
    ending = re.search(r"\.[A-Za-z][A-Za-z0-9]{0,7}$", plain)
    bad = not plain or plain.endswith(".") or device or "%5c" in plain.lower() or ending
    if bad or len(plain) > limit:
        return "~sha256-" + hashlib.sha256(text.encode("utf-8")).hexdigest()
    return plain


def check(config):
    """What is wrong with a configuration: the name of a member, never its value (RS-START-45)."""
    if not isinstance(config, dict):
        return "the configuration is no object"
    filled = lambda v: isinstance(v, str) and v != ""
    for key in ("id", "resultPath", "cwd", "asyncDir", "runnerProcessInstanceId", "launchBarrierToken"):
        if not filled(config.get(key)):
            return f"{key} is not a non-empty string"
    if not isinstance(config.get("placeholder"), str):
        return "placeholder is not a string"
    if not os.path.isabs(config["asyncDir"]) or os.path.basename(config["asyncDir"]) != config["id"]:
        return "asyncDir is not the directory of this run"
    if config["launchBarrierToken"] != config["runnerProcessInstanceId"]:
        return "launchBarrierToken is not the instance"
    if not isinstance(config.get("steps"), list) or not config["steps"]:
        return "steps is not a non-empty array"
    for i, group in enumerate(config["steps"]):
        if not isinstance(group, dict) or group.get("parallel") == []:
            return f"steps[{i}] is no step"
        for step in group.get("parallel", [group]):
            if not isinstance(step, dict) or not filled(step.get("agent")):
                return f"steps[{i}].agent is not a non-empty string"
            if not isinstance(step.get("task"), str):
                return f"steps[{i}].task is not a string"
            for key in ("inheritProjectContext", "inheritGlobalContext", "inheritSkills"):
                if not isinstance(step.get(key), bool):
                    return f"steps[{i}].{key} is not a boolean"
    return None


class Run:
    def __init__(self, config):
        self.config, self.dir, self.id = config, config["asyncDir"], config["id"]
        self.session, self.instance = config.get("sessionId"), config["runnerProcessInstanceId"]
        self.runs, self.results = os.path.dirname(self.dir), os.path.dirname(config["resultPath"])
        self.groups = [group.get("parallel", [group]) for group in config["steps"]]
        self.steps = [{"agent": step["agent"], "status": "pending"} for group in self.groups for step in group]
        self.began, self.mode = now(), config.get("resultMode", "chain" if len(self.steps) > 1 else "single")

    def path(self, name):
        return os.path.join(self.dir, name)

    def wait_for_proceed(self):
        """RS-START-07, RS-START-48: judged in this order, for at most 30 s."""
        until = time.monotonic() + 30
        while time.monotonic() <= until:
            control = read(self.path("runner-startup-proceed.json"))
            if control is not None:
                if not isinstance(control, dict) or control.get("token") != self.instance:
                    raise ValueError("the control names another launch")
                if control.get("action") == "proceed":
                    return os.unlink(self.path("runner-startup-proceed.json"))
                if control.get("action") not in ("ack", "confirm"):
                    raise ValueError("the control has an unknown action")
            time.sleep(0.02)
        raise ValueError("nobody said proceed within 30 s")

    def status(self, state, **more):
        proof = {"version": 1, "state": "pending", "runId": self.id, "runnerProcessInstanceId": self.instance}
        status = {"lifecycleArtifactVersion": 3, "runId": self.id, "sessionId": self.session, "mode": self.mode,
                  "state": state, "startedAt": self.began, "lastUpdate": now(), "steps": self.steps,
                  "pid": os.getpid(), "cwd": self.config["cwd"], "processTerminal": proof, **more}
        put(self.path("status.json"), {key: value for key, value in status.items() if value is not None})

    def tell(self, kind, **more):
        """One line with one write (RS-EVENT-08); advice, so a failure is nobody's (RS-EVENT-11)."""
        line = json.dumps({"type": kind, "ts": now(), "runId": self.id, **more}) + "\n"
        try:
            fd = os.open(self.path("events.jsonl"), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            size = os.fstat(fd).st_size
            torn = size and os.pread(fd, 1, size - 1) != b"\n"
            os.write(fd, (b"\n" if torn else b"") + line.encode("utf-8"))
            os.close(fd)
        except OSError:
            pass

    def start(self, index, step):
        self.steps[index].update(status="running", startedAt=now())
        self.tell("subagent.step.started", stepIndex=index, agent=step["agent"])
        self.status("running", currentStep=index)
        try:
            log = os.open(self.path(f"output-{index}.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError:
            log = os.open(os.devnull, os.O_WRONLY)
        command = step.get("command") or ["printf", "%s\\n", step["task"]]
        try:
            return subprocess.Popen(command, cwd=step.get("cwd", self.config["cwd"]), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        except OSError as error:
            self.steps[index]["error"] = str(error)
            return None
        finally:
            os.close(log)

    def work(self):
        first = 0
        for group in self.groups:
            children = [self.start(first + i, step) for i, step in enumerate(group)]
            for i, child in enumerate(children):
                code = child.wait() if child else 127
                word = "complete" if code == 0 else "failed"
                self.steps[first + i].update(status=word, endedAt=now(), exitCode=0 if code == 0 else 1)
                self.tell("subagent.step.completed" if code == 0 else "subagent.step.failed", stepIndex=first + i, agent=group[i]["agent"])
                self.status("running")
            first += len(group)
            if any(step["status"] == "failed" for step in self.steps):
                return "failed"
        return "complete"

    def publish(self, state):
        """Pending file, session index, run index, public name (8.4). Without a session there is none."""
        if not self.session:
            return
        name = segment(self.id, 250) + ".json"
        good, ended = state == "complete", now()
        payload = {"id": self.id, "agent": self.steps[0]["agent"], "mode": self.mode, "success": good, "state": state,
                   "summary": f"{len(self.steps)} steps, {state}", "exitCode": 0 if good else 1, "timestamp": ended,
                   "results": [{"agent": s["agent"], "output": "", "success": s["status"] == "complete"} for s in self.steps],
                   "durationMs": ended - self.began, "cwd": self.config["cwd"], "asyncDir": self.dir, "sessionId": self.session}
        pending = os.path.join(self.results, "result-pending", segment(self.session), name)
        put(pending, payload)
        entry = {"version": 1, "runId": self.id, "sessionId": self.session, "asyncDir": self.dir,
                 "file": os.path.basename(self.config["resultPath"]), "writtenAt": now()}
        put(os.path.join(self.results, "result-index", "sessions", segment(self.session), name), entry)
        put(os.path.join(self.results, "result-index", "runs", name), entry)
        os.rename(pending, self.config["resultPath"])
        flush_dir(self.results)
        flush_dir(os.path.dirname(pending))

    def finish(self, state):
        """The order of RS-STEP-07."""
        for name in ("stop-inbox-closed.json", "steer-inbox-closed.json"):
            put(self.path(f"control/{name}"), {"version": 1, "closedAt": now(), "state": state})
        self.publish(state)
        ended = now()
        self.status(state, endedAt=ended, currentStep=len(self.steps) - 1)
        if self.session:
            name = f"{ended:016d}-{segment(self.id, 250)}.json"
            marker = {"version": 1, "runId": self.id, "sessionId": self.session, "endedAt": ended}
            put(os.path.join(self.runs, ".terminal-runs", segment(self.session), name), marker)
        try:
            os.unlink(os.path.join(self.runs, ".active-runs", self.id))
        except FileNotFoundError:
            pass
        self.tell("subagent.run.completed", lifecycleArtifactVersion=3, status=state, durationMs=ended - self.began)
        counts = {str(i): 0 for i in range(len(self.steps))}
        put(self.path("process-terminal-candidate.json"), {"version": 1, "runId": self.id, "runnerProcessInstanceId": self.instance,
            "writers": {i: [] for i in counts}, "expectedWriters": counts})


def main():
    os.umask(0o077)
    try:
        config = read(sys.argv[1], 16 << 20)
        os.unlink(sys.argv[1])
    except (IndexError, OSError, ValueError):
        sys.exit("runner: the configuration cannot be read")
    wrong = check(config)
    if wrong:
        sys.exit(f"runner: {wrong}")
    run = Run(config)
    try:
        run.wait_for_proceed()
    except (OSError, ValueError) as error:
        put(run.path("runner-startup.json"), {"state": "error", "pid": os.getpid(), "error": str(error)[:4000]})
        sys.exit(f"runner: {error}")
    before = read(run.path("status.json"), 16 << 20)
    if isinstance(before, dict) and before.get("state") in ENDED:
        sys.exit("runner: the run has ended before")
    run.status("running", currentStep=0)
    run.tell("subagent.run.started", lifecycleArtifactVersion=3, mode=run.mode, cwd=config["cwd"], pid=os.getpid())
    try:
        os.makedirs(run.results, mode=0o700, exist_ok=True)
        state = run.work()
    except OSError as error:
        run.status("failed", endedAt=now(), error=str(error))
        state = None
    if state:
        run.finish(state)


main()
