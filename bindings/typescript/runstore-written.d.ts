// Types of the documents of a run store, as this library writes them. A reader has to bear more.
// Made from spec/schemas/writer-v1 by `cargo run -p testkit --bin make-types`; changes are made there.
//
// A type is wider than its schema: conditions over several members, patterns and bounds are not told.
// An object without an index signature has no other members. Where others may add some, theirs stay.

/** A request for further steps: append-requests/<createdAt>-<id>.json */
export interface AppendRequest {
  createdAt: number;
  id: string;
  steps: Array<Record<string, unknown>>;
}

/** Claim on a capacity slot: capacity.claim */
export interface CapacityClaim {
  bootId?: string;
  hostname: string;
  pid: number;
  pidNamespaceScope?: string;
  pidfdInode?: string;
  processStartIdentity?: string;
  token: string;
}

export type CapacityOwnerKind =
  | "runner"
  | "workflow";

/** Owner of a capacity slot */
export interface CapacityOwner {
  asyncDir: string;
  generation: number;
  kind: CapacityOwnerKind;
  ownerSessionId: string;
  ownerSessionKey: string;
  reservationToken: string;
  reservedAt: number;
  runId: string;
  runnerProcessInstanceId?: string;
  runnerStartedAt?: number;
  slot: number;
  sourceRunId?: string;
  version: 1;
}

export type ControlRequestMode =
  | "steer"
  | "follow_up"
  | "auto";

export type ControlRequestType =
  | "stop"
  | "interrupt"
  | "timeout"
  | "steer";

/** Request to a live runner */
export interface ControlRequest {
  id?: string;
  message?: string;
  mode?: ControlRequestMode;
  reason?: string;
  source: string;
  targetIndex?: number;
  targetIndexes?: Array<number>;
  ts: number;
  type: ControlRequestType;
}

export type EarlyProofState =
  | "pending"
  | "not-started";

export interface ProcessTerminalPendingOrNotStarted {
  runId: string;
  runnerProcessInstanceId: string;
  state: EarlyProofState;
  version: 1;
}

export type ProcessTerminalExitEvidence =
  | "parent-wait"
  | "pidfd-exit"
  | "lease-released"
  | "identity-gone"
  | "rebooted";

export type ProofReason =
  | "observer-unavailable"
  | "runner-candidate-missing"
  | "runner-instance-mismatch"
  | "writer-close-unverified"
  | "process-tree-unverified"
  | "canonical-session-unavailable"
  | "canonical-session-lease-active"
  | "canonical-session-release-unverified"
  | "proof-write-failed"
  | "stale-repair";

export interface ProcessTerminalUnknown {
  diagnostic?: string;
  exitEvidence?: ProcessTerminalExitEvidence;
  reason: ProofReason;
  runId: string;
  runnerProcessInstanceId: string;
  state: "unknown";
  version: 1;
}

export type ProcessTerminalSessionLeaseDisposition =
  | "released"
  | "not-held";

export interface ProcessTerminalSession {
  canonicalSessionId: string;
  canonicalSessionLeaseReleased?: true;
  freeAtObservation: true;
  leaseDisposition: ProcessTerminalSessionLeaseDisposition;
}

export interface ProcessTerminalRunner {
  closeObservedAt: number;
  exitCode: number | null;
  kind: "runner";
  processInstanceId: string;
  signal: string | null;
}

export type WriterKind =
  | "pi-writer"
  | "dm-writer";

export interface ProcessTerminalWriterProcessTreeObserved {
  mechanism: "posix-process-group";
  processGroupId: number;
  state: "observed";
  verifiedAt: number;
}

export interface ProcessTerminalWriterProcessTreeUnknown {
  diagnostic?: string;
  reason: string;
  state: "unknown";
}

export interface ProcessTerminalWriter {
  attempt: number;
  closeObservedAt: number;
  exitCode: number | null;
  kind: WriterKind;
  processInstanceId: string;
  processTree?: ProcessTerminalWriterProcessTreeObserved | ProcessTerminalWriterProcessTreeUnknown;
  signal: string | null;
}

