//! The files of a commit, laid down in a folder that is no work tree of the repository.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::Git;
use crate::error::Result;

impl Git {
    /// Lays all files of a commit down in a folder, without anything of git's own. What lies there
    /// and is in the commit too is replaced.
    pub fn export(&self, commit: &str, folder: &Path) -> Result<()> {
        self.checkout_into(commit, folder, &["--all".into()])
    }

    /// The same for some files, which must be in the commit.
    pub fn export_files(&self, commit: &str, paths: &[String], folder: &Path) -> Result<()> {
        let mut args: Vec<OsString> = vec!["--".into()];
        args.extend(paths.iter().map(OsString::from));
        self.checkout_into(commit, folder, &args)
    }

    /// Through an index of its own: the repository's knows nothing of it.
    fn checkout_into(&self, commit: &str, folder: &Path, which: &[OsString]) -> Result<()> {
        let temp = tempfile::Builder::new()
            .prefix("runner-export-")
            .tempdir()?;
        let index = temp.path().join("index");
        let env: [(&str, &OsStr); 1] = [("GIT_INDEX_FILE", index.as_os_str())];
        self.write_with(&["read-tree", commit], None, &env)?;
        let mut prefix = OsString::from("--prefix=");
        prefix.push(folder);
        prefix.push("/");
        let mut args: Vec<OsString> = vec![
            "checkout-index".into(),
            "--force".into(),
            "--quiet".into(),
            prefix,
        ];
        args.extend(which.iter().cloned());
        self.write_with(&args, None, &env).map(drop)
    }
}
