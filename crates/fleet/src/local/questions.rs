//! What reviewers and planners are asked, in words.

use std::fmt::Write as _;

use runner::fleet_repo::{SessionAnswer, SessionQuestion};
use runner_core::text::cut_chars;

use super::threads::ThreadCall;
use super::{LocalWorkspaces, error};
use crate::rules::goal::TESTS_MAY_CHANGE;
use crate::rules::{plan, verdict};
use crate::workspaces::{PlanOrder, ReviewOrder, ReviewReply, WorkspaceError};
use runner_lifecycle::Timestamp;

/// The longest goal that is repeated, in characters.
const GOAL_CHARS: usize = 8000;

impl LocalWorkspaces {
    pub(super) fn ask_reviewer(
        &self,
        order: &ReviewOrder,
        call: &ThreadCall,
    ) -> Result<ReviewReply, WorkspaceError> {
        let prompt = review_prompt(order);
        let question = SessionQuestion {
            kind: "review",
            about: &order.run_id,
            commit: &order.result,
            base: &order.start,
            prompt: &prompt,
            schema: verdict::SCHEMA,
        };
        let (answer, account) = self.ask(question, call)?;
        Ok(match answer {
            SessionAnswer::Said(text) => ReviewReply::Said(text),
            SessionAnswer::Silent(_) => ReviewReply::Silent,
            SessionAnswer::Quota(until) => ReviewReply::Quota {
                until: until.map(Timestamp),
                account,
            },
        })
    }

    pub(super) fn ask_planner(
        &self,
        order: &PlanOrder,
        call: &ThreadCall,
    ) -> Result<String, WorkspaceError> {
        let base = self.repo()?.base().map_err(error)?;
        let question = SessionQuestion {
            kind: "plan",
            about: "plan",
            commit: &base,
            base: &base,
            prompt: &plan_prompt(order),
            schema: plan::SCHEMA,
        };
        match self.ask(question, call)?.0 {
            SessionAnswer::Said(text) => Ok(text),
            // No plan is a plan that the caller refuses.
            SessionAnswer::Silent(_) => Ok(String::new()),
            SessionAnswer::Quota(_) => {
                Err(WorkspaceError("the planner's quota is used up".to_owned()))
            }
        }
    }

    fn ask(
        &self,
        question: SessionQuestion<'_>,
        call: &ThreadCall,
    ) -> Result<(SessionAnswer, String), WorkspaceError> {
        let repo = self.repo()?;
        let config = repo.config().map_err(error)?;
        let account = config.executor.backend.as_str().to_owned();
        let answer = self
            .with_context(question.about, &call.cancel, |context| {
                repo.ask(question, &config, context)
            })
            .map_err(error)?;
        let answer = answer
            .ok_or_else(|| WorkspaceError(format!("commit {} is not there", question.commit)))?;
        Ok((answer, account))
    }
}

fn review_prompt(order: &ReviewOrder) -> String {
    let mut text = format!(
        "You review the result of a task. It is checked out here; `git diff {} {}` shows what it \
         changes. Judge that alone, by what you can see in the files.\n\n# {}\n\n{}\n",
        order.start,
        order.result,
        order.task.title.trim(),
        cut_chars(order.task.goal.trim(), GOAL_CHARS),
    );
    let criteria = order.criteria.iter().map(|it| (&it.id, &it.text));
    list(
        &mut text,
        "Answer each of these criteria by its id",
        criteria,
    );
    let settled = order.settled.iter().map(|it| (&it.id, &it.text));
    list(
        &mut text,
        "Settled already, not to be raised again",
        settled,
    );
    text.push_str(
        "\nApprove only what may be merged as it is. A finding says what is wrong and where, and \
         has an id that it keeps.\n",
    );
    text
}

fn plan_prompt(order: &PlanOrder) -> String {
    let mut text = format!(
        "Make a plan of tasks for this requirement. The project is checked out here. Tasks that may \
         be done at the same time change different paths; a task that needs another one names it as \
         a dependency. A task passes only with the tests that are there now; one that has to change them \
         says so in its goal, in a line of its own: `{TESTS_MAY_CHANGE}`.\n\n# The requirement\n\n{}\n",
        order.requirement.trim()
    );
    if !order.findings.is_empty() {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n## What was wrong with your plan before (this is try {})\n\n",
            order.attempt
        );
        for finding in &order.findings {
            let _ = writeln!(text, "- {finding}");
        }
    }
    text
}

fn list<'a>(text: &mut String, title: &str, all: impl Iterator<Item = (&'a String, &'a String)>) {
    for (at, (id, words)) in all.enumerate() {
        if at == 0 {
            let _ = write!(text, "\n## {title}\n\n");
        }
        let _ = writeln!(text, "- {id}: {words}");
    }
}
