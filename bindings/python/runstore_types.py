"""Types of the documents of a run store, as a reader has to bear them, and of the answers of `runstore`.

Made from spec/schemas/v1 by `cargo run -p testkit --bin make-types`; changes are made there.

A type is wider than its schema: conditions over several members, patterns and bounds are not told.
Members and words that are not listed are data of another version. They are kept when a document is rewritten.
In a document None counts as absent. `Union[SomeWords, str]` is an open list: any other word may stand there.
An `int` may be spelled 1.0 in JSON, which Python reads as a float.
"""

from __future__ import annotations

from typing import Any, Dict, List, Literal, NoReturn, TypedDict, Union

RepairAction = Literal[
    "close-as-failed",
    "adopt-result",
    "complete-end",
    "index-run",
    "add-marker",
    "publish-result",
    "free-slot",
    "free-lease",
    "remove-config",
    "remove-litter",
    "set-aside-status",
]


class ApplyAnswerDoneItem(TypedDict):
    action: RepairAction
    id: str
    path: str
    runId: str
    why: str


class ApplyAnswerLeftItem(TypedDict):
    id: str
    runId: str
    why: str

Verdict = Literal[
    "starting",
    "start-stuck",
    "start-failed",
    "never-started",
    "running",
    "running-unverified",
    "orphaned",
    "settling",
    "paused",
    "finished",
    "finished-unproven",
    "conflict",
    "corrupt",
    "unsupported",
    "unsafe",
    "not-a-run",
]


class ApplyRefusal(TypedDict):
    path: str
    runId: str
    verdict: Verdict
    why: str


class ApplyAnswerSummary(TypedDict):
    done: int
    finished: int
    left: int
    refused: int


class _ApplyAnswerRequired(TypedDict):
    # one for each store in which something was begun
    applies: List[str]
    done: List[ApplyAnswerDoneItem]
    # runs of which an earlier apply had begun an action
    finished: List[str]
    left: List[ApplyAnswerLeftItem]
    nowMs: int
    problems: List[str]
    refused: List[ApplyRefusal]
    schema: Literal["runstore.apply/1"]
    summary: ApplyAnswerSummary


class ApplyAnswer(_ApplyAnswerRequired, total=False):
    """Answer of recover --apply: runstore.apply/1"""

    # why it ended before all was done; calling again goes on
    stopped: List[str]

CapacityOwnerKind = Literal[
    "runner",
    "workflow",
]


class _CapacityOwnerRequired(TypedDict):
    asyncDir: str
    generation: int
    kind: CapacityOwnerKind
    ownerSessionId: str
    ownerSessionKey: str
    reservationToken: str
    reservedAt: float
    runId: str
    slot: int
    version: Literal[1]


class CapacityOwner(_CapacityOwnerRequired, total=False):
    """Owner of a capacity slot: slot-<n>/owner.json"""

    runnerProcessInstanceId: str
    runnerStartedAt: float
    sourceRunId: str

CheckProblemLevel = Literal[
    "MUST",
    "SHOULD",
]

Severity = Literal[
    "error",
    "warning",
    "note",
]


class _CheckProblemRequired(TypedDict):
    do: str
    id: str
    level: CheckProblemLevel
    path: str
    # clauses
    see: List[str]
    severity: Severity
    what: str


class CheckProblem(_CheckProblemRequired, total=False):
    runId: str


class CheckAnswerSummary(TypedDict):
    must: int
    # of level should, without --strict
    notAsked: int
    runs: int
    should: int


class CheckAnswer(TypedDict):
    """Answer of check: runstore.check/1"""

    nowMs: int
    problems: List[CheckProblem]
    schema: Literal["runstore.check/1"]
    strict: bool
    summary: CheckAnswerSummary

Liveness = Literal[
    "live",
    "dead",
    "reused",
    "foreign",
    "unknown",
    "not-recorded",
]


class _ControlAnswerNextItemRequired(TypedDict):
    why: str


class ControlAnswerNextItem(_ControlAnswerNextItemRequired, total=False):
    command: str

ControlOutcome = Literal[
    "asked",
    "taken-up",
    "already-asked",
    "ended",
    "closing",
    "dead",
    "refused",
]

ControlRequest = Literal[
    "stop",
    "interrupt",
]


class _ControlAnswerRequired(TypedDict):
    because: str
    liveness: Liveness
    mustNot: List[str]
    next: List[ControlAnswerNextItem]
    outcome: ControlOutcome
    path: str
    recordedState: Union[str, None]
    request: ControlRequest
    runId: str
    schema: Literal["runstore.control/1"]
    verdict: Verdict


