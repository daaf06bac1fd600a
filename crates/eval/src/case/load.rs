//! The folder of case files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use runner::{Error, ErrorCode, Result};
use runner_core::text::nearest;

use super::{CaseProblem, EvalCase, read};

/// The largest case file that is read.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// All cases of a folder, and what is wrong with the others.
#[derive(Clone, Debug, Default)]
pub struct CaseLibrary {
    /// The folder.
    pub folder: PathBuf,
    /// By id.
    pub cases: BTreeMap<String, EvalCase>,
    /// By file and line.
    pub problems: Vec<CaseProblem>,
}

impl CaseLibrary {
    /// Reads every `*.toml` in a folder.
    pub fn load(folder: &Path) -> Result<Self> {
        let missing = |what: String| {
            Error::new(ErrorCode::NotFound, what).hint(
                "`runner eval init` makes eval/ with a sample case, --cases names another folder",
            )
        };
        let entries = std::fs::read_dir(folder)
            .map_err(|_| missing(format!("there is no folder {}", folder.display())))?;
        let mut files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "toml") {
                files.push(path);
            }
        }
        files.sort();
        if files.is_empty() {
            return Err(missing(format!("no case file in {}", folder.display())));
        }
        let mut library = CaseLibrary {
            folder: folder.to_owned(),
            ..CaseLibrary::default()
        };
        for file in files {
            library.add(&file);
        }
        Ok(library)
    }

    fn add(&mut self, file: &Path) {
        let problem = |line, message: String, hint: &str| CaseProblem {
            file: file.to_owned(),
            line,
            key: String::new(),
            message,
            hint: Some(hint.to_owned()),
        };
        let text = match runner::files::read_regular(file, MAX_BYTES).map(String::from_utf8) {
            Ok(Ok(text)) => text,
            Ok(Err(_)) => {
                let hint = "save it as UTF-8";
                self.problems
                    .push(problem(None, "it is not UTF-8".to_owned(), hint));
                return;
            }
            Err(error) => {
                let hint = "a case is a regular file";
                self.problems.push(problem(None, error.to_string(), hint));
                return;
            }
        };
        match read::parse(file, &text) {
            Err(problems) => self.problems.extend(problems),
            Ok(case) => {
                if let Some(other) = self.cases.get(&case.id) {
                    let name = other.file.file_name().unwrap_or_default();
                    let message = format!(
                        "the id `{}` is used by {} too",
                        case.id,
                        name.to_string_lossy()
                    );
                    let line = line_of_id(&text);
                    let hint = "give one of them another id";
                    self.problems.push(CaseProblem {
                        key: "case.id".to_owned(),
                        ..problem(line, message, hint)
                    });
                    return;
                }
                self.cases.insert(case.id.clone(), case);
            }
        }
    }

    /// The cases of these names, in this order; all of them for no names.
    pub fn named(&self, names: &[String]) -> Result<Vec<EvalCase>> {
        if names.is_empty() {
            self.refuse_problems(|_| true)?;
            return Ok(self.cases.values().cloned().collect());
        }
        let mut cases: Vec<EvalCase> = Vec::new();
        for name in names {
            // A broken file often is the one that was meant.
            let stem = |problem: &CaseProblem| {
                problem
                    .file
                    .file_stem()
                    .is_some_and(|it| it == name.as_str())
            };
            self.refuse_problems(stem)?;
            let case = self.cases.get(name).ok_or_else(|| self.unknown(name))?;
            if !cases.iter().any(|it| it.id == case.id) {
                cases.push(case.clone());
            }
        }
        Ok(cases)
    }

    fn refuse_problems(&self, concerns: impl Fn(&CaseProblem) -> bool) -> Result<()> {
        let found: Vec<&CaseProblem> = self.problems.iter().filter(|it| concerns(it)).collect();
        let Some(first) = found.first() else {
            return Ok(());
        };
        let more = match found.len() {
            1 => String::new(),
            count => format!(" (and {} more, see `runner eval list`)", count - 1),
        };
        let mut error = Error::new(ErrorCode::Config, format!("{first}{more}"));
        error.hint.clone_from(&first.hint);
        Err(error)
    }

    fn unknown(&self, name: &str) -> Error {
        let ids: Vec<&str> = self.cases.keys().map(String::as_str).collect();
        let error = Error::new(ErrorCode::NotFound, format!("there is no case {name:?}"));
        match nearest(name, &ids) {
            (_, "") => error,
            (_, meant) => error.hint(format!(
                "did you mean `{meant}`? `runner eval list` shows all"
            )),
        }
    }
}

/// The line of `id` in `[case]`; good enough for a message.
fn line_of_id(text: &str) -> Option<usize> {
    let is_id = |line: &str| {
        line.trim_start()
            .strip_prefix("id")
            .is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    text.lines().position(is_id).map(|at| at + 1)
}

/// The case that `runner eval init` writes: it needs no model.
pub fn sample_case() -> &'static str {
    include_str!("sample.toml")
}