export type ResumeDisposition =
  | "resumable"
  | "non-resumable"
  | "unavailable";

export interface ProcessTerminalObserved {
  canonicalSession?: ProcessTerminalSession;
  exitEvidence?: ProcessTerminalExitEvidence;
  instances: Array<ProcessTerminalRunner | ProcessTerminalWriter>;
  observedAt: number;
  resumeDisposition: ResumeDisposition;
  runId: string;
  runnerProcessInstanceId: string;
  state: "observed";
  version: 1;
}

/** Proof of a runner's end, as this library writes it */
export type ProcessTerminal =
  | ProcessTerminalPendingOrNotStarted
  | ProcessTerminalUnknown
  | ProcessTerminalObserved;

export interface EventSubagentRunProcessTerminal {
  lifecycleArtifactVersion: 3;
  processTerminal: ProcessTerminal;
  runId: string;
  ts: number;
  type: "subagent.run.process_terminal";
}

export interface EventSubagentCapacityReleased {
  abandonedSlotReleaseAfterMs: number;
  lastActivityAgeMs: number;
  processProof: "unknown";
  releasedBy: "abandoned-timeout";
  runId: string;
  runnerPid: "gone";
  sessionId: string;
  ts: number;
  type: "subagent.capacity.released";
}

export interface EventRunstoreWriteDeferred {
  cause: string;
  file: string;
  freeBytes?: number;
  runId: string;
  ts: number;
  type: "runstore.write.deferred";
}

export interface EventRunstoreWriteCompleted {
  attempts: number;
  deferredMs: number;
  file: string;
  runId: string;
  ts: number;
  type: "runstore.write.completed";
}

export type RunnerMode =
  | "single"
  | "parallel"
  | "chain";

export interface EventSubagentRunStarted {
  cwd: string;
  lifecycleArtifactVersion: 3;
  mode: RunnerMode;
  pid: number;
  runId: string;
  ts: number;
  type: "subagent.run.started";
}

export type EventStatus =
  | "complete"
  | "failed"
  | "partial"
  | "paused"
  | "stopped";

export interface EventSubagentRunCompleted {
  durationMs: number;
  lifecycleArtifactVersion: 3;
  runId: string;
  status: EventStatus;
  ts: number;
  type: "subagent.run.completed";
}

export interface EventSubagentRunPaused {
  runId: string;
  ts: number;
  type: "subagent.run.paused";
}

export interface EventSubagentRunStopped {
  message: string;
  runId: string;
  ts: number;
  type: "subagent.run.stopped";
}

export interface EventSubagentRunTimedOut {
  deadlineAt?: number;
  message: string;
  runId: string;
  ts: number;
  type: "subagent.run.timed_out";
}

export interface EventSubagentStepStarted {
  agent: string;
  pid?: number;
  runId: string;
  stepIndex: number;
  ts: number;
  type: "subagent.step.started";
}

export interface EventSubagentStepStopRequested {
  agent: string;
  runId: string;
  stepIndex: number;
  ts: number;
  type: "subagent.step.stop_requested";
}

export type EventType =
  | "subagent.step.completed"
  | "subagent.step.failed"
  | "subagent.step.paused"
  | "subagent.step.stopped";

export interface EventSubagentStep {
  agent: string;
  exitCode?: number | null;
  outputDroppedBytes?: number;
  runId: string;
  signal?: string;
  stepIndex: number;
  ts: number;
  type: EventType;
}

export interface EventSubagentSteerDelivered {
  requestId: string;
  runId: string;
  ts: number;
  type: "subagent.steer.delivered";
}

export interface EventSubagentSteerFailed {
  reason: string;
  requestId: string;
  runId: string;
  ts: number;
  type: "subagent.steer.failed";
}

export interface EventSubagentChainAppendRequested {
  pendingAppends: number;
  requestId: string;
  runId: string;
  stepCount: number;
  ts: number;
  type: "subagent.chain.append.requested";
}

