//! `runner fleet token`: what opens the API, for those who ask it from a shell; and where a fleet
//! keeps that.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use runner::{Error, ErrorCode, Result};
use runner_core::paths;
use runner_server::fleet::{TOKEN_FILE, fleet_token, login_word};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::context;
use crate::commands::Exit;
use crate::fleet_args::TokenArgs;
use crate::out::OutputGate;

/// The file beside the token that says where the API is while it is served.
const ADDRESS_FILE: &str = "api.json";
const MAX_ADDRESS: u64 = 4096;

/// Where an API is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ApiAddress {
    pub(super) url: String,
    pub(super) address: SocketAddr,
    /// The name of its socket, beside this file.
    pub(super) socket: String,
    /// Another one at each start.
    pub(super) instance: String,
}

impl ApiAddress {
    /// Says so to other commands.
    pub(super) fn tell(&self, keys: &Path) -> Result<()> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        Ok(runner::files::write_whole_mode(
            &keys.join(ADDRESS_FILE),
            &text,
            0o600,
        )?)
    }

    /// Unless another one is told by now.
    pub(super) fn take_back(&self, keys: &Path) {
        if ApiAddress::told(keys).as_ref() == Some(self) {
            // One that stays is found out by whoever asks it.
            let _ = std::fs::remove_file(keys.join(ADDRESS_FILE));
        }
    }

    /// The one that is told, if it is there.
    pub(super) fn served(keys: &Path) -> Result<ApiAddress> {
        let api = ApiAddress::told(keys).filter(ApiAddress::is_served);
        api.ok_or_else(|| {
            Error::new(ErrorCode::NotFound, "nobody serves the API of this fleet")
                .hint("`runner fleet up` and `runner fleet serve` do")
        })
    }

    fn told(keys: &Path) -> Option<ApiAddress> {
        let bytes = runner::files::read_regular(&keys.join(ADDRESS_FILE), MAX_ADDRESS).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn is_served(&self) -> bool {
        TcpStream::connect_timeout(&self.address, Duration::from_secs(5)).is_ok()
    }
}

/// `runner fleet token`.
pub(super) fn run(dir: &Path, options: &TokenArgs, out: &mut OutputGate) -> Result<Exit> {
    let (_, repo) = context::open_repo(dir)?;
    let keys = repo.key_folder()?;
    let token = fleet_token(&keys)?;
    if options.link {
        let link = link_to(&ApiAddress::served(&keys)?, &token)?;
        if out.json {
            out.object(json!({"link": link}));
        } else {
            out.data(&link);
            out.say("it works once, within five minutes");
        }
        return Ok(Exit::Success);
    }
    if out.json {
        out.object(json!({"token": token, "token_file": keys.join(TOKEN_FILE)}));
    } else if options.header {
        out.data(&format!("Authorization: Bearer {token}"));
    } else {
        out.data(&token);
    }
    Ok(Exit::Success)
}

/// A link to an API that works once.
pub(super) fn link_to(api: &ApiAddress, token: &str) -> Result<String> {
    let word = login_word(token, &api.instance)?;
    Ok(format!("{}/?token={word}", api.url))
}

/// Removes the token that earlier versions kept in the project, where sessions could read it. It
/// opens nothing any more; whether there was one.
pub(super) fn remove_old(root: &Path) -> bool {
    std::fs::remove_file(root.join(paths::FLEET_DIR).join(TOKEN_FILE)).is_ok()
}
