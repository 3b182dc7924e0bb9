// Types of the documents of a run store, as a reader has to bear them, and of the answers of `runstore`.
// Made from spec/schemas/v1 by `cargo run -p testkit --bin make-types`; changes are made there.
//
// A type is wider than its schema: conditions over several members, patterns and bounds are not told.
// Members and words that are not listed are data of another version. They are kept when a document is rewritten.
// In a document `null` counts as absent. A list with `(string & {})` is open: any other word may stand there.

export type RepairAction =
  | "close-as-failed"
  | "adopt-result"
  | "complete-end"
  | "index-run"
  | "add-marker"
  | "publish-result"
  | "free-slot"
  | "free-lease"
  | "remove-config"
  | "remove-litter"
  | "set-aside-status";

export interface ApplyAnswerDoneItem {
  action: RepairAction;
  id: string;
  path: string;
  runId: string;
  why: string;
  [member: string]: unknown;
}

export interface ApplyAnswerLeftItem {
  id: string;
  runId: string;
  why: string;
  [member: string]: unknown;
}

export type Verdict =
  | "starting"
  | "start-stuck"
  | "start-failed"
  | "never-started"
  | "running"
  | "running-unverified"
  | "orphaned"
  | "settling"
  | "paused"
  | "finished"
  | "finished-unproven"
  | "conflict"
  | "corrupt"
  | "unsupported"
  | "unsafe"
  | "not-a-run";

export interface ApplyRefusal {
  path: string;
  runId: string;
  verdict: Verdict;
  why: string;
  [member: string]: unknown;
}

export interface ApplyAnswerSummary {
  done: number;
  finished: number;
  left: number;
  refused: number;
  [member: string]: unknown;
}

/** Answer of recover --apply: runstore.apply/1 */
export interface ApplyAnswer {
  /** one for each store in which something was begun */
  applies: Array<string>;
  done: Array<ApplyAnswerDoneItem>;
  /** runs of which an earlier apply had begun an action */
  finished: Array<string>;
  left: Array<ApplyAnswerLeftItem>;
  nowMs: number;
  problems: Array<string>;
  refused: Array<ApplyRefusal>;
  schema: "runstore.apply/1";
  /** why it ended before all was done; calling again goes on */
  stopped?: Array<string>;
  summary: ApplyAnswerSummary;
  [member: string]: unknown;
}

export type CapacityOwnerKind =
  | "runner"
  | "workflow";

/** Owner of a capacity slot: slot-<n>/owner.json */
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
  [member: string]: unknown;
}

export type CheckProblemLevel =
  | "MUST"
  | "SHOULD";

export type Severity =
  | "error"
  | "warning"
  | "note";

export interface CheckProblem {
  do: string;
  id: string;
  level: CheckProblemLevel;
  path: string;
  runId?: string;
  /** clauses */
  see: Array<string>;
  severity: Severity;
  what: string;
  [member: string]: unknown;
}

export interface CheckAnswerSummary {
  must: number;
  /** of level should, without --strict */
  notAsked: number;
  runs: number;
  should: number;
  [member: string]: unknown;
}

/** Answer of check: runstore.check/1 */
export interface CheckAnswer {
  nowMs: number;
  problems: Array<CheckProblem>;
  schema: "runstore.check/1";
  strict: boolean;
  summary: CheckAnswerSummary;
  [member: string]: unknown;
}

export type Liveness =
  | "live"
  | "dead"
  | "reused"
  | "foreign"
  | "unknown"
  | "not-recorded";

export interface ControlAnswerNextItem {
  command?: string;
  why: string;
  [member: string]: unknown;
}

export type ControlOutcome =
  | "asked"
  | "taken-up"
  | "already-asked"
  | "ended"
  | "closing"
  | "dead"
  | "refused";

export type ControlRequest =
  | "stop"
  | "interrupt";

/** Answer of stop and interrupt: runstore.control/1 */
export interface ControlAnswer {
  because: string;
  /** where that was waited for */
  done?: boolean;
  /** the request, below the run directory */
  file?: string;
  liveness: Liveness;
  mustNot: Array<string>;
  next: Array<ControlAnswerNextItem>;
  outcome: ControlOutcome;
  path: string;
  recordedState: string | null;
  request: ControlRequest;
  runId: string;
  schema: "runstore.control/1";
  /** that was sent */
  signal?: string;
  step?: number;
  verdict: Verdict;
  [member: string]: unknown;
}

export interface ProcessTerminalRunnerInstance {
  attempt?: never;
  closeObservedAt: number;
  exitCode: number | null;
  kind: "runner";
  processInstanceId: string;
  signal: string | null;
  [member: string]: unknown;
}

