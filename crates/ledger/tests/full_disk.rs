//! A PostgreSQL whose disk is full: said clearly, nothing half written, and everything
//! goes on once there is room again.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // the bodies are tests

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use runner_ledger::{Ledger, LedgerError, LedgerOptions, Store, StoreError};
use runner_testkit::TestPostgres;
use sqlx::{Connection as _, PgConnection};
use support::{assert_clean, create, id, new_task};

/// A disk of its own, which is small.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    const SIZE: &str = "size=24m,mode=755";

    /// None, with words, where nobody may mount anything.
    fn mount() -> Option<SmallDisk> {
        let disk = SmallDisk {
            folder: tempfile::tempdir().unwrap(),
        };
        let mount = ["-t", "tmpfs", "-o", SmallDisk::SIZE, "tmpfs"];
        if !run("mount", &mount, disk.folder.path()) {
            println!("skipped: no file system can be mounted here; run it as root");
            return None;
        }
        let space = disk.path("space");
        std::fs::create_dir(&space).unwrap();
        assert!(run("chown", &["postgres:"], &space), "the server's user");
        Some(disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The server may still have files open there.
        run("umount", &["--lazy"], self.folder.path());
    }
}

#[allow(clippy::disallowed_methods)] // programs of the system, not of the runner
fn run(program: &str, args: &[&str], path: &Path) -> bool {
    let ran = Command::new(program).args(args).arg(path).output();
    ran.is_ok_and(|ran| ran.status.success())
}

#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    let server = TestPostgres::start(true);
    support::block_on(async {
        // Its files lie there; the log of the server does not, or it would stop as a whole.
        let mut admin = PgConnection::connect(&server.url("postgres"))
            .await
            .unwrap();
        for sql in [
            format!(
                "CREATE TABLESPACE small LOCATION '{}'",
                disk.path("space").display()
            ),
            "CREATE DATABASE full_disk TABLESPACE small".to_owned(),
        ] {
            let sql = sqlx::AssertSqlSafe(sql);
            sqlx::raw_sql(sql).execute(&mut admin).await.unwrap();
        }
        let store = Store::Postgres(server.url("full_disk"));
        let ledger = Ledger::open(&store, LedgerOptions::default())
            .await
            .unwrap();
        let ballast = disk.path("ballast");
        std::fs::write(&ballast, vec![1_u8; 4 << 20]).unwrap();

        let task = |name: &str| {
            let mut new = new_task(name, "src");
            // Text that does not get smaller when it is packed.
            let digest = |n: u32| noise(&format!("{name} {n}"));
            new.goal = (0..1_000).map(digest).collect();
            create(new)
        };
        let mut made = 0_u64;
        let error = loop {
            match ledger.call(&task(&format!("t{made}"))).await {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
            assert!(made < 10_000, "the disk is never full");
        };
        assert!(
            matches!(error, LedgerError::Store(StoreError::Full(_))),
            "{error}"
        );
        let words = error.to_string();
        assert!(
            words.contains("disk is full, nothing was written"),
            "{words}"
        );
        // What was made before is there, whole, and nothing of what was refused.
        let findings = ledger.check().await.unwrap();
        assert_clean(&findings);
        assert_eq!((findings.tasks, findings.events), (made, made));
        println!("full after {made} tasks");

        std::fs::remove_file(&ballast).unwrap();
        for again in 0..5 {
            let name = format!("again{again}");
            ledger.call(&task(&name)).await.unwrap();
            assert!(ledger.task(&id(&name)).await.unwrap().is_some());
        }
        assert_clean(&ledger.check().await.unwrap());
        ledger.close().await.unwrap();
    });
}

/// Digits that look like nothing in particular.
fn noise(text: &str) -> String {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
