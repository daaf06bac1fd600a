//! The head of the merge queue: what was tested is what is merged.
//!
//! The intent to move the base is recorded first, in a transaction that checks all that
//! `done` takes. Whoever finds an intent rolls it forward and decides nothing again.

use runner_ledger::LedgerError;
use runner_lifecycle::packet::ResultPacket;
use runner_lifecycle::request::JudgeEnding;
use runner_lifecycle::row::{Intent, ReviewRemark};
use runner_lifecycle::{BasePosition, RefusalCode, ReworkCause, TaskKind};

use super::judge::{JudgeCase, JudgeError, JudgeMemory, JudgeRole};
use super::red_base::make_base_fix;
use super::{RoleRule, insist};
use crate::ledger_port::LedgerResult;
use crate::rules::answers::merge_packet;
use crate::rules::judge::{changed_judge, conflict, not_green};
use crate::workspaces::{CheckEnd, CheckOutcome, StopSign, TaskMergeOutcome};

/// How often a base that should have moved is asked to.
const MOVES: u32 = 3;
/// How often the base may move under a guard before somebody else gets a turn.
const ROUNDS: u32 = 8;

/// What one round at the head of the queue came to.
enum Round {
    /// It is merged, or somebody else's by now.
    Over,
    /// The base has moved: everything anew.
    Again,
    /// It ends so.
    Ends(JudgeEnding),
}

impl JudgeRole {
    /// Merges an approved result, as the head of the queue.
    pub(super) async fn merge(
        &self,
        case: &JudgeCase,
        memory: &mut JudgeMemory,
        sign: StopSign,
        mut stop: StopSign,
    ) -> LedgerResult<()> {
        let mut ending = JudgeEnding::StepBack {
            reason: "the base moves faster than the guard".to_owned(),
        };
        for _ in 0..ROUNDS {
            match self.round(case, memory, &sign, &mut stop).await {
                Ok(Round::Over) => {
                    // The user's own branch follows where it can; it is not the fleet's
                    // business if it cannot.
                    drop(self.context.workspaces.update_user_branch().await);
                    return Ok(());
                }
                Ok(Round::Again) => {}
                Ok(Round::Ends(ends)) => {
                    ending = ends;
                    break;
                }
                Err(JudgeError::Workspaces(error)) => {
                    ending = self.error(error, &mut stop).await;
                    break;
                }
                Err(JudgeError::Ledger(error)) => return Err(error),
            }
            if sign.is_raised() {
                break;
            }
        }
        // An open intent stays open only where the judge steps back.
        let task = self.context.ledger.task(&case.task.id).await?;
        if task.is_some_and(|task| task.intent.is_some()) || sign.is_raised() {
            ending = JudgeEnding::StepBack {
                reason: "its merge was cut off".to_owned(),
            };
        }
        self.end(&case.lease, ending, &mut stop).await.map(drop)
    }

    async fn round(
        &self,
        case: &JudgeCase,
        memory: &mut JudgeMemory,
        sign: &StopSign,
        stop: &mut StopSign,
    ) -> Result<Round, JudgeError> {
        let context = &self.context;
        let task = context.ledger.task(&case.task.id).await?;
        let open = task.and_then(|task| task.intent);
        if let Some(intent) = open {
            if !context.keeps(RoleRule::RollForward) {
                let elsewhere = BasePosition::Elsewhere;
                context
                    .ledger
                    .settle_intent(&case.lease, &intent, elsewhere)
                    .await?;
                return Ok(Round::Again);
            }
            return self.roll_forward(case, &intent, stop).await;
        }
        let Some(result) = case.run.result.clone() else {
            return Ok(Round::Ends(unable("the run names no result")));
        };
        let base = context.workspaces.base().await?;
        let (task, run_id) = (case.task.clone(), case.run.id.clone());
        let merged = context
            .workspaces
            .merge(base.clone(), result.clone(), task, run_id);
        let merge_commit = match merged.await? {
            TaskMergeOutcome::Commit(commit) => commit,
            TaskMergeOutcome::Conflicts(paths) => return Ok(Round::Ends(conflict(&paths))),
            TaskMergeOutcome::Empty => return Ok(Round::Ends(empty())),
            TaskMergeOutcome::Missing => {
                return Ok(Round::Ends(unable("the commit of the result is not there")));
            }
        };
        let checks = if context.keeps(RoleRule::GuardOnMerge) {
            self.guard(&merge_commit, case, sign).await?
        } else {
            self.guard(&result, case, sign).await?
        };
        if sign.is_raised() {
            return Ok(Round::Again);
        }
        if let Some(not_green) = not_green(&checks) {
            let is_red = checks.iter().any(|check| check.end == CheckEnd::Red);
            if !is_red {
                return Ok(Round::Ends(not_green));
            }
            return Ok(match memory.bases.is_red(context, &base, sign).await? {
                Some(true) => {
                    make_base_fix(context, &self.name, &base, stop).await?;
                    Round::Ends(JudgeEnding::StepBack {
                        reason: format!("the guard is red on the base {base} alone"),
                    })
                }
                Some(false) => Round::Ends(not_green),
                None if sign.is_raised() => Round::Again,
                // Then it is not known whose fault it is.
                None => Round::Ends(unable(&format!("the guard cannot run on the base {base}"))),
            });
        }
        let commits = [base.as_str(), &merge_commit, &result];
        if let Some(ending) = self.inverted(commits, case, sign).await? {
            return Ok(if sign.is_raised() {
                Round::Again
            } else {
                Round::Ends(ending)
            });
        }
        let packet = match self.packet(case, &result, &checks).await? {
            Ok(packet) => packet,
            Err(why) => return Ok(Round::Ends(unable(&why))),
        };
        let intent = Intent {
            old_base: base,
            merge_commit,
        };
        if !context.keeps(RoleRule::IntentBeforeBase) {
            context.workspaces.move_base(intent.clone()).await?;
        }
        let record = || {
            context
                .ledger
                .record_intent(&case.lease, &intent, packet.clone())
        };
        match insist(context, stop, record).await {
            None => return Ok(Round::Over),
            Some(Ok(_)) => {}
            Some(Err(LedgerError::Refused(refusal))) => {
                return Ok(match refusal.code {
                    RefusalCode::ConcurrencyConflict | RefusalCode::InvalidTransition => {
                        Round::Over
                    }
                    RefusalCode::LedgerInconsistent => {
                        self.leave_to_repair(&case.lease, &refusal, stop).await?;
                        Round::Over
                    }
                    _ => Round::Ends(unable(&refusal.to_string())),
                });
            }
            Some(Err(error)) => return Err(error.into()),
        }
        self.roll_forward(case, &intent, stop).await
    }

