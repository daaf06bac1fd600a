//! How a project makes what its checkouts lack: by its lock files, by lists of requirements, or
//! as a copy of what is installed in the user's checkout.

use std::path::{Path, PathBuf};

use super::package::{self, in_folder};
use super::python;
use crate::files;
use crate::git::{Git, split_nul, to_path};

/// A lock file, and the command that installs what it says.
struct LockFile {
    name: &'static str,
    command: &'static str,
}

const LOCK_FILES: &[LockFile] = &[
    LockFile {
        name: "package-lock.json",
        command: "npm ci",
    },
    LockFile {
        name: "npm-shrinkwrap.json",
        command: "npm ci",
    },
    LockFile {
        name: "pnpm-lock.yaml",
        command: "pnpm install --frozen-lockfile",
    },
    LockFile {
        name: "yarn.lock",
        command: "yarn install --immutable",
    },
    LockFile {
        name: "bun.lock",
        command: "bun install --frozen-lockfile",
    },
    LockFile {
        name: "bun.lockb",
        command: "bun install --frozen-lockfile",
    },
    LockFile {
        name: "uv.lock",
        command: "uv sync --frozen",
    },
    // The environment belongs into the checkout: elsewhere each would leave one behind.
    LockFile {
        name: "poetry.lock",
        command: "env POETRY_VIRTUALENVS_IN_PROJECT=true poetry install --no-interaction",
    },
    LockFile {
        name: "Pipfile.lock",
        command: "env PIPENV_VENV_IN_PROJECT=1 pipenv sync --dev",
    },
    LockFile {
        name: "Gemfile.lock",
        command: "bundle install",
    },
    LockFile {
        name: "go.sum",
        command: "go mod download",
    },
    LockFile {
        name: "composer.lock",
        command: "composer install --no-interaction",
    },
];

/// What is installed beside a manifest, and the lock files that could make it again.
const INSTALLED: &[(&str, &str, &[&str])] = &[
    (
        "package.json",
        "node_modules",
        &[
            "package-lock.json",
            "npm-shrinkwrap.json",
            "pnpm-lock.yaml",
            "yarn.lock",
            "bun.lock",
            "bun.lockb",
        ],
    ),
    ("composer.json", "vendor", &["composer.lock"]),
    ("Gemfile", "vendor/bundle", &["Gemfile.lock"]),
];

/// Tools that fetch while they build, where no lock file asks for a setup: the manifest, its lock file,
/// and what fetches with and without it.
const FETCHES: &[(&str, &str, &str, &str)] = &[
    (
        "Cargo.toml",
        "Cargo.lock",
        "cargo fetch --locked",
        "cargo fetch",
    ),
    ("go.mod", "go.sum", "go mod download", "go mod download"),
];

/// What fetches the dependencies of a project for a guard that has no network.
pub(super) fn fetch_command(git: &Git) -> Option<&'static str> {
    let is_tracked = |name: &str| {
        let args = ["ls-files", "--error-unmatch", "--", name];
        git.ask(&args).is_ok_and(|found| found.is_some())
    };
    let (_, lock, with, without) = FETCHES.iter().find(|(manifest, ..)| is_tracked(manifest))?;
    Some(if is_tracked(lock) { with } else { without })
}

/// Larger ones are not looked into.
const MAX_LOCK_BYTES: u64 = 64 << 20;

/// What the first versions of yarn call the same.
const YARN_CLASSIC: &str = "yarn install --frozen-lockfile";

/// So many packages are set up by one command.
const MAX_PACKAGES: usize = 8;

/// What is proposed for the checkouts of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SetupGuess {
    /// The argv and the reason; empty where nothing asks for it.
    pub(super) setup: (Vec<String>, String),
    /// Globs of what is copied.
    pub(super) include: Vec<String>,
    /// The guard through the environment that setup makes, where it was another.
    pub(super) guard: Option<Vec<String>>,
    /// What a person should know.
    pub(super) notes: Vec<String>,
}