class ControlAnswer(_ControlAnswerRequired, total=False):
    """Answer of stop and interrupt: runstore.control/1"""

    # where that was waited for
    done: bool
    # the request, below the run directory
    file: str
    # that was sent
    signal: str
    step: int


class _ProcessTerminalRunnerInstanceRequired(TypedDict):
    closeObservedAt: float
    exitCode: Union[float, None]
    kind: Literal["runner"]
    processInstanceId: str
    signal: Union[str, None]


class ProcessTerminalRunnerInstance(_ProcessTerminalRunnerInstanceRequired, total=False):
    attempt: NoReturn

WriterKind = Literal[
    "pi-writer",
    "dm-writer",
]


class ProcessTerminalWriterInstanceProcessTreeObserved(TypedDict):
    mechanism: Literal["posix-process-group"]
    processGroupId: int
    state: Literal["observed"]
    verifiedAt: float

ProcessTreeReason = Literal[
    "unsupported-platform",
    "signal-failed",
    "verification-failed",
]


class _ProcessTerminalWriterInstanceProcessTreeUnknownRequired(TypedDict):
    reason: ProcessTreeReason
    state: Literal["unknown"]


class ProcessTerminalWriterInstanceProcessTreeUnknown(_ProcessTerminalWriterInstanceProcessTreeUnknownRequired, total=False):
    diagnostic: str


class _ProcessTerminalWriterInstanceRequired(TypedDict):
    attempt: int
    closeObservedAt: float
    exitCode: Union[float, None]
    kind: WriterKind
    processInstanceId: str
    signal: Union[str, None]


class ProcessTerminalWriterInstance(_ProcessTerminalWriterInstanceRequired, total=False):
    # RS-CAND-03: absent in records of P43 and P44
    processTree: Union[ProcessTerminalWriterInstanceProcessTreeObserved, ProcessTerminalWriterInstanceProcessTreeUnknown]

ProcessTerminalResumeDisposition = Literal[
    "resumable",
    "non-resumable",
    "unavailable",
]

ProofState = Literal[
    "pending",
    "observed",
    "unknown",
    "not-started",
]


class _ProcessTerminalRequired(TypedDict):
    runId: str
    runnerProcessInstanceId: str
    state: ProofState
    version: Literal[1]


class ProcessTerminal(_ProcessTerminalRequired, total=False):
    """Proof of a runner's end: process-terminal.json"""

    # RS-PROOF-02: never decides validity. An object with canonicalSessionId, leaseDisposition, freeAtObservation, canonicalSessionLeaseReleased
    canonicalSession: Any
    # only in the status, on steps
    childIndex: int
    # text; never decides validity
    diagnostic: Any
    # RS-OBS-07: a word of 15.2 or another one; never decides validity
    exitEvidence: Any
    instances: List[Union[ProcessTerminalRunnerInstance, ProcessTerminalWriterInstance]]
    observedAt: float
    # RS-PROOF-02: never decides validity. Known words: observer-unavailable, runner-candidate-missing, runner-instance-mismatch, writer-close-unverified, process-tree-unverified, canonical-session-unavailable, canonical-session-lease-active, canonical-session-release-unverified, proof-write-failed, stale-repair
    reason: Any
    resumeDisposition: ProcessTerminalResumeDisposition

RunState = Literal[
    "queued",
    "running",
    "complete",
    "failed",
    "partial",
    "paused",
    "stopped",
    "rejected",
]

EventType = Literal[
    "subagent.run.started",
    "subagent.run.paused",
    "subagent.run.stopped",
    "subagent.run.timed_out",
    "subagent.run.completed",
    "subagent.run.process_terminal",
    "subagent.run.repaired_stale",
    "subagent.step.started",
    "subagent.step.completed",
    "subagent.step.failed",
    "subagent.step.paused",
    "subagent.step.stopped",
    "subagent.capacity.released",
    "subagent.events.truncated",
    "subagent.child.stderr",
]


class _EventRequired(TypedDict):
    type: Union[EventType, str]


class Event(_EventRequired, total=False):
    """One line of events.jsonl"""

    agent: str
    lifecycleArtifactVersion: int
    # text in lines of the protocol, an object in lines of the child
    message: Any
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    observedAt: float
    pid: int
    # RS-PROOF-05, RS-PROOF-16: a copy of the proof; any value is read, an invalid one counts as unknown
    processTerminal: Union[ProcessTerminal, Any]
    runId: str
    status: Union[RunState, str]
    stepIndex: int
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    ts: float


class _ExplainEntryRequired(TypedDict):
    clauses: List[str]
    id: str
    kind: str
    meaning: str


class ExplainEntry(_ExplainEntryRequired, total=False):
    advice: Union[str, None]


class ExplainAnswer(TypedDict):
    """Answer of explain: runstore.explain/1"""

    entries: List[ExplainEntry]
    schema: Literal["runstore.explain/1"]

