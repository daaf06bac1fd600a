//! Commit messages: written here, and read here again.

use crate::config::CheckoutKind;
use crate::ids;
use crate::meta::{GuardResult, IterationMode};
use crate::output::AgentStatus;
use crate::proof;

/// Names the commit at which a session began that committed by itself: whatever
/// lies in between was not said by the runner.
pub const SESSION_HEAD: &str = "Runner-Head";

/// Names what the setup of the guard's checkout depended on.
pub const SETUP: &str = "Runner-Setup";

/// Everything that an iteration's commit message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IterationMessage<'a> {
    /// The run.
    pub run_id: &'a str,
    /// The iteration.
    pub iter: u32,
    /// The node, or `repair-tree`.
    pub node_id: &'a str,
    /// The recorded status.
    pub status: AgentStatus,
    /// What the guard said.
    pub guard: GuardResult,
    /// What kind of iteration it was.
    pub mode: IterationMode,
    /// SHA-256 of the tree in this commit; `None` if there is no such file.
    pub tree_sha256: Option<&'a str>,
    /// The guard's argv, exit code and log hash, if it ran.
    pub proof: Option<GuardProof<'a>>,
    /// The commit with the last valid tree, if the one in this commit is not.
    pub last_valid: Option<&'a str>,
    /// How a repair ended: `refused`, `accepted`, `restored`.
    pub repair: Option<&'a str>,
    /// The commit at which the session began, if it has committed by itself.
    pub session_head: Option<&'a str>,
}

/// What the guard's run left as evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardProof<'a> {
    /// The argv.
    pub command: &'a [String],
    /// The exit code.
    pub exit: i32,
    /// SHA-256 of its log.
    pub log_sha256: &'a str,
    /// In which kind of clean checkout it ran, where that is told.
    pub checkout: Option<CheckoutKind>,
    /// The hash of what setup depended on, if the guard passed and there was a setup.
    pub setup_sha256: Option<&'a str>,
}

impl IterationMessage<'_> {
    /// The subject line.
    pub fn subject(&self) -> String {
        format!(
            "chore(loop): run {} iter {} node {} status={} guard={}",
            self.run_id, self.iter, self.node_id, self.status, self.guard
        )
    }

    /// The whole message with its trailers.
    pub fn text(&self) -> String {
        let mut text = self.subject();
        text.push_str("\n\n");
        let mut trailer = |name: &str, value: &str| add_trailer(&mut text, name, value);
        if let Some(proof) = &self.proof {
            let argv = serde_json::to_string(proof.command).unwrap_or_default();
            trailer("Runner-Guard", &format!("{argv} exit={}", proof.exit));
            trailer("Runner-Guard-Log", &format!("sha256:{}", proof.log_sha256));
            if let Some(checkout) = proof.checkout {
                trailer("Runner-Checkout", checkout.as_str());
            }
            if let Some(sha256) = proof.setup_sha256 {
                trailer(SETUP, &format!("sha256:{sha256}"));
            }
        }
        if let Some(sha256) = self.tree_sha256 {
            trailer("Runner-Tree", &format!("sha256:{sha256}"));
        }
        trailer("Runner-Mode", self.mode.as_str());
        if let Some(commit) = self.last_valid {
            trailer("Runner-Last-Valid", commit);
        }
        if let Some(word) = self.repair {
            trailer("Runner-Repair", word);
        }
        if let Some(commit) = self.session_head {
            trailer(SESSION_HEAD, commit);
        }
        text
    }
}

/// The message of the commit that begins a run.
///
/// `key`: the public key that passes are signed with.
pub fn start_message(
    run_id: &str,
    base_branch: &str,
    base_commit: &str,
    key: Option<&str>,
) -> String {
    let subject = start_subject(run_id);
    let mut text = format!("{subject}\n\nRunner-Base: {base_branch} {base_commit}\n");
    if let Some(key) = key {
        add_trailer(&mut text, proof::KEY, key);
    }
    text
}

/// Adds a trailer at the end of a message.
pub fn add_trailer(message: &mut String, name: &str, value: &str) {
    message.push_str(name);
    message.push_str(": ");
    message.push_str(value);
    message.push('\n');
}

