//! The embedded schema, and the steps from an older one.

use crate::error::StoreError;

/// The newest schema that this program knows.
pub const SCHEMA: i64 = 5;

/// One step: what both engines run, and what each runs besides.
struct MigrationStep {
    common: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

static STEPS: &[MigrationStep] = &[
    MigrationStep {
        common: include_str!("../../migrations/0001.sql"),
        sqlite: include_str!("../../migrations/0001_sqlite.sql"),
        postgres: include_str!("../../migrations/0001_postgres.sql"),
    },
    MigrationStep {
        common: include_str!("../../migrations/0002.sql"),
        sqlite: "",
        postgres: "",
    },
    MigrationStep {
        common: include_str!("../../migrations/0003.sql"),
        sqlite: include_str!("../../migrations/0003_sqlite.sql"),
        postgres: include_str!("../../migrations/0003_postgres.sql"),
    },
    MigrationStep {
        common: include_str!("../../migrations/0004.sql"),
        sqlite: include_str!("../../migrations/0004_sqlite.sql"),
        postgres: include_str!("../../migrations/0004_postgres.sql"),
    },
    MigrationStep {
        common: "",
        sqlite: "",
        postgres: include_str!("../../migrations/0005_postgres.sql"),
    },
];

/// Which engine the text is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SqlDialect {
    Sqlite,
    Postgres,
}

/// Brings the schema up to date inside an open transaction of either engine. Somebody else
/// may have done it since it was looked at.
macro_rules! upgrade_in {
    ($open:expr, $dialect:expr, $fail:expr) => {{
        let open = $open;
        sqlx::query($crate::store::migrate::CREATE_VERSION_TABLE)
            .execute(&mut **open)
            .await
            .map_err($fail)?;
        let row = sqlx::query($crate::store::migrate::READ_VERSION)
            .fetch_one(&mut **open)
            .await
            .map_err($fail)?;
        let found = row.try_get::<Option<i64>, usize>(0).map_err($fail)?;
        for (version, text) in $crate::store::migrate::pending(found.unwrap_or(0), $dialect)? {
            sqlx::raw_sql(sqlx::AssertSqlSafe(text))
                .execute(&mut **open)
                .await
                .map_err($fail)?;
            sqlx::query($crate::store::migrate::WRITE_VERSION)
                .bind(version)
                .execute(&mut **open)
                .await
                .map_err($fail)?;
        }
    }};
}
pub(crate) use upgrade_in;

pub(crate) const CREATE_VERSION_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS ledger_schema (version BIGINT NOT NULL)";
pub(crate) const READ_VERSION: &str = "SELECT MAX(version) FROM ledger_schema";
pub(crate) const WRITE_VERSION: &str = "INSERT INTO ledger_schema (version) VALUES ($1)";

/// The statements that lead from the schema that was found to ours, each with the
/// version it leads to.
pub(crate) fn pending(found: i64, dialect: SqlDialect) -> Result<Vec<(i64, String)>, StoreError> {
    if found > SCHEMA {
        return Err(StoreError::Newer {
            found,
            known: SCHEMA,
        });
    }
    let done = usize::try_from(found).unwrap_or(0);
    let steps = STEPS.iter().enumerate().skip(done);
    let texts = steps.map(|(at, step)| {
        let (text, serial, own) = match dialect {
            SqlDialect::Sqlite => ("TEXT", "INTEGER PRIMARY KEY AUTOINCREMENT", step.sqlite),
            SqlDialect::Postgres => ("TEXT COLLATE \"C\"", "BIGSERIAL PRIMARY KEY", step.postgres),
        };
        let common = step.common.replace("{text}", text);
        let version = i64::try_from(at + 1).unwrap_or(i64::MAX);
        (
            version,
            format!("{}\n{own}", common.replace("{serial}", serial)),
        )
    });
    Ok(texts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_lead_to_the_schema() {
        assert_eq!(i64::try_from(STEPS.len()).unwrap(), SCHEMA);
        for dialect in [SqlDialect::Sqlite, SqlDialect::Postgres] {
            assert_eq!(pending(0, dialect).unwrap().len(), STEPS.len());
            assert!(pending(SCHEMA, dialect).unwrap().is_empty());
            for (_, text) in pending(0, dialect).unwrap() {
                assert!(!text.contains("{text}") && !text.contains("{serial}"));
            }
        }
    }
}