export interface EventSubagentChainAppendAccepted {
  pendingAppends: number;
  requestId: string;
  runId: string;
  stepCount: number;
  ts: number;
  type: "subagent.chain.append.accepted";
}

export interface EventRunstoreAppendRefused {
  reason: string;
  requestId: string;
  runId: string;
  ts: number;
  type: "runstore.append.refused";
}

export type EventRequest =
  | "stop"
  | "timeout"
  | "interrupt"
  | "steer"
  | "append";

export interface EventRunstoreControlTaken {
  file: string;
  request: EventRequest;
  runId: string;
  ts: number;
  type: "runstore.control.taken";
}

export interface EventRunstoreNestedUntold {
  message: string;
  runId: string;
  ts: number;
  type: "runstore.nested.untold";
}

export interface EventRunstoreObserverProblem {
  message: string;
  runId: string;
  ts: number;
  type: "runstore.observer.problem";
}

/** Lines of the log that this library writes */
export type Event =
  | EventSubagentRunProcessTerminal
  | EventSubagentCapacityReleased
  | EventRunstoreWriteDeferred
  | EventRunstoreWriteCompleted
  | EventSubagentRunStarted
  | EventSubagentRunCompleted
  | EventSubagentRunPaused
  | EventSubagentRunStopped
  | EventSubagentRunTimedOut
  | EventSubagentStepStarted
  | EventSubagentStepStopRequested
  | EventSubagentStep
  | EventSubagentSteerDelivered
  | EventSubagentSteerFailed
  | EventSubagentChainAppendRequested
  | EventSubagentChainAppendAccepted
  | EventRunstoreAppendRefused
  | EventRunstoreControlTaken
  | EventRunstoreNestedUntold
  | EventRunstoreObserverProblem;

/** A reference to a fan-out budget: run-fanout-budget.json */
export interface FanoutBudget {
  directory: string;
  limit: number;
  parentPath?: string;
  rootRunId: string;
  version: 1;
}

/** A fan-out budget: manifest.json */
export interface FanoutManifest {
  createdAt: number;
  limit: number;
  rootRunId: string;
  version: 1;
}

export type RunOutcome =
  | "complete"
  | "failed"
  | "paused"
  | "stopped";

/** Marker that closes an inbox */
export interface InboxClosed {
  closedAt: number;
  state?: RunOutcome;
  version: 1;
}

/** Who prepares a run: .runstore-launch.json */
export interface LaunchNote {
  bootId?: string;
  configFile: string;
  createdAt: number;
  hostname?: string;
  pid: number;
  pidNamespaceScope?: string;
  pidfdInode?: string;
  processStartIdentity?: string;
  runId: string;
  runnerProcessInstanceId: string;
  sessionId?: string;
  version: 1;
}

export type LeaseWriterState =
  | "none"
  | "spawning"
  | "running";

/** Owner of a session lease */
export interface LeaseOwner {
  acquiredAt: string;
  acquiredAtMs: number;
  bootId?: string;
  canonicalSessionFile: string;
  hostname: string;
  parentSessionId?: string;
  pid: number;
  pidNamespaceScope?: string;
  pidfdInode?: string;
  processStartIdentity?: string;
  runId: string;
  sourceRunId: string;
  token: string;
  updatedAtMs: number;
  version: 1;
  writerPid?: number;
  writerProcessStartIdentity?: string;
  writerState: LeaseWriterState;
}

export interface NestedEventChildPathItem {
  agent?: string;
  runId: string;
  stepIndex?: number;
}

export type NestedEventChildState =
  | "running"
  | "complete"
  | "failed"
  | "partial"
  | "paused"
  | "stopped";

export type NestedEventChildStepsStatus =
  | "pending"
  | "running"
  | "complete"
  | "failed"
  | "partial"
  | "paused"
  | "stopped";

export interface NestedEventChildStepsItem {
  agent: string;
  endedAt?: number;
  startedAt?: number;
  status: NestedEventChildStepsStatus;
}

