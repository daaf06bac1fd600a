//! What `init` chooses for a project, with the reasons.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use runner_core::config::{self, BackendKind, Config, NewProject};

use super::guard_files::{GuardedFiles, guard_files};
use super::guard_tools::PACKAGES;
use super::setup::{SetupGuess, SetupInput};
use super::{
    InitOptions, detect, earlier, keep, package, parse_backend, setup, split_words, watched_files,
};
use crate::error::Result;
use crate::git::{Git, split_nul, to_path};
use crate::step::containment::Containment;

/// The config, and its most important parts with the reasons for them.
pub(super) struct InitChoice {
    pub(super) setup: (Vec<String>, String),
    pub(super) include: Vec<String>,
    pub(super) guard: (Vec<String>, String),
    pub(super) keep: Vec<String>,
    pub(super) backend: (String, String),
    pub(super) protected: Vec<String>,
    pub(super) protected_values: Vec<String>,
    pub(super) watched: Vec<String>,
    pub(super) tests: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) config: Config,
    /// The file.
    pub(super) text: Vec<u8>,
}

/// A guard that was found, and the folder of the package that it checks, from the root.
struct FoundGuard {
    folder: PathBuf,
    argv: Vec<String>,
    why: String,
    is_guessed: bool,
}

impl InitChoice {
    /// What an earlier run has.
    pub(super) fn of_run(earlier: &earlier::EarlierRun) -> Self {
        let why = format!("as in run {}", earlier.run_id);
        let config = earlier.config.clone();
        let backend = config.executor.backend.as_str().to_owned();
        InitChoice {
            setup: (config.workspace.setup.clone(), why.clone()),
            include: config.workspace.include.clone(),
            guard: (config.guard.command.clone(), why.clone()),
            keep: config.guard.keep.clone(),
            backend: (backend, why),
            protected: config.guard.protected.clone(),
            protected_values: config.guard.protected_values.clone(),
            watched: config.guard.watched.clone(),
            tests: config.guard.tests.clone(),
            notes: Vec::new(),
            config,
            text: earlier.text.clone().into_bytes(),
        }
    }

    /// The guard's program, where it is not there and setup does not make it.
    pub(super) fn missing_program(&self, root: &Path) -> Option<String> {
        let program = detect::program(&self.guard.0)?;
        let is_made = program.contains('/') && !self.setup.0.is_empty();
        (!is_made && !detect::is_there(root, program)).then(|| program.to_owned())
    }

    /// What was asked for, else what the project looks like, from where `init` was called.
    pub(super) fn of_project(root: &Path, start: &Path, options: &InitOptions) -> Result<Self> {
        let git = Git::open(root).ok();
        let found = find_guard(root, start, git.as_ref(), options)?;
        let (backend, backend_why) = match &options.backend {
            Some(name) => (parse_backend(name)?, "as you said".to_owned()),
            None => detect::backend(|program| detect::is_there(root, program)),
        };
        let input = SetupInput {
            root,
            git: git.as_ref(),
            folder: &found.folder,
            guard: &found.argv,
            may_change_guard: found.is_guessed,
            has_mounts: has_mounts(),
        };
        let SetupGuess {
            setup: (setup, setup_why),
            include,
            guard: through_environment,
            notes,
        } = setup::propose(&input);
        let keep = keep::guess(&input);
        let own = through_environment.as_ref().unwrap_or(&found.argv);
        // A guard that was asked for is started from the root.
        let guard = if found.is_guessed {
            package::in_folder(&found.folder, own)
        } else {
            own.clone()
        };
        let guards = if found.is_guessed {
            found.folder.as_path()
        } else {
            Path::new("")
        };
        let read = |path: &str| std::fs::read_to_string(root.join(guards).join(path)).ok();
        let tracked = git.as_ref().map(|git| files_below(git, guards));
        let tracked = tracked.unwrap_or_default();
        let asked = GuardedFiles {
            read: &read,
            is_there: &|path| root.join(guards).join(path).exists(),
            has_modules: git.as_ref().is_some_and(|git| has_go_modules(git, guards)),
            tracked: &tracked,
        };
        let mut files = guard_files(&found.argv, &setup, &asked);
        // What setup makes there would count as made by every session.
        if !setup.is_empty()
            && !git
                .as_ref()
                .is_some_and(|git| ignores_packages(git, guards))
        {
            files.protected.retain(|glob| glob != PACKAGES);
        }
        let protected = below(guards, files.protected);
        let protected_values = below(guards, files.values);
        let mut watched = below(
            &found.folder,
            watched_files::watched(&root.join(&found.folder)),
        );
        let mut tests = watched_files::tests_of(&watched);
        let others = below(guards, watched_files::other_tests(&tracked));
        for glob in others {
            for list in [&mut watched, &mut tests] {
                if !list.contains(&glob) {
                    list.push(glob.clone());
                }
            }
        }
        let project = NewProject {
            setup: &setup,
            include: &include,
            guard: &guard,
            protected: &protected,
            protected_values: &protected_values,
            watched: &watched,
            tests: &tests,
            keep: &keep,
            backend,
            command: &[],
            guard_network: "open",
        };
        let text = config::template(project);
        // The agent's command may be missing yet; for a first try it is not needed.
        let for_try = NewProject {
            backend: BackendKind::Codex,
            ..project
        };
        let config = Config::parse(&config::template(for_try)).unwrap_or_default();
        Ok(InitChoice {
            setup: (setup, setup_why),
            include,
            guard: (guard, found.why),
            keep,
            backend: (backend.as_str().to_owned(), backend_why),
            protected,
            protected_values,
            watched,
            tests,
            notes,
            config,
            text: text.into_bytes(),
        })
    }
}

