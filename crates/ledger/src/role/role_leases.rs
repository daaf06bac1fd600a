//! Role leases: of some roles there is one at a time, and the others stand by.
//!
//! A role lease orders, it does not protect: what its holder writes is decided by the rules of
//! each task, so that two holders for a moment do no harm.

use runner_lifecycle::Timestamp;

use crate::call::records::int;
use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::store::engine::{SqlArg, StoreAccess, all, one, run};

/// A role lease, as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleLease {
    /// Which.
    pub name: String,
    /// Whose it is.
    pub holder: String,
    /// It only grows: a renewal names it.
    pub token: u64,
    /// When its holder was last heard.
    pub renewed_at: Timestamp,
    /// When it is free unless its holder renews it.
    pub expires_at: Timestamp,
}

/// What became of a try to take one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleLeaseAttempt {
    /// It is yours, with this token.
    Yours(u64),
    /// Somebody has it; look again then.
    Taken {
        /// Who.
        holder: String,
        /// When it is free unless its holder renews it.
        until: Timestamp,
    },
}

const READ: &str = "SELECT name, holder, token, renewed_at, expires_at FROM seats \
     WHERE name = $1";
const TAKE: &str = "INSERT INTO seats (name, holder, token, renewed_at, expires_at) \
     VALUES ($1, $2, 1, $3, $4) ON CONFLICT (name) DO UPDATE SET \
     holder = excluded.holder, token = seats.token + 1, \
     renewed_at = excluded.renewed_at, expires_at = excluded.expires_at \
     WHERE seats.expires_at <= $3 OR seats.holder = $2";
const RENEW: &str = "UPDATE seats SET renewed_at = $3, expires_at = $4 \
     WHERE name = $1 AND token = $2";
const RELEASE: &str = "UPDATE seats SET expires_at = $3 WHERE name = $1 AND token = $2";

impl Ledger {
    /// Takes a role lease that is free, or one that this holder had before.
    pub async fn take_role_lease(
        &self,
        role: &str,
        holder: &str,
        timeout_seconds: u32,
    ) -> Result<RoleLeaseAttempt, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        let now = self.now_in(&mut *tx).await?;
        let until = now.plus_secs(u64::from(timeout_seconds));
        let args = [
            SqlArg::Text(role),
            SqlArg::Text(holder),
            SqlArg::Int(now.0),
            SqlArg::Int(until.0),
        ];
        let taken = run(&mut *tx, TAKE, &args).await? == 1;
        let row = one(&mut *tx, READ, &[SqlArg::Text(role)]).await?;
        let row = row.ok_or_else(|| StoreError::Damaged(format!("there is no seat {role}")))?;
        let lease = read(&row)?;
        tx.commit().await?;
        Ok(if taken {
            RoleLeaseAttempt::Yours(lease.token)
        } else {
            RoleLeaseAttempt::Taken {
                holder: lease.holder,
                until: lease.expires_at,
            }
        })
    }

    /// Renews a role lease. False: another holder has it by now.
    pub async fn renew_role_lease(
        &self,
        role: &str,
        token: u64,
        timeout_seconds: u32,
    ) -> Result<bool, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        let now = self.now_in(&mut *tx).await?;
        let until = now.plus_secs(u64::from(timeout_seconds));
        let args = [
            SqlArg::Text(role),
            SqlArg::Int(int(token)),
            SqlArg::Int(now.0),
            SqlArg::Int(until.0),
        ];
        let kept = run(&mut *tx, RENEW, &args).await? == 1;
        tx.commit().await?;
        Ok(kept)
    }

    /// Gives a role lease up, so that those who stand by need not wait.
    pub async fn release_role_lease(&self, role: &str, token: u64) -> Result<(), StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        let now = self.now_in(&mut *tx).await?;
        let args = [
            SqlArg::Text(role),
            SqlArg::Int(int(token)),
            SqlArg::Int(now.0),
        ];
        run(&mut *tx, RELEASE, &args).await?;
        tx.commit().await?;
        self.engine.announce();
        Ok(())
    }

    /// Every role lease that was ever taken.
    pub async fn role_leases(&self) -> Result<Vec<RoleLease>, StoreError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let sql = "SELECT name, holder, token, renewed_at, expires_at FROM seats ORDER BY name";
        let rows = all(&mut *tx, sql, &[]).await?;
        rows.iter().map(read).collect()
    }
}

fn read(row: &crate::store::engine::SqlRow) -> Result<RoleLease, StoreError> {
    Ok(RoleLease {
        name: row.text(0)?,
        holder: row.text(1)?,
        token: u64::try_from(row.int(2)?).unwrap_or(0),
        renewed_at: Timestamp(row.int(3)?),
        expires_at: Timestamp(row.int(4)?),
    })
}