export type WriterKind =
  | "pi-writer"
  | "dm-writer";

export interface ProcessTerminalWriterInstanceProcessTreeObserved {
  mechanism: "posix-process-group";
  processGroupId: number;
  state: "observed";
  verifiedAt: number;
  [member: string]: unknown;
}

export type ProcessTreeReason =
  | "unsupported-platform"
  | "signal-failed"
  | "verification-failed";

export interface ProcessTerminalWriterInstanceProcessTreeUnknown {
  diagnostic?: string;
  reason: ProcessTreeReason;
  state: "unknown";
  [member: string]: unknown;
}

export interface ProcessTerminalWriterInstance {
  attempt: number;
  closeObservedAt: number;
  exitCode: number | null;
  kind: WriterKind;
  processInstanceId: string;
  /** RS-CAND-03: absent in records of P43 and P44 */
  processTree?: ProcessTerminalWriterInstanceProcessTreeObserved | ProcessTerminalWriterInstanceProcessTreeUnknown;
  signal: string | null;
  [member: string]: unknown;
}

export type ProcessTerminalResumeDisposition =
  | "resumable"
  | "non-resumable"
  | "unavailable";

export type ProofState =
  | "pending"
  | "observed"
  | "unknown"
  | "not-started";

/** Proof of a runner's end: process-terminal.json */
export interface ProcessTerminal {
  /** RS-PROOF-02: never decides validity. An object with canonicalSessionId, leaseDisposition, freeAtObservation, canonicalSessionLeaseReleased */
  canonicalSession?: unknown;
  /** only in the status, on steps */
  childIndex?: number;
  /** text; never decides validity */
  diagnostic?: unknown;
  /** RS-OBS-07: a word of 15.2 or another one; never decides validity */
  exitEvidence?: unknown;
  instances?: Array<ProcessTerminalRunnerInstance | ProcessTerminalWriterInstance>;
  observedAt?: number;
  /** RS-PROOF-02: never decides validity. Known words: observer-unavailable, runner-candidate-missing, runner-instance-mismatch, writer-close-unverified, process-tree-unverified, canonical-session-unavailable, canonical-session-lease-active, canonical-session-release-unverified, proof-write-failed, stale-repair */
  reason?: unknown;
  resumeDisposition?: ProcessTerminalResumeDisposition;
  runId: string;
  runnerProcessInstanceId: string;
  state: ProofState;
  version: 1;
  [member: string]: unknown;
}

export type RunState =
  | "queued"
  | "running"
  | "complete"
  | "failed"
  | "partial"
  | "paused"
  | "stopped"
  | "rejected";

export type EventType =
  | "subagent.run.started"
  | "subagent.run.paused"
  | "subagent.run.stopped"
  | "subagent.run.timed_out"
  | "subagent.run.completed"
  | "subagent.run.process_terminal"
  | "subagent.run.repaired_stale"
  | "subagent.step.started"
  | "subagent.step.completed"
  | "subagent.step.failed"
  | "subagent.step.paused"
  | "subagent.step.stopped"
  | "subagent.capacity.released"
  | "subagent.events.truncated"
  | "subagent.child.stderr";

/** One line of events.jsonl */
export interface Event {
  agent?: string;
  lifecycleArtifactVersion?: number;
  /** text in lines of the protocol, an object in lines of the child */
  message?: unknown;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  observedAt?: number;
  pid?: number;
  /** RS-PROOF-05, RS-PROOF-16: a copy of the proof; any value is read, an invalid one counts as unknown */
  processTerminal?: ProcessTerminal | unknown;
  runId?: string;
  status?: RunState | (string & {});
  stepIndex?: number;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  ts?: number;
  type: EventType | (string & {});
  [member: string]: unknown;
}

export interface ExplainEntry {
  advice?: string | null;
  clauses: Array<string>;
  id: string;
  kind: string;
  meaning: string;
  [member: string]: unknown;
}

/** Answer of explain: runstore.explain/1 */
export interface ExplainAnswer {
  entries: Array<ExplainEntry>;
  schema: "runstore.explain/1";
  [member: string]: unknown;
}

export type InspectEvidenceKind =
  | "observed"
  | "claimed"
  | "inferred";

export interface InspectEvidence {
  atMs?: number;
  file?: string;
  /** RS-DIAG-04 */
  kind: InspectEvidenceKind;
  text: string;
  [member: string]: unknown;
}

export interface InspectFinding {
  file?: string;
  /** a clause id or a diagnosis id */
  id: string;
  line?: number;
  severity: Severity;
  text: string;
  [member: string]: unknown;
}

