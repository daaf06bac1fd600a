//! The policy of a guard that runs in a folder which is no checkout of a run: a check of an eval.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use runner_core::config::{ChildKind, Config};
use runner_sandbox::WritePolicy;

use crate::checkout::caches::{CacheFill, CacheRequest, ProjectCaches};
use crate::checkout::known_roots::closed_to_children;
use crate::checkout::temp_folder::TempFolder;
use crate::error::{Error, ErrorCode, Result};
use crate::step::hidden_paths::{ReadingInput, sockets_of_others};

/// What a guard in such a folder may write and read, and the variables that lead to caches of its
/// own. All of it goes away with the temp folder.
pub fn foreign_policy(
    folder: &Path,
    argv: &[OsString],
    config: &Config,
    temp: &TempFolder,
) -> Result<(WritePolicy, Vec<(OsString, OsString)>)> {
    const KIND: ChildKind = ChildKind::Guard;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut writable = Vec::new();
    for text in config.sandbox.writable_for(KIND) {
        let path = runner_sandbox::expand_home(text, home.as_deref(), folder);
        writable.push(path.map_err(|message| {
            Error::new(ErrorCode::Config, format!("[sandbox] writable: {message}"))
        })?);
    }
    let caches = ProjectCaches::at(temp.path()).for_child(CacheRequest {
        kind: KIND,
        in_workspace: false,
        fill: CacheFill::All,
        has_layers: false,
        checkout: folder,
    })?;
    let reading = ReadingInput {
        kind: KIND,
        config,
        home: home.as_deref(),
        var: &|name| std::env::var_os(name),
        other_sockets: &sockets_of_others(),
        project: folder,
        agent_homes: &[],
        argv,
    };
    let reading = reading.rules()?;
    let replaced = reading.replaced_in(temp)?;
    let mut hidden = closed_to_children(None, folder);
    hidden.extend(reading.hidden);
    let policy = WritePolicy {
        project: folder.to_owned(),
        mounted_at: None,
        lent: Vec::new(),
        writable,
        read_only: Vec::new(),
        tmp: temp.path().to_owned(),
        tmp_seen_at: None,
        private: Vec::new(),
        layered: Vec::new(),
        in_sight: reading.in_sight,
        hidden,
        replaced,
        shared_memory: None,
        network: runner_sandbox::NetworkAccess::Open,
    };
    Ok((policy, caches.variables()))
}
