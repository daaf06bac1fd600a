//! Many callers of one process at the same time: what each is told and what is written is
//! the same as if they had come one after the other.

use runner_ledger::{CallOutcome, ClaimRequest, ClaimedTask, Ledger, LedgerCall, LedgerError};
use runner_lifecycle::lock::overlap;
use runner_lifecycle::request::NewTask;
use runner_lifecycle::{RefusalCode, Request, TaskState};

use crate::support::*;

/// All of them at once; their answers in order.
async fn at_once(ledger: &Ledger, calls: Vec<LedgerCall>) -> Vec<Result<CallOutcome, LedgerError>> {
    let calls = calls.into_iter().map(|call| {
        let ledger = ledger.clone();
        tokio::spawn(async move { ledger.call(&call).await })
    });
    let mut told = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        told.push(call.await.unwrap());
    }
    told
}

/// As many claims at once, each by somebody else.
async fn claimed_at_once(ledger: &Ledger, round: usize, many: usize) -> Vec<Option<ClaimedTask>> {
    let claims = (0..many).map(|at| {
        let ledger = ledger.clone();
        tokio::spawn(async move { work(&ledger, &format!("w{at}"), &format!("k{round}")).await })
    });
    let mut told = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        told.push(claim.await.unwrap());
    }
    told
}

pub(crate) async fn whole_lives_at_once(world: World) {
    const MANY: usize = 12;
    let ledger = world.open_with(6).await;
    for round in 0..4 {
        let name = |at: usize| format!("t{round}-{at:02}");
        let new = (0..MANY).map(|at| create(simple(&name(at), &format!("src/{}", name(at)))));
        for made in at_once(&ledger, new.collect()).await {
            assert_eq!(made.unwrap().task.state, TaskState::Todo);
        }
        let claimed = claimed_at_once(&ledger, round, MANY).await;
        let claimed: Vec<ClaimedTask> = claimed.into_iter().map(Option::unwrap).collect();
        let mut ids: Vec<&str> = claimed.iter().map(|one| one.task.id.as_str()).collect();
        ids.sort_unstable();
        let expected: Vec<String> = (0..MANY).map(name).collect();
        assert_eq!(ids, expected, "each was claimed once");
        world.clock.advance_secs(1);
        let owner = |at: usize| format!("w{at}");
        let each = || claimed.iter().enumerate();
        let beats = each().map(|(at, one)| heartbeat(one, &owner(at))).collect();
        assert!(at_once(&ledger, beats).await.iter().all(Result::is_ok));
        let ends = each().map(|(at, one)| succeed(one, &owner(at))).collect();
        for (at, done) in at_once(&ledger, ends).await.into_iter().enumerate() {
            let done = done.unwrap();
            assert_eq!(done.task.state, TaskState::Done);
            assert_eq!(done.task.id, claimed[at].task.id, "each got its own answer");
        }
    }
    assert!(ledger.locks().await.unwrap().is_empty());
    assert_clean(&ledger.check().await.unwrap());
}

/// One of those who come together is refused; the others do not notice.
pub(crate) async fn whoever_is_refused_harms_nobody(world: World) {
    let (ledger, other) = (world.open_with(6).await, world.open().await);
    for at in 0..8 {
        made(&ledger, simple(&format!("t{at}"), &format!("src/{at}"))).await;
    }
    let claimed = claimed_at_once(&ledger, 0, 8).await;
    let claimed: Vec<ClaimedTask> = claimed.into_iter().map(Option::unwrap).collect();
    let cancel = Request::Cancel {
        reason: "no longer wanted".to_owned(),
    };
    let gone = claimed[3].task.id.clone();
    other
        .call(&LedgerCall::new(gone, "person", cancel))
        .await
        .unwrap();
    world.clock.advance_secs(1);
    for make in [heartbeat, succeed] {
        let calls = claimed.iter().enumerate();
        let calls = calls
            .map(|(at, one)| make(one, &format!("w{at}")))
            .collect();
        for (at, told) in at_once(&ledger, calls).await.into_iter().enumerate() {
            assert_eq!(told.is_err(), at == 3, "{at}: {told:?}");
        }
    }
    // The same with names that are taken.
    let new = (4..12).map(|at| create(simple(&format!("t{at}"), &format!("src/{at}"))));
    for (at, told) in at_once(&ledger, new.collect())
        .await
        .into_iter()
        .enumerate()
    {
        let code = told.err().and_then(|error| error.code());
        assert_eq!(
            code,
            (at < 4).then_some(RefusalCode::InvalidTransition),
            "{at}"
        );
    }
    assert_clean(&ledger.check().await.unwrap());
}

