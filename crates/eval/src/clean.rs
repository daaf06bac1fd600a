//! `eval clean`: what runs left behind.

use std::path::PathBuf;

use runner::{Result, files};

use crate::folders::EvalFolders;
use crate::record::subfolders;

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanReport {
    /// Workspaces.
    pub workspaces: Vec<PathBuf>,
    /// Results.
    pub results: Vec<PathBuf>,
}

/// Removes the workspaces of a case and, unless they are to stay, its results.
pub fn clean(folders: &EvalFolders, case: &str, keep_results: bool) -> Result<CleanReport> {
    let mut cleaned = CleanReport::default();
    for folder in subfolders(&folders.workspaces)? {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let run = name.strip_prefix(case).and_then(|it| it.strip_prefix('_'));
        if run.is_some_and(is_run_id) {
            files::remove_if_there(&folder)?;
            cleaned.workspaces.push(folder);
        }
    }
    let link = folders.latest_of(case);
    if link.is_symlink() {
        files::remove_if_there(&link)?;
    }
    let results = folders.results_of(case);
    if !keep_results && results.is_dir() {
        for folder in subfolders(&results)? {
            files::remove_if_there(&folder)?;
            cleaned.results.push(folder);
        }
        // Something else may lie in it: then it stays.
        let _ = std::fs::remove_dir(&results);
    }
    Ok(cleaned)
}

/// `20261115-061201-3f2a-07`: another case's name would not read like this.
fn is_run_id(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let digits = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    match parts.as_slice() {
        [day, time, hex, number] => {
            digits(day, 8)
                && digits(time, 6)
                && hex.len() == 4
                && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
                && digits(number, number.len().max(2))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_runs_of_this_very_case() {
        assert!(is_run_id("20261115-061201-3f2a-07"));
        assert!(is_run_id("20261115-061201-3f2a-123"));
        assert!(!is_run_id("go_20261115-061201-3f2a-07"));
        assert!(!is_run_id("latest"));
        assert!(!is_run_id("20261115-061201-3f2a-"));
    }
}
