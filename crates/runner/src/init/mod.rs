//! Making a `.runner/`.

use std::path::{Path, PathBuf};

use runner_core::config::{BackendKind, Config};
use runner_core::goal;
use runner_core::paths;
use runner_core::run_state::RunState;
use runner_core::schema;
use runner_core::tree::{self, Node};

use crate::error::{Error, ErrorCode, Result};
use crate::files::{self, FileBatch};
use crate::lock::ProjectLock;
use crate::programs;
use crate::project::Project;

mod choice;
mod detect;
mod earlier;
mod first_try;
mod guard_files;
mod guard_recipes;
mod guard_settings;
mod guard_tools;
pub(crate) mod guard_words;
mod keep;
mod package;
mod product_modules;
mod python;
mod script_imports;
mod setup;
mod watched_files;

use choice::InitChoice;
pub use first_try::{InitTrial, InitTrialEnd, OfflineTrial, try_out};
pub(crate) use script_imports::python_names;

const GITIGNORE: &str = "iterations/\ncontext/\nfleet/\n*.runner-tmp\n";
const GITATTRIBUTES: &str = "* -text !eol -ident -filter !working-tree-encoding -diff\n";

/// What the caller asks for.
#[derive(Clone, Debug, Default)]
pub struct InitOptions {
    /// Replace what is there.
    pub force: bool,
    /// Bring the runner's own files up to date and add what is missing.
    pub upgrade: bool,
    /// The guard, as one shell-like line.
    pub guard: Option<String>,
    /// The agent backend.
    pub backend: Option<String>,
    /// What shall be true in the end: the text of GOAL.md.
    pub goal: Option<String>,
}

/// What was done, and what was chosen and why.
#[derive(Clone, Debug, PartialEq)]
pub struct InitReport {
    /// The project's root.
    pub root: PathBuf,
    /// Files that were written.
    pub written: Vec<String>,
    /// Where replaced files were kept.
    pub replaced: Option<String>,
    /// What makes a fresh checkout ready, and why that was chosen (not in an upgrade, nor where
    /// nothing is needed).
    pub setup: Option<(Vec<String>, String)>,
    /// Globs of ignored files that checkouts get as copies (not in an upgrade).
    pub include: Vec<String>,
    /// The guard's argv and why it was chosen (not in an upgrade).
    pub guard: Option<(Vec<String>, String)>,
    /// Globs of build outputs that stay from one verdict to the next.
    pub keep: Vec<String>,
    /// The backend and why it was chosen (not in an upgrade).
    pub backend: Option<(String, String)>,
    /// Globs that the agent may not change.
    pub protected: Vec<String>,
    /// Values inside files that the agent may not change.
    pub protected_values: Vec<String>,
    /// Globs whose changes are pointed out.
    pub watched: Vec<String>,
    /// Globs of files that are tests.
    pub tests: Vec<String>,
    /// The guard's program, where it is not installed.
    pub missing: Option<String>,
    /// What is wrong where the agent cannot be started.
    pub missing_agent: Option<String>,
    /// Whether a person has yet to name the agent's program.
    pub needs_command: bool,
    /// Whether GOAL.md says something already.
    pub has_goal: bool,
    /// The run whose config and INSTRUCTIONS.md were taken.
    pub config_from: Option<String>,
    /// What a person should know besides.
    pub notes: Vec<String>,
    /// The config, for a first try.
    config: Config,
}

