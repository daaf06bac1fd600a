//! The least that a step must do: its git commands, its durable writes, the start of a sandbox,
//! the agent and the guard, and nothing else.
//!
//! The git commands are those without which something that is promised would not hold:
//! the session works in a folder of its own behind a private index, the guard judges the commit
//! that was made of it in another one, the run's reference moves after its record, and the user's
//! checkout follows. Each is one process; none is asked twice.
//!
//! The tree is written twice, as tree.json and as tree.after.json: they cannot
//! be one file, because the agent may write into the first. tree.before.json can
//! be a link to the one before, and costs next to nothing.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::bench::project::{BenchGuard, BenchProject, BenchSandbox};
use crate::cmd::ToolCommand;
use crate::failure::{FailureContext as _, TaskFailure, TaskResult};

const TREE: &str = ".runner/state/tree.json";
const OPEN: &[u8] = b"\"passes\": false";
const PASSED: &[u8] = b"\"passes\": true";

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

/// Mode `__floor DIR SANDBOX GUARD`: one step's worth of work in that project.
pub(super) fn helper(words: &[String]) -> TaskResult<()> {
    let usage = || TaskFailure::usage("__floor DIR SANDBOX GUARD");
    let [dir, sandbox, guard] = words else {
        return Err(usage());
    };
    let sandbox = BenchSandbox::named(sandbox).ok_or_else(usage)?;
    let guard = BenchGuard::named(guard).ok_or_else(usage)?;
    FloorPlaces::of(Path::new(dir)).step(sandbox, guard)
}

/// The folders of a floor: the user's project, and beside it what sessions and guards work in.
pub(super) struct FloorPlaces {
    user: PathBuf,
    pub(super) work: FloorFolder,
    pub(super) verdict: FloorFolder,
}

/// A folder with a private index.
pub(super) struct FloorFolder {
    files: PathBuf,
    git_dir: PathBuf,
    objects: PathBuf,
}

impl FloorFolder {
    fn of(user: &Path, name: &str) -> Self {
        FloorFolder {
            files: user.with_extension(name),
            git_dir: user.with_extension(format!("{name}.git")),
            objects: user.with_extension("objects"),
        }
    }

    /// An empty folder with all files of a commit checked out.
    fn make(&self, commit: &str) -> TaskResult<()> {
        for folder in [&self.files, &self.git_dir.join("refs")] {
            fs::create_dir_all(folder).context(folder.display())?;
        }
        let config = "[core]\n\tbare = false\n[index]\n\tversion = 4\n\tskipHash = true\n";
        write_plain(&self.git_dir.join("config"), config.as_bytes())?;
        self.note_head(commit)?;
        self.git(&format!("read-tree --reset -u {commit}"), b"")?;
        Ok(())
    }

    fn note_head(&self, commit: &str) -> TaskResult<()> {
        write_plain(&self.git_dir.join("HEAD"), format!("{commit}\n").as_bytes())
    }

    /// What a session or a guard finds as `.git`.
    fn write_git(&self) -> TaskResult<()> {
        let own = self.files.join(".git");
        if own.exists() {
            fs::remove_dir_all(&own).context(own.display())?;
        }
        fs::create_dir_all(own.join("objects/info")).context(own.display())?;
        fs::copy(self.git_dir.join("index"), own.join("index")).context(own.display())?;
        Ok(())
    }

    /// A git command behind the private index.
    pub(super) fn git(&self, words: &str, input: &[u8]) -> TaskResult<String> {
        let mut git_dir = std::ffi::OsString::from("--git-dir=");
        git_dir.push(&self.git_dir);
        let mut work_tree = std::ffi::OsString::from("--work-tree=");
        work_tree.push(&self.files);
        let command = base_git(words)
            .args([git_dir, work_tree])
            .words(words)
            .env("GIT_OBJECT_DIRECTORY", &self.objects)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .dir(&self.files);
        text_of(command, input)
    }
}

impl FloorPlaces {
    /// Those of a project.
    fn of(user: &Path) -> Self {
        FloorPlaces {
            user: user.to_owned(),
            work: FloorFolder::of(user, "work"),
            verdict: FloorFolder::of(user, "verdict"),
        }
    }

