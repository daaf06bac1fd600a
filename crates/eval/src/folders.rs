//! Where cases, results and workspaces lie.

use std::path::{Path, PathBuf};

use runner::{Error, ErrorCode, Result, files};
use runner_core::digest::sha256_hex;

use crate::case::sample_case;

/// What the caller names; the rest takes its place below `eval/`.
#[derive(Clone, Debug, Default)]
pub struct FolderOptions {
    /// `--cases`
    pub cases: Option<PathBuf>,
    /// `--results`
    pub results: Option<PathBuf>,
    /// `--workspaces`
    pub workspaces: Option<PathBuf>,
}

/// The folders of a harness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalFolders {
    /// What is around `eval/`.
    pub project: PathBuf,
    /// Case files.
    pub cases: PathBuf,
    /// A folder for each case, with one for each run.
    pub results: PathBuf,
    /// The links `CASE_latest`.
    pub links: PathBuf,
    /// The workspaces themselves.
    pub workspaces: PathBuf,
}

impl EvalFolders {
    /// For the project that `start` is in: the nearest folder with an `eval/cases`, else `start`.
    pub fn of(start: &Path, options: &FolderOptions) -> Result<Self> {
        let start = start.canonicalize().map_err(|error| {
            Error::new(ErrorCode::Layout, format!("{}: {error}", start.display()))
        })?;
        let has_cases = |folder: &&Path| folder.join("eval/cases").is_dir();
        let project = start.ancestors().find(has_cases).unwrap_or(&start);
        let eval = project.join("eval");
        let given = |path: &Option<PathBuf>| -> Result<Option<PathBuf>> {
            let path = path.as_ref().map(std::path::absolute);
            Ok(path.transpose()?)
        };
        let links = given(&options.workspaces)?;
        let workspaces = links
            .clone()
            .or_else(|| cache_folder(project, |name| std::env::var_os(name).map(PathBuf::from)))
            .unwrap_or_else(|| eval.join("workspaces"));
        Ok(EvalFolders {
            cases: given(&options.cases)?.unwrap_or_else(|| eval.join("cases")),
            results: given(&options.results)?.unwrap_or_else(|| eval.join("results")),
            links: links.unwrap_or_else(|| eval.join("workspaces")),
            workspaces,
            project: project.to_owned(),
        })
    }

    /// What no child of a run sees: the checks and the results, and what other runs made.
    pub(crate) fn closed(&self) -> Vec<PathBuf> {
        let folders = [&self.cases, &self.results, &self.links, &self.workspaces];
        folders.map(PathBuf::to_owned).into()
    }

    /// Where the records of sets of runs lie: no case can have that name.
    pub fn sets(&self) -> PathBuf {
        self.results.join(".sets")
    }

    /// The results of a case.
    pub fn results_of(&self, case: &str) -> PathBuf {
        self.results.join(case)
    }

    /// The workspace of a run.
    pub fn workspace_of(&self, case: &str, run: &str) -> PathBuf {
        self.workspaces.join(format!("{case}_{run}"))
    }

    /// The link to the newest workspace of a case.
    pub fn latest_of(&self, case: &str) -> PathBuf {
        self.links.join(format!("{case}_latest"))
    }
}

/// Outside of the project: agents and tools look for their files in the folders above them, and
/// would find those of the project itself. `None` where there is no home.
fn cache_folder(project: &Path, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let cache = variable("XDG_CACHE_HOME").filter(absolute).or_else(|| {
        let home = variable("HOME").filter(absolute)?;
        Some(home.join(".cache"))
    })?;
    let hash = sha256_hex(project.as_os_str().as_encoded_bytes());
    let name = project.file_name().unwrap_or_default().to_string_lossy();
    Some(cache.join(format!("runner/eval/{name}-{}", &hash[..8])))
}

/// What `eval init` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalInitReport {
    /// Files that were written.
    pub written: Vec<PathBuf>,
    /// Files that were there already, and stayed as they were.
    pub kept: Vec<PathBuf>,
}

/// Makes `eval/` with a sample case, and keeps results and workspaces out of git.
pub fn init(folders: &EvalFolders) -> Result<EvalInitReport> {
    let ignore = folders.project.join("eval/.gitignore");
    let sample = folders.cases.join("hello.toml");
    let mut begun = EvalInitReport {
        written: Vec::new(),
        kept: Vec::new(),
    };
    for (path, text) in [
        (ignore, "/results/\n/workspaces/\n*.runner-tmp\n"),
        (sample, sample_case()),
    ] {
        if path.symlink_metadata().is_ok() {
            begun.kept.push(path);
            continue;
        }
        if let Some(folder) = path.parent() {
            files::make_folder(folder)?;
        }
        files::write_whole(&path, text.as_bytes())?;
        begun.written.push(path);
    }
    Ok(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_lie_outside_of_the_project_where_there_is_a_home() {
        let project = Path::new("/srv/project");
        let find = |cache: Option<&str>, home: Option<&str>| {
            cache_folder(project, |name| {
                let value = if name == "HOME" { home } else { cache };
                value.map(PathBuf::from)
            })
        };
        let name = format!("runner/eval/project-{}", &sha256_hex(b"/srv/project")[..8]);
        assert_eq!(find(None, None), None);
        assert_eq!(
            find(None, Some("/h")),
            Some(PathBuf::from(format!("/h/.cache/{name}")))
        );
        assert_eq!(
            find(Some("/c"), Some("/h")),
            Some(PathBuf::from(format!("/c/{name}")))
        );
        assert_eq!(find(Some("not/absolute"), None), None);
    }

    #[test]
    fn the_nearest_folder_with_cases_is_the_project() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("eval/cases/deep")).unwrap();
        let options = FolderOptions {
            results: Some("/elsewhere".into()),
            workspaces: Some("/w".into()),
            ..FolderOptions::default()
        };
        let folders = EvalFolders::of(&root.join("eval/cases/deep"), &options).unwrap();
        assert_eq!(folders.cases, root.join("eval/cases"));
        assert_eq!(folders.results, Path::new("/elsewhere"));
        assert_eq!(folders.latest_of("a"), Path::new("/w/a_latest"));
        assert_eq!(folders.workspace_of("a", "1"), Path::new("/w/a_1"));
    }
}