InspectEvidenceKind = Literal[
    "observed",
    "claimed",
    "inferred",
]


class _InspectEvidenceRequired(TypedDict):
    # RS-DIAG-04
    kind: InspectEvidenceKind
    text: str


class InspectEvidence(_InspectEvidenceRequired, total=False):
    atMs: int
    file: str


class _InspectFindingRequired(TypedDict):
    # a clause id or a diagnosis id
    id: str
    severity: Severity
    text: str


class InspectFinding(_InspectFindingRequired, total=False):
    file: str
    line: int

InspectRunFlags = Literal[
    "repaired",
    "undelivered",
    "undeliverable",
    "result-missing",
    "unpublished-write",
    "output-committed",
    "control-pending",
    "overdue",
    "log-torn",
    "log-corrupt",
    "slot-retained",
    "slot-releasable",
    "lease-held",
    "shadow",
    "split-root",
    "temp-litter",
    "marker-stale",
    "marker-missing",
    "shared-pid",
    "loose-permissions",
    "truncated",
]


class _InspectNextRequired(TypedDict):
    action: str
    why: str


class InspectNext(_InspectNextRequired, total=False):
    command: str


class _InspectRunProofRequired(TypedDict):
    # RS-PROOF-06
    counts: bool
    state: Union[str, None]


class InspectRunProof(_InspectRunProofRequired, total=False):
    reason: str

InspectRunStage = Literal[
    "prepared",
    "spawned",
    "ready",
    "acknowledged",
    "confirmed",
    "proceed",
]


class _InspectRunRequired(TypedDict):
    children: List[str]
    evidence: List[InspectEvidence]
    findings: List[InspectFinding]
    flags: List[InspectRunFlags]
    liveness: Liveness
    mustNot: List[str]
    next: List[InspectNext]
    # absolute
    path: str
    proof: InspectRunProof
    # RS-STATUS-06: verbatim
    recordedState: Union[str, None]
    runId: str
    verdict: Verdict


class InspectRun(_InspectRunRequired, total=False):
    dialect: str
    preferred: str
    resumable: bool
    stage: InspectRunStage


class InspectAnswerSummary(TypedDict):
    byVerdict: Dict[Verdict, int]
    total: int


class InspectAnswer(TypedDict):
    """Answer of inspect: runstore.inspect/1"""

    leases: List[Dict[str, Any]]
    nowMs: int
    problems: List[Any]
    results: List[Dict[str, Any]]
    runs: List[InspectRun]
    schema: Literal["runstore.inspect/1"]
    scope: Dict[str, Any]
    slots: List[Dict[str, Any]]
    summary: InspectAnswerSummary

LeaseOwnerWriterState = Literal[
    "none",
    "spawning",
    "running",
]


class _LeaseOwnerRequired(TypedDict):
    # ISO-8601
    acquiredAt: str
    acquiredAtMs: float
    canonicalSessionFile: str
    hostname: str
    pid: int
    runId: str
    sourceRunId: str
    token: str
    updatedAtMs: float
    version: Literal[1]
    writerState: LeaseOwnerWriterState


class LeaseOwner(_LeaseOwnerRequired, total=False):
    """Owner of a session lease: session-leases/<hex>/owner.json"""

    # Additive: the boot in which processStartIdentity holds. RS-LEASE-09.
    bootId: str
    parentSessionId: str
    # Additive: the namespace in which pid holds. RS-LEASE-09.
    pidNamespaceScope: str
    # Additive: unique for the boot. RS-LEASE-09.
    pidfdInode: Union[str, int]
    # RS-LEASE-08: linux:<ticks>, runtime:<ms> or older text
    processStartIdentity: str
    writerPid: int
    writerProcessStartIdentity: str

LeasesLeaseState = Literal[
    "held",
    "stale",
    "unreadable",
]


class _LeasesLeaseRequired(TypedDict):
    # below the store
    path: str
    reason: str
    state: LeasesLeaseState


class LeasesLease(_LeasesLeaseRequired, total=False):
    acquiredAtMs: int
    hostname: str
    liveness: Liveness
    pid: int
    runId: str
    sessionFile: str
    sessionId: str
    writerState: str


class LeasesProblem(TypedDict):
    id: str
    path: str
    severity: Severity
    text: str


class LeasesAnswer(TypedDict):
    """Answer of leases: runstore.leases/1"""

    leases: List[LeasesLease]
    nowMs: int
    problems: List[LeasesProblem]
    schema: Literal["runstore.leases/1"]


class ListAnswerRunsItem(TypedDict):
    because: str
    flags: List[str]
    liveness: Liveness
    path: str
    runId: str
    verdict: Verdict


