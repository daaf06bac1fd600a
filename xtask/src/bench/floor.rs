//! The least that a step must do: its git commands, its durable writes, the
//! agent and the guard, and nothing else.
//!
//! The tree is written twice, as tree.json and as tree.after.json: they cannot
//! be one file, because the agent may write into the first. tree.before.json can
//! be a link to the one before, and costs next to nothing.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::cmd::ToolCommand;
use crate::failure::{FailureContext as _, TaskFailure, TaskResult};

/// What the agent of the benchmark does: one change, and its answer.
pub(super) const AGENT: &str = r#"echo "$RUNNER_ITER" >>work.txt
printf '{"status":"done","summary":"one more line"}\n' >"$RUNNER_OUTPUT_PATH""#;

const TREE: &str = ".runner/state/tree.json";
const OPEN: &[u8] = b"\"passes\": false";
const PASSED: &[u8] = b"\"passes\": true";

/// Mode `__floor DIR`: one step's worth of work in that project.
pub(super) fn helper(words: &[String]) -> TaskResult<()> {
    let [dir] = words else {
        return Err(TaskFailure::usage("__floor DIR"));
    };
    step(Path::new(dir))
}

/// The same change as a step makes, by plain writes: what bare git then commits.
pub(super) fn change(dir: &Path, iter: usize) -> TaskResult<()> {
    let tree = next_tree(dir)?;
    write_plain(&dir.join(TREE), &tree)?;
    write_plain(
        &dir.join(".runner/state/run_state.json"),
        run_state(iter).as_bytes(),
    )?;
    let mut work = OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join("work.txt"))
        .context("work.txt")?;
    writeln!(work, "{iter}").context("work.txt")
}

/// What a person would type to commit that change.
pub(super) const BARE_GIT: &str =
    "git status --porcelain >/dev/null && git add -A && git commit --quiet -m 'one more step'";

fn step(dir: &Path) -> TaskResult<()> {
    let log = new_log_folder(dir)?;
    let output = log.join("output.json");
    let journal = log.join("journal.jsonl");
    let events = dir.join(".runner/iterations/floor/events.jsonl");
    let event = |name: &str| append(&events, &format!("{{\"event\":\"{name}\"}}\n"));
    git(dir, STATUS, &[])?;
    git(dir, "ls-tree -r -z --full-tree HEAD", &[])?;
    append_durably(&journal, "{\"phase\":\"started\"}\n")?;
    event("iteration_started")?;
    sync_folder(&log)?;
    sync_folder(&dir.join(".runner/iterations/floor"))?;
    let context = dir.join(".runner/context");
    fs::create_dir_all(&context).context("the context folder")?;
    write_durably(&context.join("goal.md"), &[b'g'; 600])?;
    sync_folder(&context)?;
    write_durably(&log.join("prompt.md"), &[b'p'; 6_000])?;
    write_durably(&log.join("argv.json"), &[b'a'; 300])?;
    sync_folder(&log)?;
    event("agent_started")?;

    ToolCommand::new("sh")
        .args(["-c", AGENT])
        .env("RUNNER_ITER", "1")
        .env("RUNNER_OUTPUT_PATH", &output)
        .dir(dir)
        .stdout()?;
    append(&journal, "{\"phase\":\"agent_ended\",\"exit_code\":0}\n")?;
    event("agent_ended")?;
    git(dir, STATUS, &[])?;
    event("guard_started")?;
    ToolCommand::new("true").dir(dir).stdout()?;
    append(&journal, "{\"phase\":\"guard_ended\",\"exit_code\":0}\n")?;
    event("guard_ended")?;
    // The guard runs the agent's code: branch and index are looked at again.
    git(dir, STATUS, &[])?;

    let tree = next_tree(dir)?;
    write_durably(&log.join("tree.after.json"), &tree)?;
    write_plain(&log.join("executor.log"), b"")?;
    write_plain(&log.join("guard.log"), b"")?;
    sync_folder(&log)?;
    append_durably(&journal, "{\"phase\":\"decided\"}\n")?;
    event("decided")?;
    let state = dir.join(".runner/state");
    write_durably(&state.join("tree.json"), &tree)?;
    write_durably(&state.join("run_state.json"), run_state(1).as_bytes())?;
    sync_folder(&state)?;
    git(dir, "add --all -- .", &[])?;
    let commit = "commit --quiet --allow-empty --no-verify --cleanup=verbatim -m";
    git(dir, commit, &["one more step"])?;
    write_durably(&log.join("meta.json"), &[b'm'; 900])?;
    sync_folder(&log)?;
    append(&journal, "{\"phase\":\"committed\"}\n")?;
    event("committed")
}

