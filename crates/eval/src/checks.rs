//! The checks of a case against the final state of its workspace.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runner::{Error, ErrorCode, Result, files};
use runner_core::config::Config;
use runner_core::text::cut_front;
use runner_core::tree::Node;
use runner_exec::Ended;

use crate::case::{CaseCheck, ExpectedOutput, TreeCheck};
use crate::child::{ChildContext, ChildOutput};
use crate::record::CheckResult;

/// How much of a command's output goes into the record.
const SHOWN_BYTES: usize = 16_000;

/// The largest file that `file_contains` looks through.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// What the checks are about.
pub(crate) struct FinalState<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) config: &'a Config,
    /// Whether the loop completed its tree.
    pub(crate) completed: bool,
    /// The final tree, or why there is none.
    pub(crate) tree: Result<Node<'a>, String>,
}

/// Runs every check. Only an interrupt, or a machine that refuses, is an error.
pub(crate) fn run(
    checks: &[CaseCheck],
    state: &FinalState<'_>,
    children: &ChildContext<'_>,
) -> Result<Vec<CheckResult>> {
    checks
        .iter()
        .map(|check| one(check, state, children))
        .collect()
}

fn one(
    check: &CaseCheck,
    state: &FinalState<'_>,
    children: &ChildContext<'_>,
) -> Result<CheckResult> {
    let begun = Instant::now();
    let mut output = None;
    let verdict = match check {
        CaseCheck::FileExists { path } => inside(state.workspace, path).map(drop),
        CaseCheck::FileContains { path, text } => file_contains(state.workspace, path, text),
        CaseCheck::RunnerCompleted if state.completed => Ok(()),
        CaseCheck::RunnerCompleted => Err("the loop did not complete its tree".to_owned()),
        CaseCheck::Tree(wanted) => match &state.tree {
            Ok(tree) => judge_tree(wanted, tree),
            Err(why) => Err(format!("there is no valid tree: {why}")),
        },
        CaseCheck::CommandSucceeds { cmd, timeout_secs }
        | CaseCheck::CommandOutput {
            cmd, timeout_secs, ..
        } => {
            let limit = Duration::from_secs(*timeout_secs);
            let ran = children.contained(cmd, state.config, limit)?;
            if ran.ended == Ended::Interrupted {
                return Err(Error::new(
                    ErrorCode::Interrupted,
                    "interrupted during a check",
                ));
            }
            output = Some(shown(&ran.log));
            judge_command(check, &ran, *timeout_secs)
        }
    };
    Ok(CheckResult {
        kind: check.kind().to_owned(),
        about: check.about(),
        passed: verdict.is_ok(),
        message: verdict.err(),
        output: output.filter(|text| !text.is_empty()),
        duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// The real place of a path in the workspace.
fn inside(workspace: &Path, path: &str) -> Result<PathBuf, String> {
    let full = workspace.join(path);
    let real = full
        .canonicalize()
        .map_err(|_| format!("there is no {path}"))?;
    let root = workspace
        .canonicalize()
        .map_err(|error| format!("the workspace is gone: {error}"))?;
    if real.starts_with(&root) {
        Ok(real)
    } else {
        Err(format!("{path} is a link that leads out of the workspace"))
    }
}

fn file_contains(workspace: &Path, path: &str, text: &str) -> Result<(), String> {
    let real = inside(workspace, path)?;
    let bytes =
        files::read_regular(&real, MAX_FILE_BYTES).map_err(|error| format!("{path}: {error}"))?;
    if String::from_utf8_lossy(&bytes).contains(text) {
        Ok(())
    } else {
        Err(format!("{path} does not contain {text:?}"))
    }
}

fn judge_command(check: &CaseCheck, ran: &ChildOutput, timeout_secs: u64) -> Result<(), String> {
    if let Some(failure) = ran.failure(timeout_secs) {
        return Err(failure);
    }
    let CaseCheck::CommandOutput { wants, .. } = check else {
        return Ok(());
    };
    let printed = String::from_utf8_lossy(&ran.stdout);
    match wants {
        ExpectedOutput::Equals(text) if printed.trim_end() == text.trim_end() => Ok(()),
        ExpectedOutput::Contains(text) if printed.contains(text.as_str()) => Ok(()),
        ExpectedOutput::Equals(text) => Err(format!(
            "it printed {:?}, not {:?}",
            cut_front(printed.trim_end(), 200),
            cut_front(text.trim_end(), 200)
        )),
        ExpectedOutput::Contains(text) => Err(format!("what it printed does not contain {text:?}")),
    }
}

fn shown(log: &[u8]) -> String {
    cut_front(&String::from_utf8_lossy(log), SHOWN_BYTES).into_owned()
}

/// Whether a tree is as it should be; else what is not.
fn judge_tree(wanted: &TreeCheck, root: &Node<'_>) -> Result<(), String> {
    let id = wanted.node.as_deref().unwrap_or(&root.id);
    let Some(node) = root.find(id) else {
        return Err(format!("there is no node {id}"));
    };
    if let Some(passes) = wanted.passes
        && node.passes != passes
    {
        let not = if passes { "has not" } else { "has" };
        return Err(format!("{id} {not} passed"));
    }
    if let Some(most) = wanted.attempts_at_most
        && node.attempts > most
    {
        return Err(format!(
            "{id} used {} attempts, more than {most}",
            node.attempts
        ));
    }
    let nodes = u32::try_from(root.walk().count()).unwrap_or(u32::MAX);
    let depth = depth(root);
    for (what, seen, least, most) in [
        ("nodes", nodes, wanted.min_nodes, wanted.max_nodes),
        ("levels", depth, wanted.min_depth, wanted.max_depth),
    ] {
        if least.is_some_and(|least| seen < least) || most.is_some_and(|most| seen > most) {
            return Err(format!("the tree has {seen} {what}"));
        }
    }
    Ok(())
}

fn depth(node: &Node<'_>) -> u32 {
    1 + node.children.iter().map(depth).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees() {
        let mut root = Node::leaf("root", "t", "g", 3);
        let mut a = Node::leaf("a", "t", "g", 3);
        a.attempts = 2;
        a.passes = true;
        a.children.push(Node::leaf("b", "t", "g", 3));
        root.children.push(a);
        let check = |wanted: TreeCheck| judge_tree(&wanted, &root).err();
        let base = TreeCheck::default;
        let node = |id: &str| Some(id.to_owned());
        for (wanted, expected) in [
            (
                TreeCheck {
                    node: node("a"),
                    passes: Some(true),
                    ..base()
                },
                None,
            ),
            (
                TreeCheck {
                    passes: Some(true),
                    ..base()
                },
                Some("root has not passed"),
            ),
            (
                TreeCheck {
                    node: node("a"),
                    passes: Some(false),
                    ..base()
                },
                Some("a has passed"),
            ),
            (
                TreeCheck {
                    node: node("x"),
                    ..base()
                },
                Some("there is no node x"),
            ),
            (
                TreeCheck {
                    node: node("a"),
                    attempts_at_most: Some(1),
                    ..base()
                },
                Some("a used 2 attempts, more than 1"),
            ),
            (
                TreeCheck {
                    min_depth: Some(3),
                    max_nodes: Some(3),
                    ..base()
                },
                None,
            ),
            (
                TreeCheck {
                    min_depth: Some(4),
                    ..base()
                },
                Some("the tree has 3 levels"),
            ),
            (
                TreeCheck {
                    max_nodes: Some(2),
                    ..base()
                },
                Some("the tree has 3 nodes"),
            ),
        ] {
            assert_eq!(check(wanted.clone()).as_deref(), expected, "{wanted:?}");
        }
    }

    #[test]
    fn links_out_of_the_workspace_are_no_files_of_it() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        std::fs::write(root.join("a"), "one two").unwrap();
        std::os::unix::fs::symlink("a", root.join("in")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", root.join("out")).unwrap();
        let check = |path: &str, text: &str| file_contains(root, path, text).err();
        assert_eq!(check("a", "two"), None);
        assert_eq!(check("in", "two"), None);
        assert_eq!(check("a", "x").as_deref(), Some("a does not contain \"x\""));
        assert_eq!(check("b", "x").as_deref(), Some("there is no b"));
        assert_eq!(
            check("out", "").as_deref(),
            Some("out is a link that leads out of the workspace")
        );
    }

    #[test]
    fn what_a_command_printed() {
        let ran = |code: i32, stdout: &str| ChildOutput {
            ended: Ended::Exited(code),
            log: Vec::new(),
            stdout: stdout.as_bytes().to_vec(),
        };
        let check = |wants: ExpectedOutput| CaseCheck::CommandOutput {
            cmd: vec!["x".to_owned()],
            wants,
            timeout_secs: 1,
        };
        let equals = check(ExpectedOutput::Equals("4\n".to_owned()));
        let contains = check(ExpectedOutput::Contains("4".to_owned()));
        assert_eq!(judge_command(&equals, &ran(0, "4\n\n"), 1), Ok(()));
        assert_eq!(judge_command(&contains, &ran(0, "a 42"), 1), Ok(()));
        assert!(judge_command(&equals, &ran(0, "44"), 1).is_err());
        assert!(judge_command(&contains, &ran(0, "no"), 1).is_err());
        assert_eq!(
            judge_command(&equals, &ran(7, "4"), 1),
            Err("exit 7".to_owned())
        );
    }
}
