//! Cases from a repository's own history: commits that changed source and tests, whose tests fail
//! without the change and pass with it. Both are tried, not guessed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner::{Error, ErrorCode, Git, Project, Result, files};
use runner_core::config::Config;
use runner_core::paths::{self, GlobList};
use runner_exec::Ended;
use tempfile::TempDir;
use toml::{Table, Value};

use crate::case::{CaseSource, SETUP_TIMEOUT_SECS};
use crate::child::{ChildContext, ChildOutput};
use crate::folders::EvalFolders;
use crate::run::EvalContext;
use crate::workspace;

/// How long the tests of a commit may take.
const CHECK_LIMIT_SECS: u64 = 600;

/// Globs of what is usually a test, where nobody said otherwise.
const TEST_GLOBS: &[&str] = &[
    "tests/**",
    "test/**",
    "**/tests/**",
    "**/test/**",
    "**/__tests__/**",
    "spec/**",
    "**/*_test.*",
    "**/test_*",
    "**/*.test.*",
    "**/*.spec.*",
    "**/*_spec.rb",
    "**/*Test.java",
    "**/*Tests.cs",
];

/// Lines of a message that are about its authors and not about the change.
const TRAILERS: &[&str] = &[
    "Signed-off-by:",
    "Co-authored-by:",
    "Reviewed-by:",
    "Change-Id:",
];

/// What the caller asks for.
#[derive(Clone, Debug, Default)]
pub struct FromGitOptions {
    /// `A..B`.
    pub range: String,
    /// The tests' argv; found out without it.
    pub check: Option<Vec<String>>,
    /// Globs of tests; the usual ones without them.
    pub tests: Vec<String>,
    /// What makes a checkout ready.
    pub setup: Vec<String>,
    /// Write nothing.
    pub dry_run: bool,
}

/// Why a commit became no case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// It has no parent.
    First,
    /// It has more than one parent.
    Merge,
    /// It changed no test.
    NoTests,
    /// It changed tests alone.
    NoSource,
    /// A path that no case file can name.
    OddPath,
    /// Nothing tells how its tests are run.
    NoCheck,
    /// There is a case file for it.
    Known,
    /// Its tests pass without it.
    PassBefore,
    /// Its tests do not pass with it.
    FailAfter(String),
    /// The checkout could not be made ready, or the tests not be run.
    NotRun(String),
}

impl LeftOut {
    /// In a few words that commits have in common.
    pub fn words(&self) -> &'static str {
        match self {
            LeftOut::First => "the first commit",
            LeftOut::Merge => "a merge",
            LeftOut::NoTests => "changes no test",
            LeftOut::NoSource => "changes tests alone",
            LeftOut::OddPath => "a path that is not UTF-8",
            LeftOut::NoCheck => "no way to run its tests was found (name one with --check)",
            LeftOut::Known => "there is a case file for it already",
            LeftOut::PassBefore => "its tests pass without it",
            LeftOut::FailAfter(_) => "its tests do not pass with it",
            LeftOut::NotRun(_) => "its tests could not be run",
        }
    }

    /// What was seen, where there is more to say.
    pub fn detail(&self) -> Option<&str> {
        match self {
            LeftOut::FailAfter(why) | LeftOut::NotRun(why) => Some(why),
            _ => None,
        }
    }
}

/// A commit, and what became of it.
#[derive(Clone, Debug)]
pub struct MinedCommit {
    /// Its name.
    pub commit: String,
    /// The first line of its message.
    pub subject: String,
    /// The case file, written or (in a dry run) to be written; or why there is none.
    pub result: Result<PathBuf, LeftOut>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct MinedCases {
    /// In the order of the history.
    pub commits: Vec<MinedCommit>,
}

impl MinedCases {
    /// How many commits were left out for which reason, most frequent first.
    pub fn left_out(&self) -> Vec<(&'static str, u32)> {
        let mut counts: BTreeMap<&'static str, u32> = BTreeMap::new();
        for commit in &self.commits {
            if let Err(why) = &commit.result {
                *counts.entry(why.words()).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }
}

/// Looks through a range of commits; `tell` hears of each as it is settled.
pub fn from_git(
    start: &Path,
    folders: &EvalFolders,
    options: &FromGitOptions,
    context: &EvalContext<'_>,
    tell: &mut dyn FnMut(&MinedCommit),
) -> Result<MinedCases> {
    let project = Project::of_work_tree(start)?;
    let git = Git::open(project.root())?;
    let globs: Vec<String> = if options.tests.is_empty() {
        TEST_GLOBS.iter().map(|&glob| glob.to_owned()).collect()
    } else {
        options.tests.clone()
    };
    let tests = GlobList::new(&globs).map_err(|error| {
        let mut told = Error::new(ErrorCode::Config, format!("--tests: {}", error.message));
        told.hint = error.hint;
        told
    })?;
    let mine = Mine {
        git: &git,
        folders,
        options,
        context,
        tests,
    };
    let mut mined = MinedCases::default();
    for commit in commits(&git, &options.range)? {
        if context.cancel.is_cancelled() {
            return Err(Error::new(ErrorCode::Interrupted, "interrupted")
                .hint("cases that were written stay; the same command goes on with the others"));
        }
        let result = mine.settle(&commit)?;
        let settled = MinedCommit {
            commit: commit.id.clone(),
            subject: commit.subject().to_owned(),
            result,
        };
        tell(&settled);
        mined.commits.push(settled);
    }
    Ok(mined)
}

/// A commit of the range.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RangeCommit {
    id: String,
    parents: Vec<String>,
    message: String,
}

impl RangeCommit {
    fn subject(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }

    fn parse(record: &str) -> Option<Self> {
        let (id, rest) = record.split_once('\n')?;
        let (parents, message) = rest.split_once('\n')?;
        Some(RangeCommit {
            id: id.to_owned(),
            parents: parents.split_whitespace().map(str::to_owned).collect(),
            message: message.to_owned(),
        })
    }
}

fn commits(git: &Git, range: &str) -> Result<Vec<RangeCommit>> {
    let wrong = |why: String| {
        Error::new(ErrorCode::Config, why)
            .hint("two commits with .. between them, such as v1.0..main")
    };
    let Some((from, to)) = range.split_once("..") else {
        return Err(wrong(format!("{range:?} is not a range of commits")));
    };
    let mut ends = Vec::new();
    for name in [from, to] {
        let name = if name.is_empty() { "HEAD" } else { name };
        let commit = git.commit_of(name)?;
        ends.push(commit.ok_or_else(|| wrong(format!("there is no commit {name:?}")))?);
    }
    let range = format!("{}..{}", ends[0], ends[1]);
    let log = git.read(&[
        "log",
        "-z",
        "--reverse",
        "--topo-order",
        "--format=%H%n%P%n%B",
        &range,
        "--",
    ])?;
    let log = String::from_utf8_lossy(&log);
    Ok(log.split('\0').filter_map(RangeCommit::parse).collect())
}

struct Mine<'a> {
    git: &'a Git,
    folders: &'a EvalFolders,
    options: &'a FromGitOptions,
    context: &'a EvalContext<'a>,
    tests: GlobList,
}

impl Mine<'_> {
    fn settle(&self, commit: &RangeCommit) -> Result<Result<PathBuf, LeftOut>> {
        let parent = match commit.parents.as_slice() {
            [] => return Ok(Err(LeftOut::First)),
            [parent] => parent,
            _ => return Ok(Err(LeftOut::Merge)),
        };
        let tests = match self.split(parent, &commit.id)? {
            Ok(tests) => tests,
            Err(why) => return Ok(Err(why)),
        };
        let id = case_id(commit.subject(), &commit.id);
        let file = self.folders.cases.join(format!("{id}.toml"));
        if file.symlink_metadata().is_ok() {
            return Ok(Err(LeftOut::Known));
        }
        let source = CaseSource {
            repository: self.git.root().to_owned(),
            commit: parent.clone(),
            tests_from: Some(commit.id.clone()),
            tests,
        };
        let check = match self.verify(commit, &source)? {
            Ok(check) => check,
            Err(why) => return Ok(Err(why)),
        };
        if !self.options.dry_run {
            files::make_folder(&self.folders.cases)?;
            let kept = self.kept_tests(&source, &commit.id)?;
            let text = self.text(&id, commit, &source, &kept, &check);
            files::write_whole(&file, text.as_bytes())?;
        }
        Ok(Ok(file))
    }

    /// The tests that a commit changed, if it changed source too.
    fn split(&self, parent: &str, commit: &str) -> Result<Result<Vec<String>, LeftOut>> {
        let (mut tests, mut source) = (Vec::new(), false);
        for path in self.git.changed_between(parent, commit)? {
            let Some(path) = path.to_str() else {
                return Ok(Err(LeftOut::OddPath));
            };
            if Path::new(path).starts_with(paths::ROOT) {
                continue;
            }
            if self.tests.is_match(path) {
                tests.push(path.to_owned());
            } else {
                source = true;
            }
        }
        Ok(match (tests.is_empty(), source) {
            (true, _) => Err(LeftOut::NoTests),
            (_, false) => Err(LeftOut::NoSource),
            _ => Ok(tests),
        })
    }

