//! `bench stream`: a session that prints a million events, and what a sandbox costs.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::Deserialize;

use super::events;
use super::measure::{BenchMedians, BenchProbe, BenchSample, by_turns};
use super::project::{self, BenchGuard, BenchProject, BenchSandbox, FILES};
use super::stream_report::{StreamReport, StreamSandbox};
use super::tree;
use crate::args::XtaskArgs;
use crate::cmd::{ToolCommand, release_bin, target_dir};
use crate::failure::{FailureContext as _, TaskFailure, TaskResult};
use crate::{out, setup};

/// Fewer, and a median means nothing.
const MIN_RUNS: usize = 5;
const DEFAULT_RUNS: usize = 7;
const DEFAULT_LINES: u64 = 1_000_000;
/// A step takes one leaf of these, at most three times per round and a few more.
const LEAVES: usize = 1_000;
/// As much as the runner reads at once.
const BUFFER: usize = 64 * 1024;

pub(super) fn run(mut args: XtaskArgs) -> TaskResult<()> {
    let runs = args.value("--runs")?.unwrap_or(DEFAULT_RUNS);
    let lines = args.value("--lines")?.unwrap_or(DEFAULT_LINES);
    let json = args.flag("--json");
    let check = args.flag("--check");
    args.finish()?;
    if runs < MIN_RUNS {
        return Err(TaskFailure::usage(format!("--runs is at least {MIN_RUNS}")));
    }
    out::step("setup", setup::ensure)?;
    project::build()?;
    // Beside the build, not in a temp folder that may lie in memory.
    let temp = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(target_dir())
        .context("a temporary folder")?;
    let project = BenchProject::start(temp.path(), &tree::generate(LEAVES)?, FILES)?;
    let mut report = StreamReport {
        runs,
        lines,
        line_bytes: events::mean_bytes(),
        ..StreamReport::default()
    };
    out::step(&format!("{lines} events, {runs} runs of each"), || {
        measure_stream(&mut report, &project, temp.path())
    })?;
    out::step(&format!("sandboxes, {runs} runs of each"), || {
        measure_sandboxes(&mut report, &project, temp.path())
    })?;
    out::data(&if json { report.json()? } else { report.table() });
    match report.missed_aims() {
        missed if check && missed > 0 => Err(TaskFailure::new(format!("{missed} aims missed"))),
        _ => Ok(()),
    }
}

/// A session with all events, one with a tenth of them, and the floor, by turns.
fn measure_stream(
    report: &mut StreamReport,
    project: &BenchProject,
    base: &Path,
) -> TaskResult<()> {
    let bin = base.join("codex-bin");
    fs::create_dir_all(&bin).context(bin.display())?;
    write_stub(&bin.join("codex"))?;
    let usage = base.join("generator.usage");
    let many = project.copy("many")?;
    let few = project.copy("few")?;
    many.configure(&config(report.lines, &usage))?;
    few.configure(&config(report.lines / 10, &usage))?;
    let path = prepended(&bin)?;
    let probe = |project: &'_ BenchProject, argv: Vec<OsString>| BenchProbe {
        argv,
        dir: project.dir.clone(),
        home: project.home.clone(),
        path: Some(path.clone()),
    };
    let step = || vec![release_bin("runner").into(), "step".into()];
    let floor: Vec<OsString> = vec![
        release_bin("xtask").into(),
        "__read".into(),
        report.lines.to_string().into(),
        usage.clone().into(),
    ];
    let probes = [
        probe(&many, step()),
        probe(&few, step()),
        probe(&many, floor),
    ];
    let mut turns = probes.each_ref().map(|probe| {
        || {
            let sample = probe.measure()?;
            without_generator(sample, &usage)
        }
    });
    let [many, few, floor] = by_turns(report.runs, &mut turns)?;
    report.many = many.medians();
    report.few = few.medians();
    report.floor = floor.medians();
    Ok(())
}

/// What the generator itself used is nobody's cost.
fn without_generator(sample: BenchSample, usage: &Path) -> TaskResult<BenchSample> {
    let text = fs::read_to_string(usage).context(usage.display())?;
    let cpu_us: u64 = text.trim().parse().map_err(|_| {
        TaskFailure::new(format!(
            "the generator left `{}` for its usage",
            text.trim()
        ))
    })?;
    Ok(sample.without_cpu(cpu_us))
}

