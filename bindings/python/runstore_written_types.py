"""Types of the documents of a run store, as this library writes them. A reader has to bear more.

Made from spec/schemas/writer-v1 by `cargo run -p testkit --bin make-types`; changes are made there.

A type is wider than its schema: conditions over several members, patterns and bounds are not told.
Types in CLOSED have no other members. Where others may add some, theirs stay.
An `int` may be spelled 1.0 in JSON, which Python reads as a float.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Literal, TypedDict, Union


class AppendRequest(TypedDict):
    """A request for further steps: append-requests/<createdAt>-<id>.json"""

    createdAt: int
    id: str
    steps: List[Dict[str, Any]]


class _CapacityClaimRequired(TypedDict):
    hostname: str
    pid: int
    token: str


class CapacityClaim(_CapacityClaimRequired, total=False):
    """Claim on a capacity slot: capacity.claim"""

    bootId: str
    pidNamespaceScope: str
    pidfdInode: str
    processStartIdentity: str

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
    reservedAt: int
    runId: str
    slot: int
    version: Literal[1]


class CapacityOwner(_CapacityOwnerRequired, total=False):
    """Owner of a capacity slot"""

    runnerProcessInstanceId: str
    runnerStartedAt: int
    sourceRunId: str

ControlRequestMode = Literal[
    "steer",
    "follow_up",
    "auto",
]

ControlRequestType = Literal[
    "stop",
    "interrupt",
    "timeout",
    "steer",
]


class _ControlRequestRequired(TypedDict):
    source: str
    ts: int
    type: ControlRequestType


class ControlRequest(_ControlRequestRequired, total=False):
    """Request to a live runner"""

    id: str
    message: str
    mode: ControlRequestMode
    reason: str
    targetIndex: int
    targetIndexes: List[int]

EarlyProofState = Literal[
    "pending",
    "not-started",
]


class ProcessTerminalPendingOrNotStarted(TypedDict):
    runId: str
    runnerProcessInstanceId: str
    state: EarlyProofState
    version: Literal[1]

ProcessTerminalExitEvidence = Literal[
    "parent-wait",
    "pidfd-exit",
    "lease-released",
    "identity-gone",
    "rebooted",
]

ProofReason = Literal[
    "observer-unavailable",
    "runner-candidate-missing",
    "runner-instance-mismatch",
    "writer-close-unverified",
    "process-tree-unverified",
    "canonical-session-unavailable",
    "canonical-session-lease-active",
    "canonical-session-release-unverified",
    "proof-write-failed",
    "stale-repair",
]


class _ProcessTerminalUnknownRequired(TypedDict):
    reason: ProofReason
    runId: str
    runnerProcessInstanceId: str
    state: Literal["unknown"]
    version: Literal[1]


class ProcessTerminalUnknown(_ProcessTerminalUnknownRequired, total=False):
    diagnostic: str
    exitEvidence: ProcessTerminalExitEvidence

ProcessTerminalSessionLeaseDisposition = Literal[
    "released",
    "not-held",
]


class _ProcessTerminalSessionRequired(TypedDict):
    canonicalSessionId: str
    freeAtObservation: Literal[True]
    leaseDisposition: ProcessTerminalSessionLeaseDisposition


class ProcessTerminalSession(_ProcessTerminalSessionRequired, total=False):
    canonicalSessionLeaseReleased: Literal[True]


class ProcessTerminalRunner(TypedDict):
    closeObservedAt: int
    exitCode: Union[int, None]
    kind: Literal["runner"]
    processInstanceId: str
    signal: Union[str, None]

WriterKind = Literal[
    "pi-writer",
    "dm-writer",
]


class ProcessTerminalWriterProcessTreeObserved(TypedDict):
    mechanism: Literal["posix-process-group"]
    processGroupId: int
    state: Literal["observed"]
    verifiedAt: int


class _ProcessTerminalWriterProcessTreeUnknownRequired(TypedDict):
    reason: str
    state: Literal["unknown"]


class ProcessTerminalWriterProcessTreeUnknown(_ProcessTerminalWriterProcessTreeUnknownRequired, total=False):
    diagnostic: str


class _ProcessTerminalWriterRequired(TypedDict):
    attempt: int
    closeObservedAt: int
    exitCode: Union[int, None]
    kind: WriterKind
    processInstanceId: str
    signal: Union[str, None]


class ProcessTerminalWriter(_ProcessTerminalWriterRequired, total=False):
    processTree: Union[ProcessTerminalWriterProcessTreeObserved, ProcessTerminalWriterProcessTreeUnknown]

ResumeDisposition = Literal[
    "resumable",
    "non-resumable",
    "unavailable",
]


class _ProcessTerminalObservedRequired(TypedDict):
    instances: List[Union[ProcessTerminalRunner, ProcessTerminalWriter]]
    observedAt: int
    resumeDisposition: ResumeDisposition
    runId: str
    runnerProcessInstanceId: str
    state: Literal["observed"]
    version: Literal[1]


class ProcessTerminalObserved(_ProcessTerminalObservedRequired, total=False):
    canonicalSession: ProcessTerminalSession
    exitEvidence: ProcessTerminalExitEvidence


#: Proof of a runner's end, as this library writes it
ProcessTerminal = Union[
    ProcessTerminalPendingOrNotStarted,
    ProcessTerminalUnknown,
    ProcessTerminalObserved,
]


class EventSubagentRunProcessTerminal(TypedDict):
    lifecycleArtifactVersion: Literal[3]
    processTerminal: ProcessTerminal
    runId: str
    ts: int
    type: Literal["subagent.run.process_terminal"]


class EventSubagentCapacityReleased(TypedDict):
    abandonedSlotReleaseAfterMs: int
    lastActivityAgeMs: int
    processProof: Literal["unknown"]
    releasedBy: Literal["abandoned-timeout"]
    runId: str
    runnerPid: Literal["gone"]
    sessionId: str
    ts: int
    type: Literal["subagent.capacity.released"]


class _EventRunstoreWriteDeferredRequired(TypedDict):
    cause: str
    file: str
    runId: str
    ts: int
    type: Literal["runstore.write.deferred"]


class EventRunstoreWriteDeferred(_EventRunstoreWriteDeferredRequired, total=False):
    freeBytes: int


class EventRunstoreWriteCompleted(TypedDict):
    attempts: int
    deferredMs: int
    file: str
    runId: str
    ts: int
    type: Literal["runstore.write.completed"]

RunnerMode = Literal[
    "single",
    "parallel",
    "chain",
]


class EventSubagentRunStarted(TypedDict):
    cwd: str
    lifecycleArtifactVersion: Literal[3]
    mode: RunnerMode
    pid: int
    runId: str
    ts: int
    type: Literal["subagent.run.started"]

EventStatus = Literal[
    "complete",
    "failed",
    "partial",
    "paused",
    "stopped",
]


class EventSubagentRunCompleted(TypedDict):
    durationMs: int
    lifecycleArtifactVersion: Literal[3]
    runId: str
    status: EventStatus
    ts: int
    type: Literal["subagent.run.completed"]


class EventSubagentRunPaused(TypedDict):
    runId: str
    ts: int
    type: Literal["subagent.run.paused"]


class EventSubagentRunStopped(TypedDict):
    message: str
    runId: str
    ts: int
    type: Literal["subagent.run.stopped"]


class _EventSubagentRunTimedOutRequired(TypedDict):
    message: str
    runId: str
    ts: int
    type: Literal["subagent.run.timed_out"]


class EventSubagentRunTimedOut(_EventSubagentRunTimedOutRequired, total=False):
    deadlineAt: int


class _EventSubagentStepStartedRequired(TypedDict):
    agent: str
    runId: str
    stepIndex: int
    ts: int
    type: Literal["subagent.step.started"]


class EventSubagentStepStarted(_EventSubagentStepStartedRequired, total=False):
    pid: int


class EventSubagentStepStopRequested(TypedDict):
    agent: str
    runId: str
    stepIndex: int
    ts: int
    type: Literal["subagent.step.stop_requested"]

EventType = Literal[
    "subagent.step.completed",
    "subagent.step.failed",
    "subagent.step.paused",
    "subagent.step.stopped",
]


class _EventSubagentStepRequired(TypedDict):
    agent: str
    runId: str
    stepIndex: int
    ts: int
    type: EventType


class EventSubagentStep(_EventSubagentStepRequired, total=False):
    exitCode: Union[int, None]
    outputDroppedBytes: int
    signal: str


class EventSubagentSteerDelivered(TypedDict):
    requestId: str
    runId: str
    ts: int
    type: Literal["subagent.steer.delivered"]


class EventSubagentSteerFailed(TypedDict):
    reason: str
    requestId: str
    runId: str
    ts: int
    type: Literal["subagent.steer.failed"]


class EventSubagentChainAppendRequested(TypedDict):
    pendingAppends: int
    requestId: str
    runId: str
    stepCount: int
    ts: int
    type: Literal["subagent.chain.append.requested"]


class EventSubagentChainAppendAccepted(TypedDict):
    pendingAppends: int
    requestId: str
    runId: str
    stepCount: int
    ts: int
    type: Literal["subagent.chain.append.accepted"]


class EventRunstoreAppendRefused(TypedDict):
    reason: str
    requestId: str
    runId: str
    ts: int
    type: Literal["runstore.append.refused"]

EventRequest = Literal[
    "stop",
    "timeout",
    "interrupt",
    "steer",
    "append",
]


class EventRunstoreControlTaken(TypedDict):
    file: str
    request: EventRequest
    runId: str
    ts: int
    type: Literal["runstore.control.taken"]


class EventRunstoreNestedUntold(TypedDict):
    message: str
    runId: str
    ts: int
    type: Literal["runstore.nested.untold"]


class EventRunstoreObserverProblem(TypedDict):
    message: str
    runId: str
    ts: int
    type: Literal["runstore.observer.problem"]


#: Lines of the log that this library writes
Event = Union[
    EventSubagentRunProcessTerminal,
    EventSubagentCapacityReleased,
    EventRunstoreWriteDeferred,
    EventRunstoreWriteCompleted,
    EventSubagentRunStarted,
    EventSubagentRunCompleted,
    EventSubagentRunPaused,
    EventSubagentRunStopped,
    EventSubagentRunTimedOut,
    EventSubagentStepStarted,
    EventSubagentStepStopRequested,
    EventSubagentStep,
    EventSubagentSteerDelivered,
    EventSubagentSteerFailed,
    EventSubagentChainAppendRequested,
    EventSubagentChainAppendAccepted,
    EventRunstoreAppendRefused,
    EventRunstoreControlTaken,
    EventRunstoreNestedUntold,
    EventRunstoreObserverProblem,
]


class _FanoutBudgetRequired(TypedDict):
    directory: str
    limit: int
    rootRunId: str
    version: Literal[1]


class FanoutBudget(_FanoutBudgetRequired, total=False):
    """A reference to a fan-out budget: run-fanout-budget.json"""

    parentPath: str


class FanoutManifest(TypedDict):
    """A fan-out budget: manifest.json"""

    createdAt: int
    limit: int
    rootRunId: str
    version: Literal[1]

RunOutcome = Literal[
    "complete",
    "failed",
    "paused",
    "stopped",
]


class _InboxClosedRequired(TypedDict):
    closedAt: int
    version: Literal[1]


class InboxClosed(_InboxClosedRequired, total=False):
    """Marker that closes an inbox"""

    state: RunOutcome


class _LaunchNoteRequired(TypedDict):
    configFile: str
    createdAt: int
    pid: int
    runId: str
    runnerProcessInstanceId: str
    version: Literal[1]


class LaunchNote(_LaunchNoteRequired, total=False):
    """Who prepares a run: .runstore-launch.json"""

    bootId: str
    hostname: str
    pidNamespaceScope: str
    pidfdInode: str
    processStartIdentity: str
    sessionId: str

LeaseWriterState = Literal[
    "none",
    "spawning",
    "running",
]


class _LeaseOwnerRequired(TypedDict):
    acquiredAt: str
    acquiredAtMs: int
    canonicalSessionFile: str
    hostname: str
    pid: int
    runId: str
    sourceRunId: str
    token: str
    updatedAtMs: int
    version: Literal[1]
    writerState: LeaseWriterState


class LeaseOwner(_LeaseOwnerRequired, total=False):
    """Owner of a session lease"""

    bootId: str
    parentSessionId: str
    pidNamespaceScope: str
    pidfdInode: str
    processStartIdentity: str
    writerPid: int
    writerProcessStartIdentity: str


class _NestedEventChildPathItemRequired(TypedDict):
    runId: str


class NestedEventChildPathItem(_NestedEventChildPathItemRequired, total=False):
    agent: str
    stepIndex: int

NestedEventChildState = Literal[
    "running",
    "complete",
    "failed",
    "partial",
    "paused",
    "stopped",
]

NestedEventChildStepsStatus = Literal[
    "pending",
    "running",
    "complete",
    "failed",
    "partial",
    "paused",
    "stopped",
]


class _NestedEventChildStepsItemRequired(TypedDict):
    agent: str
    status: NestedEventChildStepsStatus


class NestedEventChildStepsItem(_NestedEventChildStepsItemRequired, total=False):
    endedAt: int
    startedAt: int


class _NestedEventChildRequired(TypedDict):
    agents: List[str]
    asyncDir: str
    depth: Union[Literal[1], Literal[2], Literal[3]]
    id: str
    lastUpdate: int
    parentRunId: str
    path: List[NestedEventChildPathItem]
    startedAt: int
    state: NestedEventChildState
    steps: List[NestedEventChildStepsItem]


class NestedEventChild(_NestedEventChildRequired, total=False):
    agent: str
    endedAt: int
    error: str
    mode: RunnerMode
    parentStepIndex: int
    pid: int
    sessionId: str

NestedEventType = Literal[
    "subagent.nested.started",
    "subagent.nested.updated",
    "subagent.nested.completed",
]


class _NestedEventRequired(TypedDict):
    capabilityToken: str
    child: NestedEventChild
    parentRunId: str
    rootRunId: str
    ts: int
    type: NestedEventType


class NestedEvent(_NestedEventRequired, total=False):
    """News of a nested run"""

    parentStepIndex: int


class NestedRegistryChildrenItem(TypedDict):
    id: str


class NestedRegistry(TypedDict):
    """What was folded in of a route: registry.json"""

    children: List[NestedRegistryChildrenItem]
    processedEvents: List[str]
    rootRunId: str
    updatedAt: int


class _NestedRouteRequired(TypedDict):
    capabilityToken: str
    createdAt: int
    rootRunId: str


class NestedRoute(_NestedRouteRequired, total=False):
    """A route of nested runs: route.json and its index entry"""

    routeRoot: str


class _ObserverRecordRequired(TypedDict):
    pid: int
    runId: str
    runnerProcessInstanceId: str
    since: int
    version: Literal[1]


class ObserverRecord(_ObserverRecordRequired, total=False):
    """Who observes a run"""

    bootId: str
    hostname: str
    pidNamespaceScope: str
    pidfdInode: str
    processStartIdentity: str


class ProcessTerminalCandidateWriterProcessTreeObserved(TypedDict):
    mechanism: Literal["posix-process-group"]
    processGroupId: int
    state: Literal["observed"]
    verifiedAt: int


class _ProcessTerminalCandidateWriterProcessTreeUnknownRequired(TypedDict):
    reason: str
    state: Literal["unknown"]


class ProcessTerminalCandidateWriterProcessTreeUnknown(_ProcessTerminalCandidateWriterProcessTreeUnknownRequired, total=False):
    diagnostic: str


class ProcessTerminalCandidateWriter(TypedDict):
    attempt: int
    closeObservedAt: int
    exitCode: Union[int, None]
    kind: WriterKind
    processInstanceId: str
    processTree: Union[ProcessTerminalCandidateWriterProcessTreeObserved, ProcessTerminalCandidateWriterProcessTreeUnknown]
    signal: Union[str, None]


class _ProcessTerminalCandidateRequired(TypedDict):
    runId: str
    runnerProcessInstanceId: str
    version: Literal[1]
    writers: Dict[str, List[ProcessTerminalCandidateWriter]]


class ProcessTerminalCandidate(_ProcessTerminalCandidateRequired, total=False):
    """Candidate, as this library writes it"""

    expectedWriters: Dict[str, int]
    revivalLeaseReleaseAcknowledged: bool
    revivalLeaseToken: str
    sessionFile: str


class _ProcessTerminalStepPendingOrNotStartedRequired(TypedDict):
    childIndex: int
    runId: str
    runnerProcessInstanceId: str
    state: EarlyProofState
    version: Literal[1]


class ProcessTerminalStepPendingOrNotStarted(_ProcessTerminalStepPendingOrNotStartedRequired, total=False):
    """A pending step of a runner says nothing of a resume yet (RS-STEP-03)."""

    resumeDisposition: ResumeDisposition


class ProcessTerminalStepUnknown(TypedDict):
    childIndex: int
    reason: ProofReason
    resumeDisposition: ResumeDisposition
    runId: str
    runnerProcessInstanceId: str
    state: Literal["unknown"]
    version: Literal[1]


class ProcessTerminalStepWriterProcessTreeObserved(TypedDict):
    mechanism: Literal["posix-process-group"]
    processGroupId: int
    state: Literal["observed"]
    verifiedAt: int


class _ProcessTerminalStepWriterProcessTreeUnknownRequired(TypedDict):
    reason: str
    state: Literal["unknown"]


class ProcessTerminalStepWriterProcessTreeUnknown(_ProcessTerminalStepWriterProcessTreeUnknownRequired, total=False):
    diagnostic: str


class _ProcessTerminalStepWriterRequired(TypedDict):
    attempt: int
    closeObservedAt: int
    exitCode: Union[int, None]
    kind: WriterKind
    processInstanceId: str
    signal: Union[str, None]


class ProcessTerminalStepWriter(_ProcessTerminalStepWriterRequired, total=False):
    processTree: Union[ProcessTerminalStepWriterProcessTreeObserved, ProcessTerminalStepWriterProcessTreeUnknown]


class ProcessTerminalStepObserved(TypedDict):
    childIndex: int
    instances: List[ProcessTerminalStepWriter]
    observedAt: int
    resumeDisposition: ResumeDisposition
    runId: str
    runnerProcessInstanceId: str
    state: Literal["observed"]
    version: Literal[1]


#: Proof of one step, in a status
ProcessTerminalStep = Union[
    ProcessTerminalStepPendingOrNotStarted,
    ProcessTerminalStepUnknown,
    ProcessTerminalStepObserved,
]

RecoveryDescriptorOutputMode = Literal[
    "inline",
    "file-only",
]

RecoveryDescriptorSystemPromptMode = Literal[
    "append",
    "replace",
]


class _RecoveryDescriptorRequired(TypedDict):
    agent: str
    cwd: str
    inheritProjectContext: bool
    inheritSkills: bool
    maxSubagentDepth: int
    outputMode: RecoveryDescriptorOutputMode
    runFanoutBudget: Dict[str, Any]
    share: bool
    sourceRunId: str
    systemPromptMode: RecoveryDescriptorSystemPromptMode
    version: Literal[1]


class RecoveryDescriptor(_RecoveryDescriptorRequired, total=False):
    """How a single run could be resumed: recovery-descriptor.json"""

    absoluteDeadlineAt: int
    sessionFile: str


class Result(TypedDict):
    """A result with the mark of its delivery"""

    notificationDeliveredAt: int
    runId: str
    sessionId: str


class _ResultIndexEntryRequired(TypedDict):
    file: str
    runId: str
    sessionId: str
    version: Literal[1]
    writtenAt: int


class ResultIndexEntry(_ResultIndexEntryRequired, total=False):
    """Entry of a result index"""

    asyncDir: str


class _RunResultResultsItemRequired(TypedDict):
    agent: str
    output: str
    success: bool


class RunResultResultsItem(_RunResultResultsItemRequired, total=False):
    error: str
    exitCode: int
    interrupted: Literal[True]
    processSignal: str
    skipped: Literal[True]
    stopped: Literal[True]
    timedOut: Literal[True]


class _RunResultRequired(TypedDict):
    agent: str
    asyncDir: str
    cwd: str
    durationMs: int
    exitCode: Union[Literal[0], Literal[1]]
    id: str
    lifecycleArtifactVersion: Literal[3]
    mode: RunnerMode
    results: List[RunResultResultsItem]
    sessionId: str
    state: RunOutcome
    success: bool
    summary: str
    timestamp: int


class RunResult(_RunResultRequired, total=False):
    """Result of a run of plain commands"""

    completionOwnerId: str
    error: str
    stopped: Literal[True]
    timedOut: Literal[True]


class RunnerConfigNestedRoute(TypedDict):
    """RS-NEST-38"""

    capabilityToken: str
    controlInbox: str
    eventSink: str
    rootRunId: str


class _RunnerConfigNestedSelfPathItemRequired(TypedDict):
    runId: str


class RunnerConfigNestedSelfPathItem(_RunnerConfigNestedSelfPathItemRequired, total=False):
    agent: str
    stepIndex: int


class _RunnerConfigNestedSelfRequired(TypedDict):
    depth: int
    parentRunId: str
    path: List[RunnerConfigNestedSelfPathItem]


class RunnerConfigNestedSelf(_RunnerConfigNestedSelfRequired, total=False):
    parentStepIndex: int


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
    placeholder: str
    resultPath: str
    runnerProcessInstanceId: str
    steps: List[Dict[str, Any]]


class RunnerConfig(_RunnerConfigRequired, total=False):
    """Runner configuration: async-cfg-<runId>.json"""

    completionOwnerId: str
    deadlineAt: int
    launchBarrierToken: str
    # RS-NEST-38
    nestedRoute: RunnerConfigNestedRoute
    nestedSelf: RunnerConfigNestedSelf
    revivalLease: RunnerConfigRevivalLease
    runFanoutBudget: FanoutBudget
    sessionId: str
    timeoutMs: int


class RunnerStartupReady(TypedDict):
    owner: LeaseOwner
    pid: int
    state: Literal["ready"]
    token: str

RunnerStartupState = Literal[
    "acknowledged",
    "confirmed",
]


class RunnerStartupAcknowledgedOrConfirmed(TypedDict):
    pid: int
    state: RunnerStartupState
    token: str


class RunnerStartupError(TypedDict):
    error: str
    pid: int
    state: Literal["error"]


#: What the runner says before the commit point: runner-startup.json
RunnerStartup = Union[
    RunnerStartupReady,
    RunnerStartupAcknowledgedOrConfirmed,
    RunnerStartupError,
]

StartupControlAction = Literal[
    "ack",
    "confirm",
    "proceed",
]


class StartupControl(TypedDict):
    """What the launcher says: runner-startup-ack.json, -confirm.json, -proceed.json"""

    action: StartupControlAction
    token: str

RunMode = Literal[
    "single",
    "parallel",
    "chain",
    "workflow",
]


class StatusParallelGroupsItem(TypedDict):
    count: int
    start: int
    stepIndex: int

StatusState = Literal[
    "queued",
    "running",
    "complete",
    "failed",
    "partial",
    "paused",
    "stopped",
    "rejected",
]


class StatusStepsItem(TypedDict, total=False):
    currentPath: str
    currentTool: str
    currentToolStartedAt: int
    lastActivityAt: int
    processTerminal: ProcessTerminalStep
    toolCount: int
    turnCount: int


class _StatusRequired(TypedDict):
    lastUpdate: int
    state: StatusState


class Status(_StatusRequired, total=False):
    """Members of a status that this library sets"""

    bootId: Union[str, None]
    chainStepCount: int
    completionOwnerId: str
    currentPath: Union[str, None]
    currentStep: int
    currentTool: Union[str, None]
    currentToolStartedAt: Union[int, None]
    endedAt: int
    error: str
    hostname: Union[str, None]
    # RS-NEST-37
    isNested: Literal[True]
    # RS-START-82: null where a run that was active does not do that any more
    lastActivityAt: Union[int, None]
    lifecycleArtifactVersion: Literal[3]
    mode: RunMode
    # RS-START-86: a group that came to nothing has no steps
    parallelGroups: List[StatusParallelGroupsItem]
    # RS-START-87, RS-START-88
    pendingAppends: int
    pid: int
    # RS-RUN-05: null where a process was replaced by one of which it is not known
    pidNamespaceScope: Union[str, None]
    pidfdInode: Union[str, None]
    processStartIdentity: Union[str, None]
    processTerminal: ProcessTerminal
    runId: str
    sessionId: str
    startedAt: int
    steps: List[StatusStepsItem]
    toolCallId: str
    toolCount: Union[int, None]
    turnCount: Union[int, None]


class TerminalRunEntry(TypedDict):
    """Terminal marker"""

    endedAt: float
    runId: str
    sessionId: str
    version: Literal[1]


#: The type of each schema, by its name.
BY_SCHEMA: Dict[str, Any] = {
    "append-request": AppendRequest,
    "capacity-claim": CapacityClaim,
    "capacity-owner": CapacityOwner,
    "control-request": ControlRequest,
    "event": Event,
    "fanout-budget": FanoutBudget,
    "fanout-manifest": FanoutManifest,
    "inbox-closed": InboxClosed,
    "launch-note": LaunchNote,
    "lease-owner": LeaseOwner,
    "nested-event": NestedEvent,
    "nested-registry": NestedRegistry,
    "nested-route": NestedRoute,
    "observer-record": ObserverRecord,
    "process-terminal": ProcessTerminal,
    "process-terminal-candidate": ProcessTerminalCandidate,
    "process-terminal-step": ProcessTerminalStep,
    "recovery-descriptor": RecoveryDescriptor,
    "result": Result,
    "result-index-entry": ResultIndexEntry,
    "run-result": RunResult,
    "runner-config": RunnerConfig,
    "runner-startup": RunnerStartup,
    "startup-control": StartupControl,
    "status": Status,
    "terminal-run-entry": TerminalRunEntry,
}

#: Types that have no other members.
CLOSED: FrozenSet[Any] = frozenset([
    AppendRequest,
    CapacityClaim,
    CapacityOwner,
    ControlRequest,
    ProcessTerminalPendingOrNotStarted,
    ProcessTerminalUnknown,
    ProcessTerminalSession,
    ProcessTerminalRunner,
    ProcessTerminalWriterProcessTreeObserved,
    ProcessTerminalWriterProcessTreeUnknown,
    ProcessTerminalWriter,
    ProcessTerminalObserved,
    EventSubagentRunProcessTerminal,
    EventSubagentCapacityReleased,
    EventRunstoreWriteDeferred,
    EventRunstoreWriteCompleted,
    EventSubagentRunStarted,
    EventSubagentRunCompleted,
    EventSubagentRunPaused,
    EventSubagentRunStopped,
    EventSubagentRunTimedOut,
    EventSubagentStepStarted,
    EventSubagentStepStopRequested,
    EventSubagentStep,
    EventSubagentSteerDelivered,
    EventSubagentSteerFailed,
    EventSubagentChainAppendRequested,
    EventSubagentChainAppendAccepted,
    EventRunstoreAppendRefused,
    EventRunstoreControlTaken,
    EventRunstoreNestedUntold,
    EventRunstoreObserverProblem,
    FanoutBudget,
    FanoutManifest,
    InboxClosed,
    LaunchNote,
    LeaseOwner,
    NestedEventChildPathItem,
    NestedEventChildStepsItem,
    NestedEventChild,
    NestedEvent,
    NestedRegistry,
    NestedRoute,
    ObserverRecord,
    ProcessTerminalCandidateWriterProcessTreeObserved,
    ProcessTerminalCandidateWriterProcessTreeUnknown,
    ProcessTerminalCandidateWriter,
    ProcessTerminalCandidate,
    ProcessTerminalStepPendingOrNotStarted,
    ProcessTerminalStepUnknown,
    ProcessTerminalStepWriterProcessTreeObserved,
    ProcessTerminalStepWriterProcessTreeUnknown,
    ProcessTerminalStepWriter,
    ProcessTerminalStepObserved,
    ResultIndexEntry,
    RunResultResultsItem,
    RunResult,
    RunnerConfigNestedRoute,
    RunnerConfigNestedSelfPathItem,
    RunnerConfigNestedSelf,
    RunnerConfigRevivalLease,
    RunnerStartupReady,
    RunnerStartupAcknowledgedOrConfirmed,
    RunnerStartupError,
    StartupControl,
    StatusParallelGroupsItem,
    TerminalRunEntry,
])
