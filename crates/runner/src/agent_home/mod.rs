//! The private home of a session's agent: made anew beside the checkout for each session, with the
//! login and what chooses the model, so that nothing else of a person's, and nothing that an earlier
//! session left, takes part.

pub(crate) mod instructions;
mod shared_login;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use runner_agents::{Backend, HomeEntry, HomeInput, LoginPlace};
use runner_core::config::Config;

use crate::checkout::{AGENT, Checkout, beside};
use crate::error::Result;
use crate::fault;
use crate::files;
use crate::step::file_image;
use shared_login::SharedLogin;

/// The largest file of a person's settings that is read.
const MAX_SETTINGS: u64 = 16 << 20;

/// Where the instructions of the project lie for a session that has no private home.
const INSTRUCTIONS: &str = "instructions.md";

/// The private home of a session, removed with this value.
#[derive(Debug)]
pub(crate) struct SessionHome {
    folder: PathBuf,
    login: Option<SharedLogin>,
    notes: Vec<String>,
}

/// How an agent learns what is in a session's home, and what the project wants of it.
#[derive(Debug)]
pub(crate) struct SessionOutfit {
    home: Option<SessionHome>,
    instructions: Option<(PathBuf, String)>,
}

impl SessionOutfit {
    /// For a session in a checkout, with the project's instructions. `report`: the folder in which
    /// the session leaves its report, and where it sees that.
    pub(crate) fn make(
        backend: &dyn Backend,
        checkout: &Checkout,
        config: &Config,
        instructions: &str,
        report: (&Path, &Path),
    ) -> Result<Self> {
        let home = SessionHome::make(backend, checkout, config, instructions)?;
        let mut outfit = SessionOutfit {
            home,
            instructions: None,
        };
        if outfit.home.is_none() && backend.program().is_some() && !instructions.is_empty() {
            let (folder, seen) = report;
            files::write_whole(&folder.join(INSTRUCTIONS), instructions.as_bytes())?;
            outfit.instructions = Some((seen.join(INSTRUCTIONS), instructions.to_owned()));
        }
        Ok(outfit)
    }

    /// The private home.
    pub(crate) fn home(&self) -> Option<&Path> {
        self.home.as_ref().map(|home| home.folder.as_path())
    }

    /// The folder with the login.
    pub(crate) fn login_folder(&self) -> Option<PathBuf> {
        let login = self.home.as_ref()?.login.as_ref()?;
        Some(login.store())
    }

    /// The project's instructions, where they are not in the home.
    pub(crate) fn instructions(&self) -> Option<(&Path, &str)> {
        let (path, text) = self.instructions.as_ref()?;
        Some((path, text))
    }

    /// What the session writes to outside its checkout.
    pub(crate) fn writable(&self) -> Vec<PathBuf> {
        let Some(home) = &self.home else {
            return Vec::new();
        };
        let login = home.login.as_ref().map(|login| login.folder().to_owned());
        std::iter::once(home.folder.clone()).chain(login).collect()
    }

    /// Takes in what the session renewed of its login, and removes its home. What a person should
    /// know.
    pub(crate) fn finish(mut self) -> Vec<String> {
        let Some(home) = &mut self.home else {
            return Vec::new();
        };
        let mut notes = std::mem::take(&mut home.notes);
        if let Some(login) = &home.login {
            notes.extend(login.give_back(&home.folder));
        }
        notes
    }
}

impl SessionHome {
    /// None: the backend has no such thing, or the config names a folder of its own for it.
    fn make(
        backend: &dyn Backend,
        checkout: &Checkout,
        config: &Config,
        instructions: &str,
    ) -> Result<Option<Self>> {
        let named = &config.executor.env;
        let mut variables = backend.home_variables().iter();
        if variables.any(|name| named.contains_key(*name)) {
            return Ok(None);
        }
        let user_home = std::env::var_os("HOME").map(PathBuf::from);
        let Some(user_home) = user_home.filter(|path| path.is_absolute()) else {
            return Ok(None);
        };
        let content = backend.home(&HomeInput {
            user_home: &user_home,
            var: &|name| std::env::var_os(name),
            read: &text_of,
            names: &names_in,
            inherit: &config.executor.inherit,
            instructions,
        });
        let Some(content) = content else {
            return Ok(None);
        };
        fault::point("agent-home")?;
        let mut home = SessionHome {
            folder: beside(checkout.path(), AGENT),
            login: None,
            notes: content.notes,
        };
        file_image::remove_closed(&home.folder)?;
        make_private_folder(&home.folder)?;
        for entry in &content.entries {
            lay(&home.folder, entry)?;
        }
        if let Some(file) = backend.login_file() {
            home.login = SharedLogin::take(file, &user_home)?;
        }
        if let Some(login) = &home.login
            && let LoginPlace::Link(place) = login.file().place
        {
            let target = login.store().join(login.file().copy_name());
            lay(&home.folder, &HomeEntry::Link(place.into(), target))?;
        }
        fault::point("agent-home-made")?;
        Ok(Some(home))
    }
}

/// Puts one entry into a private home.
pub(crate) fn lay(home: &Path, entry: &HomeEntry) -> Result<()> {
    let (HomeEntry::Folder(path) | HomeEntry::File(path, _) | HomeEntry::Link(path, _)) = entry;
    let target = home.join(path);
    let result = match entry {
        HomeEntry::Folder(_) => make_private_folder(&target),
        HomeEntry::File(_, text) => make_parents(&target).and_then(|()| {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&target)?;
            file.write_all(text.as_bytes())
        }),
        HomeEntry::Link(_, to) => {
            make_parents(&target).and_then(|()| match to.symlink_metadata() {
                Ok(_) => symlink(to, &target),
                Err(_) => Ok(()),
            })
        }
    };
    Ok(result.map_err(|error| files::at(&target, error))?)
}

impl Drop for SessionHome {
    fn drop(&mut self) {
        // What stays is removed before the next session, and with the checkout.
        let _ = file_image::remove_closed(&self.folder);
    }
}

fn make_private_folder(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn make_parents(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), make_private_folder)
}

/// A person's own file may be a link, as those who keep them elsewhere have it.
pub(crate) fn text_of(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let bytes = files::read_regular(&path, MAX_SETTINGS).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) fn names_in(folder: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    names
}
