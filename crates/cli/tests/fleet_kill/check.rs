//! What must hold once a fleet that was killed again and again has come to rest: the checks
//! of the simulation, over a real repository and a real ledger.

use std::collections::BTreeMap;

use runner_ledger::{Ledger, LedgerOptions, Store, TaskFilter};
use runner_lifecycle::run::TaskRun;
use runner_lifecycle::{BlockReason, JudgeVerdict, Task, TaskId, TaskRunStatus, TaskState};
use runner_testkit::{TestRepo, assert_no_process};

use crate::cast::{PARKED, TESTER, UNDONE, shares};

/// How often a run may be lost before its task is given up.
const LOST_LIMIT: u32 = 5;

/// How often each task is in a branch.
pub(crate) fn merged(repo: &TestRepo, branch: &str) -> BTreeMap<String, u32> {
    let format = "--format=%(trailers:key=Runner-Task,valueonly)";
    let log = repo
        .git_try(&["log", "--first-parent", format, branch])
        .unwrap_or_default();
    let mut count = BTreeMap::new();
    for id in log.lines().filter(|line| !line.trim().is_empty()) {
        *count.entry(id.trim().to_owned()).or_default() += 1;
    }
    count
}

/// What may not be, not even between two lives.
pub(crate) fn never_twice(repo: &TestRepo, faults: &mut Vec<String>) {
    for branch in ["main", "fleet/main"] {
        for (id, times) in merged(repo, branch) {
            if times > 1 {
                faults.push(format!("{id} is in {branch} {times} times"));
            }
        }
    }
}

/// All that is wrong.
pub(crate) fn faults(repo: &TestRepo, tasks: u32) -> Vec<String> {
    let mut faults = Vec::new();
    let held = Held::read(repo);
    assert!(held.tasks.len() >= tasks as usize, "every issue is a task");
    held.ended(&mut faults);
    held.in_base(repo, &mut faults);
    held.thrown_away(&mut faults);
    never_twice(repo, &mut faults);
    nothing_left(repo, &held, &mut faults);
    work_is_there(repo, &held, tasks, &mut faults);
    repo.runner(&["ledger", "check"]).success();
    assert_no_process(&repo.root().display().to_string());
    faults
}

/// One line about what happened.
pub(crate) fn story(repo: &TestRepo) -> String {
    let held = Held::read(repo);
    let mut states: BTreeMap<String, u32> = BTreeMap::new();
    let (mut lost, mut failed, mut successors) = (0, 0, 0);
    for task in &held.tasks {
        *states.entry(task.state.to_string()).or_default() += 1;
        lost += task.counters.lost_work + task.counters.lost_judge + task.counters.judge;
        failed += task.counters.failures.values().sum::<u32>();
        successors += u32::from(task.lineage.root != task.id);
    }
    let runs: usize = held.runs.values().map(Vec::len).sum();
    format!(
        "{states:?}, {runs} runs, {lost} of runs and judgements lost, {failed} failed, {successors} successors"
    )
}

/// What the ledger holds.
struct Held {
    tasks: Vec<Task>,
    runs: BTreeMap<TaskId, Vec<TaskRun>>,
    claims: Vec<String>,
}

impl Held {
    fn read(repo: &TestRepo) -> Held {
        let store = Store::Sqlite(repo.path(".runner/fleet/ledger.db"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let ledger = Ledger::open(&store, LedgerOptions::default())
                .await
                .unwrap();
            let filter = TaskFilter {
                limit: 10_000,
                ..TaskFilter::default()
            };
            let tasks = ledger.tasks(&filter).await.unwrap();
            let mut runs = BTreeMap::new();
            for task in &tasks {
                runs.insert(task.id.clone(), ledger.runs(&task.id).await.unwrap());
            }
            let locks = ledger.locks().await.unwrap().into_iter();
            let leases = ledger.leases().await.unwrap().into_iter();
            let claims = locks
                .map(|lock| format!("{} still locks {}", lock.task_id, lock.resource))
                .chain(leases.map(|lease| format!("{} still holds {}", lease.owner, lease.task_id)))
                .collect();
            ledger.close().await.unwrap();
            Held {
                tasks,
                runs,
                claims,
            }
        })
    }

    /// Every task has ended or waits for a person, and holds nothing.
    fn ended(&self, faults: &mut Vec<String>) {
        faults.extend(self.claims.iter().cloned());
        for task in &self.tasks {
            let parked = task.blocked_on() == Some(BlockReason::IssueLinking)
                && task.id.as_str() == format!("issue-{PARKED}");
            if !task.state.is_terminal() && !parked {
                let reason = task.blocked_on().map_or("-", BlockReason::as_str);
                faults.push(format!("{} is {} ({reason})", task.id, task.state));
            }
            let mut runs = self.runs[&task.id].iter();
            if runs.any(|run| run.status == TaskRunStatus::Running) {
                faults.push(format!("a run of {} is still open", task.id));
            }
        }
    }

