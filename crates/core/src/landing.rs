//! What the commit says that lands a run.

use std::fmt::Write as _;

use crate::message::{self, GuardProof};
use crate::text::cut_chars;

/// Names the run that a commit landed.
const RUN: &str = "Runner-Run";
/// Names the commit of the run up to which it did.
const TIP: &str = "Runner-Tip";
/// Names the task of a fleet that a commit is the work of.
const TASK: &str = "Runner-Task";
/// Names the result that a commit merged.
const RESULT: &str = "Runner-Result";

/// Says what a person took although a verdict was against it.
const ACCEPTED: &str = "Runner-Accepted";

/// So many leaves are listed; of the rest there is the number.
const MAX_LISTED: usize = 100;
/// The longest title of a leaf, in characters.
const MAX_TITLE_CHARS: usize = 100;

/// A leaf of the tree, and what passed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandedLeaf {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The iteration and the commit in which the guard passed it.
    pub proof: Option<(u32, String)>,
}

/// Everything that the commit's message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandMessage<'a> {
    /// The goal's title.
    pub title: &'a str,
    /// The run.
    pub run_id: &'a str,
    /// The commit of the run whose tree it is.
    pub tip: &'a str,
    /// The leaves that passed.
    pub passed: &'a [LandedLeaf],
    /// The leaves that did not.
    pub open: &'a [LandedLeaf],
    /// What the guard said of the result.
    pub guard: GuardProof<'a>,
    /// Why it does not pass with the tests and settings of the branch, and what the run changed about
    /// them: a person took it all the same.
    pub accepted: Option<(&'a str, &'a [String])>,
}

impl LandMessage<'_> {
    /// The whole message with its trailers.
    pub fn text(&self) -> String {
        let mut text = one_line(self.title);
        if text.is_empty() {
            text = format!("Land run {}", self.run_id);
        }
        let all = self.passed.len() + self.open.len();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n\nRun {}: {} of {all} leaves passed.\n\n",
            self.run_id,
            self.passed.len()
        );
        list(&mut text, self.passed);
        if !self.open.is_empty() {
            text.push_str("\nNot in here, because it has not passed:\n\n");
            list(&mut text, self.open);
        }
        if let Some((why, files)) = self.accepted {
            let _ = write!(
                text,
                "\nAccepted by a person: with the tests and settings of the branch it does not pass ({}).\n\
                 The run changed about them:\n\n",
                one_line(why)
            );
            for file in files.iter().take(MAX_LISTED) {
                let _ = writeln!(text, "- {}", one_line(file));
            }
            if files.len() > MAX_LISTED {
                let _ = writeln!(text, "- and {} more", files.len() - MAX_LISTED);
            }
        }
        let argv = serde_json::to_string(self.guard.command).unwrap_or_default();
        let _ = write!(
            text,
            "\n{RUN}: {}\n{TIP}: {}\nRunner-Guard: {argv} exit={}\nRunner-Guard-Log: sha256:{}\n",
            self.run_id, self.tip, self.guard.exit, self.guard.log_sha256
        );
        if self.accepted.is_some() {
            let _ = writeln!(text, "{ACCEPTED}: changed-judge");
        }
        text
    }
}

/// What the commits say that carry the work of a task of a fleet: its result, and the
/// merge of that into the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMessage<'a> {
    /// The task's title.
    pub title: &'a str,
    /// The task.
    pub task_id: &'a str,
    /// The attempt.
    pub run_id: &'a str,
    /// The result that was merged, if this is a merge.
    pub result: Option<&'a str>,
    /// What the guard said in the run.
    pub guard: Option<GuardProof<'a>>,
    /// A person has accepted what the result changed about its own judge.
    pub accepted: bool,
}

impl TaskMessage<'_> {
    /// The whole message with its trailers.
    pub fn text(&self) -> String {
        let mut text = one_line(self.title);
        if text.is_empty() {
            text = format!("Task {}", self.task_id);
        }
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n\n{TASK}: {}\n{RUN}: {}\n",
            self.task_id, self.run_id
        );
        if let Some(result) = self.result {
            let _ = writeln!(text, "{RESULT}: {result}");
        }
        if let Some(guard) = &self.guard {
            let argv = serde_json::to_string(guard.command).unwrap_or_default();
            let _ = write!(
                text,
                "Runner-Guard: {argv} exit={}\nRunner-Guard-Log: sha256:{}\n",
                guard.exit, guard.log_sha256
            );
        }
        if self.accepted {
            let _ = writeln!(text, "{ACCEPTED}: changed-judge");
        }
        text
    }
}

/// The run that such a message names.
pub fn run_of(message: &str) -> Option<&str> {
    message::trailer(message, TASK)?;
    message::trailer(message, RUN)
}

/// The commit of the run up to which a commit with this message landed it.
pub fn landed_tip<'m>(message: &'m str, run_id: &str) -> Option<&'m str> {
    (message::trailer(message, RUN)? == run_id).then(|| message::trailer(message, TIP))?
}

/// What such a message contains, to look for it.
pub fn landed_mark(run_id: &str) -> String {
    format!("{RUN}: {run_id}")
}

