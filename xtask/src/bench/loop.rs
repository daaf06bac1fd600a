//! `bench loop`: reading a tree, one step, and the folders that steps work in.

use std::ffi::OsString;
use std::fs;

use super::checkouts;
use super::floor::{self, FloorPlaces};
use super::measure::{BenchProbe, BenchSample, as_f64, by_turns};
use super::project::{self, BenchGuard, BenchProject, BenchSandbox, FILES};
use super::report::{BenchReading, BenchReport, BenchStep, StepShape};
use super::tree;
use crate::args::XtaskArgs;
use crate::cmd::{ToolCommand, release_bin, target_dir};
use crate::failure::{FailureContext as _, TaskFailure, TaskResult};
use crate::{out, setup};

/// Fewer, and a median means nothing.
const MIN_RUNS: usize = 7;
const DEFAULT_RUNS: usize = 9;
const DEFAULT_NODES: &str = "1000,10000,100000";
const DEFAULT_FILES: &str = "10,2000,20000";
/// The tree of a step in repositories of different size.
const NODES: usize = 1_000;

pub(super) fn run(mut args: XtaskArgs) -> TaskResult<()> {
    let runs = args.value("--runs")?.unwrap_or(DEFAULT_RUNS);
    let sizes = args.value("--nodes")?.unwrap_or(DEFAULT_NODES.to_owned());
    let files = args.value("--files")?.unwrap_or(DEFAULT_FILES.to_owned());
    let json = args.flag("--json");
    let check = args.flag("--check");
    args.finish()?;
    if runs < MIN_RUNS {
        return Err(TaskFailure::usage(format!("--runs is at least {MIN_RUNS}")));
    }
    let sizes = numbers("--nodes", &sizes)?;
    let files = numbers("--files", &files)?;

    out::step("setup", setup::ensure)?;
    project::build()?;
    let mut report = BenchReport::new(runs)?;
    for nodes in sizes {
        out::step(&format!("{nodes} nodes, {runs} runs of each"), || {
            measure_size(&mut report, nodes, runs)
        })?;
    }
    for files in &files {
        out::step(&format!("{files} files, {runs} runs of each"), || {
            measure_files(&mut report, *files, runs)
        })?;
    }
    if let Some(files) = files.iter().max() {
        out::step(&format!("checkouts of {files} files"), || {
            let temp = temp_folder()?;
            let project = BenchProject::start(temp.path(), &tree::generate(NODES)?, *files)?;
            report.checkouts = checkouts::measure(&project, *files, runs)?;
            Ok(())
        })?;
    }
    out::data(&if json { report.json()? } else { report.table() });
    match report.missed_aims() {
        missed if check && missed > 0 => Err(TaskFailure::new(format!("{missed} aims missed"))),
        _ => Ok(()),
    }
}

/// `10,2000,20000`; nothing at all is no size.
fn numbers(option: &str, text: &str) -> TaskResult<Vec<usize>> {
    let words = text.split(',').filter(|word| !word.is_empty());
    words
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| TaskFailure::usage(format!("{option} takes numbers with commas between")))
}

/// Beside the build, not in the system's temp folder: that may lie in memory,
/// where a sync costs nothing.
fn temp_folder() -> TaskResult<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(target_dir())
        .context("a temporary folder")
}

fn measure_size(report: &mut BenchReport, nodes: usize, runs: usize) -> TaskResult<()> {
    let temp = temp_folder()?;
    let bytes = tree::generate(nodes)?;
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let project = BenchProject::start(temp.path(), &bytes, FILES)?;
    report.reading.push(BenchReading {
        nodes,
        file_mb: as_f64(size) / 1e6,
        ..measure_reading(&project, runs)?
    });
    let shape = StepShape {
        nodes,
        files: FILES,
        ..StepShape::default()
    };
    report.step.push(measure_step(&project, shape, runs)?);
    Ok(())
}

/// A step in a repository with so many files, with and without a guard, by each mechanism.
fn measure_files(report: &mut BenchReport, files: usize, runs: usize) -> TaskResult<()> {
    for sandbox in BenchSandbox::ALL {
        for guard in BenchGuard::ALL {
            let temp = temp_folder()?;
            let project = BenchProject::start(temp.path(), &tree::generate(NODES)?, files)?;
            project.configure(&project::config(sandbox, guard)?)?;
            let shape = StepShape {
                nodes: NODES,
                files,
                sandbox,
                guard,
            };
            report.step.push(measure_step(&project, shape, runs)?);
            sandbox.check_used(&project)?;
        }
    }
    Ok(())
}