    /// Makes them for a project as it is now.
    pub(super) fn make(project: &BenchProject) -> TaskResult<Self> {
        let places = Self::of(&project.dir);
        let project = project.dir.join(".git/objects");
        let alternates = places.work.objects.join("info/alternates");
        for folder in ["info", "pack"] {
            let folder = places.work.objects.join(folder);
            fs::create_dir_all(&folder).context(folder.display())?;
        }
        write_plain(&alternates, format!("{}\n", project.display()).as_bytes())?;
        let head = places.git("rev-parse HEAD", b"")?;
        places.git(&format!("update-ref {RUN} {head}"), b"")?;
        for folder in [&places.work, &places.verdict] {
            folder.make(&head)?;
        }
        Ok(places)
    }

    /// The commit at which the run is.
    pub(super) fn head(&self) -> TaskResult<String> {
        self.git(&format!("for-each-ref --format=%(objectname) {RUN}"), b"")
    }

    /// A git command in the user's project.
    fn git(&self, words: &str, input: &[u8]) -> TaskResult<String> {
        text_of(base_git(words).words(words).dir(&self.user), input)
    }

    fn commit(&self, tree: &str, parent: &str) -> TaskResult<String> {
        let words = format!("commit-tree {tree} -p {parent}");
        let command = base_git(&words).words(&words).dir(&self.user);
        let command = command.env("GIT_OBJECT_DIRECTORY", &self.work.objects);
        text_of(command, b"one more step\n")
    }

    /// Brings what is new into the project, as one pack.
    fn bring_objects(&self) -> TaskResult<()> {
        let objects = &self.work.objects;
        let (mut names, mut loose) = (String::new(), Vec::new());
        for folder in fs::read_dir(objects).context(objects.display())?.flatten() {
            let first = folder.file_name().to_string_lossy().into_owned();
            if first.len() != 2 {
                continue;
            }
            let files = fs::read_dir(folder.path()).context(objects.display())?;
            for file in files.flatten() {
                names.extend([&first, &*file.file_name().to_string_lossy(), "\n"]);
                loose.push(file.path());
            }
        }
        let words = format!(
            "-c pack.writeReverseIndex=false -c pack.threads=1 pack-objects --quiet --window=0 {}",
            objects.join("pack/new").display()
        );
        let name = self.work.git(&words, names.as_bytes())?;
        let there = self.user.join(".git/objects/pack");
        let keep = there.join(format!("pack-{name}.keep"));
        write_plain(&keep, b"floor\n")?;
        for ending in ["pack", "idx"] {
            let from = objects.join(format!("pack/new-{name}.{ending}"));
            fs::rename(&from, there.join(format!("pack-{name}.{ending}")))
                .context(from.display())?;
        }
        for file in loose {
            fs::remove_file(&file).context(file.display())?;
        }
        fs::remove_file(&keep).context(keep.display())
    }

    fn step(&self, sandbox: BenchSandbox, guard: BenchGuard) -> TaskResult<()> {
        let (dir, work) = (&self.user, &self.work);
        let log = new_log_folder(dir)?;
        let journal = log.join("journal.jsonl");
        let events = dir.join(".runner/iterations/floor/events.jsonl");
        let event = |name: &str| append(&events, &format!("{{\"event\":\"{name}\"}}\n"));
        let head = self.head()?;
        work.git(STATUS, b"")?;
        work.git(&format!("ls-tree -r -z --full-tree {head}"), b"")?;
        append_durably(&journal, "{\"phase\":\"started\"}\n")?;
        event("iteration_started")?;
        sync_folder(&log)?;
        sync_folder(&dir.join(".runner/iterations/floor"))?;
        work.write_git()?;
        let context = work.files.join(".runner/context");
        fs::create_dir_all(&context).context("the context folder")?;
        write_plain(&context.join("goal.md"), &[b'g'; 600])?;
        write_durably(&log.join("prompt.md"), &[b'p'; 6_000])?;
        write_durably(&log.join("argv.json"), &[b'a'; 300])?;
        sync_folder(&log)?;
        event("agent_started")?;
        sandbox
            .command(&work.files, &["sh", "-c", &guard.agent()])
            .env("RUNNER_ITER", "1")
            .env("RUNNER_OUTPUT_PATH", context.join("output.json"))
            .dir(&work.files)
            .stdout()?;
        append(&journal, "{\"phase\":\"agent_ended\",\"exit_code\":0}\n")?;
        event("agent_ended")?;
        work.git(STATUS, b"")?;
        work.git("update-index --add --replace -z --stdin", b"work.txt\0")?;
        if guard == BenchGuard::Passes {
            let tree = work.git("write-tree", b"")?;
            let candidate = self.commit(&tree, &head)?;
            self.judge(sandbox, &candidate, &head)?;
            append(&journal, "{\"phase\":\"guard_ended\",\"exit_code\":0}\n")?;
            event("guard_ended")?;
            write_plain(&log.join("guard.log"), b"")?;
        }
        let tree = next_tree(&work.files)?;
        write_durably(&log.join("tree.after.json"), &tree)?;
        write_plain(&log.join("executor.log"), b"")?;
        sync_folder(&log)?;
        let state = work.files.join(".runner/state");
        write_durably(&state.join("tree.json"), &tree)?;
        write_durably(&state.join("run_state.json"), run_state(1).as_bytes())?;
        sync_folder(&state)?;
        let changed = b".runner/state/run_state.json\0.runner/state/tree.json\0";
        work.git("update-index --add --replace -z --stdin", changed)?;
        let tree = work.git("write-tree", b"")?;
        let commit = self.commit(&tree, &head)?;
        append_durably(&journal, "{\"phase\":\"decided\"}\n")?;
        event("decided")?;
        self.bring_objects()?;
        let orders = format!("update {RUN} {commit} {head}\nupdate {KEEP} {commit}\n");
        self.git("update-ref --stdin", orders.as_bytes())?;
        write_durably(&log.join("meta.json"), &[b'm'; 900])?;
        sync_folder(&log)?;
        append(&journal, "{\"phase\":\"committed\"}\n")?;
        event("committed")?;
        self.follow(&head, &commit)?;
        work.note_head(&commit)
    }