export type InspectRunFlags =
  | "repaired"
  | "undelivered"
  | "undeliverable"
  | "result-missing"
  | "unpublished-write"
  | "output-committed"
  | "control-pending"
  | "overdue"
  | "log-torn"
  | "log-corrupt"
  | "slot-retained"
  | "slot-releasable"
  | "lease-held"
  | "shadow"
  | "split-root"
  | "temp-litter"
  | "marker-stale"
  | "marker-missing"
  | "shared-pid"
  | "loose-permissions"
  | "truncated";

export interface InspectNext {
  action: string;
  command?: string;
  why: string;
  [member: string]: unknown;
}

export interface InspectRunProof {
  /** RS-PROOF-06 */
  counts: boolean;
  reason?: string;
  state: string | null;
  [member: string]: unknown;
}

export type InspectRunStage =
  | "prepared"
  | "spawned"
  | "ready"
  | "acknowledged"
  | "confirmed"
  | "proceed";

export interface InspectRun {
  children: Array<string>;
  dialect?: string;
  evidence: Array<InspectEvidence>;
  findings: Array<InspectFinding>;
  flags: Array<InspectRunFlags>;
  liveness: Liveness;
  mustNot: Array<string>;
  next: Array<InspectNext>;
  /** absolute */
  path: string;
  preferred?: string;
  proof: InspectRunProof;
  /** RS-STATUS-06: verbatim */
  recordedState: string | null;
  resumable?: boolean;
  runId: string;
  stage?: InspectRunStage;
  verdict: Verdict;
  [member: string]: unknown;
}

export interface InspectAnswerSummary {
  byVerdict: Partial<Record<Verdict, number>>;
  total: number;
  [member: string]: unknown;
}

/** Answer of inspect: runstore.inspect/1 */
export interface InspectAnswer {
  leases: Array<Record<string, unknown>>;
  nowMs: number;
  problems: Array<unknown>;
  results: Array<Record<string, unknown>>;
  runs: Array<InspectRun>;
  schema: "runstore.inspect/1";
  scope: Record<string, unknown>;
  slots: Array<Record<string, unknown>>;
  summary: InspectAnswerSummary;
  [member: string]: unknown;
}

export type LeaseOwnerWriterState =
  | "none"
  | "spawning"
  | "running";

/** Owner of a session lease: session-leases/<hex>/owner.json */
export interface LeaseOwner {
  /** ISO-8601 */
  acquiredAt: string;
  acquiredAtMs: number;
  /** Additive: the boot in which processStartIdentity holds. RS-LEASE-09. */
  bootId?: string;
  canonicalSessionFile: string;
  hostname: string;
  parentSessionId?: string;
  pid: number;
  /** Additive: the namespace in which pid holds. RS-LEASE-09. */
  pidNamespaceScope?: string;
  /** Additive: unique for the boot. RS-LEASE-09. */
  pidfdInode?: string | number;
  /** RS-LEASE-08: linux:<ticks>, runtime:<ms> or older text */
  processStartIdentity?: string;
  runId: string;
  sourceRunId: string;
  token: string;
  updatedAtMs: number;
  version: 1;
  writerPid?: number;
  writerProcessStartIdentity?: string;
  writerState: LeaseOwnerWriterState;
  [member: string]: unknown;
}

export type LeasesLeaseState =
  | "held"
  | "stale"
  | "unreadable";

export interface LeasesLease {
  acquiredAtMs?: number;
  hostname?: string;
  liveness?: Liveness;
  /** below the store */
  path: string;
  pid?: number;
  reason: string;
  runId?: string;
  sessionFile?: string;
  sessionId?: string;
  state: LeasesLeaseState;
  writerState?: string;
  [member: string]: unknown;
}

export interface LeasesProblem {
  id: string;
  path: string;
  severity: Severity;
  text: string;
  [member: string]: unknown;
}

/** Answer of leases: runstore.leases/1 */
export interface LeasesAnswer {
  leases: Array<LeasesLease>;
  nowMs: number;
  problems: Array<LeasesProblem>;
  schema: "runstore.leases/1";
  [member: string]: unknown;
}

export interface ListAnswerRunsItem {
  because: string;
  flags: Array<string>;
  liveness: Liveness;
  path: string;
  runId: string;
  verdict: Verdict;
  [member: string]: unknown;
}

export interface ListAnswerSummary {
  byVerdict: Record<string, unknown>;
  total: number;
  [member: string]: unknown;
}

/** Answer of list: runstore.list/1 */
export interface ListAnswer {
  nowMs: number;
  runs: Array<ListAnswerRunsItem>;
  schema: "runstore.list/1";
  summary: ListAnswerSummary;
  [member: string]: unknown;
}