/// A message without the lines of a trailer, as it is compared: without blank lines at its end.
pub fn without_trailer(message: &str, name: &str) -> String {
    let is_it = |line: &&str| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(": "))
    };
    let lines: Vec<&str> = message.lines().filter(|line| !is_it(line)).collect();
    let text = lines.join("\n");
    format!("{}\n", text.trim_end())
}

/// The subject line of that commit.
pub fn start_subject(run_id: &str) -> String {
    format!("chore(loop): start run {run_id}")
}

/// A change that a person made through a command of the runner, between two
/// iterations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByHand {
    /// `runner retry`: a leaf got more attempts.
    Retry {
        /// The leaf.
        node_id: String,
    },
    /// `runner edit`: a file was changed.
    Edit {
        /// `goal`, `config`, `tree` or `questions`.
        what: String,
    },
}

impl ByHand {
    /// Reads a subject line; `None` for any other commit.
    pub fn parse(subject: &str) -> Option<Self> {
        let rest = subject.strip_prefix("chore(loop): ")?;
        if let Some(what) = rest.strip_prefix("edit ") {
            let known = matches!(what, "goal" | "config" | "tree" | "questions");
            return known.then(|| ByHand::Edit {
                what: what.to_owned(),
            });
        }
        let (node_id, _) = rest.strip_prefix("retry ")?.split_once(": ")?;
        ids::is_well_formed(node_id).then(|| ByHand::Retry {
            node_id: node_id.to_owned(),
        })
    }

    /// Whether the tree was looked at and found, or made, valid.
    pub fn settles_tree(&self) -> bool {
        match self {
            ByHand::Retry { .. } => true,
            ByHand::Edit { what } => what == "tree",
        }
    }

    /// The command that made it.
    pub fn command(&self) -> String {
        match self {
            ByHand::Retry { node_id } => format!("runner retry {node_id}"),
            ByHand::Edit { what } => format!("runner edit {what}"),
        }
    }
}

/// The message of a commit that gives a leaf more attempts.
pub fn retry_message(node_id: &str, added: u32, attempts: u32, max: u32, sha256: &str) -> String {
    let s = if added == 1 { "" } else { "s" };
    format!(
        "chore(loop): retry {node_id}: {added} more attempt{s} ({attempts} of {max} used)\n\n\
         Runner-Tree: sha256:{sha256}\n"
    )
}

/// The message of a commit with an edited file; with the hash of the tree, if
/// that is the file.
pub fn edit_message(what: &str, tree_sha256: Option<&str>) -> String {
    let mut text = format!("chore(loop): edit {what}\n");
    if let Some(sha256) = tree_sha256 {
        text.push_str("\nRunner-Tree: sha256:");
        text.push_str(sha256);
        text.push('\n');
    }
    text
}

/// What a subject line of an iteration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitSubject {
    /// The run.
    pub run_id: String,
    /// The iteration.
    pub iter: u32,
    /// The node.
    pub node_id: String,
    /// The recorded status.
    pub status: AgentStatus,
    /// What the guard said.
    pub guard: GuardResult,
}

/// Reads a subject line; `None` for anything that is not an iteration's.
pub fn parse_subject(line: &str) -> Option<CommitSubject> {
    let rest = line.strip_prefix("chore(loop): run ")?;
    let mut words = rest.split(' ');
    let run_id = words.next()?.to_owned();
    let iter = (words.next()? == "iter").then(|| words.next())??;
    let node_id = (words.next()? == "node").then(|| words.next())??;
    let status = words.next()?.strip_prefix("status=")?.parse().ok()?;
    let guard = match words.next()?.strip_prefix("guard=")? {
        "pass" => GuardResult::Pass,
        "fail" => GuardResult::Fail,
        "skipped" => GuardResult::Skipped,
        _ => return None,
    };
    words.next().is_none().then_some(CommitSubject {
        run_id,
        iter: iter.parse().ok()?,
        node_id: node_id.to_owned(),
        status,
        guard,
    })
}

/// The value of a trailer in a commit message: the last one of that name wins.
pub fn trailer<'m>(message: &'m str, name: &str) -> Option<&'m str> {
    message
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .map(str::trim)
}

