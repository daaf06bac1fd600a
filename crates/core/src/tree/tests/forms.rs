//! The canonical form, ways through a tree, changes.

use super::parsing::leaf_with;
use super::*;

#[test]
fn escapes_are_read_and_written_in_one_way() {
    let text = leaf_with(&[("title", r#""\u00e9\/\"\\\n\u0001\ud83e\udd80\u007f é""#)]);
    let root = parse(text.as_bytes()).unwrap();
    assert_eq!(root.title, "é/\"\\\n\u{1}🦀\u{7f} é");
    assert!(matches!(root.title, Cow::Owned(_)));
    let line = "  \"title\": \"é/\\\"\\\\\\n\\u0001🦀\u{7f} é\",\n";
    assert!(to_json(&root).contains(line), "{}", to_json(&root));
}

#[test]
fn canonical_form() {
    let mut root = plan("root@-1(a+*1/5)");
    root.children[0].acceptance.clear();
    let expected = r#"{
  "id": "root",
  "order": -1,
  "title": "title of root",
  "goal": "goal of root",
  "acceptance": [
    "root works"
  ],
  "passes": false,
  "attempts": 0,
  "max_attempts": 3,
  "children": [
    {
      "id": "a",
      "order": 0,
      "title": "title of a",
      "goal": "goal of a",
      "acceptance": [],
      "passes": true,
      "attempts": 1,
      "max_attempts": 5,
      "children": []
    }
  ]
}
"#;
    assert_eq!(String::from_utf8(to_bytes(&root)).unwrap(), expected);
    assert_eq!(to_json(&root), expected.trim_end());
    assert_eq!(parse(expected.as_bytes()).unwrap(), root);
}

#[test]
fn ways_through_a_tree() {
    let mut root = plan("root(p(a+ b) q+ r@-1(c))");
    let ids = |node: &Node<'_>| {
        node.walk()
            .map(|node| node.id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&root), ["root", "p", "a", "b", "q", "r", "c"]);
    root.sort();
    assert_eq!(sketch(&root), "root(r@-1(c) p(a+ b) q+)");
    assert_eq!(root.path_of("b").as_deref(), Some("root/p/b"));
    assert_eq!((root.path_of("x"), root.find("x")), (None, None));
    assert!(root.find_mut("x").is_none());
    let progress = TreeProgress {
        passed: 2,
        leaves: 4,
    };
    assert_eq!(root.progress(), progress);
    assert_eq!(ids(&take(&mut root, "p").unwrap()), ["p", "a", "b"]);
}

/// Changes and violations, one line each.
pub(super) fn told(before: &Node<'_>, after: &Node<'_>) -> Vec<String> {
    let (changes, violations) = compare(before, after);
    let lists = [
        ("added", &changes.added),
        ("edited", &changes.edited),
        ("moved", &changes.moved),
    ];
    let lines: Vec<String> = lists
        .iter()
        .filter(|(_, ids)| !ids.is_empty())
        .map(|(what, ids)| format!("{what} {}", ids.join(" ")))
        .collect();
    assert_eq!(lines.is_empty(), changes.is_empty());
    lines
        .into_iter()
        .chain(violations.iter().map(ToString::to_string))
        .collect()
}

#[test]
fn changes_and_violations() {
    for (before, after, expected) in [
        ("root(a b+)", "root(a b+)", &[][..]),
        ("root", "root(a b)", &["added a b"]),
        ("root(a b+)", "root(a(d) b+ c(e))", &["added d c e"]),
        ("root(a b)", "root(b a@1)", &["edited a"]),
        ("root(a b)", "root(b(a))", &["moved a"]),
        ("root(a b)", "root(c(a b))", &["added c", "moved a b"]),
        ("root(a(b))", "root(b(a))", &["moved b a"]),
        ("root(p(a+ c) q)", "root(q(p(a+ c)))", &["moved p"]),
        ("root(p(a+ c) q)", "root(p(a+) q(c))", &["moved c"]),
        (
            "root(a b)",
            "root(b)",
            &["node a: an open node must not vanish"],
        ),
        (
            "root(a(c d+) b)",
            "root(b c)",
            &[
                "moved c",
                "node a: an open node must not vanish",
                "node d: a passed node must not vanish",
            ],
        ),
        (
            "root(a+(c+) b)",
            "root(b)",
            &[
                "node a: a passed node must not vanish",
                "node c: a passed node must not vanish",
            ],
        ),
        (
            "root(a+(c+) b)",
            "root(a+ b)",
            &["node c: a passed node must not vanish"],
        ),
        (
            "root(a+ b)",
            "root(b(a+))",
            &["node a: a passed node must keep its parent"],
        ),
        (
            "root(a+ b)",
            "root(b a+@1)",
            &["node a: a passed node must not change (order)"],
        ),
        (
            "root(a+ b)",
            "root(a+(b))",
            &[
                "moved b",
                "node a: a passed node must not gain children (b)",
            ],
        ),
        (
            "root(a+(c+(d+)) b)",
            "root(a+(c+(d+ e)) b)",
            &[
                "added e",
                "node c: a passed node must not gain children (e)",
            ],
        ),
        (
            "root(a+(c+) b+(d+) e)",
            "root(a+ b+(c+ d+) e)",
            &[
                "node c: a passed node must keep its parent",
                "node b: a passed node must not gain children (c)",
            ],
        ),
        (
            "root(a)",
            "top(a)",
            &[
                "added top",
                "moved a",
                "node root: the root must stay the root",
                "node root: an open node must not vanish",
            ],
        ),
        (
            "root(a)",
            "top(root(a))",
            &[
                "added top",
                "moved root",
                "node root: the root must stay the root",
            ],
        ),
        (
            "root(a)",
            "a(root)",
            &["moved a root", "node root: the root must stay the root"],
        ),
    ] {
        assert_eq!(
            told(&plan(before), &plan(after)),
            expected,
            "{before} -> {after}"
        );
    }
}

#[test]
fn every_field_of_a_passed_node_counts() {
    type Edit = fn(&mut Node<'_>);
    let edits: [(&str, Edit); 6] = [
        ("order", |node| node.order = 5),
        ("title", |node| node.title = "new".into()),
        ("goal", |node| node.goal = "new".into()),
        ("acceptance", |node| node.acceptance.clear()),
        ("acceptance", |node| node.acceptance.push("more".into())),
        ("order, title, goal, acceptance", |node| {
            *node = Node {
                order: 9,
                children: std::mem::take(&mut node.children),
                ..Node::leaf(node.id.to_string(), "", "", 3)
            };
        }),
    ];
    let before = plan("root(open(leaf) p+(q+(r+)))");
    for (fields, edit) in edits {
        for id in ["root", "open", "leaf", "p", "q", "r"] {
            let mut after = before.clone();
            edit(after.find_mut(id).unwrap());
            let expected = if "pqr".contains(id) {
                format!("node {id}: a passed node must not change ({fields})")
            } else {
                format!("edited {id}")
            };
            assert_eq!(told(&before, &after), [expected]);
        }
    }
}

#[test]
fn a_summary_is_bounded() {
    let mut root = plan("root(p+(a+) s z(y))");
    root.children[1].title = "two\nlines".into();
    root.children[2].title = "é".repeat(101).into();
    let expected = format!(
        "- [ ] root: title of root\n  - [x] p: title of p\n    - [x] a: title of a\n  \
         - [>] s: two\n  - [ ] z: {}…\n    - [ ] y: title of y",
        "é".repeat(99)
    );
    assert_eq!(summary(&root, "s"), expected);

    let many = |count: usize| {
        let mut root = plan("root");
        for i in 0..count {
            root.children
                .push(Node::leaf(format!("n{i}"), "x".repeat(9_999), "", 3));
        }
        summary(&root, "root")
    };
    assert_eq!(many(299).lines().count(), 300);
    assert!(!many(299).contains("more"));
    let text = many(2_000);
    assert_eq!(text.lines().count(), 301);
    assert!(text.ends_with("\n… and 1701 more nodes"));
    assert!(text.len() < 300 * 250);
}
