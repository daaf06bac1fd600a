//! What holds for every session there could be.

use super::*;

/// What an agent may try with a tree; nodes are meant by their place in it.
#[derive(Clone, Debug)]
enum Deed {
    Edit(usize, String),
    Reorder(usize, i64),
    Remove(usize),
    Move(usize, usize),
    Add(usize, &'static str, u32),
    Forge(usize, bool, u32, u32),
}

fn any_deed() -> impl Strategy<Value = Deed> {
    let node = || 0_usize..12;
    let id = prop::sample::select(vec!["new", "new", "other", "n1", "repair-tree"]);
    prop_oneof![
        2 => (node(), "[a-z]{0,3}").prop_map(|(at, text)| Deed::Edit(at, text)),
        2 => (node(), -2_i64..3).prop_map(|(at, order)| Deed::Reorder(at, order)),
        1 => node().prop_map(Deed::Remove),
        3 => (node(), node()).prop_map(|(at, to)| Deed::Move(at, to)),
        4 => (node(), id, 0_u32..9).prop_map(|(at, id, max)| Deed::Add(at, id, max)),
        2 => (node(), any::<bool>(), 0_u32..9, 1_u32..9)
            .prop_map(|(at, passes, attempts, max)| Deed::Forge(at, passes, attempts, max)),
    ]
}

fn commit(root: &mut Node<'static>, deed: &Deed) {
    let (Deed::Edit(at, _)
    | Deed::Reorder(at, _)
    | Deed::Remove(at)
    | Deed::Move(at, _)
    | Deed::Add(at, ..)
    | Deed::Forge(at, ..)) = deed;
    let name = |root: &Node<'_>, at: usize| {
        let count = root.walk().count();
        root.walk().nth(at % count).unwrap().id.to_string()
    };
    let id = name(root, *at);
    match deed {
        Deed::Edit(_, text) => root.find_mut(&id).unwrap().goal = text.clone().into(),
        Deed::Reorder(_, order) => root.find_mut(&id).unwrap().order = *order,
        Deed::Remove(_) => drop(take(root, &id)),
        Deed::Move(_, to) => {
            if let Some(node) = take(root, &id) {
                let to = name(root, *to);
                root.find_mut(&to).unwrap().children.push(node);
            }
        }
        Deed::Add(_, new, max) => {
            let new = Node::leaf(*new, "", "", *max);
            root.find_mut(&id).unwrap().children.push(new);
        }
        Deed::Forge(_, passes, attempts, max) => {
            let node = root.find_mut(&id).unwrap();
            (node.passes, node.attempts, node.max_attempts) = (*passes, *attempts, *max);
        }
    }
}

fn any_facts() -> impl Strategy<Value = StepFacts> {
    let files = || prop_oneof![9 => Just(vec![]), 1 => Just(vec!["file".to_owned()])];
    (
        (1_u32..5, 0_u32..4),
        prop::option::weighted(0.1, Just(boom(IterationErrorKind::Io))),
        (files(), files(), files(), files(), files()),
        any::<bool>(),
        prop::option::weighted(0.9, prop_oneof![Just(0), -1_i32..3]),
    )
        .prop_map(
            |(counts, runner_error, lists, changed_outside, guard_exit)| StepFacts {
                max_attempts_default: counts.0,
                refused_repairs: counts.1,
                runner_error,
                owned_changed: lists.0,
                protected_changed: lists.1,
                nested_repositories: lists.2,
                denied_files: lists.3,
                changed_by_guard: lists.4,
                changed_outside,
                guard_exit,
                ..StepFacts::default()
            },
        )
}

fn any_output() -> impl Strategy<Value = Option<AgentOutput>> {
    let output = prop::sample::select(AgentStatus::ALL.to_vec()).prop_map(|status| AgentOutput {
        status,
        summary: "words".to_owned(),
    });
    prop::option::weighted(0.95, output)
}