/// How a step looks at the work tree.
const STATUS: &str = "status --porcelain=v2 --branch --untracked-files=all --ignored=matching \
    --ignore-submodules=dirty --no-renames -z";

/// The options of every git call of a step.
const OPTIONS: &str = "-c core.hooksPath=/dev/null -c core.fsmonitor=false -c commit.gpgSign=false \
    -c user.useConfigOnly=true -c gc.auto=0 -c maintenance.auto=false -c core.untrackedCache=false \
    -c core.quotePath=false -c core.safecrlf=false -c advice.addEmbeddedRepo=false \
    -c log.showSignature=false -c i18n.commitEncoding=UTF-8 -c i18n.logOutputEncoding=UTF-8 \
    -c diff.ignoreSubmodules=dirty -c submodule.recurse=false";

/// The same git commands as a step gives.
fn git(dir: &Path, words: &str, last: &[&str]) -> TaskResult<()> {
    let locks = if words.starts_with("status") || words.starts_with("ls-tree") {
        "0"
    } else {
        "1"
    };
    ToolCommand::new("git")
        .words(OPTIONS)
        .words(words)
        .args(last)
        .env("GIT_OPTIONAL_LOCKS", locks)
        .dir(dir)
        .stdout()?;
    Ok(())
}

/// The tree with one more open node passed: the first of the second half, which
/// is where the open leaves are.
fn next_tree(dir: &Path) -> TaskResult<Vec<u8>> {
    let mut tree = fs::read(dir.join(TREE)).context(TREE)?;
    let middle = tree.len() / 2;
    let found = tree[middle..]
        .windows(OPEN.len())
        .position(|window| window == OPEN);
    let at = middle + found.ok_or_else(|| TaskFailure::new("no open node is left in the tree"))?;
    tree.splice(at..at + OPEN.len(), PASSED.iter().copied());
    Ok(tree)
}

fn run_state(iter: usize) -> String {
    format!("{{\n  \"run_id\": \"bench\",\n  \"next_iter\": {iter}\n}}\n")
}

fn new_log_folder(dir: &Path) -> TaskResult<PathBuf> {
    let parent = dir.join(".runner/iterations/floor");
    fs::create_dir_all(&parent).context("the log folder")?;
    let number = fs::read_dir(&parent).context("the log folder")?.count() + 1;
    let log = parent.join(number.to_string());
    fs::create_dir(&log).context("the log folder")?;
    Ok(log)
}

fn write_plain(path: &Path, bytes: &[u8]) -> TaskResult<()> {
    fs::write(path, bytes).context(path.display())
}

/// Temp, sync, rename; the caller syncs the folder once for all its files.
fn write_durably(path: &Path, bytes: &[u8]) -> TaskResult<()> {
    let temp = path.with_extension("tmp");
    let write = || {
        let mut file = File::create(&temp)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temp, path)
    };
    write().context(path.display())
}

fn append(path: &Path, line: &str) -> TaskResult<()> {
    let write = || {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(line.as_bytes())
    };
    write().context(path.display())
}

fn append_durably(path: &Path, line: &str) -> TaskResult<()> {
    let write = || {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(line.as_bytes())?;
        file.sync_data()
    };
    write().context(path.display())
}

fn sync_folder(folder: &Path) -> TaskResult<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .context(folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_passes_one_more_node() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        fs::create_dir_all(dir.join(".runner/state")).unwrap();
        fs::write(dir.join(TREE), super::super::tree::generate(100).unwrap()).unwrap();
        let open = || {
            let text = fs::read_to_string(dir.join(TREE)).unwrap();
            text.matches("\"passes\": false").count()
        };
        let before = open();
        change(dir, 1).unwrap();
        change(dir, 2).unwrap();
        assert_eq!(open(), before - 2);
        assert_eq!(fs::read_to_string(dir.join("work.txt")).unwrap(), "1\n2\n");
    }
}
