//! The key that passes are signed with: made at first use, kept with the runner's state, never in a
//! project.

use std::fs::{OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use runner_core::config::Config;
use runner_core::digest::{hex, sha256_hex};
use runner_core::message;
use runner_core::proof::{self, ProofTrailer};

use crate::checkout::root::WorkspaceRoot;
use crate::error::{Error, ErrorCode, Result};
use crate::files;

/// The file, in the folder that holds those of all projects.
const FILE: &str = "proof.key";

/// Hexadecimal digits and a newline.
const MAX_BYTES: u64 = 128;

/// The key of this machine's user.
pub(crate) struct ProofKey(SigningKey);

/// Who signed a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProofSigner {
    /// The key of this machine, with this id.
    Machine(String),
    /// The key that the commit which began the run names.
    Start(String),
    /// A key of which nothing is known here.
    Unknown(String),
    /// Nobody.
    Nobody,
    /// The signature is not about this commit.
    Forged,
}

impl ProofSigner {
    /// The word in `--json`.
    pub fn as_str(&self) -> &'static str {
        match self {
            ProofSigner::Machine(_) => "machine",
            ProofSigner::Start(_) => "start",
            ProofSigner::Unknown(_) => "unknown",
            ProofSigner::Nobody => "none",
            ProofSigner::Forged => "forged",
        }
    }
}

/// The key of this machine, made where there is none.
pub(crate) fn of_machine() -> Result<ProofKey> {
    let path = path()?;
    if let Some(key) = read(&path)? {
        return Ok(key);
    }
    let seed: [u8; 32] = files::random_bytes()?;
    if let Some(folder) = path.parent() {
        files::make_folder(folder)?;
    }
    // Written aside and given its name at once: of two that make one, the first counts.
    let aside = path.with_extension(format!("{}.new", &sha256_hex(&seed)[..16]));
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&aside)?;
    file.write_all(format!("{}\n", hex(&seed)).as_bytes())?;
    file.sync_all()?;
    let named = std::fs::hard_link(&aside, &path);
    files::remove_if_there(&aside)?;
    match (read(&path)?, named) {
        (Some(key), _) => Ok(key),
        (None, Err(error)) => Err(files::at(&path, error).into()),
        (None, Ok(())) => Err(unreadable(&path)),
    }
}

fn path() -> Result<PathBuf> {
    // A place that a project's config names is the project's.
    let folder = WorkspaceRoot::of_all_projects(&Config::default(), Path::new("/"))?;
    Ok(folder.join(FILE))
}

/// `None`: there is none.
fn read(path: &Path) -> Result<Option<ProofKey>> {
    let Ok(meta) = path.symlink_metadata() else {
        return Ok(None);
    };
    let is_ours = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
    if is_ours && meta.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    let bytes = files::read_regular(path, MAX_BYTES).unwrap_or_default();
    let seed = proof::unhex(String::from_utf8_lossy(&bytes).trim());
    match seed.filter(|_| is_ours) {
        Some(seed) => Ok(Some(ProofKey(SigningKey::from_bytes(&seed)))),
        None => Err(unreadable(path)),
    }
}

fn unreadable(path: &Path) -> Error {
    Error::new(
        ErrorCode::Layout,
        format!("{} is no key of yours", path.display()),
    )
    .hint("move it away: a new one is made, and earlier passes count as signed by the one that their run names")
}

impl ProofKey {
    /// Its public half.
    pub(crate) fn public(&self) -> ProofTrailer<32> {
        let bytes = self.0.verifying_key().to_bytes();
        ProofTrailer {
            key_id: proof::key_id(&bytes),
            bytes,
        }
    }

    /// Adds the signature to the message of a commit that is about to be made.
    pub(crate) fn sign(&self, parent: &str, git_tree: &str, text: &mut String) {
        let statement = proof::statement(parent, git_tree, text);
        let signature = ProofTrailer {
            key_id: self.public().key_id,
            bytes: self.0.sign(statement.as_bytes()).to_bytes(),
        };
        message::add_trailer(text, proof::PROOF, &signature.value());
    }
}

/// Who signed a commit. `start`: the message of the commit that began its run.
pub(crate) fn signer(parent: &str, git_tree: &str, text: &str, start: &str) -> ProofSigner {
    let own = path().and_then(|path| read(&path)).ok().flatten();
    let own = own.map(|key| key.public());
    signer_of((parent, git_tree, text), own, start)
}

/// The same with the key of this machine, if there is one.
fn signer_of(
    (parent, git_tree, text): (&str, &str, &str),
    own: Option<ProofTrailer<32>>,
    start: &str,
) -> ProofSigner {
    let Some(value) = message::trailer(text, proof::PROOF) else {
        return ProofSigner::Nobody;
    };
    let Some(signature) = ProofTrailer::<64>::parse(value) else {
        return ProofSigner::Forged;
    };
    let named = message::trailer(start, proof::KEY).and_then(ProofTrailer::<32>::parse);
    let is_it = |key: &ProofTrailer<32>| {
        key.key_id == signature.key_id && proof::key_id(&key.bytes) == key.key_id
    };
    let (key, signer) = match (own.filter(is_it), named.filter(is_it)) {
        (Some(key), _) => (key, ProofSigner::Machine(signature.key_id)),
        (None, Some(key)) => (key, ProofSigner::Start(signature.key_id)),
        (None, None) => return ProofSigner::Unknown(signature.key_id),
    };
    let statement = proof::statement(parent, git_tree, text);
    let is_right = VerifyingKey::from_bytes(&key.bytes).is_ok_and(|key| {
        key.verify_strict(
            statement.as_bytes(),
            &Signature::from_bytes(&signature.bytes),
        )
        .is_ok()
    });
    if is_right {
        signer
    } else {
        ProofSigner::Forged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_signature_it_is() {
        let key = ProofKey(SigningKey::from_bytes(&[3; 32]));
        let other = ProofKey(SigningKey::from_bytes(&[4; 32]));
        let start = format!("start\n\n{}: {}\n", proof::KEY, key.public().value());
        let mut text = "pass\n\nRunner-Guard: [\"x\"] exit=0\n".to_owned();
        assert_eq!(
            signer_of(("p", "t", &text), None, &start),
            ProofSigner::Nobody
        );
        key.sign("p", "t", &mut text);
        let id = key.public().key_id;
        assert_eq!(
            signer_of(("p", "t", &text), Some(key.public()), &start),
            ProofSigner::Machine(id.clone())
        );
        assert_eq!(
            signer_of(("p", "t", &text), None, &start),
            ProofSigner::Start(id.clone())
        );
        assert_eq!(
            signer_of(("p", "t", &text), None, "start\n"),
            ProofSigner::Unknown(id)
        );
        let forged = [
            ("q", "t", text.clone()),
            ("p", "u", text.clone()),
            ("p", "t", text.replace("exit=0", "exit=1")),
            ("p", "t", text.replace("ed25519 ", "ed25519  ")),
        ];
        for (parent, tree, text) in forged {
            assert_eq!(
                signer_of((parent, tree, &text), None, &start),
                ProofSigner::Forged
            );
        }
        // Another key under the id of the first.
        let name = other.public().value();
        let name = name.replace(&other.public().key_id, &key.public().key_id);
        let start = format!("start\n\n{}: {name}\n", proof::KEY);
        assert!(matches!(
            signer_of(("p", "t", &text), None, &start),
            ProofSigner::Unknown(_)
        ));
    }
}