/// Claims that come together get what they may have together, and the rest later.
pub(crate) async fn claims_at_once_keep_the_rules(world: World) {
    let ledger = world.open_with(6).await;
    let scopes = [
        "src", "src/x", "src/x/y", "docs", "docs", "lib", "srcs", ".",
    ];
    for (at, scope) in scopes.iter().enumerate() {
        made(&ledger, simple(&format!("t{at}"), scope)).await;
        world.clock.advance_millis(1);
    }
    let mut last = simple("last", "bin");
    last.dependencies = vec![id("t5")];
    made(&ledger, last).await;
    let (mut done, mut round) = (Vec::new(), 0);
    while done.len() < scopes.len() + 1 {
        round += 1;
        assert!(round < 30, "not all of them ended: {done:?}");
        let claimed = claimed_at_once(&ledger, round, 6).await;
        let held: Vec<(usize, ClaimedTask)> = claimed
            .into_iter()
            .enumerate()
            .filter_map(|(at, claimed)| Some((at, claimed?)))
            .collect();
        for (at, (_, one)) in held.iter().enumerate() {
            for (_, other) in &held[at + 1..] {
                let (one, other) = (one.task.work_scope(), other.task.work_scope());
                assert!(!overlap(&one, &other), "{one:?} and {other:?}");
            }
        }
        let ends = held.iter().map(|(at, one)| succeed(one, &format!("w{at}")));
        let ends = at_once(&ledger, ends.collect()).await;
        done.extend(ends.into_iter().map(|end| end.unwrap().task.id.to_string()));
        world.clock.advance_secs(1);
    }
    let place = |name: &str| done.iter().position(|done| done == name);
    assert!(place("t5") < place("last"), "{done:?}");
    assert_clean(&ledger.check().await.unwrap());
}

/// The same claim in a batch with itself and with others gets one lease.
pub(crate) async fn a_claim_in_a_batch_with_itself_gets_one_lease(world: World) {
    let ledger = world.open_with(6).await;
    for at in 0..6 {
        made(&ledger, simple(&format!("t{at}"), &format!("src/{at}"))).await;
    }
    let claims = ["a", "a", "b", "a", "b", "c"].map(|owner| {
        let ledger = ledger.clone();
        tokio::spawn(async move { (owner, work(&ledger, owner, "k").await) })
    });
    let mut held = std::collections::BTreeMap::new();
    for claim in claims {
        let (owner, claimed) = claim.await.unwrap();
        let claimed = claimed.unwrap_or_else(|| panic!("{owner} got nothing"));
        let before = held.insert(owner, claimed.task.id.clone());
        assert!(
            before.is_none_or(|before| before == claimed.task.id),
            "{owner}"
        );
    }
    assert_eq!(ledger.locks().await.unwrap().len(), 3);
    assert_clean(&ledger.check().await.unwrap());
}

/// Nobody gets anything while everything is paused, in a batch either.
pub(crate) async fn nothing_is_claimed_at_once_while_paused(world: World) {
    let ledger = world.open_with(6).await;
    for at in 0..4 {
        made(&ledger, simple(&format!("t{at}"), &format!("src/{at}"))).await;
    }
    ledger.set_paused(true).await.unwrap();
    let claimed = claimed_at_once(&ledger, 0, 4).await;
    assert!(claimed.iter().all(Option::is_none));
    ledger.set_paused(false).await.unwrap();
    let claimed = claimed_at_once(&ledger, 1, 4).await;
    assert!(claimed.iter().all(Option::is_some));
}