export interface NestedEventChild {
  agent?: string;
  agents: Array<string>;
  asyncDir: string;
  depth: 1 | 2 | 3;
  endedAt?: number;
  error?: string;
  id: string;
  lastUpdate: number;
  mode?: RunnerMode;
  parentRunId: string;
  parentStepIndex?: number;
  path: Array<NestedEventChildPathItem>;
  pid?: number;
  sessionId?: string;
  startedAt: number;
  state: NestedEventChildState;
  steps: Array<NestedEventChildStepsItem>;
}

export type NestedEventType =
  | "subagent.nested.started"
  | "subagent.nested.updated"
  | "subagent.nested.completed";

/** News of a nested run */
export interface NestedEvent {
  capabilityToken: string;
  child: NestedEventChild;
  parentRunId: string;
  parentStepIndex?: number;
  rootRunId: string;
  ts: number;
  type: NestedEventType;
}

export interface NestedRegistryChildrenItem {
  id: string;
  [member: string]: unknown;
}

/** What was folded in of a route: registry.json */
export interface NestedRegistry {
  children: Array<NestedRegistryChildrenItem>;
  processedEvents: Array<string>;
  rootRunId: string;
  updatedAt: number;
}

/** A route of nested runs: route.json and its index entry */
export interface NestedRoute {
  capabilityToken: string;
  createdAt: number;
  rootRunId: string;
  routeRoot?: string;
}

/** Who observes a run */
export interface ObserverRecord {
  bootId?: string;
  hostname?: string;
  pid: number;
  pidNamespaceScope?: string;
  pidfdInode?: string;
  processStartIdentity?: string;
  runId: string;
  runnerProcessInstanceId: string;
  since: number;
  version: 1;
}

export interface ProcessTerminalCandidateWriterProcessTreeObserved {
  mechanism: "posix-process-group";
  processGroupId: number;
  state: "observed";
  verifiedAt: number;
}

export interface ProcessTerminalCandidateWriterProcessTreeUnknown {
  diagnostic?: string;
  reason: string;
  state: "unknown";
}

export interface ProcessTerminalCandidateWriter {
  attempt: number;
  closeObservedAt: number;
  exitCode: number | null;
  kind: WriterKind;
  processInstanceId: string;
  processTree: ProcessTerminalCandidateWriterProcessTreeObserved | ProcessTerminalCandidateWriterProcessTreeUnknown;
  signal: string | null;
}

/** Candidate, as this library writes it */
export interface ProcessTerminalCandidate {
  expectedWriters?: Record<string, number>;
  revivalLeaseReleaseAcknowledged?: boolean;
  revivalLeaseToken?: string;
  runId: string;
  runnerProcessInstanceId: string;
  sessionFile?: string;
  version: 1;
  writers: Record<string, Array<ProcessTerminalCandidateWriter>>;
}

/** A pending step of a runner says nothing of a resume yet (RS-STEP-03). */
export interface ProcessTerminalStepPendingOrNotStarted {
  childIndex: number;
  resumeDisposition?: ResumeDisposition;
  runId: string;
  runnerProcessInstanceId: string;
  state: EarlyProofState;
  version: 1;
}

export interface ProcessTerminalStepUnknown {
  childIndex: number;
  reason: ProofReason;
  resumeDisposition: ResumeDisposition;
  runId: string;
  runnerProcessInstanceId: string;
  state: "unknown";
  version: 1;
}

export interface ProcessTerminalStepWriterProcessTreeObserved {
  mechanism: "posix-process-group";
  processGroupId: number;
  state: "observed";
  verifiedAt: number;
}

export interface ProcessTerminalStepWriterProcessTreeUnknown {
  diagnostic?: string;
  reason: string;
  state: "unknown";
}

export interface ProcessTerminalStepWriter {
  attempt: number;
  closeObservedAt: number;
  exitCode: number | null;
  kind: WriterKind;
  processInstanceId: string;
  processTree?: ProcessTerminalStepWriterProcessTreeObserved | ProcessTerminalStepWriterProcessTreeUnknown;
  signal: string | null;
}

