//! For tests: that what the rules make is what the lifecycle takes, from a plan to the end.

use runner_core::config::FleetConfig;
use runner_lifecycle::decide::{Answer, LeaseChange};
use runner_lifecycle::event::TaskEvent;
use runner_lifecycle::lock::Resource;
use runner_lifecycle::packet::ChangeAction;
use runner_lifecycle::request::{Claim, JudgeEnding, NewPacket, NewTask, WorkEnding};
use runner_lifecycle::row::Intent;
use runner_lifecycle::run::TaskRun;
use runner_lifecycle::{
    BasePosition, BlockReason, Facts, LeasePurpose, Policy, Refusal, Request, Task, TaskCall,
    TaskState, Timestamp, decide,
};
use serde_json::json;

use super::answers::merge_packet;
use super::draft::{TaskDefaults, review_task};
use super::fixtures::{change, checked, scope, worked};
use super::issue::SourceIssue;
use super::judge::{JudgeEvidence, JudgeGuard, ReviewOutcome};
use super::policy::{self, PathRules};
use super::summary::{SummaryInput, summary};
use super::{classify, judge, plan};
use crate::workspaces::{CheckEnd, WorkOutcome};

/// A ledger of one task.
struct OneTaskStore {
    task: Task,
    facts: Facts,
    runs: Vec<TaskRun>,
    events: Vec<TaskEvent>,
    now: Timestamp,
}

impl OneTaskStore {
    fn new(new: NewTask) -> OneTaskStore {
        let id = new.id.clone();
        let mut store = OneTaskStore {
            task: Task::blank(id),
            facts: Facts::default(),
            runs: Vec::new(),
            events: Vec::new(),
            now: Timestamp(1_000_000),
        };
        store.decide(None, Request::Create(new)).unwrap();
        store
    }

    fn ask(&mut self, request: Request) -> Answer {
        let row = self.task.clone();
        self.decide(Some(&row), request).unwrap()
    }

    fn decide(&mut self, row: Option<&Task>, request: Request) -> Result<Answer, Refusal> {
        let call = TaskCall {
            actor: "w".to_owned(),
            expected_version: None,
            request,
        };
        let decision = decide(&Policy::default(), row, &call, &self.facts, self.now)?;
        self.task = decision.task;
        self.events.extend(decision.events);
        match decision.lease {
            LeaseChange::Keep => {}
            LeaseChange::Set(lease) => self.facts.lease = Some(lease),
            LeaseChange::End => self.facts.lease = None,
        }
        for run in decision.runs {
            self.runs.retain(|known| known.id != run.id);
            self.facts.run = Some(run.clone());
            self.runs.push(run);
        }
        Ok(decision.answer)
    }

    fn claim(&mut self, purpose: LeasePurpose) -> (u64, String) {
        let base = (purpose == LeasePurpose::Merge).then(|| "main".to_owned());
        self.facts.is_merge_head = base.is_some();
        let key = format!("key-{}", self.task.version);
        let answer = self.ask(Request::Claim(Claim {
            owner: "w".to_owned(),
            purpose,
            key,
            base,
        }));
        match answer {
            Answer::Claimed { token, run_id, .. } => (token, run_id),
            other => panic!("{other:?}"),
        }
    }

    /// One run, classified as a worker would.
    fn work(&mut self, worked: &WorkOutcome) {
        let (token, run_id) = self.claim(LeasePurpose::Work);
        let changes = worked.result.as_ref().map_or(&[][..], |r| &r.changes);
        let findings = policy::findings(&self.task, &rules(), changes, 0);
        let ending = classify::ending(&self.task, &run_id, worked, &findings);
        self.ask(Request::Finish {
            token,
            run_id,
            ending,
        });
    }

    fn recover(&mut self, packet: Option<NewPacket>) {
        self.now = self.task.retry_at().unwrap_or(self.now);
        self.facts.safe_path = policy::has_safe_path(&self.task);
        self.ask(Request::Recover {
            packet,
            successor: None,
        });
    }

    fn blocked_on(&self) -> Option<BlockReason> {
        self.task.blocked_on()
    }

    fn summary(&self) -> String {
        summary(&SummaryInput {
            task: &self.task,
            runs: &self.runs,
            events: &self.events,
            successors: &[],
            parked: false,
        })
    }
}

fn rules() -> PathRules {
    PathRules::new(&["Makefile".to_owned()], &[], 0, 0).unwrap()
}

