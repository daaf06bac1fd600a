//! The protocol of a task: steps, repeats, refusals, export.

use runner_ledger::{LedgerCall, LedgerOptions, SCHEMA, TaskFilter};
use runner_lifecycle::event::fold;
use runner_lifecycle::request::{Claim, NewPacket, NewTask, WorkEnding};
use runner_lifecycle::row::ContextItem;
use runner_lifecycle::{
    ContextKind, FailureCategory, LeasePurpose, RefusalCode, Request, TaskRunStatus, TaskState,
};

use crate::support::*;

pub(crate) async fn from_creation_to_merge(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    let claimed = work(&ledger, "w1", "k1").await.unwrap();
    assert_eq!((claimed.token, claimed.run_id.as_str()), (1, "a-1"));
    let locks = ledger.locks().await.unwrap();
    assert_eq!(locks[0].resource.as_str(), "src");
    world.clock.advance_secs(10);
    let heard = ledger.call(&heartbeat(&claimed, "w1")).await.unwrap();
    assert!(heard.events.is_empty(), "a heartbeat is no event");
    let lease = ledger.lease(&id("a")).await.unwrap().unwrap();
    assert_eq!(lease.last_heartbeat_at.0, START + 10_000);
    ledger.call(&succeed(&claimed, "w1")).await.unwrap();
    assert!(ledger.locks().await.unwrap().is_empty());
    assert!(ledger.lease(&id("a")).await.unwrap().is_none());
    judge_and_merge(&ledger, "a", "a-1").await;
    let row = ledger.task(&id("a")).await.unwrap().unwrap();
    assert_eq!(row.state, TaskState::Done);
    let events = ledger.events(&id("a")).await.unwrap();
    assert_eq!(fold(&events).unwrap(), row);
    let versions: Vec<u64> = events.iter().map(|event| event.version).collect();
    assert_eq!(versions, (1..=row.version).collect::<Vec<_>>());
    let runs = ledger.runs(&id("a")).await.unwrap();
    assert_eq!(runs[0].status, TaskRunStatus::Success);
    assert_clean(&ledger.check().await.unwrap());
}

pub(crate) async fn a_stale_token_changes_nothing(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    let old = work(&ledger, "w1", "k1").await.unwrap();
    world.clock.advance_secs(90);
    let expire = Request::Expire { not_before: None };
    ledger
        .call(&LedgerCall::new(id("a"), "watchdog", expire))
        .await
        .unwrap();
    let new = work(&ledger, "w2", "k2").await.unwrap();
    assert!(new.token > old.token);
    let before = exported(&ledger).await;
    for stale in [
        heartbeat(&old, "w1"),
        succeed(&old, "w1"),
        finish(&old, "w1", WorkEnding::Lost),
        // The right token in the wrong hands.
        heartbeat(&new, "w1"),
    ] {
        let refused = ledger.call(&stale).await.unwrap_err();
        assert_eq!(
            refused.code(),
            Some(RefusalCode::ConcurrencyConflict),
            "{refused}"
        );
    }
    assert_eq!(exported(&ledger).await, before);
    ledger.call(&heartbeat(&new, "w2")).await.unwrap();
}

pub(crate) async fn a_repeated_ending_gets_its_recorded_answer(world: World) {
    let ledger = world.open().await;
    made(&ledger, simple("a", "src")).await;
    made(&ledger, new_task("b", "docs")).await;
    let a = work(&ledger, "w1", "k1").await.unwrap();
    let b = work(&ledger, "w1", "k2").await.unwrap();
    for (claimed, expected) in [(&a, TaskState::Done), (&b, TaskState::Blocked)] {
        let first = ledger.call(&succeed(claimed, "w1")).await.unwrap();
        assert_eq!(first.task.state, expected);
        let again = ledger.call(&succeed(claimed, "w1")).await.unwrap();
        assert!(again.replayed && again.answer == first.answer);
        // On a terminal task the replay itself is an event; nothing else changes.
        let terminal = u64::from(expected.is_terminal());
        assert_eq!(again.task.version, first.task.version + terminal);
        let other = finish(claimed, "w1", WorkEnding::Lost);
        let refused = ledger.call(&other).await.unwrap_err();
        assert_eq!(refused.code(), Some(RefusalCode::ConcurrencyConflict));
    }
    let replay = ledger.events(&id("a")).await.unwrap().pop().unwrap();
    assert_eq!(
        (replay.reason.as_str(), replay.from_state),
        ("replayed", Some(TaskState::Done))
    );
    assert!(replay.changes.is_empty());
    assert_clean(&ledger.check().await.unwrap());
}

