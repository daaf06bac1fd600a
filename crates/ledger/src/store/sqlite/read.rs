//! Opening a file to read it, also where nothing can be written: neither to the file nor
//! beside it.

use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;

use super::{BUSY, SqliteEngine, failed};
use crate::error::StoreError;

impl SqliteEngine {
    pub(crate) async fn open_to_read(
        path: &Path,
        connections: u32,
    ) -> Result<SqliteEngine, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .busy_timeout(BUSY);
        let refused = match SqliteEngine::with(path, options.clone(), connections).await {
            Err(error) => error,
            Ok(engine) => match engine.version().await {
                Ok(_) => return Ok(engine),
                Err(error) => failed(&error),
            },
        };
        let unwritable = matches!(
            refused,
            StoreError::ReadOnly(_) | StoreError::Unavailable(_)
        );
        if !unwritable || !path.is_file() {
            return Err(refused);
        }
        // In WAL mode readers, too, write beside the file, unless they are told that it
        // cannot change. What is in the log would be left out then.
        let log = beside(path, "-wal");
        if log.metadata().is_ok_and(|log| log.len() > 0) {
            return Err(StoreError::ReadOnly(format!(
                "{refused}; its last changes are in {}, which can be read only where the folder \
                 can be written: copy both files to such a folder and read the copy",
                log.display()
            )));
        }
        SqliteEngine::with(path, options.immutable(true), connections).await
    }
}

/// The name of a file that stands beside another one.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