/** what was there; null when nothing was */
export interface LogChangeBefore {
  mode: number;
  text: string;
  [member: string]: unknown;
}

export type LogChangeKind =
  | "write"
  | "append"
  | "move"
  | "make-dir"
  | "remove-dir"
  | "free-slot"
  | "free-lease";

export interface LogChange {
  added?: string;
  after?: string;
  /** what was there; null when nothing was */
  before?: LogChangeBefore | null;
  beforeBytes?: number | null;
  kind: LogChangeKind;
  mode?: number;
  owner?: string;
  /** below the root */
  path: string;
  to?: string;
  what?: Record<string, unknown>;
  [member: string]: unknown;
}

export interface LogRecord {
  action: string;
  atMs: number;
  changes: Array<LogChange>;
  evidence: Array<string>;
  id: string;
  path: string;
  runId: string;
  version: 1;
  why: string;
  [member: string]: unknown;
}

export type LogEntryState =
  | "begun"
  | "done"
  | "undone"
  | "superseded";

export interface LogEntry {
  number: number;
  /** why the record cannot be read */
  problem?: string;
  record?: LogRecord;
  state: LogEntryState;
  [member: string]: unknown;
}

export interface LogAnswerAppliesItem {
  actions: Array<LogEntry>;
  id: string;
  [member: string]: unknown;
}

/** Answer of recover log: runstore.log/1 */
export interface LogAnswer {
  applies: Array<LogAnswerAppliesItem>;
  schema: "runstore.log/1";
  [member: string]: unknown;
}

export interface LogsLine {
  /** the file, where it is no output of a step */
  log?: string;
  /** whose output it is */
  step?: number;
  text: string;
  [member: string]: unknown;
}

/** Answer of logs: runstore.logs/1 */
export interface LogsAnswer {
  /** why nothing was written */
  because?: string;
  lines: Array<LogsLine>;
  path: string;
  runId: string;
  schema: "runstore.logs/1";
  [member: string]: unknown;
}

export type NestedEventAction =
  | "interrupt"
  | "resume";

export interface NestedEventChild {
  asyncDir?: string;
  endedAt?: number;
  /** RS-NEST-02 */
  id: string;
  lastUpdate?: number;
  parentRunId?: string;
  pid?: number;
  startedAt?: number;
  state?: RunState | (string & {});
  [member: string]: unknown;
}

export type NestedEventType =
  | "subagent.nested.started"
  | "subagent.nested.updated"
  | "subagent.nested.completed"
  | "subagent.nested.control-result"
  | "subagent.nested.control-request";

/** One nested event or control */
export interface NestedEvent {
  action?: NestedEventAction | (string & {});
  capabilityToken: string;
  child?: NestedEventChild;
  message?: string;
  ok?: boolean;
  parentRunId?: string;
  parentStepIndex?: number;
  requestId?: string;
  rootRunId: string;
  targetRunId?: string;
  ts?: number;
  type: NestedEventType | (string & {});
  [member: string]: unknown;
}

/** Nested route: route.json and its index entry */
export interface NestedRoute {
  capabilityToken: string;
  createdAt?: number;
  rootRunId: string;
  /** only in the index entry: base name of the route */
  routeRoot?: string;
  [member: string]: unknown;
}

export interface PlanRequirement {
  /** below the root of the action */
  path: string;
  /** RS-REC-18 */
  seen: string;
  [member: string]: unknown;
}

export interface PlanAction {
  action: RepairAction;
  evidence: Array<string>;
  id: string;
  /** absolute; of the run, or of what is held */
  path: string;
  requires: Array<PlanRequirement>;
  /** absolute */
  root: string;
  runId: string;
  /** what is not is refused */
  safe: true;
  why: string;
  /** absolute; every file that is written, renamed or removed */
  writes: Array<string>;
  [member: string]: unknown;
}

export interface PlanRefusal {
  path: string;
  runId: string;
  verdict: Verdict;
  why: string;
  [member: string]: unknown;
}

export interface PlanAnswerSummary {
  actions: number;
  byAction: Partial<Record<RepairAction, number>>;
  refused: number;
  runs: number;
  [member: string]: unknown;
}

/** Answer of recover: runstore.plan/1 */
export interface PlanAnswer {
  actions: Array<PlanAction>;
  nowMs: number;
  refused: Array<PlanRefusal>;
  schema: "runstore.plan/1";
  summary: PlanAnswerSummary;
  [member: string]: unknown;
}