pub(crate) async fn a_repeated_claim_gets_the_same_lease(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    made(&ledger, new_task("b", "docs")).await;
    let first = work(&ledger, "w1", "k1").await.unwrap();
    let again = work(&ledger, "w1", "k1").await.unwrap();
    assert!(again.replayed);
    assert_eq!(
        (again.task.id, again.token, again.run_id),
        (first.task.id, first.token, first.run_id)
    );
    let other = work(&ledger, "w1", "k2").await.unwrap();
    assert_eq!(other.task.id, id("b"));
    assert!(work(&ledger, "w1", "k3").await.is_none());
}

pub(crate) async fn a_claim_on_its_way_twice_gets_one_lease(world: World) {
    let ledger = world.open_with(12).await;
    for n in 0..12 {
        made(&ledger, new_task(&format!("t{n}"), &format!("src/{n}"))).await;
    }
    let twins: Vec<_> = (0..12)
        .map(|_| {
            let ledger = ledger.clone();
            tokio::spawn(async move { work(&ledger, "w1", "k1").await.unwrap() })
        })
        .collect();
    let mut leases = std::collections::BTreeSet::new();
    for twin in twins {
        let claimed = twin.await.unwrap();
        leases.insert((claimed.task.id, claimed.token));
    }
    assert_eq!(leases.len(), 1, "{leases:?}");
    let (first, _) = leases.pop_first().unwrap();
    let other = if first == id("t0") { "t1" } else { "t0" };
    let claim = Request::Claim(Claim {
        owner: "w1".to_owned(),
        purpose: LeasePurpose::Work,
        key: "k1".to_owned(),
        base: None,
    });
    let refused = ledger.call(&LedgerCall::new(id(other), "w1", claim)).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Some(RefusalCode::ConcurrencyConflict));
    assert!(refused.to_string().contains(first.as_str()), "{refused}");
    assert_clean(&ledger.check().await.unwrap());
}

pub(crate) async fn a_named_creation_on_its_way_twice_is_answered_twice(world: World) {
    let ledger = world.open_with(12).await;
    for round in 0..5 {
        let call = create(new_task(&format!("t{round}"), "src")).named(&format!("r{round}"));
        let twins: Vec<_> = (0..12)
            .map(|_| {
                let (ledger, call) = (ledger.clone(), call.clone());
                tokio::spawn(async move { ledger.call(&call).await })
            })
            .collect();
        let mut first = 0;
        for twin in twins {
            first += u32::from(!twin.await.unwrap().unwrap().replayed);
        }
        assert_eq!(first, 1);
    }
}

pub(crate) async fn a_named_request_is_answered_once(world: World) {
    let ledger = world.open().await;
    let call = create(new_task("a", "src")).named("request-1");
    let first = ledger.call(&call).await.unwrap();
    let again = ledger.call(&call).await.unwrap();
    assert!(again.replayed && again.answer == first.answer);
    assert_eq!(again.task.version, 1);
    let other = create(new_task("b", "src")).named("request-1");
    let refused = ledger.call(&other).await.unwrap_err();
    assert_eq!(refused.code(), Some(RefusalCode::ConcurrencyConflict));
    let cancel = Request::Cancel {
        reason: "not needed".to_owned(),
    };
    let cancel = LedgerCall::new(id("a"), "person", cancel).named("request-2");
    // Two at once: one writes, the other gets its answer.
    let (one, other) = tokio::join!(ledger.call(&cancel), ledger.call(&cancel));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(one.replayed != other.replayed && one.answer == other.answer);
    assert_eq!(ledger.events(&id("a")).await.unwrap().len(), 2);
}