export interface ProcessTerminalStepObserved {
  childIndex: number;
  instances: Array<ProcessTerminalStepWriter>;
  observedAt: number;
  resumeDisposition: ResumeDisposition;
  runId: string;
  runnerProcessInstanceId: string;
  state: "observed";
  version: 1;
}

/** Proof of one step, in a status */
export type ProcessTerminalStep =
  | ProcessTerminalStepPendingOrNotStarted
  | ProcessTerminalStepUnknown
  | ProcessTerminalStepObserved;

export type RecoveryDescriptorOutputMode =
  | "inline"
  | "file-only";

export type RecoveryDescriptorSystemPromptMode =
  | "append"
  | "replace";

/** How a single run could be resumed: recovery-descriptor.json */
export interface RecoveryDescriptor {
  absoluteDeadlineAt?: number;
  agent: string;
  cwd: string;
  inheritProjectContext: boolean;
  inheritSkills: boolean;
  maxSubagentDepth: number;
  outputMode: RecoveryDescriptorOutputMode;
  runFanoutBudget: Record<string, unknown>;
  sessionFile?: string;
  share: boolean;
  sourceRunId: string;
  systemPromptMode: RecoveryDescriptorSystemPromptMode;
  version: 1;
  [member: string]: unknown;
}

/** A result with the mark of its delivery */
export interface Result {
  notificationDeliveredAt: number;
  runId: string;
  sessionId: string;
  [member: string]: unknown;
}

/** Entry of a result index */
export interface ResultIndexEntry {
  asyncDir?: string;
  file: string;
  runId: string;
  sessionId: string;
  version: 1;
  writtenAt: number;
}

export interface RunResultResultsItem {
  agent: string;
  error?: string;
  exitCode?: number;
  interrupted?: true;
  output: string;
  processSignal?: string;
  skipped?: true;
  stopped?: true;
  success: boolean;
  timedOut?: true;
}

/** Result of a run of plain commands */
export interface RunResult {
  agent: string;
  asyncDir: string;
  completionOwnerId?: string;
  cwd: string;
  durationMs: number;
  error?: string;
  exitCode: 0 | 1;
  id: string;
  lifecycleArtifactVersion: 3;
  mode: RunnerMode;
  results: Array<RunResultResultsItem>;
  sessionId: string;
  state: RunOutcome;
  stopped?: true;
  success: boolean;
  summary: string;
  timedOut?: true;
  timestamp: number;
}

/** RS-NEST-38 */
export interface RunnerConfigNestedRoute {
  capabilityToken: string;
  controlInbox: string;
  eventSink: string;
  rootRunId: string;
}

export interface RunnerConfigNestedSelfPathItem {
  agent?: string;
  runId: string;
  stepIndex?: number;
}

export interface RunnerConfigNestedSelf {
  depth: number;
  parentRunId: string;
  parentStepIndex?: number;
  path: Array<RunnerConfigNestedSelfPathItem>;
}

export interface RunnerConfigRevivalLease {
  parentSessionId?: string;
  runId: string;
  sessionFile: string;
  sourceRunId: string;
}

/** Runner configuration: async-cfg-<runId>.json */
export interface RunnerConfig {
  asyncDir: string;
  completionOwnerId?: string;
  cwd: string;
  deadlineAt?: number;
  id: string;
  launchBarrierToken?: string;
  /** RS-NEST-38 */
  nestedRoute?: RunnerConfigNestedRoute;
  nestedSelf?: RunnerConfigNestedSelf;
  placeholder: string;
  resultPath: string;
  revivalLease?: RunnerConfigRevivalLease;
  runFanoutBudget?: FanoutBudget;
  runnerProcessInstanceId: string;
  sessionId?: string;
  steps: Array<Record<string, unknown>>;
  timeoutMs?: number;
  [member: string]: unknown;
}

export interface RunnerStartupReady {
  owner: LeaseOwner;
  pid: number;
  state: "ready";
  token: string;
}