export interface ProcessTerminalCandidateWriterInstanceProcessTreeObserved {
  mechanism: "posix-process-group";
  processGroupId: number;
  state: "observed";
  verifiedAt: number;
  [member: string]: unknown;
}

export interface ProcessTerminalCandidateWriterInstanceProcessTreeUnknown {
  diagnostic?: string;
  reason: ProcessTreeReason;
  state: "unknown";
  [member: string]: unknown;
}

export interface ProcessTerminalCandidateWriterInstance {
  attempt: number;
  closeObservedAt: number;
  exitCode: number | null;
  kind: WriterKind;
  processInstanceId: string;
  /** RS-CAND-03: absent in records of P43 and P44 */
  processTree?: ProcessTerminalCandidateWriterInstanceProcessTreeObserved | ProcessTerminalCandidateWriterInstanceProcessTreeUnknown;
  signal: string | null;
  [member: string]: unknown;
}

/** The runner's account of its writers: process-terminal-candidate.json */
export interface ProcessTerminalCandidate {
  expectedWriters?: Record<string, number>;
  revivalLeaseReleaseAcknowledged?: boolean;
  revivalLeaseToken?: string;
  runId: string;
  runnerProcessInstanceId: string;
  sessionFile?: string;
  version: 1;
  /** keys are flat step indexes as text, unchecked */
  writers: Record<string, Array<ProcessTerminalCandidateWriterInstance>>;
  [member: string]: unknown;
}

export interface PruneKept {
  path: string;
  /** a fixed word */
  reason: string;
  runId: string;
  why: string;
  [member: string]: unknown;
}

export interface PruneRemoved {
  bytes: number;
  endedAtMs?: number;
  path: string;
  runId: string;
  [member: string]: unknown;
}

export interface PruneAnswerSummary {
  bytes: number;
  kept: number;
  runs: number;
  [member: string]: unknown;
}

/** Answer of prune: runstore.prune/1 */
export interface PruneAnswer {
  applied: boolean;
  blocked?: Array<string>;
  finished?: Array<string>;
  kept: Array<PruneKept>;
  leftovers: number;
  nowMs: number;
  problems?: Array<string>;
  putBack?: Array<string>;
  remove: Array<PruneRemoved>;
  schema: "runstore.prune/1";
  summary: PruneAnswerSummary;
  [member: string]: unknown;
}

export type ReleaseKind =
  | "slot"
  | "lease";

export type ReleaseState =
  | "free"
  | "held"
  | "unreadable"
  | "freed"
  | "releasable";

/** Answer of release: runstore.release/1 */
export interface ReleaseAnswer {
  byPolicy?: boolean;
  dryRun: boolean;
  kind: ReleaseKind;
  path: string;
  problems?: Array<string>;
  runId?: string;
  schema: "runstore.release/1";
  state: ReleaseState;
  why: string;
  /** what was done, or would be, in order */
  writes: Array<string>;
  [member: string]: unknown;
}

export type RunMode =
  | "single"
  | "parallel"
  | "chain"
  | "workflow";

export interface ResultChildResult {
  agent?: string | null;
  error?: string | null;
  exitCode?: number | null;
  interrupted?: boolean | null;
  output?: string | null;
  sessionFile?: string | null;
  stopped?: boolean | null;
  success?: boolean | null;
  timedOut?: boolean | null;
  [member: string]: unknown;
}

/** Result payload: <runId>.json in the results root */
export interface Result {
  agent?: string | null;
  asyncDir?: string | null;
  completionOwnerId?: string | null;
  cwd?: string | null;
  durationMs?: number | null;
  error?: string | null;
  exitCode?: number | null;
  id?: string | null;
  lifecycleArtifactVersion?: number | null;
  mode?: RunMode | (string & {}) | null;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  notificationDeliveredAt?: number | null;
  results?: Array<ResultChildResult> | null;
  runId?: string | null;
  sessionFile?: string | null;
  sessionId?: string | null;
  state?: RunState | (string & {}) | null;
  stopped?: boolean | null;
  success?: boolean | null;
  summary?: string | null;
  timedOut?: boolean | null;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  timestamp?: number | null;
  toolCallId?: string | null;
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
  [member: string]: unknown;
}

export interface ResultsProblem {
  id: string;
  path: string;
  severity: Severity;
  text: string;
  [member: string]: unknown;
}

export type ResultsResultPlace =
  | "public"
  | "pending"
  | "replay"
  | "workflow";

export interface ResultsResult {
  ageMs?: number;
  atMs?: number;
  outcome?: RunState;
  /** below the store */
  path: string;
  place: ResultsResultPlace;
  problem?: string;
  runId: string;
  sessionId?: string;
  [member: string]: unknown;
}

