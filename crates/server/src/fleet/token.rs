//! The token that every write asks for: made at the first start, readable by its owner
//! alone, and the same for every process of the fleet.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use crate::serve::{random_hex, random_token};

/// The file of the token in the fleet's folder.
pub const TOKEN_FILE: &str = "api-token";

/// Longer than any token of ours.
const MAX_BYTES: u64 = 1024;

/// The token in that folder; the first who asks makes it.
pub fn fleet_token(folder: &Path) -> io::Result<String> {
    let path = folder.join(TOKEN_FILE);
    if let Some(token) = read(&path)? {
        return Ok(token);
    }
    std::fs::create_dir_all(folder)?;
    let token = random_token()?;
    // Whole or not at all, and never in the place of somebody else's: two that start at
    // the same time agree on the one that was first.
    let temp = folder.join(format!(".{TOKEN_FILE}.{}", random_hex(8)?));
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temp)
        .and_then(|mut file| {
            file.write_all(token.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| std::fs::hard_link(&temp, &path));
    let removed = std::fs::remove_file(&temp);
    match made {
        Ok(()) => {
            removed?;
            File::open(folder)?.sync_all()?;
            Ok(token)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(&path)?
            .ok_or_else(|| io::Error::other(format!("{} comes and goes", path.display()))),
        Err(error) => Err(error),
    }
}

/// The token that is there. One that others could read is closed to them.
fn read(path: &Path) -> io::Result<Option<String>> {
    use runner::files::ReadError;
    let bytes = match runner::files::read_regular(path, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(ReadError::Absent) => return Ok(None),
        Err(error) => {
            return Err(io::Error::other(format!("{}: {error}", path.display())));
        }
    };
    let token = String::from_utf8_lossy(&bytes).trim().to_owned();
    let usable = token.len() >= 16 && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !usable {
        return Err(io::Error::other(format!(
            "{} holds no token: remove it, and a new one is made",
            path.display()
        )));
    }
    let open_to_others = std::fs::metadata(path)?.permissions().mode() & 0o077 != 0;
    if open_to_others {
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok(Some(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn made_once_for_its_owner_alone() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("fleet");
        let token = fleet_token(&folder).unwrap();
        assert_eq!(token.len(), 48);
        let path = folder.join(TOKEN_FILE);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fleet_token(&folder).unwrap(), token);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(fleet_token(&folder).unwrap(), token);
        assert_eq!(mode(&path), 0o600);
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn those_who_start_together_agree() {
        let temp = tempfile::tempdir().unwrap();
        let tokens: Vec<String> = std::thread::scope(|scope| {
            let start = |_| scope.spawn(|| fleet_token(temp.path()).unwrap());
            let threads: Vec<_> = (0..8).map(start).collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    }

    #[test]
    fn an_empty_file_is_no_token() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join(TOKEN_FILE), "short\n").unwrap();
        let error = fleet_token(temp.path()).unwrap_err().to_string();
        assert!(error.contains("holds no token"), "{error}");
        std::fs::remove_file(temp.path().join(TOKEN_FILE)).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", temp.path().join(TOKEN_FILE)).unwrap();
        assert!(fleet_token(temp.path()).is_err());
    }
}
