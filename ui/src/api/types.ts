// Generated from crates/server/src/wire: do not edit.
// UPDATE_TYPES=1 cargo test -p runner-server types_are_fresh

/** `GET /api/run`: everything that the head of the page shows. Elapsed times are counted by the page; the `Date` header of the answer tells the server's clock. */
export type Run = {
  /** The run; null before `runner start`. */
  run_id: string | null;
  /** Its branch, such as `runner/run-b008ab9f`. */
  branch: string | null;
  /** The branch that it began on. */
  base: string | null;
  /** What it is for. */
  goal: Goal;
  /** The one word for the whole. */
  state: RunStatus;
  /** Whether a runner is at work in this project right now. */
  pid_alive: boolean;
  /** Its process, while it is at work. */
  pid: number | null;
  /** What it is doing. */
  phase: Phase;
  /** The iteration that is under way, or the last one. */
  iter: number | null;
  /** Its node, or `repair-tree`. */
  node_id: string | null;
  /** When the phase began. */
  phase_started_at: string | null;
  /** When the iteration began. */
  iteration_started_at: string | null;
  /** When the loop at work began; null for a single step. */
  loop_started_at: string | null;
  /** In phase `waiting`: what the loop waits for. */
  waiting: Waiting | null;
  /** How the last loop ended; null while one is at work. */
  last_end: LastEnd | null;
  /** An iteration was begun and never ended, and no runner is at work. */
  cut_off: boolean;
  /** No runner is at work: the last sign of life of the run. */
  not_running_since: string | null;
  /** The number that the next iteration will have. */
  next_iter: number;
  /** The leaf that the next step would take; null if there is none, or if the tree is invalid. */
  next: Leaf | null;
  /** What the run may use. */
  limits: Limits;
  /** What the recorded iterations used. */
  totals: Totals;
  /** Leaves that passed; null if the tree is invalid. */
  passed: number | null;
  /** All leaves; null if the tree is invalid. */
  leaves: number | null;
  /** The newest iteration's runner error, or why the project cannot be read. */
  last_error: LastError | null;
  /** What agents would have asked, oldest first. */
  questions: Array<string>;
  /** What agents took for granted, oldest first. */
  assumptions: Array<string>;
  /** What a person should do now; null if nothing. */
  needs_you: NeedsYou | null;
  /** Where the checkout stands, or where the run has landed, as `runner status` says it; null if the checkout shows what the run has. */
  checkout: string | null;
};

/** What a run is for. */
export type Goal = {
  /** The first heading or line. */
  title: string;
  /** GOAL.md without its front matter, Markdown. */
  text: string;
};

/** The state of a run in one word. */
export type RunStatus = "running" | "idle" | "stuck" | "complete" | "error" | "quota";

/** What a runner that is at work does. */
export type Phase = "idle" | "starting" | "preparing" | "agent" | "checking" | "guard" | "deciding" | "committing" | "between" | "waiting" | "working";

/** What the loop waits for. */
export type Waiting = {
  /** When it tries again. */
  until: string;
  /** The kind of the error that made it wait, such as `quota`. */
  kind: string;
  /** That error in words. */
  why: string;
};

/** How a loop ended. */
export type LastEnd = {
  /** When. */
  at: string;
  /** `complete`, `stuck`, `limit`, `error`, `stopped` or `interrupted`. */
  status: string;
  /** How many iterations that loop took. */
  steps: number;
  /** The code of the error that ended it, such as `quota` or `auth`. */
  code: string | null;
  /** That error, or the reason, in words. */
  message: string | null;
};

/** A leaf that is next. */
export type Leaf = {
  /** Its id. */
  id: string;
  /** The ids from the root to it, `root/a/b`. */
  path: string;
  /** Attempts that did not get there. */
  attempts: number;
  /** How many it may have. */
  max_attempts: number;
};

/** What a run may use. */
export type Limits = {
  /** Iterations of the run. */
  max_iterations: number;
  /** Seconds of one iteration, agent and guard together. */
  iteration_timeout_secs: number;
  /** Tokens of the run; null is no limit. */
  max_tokens: number | null;
  /** US dollars of the run; null is no limit. */
  max_cost_usd: number | null;
};

/** Sums over the recorded iterations of the run. */
export type Totals = {
  /** Recorded iterations. */
  iterations: number;
  /** Those with a green guard. */
  guard_passes: number;
  /** Those with a red guard. */
  guard_fails: number;
  /** Those that were a runner error. */
  errors: number;
  /** Wall time. */
  duration_ms: number;
  /** Wall time of the agents' sessions. */
  agent_ms: number;
  /** Wall time of the guards. */
  guard_ms: number;
  /** Input tokens, cached ones included; null when no session told. */
  input_tokens: number | null;
  /** Input tokens that came from a cache. */
  cached_input_tokens: number | null;
  /** Output tokens. */
  output_tokens: number | null;
  /** US dollars. */
  cost_usd: number | null;
};