/** Answer of results: runstore.results/1 */
export interface ResultsAnswer {
  nowMs: number;
  problems: Array<ResultsProblem>;
  results: Array<ResultsResult>;
  schema: "runstore.results/1";
  [member: string]: unknown;
}

export interface RootsRoot {
  because: string;
  exists: boolean;
  family: string;
  path: string;
  [member: string]: unknown;
}

/** Answer of roots: runstore.roots/1 */
export interface RootsAnswer {
  roots: Array<RootsRoot>;
  schema: "runstore.roots/1";
  [member: string]: unknown;
}

/** Answer of run and resume: runstore.run/1 */
export interface RunAnswer {
  because?: string;
  error?: string | null;
  /** absolute */
  path: string;
  pid: number;
  /** this and what follows: in the foreground, at the end */
  recordedState?: string | null;
  /** absolute */
  root: string;
  runId: string;
  schema: "runstore.run/1";
  verdict?: Verdict;
  [member: string]: unknown;
}

export interface RunnerConfigRevivalLease {
  parentSessionId?: string;
  runId: string;
  sessionFile: string;
  sourceRunId: string;
  [member: string]: unknown;
}

/** Runner configuration: async-cfg-<runId>.json */
export interface RunnerConfig {
  asyncDir: string;
  completionOwnerId?: string;
  cwd: string;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  deadlineAt?: number;
  id: string;
  /** RS-START-03 */
  launchBarrierToken?: string;
  launchContractDigest?: string;
  nestedRoute?: Record<string, unknown>;
  nestedSelf?: Record<string, unknown>;
  parentWorkflowRunId?: string;
  placeholder?: string;
  resultMode?: string;
  resultPath: string;
  revivalLease?: RunnerConfigRevivalLease;
  runnerProcessInstanceId?: string;
  sessionId?: string;
  steps: Array<Record<string, unknown>>;
  timeoutMs?: number;
  workflowKey?: string;
  [member: string]: unknown;
}

export type RunnerStartupState =
  | "ready"
  | "acknowledged"
  | "confirmed"
  | "error";

/** What the runner says before the commit point: runner-startup.json */
export interface RunnerStartup {
  error?: string;
  /** the lease owner record, in ready */
  owner?: unknown;
  /** RS-START-04: informational */
  pid?: unknown;
  state: RunnerStartupState | (string & {});
  token?: string;
  [member: string]: unknown;
}

export interface SlotsProblem {
  id: string;
  path: string;
  severity: Severity;
  text: string;
  [member: string]: unknown;
}

export interface SlotsSlot {
  byPolicy: boolean;
  /** below the store */
  path: string;
  reason: string;
  releasable: boolean;
  reservedAtMs?: number;
  runId?: string;
  runVerdict?: Verdict;
  sessionId?: string;
  [member: string]: unknown;
}

/** Answer of slots: runstore.slots/1 */
export interface SlotsAnswer {
  nowMs: number;
  problems: Array<SlotsProblem>;
  schema: "runstore.slots/1";
  slots: Array<SlotsSlot>;
  [member: string]: unknown;
}

export interface SpecChapterAreasItem {
  area: string;
  /** how many */
  clauses: number;
  [member: string]: unknown;
}

export interface SpecChapter {
  areas: Array<SpecChapterAreasItem>;
  /** how many */
  clauses: number;
  file: string;
  /** the number of a chapter, with two digits; of another page its name */
  name: string;
  /** where one page was asked for: the whole, as Markdown */
  text?: string;
  title: string;
  [member: string]: unknown;
}

export type SpecClauseLevel =
  | "MUST"
  | "MUST NOT"
  | "SHOULD"
  | "SHOULD NOT"
  | "MAY";

export type SpecClauseRoles =
  | "reader"
  | "writer"
  | "launcher"
  | "runner"
  | "observer"
  | "recoverer"
  | "client";

export interface SpecClause {
  /** the version of the spec from which it is to be avoided */
  deprecated?: string;
  facts: Array<string>;
  file: string;
  id: string;
  level: SpecClauseLevel;
  roles: Array<SpecClauseRoles>;
  /** the heading that it stands below */
  section?: string;
  /** a version of the spec */
  since: string;
  /** all that it says, as Markdown, with a table that follows at once */
  text: string;
  withdrawn?: true;
  [member: string]: unknown;
}

/** Answer of spec: runstore.spec/1 */
export interface SpecAnswer {
  chapters: Array<SpecChapter>;
  clauses: Array<SpecClause>;
  schema: "runstore.spec/1";
  /** the version of the spec */
  spec: string;
  [member: string]: unknown;
}