/// Whoever is first in order and needs more than a glance is not overtaken by whoever would
/// be in his way.
pub(crate) async fn the_first_in_order_is_not_overtaken(world: World) {
    let ledger = world.open_with(6).await;
    made(&ledger, simple("before", "before")).await;
    let before = work(&ledger, "w", "before").await.unwrap();
    ledger.call(&succeed(&before, "w")).await.unwrap();
    let mut after = simple("after", "after");
    after.dependencies = vec![id("before")];
    let two = NewTask {
        lock_scope: vec![resource("two/a"), resource("two/b")],
        ..simple("two", "two/a")
    };
    let cases = [
        (simple("whole", "."), "src"),
        (two, "two/b/deep"),
        (after, "after/deep"),
    ];
    for (round, (first, scope)) in cases.into_iter().enumerate() {
        let name = first.id.to_string();
        made(&ledger, first).await;
        world.clock.advance_millis(1);
        made(&ledger, simple(&format!("second{round}"), scope)).await;
        let claimed = claimed_at_once(&ledger, round, 4).await;
        let held: Vec<&str> = claimed
            .iter()
            .flatten()
            .map(|one| one.task.id.as_str())
            .collect();
        assert_eq!(held, [name.as_str()]);
        for (at, one) in claimed.iter().enumerate() {
            if let Some(one) = one {
                ledger.call(&succeed(one, &format!("w{at}"))).await.unwrap();
            }
        }
        let second = work(&ledger, "w", &format!("second{round}")).await.unwrap();
        ledger.call(&succeed(&second, "w")).await.unwrap();
    }
    assert_clean(&ledger.check().await.unwrap());
}

/// What no store can keep is told to whoever wants it kept, and to nobody else.
pub(crate) async fn what_cannot_be_kept_harms_nobody(world: World) {
    let ledger = world.open_with(6).await;
    let new = (0..6).map(|at| {
        let mut new = simple(&format!("t{at}"), &format!("src/{at}"));
        if at == 2 {
            // Too much for an index of PostgreSQL, and too little alike to be packed.
            new.role = (0..9000_u32)
                .map(|at| char::from(b'a' + (at * at % 23) as u8))
                .collect();
            new.role
                .push_str(&(0..4000).map(|at| at.to_string()).collect::<String>());
        }
        create(new)
    });
    for (at, told) in at_once(&ledger, new.collect())
        .await
        .into_iter()
        .enumerate()
    {
        assert!(
            told.is_ok() || (at == 2 && world.is_postgres()),
            "{at}: {told:?}"
        );
    }
    let claims = ["w0", "w\u{0}1", "w2", "w3"].map(|owner| {
        let ledger = ledger.clone();
        let claim_request = ClaimRequest::work(owner, "worker", "k");
        tokio::spawn(async move { (owner, ledger.claim_next(&claim_request).await) })
    });
    for claim in claims {
        let (owner, told) = claim.await.unwrap();
        let got = told.is_ok_and(|claimed| claimed.is_some());
        assert!(got || owner.contains('\u{0}'), "{owner:?}");
    }
    assert_clean(&ledger.check().await.unwrap());
}

/// Somebody looks at one of the locks: the others are given back all the same.
pub(crate) async fn ends_wait_for_nobody_elses(world: World) {
    use sqlx::{Connection as _, Executor as _};

    let ledger = world.open_with(6).await;
    for at in 0..4 {
        made(&ledger, simple(&format!("t{at}"), &format!("src/{at}"))).await;
    }
    let claimed = claimed_at_once(&ledger, 0, 4).await;
    let claimed: Vec<ClaimedTask> = claimed.into_iter().map(Option::unwrap).collect();
    let runner_ledger::Store::Postgres(url) = &world.store else {
        panic!("for PostgreSQL alone");
    };
    let mut other = sqlx::PgConnection::connect(url).await.unwrap();
    let look = "BEGIN; SELECT 1 FROM locks WHERE task_id = 't1' FOR KEY SHARE";
    other.execute(sqlx::raw_sql(look)).await.unwrap();
    let ends: Vec<_> = claimed
        .iter()
        .enumerate()
        .map(|(at, one)| {
            let (ledger, end) = (ledger.clone(), succeed(one, &format!("w{at}")));
            tokio::spawn(async move { ledger.call(&end).await.unwrap() })
        })
        .collect();
    let mut looked_at = None;
    for (end, one) in ends.into_iter().zip(&claimed) {
        if one.task.id == id("t1") {
            looked_at = Some(end);
        } else {
            let patience = std::time::Duration::from_secs(30);
            let ended = tokio::time::timeout(patience, end).await;
            assert_eq!(ended.unwrap().unwrap().task.state, TaskState::Done);
        }
    }
    let looked_at = looked_at.unwrap();
    assert!(!looked_at.is_finished());
    other.execute("COMMIT").await.unwrap();
    assert_eq!(looked_at.await.unwrap().task.state, TaskState::Done);
    assert_clean(&ledger.check().await.unwrap());
}