/** What went wrong last. */
export type LastError = {
  /** The iteration that it is recorded in; null if it is of the project as a whole. */
  iter: number | null;
  /** The kind of a recorded error; null if it is of the project as a whole. */
  kind: ErrorKind | null;
  /** In words. */
  message: string;
  /** What to do about it. */
  hint: string | null;
  /** When. */
  at: string | null;
  /** When the agent's service said that it can be used again. */
  retry_at: string | null;
};

/** What a person should do now. */
export type NeedsYou = {
  /** Why. */
  kind: Needs;
  /** The same in a sentence or two. */
  words: string;
  /** A command to copy. */
  command: string | null;
};

/** Why a person is needed. */
export type Needs = "not_started" | "not_running" | "cut_off" | "stuck" | "error" | "quota" | "limit" | "land" | "invalid_tree" | "unreadable" | "no_run";

/** `GET /api/run-state`: the bookkeeping, as in run_state.json. */
export type RunState = {
  /** The run; null before `runner start`. */
  run_id: string | null;
  /** The number of the next iteration. */
  next_iter: number;
  /** Status of the last iteration that was not a runner error. */
  last_status: SessionStatus | null;
  /** Its summary, or what the agent did wrong. */
  last_summary: string | null;
  /** What the guard said of it. */
  last_guard: GuardVerdict | null;
  /** The node it worked on. */
  last_node_id: string | null;
};

/** `GET /api/server`: who answers. */
export type ServerInfo = {
  /** The runner's version. */
  version: string;
  /** The folder that is shown, as it was given. */
  project_dir: string;
  /** Whether there is a project in it right now. */
  project_there: boolean;
  /** Whether the page is built into this binary. */
  page: boolean;
};

/** `GET /api/iterations`: every run in this clone, the current one first, then the others by their newest iteration. */
export type Iterations = {
  /** The runs. */
  runs: Array<RunIterations>;
};

/** The iterations of one run. */
export type RunIterations = {
  /** The run. */
  run_id: string;
  /** Whether it is the run that run_state.json names. */
  current: boolean;
  /** Its iterations, oldest first. */
  iterations: Array<IterationRow>;
};

/** One bar of the timeline: all that it needs, without another request. */
export type IterationRow = {
  /** Its number, from 1. */
  iter: number;
  /** Whether it is recorded. If not, it is under way or was cut off, and everything that is known at the end only is null. */
  recorded: boolean;
  /** The node, or `repair-tree`; null if the journal does not say. */
  node_id: string | null;
  /** The node's title in the newest tree of the run that has it. */
  title: string | null;
  /** The ids from the root to the node in that tree, `root/a/b`. */
  path: string | null;
  /** What kind of iteration it was. */
  mode: Mode | null;
  /** What became of the leaf. */
  status: SessionStatus | null;
  /** What the guard said. */
  guard: GuardVerdict | null;
  /** Which rule applied. */
  class: Class | null;
  /** The kind of runner error. */
  error_kind: ErrorKind | null;
  /** The runner error in words. */
  error_message: string | null;
  /** When it began. */
  started_at: string | null;
  /** When it was decided. */
  ended_at: string | null;
  /** Wall time up to the decision. */
  duration_ms: number | null;
  /** Wall time of the agent's session. */
  agent_ms: number | null;
  /** Wall time of the guard; null if it was not asked. */
  guard_ms: number | null;
  /** Input tokens, cached ones included. */
  input_tokens: number | null;
  /** Input tokens that came from a cache. */
  cached_input_tokens: number | null;
  /** Output tokens. */
  output_tokens: number | null;
  /** US dollars. */
  cost_usd: number | null;
  /** Attempts of the node afterwards; null in a repair. */
  attempts: number | null;
  /** Whether the node has passed; null in a repair. */
  passes: boolean | null;
  /** How many nodes the session added, edited and moved. */
  tree_changes: ChangeCounts;
  /** How many watched files it changed. */
  watched_changed: number;
  /** Ids that turned to passed, derived parents included. */
  passed: Array<string>;
};

/** Numbers of nodes. */
export type ChangeCounts = {
  /** That were not there before. */
  added: number;
  /** Whose title, goal, acceptance or order changed. */
  edited: number;
  /** That hang under another parent now. */
  moved: number;
};