pub(crate) async fn another_version_is_refused(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    let pause = |paused| LedgerCall::new(id("a"), "person", Request::Pause { paused });
    ledger.call(&pause(true).for_version(1)).await.unwrap();
    let refused = ledger.call(&pause(false).for_version(1)).await.unwrap_err();
    assert_eq!(refused.code(), Some(RefusalCode::ConcurrencyConflict));
    let nobody = LedgerCall::new(id("nobody"), "person", Request::Pause { paused: true });
    let refused = ledger.call(&nobody).await.unwrap_err();
    assert_eq!(refused.code(), Some(RefusalCode::MissingRequiredInput));
    let twice = ledger
        .call(&create(new_task("a", "src")))
        .await
        .unwrap_err();
    assert_eq!(twice.code(), Some(RefusalCode::InvalidTransition));
}

pub(crate) async fn a_plan_is_saved_whole_or_not_at_all(world: World) {
    let ledger = world.open().await;
    let plan = |last: &str| {
        let mut second = new_task("b", "docs");
        second.dependencies = vec![id("a")];
        let mut third = new_task("c", "tests");
        third.dependencies = vec![id(last)];
        [new_task("a", "src"), second, third].map(create)
    };
    let refused = ledger.create_all(&plan("nobody")).await.unwrap_err();
    assert_eq!(refused.code(), Some(RefusalCode::MissingRequiredInput));
    assert!(
        ledger
            .tasks(&TaskFilter::default())
            .await
            .unwrap()
            .is_empty()
    );
    ledger.create_all(&plan("b")).await.unwrap();
    let saved = ledger.tasks(&TaskFilter::default()).await.unwrap();
    assert_eq!(saved.len(), 3);
    let page = TaskFilter {
        after: Some(id("a")),
        limit: 1,
        state: Some(TaskState::Todo),
        ..TaskFilter::default()
    };
    assert_eq!(ledger.tasks(&page).await.unwrap()[0].id, id("b"));
}

pub(crate) async fn a_retry_makes_one_successor(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    let cancel = Request::Cancel {
        reason: "no".to_owned(),
    };
    ledger
        .call(&LedgerCall::new(id("a"), "person", cancel))
        .await
        .unwrap();
    let retry = |name: &str| {
        let successor = id(name);
        LedgerCall::new(id("a"), "person", Request::Retry { successor })
    };
    let (b, c) = (retry("b"), retry("c"));
    let (one, other) = tokio::join!(ledger.call(&b), ledger.call(&c));
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    let made = one.or(other).unwrap().created.unwrap();
    assert_eq!(made.rework_of, Some(id("a")));
    let cancel = Request::Cancel {
        reason: "no".to_owned(),
    };
    let canceled = LedgerCall::new(made.id.clone(), "person", cancel);
    ledger.call(&canceled).await.unwrap();
    let again = |name: &str| {
        let successor = id(name);
        LedgerCall::new(made.id.clone(), "person", Request::Retry { successor }).named(name)
    };
    let taken = ledger.call(&again("a")).await.unwrap_err();
    assert_eq!(taken.code(), Some(RefusalCode::InvalidTransition));
    assert!(taken.to_string().contains("a exists already"), "{taken}");
    let first = ledger.call(&again("d")).await.unwrap();
    let repeat = ledger.call(&again("d")).await.unwrap();
    assert!(repeat.replayed && repeat.created == first.created);
    let nobody = LedgerCall::new(id("nobody"), "person", Request::TakeBack);
    let unknown = ledger.call(&nobody).await.unwrap_err();
    assert!(unknown.to_string().contains("no task nobody"), "{unknown}");
    assert_clean(&ledger.check().await.unwrap());
}