/// A project that a setup is looked for.
pub(super) struct SetupInput<'a> {
    /// The root of the work tree.
    pub(super) root: &'a Path,
    /// The repository, where it can be asked.
    pub(super) git: Option<&'a Git>,
    /// The folder of the package that the guard checks, from the root.
    pub(super) folder: &'a Path,
    /// The guard, as it is started in that folder.
    pub(super) guard: &'a [String],
    /// Whether the guard may be changed: it was guessed, too.
    pub(super) may_change_guard: bool,
    /// Whether checkouts are seen at the project's own path.
    pub(super) has_mounts: bool,
}

impl SetupInput<'_> {
    /// Whether git ignores what would lie at this path.
    pub(super) fn is_ignored(&self, path: &Path) -> bool {
        let asked = [path.to_owned(), path.join("x")].map(PathBuf::into_os_string);
        self.git.is_some_and(|git| {
            asked.iter().any(|path| {
                let args = [
                    "check-ignore".as_ref(),
                    "-q".as_ref(),
                    "--".as_ref(),
                    path.as_os_str(),
                ];
                git.ask::<&std::ffi::OsStr>(&args)
                    .is_ok_and(|found| found.is_some())
            })
        })
    }

    /// Those of these files that lie in a folder and will be in its commits.
    fn committed(&self, folder: &Path, names: &[&'static str]) -> Vec<&'static str> {
        let is_there = |name: &&str| self.root.join(folder).join(name).is_file();
        let mut there: Vec<&str> = names.iter().copied().filter(is_there).collect();
        if let (false, Some(git)) = (there.is_empty(), self.git) {
            let mut asked = Vec::new();
            for name in &there {
                asked.extend(folder.join(name).into_os_string().into_encoded_bytes());
                asked.push(0);
            }
            let ignored = git.ask_with(&["check-ignore", "-z", "--stdin"], &asked);
            let ignored = ignored.ok().flatten().unwrap_or_default();
            let ignored: Vec<PathBuf> = split_nul(&ignored).map(to_path).collect();
            there.retain(|name| !ignored.contains(&folder.join(name)));
        }
        there
    }
}

/// What the project's files ask for.
pub(super) fn propose(input: &SetupInput<'_>) -> SetupGuess {
    let mut guess = SetupGuess::default();
    let (mut commands, mut reasons) = (Vec::new(), Vec::new());
    for folder in locked_folders(input) {
        let (lines, names) = by_locks(input, &folder, &mut guess.notes);
        let prefixed = names
            .iter()
            .map(|name| folder.join(name).display().to_string());
        reasons.extend(prefixed);
        commands.extend(lines.into_iter().map(|line| (folder.clone(), line)));
    }
    if let Some(found) = python::propose(input) {
        guess.guard = found.guard;
        guess.notes.extend(found.note);
        guess.include.extend(found.include);
        if let Some((line, why)) = found.setup {
            commands.push((input.folder.to_owned(), line));
            reasons.push(why);
        }
    }
    for (manifest, installed, locks) in INSTALLED {
        let path = input.folder.join(installed);
        if !input.committed(input.folder, &[manifest]).is_empty()
            && input.root.join(&path).is_dir()
            && nearest_with(input, locks).is_none()
            && input.is_ignored(&path)
        {
            guess.include.push(path.display().to_string());
        }
    }
    guess.setup = (
        as_argv(&commands),
        match reasons.as_slice() {
            [] => "no lock file asks for one".to_owned(),
            names => format!("by {}", names.join(", ")),
        },
    );
    guess
}

/// The folders whose lock files are used: that of the package or the first above it that has one,
/// else, where the root has no package of its own, all of those below it.
fn locked_folders(input: &SetupInput<'_>) -> Vec<PathBuf> {
    let names: Vec<&str> = LOCK_FILES.iter().map(|lock| lock.name).collect();
    if let Some(folder) = nearest_with(input, &names) {
        return vec![folder];
    }
    let is_root = input.folder.as_os_str().is_empty();
    let git = input
        .git
        .filter(|_| is_root && !package::is_package(input.root));
    let below = git.map(package::tracked).unwrap_or_default();
    let is_locked = |folder: &PathBuf| !input.committed(folder, &names).is_empty();
    below
        .into_iter()
        .filter(is_locked)
        .take(MAX_PACKAGES)
        .collect()
}

/// The folder of the package, or the first above it, with one of these files.
fn nearest_with(input: &SetupInput<'_>, names: &[&'static str]) -> Option<PathBuf> {
    let mut folders = input.folder.ancestors();
    let found = folders.find(|folder| !input.committed(folder, names).is_empty());
    found.map(Path::to_owned)
}