/// Creates `.runner/` at the root of the git work tree that `start` is in.
pub fn init(start: &Path, options: &InitOptions) -> Result<InitReport> {
    let project = Project::of_work_tree(start)?;
    let root = project.root().to_owned();
    let exists = project.runner_dir().join("state").exists() || project.goal().exists();
    if exists && !options.force && !options.upgrade {
        return Err(Error::new(
            ErrorCode::Layout,
            format!("{} exists already", project.runner_dir().display()),
        )
        .hint(
            "for another goal with this config change .runner/GOAL.md, remove its `id` line and run \
             `runner start`; `runner init --upgrade` renews the runner's own files, `--force` replaces \
             everything",
        ));
    }
    // Not while a step runs: it would take the new files for the agent's doing.
    let _lock = exists.then(|| ProjectLock::take(&project)).transpose()?;
    // Where there is no config, the one of the last run is a better guess than any.
    let chosen_anew = options.guard.is_some() || options.backend.is_some() || options.force;
    let earlier = (!exists && !chosen_anew)
        .then(|| earlier::find(&project))
        .flatten();
    let choice = match &earlier {
        Some(earlier) => InitChoice::of_run(earlier),
        None => InitChoice::of_project(&root, start, options)?,
    };
    let missing = choice.missing_program(&root);
    let written = Config::parse(&String::from_utf8_lossy(&choice.text)).ok();
    // A command that is not named yet makes no config that can be read.
    let needs_command = !options.upgrade && written.is_none() && choice.backend.0 == "command";
    let missing_agent = written
        .filter(|_| !options.upgrade)
        .and_then(|config| programs::missing_agent_in_words(&config, &root));
    let mut files = first_files(choice.text, goal_text(options.goal.as_deref())?);
    let instructions = earlier.as_ref().and_then(|it| it.instructions.clone());
    files.extend(instructions.map(|text| (paths::INSTRUCTIONS, text, InitFileKind::Yours)));

    let mut report = InitReport {
        root: root.clone(),
        written: Vec::new(),
        replaced: None,
        missing,
        setup: Some(choice.setup).filter(|(argv, _)| !options.upgrade && !argv.is_empty()),
        include: Some(choice.include)
            .filter(|_| !options.upgrade)
            .unwrap_or_default(),
        guard: (!options.upgrade).then_some(choice.guard),
        keep: choice.keep,
        backend: (!options.upgrade).then_some(choice.backend),
        protected: choice.protected,
        protected_values: choice.protected_values,
        watched: choice.watched,
        tests: choice.tests,
        missing_agent,
        needs_command,
        has_goal: options.goal.is_some(),
        config_from: earlier.map(|earlier| earlier.run_id),
        notes: choice.notes,
        config: choice.config,
    };
    files::make_folder(&root.join(".runner/state"))?;
    files::make_local_folder(&project.iterations())?;
    let mut batch = FileBatch::new();
    for (path, bytes, kind) in files {
        let full = root.join(path);
        let there = std::fs::read(&full).ok();
        let keep = match there {
            Some(ref old) if *old == bytes => true,
            Some(_) => options.upgrade && kind == InitFileKind::Yours,
            None => false,
        };
        if keep {
            continue;
        }
        if let Some(old) = there.filter(|old| options.force && !old.is_empty()) {
            let folder = keep_folder(&project, &mut report)?;
            let name = Path::new(path).file_name().unwrap_or_default();
            files::write_whole(&folder.join(name), &old)?;
        }
        batch.write(&full, &bytes)?;
        report.written.push(path.to_owned());
    }
    batch.commit()?;
    Ok(report)
}

/// What `init` would choose for a project that has no config, with the reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitGuess {
    /// The text of the config.
    pub config: String,
    /// The guard's argv and why it was chosen.
    pub guard: (Vec<String>, String),
    /// The backend and why it was chosen.
    pub backend: (String, String),
    /// The guard's program, where it is not installed.
    pub missing: Option<String>,
}

/// Finds out what `init` would; nothing is written.
pub fn guess(root: &Path) -> Result<InitGuess> {
    let choice = InitChoice::of_project(root, root, &InitOptions::default())?;
    Ok(InitGuess {
        config: String::from_utf8_lossy(&choice.text).into_owned(),
        missing: choice.missing_program(root),
        guard: choice.guard,
        backend: choice.backend,
    })
}

/// The files of a `.runner/` in which no run has begun.
fn first_files(config: Vec<u8>, goal: Vec<u8>) -> Vec<(&'static str, Vec<u8>, InitFileKind)> {
    let max_attempts = Config::default().max_attempts_default;
    let root_node = Node::leaf(
        "root",
        "The goal",
        "What .runner/GOAL.md says.",
        max_attempts,
    );
    vec![
        (paths::GITIGNORE, GITIGNORE.into(), InitFileKind::Ours),
        (
            paths::GITATTRIBUTES,
            GITATTRIBUTES.into(),
            InitFileKind::Ours,
        ),
        (paths::TREE_SCHEMA, schema::TREE.into(), InitFileKind::Ours),
        (
            paths::AGENT_OUTPUT_SCHEMA,
            schema::AGENT_OUTPUT.into(),
            InitFileKind::Ours,
        ),
        (paths::CONFIG, config, InitFileKind::Yours),
        (paths::GOAL, goal, InitFileKind::Yours),
        (paths::TREE, tree::to_bytes(&root_node), InitFileKind::Yours),
        (
            paths::RUN_STATE,
            RunState::new(None).to_bytes(),
            InitFileKind::Yours,
        ),
        (paths::ASSUMPTIONS, Vec::new(), InitFileKind::Yours),
        (paths::QUESTIONS, Vec::new(), InitFileKind::Yours),
    ]
}