fn defaults() -> TaskDefaults {
    TaskDefaults::from(&FleetConfig::default())
}

/// A task of a plan that may change `src`, with one command of its own.
fn planned() -> NewTask {
    let plan = json!({"tasks": [{
        "id": "parser", "title": "add a parser", "goal": "it is there", "role": "worker",
        "allowed_paths": ["src/**"], "forbidden_paths": [], "depends_on": [],
        "acceptance": [
            {"id": "guard", "text": "green", "check": "command"},
            {"id": "parses", "text": "it parses", "check": "command"}
        ],
        "commands": ["cargo test parser"], "priority": "normal", "risk": "low",
        "expects_change": true
    }]});
    let signature = plan::plan_signature("a parser", "c0");
    let mut tasks = plan::read(&plan.to_string(), &signature, &defaults()).unwrap();
    tasks.remove(0)
}

/// A loop that is complete and changed a file outside `src`, too.
fn worked_outside() -> WorkOutcome {
    let mut outside = worked();
    if let Some(result) = &mut outside.result {
        let more = change("docs/syntax.md", ChangeAction::Created);
        result.changes.push(more);
    }
    outside
}

#[test]
fn from_a_plan_to_the_base() {
    let mut store = OneTaskStore::new(planned());
    store.work(&worked());
    assert_eq!(store.blocked_on(), Some(BlockReason::AwaitingJudge));

    let changes = worked().result.unwrap().changes;
    let (token, run_id) = store.claim(LeasePurpose::Judge);
    let run = store.facts.run.clone().unwrap();
    let ending = judge::ending(&JudgeEvidence {
        task: &store.task,
        run_id: &run_id,
        changes: Some(&changes),
        guard: JudgeGuard::Recorded(run.packet.as_ref()),
        findings: &[],
        review: ReviewOutcome::Off,
    });
    assert!(matches!(ending, JudgeEnding::Approve { .. }));
    store.ask(Request::Judge { token, ending });

    let (token, run_id) = store.claim(LeasePurpose::Merge);
    let run = store.facts.run.clone().unwrap();
    let checks = worked().checks;
    let judged = run.judge_packet.as_ref();
    let packet = merge_packet(&store.task, &run_id, &changes, &checks, judged).unwrap();
    let intent = Intent {
        old_base: "c0".to_owned(),
        merge_commit: "m1".to_owned(),
    };
    store.ask(Request::RecordIntent {
        token,
        intent: intent.clone(),
        packet,
    });
    store.ask(Request::SettleIntent {
        token,
        intent,
        base: BasePosition::Merged,
    });
    assert_eq!(store.task.state, TaskState::Done);
    assert_eq!(store.summary(), "merged after 1 run");
}

#[test]
fn a_scope_violation_gets_one_new_packet() {
    let mut store = OneTaskStore::new(planned());
    store.work(&worked_outside());
    assert_eq!(store.blocked_on(), Some(BlockReason::ScopeViolation));
    store.recover(Some(policy::replan_packet(&store.task)));
    assert_eq!(store.task.state, TaskState::Todo);
    assert_eq!(store.task.lock_scope, scope(&["docs/syntax.md", "src"]));
    store.work(&worked_outside());
    assert_eq!(store.blocked_on(), Some(BlockReason::AwaitingJudge));
}

#[test]
fn a_rejection_by_policy_has_a_safe_path_or_none() {
    for (path, safe) in [("docs/syntax.md", true), ("Makefile", false)] {
        let mut store = OneTaskStore::new(planned());
        store.work(&worked());
        let (token, run_id) = store.claim(LeasePurpose::Judge);
        let changes = [change(path, ChangeAction::Created)];
        let findings = policy::findings(&store.task, &rules(), &changes, 0);
        let checks = worked().checks;
        let ending = judge::ending(&JudgeEvidence {
            task: &store.task,
            run_id: &run_id,
            changes: Some(&changes),
            guard: JudgeGuard::Ran(&checks),
            findings: &findings,
            review: ReviewOutcome::Off,
        });
        store.ask(Request::Judge { token, ending });
        assert_eq!(store.blocked_on(), Some(BlockReason::NeedsRework));
        let packet = policy::policy_packet(&store.task);
        assert_eq!(packet.is_some(), safe, "{path}");
        store.recover(packet);
        assert_eq!(store.task.state, TaskState::Todo);
        let widened = store.task.lock_scope.len() > 1;
        assert_eq!(widened, safe, "{path}");
    }
}