export type StartupControlAction =
  | "ack"
  | "confirm"
  | "proceed";

/** What the launcher says: runner-startup-ack.json, -confirm.json, -proceed.json */
export interface StartupControl {
  action: StartupControlAction | (string & {});
  token: string;
  [member: string]: unknown;
}

export type StatusStepStatus =
  | "pending"
  | "running"
  | "complete"
  | "completed"
  | "failed"
  | "partial"
  | "paused"
  | "stopped"
  | "rejected";

export interface StatusStep {
  agent?: string | null;
  async?: boolean | null;
  children?: Array<unknown> | null;
  durationMs?: number | null;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  endedAt?: number | null;
  error?: string | null;
  exitCode?: number | null;
  parentWorkflowRunId?: string | null;
  /** RS-PROOF-05, RS-PROOF-16: a copy of the proof; any value is read, an invalid one counts as unknown */
  processTerminal?: ProcessTerminal | unknown;
  runId?: string | null;
  sessionFile?: string | null;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  startedAt?: number | null;
  /** RS-STATUS-18 */
  status?: StatusStepStatus | (string & {}) | null;
  stopRequested?: boolean | null;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  stopRequestedAt?: number | null;
  [member: string]: unknown;
}

/** The run's own account: status.json */
export interface Status {
  /** RS-RUN-05: text; anything else is none */
  bootId?: unknown;
  completionOwnerId?: string | null;
  currentStep?: number | null;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  deadlineAt?: number | null;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  displayDismissedAt?: number | null;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  endedAt?: number | null;
  error?: string | null;
  /** RS-LIVE-03 */
  hostname?: string | null;
  isNested?: boolean | null;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  lastActivityAt?: number | null;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  lastUpdate?: number | null;
  /** RS-ROLE-07, RS-ROLE-08: above 3 is newer, not damaged */
  lifecycleArtifactVersion?: number | null;
  mode?: RunMode | (string & {}) | null;
  ownerPid?: number | null;
  parentWorkflowRunId?: string | null;
  /** RS-STATUS-14: runnerPid, else ownerPid, else pid */
  pid?: number | null;
  /** RS-LIVE-04 */
  pidNamespaceScope?: string | null;
  /** RS-RUN-05: decimal text, or a number; anything else is none */
  pidfdInode?: unknown;
  /** RS-RUN-05, RS-LIVE-06: text such as linux:<ticks>; anything else is none */
  processStartIdentity?: unknown;
  /** RS-PROOF-05, RS-PROOF-16: a copy of the proof; any value is read, an invalid one counts as unknown */
  processTerminal?: ProcessTerminal | unknown;
  runId?: string | null;
  runnerPid?: number | null;
  sessionFile?: string | null;
  sessionId?: string | null;
  /** RS-JSON-07: milliseconds since the Unix epoch, a fraction is cut off */
  startedAt?: number | null;
  /** RS-STATUS-03, RS-STATUS-05: an unknown word is unsupported */
  state: RunState | (string & {});
  /** RS-STATUS-02 */
  steps?: Array<StatusStep> | null;
  stopped?: boolean | null;
  timedOut?: boolean | null;
  timeoutMs?: number | null;
  toolCallId?: string | null;
  workflowKey?: string | null;
  [member: string]: unknown;
}

export interface SweepAnswerRootsItemDoneItem {
  action: RepairAction;
  id: string;
  path: string;
  runId: string;
  why: string;
  [member: string]: unknown;
}

export interface SweepAnswerRootsItemEventsItem {
  cause: string;
  runs: Array<string>;
  text: string;
  [member: string]: unknown;
}

export interface SweepAnswerRootsItemLeftItem {
  id: string;
  runId: string;
  why: string;
  [member: string]: unknown;
}

export type SweepRootsOutcome =
  | "swept"
  | "contended"
  | "failed";

export interface SweepRefusal {
  path: string;
  runId: string;
  verdict: Verdict;
  why: string;
  [member: string]: unknown;
}

export interface SweepAnswerRootsItemSummary {
  done: number;
  finished: number;
  left: number;
  refused: number;
  [member: string]: unknown;
}

export interface SweepAnswerRootsItem {
  /** one for each store in which something was begun */
  applies: Array<string>;
  done: Array<SweepAnswerRootsItemDoneItem>;
  events: Array<SweepAnswerRootsItemEventsItem>;
  /** runs of which an earlier apply had begun an action */
  finished: Array<string>;
  left: Array<SweepAnswerRootsItemLeftItem>;
  nowMs: number;
  outcome: SweepRootsOutcome;
  problems: Array<string>;
  /** how many of them were read in this pass */
  read: number;
  refused: Array<SweepRefusal>;
  root: string;
  runs: number;
  schema: "runstore.apply/1";
  /** why it ended before all was done; calling again goes on */
  stopped?: Array<string>;
  summary: SweepAnswerRootsItemSummary;
  /** of a store that was not swept */
  why?: string;
  [member: string]: unknown;
}

