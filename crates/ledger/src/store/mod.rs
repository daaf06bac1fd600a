//! Where a ledger is: a file, or a PostgreSQL server.

pub mod engine;
pub(crate) mod migrate;
pub(crate) mod notifications;
pub(crate) mod pool;
pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::path::PathBuf;

/// The place of a ledger.
#[derive(Clone, PartialEq, Eq)]
pub enum Store {
    /// One file, for processes of one machine.
    Sqlite(PathBuf),
    /// A server, for several machines. The URL may hold a password.
    Postgres(String),
    /// Nowhere: it ends with the process. For simulations.
    Memory,
}

/// A text that names no store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no store: use a file, or postgres://user@host/database")]
pub struct StoreNameError(pub String);

impl Store {
    /// Reads a path, `sqlite:PATH` or `postgres://…`.
    pub fn parse(text: &str) -> Result<Store, StoreNameError> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Store::Postgres(text.to_owned()));
        }
        let path = text.strip_prefix("sqlite:").unwrap_or(text);
        if path.is_empty() || path.contains("://") {
            // A mistyped URL must not become a file, nor its password a message.
            return Err(StoreNameError(without_password(text)));
        }
        Ok(Store::Sqlite(PathBuf::from(path)))
    }
}

impl std::fmt::Display for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Store::Sqlite(path) => path.display().fmt(f),
            Store::Postgres(url) => f.write_str(&without_password(url)),
            Store::Memory => f.write_str("memory"),
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({self})")
    }
}

/// The URL without what follows the user's name, and without its query.
fn without_password(url: &str) -> String {
    let (plain, _) = url.split_once('?').unwrap_or((url, ""));
    let Some((scheme, rest)) = plain.split_once("://") else {
        return plain.to_owned();
    };
    match rest.rsplit_once('@') {
        Some((user, host)) => {
            let name = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{name}@{host}")
        }
        None => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (text, shown) in [
            ("fleet/ledger.db", Some("fleet/ledger.db")),
            ("sqlite:fleet/ledger.db", Some("fleet/ledger.db")),
            ("postgres://u:pw@h/db?x=y", Some("postgres://u@h/db")),
            ("postgresql://h:5/db", Some("postgresql://h:5/db")),
            ("postgres://u:p@w@h/db", Some("postgres://u@h/db")),
            ("mysql://u:pw@h/db", None),
            ("", None),
            ("sqlite:", None),
        ] {
            let got = Store::parse(text).map(|store| store.to_string());
            assert_eq!(got.as_deref().ok(), shown, "{text}");
        }
        let error = Store::parse("mysql://u:pw@h/db").unwrap_err();
        assert!(!error.to_string().contains("pw"), "{error}");
    }
}