class ListAnswerSummary(TypedDict):
    byVerdict: Dict[str, Any]
    total: int


class ListAnswer(TypedDict):
    """Answer of list: runstore.list/1"""

    nowMs: int
    runs: List[ListAnswerRunsItem]
    schema: Literal["runstore.list/1"]
    summary: ListAnswerSummary


class LogChangeBefore(TypedDict):
    """what was there; null when nothing was"""

    mode: int
    text: str

LogChangeKind = Literal[
    "write",
    "append",
    "move",
    "make-dir",
    "remove-dir",
    "free-slot",
    "free-lease",
]


class _LogChangeRequired(TypedDict):
    kind: LogChangeKind
    # below the root
    path: str


class LogChange(_LogChangeRequired, total=False):
    added: str
    after: str
    # what was there; null when nothing was
    before: Union[LogChangeBefore, None]
    beforeBytes: Union[int, None]
    mode: int
    owner: str
    to: str
    what: Dict[str, Any]


class LogRecord(TypedDict):
    action: str
    atMs: int
    changes: List[LogChange]
    evidence: List[str]
    id: str
    path: str
    runId: str
    version: Literal[1]
    why: str

LogEntryState = Literal[
    "begun",
    "done",
    "undone",
    "superseded",
]


class _LogEntryRequired(TypedDict):
    number: int
    state: LogEntryState


class LogEntry(_LogEntryRequired, total=False):
    # why the record cannot be read
    problem: str
    record: LogRecord


class LogAnswerAppliesItem(TypedDict):
    actions: List[LogEntry]
    id: str


class LogAnswer(TypedDict):
    """Answer of recover log: runstore.log/1"""

    applies: List[LogAnswerAppliesItem]
    schema: Literal["runstore.log/1"]


class _LogsLineRequired(TypedDict):
    text: str


class LogsLine(_LogsLineRequired, total=False):
    # the file, where it is no output of a step
    log: str
    # whose output it is
    step: int


class _LogsAnswerRequired(TypedDict):
    lines: List[LogsLine]
    path: str
    runId: str
    schema: Literal["runstore.logs/1"]


class LogsAnswer(_LogsAnswerRequired, total=False):
    """Answer of logs: runstore.logs/1"""

    # why nothing was written
    because: str

NestedEventAction = Literal[
    "interrupt",
    "resume",
]


class _NestedEventChildRequired(TypedDict):
    # RS-NEST-02
    id: str


class NestedEventChild(_NestedEventChildRequired, total=False):
    asyncDir: str
    endedAt: float
    lastUpdate: float
    parentRunId: str
    pid: int
    startedAt: float
    state: Union[RunState, str]

NestedEventType = Literal[
    "subagent.nested.started",
    "subagent.nested.updated",
    "subagent.nested.completed",
    "subagent.nested.control-result",
    "subagent.nested.control-request",
]


class _NestedEventRequired(TypedDict):
    capabilityToken: str
    rootRunId: str
    type: Union[NestedEventType, str]


class NestedEvent(_NestedEventRequired, total=False):
    """One nested event or control"""

    action: Union[NestedEventAction, str]
    child: NestedEventChild
    message: str
    ok: bool
    parentRunId: str
    parentStepIndex: int
    requestId: str
    targetRunId: str
    ts: float


class _NestedRouteRequired(TypedDict):
    capabilityToken: str
    rootRunId: str


class NestedRoute(_NestedRouteRequired, total=False):
    """Nested route: route.json and its index entry"""

    createdAt: float
    # only in the index entry: base name of the route
    routeRoot: str


class PlanRequirement(TypedDict):
    # below the root of the action
    path: str
    # RS-REC-18
    seen: str


class PlanAction(TypedDict):
    action: RepairAction
    evidence: List[str]
    id: str
    # absolute; of the run, or of what is held
    path: str
    requires: List[PlanRequirement]
    # absolute
    root: str
    runId: str
    # what is not is refused
    safe: Literal[True]
    why: str
    # absolute; every file that is written, renamed or removed
    writes: List[str]


class PlanRefusal(TypedDict):
    path: str
    runId: str
    verdict: Verdict
    why: str


class PlanAnswerSummary(TypedDict):
    actions: int
    byAction: Dict[RepairAction, int]
    refused: int
    runs: int


class PlanAnswer(TypedDict):
    """Answer of recover: runstore.plan/1"""

    actions: List[PlanAction]
    nowMs: int
    refused: List[PlanRefusal]
    schema: Literal["runstore.plan/1"]
    summary: PlanAnswerSummary


class ProcessTerminalCandidateWriterInstanceProcessTreeObserved(TypedDict):
    mechanism: Literal["posix-process-group"]
    processGroupId: int
    state: Literal["observed"]
    verifiedAt: float


