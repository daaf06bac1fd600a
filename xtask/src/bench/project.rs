//! The projects that a benchmark works in.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cmd::{ToolCommand, find_program, release_bin};
use crate::failure::{FailureContext as _, TaskFailure, TaskResult};

/// How many files a project has beside the runner's, where nothing else is asked for.
pub(super) const FILES: usize = 1_000;

/// How a step is contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BenchSandbox {
    #[default]
    Off,
    Landlock,
    Bubblewrap,
}

impl BenchSandbox {
    pub(super) const ALL: [BenchSandbox; 3] = [
        BenchSandbox::Off,
        BenchSandbox::Landlock,
        BenchSandbox::Bubblewrap,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            BenchSandbox::Off => "off",
            BenchSandbox::Landlock => "landlock",
            BenchSandbox::Bubblewrap => "bubblewrap",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }

    /// What `[sandbox] mode` must say. Which of the two mechanisms that means is told by the
    /// programs on the PATH.
    pub(super) fn mode(self) -> &'static str {
        match self {
            BenchSandbox::Off => "off",
            BenchSandbox::Landlock | BenchSandbox::Bubblewrap => "auto",
        }
    }

    /// A program in it by the barest start that there is. Landlock needs no program: a few
    /// system calls, which cost next to nothing.
    pub(super) fn command(self, folder: &Path, argv: &[&str]) -> ToolCommand {
        let [program, args @ ..] = argv else {
            return ToolCommand::new("true");
        };
        if self != BenchSandbox::Bubblewrap {
            return ToolCommand::new(program).args(args);
        }
        ToolCommand::new("bwrap")
            .words("--die-with-parent --unshare-pid --ro-bind / / --dev /dev --proc /proc --bind")
            .args([folder, folder])
            .arg("--")
            .args(argv)
    }

    /// A folder with just the programs that a step needs, so that no other mechanism is found.
    pub(super) fn programs(self, bin: &Path) -> TaskResult<()> {
        fs::create_dir_all(bin).context(bin.display())?;
        let more: &[&str] = match self {
            BenchSandbox::Bubblewrap => &["bwrap"],
            BenchSandbox::Off | BenchSandbox::Landlock => &[],
        };
        for name in ["git", "sh", "true"].iter().chain(more) {
            let program = find_program(name)
                .ok_or_else(|| TaskFailure::new(format!("{name} is not on the PATH")))?;
            std::os::unix::fs::symlink(program, bin.join(name)).context(name)?;
        }
        Ok(())
    }

    /// Refuses figures of another mechanism.
    pub(super) fn check_used(self, project: &BenchProject) -> TaskResult<()> {
        let used = project.used_sandbox()?;
        let expected = match self {
            BenchSandbox::Off => "none",
            other => other.as_str(),
        };
        if used == expected {
            return Ok(());
        }
        Err(
            TaskFailure::new(format!("{}: the step used `{used}`", self.as_str()))
                .hint("the kernel must have Landlock, and bwrap must work here"),
        )
    }
}

/// Whether a step asks the guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BenchGuard {
    /// The agent says that it is not done.
    NotAsked,
    /// The agent says that it is done.
    #[default]
    Passes,
}

impl BenchGuard {
    pub(super) const ALL: [BenchGuard; 2] = [BenchGuard::NotAsked, BenchGuard::Passes];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            BenchGuard::NotAsked => "no",
            BenchGuard::Passes => "warm",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }

    /// What the agent of the benchmark does: one change, and its answer.
    pub(super) fn agent(self) -> String {
        let status = match self {
            BenchGuard::NotAsked => "retry",
            BenchGuard::Passes => "done",
        };
        format!(
            "echo \"$RUNNER_ITER\" >>work.txt\n\
             printf '{{\"status\":\"{status}\",\"summary\":\"one more line\"}}\\n' >\"$RUNNER_OUTPUT_PATH\""
        )
    }
}

/// A repository with a started run, a tree of a given size and a home.
pub(super) struct BenchProject {
    pub(super) dir: PathBuf,
    pub(super) home: PathBuf,
}

impl BenchProject {
    /// A run with an instant agent and guard, whose tree is then replaced.
    pub(super) fn start(base: &Path, tree: &[u8], files: usize) -> TaskResult<Self> {
        let project = Self {
            dir: base.join("project"),
            home: base.join("home"),
        };
        for folder in [&project.dir, &project.home] {
            fs::create_dir_all(folder).context(folder.display())?;
        }
        let identity = "[user]\n\tname = Bench\n\temail = bench@example.test\n";
        fs::write(project.home.join(".gitconfig"), identity).context(".gitconfig")?;
        write_files(&project.dir, files)?;
        project.git("init --quiet -b main")?;
        project.git("add -A")?;
        project.git("commit --quiet -m Begin")?;
        project.runner("init --no-try --backend command --guard true")?;
        project.write(
            ".runner/state/config.toml",
            config(BenchSandbox::Off, BenchGuard::Passes)?.as_bytes(),
        )?;
        project.write(
            ".runner/GOAL.md",
            b"---\nid: bench\n---\n# Measure\n\nMeasure.\n",
        )?;
        project.runner("start")?;
        // A new run starts from a fresh tree; a person may edit it afterwards.
        project.write(".runner/state/tree.json", tree)?;
        project.git("add -A")?;
        project.git("commit --quiet -m Tree")?;
        Ok(project)
    }