/// Nothing that an agent leaves may break these.
fn promises(
    task: StepTask<'_, '_>,
    outcome: &Outcome<'_>,
    facts: &StepFacts,
) -> Result<(), TestCaseError> {
    let (before, selected) = match task {
        StepTask::Work { before, node_id } => (before, Some(node_id)),
        StepTask::Repair { valid } => (valid, None),
    };
    let after = match &outcome.tree {
        TreeAfter::New(after) => after,
        TreeAfter::AsLeft => {
            prop_assert_eq!(outcome.class, OutcomeClass::InvalidTree);
            return Ok(());
        }
        TreeAfter::Restore | TreeAfter::LastValid => return Ok(()),
    };
    // It is a valid tree in canonical form.
    prop_assert_eq!(tree::check(after, TreeOrder::Sorted), vec![]);
    let bytes = to_bytes(after);
    let read = tree::parse(&bytes);
    prop_assert_eq!(read.as_ref(), Ok(after));
    for old in before.walk() {
        let Some(new) = after.find(&old.id) else {
            return Err(TestCaseError::fail(format!("{} vanished", old.id)));
        };
        if old.passes {
            prop_assert_eq!(new, old);
            let parent = |root: &Node<'_>| {
                let mut lineage = root.lineage(&old.id).unwrap_or_default();
                lineage.pop();
                lineage.last().map(|node| node.id.to_string())
            };
            prop_assert_eq!(parent(before), parent(after));
        }
        let used = new.attempts - old.attempts;
        prop_assert!(used <= u32::from(selected == Some(&*old.id)));
        prop_assert!(new.attempts <= new.max_attempts);
        prop_assert_eq!(new.max_attempts, old.max_attempts);
    }
    for new in after.walk() {
        let old = before.find(&new.id);
        if old.is_none() {
            prop_assert_eq!(new.attempts, 0);
            prop_assert!(new.max_attempts <= facts.max_attempts_default);
        }
        // No pass without a green guard.
        if new.passes && new.is_leaf() && !old.is_some_and(|old| old.passes) {
            prop_assert_eq!(selected, Some(&*new.id));
            prop_assert_eq!((outcome.status, outcome.guard), (Done, GuardResult::Pass));
            prop_assert_eq!(
                (facts.guard_exit, facts.runner_error.is_none()),
                (Some(0), true)
            );
        }
        let newly = new.passes && !old.is_some_and(|old| old.passes);
        prop_assert_eq!(newly, outcome.passed.contains(&new.id.to_string()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_an_agent_leaves_the_promises_hold(
        before in any_tree(12),
        deeds in prop::collection::vec(any_deed(), 0..4),
        damages in prop_oneof![
            4 => Just(vec![]),
            1 => prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<u8>()), 1..3),
        ],
        output in any_output(),
        facts in any_facts(),
        repairing: bool,
    ) {
        let selection = select(&before);
        let (Selection::Open(target) | Selection::Stuck(target)) = &selection else {
            return Ok(());
        };
        let task = if repairing {
            StepTask::Repair { valid: &before }
        } else {
            StepTask::Work { before: &before, node_id: &target.node.id }
        };
        let mut left = before.clone();
        for deed in &deeds {
            commit(&mut left, deed);
        }
        let bytes = damaged(to_bytes(&left), &damages);
        let outcome = decide(task, AgentTree::Bytes(&bytes), output.as_ref(), &facts);
        promises(task, &outcome, &facts)?;
        prop_assert_eq!(outcome.attempts.is_some(), !repairing);

        // In two steps, as a real one goes, it comes to the same.
        let early = StepFacts {
            guard_exit: None,
            changed_by_guard: vec![],
            ..facts.clone()
        };
        let again = match assess(task, AgentTree::Bytes(&bytes), output.as_ref(), &early) {
            Assessment::Settled(outcome) => *outcome,
            Assessment::AskGuard(accepted) => conclude(*accepted, task, &facts),
        };
        prop_assert_eq!(format!("{again:?}"), format!("{outcome:?}"));
    }

    #[test]
    fn any_bytes_are_decided(bytes: Vec<u8>, output in any_output(), facts in any_facts()) {
        let before = plan(BEFORE);
        for task in [StepTask::Work { before: &before, node_id: "s" }, StepTask::Repair { valid: &before }] {
            for left in [AgentTree::Bytes(&bytes), AgentTree::Same, AgentTree::Unusable] {
                let outcome = decide(task, left, output.as_ref(), &facts);
                promises(task, &outcome, &facts)?;
            }
        }
    }
}