/** `GET /api/iterations/{run}/{iter}`: one iteration in full, but for its logs. */
export type IterationDetail = {
  /** The run. */
  run_id: string;
  /** The same as in the timeline. */
  row: IterationRow;
  /** The record; null while it is under way, and after a crash. */
  meta: Meta | null;
  /** What is being done; null unless a runner works on this iteration right now. */
  phase: Phase | null;
  /** When that began. */
  phase_started_at: string | null;
  /** What the agent reported; null if it did not, or not in the right form. */
  output: AgentReport | null;
  /** What went wrong around the agent (runner_error.log, its first 64 KiB). */
  runner_error: string | null;
  /** What was not accepted (agent_error.log, its first 64 KiB). */
  agent_error: string | null;
  /** The files that can be read at `/api/iterations/{run}/{iter}/{file}`. */
  files: Array<LogFile>;
};

/** A file of an iteration. */
export type LogFile = {
  /** Its name, such as `guard.log`. */
  name: string;
  /** Its size in bytes; the file of an iteration that is under way may grow. */
  bytes: number;
};

/** `GET /api/iterations/{run}/{iter}/{file}?find=TEXT`: lines that contain the text, whatever the case of its letters. */
export type LogMatches = {
  /** At most 200 lines, in their order. */
  matches: Array<LogMatch>;
  /** Where to go on (`&offset=`) if there may be more; null at the end of the file. */
  next_offset: number | null;
};

/** A line that was found. */
export type LogMatch = {
  /** Where the line begins in the file. */
  offset: number;
  /** The line, at most 400 bytes of it. */
  line: string;
};

/** What the agent reported. */
export type AgentReport = {
  /** What it says became of the leaf. */
  status: SessionStatus;
  /** What was done or tried. */
  summary: string;
};

/** The record of an iteration, without what only `runner replay` needs (which is in the file `meta.json`). */
export type Meta = {
  /** The agent CLI, such as `codex`; null if no session began. */
  backend: string | null;
  /** The agent's own exit code; null when it did not end by itself. */
  agent_exit_code: number | null;
  /** The guard's argv; null if it was not asked. */
  guard_command: Array<string> | null;
  /** The guard's exit code, 128 + n for a signal. */
  guard_exit_code: number | null;
  /** SHA-256 of guard.log. */
  guard_log_sha256: string | null;
  /** The runner error. */
  error: MetaError | null;
  /** Ids that the session added. */
  added: Array<string>;
  /** Ids that it edited. */
  edited: Array<string>;
  /** Ids that it moved. */
  moved: Array<string>;
  /** Watched files that it changed. */
  watched_changed: Array<string>;
  /** Files that the guard left behind and that were committed. */
  guard_untracked: Array<string>;
  /** Runner-owned files that it changed, and that were put back. */
  owned_changed: Array<string>;
  /** Protected files that it changed, and that were put back. */
  protected_changed: Array<string>;
  /** Files that define the guard and that the session was allowed to make, because none was there. */
  guard_written: Array<string>;
  /** New files that did not go into the commit. */
  denied_files: Array<string>;
  /** Remarks of the runner. */
  notes: Array<string>;
  /** How agent and guard were contained. */
  sandbox: string;
  /** HEAD when the step began. */
  head: string;
};

/** A recorded runner error. */
export type MetaError = {
  /** What kind. */
  kind: ErrorKind;
  /** In words. */
  message: string;
  /** When the agent's service said that it can be used again. */
  retry_at: string | null;
};

/** `GET /api/iterations/{run}/{iter}/diff`: what the iteration changed, without the runner's own files. */
export type Diff = {
  /** The iteration's commit. */
  commit: string;
  /** A unified diff, at most 2 MiB of it, cut at the end of a line. */
  text: string;
  /** Whether `text` is only its beginning. */
  truncated: boolean;
};

/** What kind of iteration it was, judged by what changed. */
export type Mode = "decompose" | "execute" | "repair";

/** What became of the leaf. */
export type SessionStatus = "done" | "retry" | "decomposed";

/** What the guard said. */
export type GuardVerdict = "pass" | "fail" | "skipped";

/** Which rule applied. */
export type Class = "ok" | "agent_error" | "invalid_tree" | "runner_error" | "repaired" | "repair_refused" | "repair_restored";

/** What went wrong around the agent. */
export type ErrorKind = "spawn" | "timeout" | "idle" | "no_output" | "malformed_output" | "guard_spawn" | "guard_timeout" | "setup" | "branch" | "git" | "io" | "disk" | "interrupted" | "quota" | "rate_limit" | "auth" | "context_full" | "network" | "overloaded" | "agent" | "budget" | "resources";