    /// Tries the tests with the commit and without it. The argv that runs them, if it is a case.
    fn verify(
        &self,
        commit: &RangeCommit,
        source: &CaseSource,
    ) -> Result<Result<Vec<String>, LeftOut>> {
        let after = checkout()?;
        self.git.export(&commit.id, after.path())?;
        let found = match &self.options.check {
            Some(check) => Some(check.clone()),
            None => runner::detect_guard(after.path()).map(|(words, _)| words),
        };
        let Some(check) = found else {
            return Ok(Err(LeftOut::NoCheck));
        };
        // The cheaper question first: most of those that fail now would fail before, too.
        match self.try_tests(after.path(), &check)? {
            MineOutcome::Pass => {}
            MineOutcome::Fail(why) => return Ok(Err(LeftOut::FailAfter(why))),
            MineOutcome::NotRun(why) => return Ok(Err(LeftOut::NotRun(why))),
        }
        drop(after);
        let before = checkout()?;
        self.git.export(&source.commit, before.path())?;
        workspace::lay_tests_of(self.git, source, before.path())?;
        Ok(match self.try_tests(before.path(), &check)? {
            MineOutcome::Pass => Err(LeftOut::PassBefore),
            MineOutcome::Fail(_) => Ok(check),
            MineOutcome::NotRun(why) => Err(LeftOut::NotRun(why)),
        })
    }

    fn try_tests(&self, folder: &Path, check: &[String]) -> Result<MineOutcome> {
        let children = ChildContext {
            supervisor: self.context.supervisor,
            cancel: self.context.cancel,
            workspace: folder,
            env: &BTreeMap::new(),
            closed: &[],
        };
        let config = Config::default();
        if !self.options.setup.is_empty() {
            let limit = Duration::from_secs(SETUP_TIMEOUT_SECS);
            let ran = children.contained(&self.options.setup, &config, limit)?;
            interrupted(&ran)?;
            if let Some(failure) = ran.failure(SETUP_TIMEOUT_SECS) {
                return Ok(MineOutcome::NotRun(format!(
                    "setup: {failure}{}",
                    last_line(&ran)
                )));
            }
        }
        let ran = children.contained(check, &config, Duration::from_secs(CHECK_LIMIT_SECS))?;
        interrupted(&ran)?;
        let Some(failure) = ran.failure(CHECK_LIMIT_SECS) else {
            return Ok(MineOutcome::Pass);
        };
        let told = format!("{failure}{}", last_line(&ran));
        Ok(match ran.ended {
            Ended::Exited(_) | Ended::Signaled(_) => MineOutcome::Fail(told),
            _ => MineOutcome::NotRun(told),
        })
    }

    /// The tests that are there after the commit: those that it removed need no protection.
    fn kept_tests(&self, source: &CaseSource, commit: &str) -> Result<Vec<String>> {
        let there = self.git.files_of(commit)?;
        let is_there = |path: &&String| there.iter().any(|it| it.path == Path::new(path));
        Ok(source.tests.iter().filter(is_there).cloned().collect())
    }

    fn text(
        &self,
        id: &str,
        commit: &RangeCommit,
        source: &CaseSource,
        kept: &[String],
        check: &[String],
    ) -> String {
        let strings = |words: &[String]| {
            Value::Array(words.iter().map(|it| Value::String(it.clone())).collect())
        };
        let text = |text: &str| Value::String(text.to_owned());
        let mut case = Table::new();
        case.insert("id".to_owned(), text(id));
        case.insert("goal".to_owned(), text(&goal(&commit.message)));
        if !self.options.setup.is_empty() {
            case.insert("setup".to_owned(), strings(&self.options.setup));
        }
        let mut from = Table::new();
        let repository = relative(&self.folders.cases, self.git.root());
        from.insert("repository".to_owned(), text(&repository));
        from.insert("commit".to_owned(), text(&source.commit));
        from.insert("tests_from".to_owned(), text(&commit.id));
        from.insert("tests".to_owned(), strings(&source.tests));
        let mut guard = Table::new();
        guard.insert("command".to_owned(), strings(check));
        let globs: Vec<String> = kept.iter().map(|path| literal_glob(path)).collect();
        guard.insert("protected".to_owned(), strings(&globs));
        let mut config = Table::new();
        config.insert("guard".to_owned(), Value::Table(guard));
        let mut completed = Table::new();
        completed.insert("type".to_owned(), text("runner_completed"));
        let mut succeeds = Table::new();
        succeeds.insert("type".to_owned(), text("command_succeeds"));
        succeeds.insert("cmd".to_owned(), strings(check));
        let limit = i64::try_from(CHECK_LIMIT_SECS).unwrap_or(i64::MAX);
        succeeds.insert("timeout_secs".to_owned(), Value::Integer(limit));
        let checks = vec![Value::Table(completed), Value::Table(succeeds)];
        // One after the other, in the order in which people read them.
        let parts = [
            ("case", Value::Table(case)),
            ("source", Value::Table(from)),
            ("config", Value::Table(config)),
            ("checks", Value::Array(checks)),
        ];
        let parts = parts.map(|(name, value)| {
            let mut part = Table::new();
            part.insert(name.to_owned(), value);
            toml::to_string_pretty(&part).unwrap_or_else(|_| part.to_string())
        });
        let body = parts.join("\n");
        format!(
            "# Made by `runner eval from-git` from the commit {}.\n\
             # Its tests fail in the workspace as it begins, and pass with the commit.\n\n{body}",
            commit.id
        )
    }
}