/// The hash that a trailer of a commit message names.
pub fn sha256_trailer<'m>(message: &'m str, name: &str) -> Option<&'m str> {
    trailer(message, name)?.strip_prefix("sha256:")
}

/// Reads `Runner-GuardResult`: the argv and the exit code.
pub fn parse_guard_trailer(value: &str) -> Option<(Vec<String>, i32)> {
    let (argv, exit) = value.rsplit_once(" exit=")?;
    Some((serde_json::from_str(argv).ok()?, exit.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_back() {
        let command = vec![
            "sh".to_owned(),
            "-c".to_owned(),
            "echo \"a b\" exit=3".to_owned(),
        ];
        let message = IterationMessage {
            run_id: "run-1",
            iter: 12,
            node_id: "a.b",
            status: AgentStatus::Done,
            guard: GuardResult::Pass,
            mode: IterationMode::Execute,
            tree_sha256: Some("ab"),
            proof: Some(GuardProof {
                command: &command,
                exit: 0,
                log_sha256: "cd",
                checkout: None,
                setup_sha256: Some("ef"),
            }),
            last_valid: Some("1234"),
            repair: None,
            session_head: None,
        };
        let text = message.text();
        assert_eq!(
            text,
            "chore(loop): run run-1 iter 12 node a.b status=done guard=pass\n\n\
             Runner-Guard: [\"sh\",\"-c\",\"echo \\\"a b\\\" exit=3\"] exit=0\n\
             Runner-Guard-Log: sha256:cd\nRunner-Setup: sha256:ef\nRunner-Tree: sha256:ab\nRunner-Mode: execute\n\
             Runner-Last-Valid: 1234\n"
        );
        let subject = parse_subject(text.lines().next().unwrap()).unwrap();
        assert_eq!((subject.iter, subject.node_id.as_str()), (12, "a.b"));
        let (argv, exit) = parse_guard_trailer(trailer(&text, "Runner-Guard").unwrap()).unwrap();
        assert_eq!((argv, exit), (command, 0));
        assert_eq!(trailer(&text, "Runner-Mode"), Some("execute"));
        assert_eq!(trailer(&text, "Runner-Base"), None);
        assert_eq!(sha256_trailer(&text, SETUP), Some("ef"));
        assert_eq!(sha256_trailer(&text, "Runner-Mode"), None);
    }

    #[test]
    fn what_people_did_reads_back() {
        let first = |text: String| text.lines().next().unwrap().to_owned();
        let retry = first(retry_message("a.b", 3, 3, 6, "ab"));
        assert_eq!(
            retry,
            "chore(loop): retry a.b: 3 more attempts (3 of 6 used)"
        );
        let cases = [
            (retry.as_str(), Some("runner retry a.b"), true),
            (
                &first(edit_message("tree", Some("ab"))),
                Some("runner edit tree"),
                true,
            ),
            (
                &first(edit_message("goal", None)),
                Some("runner edit goal"),
                false,
            ),
            ("chore(loop): edit everything", None, false),
            ("chore(loop): retry a b: c", None, false),
            ("chore(loop): retry", None, false),
            ("edit tree", None, false),
        ];
        for (subject, command, settles) in cases {
            let read = ByHand::parse(subject);
            assert_eq!(
                read.as_ref().map(ByHand::command).as_deref(),
                command,
                "{subject}"
            );
            assert_eq!(
                read.is_some_and(|it| it.settles_tree()),
                settles,
                "{subject}"
            );
            assert_eq!(parse_subject(subject), None);
        }
        let text = edit_message("tree", Some("ab"));
        assert_eq!(trailer(&text, "Runner-Tree"), Some("sha256:ab"));
    }

    #[test]
    fn other_subjects_are_not_ours() {
        for line in [
            "",
            "fix: x",
            "chore(loop): start run a",
            "chore(loop): run a iter x node n status=done guard=pass",
            "chore(loop): run a iter 1 node n status=done guard=pass more",
            "chore(loop): run a iter 1 node n status=fine guard=pass",
        ] {
            assert_eq!(parse_subject(line), None, "{line}");
        }
    }
}
