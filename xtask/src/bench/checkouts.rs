//! The folders that steps work in, beside what git itself takes for the like: bringing a warm clean
//! checkout to the next candidate, and making the first workspace.

use std::fs;
use std::time::Instant;

use super::floor::FloorPlaces;
use super::r#loop::probe;
use super::measure::{BenchSample, median};
use super::project::{self, BenchGuard, BenchProject, BenchSandbox};
use super::report::BenchCheckouts;
use crate::cmd::release_bin;
use crate::failure::{FailureContext as _, TaskFailure, TaskResult};

pub(super) fn measure(
    project: &BenchProject,
    files: usize,
    runs: usize,
) -> TaskResult<Option<BenchCheckouts>> {
    let (warm_ms, read_tree_ms) = measure_warm(project, runs)?;
    let (first_ms, worktree_ms) = measure_first(project, runs)?;
    Ok(Some(BenchCheckouts {
        files,
        warm_ms,
        read_tree_ms,
        first_ms,
        worktree_ms,
    }))
}

/// From the candidate's commit to the guard's start, as the kernel tells it; beside it git alone,
/// which goes to and fro between the same two commits.
fn measure_warm(project: &BenchProject, runs: usize) -> TaskResult<(f64, f64)> {
    let step = || {
        let trace = project.dir.with_file_name("warm.log");
        project
            .command("strace")
            // All words of a call: the one that says what git does comes late.
            .words("-f -qq -v -ttt --seccomp-bpf -e trace=execve,exit_group -o")
            .arg(&trace)
            .arg(release_bin("runner"))
            .arg("step")
            .hint("strace needs the right to trace: not every container gives it")
            .stdout()?;
        let text = fs::read_to_string(&trace).context("the trace")?;
        candidate_to_guard(&text)
            .ok_or_else(|| TaskFailure::new("the step made no candidate, or asked no guard"))
    };
    // The checkout is made by the first.
    step()?;
    let copy = project.copy("git")?;
    let places = FloorPlaces::make(&copy)?;
    let to = places.head()?;
    let mut at_parent = false;
    let (mut warm, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..=runs {
        warm.push(step()?);
        at_parent = !at_parent;
        let parent = if at_parent { "~1" } else { "" };
        let begun = Instant::now();
        let words = format!("read-tree --reset -u {to}{parent}");
        places.verdict.git(&words, b"")?;
        alone.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok((median(&warm[1..]), median(&alone[1..])))
}

/// Milliseconds between the end of the first `commit-tree` and the start of the guard.
fn candidate_to_guard(trace: &str) -> Option<f64> {
    let mut maker = None;
    let mut made: Option<f64> = None;
    for line in trace.lines().filter(|line| !line.contains("= -1 ")) {
        let mut words = line.split_whitespace();
        let (pid, at) = (words.next()?, words.next()?.parse::<f64>().ok()?);
        if maker.is_none() && line.contains("execve(") && line.contains("\"commit-tree\"") {
            maker = Some(pid);
        } else if made.is_none() && maker == Some(pid) && line.contains("exit_group(") {
            made = Some(at);
        } else if let Some(made) = made
            && line.contains("execve(")
            && line.contains("[\"true\"]")
        {
            return Some((at - made) * 1e3);
        }
    }
    None
}

/// A step whose workspace is gone beside one that has it; the difference beside
/// `git worktree add`.
fn measure_first(project: &BenchProject, runs: usize) -> TaskResult<(f64, f64)> {
    project.configure(&project::config(BenchSandbox::Off, BenchGuard::NotAsked)?)?;
    let argv = [release_bin("runner").into(), "step".into()];
    let step = probe(project, argv);
    let state = project.home.join(".local/state/runner");
    let tree = project.dir.with_file_name("worktree");
    let (mut first, mut warm, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    step.measure()?;
    for _ in 0..runs {
        fs::remove_dir_all(&state).context(state.display())?;
        first.push(BenchSample::wall_ms(&step.measure()?));
        warm.push(BenchSample::wall_ms(&step.measure()?));
        let begun = Instant::now();
        let name = tree.display().to_string();
        project.git(&format!("worktree add --quiet --detach {name} HEAD"))?;
        alone.push(begun.elapsed().as_secs_f64() * 1e3);
        project.git(&format!("worktree remove --force {name}"))?;
    }
    Ok((median(&first) - median(&warm), median(&alone)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_from_candidate_to_guard_is_read_from_a_trace() {
        let trace = "7 1.000 execve(\"/x/runner\", [\"runner\"], 0x1) = 0\n\
            8 1.100 execve(\"/g/git\", [\"git\", \"commit-tree\", \"t\"], 0x1) = 0\n\
            9 1.110 exit_group(0) = ?\n\
            8 1.120 exit_group(0) = ?\n\
            9 1.150 execve(\"/g/git\", [\"git\", \"read-tree\"], 0x1) = 0\n\
            9 1.160 execve(\"/a/true\", [\"true\"], 0x1) = -1 ENOENT (No such file)\n\
            9 1.170 execve(\"/b/true\", [\"true\"], 0x1) = 0\n";
        let found = candidate_to_guard(trace).unwrap();
        assert!((found - 50.0).abs() < 0.01, "{found}");
        assert_eq!(
            candidate_to_guard("7 1.0 execve(\"/b/true\", [\"true\"], 0x1) = 0\n"),
            None
        );
    }
}