export type RunnerStartupState =
  | "acknowledged"
  | "confirmed";

export interface RunnerStartupAcknowledgedOrConfirmed {
  pid: number;
  state: RunnerStartupState;
  token: string;
}

export interface RunnerStartupError {
  error: string;
  pid: number;
  state: "error";
}

/** What the runner says before the commit point: runner-startup.json */
export type RunnerStartup =
  | RunnerStartupReady
  | RunnerStartupAcknowledgedOrConfirmed
  | RunnerStartupError;

export type StartupControlAction =
  | "ack"
  | "confirm"
  | "proceed";

/** What the launcher says: runner-startup-ack.json, -confirm.json, -proceed.json */
export interface StartupControl {
  action: StartupControlAction;
  token: string;
}

export type RunMode =
  | "single"
  | "parallel"
  | "chain"
  | "workflow";

export interface StatusParallelGroupsItem {
  count: number;
  start: number;
  stepIndex: number;
}

export type StatusState =
  | "queued"
  | "running"
  | "complete"
  | "failed"
  | "partial"
  | "paused"
  | "stopped"
  | "rejected";

export interface StatusStepsItem {
  currentPath?: string;
  currentTool?: string;
  currentToolStartedAt?: number;
  lastActivityAt?: number;
  processTerminal?: ProcessTerminalStep;
  toolCount?: number;
  turnCount?: number;
  [member: string]: unknown;
}

/** Members of a status that this library sets */
export interface Status {
  bootId?: string | null;
  chainStepCount?: number;
  completionOwnerId?: string;
  currentPath?: string | null;
  currentStep?: number;
  currentTool?: string | null;
  currentToolStartedAt?: number | null;
  endedAt?: number;
  error?: string;
  hostname?: string | null;
  /** RS-NEST-37 */
  isNested?: true;
  /** RS-START-82: null where a run that was active does not do that any more */
  lastActivityAt?: number | null;
  lastUpdate: number;
  lifecycleArtifactVersion?: 3;
  mode?: RunMode;
  /** RS-START-86: a group that came to nothing has no steps */
  parallelGroups?: Array<StatusParallelGroupsItem>;
  /** RS-START-87, RS-START-88 */
  pendingAppends?: number;
  pid?: number;
  /** RS-RUN-05: null where a process was replaced by one of which it is not known */
  pidNamespaceScope?: string | null;
  pidfdInode?: string | null;
  processStartIdentity?: string | null;
  processTerminal?: ProcessTerminal;
  runId?: string;
  sessionId?: string;
  startedAt?: number;
  state: StatusState;
  steps?: Array<StatusStepsItem>;
  toolCallId?: string;
  toolCount?: number | null;
  turnCount?: number | null;
  [member: string]: unknown;
}

/** Terminal marker */
export interface TerminalRunEntry {
  endedAt: number;
  runId: string;
  sessionId: string;
  version: 1;
}

/** The type of each schema, by its name. */
export interface BySchema {
  "append-request": AppendRequest;
  "capacity-claim": CapacityClaim;
  "capacity-owner": CapacityOwner;
  "control-request": ControlRequest;
  event: Event;
  "fanout-budget": FanoutBudget;
  "fanout-manifest": FanoutManifest;
  "inbox-closed": InboxClosed;
  "launch-note": LaunchNote;
  "lease-owner": LeaseOwner;
  "nested-event": NestedEvent;
  "nested-registry": NestedRegistry;
  "nested-route": NestedRoute;
  "observer-record": ObserverRecord;
  "process-terminal": ProcessTerminal;
  "process-terminal-candidate": ProcessTerminalCandidate;
  "process-terminal-step": ProcessTerminalStep;
  "recovery-descriptor": RecoveryDescriptor;
  result: Result;
  "result-index-entry": ResultIndexEntry;
  "run-result": RunResult;
  "runner-config": RunnerConfig;
  "runner-startup": RunnerStartup;
  "startup-control": StartupControl;
  status: Status;
  "terminal-run-entry": TerminalRunEntry;
}