    /// The base holds what is done, once, and nothing else; of a lineage one at most.
    fn in_base(&self, repo: &TestRepo, faults: &mut Vec<String>) {
        let mut merged = merged(repo, "main");
        let mut lineages: BTreeMap<&TaskId, u32> = BTreeMap::new();
        for task in &self.tasks {
            let times = merged.remove(task.id.as_str()).unwrap_or(0);
            let due = u32::from(task.state == TaskState::Done && task.needs_merge());
            if times != due {
                faults.push(format!(
                    "{} is {} and in the base {times} times",
                    task.id, task.state
                ));
            }
            *lineages.entry(&task.lineage.root).or_default() += times;
        }
        for (root, times) in lineages.into_iter().filter(|(_, times)| *times > 1) {
            faults.push(format!(
                "the lineage of {root} is in the base {times} times"
            ));
        }
        faults.extend(
            merged
                .keys()
                .map(|id| format!("nobody knows {id} in the base")),
        );
    }

    /// No result is thrown away before somebody judged it.
    fn thrown_away(&self, faults: &mut Vec<String>) {
        for task in self.tasks.iter().filter(|task| task.needs_judge()) {
            let runs = &self.runs[&task.id];
            for (at, run) in runs.iter().enumerate() {
                let last = at + 1 == runs.len();
                let over = task.state.is_terminal() || !last;
                if over && run.status == TaskRunStatus::Success && run.verdict.is_none() {
                    faults.push(format!("{} succeeded and nobody judged it", run.id));
                }
                if run.verdict == Some(JudgeVerdict::Approve) && !last {
                    faults.push(format!("{} was approved and worked on again", run.id));
                }
            }
        }
    }

    /// The last task of a lineage.
    fn end_of(&self, number: u32) -> &Task {
        let find = |id: &str| self.tasks.iter().find(|task| task.id.as_str() == id);
        let mut task = find(&format!("issue-{number}")).expect("every issue is a task");
        while let Some(next) = &task.superseded_by {
            task = find(next.as_str()).expect("every successor is a task");
        }
        task
    }
}

/// No folder, no ref but proofs, and a checkout that is where the base is.
fn nothing_left(repo: &TestRepo, held: &Held, faults: &mut Vec<String>) {
    let left = repo.task_run_folders().into_iter();
    for path in left.chain(repo.private_checkouts()) {
        faults.push(format!("{} is left", path.display()));
    }
    if repo.exists(".runner/fleet/present.json") {
        faults.push("a checkout is still being brought along".to_owned());
    }
    if repo.git(&["worktree", "list"]).lines().count() != 1 {
        faults.push("a worktree of git's is left".to_owned());
    }
    let done: Vec<String> = held
        .tasks
        .iter()
        .filter(|task| task.state == TaskState::Done)
        .map(|task| format!("refs/runner/{}/", task.id))
        .collect();
    for name in repo
        .git(&["for-each-ref", "--format=%(refname)"])
        .lines()
        .map(str::trim)
    {
        let branch = matches!(
            name,
            "refs/heads/main" | "refs/heads/fleet/main" | "refs/runner/seen/main"
        );
        let proof = done.iter().any(|prefix| name.starts_with(prefix));
        if !branch && !proof {
            faults.push(format!("{name} is left"));
        }
    }
    if repo.git(&["rev-parse", "main"]) != repo.git(&["rev-parse", "fleet/main"]) {
        faults.push("the user's branch is not where the base is".to_owned());
    }
    // The config below .runner/ is the test's own.
    let status = repo.git(&["status", "--porcelain", "--", ".", ":!.runner"]);
    if !status.trim().is_empty() {
        faults.push(format!("the checkout is not clean: {status}"));
    }
    if repo.git(&["ls-files"]).contains(".runner") {
        faults.push("the base holds files of the runner".to_owned());
    }
    repo.git(&["fsck", "--connectivity-only", "--no-dangling"]);
}

/// What was asked for is there, once, unless a task was lost too often.
fn work_is_there(repo: &TestRepo, held: &Held, tasks: u32, faults: &mut Vec<String>) {
    let list = if repo.exists("shared/list") {
        repo.read("shared/list")
    } else {
        String::new()
    };
    for number in 1..=tasks {
        let end = held.end_of(number);
        let done = end.state == TaskState::Done;
        let excused = held
            .tasks
            .iter()
            .any(|task| task.counters.lost_work > LOST_LIMIT);
        if done == UNDONE.contains(&number) && !excused {
            let why = end.blocker.as_ref().map_or("", |b| b.reason.as_str());
            faults.push(format!("{} ended {}: {why}", end.id, end.state));
        }
        let root = format!("issue-{number}");
        let written = list.lines().filter(|line| *line == root).count();
        if written != usize::from(done && shares(number)) {
            faults.push(format!("{root} is in the shared list {written} times"));
        }
        let own = !matches!(number, 2 | TESTER | 9) && done;
        if own && !repo.exists(format!("{root}/file")) {
            faults.push(format!("{root} is done and its file is not there"));
        }
    }
}