/// Whether git ignores what package managers of Node.js install in a folder.
fn ignores_packages(git: &Git, folder: &Path) -> bool {
    let path = folder.join("node_modules/x");
    let args = [
        OsStr::new("check-ignore"),
        OsStr::new("--quiet"),
        path.as_os_str(),
    ];
    matches!(git.ask(&args), Ok(Some(_)))
}

/// The files below a folder that are in the project, or may come into it.
fn files_below(git: &Git, folder: &Path) -> Vec<String> {
    let args = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let listed = git.read(&args).unwrap_or_default();
    let paths = split_nul(&listed).map(to_path);
    paths
        .filter_map(|path| Some(path.strip_prefix(folder).ok()?.to_str()?.to_owned()))
        .collect()
}

/// Whether folders below this one have a go.mod of their own.
fn has_go_modules(git: &Git, folder: &Path) -> bool {
    let files = git.files_of("HEAD").unwrap_or_default();
    files.iter().any(|entry| {
        let inside = entry.path.strip_prefix(folder).ok();
        inside.is_some_and(|path| path.ends_with("go.mod") && path.components().count() > 1)
    })
}

/// The guard that was asked for, that of the package that `start` is in, that of the root, or
/// that of the only package below it.
fn find_guard(
    root: &Path,
    start: &Path,
    git: Option<&Git>,
    options: &InitOptions,
) -> Result<FoundGuard> {
    let around = package::around(root, start);
    if let Some(line) = &options.guard {
        return Ok(FoundGuard {
            folder: around.unwrap_or_default(),
            argv: split_words(line)?,
            why: "as you said".to_owned(),
            is_guessed: false,
        });
    }
    let in_folder = |folder: PathBuf| {
        let (argv, why) = detect::found(&root.join(&folder))?;
        let argv = as_locked(root, &folder, argv);
        let why = if folder.as_os_str().is_empty() {
            why
        } else {
            format!("in {}: {why}", folder.display())
        };
        Some(FoundGuard {
            folder,
            argv,
            why,
            is_guessed: true,
        })
    };
    let here = around
        .and_then(in_folder)
        .or_else(|| in_folder(PathBuf::new()));
    let found = here.or_else(|| {
        // Where the root says nothing, and only one package below it does.
        let below = git.filter(|_| !package::is_package(root));
        let folders = below.map(package::tracked).unwrap_or_default();
        let mut guards = folders.into_iter().filter_map(in_folder);
        let only = guards.next()?;
        guards.next().is_none().then_some(only)
    });
    Ok(found.unwrap_or_else(|| {
        let (argv, why) = detect::guard(root, |program| detect::is_there(root, program));
        FoundGuard {
            folder: PathBuf::new(),
            argv,
            why,
            is_guessed: true,
        }
    }))
}

/// A guard of a package whose lock file lies in a folder above it: started by what wrote that.
fn as_locked(root: &Path, folder: &Path, argv: Vec<String>) -> Vec<String> {
    detect::by_manager(argv, |name| {
        let mut above = folder.ancestors().skip(1);
        above.any(|above| root.join(above).join(name).is_file())
    })
}

/// Globs of a package as they are from the root.
fn below(folder: &Path, globs: Vec<String>) -> Vec<String> {
    if folder.as_os_str().is_empty() {
        return globs;
    }
    let globs = globs.iter().map(|glob| folder.join(glob));
    globs.map(|glob| glob.display().to_string()).collect()
}

/// Whether children see their checkout at the project's own path here.
fn has_mounts() -> bool {
    Containment::choose(&Config::default()).is_ok_and(|it| it.has_mounts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_below_a_lock_file() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (lock, line, expected) in [
            ("pnpm-lock.yaml", "npm test", "pnpm test"),
            ("yarn.lock", "npm test", "yarn test"),
            ("package-lock.json", "npm test", "npm test"),
            ("uv.lock", "python3 -m pytest", "uv run pytest"),
            ("poetry.lock", "python3 -m pytest", "poetry run pytest"),
            (
                "Pipfile.lock",
                "python3 -m unittest",
                "env PIPENV_VENV_IN_PROJECT=1 pipenv run python -m unittest",
            ),
            ("bun.lock", "npm test", "bun run test"),
            ("uv.lock", "make test", "make test"),
        ] {
            let root = tempfile::tempdir().unwrap();
            std::fs::write(root.path().join(lock), "").unwrap();
            let below = as_locked(root.path(), Path::new("packages/a"), words(line));
            assert_eq!(below.join(" "), expected, "{lock}");
            let here = as_locked(root.path(), Path::new(""), words(line));
            assert_eq!(here.join(" "), line, "{lock}");
        }
    }
}