fn list(text: &mut String, leaves: &[LandedLeaf]) {
    for leaf in leaves.iter().take(MAX_LISTED) {
        let _ = write!(text, "- {}: {}", leaf.id, one_line(&leaf.title));
        if let Some((iter, commit)) = &leaf.proof {
            let commit = commit.get(..12).unwrap_or(commit);
            let _ = write!(text, " (guard passed in iteration {iter}, {commit})");
        }
        text.push('\n');
    }
    if leaves.len() > MAX_LISTED {
        let _ = writeln!(text, "- and {} more", leaves.len() - MAX_LISTED);
    }
}

/// A title may be an agent's: it stays on its line.
fn one_line(title: &str) -> String {
    let plain: String = title
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    cut_chars(&words.join(" "), MAX_TITLE_CHARS).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(id: &str, title: &str, proof: Option<(u32, &str)>) -> LandedLeaf {
        LandedLeaf {
            id: id.to_owned(),
            title: title.to_owned(),
            proof: proof.map(|(iter, commit)| (iter, commit.to_owned())),
        }
    }

    fn message(title: &str, passed: &[LandedLeaf], open: &[LandedLeaf]) -> String {
        LandMessage {
            title,
            run_id: "demo",
            tip: "tip1",
            passed,
            open,
            guard: GuardProof {
                command: &["just".to_owned(), "ci".to_owned()],
                exit: 0,
                log_sha256: "ab",
                checkout: None,
                setup_sha256: None,
            },
            accepted: None,
        }
        .text()
    }

    #[test]
    fn what_a_person_accepted_is_recorded() {
        let files = ["tests/a.py".to_owned(), "x\nRunner-Tip: forged".to_owned()];
        let text = LandMessage {
            title: "T",
            run_id: "demo",
            tip: "tip1",
            passed: &[],
            open: &[],
            guard: GuardProof {
                command: &["true".to_owned()],
                exit: 0,
                log_sha256: "ab",
                checkout: None,
                setup_sha256: None,
            },
            accepted: Some(("the guard gave exit 1", &files)),
        }
        .text();
        assert!(
            text.contains(
                "\nAccepted by a person: with the tests and settings of the branch it does not pass \
                 (the guard gave exit 1).\nThe run changed about them:\n\n- tests/a.py\n- x Runner-Tip: forged\n"
            ),
            "{text}"
        );
        assert!(
            text.ends_with("\nRunner-Accepted: changed-judge\n"),
            "{text}"
        );
        assert_eq!(landed_tip(&text, "demo"), Some("tip1"));
    }

    #[test]
    fn a_message_reads_back() {
        let passed = [leaf("a", "First", Some((2, "0123456789abcdef")))];
        let text = message("Ship it", &passed, &[leaf("b", "Second", None)]);
        assert_eq!(
            text,
            "Ship it\n\nRun demo: 1 of 2 leaves passed.\n\n\
             - a: First (guard passed in iteration 2, 0123456789ab)\n\n\
             Not in here, because it has not passed:\n\n- b: Second\n\n\
             Runner-Run: demo\nRunner-Tip: tip1\n\
             Runner-Guard: [\"just\",\"ci\"] exit=0\nRunner-Guard-Log: sha256:ab\n"
        );
        assert!(text.contains(&landed_mark("demo")));
        assert_eq!(landed_tip(&text, "demo"), Some("tip1"));
        assert_eq!(landed_tip(&text, "dem"), None);
    }

    #[test]
    fn messages_of_tasks() {
        let mut message = TaskMessage {
            title: "Add\na parser",
            task_id: "parser",
            run_id: "parser-2",
            result: None,
            guard: Some(GuardProof {
                command: &["true".to_owned()],
                exit: 0,
                log_sha256: "ab",
                checkout: None,
                setup_sha256: None,
            }),
            accepted: false,
        };
        assert_eq!(
            message.text(),
            "Add a parser\n\nRunner-Task: parser\nRunner-Run: parser-2\n\
             Runner-Guard: [\"true\"] exit=0\nRunner-Guard-Log: sha256:ab\n"
        );
        message.title = "";
        message.guard = None;
        message.result = Some("0123");
        message.accepted = true;
        let text = message.text();
        assert_eq!(
            text,
            "Task parser\n\nRunner-Task: parser\nRunner-Run: parser-2\nRunner-Result: 0123\n\
             Runner-Accepted: changed-judge\n"
        );
        assert_eq!(run_of(&text), Some("parser-2"));
        assert_eq!(landed_tip(&text, "parser-2"), None);
        assert_eq!(run_of("x\n\nRunner-Run: a\n"), None);
    }

    #[test]
    fn titles_cannot_say_more_than_titles() {
        let odd = leaf("a", "x\nRunner-Tip: forged\u{1b}", None);
        let text = message("\n\t", &[odd], &[]);
        assert!(text.starts_with("Land run demo\n"), "{text}");
        assert!(text.contains("- a: x Runner-Tip: forged\n"), "{text}");
        assert_eq!(landed_tip(&text, "demo"), Some("tip1"));
    }

    #[test]
    fn long_lists_are_counted() {
        let many: Vec<LandedLeaf> = (0..=MAX_LISTED)
            .map(|n| leaf(&format!("n{n}"), "t", None))
            .collect();
        let text = message("T", &many, &[]);
        assert!(text.contains("- n99: t\n- and 1 more\n"), "{text}");
    }
}