pub(crate) async fn secrets_are_not_stored(world: World) {
    let secrets = [
        format!("ghp_{}", "a1B2".repeat(9)),
        format!("github_pat_{}", "a1B2".repeat(9)),
        format!("sk-ant-api03-{}", "x9Y8".repeat(8)),
        format!("glpat-{}", "a1B2".repeat(5)),
        format!("xoxb-{}", "123456789-a1b2c3"),
        format!("AKIA{}", "ABCD1234EFGH5678"),
        format!("AIza{}", "a1B2c".repeat(7)),
        format!(
            "eyJ{}.eyJ{}.sig1",
            "hbGciOi1".repeat(3),
            "zdWIiOi1".repeat(3)
        ),
        "npm_a1b2c3d4e5f6g7h8i9j0".to_owned(),
        "hf_a1b2c3d4e5f6g7h8i9j0".to_owned(),
    ];
    let shapes = [
        "api_key=hunter2hunter2".to_owned(),
        "password: correct-horse-1".to_owned(),
        "Authorization: Bearer abcdef123456".to_owned(),
        "https://bot:s3cr3tpass@example.org/repo.git".to_owned(),
    ];
    let told = |text: &str| format!("it said {text} and went on");
    let ledger = world.open().await;
    for (at, text) in secrets.iter().chain(&shapes).enumerate() {
        let name = format!("s{at}");
        made(&ledger, simple(&name, &format!("src/{at}"))).await;
        let claimed = work(&ledger, "w", &name).await.unwrap();
        let mut packet = packet(&name, &claimed.run_id);
        packet.notes_for_orchestrator = vec![told(text)];
        packet.acceptance_check[0].evidence = told(text);
        packet
            .extra
            .insert("x_log".to_owned(), serde_json::json!([told(text)]));
        let result = None;
        let ending = WorkEnding::Success { result, packet };
        ledger.call(&finish(&claimed, "w", ending)).await.unwrap();
        let retry = Request::Reassert {
            state: TaskState::Done,
            reason: told(text),
        };
        ledger
            .call(&LedgerCall::new(id(&name), "w", retry))
            .await
            .unwrap();
    }
    let item = |kind, text: &str| ContextItem {
        kind,
        value: told(text),
    };
    let mut new = new_task("f", "src/f");
    new.title = told(&secrets[2]);
    new.goal = told(&secrets[3]);
    new.acceptance[0].text = told(&secrets[4]);
    new.context = vec![item(ContextKind::Note, &secrets[5])];
    ledger
        .call(&create(new).named(&told(&secrets[6])))
        .await
        .unwrap();
    let packet = NewPacket {
        lock_scope: vec![resource("src/f")],
        forbidden_scope: Vec::new(),
        context: vec![item(ContextKind::Constraint, &secrets[7])],
        commands: Vec::new(),
    };
    let replan = LedgerCall::new(id("f"), "planner", Request::Replan(packet));
    ledger.call(&replan).await.unwrap();
    let claimed = work(&ledger, "w", "f").await.unwrap();
    let ending = WorkEnding::Failed {
        category: FailureCategory::Env,
        signature: Some(told(&secrets[0])),
        note: told(&secrets[1]),
    };
    ledger.call(&finish(&claimed, "w", ending)).await.unwrap();
    let stored = exported(&ledger).await;
    assert!(stored.contains("it said"));
    for secret in &secrets {
        assert!(!stored.contains(secret.as_str()), "{secret} is stored");
    }
    for part in ["hunter2", "correct-horse", "abcdef123456", "s3cr3tpass"] {
        assert!(!stored.contains(part), "{part} is stored");
    }
}