/// One step with an instant agent and guard, by each mechanism.
fn measure_sandboxes(
    report: &mut StreamReport,
    project: &BenchProject,
    base: &Path,
) -> TaskResult<()> {
    let mut measured = Vec::new();
    for sandbox in BenchSandbox::ALL {
        let name = sandbox.as_str();
        let copy = project.copy(name)?;
        copy.configure(&project::config(sandbox, BenchGuard::Passes)?)?;
        let bin = base.join(format!("{name}-bin"));
        sandbox.programs(&bin)?;
        let probe = BenchProbe {
            argv: vec![release_bin("runner").into(), "step".into()],
            dir: copy.dir.clone(),
            home: copy.home.clone(),
            path: Some(bin.into()),
        };
        measured.push((sandbox, copy, probe));
    }
    let [off, landlock, bubblewrap] = &measured[..] else {
        return Err(TaskFailure::new("three mechanisms are measured"));
    };
    let mut turns = [off, landlock, bubblewrap].map(|(_, _, probe)| || probe.measure());
    let samples = by_turns(report.runs, &mut turns)?;
    for ((sandbox, copy, _), samples) in measured.iter().zip(&samples) {
        sandbox.check_used(copy)?;
        report.sandboxes.push(StreamSandbox {
            name: sandbox.as_str().to_owned(),
            step: samples.medians(),
        });
    }
    Ok(())
}

fn prepended(bin: &Path) -> TaskResult<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [bin.to_path_buf()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    std::env::join_paths(folders).context("PATH")
}

/// Stands in for codex: whatever its arguments, it prints events.
fn write_stub(path: &PathBuf) -> TaskResult<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let xtask = release_bin("xtask");
    let text = format!(
        "#!/bin/sh\nexec '{}' __events \"$BENCH_LINES\" \"$BENCH_USAGE\"\n",
        xtask.display()
    );
    fs::write(path, text).context(path.display())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).context(path.display())
}

fn config(lines: u64, usage: &Path) -> String {
    format!(
        "max_iterations = 1000000\n\
         [guard]\ncommand = [\"true\"]\nprotected = []\n\
         [executor]\nbackend = \"codex\"\n\
         [executor.env]\nBENCH_LINES = \"{lines}\"\nBENCH_USAGE = \"{}\"\n\
         [sandbox]\nmode = \"off\"\n",
        usage.display()
    )
}

/// A line as far as it is of interest. Texts are borrowed where they have no escapes,
/// which serde does for a plain `Cow` alone: not in an `Option`, nor by another name.
#[derive(Deserialize)]
struct BenchLine<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    item: Option<StreamItem<'a>>,
    usage: Option<StreamUsage>,
}

#[derive(Deserialize)]
struct StreamItem<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Cow<'a, str>,
    #[serde(borrow, default)]
    command: Cow<'a, str>,
    exit_code: Option<i32>,
    #[serde(borrow, default)]
    status: Cow<'a, str>,
}

#[derive(Deserialize)]
struct StreamUsage {
    input_tokens: u64,
    output_tokens: u64,
}

/// Mode `__read LINES USAGE`: starts the generator, reads its pipe and parses every line.
pub(super) fn read_helper(words: &[String]) -> TaskResult<()> {
    let [lines, usage] = words else {
        return Err(TaskFailure::usage("__read LINES USAGE"));
    };
    let mut child = ToolCommand::new(release_bin("xtask"))
        .args(["__events", lines, usage])
        .spawn(Stdio::piped())?;
    let mut pipe = child
        .stdout
        .take()
        .ok_or_else(|| TaskFailure::new("no pipe to read from"))?;
    let mut seen = StreamTotals::default();
    let mut buffer = vec![0; BUFFER];
    let mut partial: Vec<u8> = Vec::new();
    loop {
        let len = match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(TaskFailure::new(format!("the pipe: {error}"))),
        };
        let mut bytes = &buffer[..len];
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            if partial.is_empty() {
                seen.parse(&bytes[..end])?;
            } else {
                partial.extend_from_slice(&bytes[..end]);
                seen.parse(&partial)?;
                partial.clear();
            }
            bytes = &bytes[end + 1..];
        }
        partial.extend_from_slice(bytes);
    }
    let status = child.wait().context("the generator")?;
    if !status.success() {
        return Err(TaskFailure::new(format!(
            "the generator ended with {status}"
        )));
    }
    out::data(&format!("{} {} {}", seen.items, seen.chars, seen.tokens));
    Ok(())
}

/// What was read, so that none of it can be left out.
#[derive(Default)]
struct StreamTotals {
    items: u64,
    chars: usize,
    tokens: u64,
}

impl StreamTotals {
    fn parse(&mut self, line: &[u8]) -> TaskResult<()> {
        let line: BenchLine<'_> = serde_json::from_slice(line).context("an event")?;
        self.chars += line.kind.len();
        if let Some(item) = line.item {
            let texts = [item.text, item.command, item.status];
            let texts: usize = texts.iter().map(|text| text.len()).sum();
            self.items += u64::from(item.exit_code != Some(-1));
            self.chars += item.kind.len() + texts;
        }
        if let Some(usage) = line.usage {
            self.tokens += usage.input_tokens + usage.output_tokens;
        }
        Ok(())
    }
}

/// The medians of a part that has a name.
pub(super) fn difference(of: &BenchMedians, less: &BenchMedians) -> BenchMedians {
    BenchMedians {
        wall_ms: of.wall_ms - less.wall_ms,
        cpu_ms: of.cpu_ms - less.cpu_ms,
        peak_mb: of.peak_mb - less.peak_mb,
    }
}