#[test]
fn a_command_that_cannot_run_gives_way_to_the_guard() {
    let mut store = OneTaskStore::new(planned());
    let mut unable = worked();
    unable.checks[1] = checked("parses", CheckEnd::Unable, "sh: cargo: not found");
    for _ in 0..4 {
        store.work(&unable);
        if store.blocked_on() == Some(BlockReason::Cooldown) {
            store.recover(None);
        }
    }
    assert_eq!(store.blocked_on(), Some(BlockReason::NeedsRework));
    let note = store.task.blocker.clone().unwrap().reason;
    let guard = ["just".to_owned(), "ci".to_owned()];
    store.recover(Some(policy::setup_packet(&store.task, &note, &guard)));
    assert_eq!(store.task.state, TaskState::Todo);
    assert_eq!(store.task.commands, ["just ci"]);
}

#[test]
fn no_change_ends_the_task() {
    let mut store = OneTaskStore::new(planned());
    store.work(&WorkOutcome {
        result: None,
        ..worked()
    });
    assert_eq!(store.task.state, TaskState::Failed);
    assert_eq!(
        store.summary(),
        "failed after 1 run (1 failed: no_change): nothing was changed though a change was asked for"
    );
}

#[test]
fn issues_are_taken_with_and_without_a_role() {
    for (labels, state, waits) in [
        ("role:worker", TaskState::Todo, None),
        ("role:tester", TaskState::Todo, None),
        ("none", TaskState::Blocked, Some(BlockReason::IssueLinking)),
    ] {
        let text = format!("---\nlabels: {labels}\n---\n# A title\nCommands: make test\n");
        let issue = SourceIssue::parse(text.as_bytes(), "3.md").unwrap();
        let mut store = OneTaskStore::new(issue.task("local", &defaults()).unwrap());
        assert_eq!((store.task.state, store.blocked_on()), (state, waits));
        if waits.is_some() {
            let known = SourceIssue {
                labels: vec!["role:docser".to_owned()],
                ..issue
            };
            store.facts.issue = Some(known.facts("local", &defaults()));
            store.recover(None);
            assert_eq!(store.task.state, TaskState::Todo);
            assert_eq!(store.task.role, "docser");
            let made = known.task("local", &defaults()).unwrap();
            assert_ne!(made.lock_scope, [Resource::whole_repo()]);
            assert_eq!(store.task.lock_scope, made.lock_scope);
            assert_eq!(store.task.lane, made.lane);
        }
    }
}

#[test]
fn a_pull_request_waits_for_a_judge() {
    let new = review_task("gh", 7, "Mend it", "c9", &defaults()).unwrap();
    let store = OneTaskStore::new(new);
    assert_eq!(store.task.id.as_str(), "gh-pr-7");
    assert_eq!(store.task.source.as_deref(), Some("gh!7"));
    assert_eq!(store.blocked_on(), Some(BlockReason::AwaitingJudge));
    assert_eq!(store.runs[0].result.as_deref(), Some("c9"));
}

#[test]
fn a_tester_is_done_without_a_judge() {
    let text = "---\nlabels: role:tester\n---\n# Try it\n";
    let issue = SourceIssue::parse(text.as_bytes(), "4.md").unwrap();
    let mut store = OneTaskStore::new(issue.task("local", &defaults()).unwrap());
    store.work(&WorkOutcome {
        result: None,
        ..worked()
    });
    assert_eq!(store.task.state, TaskState::Done);
    assert_eq!(store.summary(), "done after 1 run");
}

#[test]
fn every_other_ending_is_taken() {
    use runner_lifecycle::retry::LoopEnding;
    for ending in LoopEnding::ALL {
        let mut store = OneTaskStore::new(planned());
        store.work(&WorkOutcome {
            ending: *ending,
            why: "error: something".to_owned(),
            ..worked()
        });
        assert_ne!(store.task.state, TaskState::InProgress, "{ending}");
    }
    let mut store = OneTaskStore::new(planned());
    let (token, run_id) = store.claim(LeasePurpose::Work);
    let ending = WorkEnding::Lost;
    store.ask(Request::Finish {
        token,
        run_id,
        ending,
    });
    assert_eq!(store.task.state, TaskState::Todo);
}