    /// The verdict about a candidate, in the clean checkout that is kept.
    fn judge(&self, sandbox: BenchSandbox, candidate: &str, head: &str) -> TaskResult<()> {
        let folder = &self.verdict;
        let verify = "rev-list --quiet --no-walk --objects --verify-objects";
        folder.git(&format!("{verify} {candidate} ^{head}"), b"")?;
        folder.note_head(candidate)?;
        folder.git("clean -ffdqx -- .", b"")?;
        folder.git(&format!("read-tree --reset -u {candidate}"), b"")?;
        folder.write_git()?;
        let guard = sandbox.command(&folder.files, &["true"]);
        guard.dir(&folder.files).stdout()?;
        folder.git(DIFF, b"").map(drop)
    }

    /// The user's checkout goes along.
    fn follow(&self, from: &str, to: &str) -> TaskResult<()> {
        self.git(STATUS, b"")?;
        self.git(&format!("{DIFF} {from} {to}"), b"")?;
        let intent = self.user.join(".runner/iterations/floor/follow.json");
        write_durably(&intent, &[b'f'; 300])?;
        let orders = format!("update HEAD {to} {from}\nupdate {MARK} {to}\n");
        self.git("update-ref --stdin", orders.as_bytes())?;
        self.git(&format!("read-tree -m -u {from} {to}"), b"")?;
        fs::remove_file(&intent).context(intent.display())
    }
}

/// The references of the run that a floor goes through.
const RUN: &str = "refs/runner/run/floor";
const KEEP: &str = "refs/runner/keep/floor";
const MARK: &str = "refs/runner/branch/floor";

/// How a step looks at a work tree.
const STATUS: &str = "status --porcelain=v2 --branch --untracked-files=all --ignored=matching \
    --ignore-submodules=dirty --no-renames -z";

/// How it asks for names of files that differ.
const DIFF: &str =
    "diff --no-ext-diff --no-textconv --no-renames --ignore-submodules=dirty --name-only -z";

/// The options of every git call of a step.
const OPTIONS: &str = "-c core.hooksPath=/dev/null -c core.fsmonitor=false -c commit.gpgSign=false \
    -c user.useConfigOnly=true -c gc.auto=0 -c maintenance.auto=false -c core.untrackedCache=false \
    -c core.quotePath=false -c core.safecrlf=false -c advice.addEmbeddedRepo=false \
    -c log.showSignature=false -c i18n.commitEncoding=UTF-8 -c i18n.logOutputEncoding=UTF-8 \
    -c diff.ignoreSubmodules=dirty -c submodule.recurse=false";

fn base_git(words: &str) -> ToolCommand {
    let reads = ["status", "ls-tree", "diff", "for-each-ref"];
    let is_read = reads.iter().any(|word| words.starts_with(word));
    ToolCommand::new("git")
        .words(OPTIONS)
        .env("GIT_OPTIONAL_LOCKS", if is_read { "0" } else { "1" })
}

fn text_of(command: ToolCommand, input: &[u8]) -> TaskResult<String> {
    let bytes = command.stdout_with(input)?;
    Ok(String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned())
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