    /// A copy of the project as it is now, beside it.
    pub(super) fn copy(&self, name: &str) -> TaskResult<Self> {
        let dir = self.dir.with_file_name(name);
        ToolCommand::new("cp")
            .arg("-a")
            .arg(&self.dir)
            .arg(&dir)
            .stdout()?;
        let copy = Self {
            dir,
            home: self.home.clone(),
        };
        // The copied files are new to git, which would look into each of them
        // again and again: let it do so once.
        copy.git("status")?;
        Ok(copy)
    }

    /// Gives it another configuration, as a person would.
    pub(super) fn configure(&self, config: &str) -> TaskResult<()> {
        self.write(".runner/state/config.toml", config.as_bytes())?;
        self.git("commit --quiet --all --allow-empty -m Configure")
    }

    /// What the last step says that it was contained by.
    fn used_sandbox(&self) -> TaskResult<String> {
        let runs = self.path(".runner/iterations/bench");
        let mut iters: Vec<u64> = fs::read_dir(&runs)
            .context(runs.display())?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        iters.sort_unstable();
        let last = iters.last().copied().unwrap_or_default().to_string();
        let bytes = fs::read(runs.join(last).join("meta.json")).context("meta.json")?;
        let meta: serde_json::Value = serde_json::from_slice(&bytes).context("meta.json")?;
        Ok(meta["sandbox"].as_str().unwrap_or_default().to_owned())
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> ToolCommand {
        ToolCommand::new(program)
            .clear_env()
            .env("HOME", &self.home)
            .env("LANG", "C.UTF-8")
            .dir(&self.dir)
    }

    pub(super) fn git(&self, words: &str) -> TaskResult<()> {
        self.command("git").words(words).stdout().map(drop)
    }

    fn runner(&self, words: &str) -> TaskResult<()> {
        let runner = self.command(release_bin("runner")).words(words);
        runner.stdout().map(drop)
    }

    fn write(&self, path: &str, bytes: &[u8]) -> TaskResult<()> {
        fs::write(self.path(path), bytes).context(path)
    }
}

/// The instant agent and a guard that passes. Without a sandbox it is the runner's own
/// cost that is measured.
pub(super) fn config(sandbox: BenchSandbox, guard: BenchGuard) -> TaskResult<String> {
    let agent = serde_json::to_string(&guard.agent()).context("the agent")?;
    let sandbox_mode = sandbox.mode();
    Ok(format!(
        "max_iterations = 1000000\n\
         [guard]\ncommand = [\"true\"]\nprotected = []\n\
         [executor]\nbackend = \"command\"\ncommand = [\"sh\", \"-c\", {agent}]\n\
         [sandbox]\nmode = \"{sandbox_mode}\"\n"
    ))
}

/// Small sources, at most a hundred in a folder.
fn write_files(dir: &Path, count: usize) -> TaskResult<()> {
    let folders = count.div_ceil(100).max(20);
    for number in 0..count {
        let folder = dir.join(format!("src/part{:02}", number % folders));
        fs::create_dir_all(&folder).context(folder.display())?;
        let file = folder.join(format!("file{number:04}.txt"));
        let text = format!("This is line one of file {number}.\n").repeat(20);
        fs::write(&file, text).context(file.display())?;
    }
    Ok(())
}

/// The programs that `strace` saw started, the first (the runner) left out.
pub(super) fn started_programs(trace: &str) -> Vec<String> {
    let calls = trace.lines().filter(|line| !line.contains("= -1 "));
    let names = calls.filter_map(|line| {
        let path = line.split_once("execve(\"")?.1.split('"').next()?;
        Some(path.rsplit('/').next().unwrap_or(path).to_owned())
    });
    names.skip(1).collect()
}

/// Refuses to go on without the runner of this workspace.
pub(super) fn build() -> TaskResult<()> {
    let words = "build --release --locked --package runner-cli --package xtask";
    let build =
        ToolCommand::cargo(words).hint("the workspace must build before it can be measured");
    crate::out::step(&build.label(), || build.run())?;
    for name in ["runner", "xtask"] {
        if !release_bin(name).is_file() {
            return Err(TaskFailure::new(format!(
                "{} was not built",
                release_bin(name).display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn started_programs_are_counted_once() {
        let trace = "7 execve(\"/x/runner\", [\"runner\", \"step\"], 0x7ff /* 5 vars */) = 0\n\
            8 execve(\"/a/git\", [\"git\", \"status\"], 0x1 /* 5 vars */) = -1 ENOENT (No such file)\n\
            8 execve(\"/b/git\", [\"git\", \"status\"], 0x1 /* 5 vars */) = 0\n\
            8 +++ exited with 0 +++\n\
            9 execve(\"/bin/sh\", [\"sh\", \"-c\"], 0x1 /* 5 vars */ <unfinished ...>\n\
            9 <... execve resumed>) = 0\n";
        assert_eq!(started_programs(trace), ["git", "sh"]);
    }

    #[test]
    fn the_config_quotes_the_agent() {
        let config = config(BenchSandbox::Off, BenchGuard::Passes).unwrap();
        assert!(config.contains(r#"\"$RUNNER_OUTPUT_PATH\""#), "{config}");
    }
}