enum MineOutcome {
    Pass,
    Fail(String),
    NotRun(String),
}

fn interrupted(ran: &ChildOutput) -> Result<()> {
    if ran.ended == Ended::Interrupted {
        return Err(Error::new(ErrorCode::Interrupted, "interrupted"));
    }
    Ok(())
}

fn last_line(ran: &ChildOutput) -> String {
    let log = String::from_utf8_lossy(&ran.log);
    let last = log.trim_end().lines().next_back().unwrap_or_default();
    if last.is_empty() {
        String::new()
    } else {
        format!(": {}", runner_core::text::cut_chars(last, 160))
    }
}

/// An empty repository outside of every other: tools that look for one find it.
fn checkout() -> Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("runner-from-git-")
        .tempdir()?;
    Git::init(folder.path())?;
    Ok(folder)
}

/// `fix-the-parser-1a2b3c4d`.
fn case_id(subject: &str, commit: &str) -> String {
    let mut slug = String::new();
    for c in subject.chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() >= 40 {
            break;
        }
    }
    let slug = slug.trim_end_matches('-');
    let short = &commit[..commit.len().min(8)];
    if slug.is_empty() {
        format!("commit-{short}")
    } else {
        format!("{slug}-{short}")
    }
}

/// A message as a goal: its subject is the title, its trailers are left out.
fn goal(message: &str) -> String {
    let mut lines = message.lines();
    let subject = lines.next().unwrap_or_default().trim();
    let body: Vec<&str> = lines
        .filter(|line| !TRAILERS.iter().any(|it| line.starts_with(it)))
        .collect();
    let body = body.join("\n");
    match body.trim() {
        "" => format!("# {subject}\n"),
        body => format!("# {subject}\n\n{body}\n"),
    }
}

/// A glob that matches this path alone.
fn literal_glob(path: &str) -> String {
    let mut glob = String::new();
    for c in path.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!') {
            glob.push('\\');
        }
        glob.push(c);
    }
    glob
}

/// The repository as seen from the folder of the cases, so that both can move together.
fn relative(cases: &Path, repository: &Path) -> String {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (cases, repository) = (real(cases), real(repository));
    match cases.strip_prefix(&repository) {
        Ok(below) => {
            let up: Vec<OsString> = below.components().map(|_| OsString::from("..")).collect();
            let path: PathBuf = up.iter().collect();
            if path.as_os_str().is_empty() {
                ".".to_owned()
            } else {
                path.display().to_string()
            }
        }
        Err(_) => repository.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_goals_and_globs() {
        let id = "0123456789abcdef";
        for (subject, expected) in [
            ("Fix the parser", "fix-the-parser-01234567"),
            ("  core: a/b!  ", "core-a-b-01234567"),
            ("日本", "commit-01234567"),
        ] {
            assert_eq!(case_id(subject, id), expected);
        }
        assert_eq!(goal("Fix it\n"), "# Fix it\n");
        assert_eq!(
            goal("Fix it\n\nBecause.\n\nSigned-off-by: A <a@b>\n"),
            "# Fix it\n\nBecause.\n"
        );
        assert_eq!(literal_glob("a[1]/b*.py"), "a\\[1\\]/b\\*.py");
        let list = GlobList::new(&[literal_glob("a[1]/b*{x}.py")]).unwrap();
        assert!(list.is_match("a[1]/b*{x}.py") && !list.is_match("a1/bb.py"));
    }

    #[test]
    fn usual_tests() {
        let list = GlobList::new(TEST_GLOBS).unwrap();
        for path in [
            "tests/a.rs",
            "crates/x/tests/y.rs",
            "pkg/a_test.go",
            "test_a.py",
            "src/a.test.ts",
            "src/__tests__/a.js",
            "src/test/java/ATest.java",
        ] {
            assert!(list.is_match(path), "{path}");
        }
        for path in ["src/a.rs", "contest/a.py", "src/latest.ts", "testing.md"] {
            assert!(!list.is_match(path), "{path}");
        }
    }

    #[test]
    fn the_repository_is_named_from_the_cases() {
        assert_eq!(
            relative(Path::new("/r/eval/cases"), Path::new("/r")),
            "../.."
        );
        assert_eq!(relative(Path::new("/r"), Path::new("/r")), ".");
        assert_eq!(relative(Path::new("/c"), Path::new("/r/x")), "/r/x");
    }
}