pub(crate) async fn an_export_round_trips(world: World) {
    let ledger = world.open().await;
    let mut third = new_task("c", "tests");
    third.dependencies = vec![id("a"), id("b")];
    for new in [simple("a", "src"), new_task("b", "größe/ä"), third] {
        made(&ledger, new).await;
    }
    made(
        &ledger,
        NewTask {
            role: String::new(),
            ..new_task("d", "docs")
        },
    )
    .await;
    let a = work(&ledger, "w1", "k1").await.unwrap();
    ledger.call(&succeed(&a, "w1").named("r1")).await.unwrap();
    work(&ledger, "w\"2\n", "k2").await.unwrap();
    ledger.set_paused(true).await.unwrap();
    let before = exported(&ledger).await;
    for other in [World::sqlite(), World::postgres()] {
        let copy = other.open().await;
        let read = copy.import(&mut before.as_bytes()).await.unwrap();
        assert_eq!(read.tasks, 4);
        assert_eq!(exported(&copy).await, before);
        assert_clean(&copy.check().await.unwrap());
        assert!(copy.is_paused().await.unwrap());
        let full = copy.import(&mut before.as_bytes()).await.unwrap_err();
        assert!(full.to_string().contains("not empty"), "{full}");
    }
    let nowhere = World::sqlite();
    let empty = nowhere.open().await;
    let lines: Vec<&str> = before.lines().collect();
    for (text, words) in [
        (String::new(), "the file is empty"),
        (lines[1..].join("\n"), "line 1"),
        (format!("{}\nnonsense\n", lines[0]), "line 2"),
        (
            lines[0].replace(
                &format!("\"ledger_schema\":{SCHEMA}"),
                "\"ledger_schema\":9",
            ),
            "newer runner",
        ),
    ] {
        let refused = empty.import(&mut text.as_bytes()).await.unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
        assert!(
            empty
                .tasks(&TaskFilter::default())
                .await
                .unwrap()
                .is_empty()
        );
    }
}

pub(crate) async fn a_damaged_export_is_refused(world: World) {
    let ledger = world.open().await;
    for name in ["a", "b"] {
        made(&ledger, simple(name, name)).await;
        let claimed = work(&ledger, "w", name).await.unwrap();
        ledger
            .call(&succeed(&claimed, "w").named(name))
            .await
            .unwrap();
    }
    let whole = exported(&ledger).await;
    let lines: Vec<&str> = whole.lines().collect();
    let other = World::sqlite();
    let copy = other.open().await;
    let mut damaged: Vec<(String, String)> = Vec::new();
    for cut in 1..lines.len() {
        damaged.push((format!("cut off after {cut}"), lines[..cut].join("\n")));
        let mut some = lines.clone();
        some.remove(cut);
        damaged.push((format!("without {}", cut + 1), some.join("\n")));
        let mut twice = lines.clone();
        twice.insert(cut, lines[cut]);
        damaged.push((format!("{} twice", cut + 1), twice.join("\n")));
    }
    damaged.push(("with more".to_owned(), format!("{whole}{}\n", lines[1])));
    damaged.push(("edited".to_owned(), whole.replace("exit 0", "exit 1")));
    for (how, text) in damaged {
        let refused = copy.import(&mut text.as_bytes()).await.expect_err(&how);
        assert!(refused.to_string().contains("line "), "{how}: {refused}");
        assert!(
            copy.tasks(&TaskFilter::default()).await.unwrap().is_empty(),
            "{how}"
        );
    }
    let no_text = [whole.as_bytes(), &[0xff, 0xfe]].concat();
    let refused = copy.import(&mut &no_text[..]).await.unwrap_err();
    assert_eq!(
        refused.code(),
        Some(RefusalCode::SchemaInvalid),
        "{refused}"
    );
    copy.import(&mut whole.as_bytes()).await.unwrap();
}

pub(crate) async fn the_clock_of_the_server(world: World) {
    // The clock of this process is wrong by years.
    world.clock.advance_secs(-400_000_000);
    let options = LedgerOptions {
        server_clock: true,
        ..world.options(2)
    };
    let ledger = runner_ledger::Ledger::open(&world.store, options)
        .await
        .unwrap();
    let made = made(&ledger, new_task("a", "src")).await;
    let claimed = work(&ledger, "w", "k").await.unwrap();
    let now = ledger.now().await.unwrap();
    for at in [made.task.created_at, claimed.task.updated_at] {
        assert!(now.millis_since(at) < 60_000, "{at:?} {now:?}");
        assert!(at.0 > START - 300_000_000_000);
    }
}