/** Answer of sweep: runstore.sweep/1 */
export interface SweepAnswer {
  nowMs: number;
  roots: Array<SweepAnswerRootsItem>;
  schema: "runstore.sweep/1";
  [member: string]: unknown;
}

/** Terminal marker: .terminal-runs/<session>/<stamp>-<run>.json */
export interface TerminalRunEntry {
  endedAt: number;
  runId: string;
  sessionId: string;
  version: 1;
  [member: string]: unknown;
}

export interface UndoAnswerLeftItem {
  runId: string;
  why: string;
  [member: string]: unknown;
}

export interface UndoAnswerUndoneItem {
  action: string;
  runId: string;
  [member: string]: unknown;
}

/** Answer of recover undo: runstore.undo/1 */
export interface UndoAnswer {
  /** null: there was nothing to take back */
  id: string | null;
  /** somebody else has been there since */
  left: Array<UndoAnswerLeftItem>;
  schema: "runstore.undo/1";
  undone: Array<UndoAnswerUndoneItem>;
  [member: string]: unknown;
}

export type WaitFor =
  | "ready"
  | "terminal"
  | "proof";

export type WaitRunOutcome =
  | "ready"
  | "ended"
  | "proven"
  | "orphaned"
  | "cannot-change"
  | "gone"
  | "timeout";

export interface WaitRunProof {
  counts: boolean;
  reason?: string;
  state: string;
  [member: string]: unknown;
}

/** Without the members from recordedState on, the directory was gone before it could be read. */
export interface WaitRun {
  because?: string;
  error?: string;
  exitCode?: number;
  liveness?: Liveness;
  next?: Array<Record<string, unknown>>;
  outcome: WaitRunOutcome;
  path: string;
  proof?: WaitRunProof;
  recordedState?: string | null;
  runId: string;
  signal?: string;
  verdict?: Verdict;
  waitedMs: number;
  [member: string]: unknown;
}

export interface WaitAnswerSummary {
  byOutcome: Record<string, unknown>;
  total: number;
  [member: string]: unknown;
}

/** Answer of wait: runstore.wait/1 */
export interface WaitAnswer {
  for: WaitFor;
  nowMs: number;
  runs: Array<WaitRun>;
  schema: "runstore.wait/1";
  summary: WaitAnswerSummary;
  [member: string]: unknown;
}

export type WitnessOutcome =
  | "settled"
  | "attended"
  | "observed"
  | "unobserved"
  | "undetermined"
  | "still-running";

/** Answer of witness: runstore.witness/1 */
export interface WitnessAnswer {
  because: string;
  exitCode?: number;
  exitEvidence?: string;
  outcome: WitnessOutcome;
  path: string;
  problems: Array<string>;
  proof?: ProofState;
  runId: string;
  schema: "runstore.witness/1";
  signal?: string;
  slotReleased: boolean;
  [member: string]: unknown;
}

/** The type of each schema, by its name. */
export interface BySchema {
  apply: ApplyAnswer;
  "capacity-owner": CapacityOwner;
  check: CheckAnswer;
  control: ControlAnswer;
  event: Event;
  explain: ExplainAnswer;
  inspect: InspectAnswer;
  "lease-owner": LeaseOwner;
  leases: LeasesAnswer;
  list: ListAnswer;
  log: LogAnswer;
  logs: LogsAnswer;
  "nested-event": NestedEvent;
  "nested-route": NestedRoute;
  plan: PlanAnswer;
  "process-terminal": ProcessTerminal;
  "process-terminal-candidate": ProcessTerminalCandidate;
  prune: PruneAnswer;
  release: ReleaseAnswer;
  result: Result;
  "result-index-entry": ResultIndexEntry;
  results: ResultsAnswer;
  roots: RootsAnswer;
  run: RunAnswer;
  "runner-config": RunnerConfig;
  "runner-startup": RunnerStartup;
  slots: SlotsAnswer;
  spec: SpecAnswer;
  "startup-control": StartupControl;
  status: Status;
  sweep: SweepAnswer;
  "terminal-run-entry": TerminalRunEntry;
  undo: UndoAnswer;
  wait: WaitAnswer;
  witness: WitnessAnswer;
}
