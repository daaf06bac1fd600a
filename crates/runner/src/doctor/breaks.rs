//! Breaks that are planted in a throwaway checkout: a guard that stays green with a syntax error
//! in the sources cannot fail, or looks elsewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runner_core::config::Config;

use super::DoctorCheck;
use crate::checkout::CleanCheckout;
use crate::checkout::trial::{self, TrialEnd};
use crate::error::Result;
use crate::files;
use crate::git::Git;
use crate::run_context::RunContext;
use crate::step::containment::Containment;

/// What no language that is known here takes at the end of a file.
const BREAK: &str = "\n)]} planted by `runner doctor`: this is no program\n";
/// The same where text outside of a tag is fine.
const PHP_BREAK: &str = "\n<?php )]} planted by `runner doctor`\n";

/// So many breaks are planted at most, each for one run of the guard.
const MAX_BREAKS: usize = 6;

/// The largest source file that is touched.
const MAX_BYTES: u64 = 4 << 20;

/// Languages by the endings of their files.
const LANGUAGES: &[(&str, &[&str])] = &[
    ("Rust", &["rs"]),
    ("Python", &["py"]),
    ("JavaScript", &["js", "mjs", "cjs", "jsx"]),
    ("TypeScript", &["ts", "mts", "cts", "tsx"]),
    ("Go", &["go"]),
    ("Ruby", &["rb"]),
    ("PHP", &["php"]),
    ("Java", &["java"]),
    ("Kotlin", &["kt"]),
    ("C", &["c"]),
    ("C++", &["cc", "cpp", "cxx"]),
    ("C#", &["cs"]),
    ("Swift", &["swift"]),
    ("Scala", &["scala"]),
    ("Elixir", &["ex"]),
    ("Dart", &["dart"]),
];

/// Folders whose files are not what a guard proves.
const BESIDE: &[&str] = &[
    "__mocks__",
    "__tests__",
    "bench",
    "benches",
    "benchmarks",
    "build",
    "dist",
    "doc",
    "docs",
    "e2e",
    "example",
    "examples",
    "fixtures",
    "fuzz",
    "generated",
    "migrations",
    "node_modules",
    "scripts",
    "spec",
    "test",
    "testdata",
    "tests",
    "third_party",
    "tools",
    "vendor",
];

/// Folders in which sources begin.
const SOURCE_ROOTS: &[&str] = &[
    "src", "lib", "app", "pkg", "cmd", "internal", "source", "sources",
];

/// Folders that hold packages side by side.
const GROUPS: &[&str] = &[
    "apps", "crates", "libs", "modules", "packages", "projects", "services",
];

/// Stems of files that everything else goes through, the first first.
const ENTRIES: &[&str] = &[
    "lib", "__init__", "mod", "index", "main", "app", "server", "cli",
];

/// A break, and what the guard gave with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlantedBreak {
    /// The file that was broken, from the root.
    pub file: String,
    /// Its language.
    pub language: &'static str,
    /// The guard's exit code; `None` when it did not start, or not end in time.
    pub exit: Option<i32>,
}

/// A file to break.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SourceFile {
    path: String,
    language: &'static str,
}

/// Plants one break after the other in a checkout of a commit at which the guard passes.
pub(crate) fn run(
    git: &Git,
    commit: &str,
    config: &Config,
    containment: Option<&Containment>,
    context: &mut RunContext<'_>,
) -> Result<(DoctorCheck, Vec<PlantedBreak>)> {
    let entries = git.files_of(commit)?;
    let plain = entries.iter().filter(|entry| entry.mode.starts_with("100"));
    let paths: Vec<&str> = plain.filter_map(|entry| entry.path.to_str()).collect();
    let mut files = choose(&paths, &config.guard.command);
    let all = files.len();
    files.truncate(MAX_BREAKS);
    let mut planted = Vec::new();
    let budget = Duration::from_secs(config.iteration_timeout_secs);
    let began = Instant::now();
    let checkout = if files.is_empty() {
        None
    } else {
        let checkout = CleanCheckout::of(git, config, commit)?;
        let failed = trial::make_ready(&checkout, config, containment, context)?;
        failed.is_none().then_some(checkout)
    };
    for file in checkout.iter().flat_map(|_| &files) {
        let (Some(checkout), Some(left)) = (&checkout, budget.checked_sub(began.elapsed())) else {
            break;
        };
        let target = checkout.path().join(&file.path);
        // Setup or guard may have put a link there, which would lead to other files.
        if !is_real(checkout.path(), Path::new(&file.path)) {
            continue;
        }
        let Ok(bytes) = files::read_regular(&target, MAX_BYTES) else {
            continue;
        };
        let broken = [&bytes, break_for(file.language).as_bytes()].concat();
        // Another file in its place: a hard link would lead to other files, too.
        files::write_whole(&target, &broken)?;
        let command = &config.guard.command;
        let ran = trial::run(checkout, command, config, containment, left, context)?;
        if is_real(checkout.path(), Path::new(&file.path)) {
            files::write_whole(&target, &bytes)?;
        }
        planted.push(PlantedBreak {
            file: file.path.clone(),
            language: file.language,
            exit: match ran.end {
                TrialEnd::Exited(code) => Some(code),
                _ => None,
            },
        });
    }
    Ok((check(&planted, all), planted))
}