/// The commands that the lock files in a folder ask for, and their names.
fn by_locks(
    input: &SetupInput<'_>,
    folder: &Path,
    notes: &mut Vec<String>,
) -> (Vec<String>, Vec<&'static str>) {
    let all: Vec<&str> = LOCK_FILES.iter().map(|lock| lock.name).collect();
    let names = input.committed(folder, &all);
    let mut commands: Vec<String> = Vec::new();
    for lock in LOCK_FILES.iter().filter(|lock| names.contains(&lock.name)) {
        let path = input.root.join(folder).join(lock.name);
        let bytes = files::read_regular(&path, MAX_LOCK_BYTES).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let command = match lock.name {
            "yarn.lock" if !text.contains("__metadata:") => YARN_CLASSIC.to_owned(),
            "Gemfile.lock" => by_bundler(input, folder, lock.command, notes),
            _ => lock.command.to_owned(),
        };
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    (commands, names)
}

/// Gems belong into the checkout: the folders of the system and of the user's Ruby cannot be
/// written to in a sandbox. A file beside them says where they are, so that the agent's and the
/// guard's own calls find them, and git must see neither.
fn by_bundler(
    input: &SetupInput<'_>,
    folder: &Path,
    install: &str,
    notes: &mut Vec<String>,
) -> String {
    let is_ignored = |path: &str| input.is_ignored(&folder.join(path));
    let settings = ".bundle/config";
    if is_ignored(settings) {
        let places = ["vendor/bundle", ".bundle/gems"];
        let place = places.into_iter().find(|place| is_ignored(place));
        if let Some(place) = place {
            return format!("bundle config set --local path {place} && {install}");
        }
    } else if !input.root.join(folder).join(settings).is_file() {
        let path = folder.join(".bundle");
        notes.push(format!(
            "add {}/ to .gitignore and run `runner init --force` for a setup that installs the gems there",
            path.display()
        ));
    }
    install.to_owned()
}

/// One command of several lines, each for the package in a folder.
fn as_argv(commands: &[(PathBuf, String)]) -> Vec<String> {
    let words = |line: &str| -> Vec<String> {
        if line.contains("&&") {
            return vec!["sh".to_owned(), "-c".to_owned(), line.to_owned()];
        }
        line.split(' ').map(str::to_owned).collect()
    };
    match commands {
        [] => Vec::new(),
        [(folder, line)] => in_folder(folder, &words(line)),
        several => {
            let lines = several.iter().map(|(folder, line)| {
                if folder.as_os_str().is_empty() {
                    return line.clone();
                }
                let argv = in_folder(folder, &words(line));
                // Each from the root again.
                format!("({})", argv.last().map_or("", String::as_str))
            });
            let script: Vec<String> = lines.collect();
            vec!["sh".to_owned(), "-c".to_owned(), script.join(" && ")]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], folder: &str, expected: &str) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        Git::init(root).unwrap();
        for (name, text) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let git = Git::open(root).unwrap();
        git.write(&["add", "--all"]).unwrap();
        let guess = propose(&SetupInput {
            root,
            git: Some(&git),
            folder: Path::new(folder),
            guard: &["true".to_owned()],
            may_change_guard: false,
            has_mounts: false,
        });
        let (argv, why) = guess.setup;
        let mut found = format!("{why}: {}", argv.join(" "));
        if !guess.include.is_empty() {
            found = format!("{found}; include {}", guess.include.join(" "));
        }
        assert_eq!(found, expected, "{files:?}");
    }

    #[test]
    fn setups_by_lock_files() {
        check(&[], "", "no lock file asks for one: ");
        check(&[("Cargo.lock", "")], "", "no lock file asks for one: ");
        check(
            &[("package-lock.json", "{}")],
            "",
            "by package-lock.json: npm ci",
        );
        check(
            &[("package-lock.json", "{}"), ("npm-shrinkwrap.json", "{}")],
            "",
            "by package-lock.json, npm-shrinkwrap.json: npm ci",
        );
        check(
            &[("pnpm-lock.yaml", "")],
            "",
            "by pnpm-lock.yaml: pnpm install --frozen-lockfile",
        );
        check(
            &[("yarn.lock", "# yarn lockfile v1\n")],
            "",
            "by yarn.lock: yarn install --frozen-lockfile",
        );
        check(
            &[("yarn.lock", "__metadata:\n  version: 8\n")],
            "",
            "by yarn.lock: yarn install --immutable",
        );
        check(
            &[("uv.lock", ""), ("package-lock.json", "{}")],
            "",
            "by package-lock.json, uv.lock: sh -c npm ci && uv sync --frozen",
        );
        check(
            &[("poetry.lock", ""), ("pyproject.toml", "")],
            "",
            "by poetry.lock: env POETRY_VIRTUALENVS_IN_PROJECT=true poetry install --no-interaction",
        );
        check(
            &[("Gemfile.lock", "")],
            "",
            "by Gemfile.lock: bundle install",
        );
        check(
            &[("Gemfile.lock", ""), (".gitignore", "/.bundle\n")],
            "",
            "by Gemfile.lock: sh -c bundle config set --local path .bundle/gems && bundle install",
        );
        let ignored = (".gitignore", "/.bundle/\n/vendor/bundle/\n");
        check(
            &[("Gemfile.lock", ""), ignored, ("yarn.lock", "")],
            "",
            "by yarn.lock, Gemfile.lock: sh -c yarn install --frozen-lockfile && \
             bundle config set --local path vendor/bundle && bundle install",
        );
        check(&[("go.sum", "")], "", "by go.sum: go mod download");
        check(
            &[("composer.lock", "{}")],
            "",
            "by composer.lock: composer install --no-interaction",
        );
    }

    #[test]
    fn a_lock_file_that_is_never_committed_makes_nothing() {
        check(
            &[
                (".gitignore", "package-lock.json\nnode_modules/\n"),
                ("package.json", "{}"),
                ("package-lock.json", "{}"),
                ("node_modules/a/index.js", ""),
            ],
            "",
            "no lock file asks for one: ; include node_modules",
        );
        check(
            &[
                (".gitignore", "node_modules/\n"),
                ("package.json", "{}"),
                ("package-lock.json", "{}"),
                ("node_modules/a/index.js", ""),
            ],
            "",
            "by package-lock.json: npm ci",
        );
    }

    #[test]
    fn packages_in_subfolders() {
        let web = &[("web/package.json", "{}"), ("web/package-lock.json", "{}")];
        check(
            web,
            "web",
            "by web/package-lock.json: sh -c cd web && npm ci",
        );
        check(web, "", "by web/package-lock.json: sh -c cd web && npm ci");
        // The lock file of all members lies at the root.
        check(
            &[
                ("package.json", "{}"),
                ("package-lock.json", "{}"),
                ("packages/a/package.json", "{}"),
            ],
            "packages/a",
            "by package-lock.json: npm ci",
        );
        check(
            &[
                ("Makefile", "test:\n\ttrue\n"),
                ("api/go.mod", ""),
                ("api/go.sum", ""),
                ("web/package.json", "{}"),
                ("web/yarn.lock", "__metadata:\n"),
            ],
            "",
            "by api/go.sum, web/yarn.lock: sh -c (cd api && go mod download) && (cd web && yarn install --immutable)",
        );
    }
}