/** `GET /api/tree` and `/api/iterations/{run}/{iter}/tree`: the root of the tree. The bytes are those of the file, which has been checked. */
export type TreeNode = {
  /** Unique in the whole tree. */
  id: string;
  /** First sorting key among siblings; children are sorted already. */
  order: number;
  /** One line for people. */
  title: string;
  /** What shall be true in the end. */
  goal: string;
  /** What to look at to see that it is. */
  acceptance: Array<string>;
  /** Proven by a green guard; of an inner node: all its children are. */
  passes: boolean;
  /** How many sessions did not get there. */
  attempts: number;
  /** How many may. An open leaf with `attempts >= max_attempts` is stuck. */
  max_attempts: number;
  /** Its parts; empty for a leaf. */
  children: Array<TreeNode>;
};

/** `GET /api/iterations/{run}/{iter}/plan`: what the session did to the plan. */
export type Plan = {
  /** One entry for each node that was added, edited, moved or removed, in tree order. */
  changes: Array<PlanChange>;
};

/** What happened to one node. */
export type PlanChange = {
  /** The node. */
  id: string;
  /** What happened; a node can be both moved and edited. */
  kinds: Array<ChangeKind>;
  /** As it was; null if it was added. */
  before: PlanNode | null;
  /** As it is; null if it was removed. */
  after: PlanNode | null;
};

/** What can happen to a node. */
export type ChangeKind = "added" | "edited" | "moved" | "removed";

/** What a plan says of one node. */
export type PlanNode = {
  /** The id of its parent; null for the root. */
  parent: string | null;
  /** First sorting key among siblings. */
  order: number;
  /** One line for people. */
  title: string;
  /** What shall be true in the end. */
  goal: string;
  /** What to look at to see that it is. */
  acceptance: Array<string>;
};

/** The body of every answer that is an error (status 4xx and 5xx). */
export type ProblemBody = {
  /** What is wrong. */
  error: Problem;
  /** Of an invalid tree (422): everything that is wrong with it. Else empty. */
  findings: Array<Finding>;
};

/** What is wrong, and what to do about it. */
export type Problem = {
  /** A word for scripts: `no_project`, `no_tree`, `invalid_tree`, `no_state`, `not_found`, `invalid_state`, `method`, `host`, `origin`, `token`, `bad_request`, `git`, `io`. */
  code: string;
  /** What happened and where. */
  message: string;
  /** What to do about it. */
  hint: string | null;
};

/** One thing that is wrong with a tree. */
export type Finding = {
  /** The node's path, or the place in the file. */
  place: string;
  /** What is wrong there. */
  message: string;
};

/** One event of the stream. On the wire the name is the SSE `event` field and the content is its `data`. */
export type ServerEvent = { "event": "tree_changed", "data": TreeChanged } | { "event": "run_state_changed", "data": RunStateChanged } | { "event": "iteration_added", "data": IterationAdded } | { "event": "iteration_changed", "data": IterationChanged } | { "event": "phase_changed", "data": PhaseChanged } | { "event": "project_changed", "data": ProjectChanged } | { "event": "stream", "data": StreamLine };

/** Of a tree. */
export type TreeChanged = {
  /** Whether there is a tree.json. */
  there: boolean;
};

/** Of the bookkeeping. */
export type RunStateChanged = {
  /** Whether there is a run_state.json. */
  there: boolean;
};

/** Of an iteration that has begun. Without names in the events that a client gets when its place in the stream is not known: fetch all. */
export type IterationAdded = {
  /** The run. */
  run_id: string | null;
  /** The iteration. */
  iter: number | null;
};

/** Of an iteration that is recorded; without names as in `IterationAdded`. */
export type IterationChanged = {
  /** The run. */
  run_id: string | null;
  /** The iteration. */
  iter: number | null;
};

/** Of what the runner does. */
export type PhaseChanged = {
  /** The state of the run; null if there is no project. */
  state: RunStatus | null;
  /** What the runner does. */
  phase: Phase;
  /** The iteration that is under way. */
  iter: number | null;
  /** The node it works on. */
  node_id: string | null;
};

/** Of the folder as a whole. */
export type ProjectChanged = {
  /** Whether there is a project now. */
  there: boolean;
};

/** A line of stream.jsonl. */
export type StreamLine = {
  /** The run. */
  run_id: string;
  /** The iteration. */
  iter: number;
  /** Where the line begins in stream.jsonl. A gap between this and the end of the line before it can be fetched from there. */
  offset: number;
  /** The line itself, a JSON object as the agent printed it. Longer ones than 64 KiB are left out: null, to be read from the file. */
  line: string | null;
  /** Where the next line begins. */
  next_offset: number;
};