/// `select` and `validate` by turns with the bare parse.
fn measure_reading(project: &BenchProject, runs: usize) -> TaskResult<BenchReading> {
    let tree = project.path(".runner/state/tree.json");
    let parse = probe(
        project,
        [release_bin("xtask").into(), "__parse".into(), tree.into()],
    );
    let runner = |word: &str| {
        let dir = project.dir.clone();
        let runner = release_bin("runner").into();
        probe(project, [runner, "-C".into(), dir.into(), word.into()])
    };
    let probes = [parse, runner("select"), runner("validate")];
    let mut turns = [&probes[0], &probes[1], &probes[2]].map(|probe| || probe.measure());
    let [parse, select, validate] = by_turns(runs, &mut turns)?;
    Ok(BenchReading {
        parse: parse.medians(),
        select: select.medians(),
        validate: validate.medians(),
        ..BenchReading::default()
    })
}

/// One `step` by turns with its floor and with bare git, each in a project of
/// its own that grows by the same commits.
fn measure_step(project: &BenchProject, shape: StepShape, runs: usize) -> TaskResult<BenchStep> {
    let floor_copy = project.copy("floor")?;
    let bare_copy = project.copy("bare")?;
    FloorPlaces::make(&floor_copy)?;
    let bin = project.dir.with_file_name("bin");
    shape.sandbox.programs(&bin)?;
    let runner = release_bin("runner").into();
    let dir = project.dir.clone();
    // The same PATH for all: a long one makes every start a little slower.
    let path = Some(bin.into_os_string());
    let step = BenchProbe {
        path: path.clone(),
        ..probe(project, [runner, "-C".into(), dir.into(), "step".into()])
    };
    let dir = floor_copy.dir.clone();
    let (sandbox, guard) = (shape.sandbox.as_str(), shape.guard.as_str());
    let argv = [
        release_bin("xtask").into(),
        "__floor".into(),
        dir.into(),
        sandbox.into(),
        guard.into(),
    ];
    let floor = BenchProbe {
        path: path.clone(),
        ..probe(&floor_copy, argv)
    };
    let argv = ["sh".into(), "-c".into(), floor::BARE_GIT.into()];
    let bare = BenchProbe {
        path,
        ..probe(&bare_copy, argv)
    };
    let mut iter = 0;
    let mut turns: [Box<dyn FnMut() -> TaskResult<BenchSample> + '_>; 3] = [
        Box::new(|| step.measure()),
        Box::new(|| floor.measure()),
        Box::new(|| {
            iter += 1;
            floor::change(&bare_copy.dir, iter)?;
            bare.measure()
        }),
    ];
    let [step, floor, bare] = by_turns(runs, &mut turns)?;
    Ok(BenchStep {
        runner: step.medians(),
        floor: floor.medians(),
        bare_git: bare.medians(),
        // Whoever is traced cannot gain the rights that bubblewrap may need.
        programs: match shape.sandbox {
            BenchSandbox::Off => count_programs(project)?,
            BenchSandbox::Landlock | BenchSandbox::Bubblewrap => Vec::new(),
        },
        shape,
    })
}

/// The programs that one step starts, git's own helpers included.
fn count_programs(project: &BenchProject) -> TaskResult<Vec<String>> {
    let trace = project.dir.with_file_name("strace.log");
    let step: ToolCommand = project
        .command("strace")
        .words("-f -qq -e trace=execve -o")
        .arg(&trace)
        .arg(release_bin("runner"))
        .arg("step")
        .hint("strace needs the right to trace: not every container gives it");
    step.stdout()?;
    let text = fs::read_to_string(&trace).context("the trace")?;
    Ok(project::started_programs(&text))
}

pub(super) fn probe<const N: usize>(project: &BenchProject, argv: [OsString; N]) -> BenchProbe {
    BenchProbe {
        argv: argv.into(),
        dir: project.dir.clone(),
        home: project.home.clone(),
        path: None,
    }
}