class _ProcessTerminalCandidateWriterInstanceProcessTreeUnknownRequired(TypedDict):
    reason: ProcessTreeReason
    state: Literal["unknown"]


class ProcessTerminalCandidateWriterInstanceProcessTreeUnknown(_ProcessTerminalCandidateWriterInstanceProcessTreeUnknownRequired, total=False):
    diagnostic: str


class _ProcessTerminalCandidateWriterInstanceRequired(TypedDict):
    attempt: int
    closeObservedAt: float
    exitCode: Union[float, None]
    kind: WriterKind
    processInstanceId: str
    signal: Union[str, None]


class ProcessTerminalCandidateWriterInstance(_ProcessTerminalCandidateWriterInstanceRequired, total=False):
    # RS-CAND-03: absent in records of P43 and P44
    processTree: Union[ProcessTerminalCandidateWriterInstanceProcessTreeObserved, ProcessTerminalCandidateWriterInstanceProcessTreeUnknown]


class _ProcessTerminalCandidateRequired(TypedDict):
    runId: str
    runnerProcessInstanceId: str
    version: Literal[1]
    # keys are flat step indexes as text, unchecked
    writers: Dict[str, List[ProcessTerminalCandidateWriterInstance]]


class ProcessTerminalCandidate(_ProcessTerminalCandidateRequired, total=False):
    """The runner's account of its writers: process-terminal-candidate.json"""

    expectedWriters: Dict[str, int]
    revivalLeaseReleaseAcknowledged: bool
    revivalLeaseToken: str
    sessionFile: str


class PruneKept(TypedDict):
    path: str
    # a fixed word
    reason: str
    runId: str
    why: str


class _PruneRemovedRequired(TypedDict):
    bytes: int
    path: str
    runId: str


class PruneRemoved(_PruneRemovedRequired, total=False):
    endedAtMs: int


class PruneAnswerSummary(TypedDict):
    bytes: int
    kept: int
    runs: int


class _PruneAnswerRequired(TypedDict):
    applied: bool
    kept: List[PruneKept]
    leftovers: int
    nowMs: int
    remove: List[PruneRemoved]
    schema: Literal["runstore.prune/1"]
    summary: PruneAnswerSummary


class PruneAnswer(_PruneAnswerRequired, total=False):
    """Answer of prune: runstore.prune/1"""

    blocked: List[str]
    finished: List[str]
    problems: List[str]
    putBack: List[str]

ReleaseKind = Literal[
    "slot",
    "lease",
]

ReleaseState = Literal[
    "free",
    "held",
    "unreadable",
    "freed",
    "releasable",
]


class _ReleaseAnswerRequired(TypedDict):
    dryRun: bool
    kind: ReleaseKind
    path: str
    schema: Literal["runstore.release/1"]
    state: ReleaseState
    why: str
    # what was done, or would be, in order
    writes: List[str]


class ReleaseAnswer(_ReleaseAnswerRequired, total=False):
    """Answer of release: runstore.release/1"""

    byPolicy: bool
    problems: List[str]
    runId: str

RunMode = Literal[
    "single",
    "parallel",
    "chain",
    "workflow",
]


class ResultChildResult(TypedDict, total=False):
    agent: Union[str, None]
    error: Union[str, None]
    exitCode: Union[float, None]
    interrupted: Union[bool, None]
    output: Union[str, None]
    sessionFile: Union[str, None]
    stopped: Union[bool, None]
    success: Union[bool, None]
    timedOut: Union[bool, None]


class Result(TypedDict, total=False):
    """Result payload: <runId>.json in the results root"""

    agent: Union[str, None]
    asyncDir: Union[str, None]
    completionOwnerId: Union[str, None]
    cwd: Union[str, None]
    durationMs: Union[float, None]
    error: Union[str, None]
    exitCode: Union[int, None]
    id: Union[str, None]
    lifecycleArtifactVersion: Union[int, None]
    mode: Union[RunMode, str, None]
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    notificationDeliveredAt: Union[float, None]
    results: Union[List[ResultChildResult], None]
    runId: Union[str, None]
    sessionFile: Union[str, None]
    sessionId: Union[str, None]
    state: Union[RunState, str, None]
    stopped: Union[bool, None]
    success: Union[bool, None]
    summary: Union[str, None]
    timedOut: Union[bool, None]
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    timestamp: Union[float, None]
    toolCallId: Union[str, None]


class _ResultIndexEntryRequired(TypedDict):
    file: str
    runId: str
    sessionId: str
    version: Literal[1]
    writtenAt: float


class ResultIndexEntry(_ResultIndexEntryRequired, total=False):
    """Entry of a result index"""

    asyncDir: str