    /// Moves the base as was intended, or finds that it is elsewhere.
    async fn roll_forward(
        &self,
        case: &JudgeCase,
        intent: &Intent,
        stop: &mut StopSign,
    ) -> Result<Round, JudgeError> {
        let context = &self.context;
        for _ in 0..MOVES {
            let position = match context.workspaces.position(intent.clone()).await? {
                BasePosition::Old => {
                    context.workspaces.move_base(intent.clone()).await?;
                    continue;
                }
                position => position,
            };
            let settle = || context.ledger.settle_intent(&case.lease, intent, position);
            return match insist(context, stop, settle).await {
                None => Ok(Round::Over),
                Some(Ok(_)) if position == BasePosition::Merged => Ok(Round::Over),
                Some(Ok(_)) => Ok(Round::Again),
                // Not ours any longer, or a repeat of what was settled.
                Some(Err(LedgerError::Refused(_))) => {
                    let task = context.ledger.task(&case.task.id).await?;
                    let ours = task.is_some_and(|task| task.token == case.lease.token);
                    Ok(if ours && position != BasePosition::Merged {
                        Round::Again
                    } else {
                        Round::Over
                    })
                }
                Some(Err(error)) => Err(error.into()),
            };
        }
        Ok(Round::Ends(JudgeEnding::StepBack {
            reason: "the base did not move".to_owned(),
        }))
    }

    /// The guard on one commit; a red one gets a second chance.
    async fn guard(
        &self,
        commit: &str,
        case: &JudgeCase,
        sign: &StopSign,
    ) -> Result<Vec<CheckOutcome>, JudgeError> {
        let check = || {
            let (commit, task) = (commit.to_owned(), Some(case.task.clone()));
            self.context.workspaces.check(commit, task, sign.clone())
        };
        let checks = check().await?;
        let red = checks.iter().any(|check| check.end == CheckEnd::Red);
        if red && !sign.is_raised() {
            return Ok(check().await?);
        }
        Ok(checks)
    }

    /// The guard before the judge that the base had, unless a person has accepted the changes. What people
    /// wrote themselves may change what it likes.
    async fn inverted(
        &self,
        [base, merge_commit, result]: [&str; 3],
        case: &JudgeCase,
        sign: &StopSign,
    ) -> Result<Option<JudgeEnding>, JudgeError> {
        let context = &self.context;
        let is_accepted = case.task.accepted_judge.as_ref() == Some(&case.run.id);
        let is_of_people = case.task.kind == TaskKind::Review;
        if is_accepted || is_of_people || !context.keeps(RoleRule::Inversion) {
            return Ok(None);
        }
        let verdict = context.workspaces.check_inverted(
            base.to_owned(),
            merge_commit.to_owned(),
            case.task.clone(),
            sign.clone(),
        );
        Ok(changed_judge(&verdict.await?, result))
    }

    /// The answers, made on the merge commit itself.
    async fn packet(
        &self,
        case: &JudgeCase,
        result: &str,
        checks: &[CheckOutcome],
    ) -> Result<Result<ResultPacket, String>, JudgeError> {
        let workspaces = &self.context.workspaces;
        let missing = || Ok(Err("the commit of the result is not there".to_owned()));
        let Some(start) = workspaces.start_of(result.to_owned()).await? else {
            return missing();
        };
        let Some(changes) = workspaces.changes(start, result.to_owned()).await? else {
            return missing();
        };
        let judged = case.run.judge_packet.as_ref();
        let packet = merge_packet(&case.task, &case.run.id, &changes, checks, judged);
        Ok(packet.map_err(|criterion| format!("criterion {criterion} was not checked")))
    }
}

fn unable(reason: &str) -> JudgeEnding {
    JudgeEnding::Unable {
        reason: reason.to_owned(),
    }
}

fn empty() -> JudgeEnding {
    let text = "the result changes nothing in the base".to_owned();
    JudgeEnding::Reject {
        cause: ReworkCause::Verdict,
        remarks: vec![ReviewRemark {
            id: "empty-merge".to_owned(),
            text: text.clone(),
        }],
        reason: text,
    }
}
