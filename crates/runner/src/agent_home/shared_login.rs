//! One copy of a login for all sessions of a person. The CLIs renew logins, and the old one is worth
//! nothing then: so all use the same copy, and what was renewed goes back to the person's own file.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use runner_agents::{LoginFile, LoginPlace};
use runner_core::digest::sha256_hex;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use serde::{Deserialize, Serialize};

use crate::checkout::root::STATE_FOLDER;
use crate::checkout::{make_real_folder, open_lock};
use crate::error::Result;
use crate::fault;
use crate::files;
use crate::step::file_image;

/// Below the folder for the state of the runner.
const LOGINS: &str = "logins";

/// The folder of a login that a CLI sees. Its lock lies beside it.
const STORE: &str = "store";

/// The largest login that is looked at.
const MAX_LOGIN: u64 = 1 << 20;

/// The largest record of ours.
const MAX_RECORD: u64 = 4096;

/// A login that is in use by sessions, for as long as this lives.
#[derive(Debug)]
pub(crate) struct SharedLogin {
    file: LoginFile,
    /// The person's own file, links followed.
    own: PathBuf,
    /// What sessions can write to.
    folder: PathBuf,
    /// Held shared by whoever uses it.
    users: File,
}

/// What a copy was made of.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct LoginRecord {
    /// The hash of the person's own file.
    own: String,
}

/// What becomes of a copy and the person's own file.
#[derive(Debug, PartialEq, Eq)]
enum LoginChange {
    /// All is as it should be.
    Nothing,
    /// The copy is made anew from the person's own.
    Copy,
    /// The person's own file gets what was renewed.
    Renew(Vec<u8>),
}

/// `recorded`: the hash of the person's own file when the copy was made. `is_in_use`: others may be
/// writing to the copy right now.
fn decide(
    file: LoginFile,
    own: &[u8],
    copy: Option<&[u8]>,
    recorded: &str,
    is_in_use: bool,
) -> LoginChange {
    let Some(copy) = copy else {
        return LoginChange::Copy;
    };
    if recorded != sha256_hex(own) {
        // The person logged in again, or used the CLI meanwhile: that is newer.
        return LoginChange::Copy;
    }
    let is_whole = serde_json::from_slice::<serde_json::Value>(copy).is_ok();
    if !is_whole && is_in_use {
        return LoginChange::Nothing;
    }
    let same = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).ok();
    match file.renewed(own, copy) {
        None => LoginChange::Copy,
        Some(renewed) if same(&renewed) == same(own) => LoginChange::Nothing,
        Some(renewed) => LoginChange::Renew(renewed),
    }
}

impl SharedLogin {
    /// The login of a person for a session; none where there is none.
    pub(super) fn take(file: LoginFile, user_home: &Path) -> Result<Option<Self>> {
        let folder = |variable: &str, usual: &str| {
            let named = std::env::var_os(variable).map(PathBuf::from);
            named
                .filter(|path| path.is_absolute())
                .unwrap_or_else(|| user_home.join(usual))
        };
        let own = folder(file.variable, file.usual).join(file.name);
        let Ok(own) = own.canonicalize() else {
            return Ok(None);
        };
        let logins = folder("XDG_STATE_HOME", ".local/state")
            .join(STATE_FOLDER)
            .join(LOGINS);
        files::make_folder(&logins)?;
        let name = sha256_hex(own.as_os_str().as_encoded_bytes());
        let name = name.chars().take(16).collect::<String>();
        let folder = logins.join(name);
        make_real_folder(&folder)?;
        let login = SharedLogin {
            users: open_lock(&folder.with_extension("users"))?,
            file,
            own,
            folder,
        };
        let _lock = login.lock()?;
        let is_in_use = flock(&login.users, FlockOperation::NonBlockingLockExclusive).is_err();
        let is_there = login.bring_together(is_in_use)?;
        flock(&login.users, FlockOperation::LockShared).map_err(io::Error::from)?;
        Ok(is_there.then_some(login))
    }

    /// What it is.
    pub(super) fn file(&self) -> LoginFile {
        self.file
    }

    /// What sessions can write to.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where sessions find it.
    pub(super) fn store(&self) -> PathBuf {
        self.folder.join(STORE)
    }

    /// Takes in what a session renewed. What a person should know.
    pub(super) fn give_back(&self, home: &Path) -> Option<String> {
        let done = self.lock().and_then(|_lock| {
            self.take_in(home)?;
            self.bring_together(true)
        });
        let error = done.err()?;
        Some(format!(
            "what the session renewed of its login could not be kept: {error}"
        ))
    }