fn break_for(language: &str) -> &'static str {
    if language == "PHP" { PHP_BREAK } else { BREAK }
}

/// Whether a path of a checkout leads through folders alone to a file.
fn is_real(root: &Path, path: &Path) -> bool {
    let mut at = root.to_owned();
    let parents = path.parent().into_iter().flat_map(Path::components);
    parents.into_iter().all(|part| {
        at.push(part);
        at.symlink_metadata().is_ok_and(|meta| meta.is_dir())
    }) && root
        .join(path)
        .symlink_metadata()
        .is_ok_and(|meta| meta.is_file())
}

/// What the runs of the guard showed.
fn check(planted: &[PlantedBreak], all: usize) -> DoctorCheck {
    const NAME: &str = "guard_breaks";
    let shown = |breaks: &[&PlantedBreak]| {
        let names = breaks
            .iter()
            .map(|it| format!("{} ({})", it.file, it.language));
        names.collect::<Vec<_>>().join(", ")
    };
    let (green, red): (Vec<&PlantedBreak>, Vec<&PlantedBreak>) =
        planted.iter().partition(|it| it.exit == Some(0));
    let remedy = "let it build or test what lies there, and look whether it judges the checkout that it \
                  is started in: a guard that cannot fail proves nothing";
    if planted.is_empty() {
        return DoctorCheck::warn(
            NAME,
            "none planted: no source file of a known language is there",
            "break something by hand and look whether the guard is red: nothing else shows that it can fail",
        );
    }
    if red.is_empty() {
        let message = format!(
            "it cannot fail: it stays green with a syntax error in {}",
            shown(&green)
        );
        return DoctorCheck::fail(NAME, message, remedy);
    }
    if !green.is_empty() {
        let message = format!("it stays green with a syntax error in {}", shown(&green));
        return DoctorCheck::warn(NAME, message, remedy);
    }
    let rest = match all.saturating_sub(planted.len()) {
        0 => String::new(),
        more => format!("; {more} more source roots were not tried"),
    };
    DoctorCheck::ok(
        NAME,
        format!("a syntax error in {} turns it red{rest}", shown(&red)),
    )
}

/// One file for each language in each source root, those of the most files first.
fn choose(paths: &[&str], guard: &[String]) -> Vec<SourceFile> {
    let mut roots: BTreeMap<(String, &'static str), Vec<&str>> = BTreeMap::new();
    for path in paths {
        let is_guards = guard
            .iter()
            .any(|word| word.trim_start_matches("./") == *path);
        if let (false, Some(language)) = (is_guards, language_of(path)) {
            let files = roots.entry((root_of(path), language)).or_default();
            files.push(path);
        }
    }
    let mut chosen: Vec<(usize, SourceFile)> = roots
        .into_iter()
        .filter_map(|((_, language), files)| {
            let path = files.iter().min_by_key(|path| rank(path))?;
            let file = SourceFile {
                path: (*path).to_owned(),
                language,
            };
            Some((files.len(), file))
        })
        .collect();
    chosen.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    chosen.into_iter().map(|(_, file)| file).collect()
}

/// The smaller, the more likely it is that everything else needs the file.
fn rank(path: &str) -> (usize, usize, String) {
    let stem = Path::new(path).file_stem().unwrap_or_default();
    let entry = ENTRIES.iter().position(|entry| stem == *entry);
    let depth = path.matches('/').count();
    (depth, entry.unwrap_or(ENTRIES.len()), path.to_owned())
}

fn language_of(path: &str) -> Option<&'static str> {
    let path = Path::new(path);
    let name = path.file_name()?.to_str()?;
    let ending = path.extension()?.to_str()?;
    let (language, _) = LANGUAGES
        .iter()
        .find(|(_, endings)| endings.contains(&ending))?;
    let is_beside = |part: &std::ffi::OsStr| {
        let part = part.to_string_lossy();
        part.starts_with('.') || BESIDE.contains(&&*part)
    };
    let is_test = [
        ".test.", ".spec.", "_test.", "_spec.", "-test.", ".config.", ".d.", ".min.", "Test.",
    ]
    .iter()
    .any(|part| name.contains(part))
        || name.starts_with("test_")
        || matches!(
            name,
            "build.rs" | "setup.py" | "conftest.py" | "noxfile.py" | "tests.rs"
        );
    (!is_test && !path.parent()?.iter().any(is_beside)).then_some(*language)
}