/// A fresh `.runner/` in place of whatever lies there, for a run with this config and goal.
pub(crate) fn lay_down(
    project: &Project,
    config: &str,
    goal: &str,
    instructions: Option<Vec<u8>>,
) -> Result<()> {
    files::remove_if_there(&project.runner_dir())?;
    files::make_folder(&project.state(""))?;
    files::make_local_folder(&project.iterations())?;
    let mut files = first_files(config.into(), goal.into());
    files.extend(instructions.map(|text| (paths::INSTRUCTIONS, text, InitFileKind::Yours)));
    let mut batch = FileBatch::new();
    for (path, bytes, _) in files {
        batch.write(&project.root().join(path), &bytes)?;
    }
    Ok(batch.commit()?)
}

/// Who a file belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InitFileKind {
    /// The runner's: the same in every project.
    Ours,
    /// The project's.
    Yours,
}

/// The folder under `iterations/` where replaced files are kept.
fn keep_folder(project: &Project, report: &mut InitReport) -> Result<PathBuf> {
    if let Some(folder) = &report.replaced {
        return Ok(project.root().join(folder));
    }
    let (name, folder) = new_replaced_folder(project)?;
    report.replaced = Some(name);
    Ok(folder)
}

/// A new folder for files that were in the way: its name from the root, and its path.
pub(crate) fn new_replaced_folder(project: &Project) -> Result<(String, PathBuf)> {
    let mut number = 1;
    loop {
        let name = format!("{}/replaced-{number}", paths::ITERATIONS_DIR);
        let folder = project.root().join(&name);
        if !folder.exists() {
            files::make_folder(&folder)?;
            return Ok((name, folder));
        }
        number += 1;
    }
}

/// GOAL.md with these words: the first line is the title.
fn goal_text(words: Option<&str>) -> Result<Vec<u8>> {
    let Some(words) = words else {
        return Ok(goal::TEMPLATE.into());
    };
    let words = words.trim();
    if words.is_empty() {
        return Err(Error::new(ErrorCode::Config, "--goal says nothing")
            .hint("for example: --goal 'The parser accepts comments'"));
    }
    let heading = if words.starts_with('#') { "" } else { "# " };
    let text = match words.split_once('\n') {
        Some((title, rest)) => format!("{heading}{title}\n\n{}\n", rest.trim()),
        None => format!("{heading}{words}\n"),
    };
    Ok(text.into_bytes())
}

fn parse_backend(name: &str) -> Result<BackendKind> {
    BackendKind::from_word(name).ok_or_else(|| {
        let known: Vec<&str> = BackendKind::ALL
            .iter()
            .map(|backend| backend.as_str())
            .collect();
        Error::new(ErrorCode::Config, format!("there is no backend {name:?}"))
            .hint(format!("one of {}", known.join(", ")))
    })
}

/// The guard that fits what lies in a folder, and why; `None` where nothing tells how it is checked.
pub fn detect_guard(root: &Path) -> Option<(Vec<String>, String)> {
    detect::found(root)
}

/// Splits a command line at spaces; quotes keep words together.
pub fn split_words(line: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if quote.is_some() || words.first().is_none_or(String::is_empty) {
        return Err(
            Error::new(ErrorCode::Config, format!("{line:?} is not a command line"))
                .hint("for example: 'cargo test'"),
        );
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        for (line, expected) in [
            ("just ci", Some(vec!["just", "ci"])),
            ("  sh -c 'a \"b\" c'  ", Some(vec!["sh", "-c", "a \"b\" c"])),
            ("x ''", Some(vec!["x", ""])),
            ("", None),
            ("'", None),
            ("'' x", None),
        ] {
            let words = split_words(line).ok();
            let words = words
                .as_ref()
                .map(|w| w.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(words, expected, "{line:?}");
        }
    }
}