class ResultsProblem(TypedDict):
    id: str
    path: str
    severity: Severity
    text: str

ResultsResultPlace = Literal[
    "public",
    "pending",
    "replay",
    "workflow",
]


class _ResultsResultRequired(TypedDict):
    # below the store
    path: str
    place: ResultsResultPlace
    runId: str


class ResultsResult(_ResultsResultRequired, total=False):
    ageMs: int
    atMs: int
    outcome: RunState
    problem: str
    sessionId: str


class ResultsAnswer(TypedDict):
    """Answer of results: runstore.results/1"""

    nowMs: int
    problems: List[ResultsProblem]
    results: List[ResultsResult]
    schema: Literal["runstore.results/1"]


class RootsRoot(TypedDict):
    because: str
    exists: bool
    family: str
    path: str


class RootsAnswer(TypedDict):
    """Answer of roots: runstore.roots/1"""

    roots: List[RootsRoot]
    schema: Literal["runstore.roots/1"]


class _RunAnswerRequired(TypedDict):
    # absolute
    path: str
    pid: int
    # absolute
    root: str
    runId: str
    schema: Literal["runstore.run/1"]


class RunAnswer(_RunAnswerRequired, total=False):
    """Answer of run and resume: runstore.run/1"""

    because: str
    error: Union[str, None]
    # this and what follows: in the foreground, at the end
    recordedState: Union[str, None]
    verdict: Verdict


class _RunnerConfigRevivalLeaseRequired(TypedDict):
    runId: str
    sessionFile: str
    sourceRunId: str


class RunnerConfigRevivalLease(_RunnerConfigRevivalLeaseRequired, total=False):
    parentSessionId: str


class _RunnerConfigRequired(TypedDict):
    asyncDir: str
    cwd: str
    id: str
    resultPath: str
    steps: List[Dict[str, Any]]


class RunnerConfig(_RunnerConfigRequired, total=False):
    """Runner configuration: async-cfg-<runId>.json"""

    completionOwnerId: str
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    deadlineAt: float
    # RS-START-03
    launchBarrierToken: str
    launchContractDigest: str
    nestedRoute: Dict[str, Any]
    nestedSelf: Dict[str, Any]
    parentWorkflowRunId: str
    placeholder: str
    resultMode: str
    revivalLease: RunnerConfigRevivalLease
    runnerProcessInstanceId: str
    sessionId: str
    timeoutMs: float
    workflowKey: str

RunnerStartupState = Literal[
    "ready",
    "acknowledged",
    "confirmed",
    "error",
]


class _RunnerStartupRequired(TypedDict):
    state: Union[RunnerStartupState, str]


class RunnerStartup(_RunnerStartupRequired, total=False):
    """What the runner says before the commit point: runner-startup.json"""

    error: str
    # the lease owner record, in ready
    owner: Any
    # RS-START-04: informational
    pid: Any
    token: str


class SlotsProblem(TypedDict):
    id: str
    path: str
    severity: Severity
    text: str


class _SlotsSlotRequired(TypedDict):
    byPolicy: bool
    # below the store
    path: str
    reason: str
    releasable: bool


class SlotsSlot(_SlotsSlotRequired, total=False):
    reservedAtMs: int
    runId: str
    runVerdict: Verdict
    sessionId: str


class SlotsAnswer(TypedDict):
    """Answer of slots: runstore.slots/1"""

    nowMs: int
    problems: List[SlotsProblem]
    schema: Literal["runstore.slots/1"]
    slots: List[SlotsSlot]


class SpecChapterAreasItem(TypedDict):
    area: str
    # how many
    clauses: int


class _SpecChapterRequired(TypedDict):
    areas: List[SpecChapterAreasItem]
    # how many
    clauses: int
    file: str
    # the number of a chapter, with two digits; of another page its name
    name: str
    title: str


class SpecChapter(_SpecChapterRequired, total=False):
    # where one page was asked for: the whole, as Markdown
    text: str

SpecClauseLevel = Literal[
    "MUST",
    "MUST NOT",
    "SHOULD",
    "SHOULD NOT",
    "MAY",
]

SpecClauseRoles = Literal[
    "reader",
    "writer",
    "launcher",
    "runner",
    "observer",
    "recoverer",
    "client",
]


class _SpecClauseRequired(TypedDict):
    facts: List[str]
    file: str
    id: str
    level: SpecClauseLevel
    roles: List[SpecClauseRoles]
    # a version of the spec
    since: str
    # all that it says, as Markdown, with a table that follows at once
    text: str


class SpecClause(_SpecClauseRequired, total=False):
    # the version of the spec from which it is to be avoided
    deprecated: str
    # the heading that it stands below
    section: str
    withdrawn: Literal[True]


