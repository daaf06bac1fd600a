//! Tables of what a person may and may not do.

use super::*;

/// root: `done` passed, `half` open with `half.a` passed and `half.b` open and
/// stuck, `last` open with one of three attempts used.
fn tree() -> Node<'static> {
    let leaf = |id: &'static str, order: i64| Node {
        order,
        ..Node::leaf(id, "title", "goal", 3)
    };
    let mut root = leaf("root", 0);
    let mut done = leaf("done", 1);
    done.passes = true;
    let mut half = leaf("half", 2);
    let mut passed = leaf("half.a", 1);
    passed.passes = true;
    let mut stuck = leaf("half.b", 2);
    stuck.attempts = 3;
    half.children = vec![passed, stuck];
    let mut last = leaf("last", 3);
    last.attempts = 1;
    root.children = vec![done, half, last];
    root
}

#[test]
fn more_attempts() {
    let granted = |added, attempts, max_attempts| Ok((added, attempts, max_attempts));
    for (id, number, expected) in [
        ("half.b", None, granted(2, 3, 5)),
        ("half.b", Some(1), granted(1, 3, 4)),
        ("last", Some(4), granted(4, 1, 7)),
        (
            "last",
            None,
            Err(RetryError::NotStuck {
                left: 2,
                max_attempts: 3,
            }),
        ),
        ("done", Some(4), Err(RetryError::Passed)),
        (
            "half",
            None,
            Err(RetryError::NotALeaf {
                stuck: vec!["half.b".to_owned()],
            }),
        ),
        (
            "lats",
            None,
            Err(RetryError::Unknown {
                nearest: Some("last".to_owned()),
            }),
        ),
        ("xyz", None, Err(RetryError::Unknown { nearest: None })),
        ("half.b", Some(u32::MAX), Err(RetryError::TooMany)),
    ] {
        let mut root = tree();
        let result = retry(&mut root, id, number, 2);
        let short = result.map(|it| (it.added, it.attempts, it.max_attempts));
        assert_eq!(short, expected, "{id} {number:?}");
        assert_eq!(check(&root, TreeOrder::Sorted), []);
        if expected.is_err() {
            assert_eq!(root, tree(), "{id}: a refusal changes nothing");
        }
    }
}

type Change = fn(&mut Node<'static>);

fn remove(root: &mut Node<'_>, id: &str) {
    root.children.retain(|child| child.id != id);
    for child in &mut root.children {
        remove(child, id);
    }
}

fn node<'t>(root: &'t mut Node<'static>, id: &str) -> &'t mut Node<'static> {
    root.find_mut(id).unwrap()
}

#[test]
fn edits_that_are_taken() {
    let cases: [(&str, Change, &str); 8] = [
        ("nothing", |_| {}, "+[] ~[] >[] -[] max[] passed[]"),
        (
            "words of an open node",
            |root| node(root, "half.b").goal = "other".into(),
            r#"+[] ~["half.b"] >[] -[] max[] passed[]"#,
        ),
        (
            "a stuck leaf goes, and with it the last open part",
            |root| remove(root, "half.b"),
            r#"+[] ~[] >[] -["half.b"] max[] passed["half"]"#,
        ),
        (
            "so that its parent may say so already",
            |root| {
                remove(root, "half.b");
                node(root, "half").passes = true;
            },
            r#"+[] ~[] >[] -["half.b"] max[] passed["half"]"#,
        ),
        (
            "a new leaf, in no order",
            |root| root.children.insert(0, Node::leaf("z", "t", "g", 9)),
            r#"+["z"] ~[] >[] -[] max[] passed[]"#,
        ),
        (
            "another place",
            |root| {
                let leaf = node(root, "half.b").clone();
                remove(root, "half.b");
                node(root, "last").children.push(leaf);
            },
            r#"+[] ~[] >["half.b"] -[] max[] passed["half"]"#,
        ),
        (
            "more attempts",
            |root| node(root, "half.b").max_attempts = 5,
            r#"+[] ~[] >[] -[] max["half.b"] passed[]"#,
        ),
        (
            "everything open",
            |root| {
                remove(root, "half.b");
                remove(root, "last");
            },
            r#"+[] ~[] >[] -["half.b", "last"] max[] passed["half", "root"]"#,
        ),
    ];
    for (what, change, expected) in cases {
        let mut after = tree();
        change(&mut after);
        let it = edit(&tree(), after).unwrap_or_else(|found| panic!("{what}: {found:?}"));
        let TreeChanges {
            added,
            edited,
            moved,
        } = &it.changes;
        assert_eq!(
            format!(
                "+{added:?} ~{edited:?} >{moved:?} -{:?} max{:?} passed{:?}",
                it.removed, it.limits, it.passed
            ),
            expected,
            "{what}"
        );
        assert_eq!(check(&it.tree, TreeOrder::Sorted), [], "{what}");
    }
}

#[test]
fn edits_that_are_refused_name_each_node() {
    let cases: [(Change, &[&str]); 9] = [
        (
            |root| {
                remove(root, "done");
                node(root, "half.a").title = "x".into();
            },
            &[
                "node done: a passed node must not vanish",
                "node half.a: a passed node must not change (title)",
            ],
        ),
        (
            |root| remove(root, "half"),
            &["node half.a: a passed node must not vanish"],
        ),
        (
            |root| node(root, "done").passes = false,
            &["node done: it has passed, and that cannot be taken back by hand"],
        ),
        (
            |root| node(root, "last").passes = true,
            &["node last: passes cannot be set by hand: only a green guard does that"],
        ),
        (
            |root| node(root, "half.b").attempts = 0,
            &[
                "node half.b: attempts is the runner's count and was 3: raise max_attempts, or use `runner retry half.b`",
            ],
        ),
        (
            |root| node(root, "done").max_attempts = 9,
            &["node done: a passed node must not change (attempts, max_attempts)"],
        ),
        (
            |root| {
                let mut new = Node::leaf("n", "t", "g", 3);
                (new.passes, new.attempts) = (true, 1);
                root.children.push(new);
            },
            &[
                "node n: a new node begins with attempts 0",
                "node n: passes cannot be set by hand: only a green guard does that",
            ],
        ),
        (
            |root| root.id = "top".into(),
            &[
                "node root: the root must stay the root",
                "node done: a passed node must keep its parent",
            ],
        ),
        (
            |root| node(root, "half.b").max_attempts = 2,
            &["root/half/half.b: attempts is 3, more than max_attempts 2"],
        ),
    ];
    for (change, expected) in cases {
        let mut after = tree();
        change(&mut after);
        let found = edit(&tree(), after).unwrap_err();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }
}