/// The folder in which the sources around a file begin.
fn root_of(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let folders = &parts[..parts.len() - 1];
    let end = match folders.iter().position(|part| SOURCE_ROOTS.contains(part)) {
        Some(at) => at + 1,
        None if folders.first().is_some_and(|part| GROUPS.contains(part)) => folders.len().min(2),
        None => folders.len().min(1),
    };
    let root: PathBuf = folders[..end].iter().collect();
    root.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::DoctorVerdict;
    use super::*;

    #[test]
    fn one_file_for_each_root_and_language() {
        for (paths, expected) in [
            (&["README.md", "Cargo.toml"][..], ""),
            (
                &[
                    "src/main.rs",
                    "src/lib.rs",
                    "src/a/b.rs",
                    "tests/x.rs",
                    "build.rs",
                ],
                "src/lib.rs Rust",
            ),
            (
                &[
                    "crates/a/src/lib.rs",
                    "crates/b/src/main.rs",
                    "crates/b/src/x.rs",
                ],
                "crates/b/src/main.rs Rust, crates/a/src/lib.rs Rust",
            ),
            (
                &[
                    "app/__init__.py",
                    "app/a.py",
                    "app/test_a.py",
                    "setup.py",
                    "conftest.py",
                ],
                "app/__init__.py Python",
            ),
            (
                &[
                    "src/index.js",
                    "src/view.ts",
                    "src/view.test.ts",
                    "src/x.d.ts",
                    "jest.config.js",
                ],
                "src/index.js JavaScript, src/view.ts TypeScript",
            ),
            (
                &[
                    "packages/a/index.js",
                    "packages/b/index.js",
                    "node_modules/x/y.js",
                ],
                "packages/a/index.js JavaScript, packages/b/index.js JavaScript",
            ),
            (&["main.go", "main_test.go", "ci.py"], "main.go Go"),
        ] {
            let guard = ["./ci.py".to_owned()];
            let files = choose(paths, &guard);
            let shown = files
                .iter()
                .map(|file| format!("{} {}", file.path, file.language));
            assert_eq!(shown.collect::<Vec<_>>().join(", "), expected);
        }
    }

    #[test]
    fn what_is_told() {
        let planted = |file: &str, exit| PlantedBreak {
            file: file.to_owned(),
            language: "Go",
            exit,
        };
        for (breaks, all, verdict, words) in [
            (vec![], 0, DoctorVerdict::Warn, "none planted"),
            (
                vec![planted("a.go", Some(1))],
                1,
                DoctorVerdict::Ok,
                "a.go (Go) turns it red",
            ),
            (
                vec![planted("a.go", None)],
                3,
                DoctorVerdict::Ok,
                "; 2 more source roots were not tried",
            ),
            (
                vec![planted("a.go", Some(0))],
                1,
                DoctorVerdict::Fail,
                "it cannot fail: it stays green with a syntax error in a.go (Go)",
            ),
            (
                vec![planted("a.go", Some(1)), planted("b.go", Some(0))],
                2,
                DoctorVerdict::Warn,
                "it stays green with a syntax error in b.go (Go)",
            ),
        ] {
            let check = check(&breaks, all);
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.message.contains(words), "{check:?}");
        }
    }
}