    fn lock(&self) -> Result<File> {
        let lock = open_lock(&self.folder.with_extension("lock"))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(io::Error::from)?;
        Ok(lock)
    }

    /// A CLI that puts a new file into the place of the old one leaves it in the session's home.
    fn take_in(&self, home: &Path) -> Result<()> {
        let LoginPlace::Link(place) = self.file.place else {
            return Ok(());
        };
        let Ok(left) = files::read_regular(&home.join(place), MAX_LOGIN) else {
            return Ok(());
        };
        let own = files::read_regular(&self.own, MAX_LOGIN).unwrap_or_default();
        if self.file.renewed(&own, &left).is_some() {
            self.write_copy(&left)?;
        }
        Ok(())
    }

    /// Makes copy and the person's own file agree. Whether there is a login.
    fn bring_together(&self, is_in_use: bool) -> Result<bool> {
        let Ok(own) = files::read_regular(&self.own, MAX_LOGIN) else {
            return Ok(false);
        };
        let record_path = self.folder.with_extension("json");
        let record = files::read_regular(&record_path, MAX_RECORD).unwrap_or_default();
        let record: LoginRecord = serde_json::from_slice(&record).unwrap_or_default();
        let copy = self.copy()?;
        let write_record = |own: &[u8]| {
            let record = LoginRecord {
                own: sha256_hex(own),
            };
            // One string: there is nothing that could fail.
            let bytes = serde_json::to_vec(&record).unwrap_or_default();
            files::write_whole_mode(&record_path, &bytes, 0o600)
        };
        match decide(self.file, &own, copy.as_deref(), &record.own, is_in_use) {
            LoginChange::Nothing => {}
            LoginChange::Copy => {
                self.write_copy(&own)?;
                write_record(&own)?;
            }
            LoginChange::Renew(renewed) => {
                fault::point("login")?;
                files::write_whole_mode(&self.own, &renewed, 0o600)?;
                write_record(&renewed)?;
            }
        }
        Ok(true)
    }

    fn copy(&self) -> Result<Option<Vec<u8>>> {
        let store = self.open_store()?;
        Ok(files::read_regular(&self.in_store(&store), MAX_LOGIN).ok())
    }

    fn write_copy(&self, bytes: &[u8]) -> Result<()> {
        let store = self.open_store()?;
        let path = self.in_store(&store);
        if fs::symlink_metadata(&path).is_ok_and(|meta| !meta.is_file()) {
            file_image::remove_closed(&path)?;
        }
        Ok(files::write_whole_mode(&path, bytes, 0o600)?)
    }

    /// The folder itself: a session could put a link into its place at any moment.
    fn open_store(&self) -> Result<File> {
        let store = self.store();
        if fs::symlink_metadata(&store).is_ok_and(|meta| !meta.is_dir()) {
            file_image::remove_closed(&store)?;
        }
        make_real_folder(&store)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&store, flags, Mode::empty());
        let opened = opened.map_err(|error| files::at(&store, error.into()))?;
        Ok(opened.into())
    }

    fn in_store(&self, store: &File) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", store.as_raw_fd())).join(self.file.copy_name())
    }
}

#[cfg(test)]
mod tests {
    use runner_core::config::BackendKind;

    use super::*;

    #[test]
    fn whose_login_counts() {
        let file = runner_agents::backend(BackendKind::Opencode)
            .login_file()
            .unwrap();
        let login = |token: &str| format!(r#"{{"p":{{"type":"oauth","access":"{token}"}}}}"#);
        let (old, new) = (login("1"), login("2"));
        let known = sha256_hex(old.as_bytes());
        let check = |copy: Option<&str>, recorded: &str, is_in_use| {
            decide(
                file,
                old.as_bytes(),
                copy.map(str::as_bytes),
                recorded,
                is_in_use,
            )
        };
        assert_eq!(check(None, "", false), LoginChange::Copy);
        assert_eq!(check(Some(&old), &known, false), LoginChange::Nothing);
        let LoginChange::Renew(renewed) = check(Some(&new), &known, true) else {
            panic!("it was renewed");
        };
        assert!(String::from_utf8_lossy(&renewed).contains("\"2\""));
        // The person's own is another one by now.
        assert_eq!(check(Some(&new), "another", true), LoginChange::Copy);
        // Not of this account, or nothing that could be one.
        let other = r#"{"p":{"type":"api","key":"k"}}"#;
        assert_eq!(check(Some(other), &known, true), LoginChange::Copy);
        assert_eq!(check(Some("{"), &known, false), LoginChange::Copy);
        // Half written.
        assert_eq!(check(Some("{"), &known, true), LoginChange::Nothing);
    }
}