class SpecAnswer(TypedDict):
    """Answer of spec: runstore.spec/1"""

    chapters: List[SpecChapter]
    clauses: List[SpecClause]
    schema: Literal["runstore.spec/1"]
    # the version of the spec
    spec: str

StartupControlAction = Literal[
    "ack",
    "confirm",
    "proceed",
]


class StartupControl(TypedDict):
    """What the launcher says: runner-startup-ack.json, -confirm.json, -proceed.json"""

    action: Union[StartupControlAction, str]
    token: str

StatusStepStatus = Literal[
    "pending",
    "running",
    "complete",
    "completed",
    "failed",
    "partial",
    "paused",
    "stopped",
    "rejected",
]

_StatusStepNamed = TypedDict("_StatusStepNamed", {
    "async": Union[bool, None],
}, total=False)


class StatusStep(_StatusStepNamed, total=False):
    agent: Union[str, None]
    children: Union[List[Any], None]
    durationMs: Union[float, None]
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    endedAt: Union[float, None]
    error: Union[str, None]
    exitCode: Union[int, None]
    parentWorkflowRunId: Union[str, None]
    # RS-PROOF-05, RS-PROOF-16: a copy of the proof; any value is read, an invalid one counts as unknown
    processTerminal: Union[ProcessTerminal, Any]
    runId: Union[str, None]
    sessionFile: Union[str, None]
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    startedAt: Union[float, None]
    # RS-STATUS-18
    status: Union[StatusStepStatus, str, None]
    stopRequested: Union[bool, None]
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    stopRequestedAt: Union[float, None]


class _StatusRequired(TypedDict):
    # RS-STATUS-03, RS-STATUS-05: an unknown word is unsupported
    state: Union[RunState, str]


class Status(_StatusRequired, total=False):
    """The run's own account: status.json"""

    # RS-RUN-05: text; anything else is none
    bootId: Any
    completionOwnerId: Union[str, None]
    currentStep: Union[int, None]
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    deadlineAt: Union[float, None]
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    displayDismissedAt: Union[float, None]
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    endedAt: Union[float, None]
    error: Union[str, None]
    # RS-LIVE-03
    hostname: Union[str, None]
    isNested: Union[bool, None]
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    lastActivityAt: Union[float, None]
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    lastUpdate: Union[float, None]
    # RS-ROLE-07, RS-ROLE-08: above 3 is newer, not damaged
    lifecycleArtifactVersion: Union[int, None]
    mode: Union[RunMode, str, None]
    ownerPid: Union[int, None]
    parentWorkflowRunId: Union[str, None]
    # RS-STATUS-14: runnerPid, else ownerPid, else pid
    pid: Union[int, None]
    # RS-LIVE-04
    pidNamespaceScope: Union[str, None]
    # RS-RUN-05: decimal text, or a number; anything else is none
    pidfdInode: Any
    # RS-RUN-05, RS-LIVE-06: text such as linux:<ticks>; anything else is none
    processStartIdentity: Any
    # RS-PROOF-05, RS-PROOF-16: a copy of the proof; any value is read, an invalid one counts as unknown
    processTerminal: Union[ProcessTerminal, Any]
    runId: Union[str, None]
    runnerPid: Union[int, None]
    sessionFile: Union[str, None]
    sessionId: Union[str, None]
    # RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off
    startedAt: Union[float, None]
    # RS-STATUS-02
    steps: Union[List[StatusStep], None]
    stopped: Union[bool, None]
    timedOut: Union[bool, None]
    timeoutMs: Union[float, None]
    toolCallId: Union[str, None]
    workflowKey: Union[str, None]


class SweepAnswerRootsItemDoneItem(TypedDict):
    action: RepairAction
    id: str
    path: str
    runId: str
    why: str


class SweepAnswerRootsItemEventsItem(TypedDict):
    cause: str
    runs: List[str]
    text: str


class SweepAnswerRootsItemLeftItem(TypedDict):
    id: str
    runId: str
    why: str

SweepRootsOutcome = Literal[
    "swept",
    "contended",
    "failed",
]


class SweepRefusal(TypedDict):
    path: str
    runId: str
    verdict: Verdict
    why: str


class SweepAnswerRootsItemSummary(TypedDict):
    done: int
    finished: int
    left: int
    refused: int


class _SweepAnswerRootsItemRequired(TypedDict):
    # one for each store in which something was begun
    applies: List[str]
    done: List[SweepAnswerRootsItemDoneItem]
    events: List[SweepAnswerRootsItemEventsItem]
    # runs of which an earlier apply had begun an action
    finished: List[str]
    left: List[SweepAnswerRootsItemLeftItem]
    nowMs: int
    outcome: SweepRootsOutcome
    problems: List[str]
    # how many of them were read in this pass
    read: int
    refused: List[SweepRefusal]
    root: str
    runs: int
    schema: Literal["runstore.apply/1"]
    summary: SweepAnswerRootsItemSummary


class SweepAnswerRootsItem(_SweepAnswerRootsItemRequired, total=False):
    # why it ended before all was done; calling again goes on
    stopped: List[str]
    # of a store that was not swept
    why: str


class SweepAnswer(TypedDict):
    """Answer of sweep: runstore.sweep/1"""

    nowMs: int
    roots: List[SweepAnswerRootsItem]
    schema: Literal["runstore.sweep/1"]


class TerminalRunEntry(TypedDict):
    """Terminal marker: .terminal-runs/<session>/<stamp>-<run>.json"""

    endedAt: float
    runId: str
    sessionId: str
    version: Literal[1]


class UndoAnswerLeftItem(TypedDict):
    runId: str
    why: str


class UndoAnswerUndoneItem(TypedDict):
    action: str
    runId: str


class UndoAnswer(TypedDict):
    """Answer of recover undo: runstore.undo/1"""

    # null: there was nothing to take back
    id: Union[str, None]
    # somebody else has been there since
    left: List[UndoAnswerLeftItem]
    schema: Literal["runstore.undo/1"]
    undone: List[UndoAnswerUndoneItem]

WaitFor = Literal[
    "ready",
    "terminal",
    "proof",
]

WaitRunOutcome = Literal[
    "ready",
    "ended",
    "proven",
    "orphaned",
    "cannot-change",
    "gone",
    "timeout",
]


class _WaitRunProofRequired(TypedDict):
    counts: bool
    state: str


class WaitRunProof(_WaitRunProofRequired, total=False):
    reason: str


class _WaitRunRequired(TypedDict):
    outcome: WaitRunOutcome
    path: str
    runId: str
    waitedMs: int


class WaitRun(_WaitRunRequired, total=False):
    """Without the members from recordedState on, the directory was gone before it could be read."""

    because: str
    error: str
    exitCode: int
    liveness: Liveness
    next: List[Dict[str, Any]]
    proof: WaitRunProof
    recordedState: Union[str, None]
    signal: str
    verdict: Verdict


class WaitAnswerSummary(TypedDict):
    byOutcome: Dict[str, Any]
    total: int

_WaitAnswerNamedRequired = TypedDict("_WaitAnswerNamedRequired", {
    "for": WaitFor,
})


class WaitAnswer(_WaitAnswerNamedRequired):
    """Answer of wait: runstore.wait/1"""

    nowMs: int
    runs: List[WaitRun]
    schema: Literal["runstore.wait/1"]
    summary: WaitAnswerSummary

WitnessOutcome = Literal[
    "settled",
    "attended",
    "observed",
    "unobserved",
    "undetermined",
    "still-running",
]


class _WitnessAnswerRequired(TypedDict):
    because: str
    outcome: WitnessOutcome
    path: str
    problems: List[str]
    runId: str
    schema: Literal["runstore.witness/1"]
    slotReleased: bool


class WitnessAnswer(_WitnessAnswerRequired, total=False):
    """Answer of witness: runstore.witness/1"""

    exitCode: int
    exitEvidence: str
    proof: ProofState
    signal: str


#: The type of each schema, by its name.
BY_SCHEMA: Dict[str, Any] = {
    "apply": ApplyAnswer,
    "capacity-owner": CapacityOwner,
    "check": CheckAnswer,
    "control": ControlAnswer,
    "event": Event,
    "explain": ExplainAnswer,
    "inspect": InspectAnswer,
    "lease-owner": LeaseOwner,
    "leases": LeasesAnswer,
    "list": ListAnswer,
    "log": LogAnswer,
    "logs": LogsAnswer,
    "nested-event": NestedEvent,
    "nested-route": NestedRoute,
    "plan": PlanAnswer,
    "process-terminal": ProcessTerminal,
    "process-terminal-candidate": ProcessTerminalCandidate,
    "prune": PruneAnswer,
    "release": ReleaseAnswer,
    "result": Result,
    "result-index-entry": ResultIndexEntry,
    "results": ResultsAnswer,
    "roots": RootsAnswer,
    "run": RunAnswer,
    "runner-config": RunnerConfig,
    "runner-startup": RunnerStartup,
    "slots": SlotsAnswer,
    "spec": SpecAnswer,
    "startup-control": StartupControl,
    "status": Status,
    "sweep": SweepAnswer,
    "terminal-run-entry": TerminalRunEntry,
    "undo": UndoAnswer,
    "wait": WaitAnswer,
    "witness": WitnessAnswer,
}
