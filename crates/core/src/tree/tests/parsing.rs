//! What is refused, and in which words.

use super::*;

pub(super) const PARTS: [(&str, &str); 9] = [
    ("id", r#""a""#),
    ("order", "0"),
    ("title", r#""t""#),
    ("goal", r#""g""#),
    ("acceptance", r#"["x"]"#),
    ("passes", "false"),
    ("attempts", "0"),
    ("max_attempts", "3"),
    ("children", "[]"),
];

/// A valid leaf as JSON, with these fields otherwise.
pub(super) fn leaf_with(changes: &[(&str, &str)]) -> String {
    let parts: Vec<String> = PARTS
        .iter()
        .map(|(name, value)| {
            let other = changes.iter().find(|(field, _)| field == name);
            format!(r#""{name}":{}"#, other.map_or(*value, |(_, value)| value))
        })
        .collect();
    format!("{{{}}}", parts.join(","))
}

/// What is wrong with a document as it lies on disk.
pub(super) fn findings(bytes: &[u8]) -> Vec<String> {
    let found = parse(bytes).map_or_else(|found| found, |root| check(&root, TreeOrder::Sorted));
    found.iter().map(ToString::to_string).collect()
}

/// The document has exactly this one finding; its place in the text is not compared.
#[track_caller]
fn refused(document: impl AsRef<[u8]>, message: &str) {
    let found = findings(document.as_ref());
    let shown = crate::text::cut_end(&String::from_utf8_lossy(document.as_ref()), 200).into_owned();
    assert_eq!(found.len(), 1, "{shown}: {found:?}");
    let (place, found) = found[0].split_once(": ").unwrap();
    assert_eq!(found, message, "{shown}");
    assert!(
        place.starts_with("line ") || place.starts_with("node "),
        "{place}"
    );
}

#[test]
fn a_leaf_is_read_and_borrowed() {
    let text = leaf_with(&[("order", "-7")]);
    let root = parse(text.as_bytes()).unwrap();
    let mut expected = Node::leaf("a", "t", "g", 3);
    expected.order = -7;
    expected.acceptance = vec!["x".into()];
    assert_eq!(root, expected);
    assert!(matches!(root.id, Cow::Borrowed("a")));
    assert!(matches!(root.goal, Cow::Borrowed("g")));
    assert!(matches!(root.acceptance[0], Cow::Borrowed("x")));

    let spaced = format!(" \r\n\t{}\r\n ", text.replace(',', " ,\n"));
    assert_eq!(parse(spaced.as_bytes()).unwrap(), expected);
}

#[test]
fn every_field_is_needed_once_and_known() {
    for (name, value) in PARTS {
        let part = format!(r#""{name}":{value}"#);
        let whole = leaf_with(&[]);
        let without = whole.replace(&part, "").replace(",,", ",");
        let without = without.replace("{,", "{").replace(",}", "}");
        refused(&without, &format!("missing field `{name}`"));
        let twice = whole.replace(&part, &format!("{part},{part}"));
        refused(&twice, &format!("duplicate field `{name}`"));
        let other = name.to_uppercase();
        let unknown = whole.replace(&format!(r#""{name}""#), &format!(r#""{other}""#));
        refused(
            &unknown,
            &format!(
                "unknown field `{other}`, expected one of `id`, `order`, `title`, `goal`, \
                 `acceptance`, `passes`, `attempts`, `max_attempts`, `children`"
            ),
        );
    }
    let escaped = leaf_with(&[]).replace("\"goal\"", r#""\u0067oal""#);
    assert!(findings(escaped.as_bytes()).is_empty());
    let odd = findings(br#"{"a\n\u001b[31m at line 9 column 9":1}"#);
    assert!(
        odd[0].contains(r"unknown field `a\n\x1b[31m at line 9 column 9`"),
        "{odd:?}"
    );
}

#[test]
fn every_field_has_its_type() {
    let kinds = [
        ("null", "null"),
        ("true", "boolean `true`"),
        ("7", "integer `7`"),
        ("1.5", "floating point `1.5`"),
        (r#""x""#, r#"string "x""#),
        ("[7]", "sequence"),
        ("{}", "map"),
    ];
    for (field, fitting, expected) in [
        ("id", r#""x""#, "a string"),
        ("order", "7", "i64"),
        ("title", r#""x""#, "a string"),
        ("goal", r#""x""#, "a string"),
        ("acceptance", "[7]", "an array of strings"),
        ("passes", "true", "a boolean"),
        ("attempts", "7", "u32"),
        ("max_attempts", "7", "u32"),
        ("children", "[7]", "an array of nodes"),
    ] {
        for (value, kind) in kinds {
            if value != fitting {
                let text = leaf_with(&[(field, value)]);
                refused(text, &format!("invalid type: {kind}, expected {expected}"));
            }
        }
    }
    for (field, value, message) in [
        (
            "acceptance",
            "[7]",
            "invalid type: integer `7`, expected a string",
        ),
        (
            "children",
            "[7]",
            "invalid type: integer `7`, expected a node object",
        ),
        (
            "children",
            "[[]]",
            "invalid type: sequence, expected a node object",
        ),
        ("children", "[{}]", "missing field `id`"),
        (
            "order",
            "1.0",
            "invalid type: floating point `1.0`, expected i64",
        ),
        (
            "order",
            "1e2",
            "invalid type: floating point `100.0`, expected i64",
        ),
        (
            "order",
            "9223372036854775808",
            "invalid value: integer `9223372036854775808`, expected i64",
        ),
        ("order", "1e999", "number out of range"),
        ("order", "01", "invalid number"),
        ("order", "NaN", "expected value"),
        (
            "attempts",
            "-1",
            "invalid value: integer `-1`, expected u32",
        ),
        (
            "attempts",
            "4294967296",
            "invalid value: integer `4294967296`, expected u32",
        ),
        ("max_attempts", "0", "max_attempts must be at least 1"),
        ("title", r#""\ud800""#, "unexpected end of hex escape"),
        (
            "title",
            "\"a\nb\"",
            r"control character (\u0000-\u001F) found while parsing a string",
        ),
        ("title", r#""\x""#, "invalid escape"),
    ] {
        refused(leaf_with(&[(field, value)]), message);
    }
    for (field, value) in [
        ("order", "9223372036854775807"),
        ("order", "-9223372036854775808"),
        ("max_attempts", "4294967295"),
        ("id", r#""...""#),
        ("title", r#""""#),
        ("acceptance", "[]"),
    ] {
        let text = leaf_with(&[(field, value)]);
        assert!(findings(text.as_bytes()).is_empty(), "{text}");
    }
    let text = leaf_with(&[("order", "-9223372036854775809")]);
    assert_eq!(findings(text.as_bytes()).len(), 1);
    // However long a value is, the finding about it is not.
    let long = format!("{:?}", "x".repeat(1_000_000));
    let found = findings(leaf_with(&[("order", &long)]).as_bytes());
    assert!(
        found[0].len() < 500 && found[0].ends_with("expected i64"),
        "{found:?}"
    );
}

#[test]
fn broken_documents() {
    let leaf = leaf_with(&[]);
    for (document, message) in [
        ("", "EOF while parsing a value"),
        (" \n", "EOF while parsing a value"),
        ("tree", "expected ident"),
        ("\u{feff}{}", "expected value"),
        ("null", "invalid type: null, expected a node object"),
        ("[]", "invalid type: sequence, expected a node object"),
        ("{}", "missing field `id`"),
        (&format!("{leaf}x"), "trailing characters"),
        (&format!("{leaf}{leaf}"), "trailing characters"),
        (&format!("{leaf},"), "trailing characters"),
        (&leaf[..leaf.len() - 1], "EOF while parsing an object"),
        (&leaf.replace("]}", "],}"), "trailing comma"),
        (&leaf.replace(",\"order", " \"order"), "expected `,` or `}`"),
    ] {
        refused(document, message);
    }
    let place = "line 1 column 2: missing field `id`";
    assert_eq!(findings(b"{}"), [place]);
    let mut bytes = leaf.into_bytes();
    bytes[7] = 0xff;
    refused(&bytes, "invalid unicode code point");
    refused([0xff, 0xfe, b'{', 0], "expected value");
}

#[test]
fn ids() {
    let long = "x".repeat(65);
    for (id, shown) in [
        ("", ""),
        (".", "."),
        ("..", ".."),
        ("a/b", "a/b"),
        ("a b", "a b"),
        ("ä", "ä"),
        ("a\\n", "a\\n"),
        (&long, &long),
    ] {
        let found = findings(leaf_with(&[("id", &format!("\"{id}\""))]).as_bytes());
        let rule = "the id must be 1 to 64 characters of A-Z a-z 0-9 . _ - and not . or ..";
        assert_eq!(found, [format!("node \"{shown}\": {rule}")]);
    }
    // All of them are told, not only the first.
    let bad = leaf_with(&[("id", "\"\""), ("max_attempts", "0")]);
    let both = leaf_with(&[("children", &format!("[{bad},{bad}]"))]);
    assert_eq!(findings(both.as_bytes()).len(), 4);
    let huge = format!("{:?}", "/".repeat(100_000));
    assert!(findings(leaf_with(&[("id", &huge)]).as_bytes())[0].len() < 200);
}

#[test]
fn invariants() {
    let twice = "this id is used by another node too";
    let unsorted = "its children are not sorted by order, then id";
    let open_child = "it is marked as passed, but not all of its children are";
    // In any order: what an agent leaves. Sorted: also this.
    for (tree, any, sorted) in [
        ("root", vec![], vec![]),
        ("root(a+ b@1(c+ d*3) a1@2)", vec![], vec![]),
        ("root+(a+(b+))", vec![], vec![]),
        ("root(a+)", vec![], vec![]),
        ("root(a a)", vec![("root/a", twice)], vec![]),
        (
            "root(p(root) q(p))",
            vec![("root/p/root", twice), ("root/q/p", twice)],
            vec![],
        ),
        (
            "repair-tree",
            vec![("repair-tree", "this id is reserved for the runner")],
            vec![],
        ),
        (
            "root(p(repair-tree))",
            vec![("root/p/repair-tree", "this id is reserved for the runner")],
            vec![],
        ),
        ("root(a*3/3)", vec![], vec![]),
        (
            "root(a*4/3)",
            vec![("root/a", "attempts is 4, more than max_attempts 3")],
            vec![],
        ),
        ("root+(a)", vec![], vec![("root", open_child)]),
        ("root(p+(a+ b(c+)))", vec![], vec![("root/p", open_child)]),
        ("root(b a)", vec![], vec![("root", unsorted)]),
        ("root(a@1 b@0)", vec![], vec![("root", unsorted)]),
        ("root(p(a@-1 b@-2))", vec![], vec![("root/p", unsorted)]),
        ("root(a10 a9)", vec![], vec![]),
        ("root(a B)", vec![], vec![("root", unsorted)]),
        (
            "root+*9(b+ a)",
            vec![("root", "attempts is 9, more than max_attempts 3")],
            vec![("root", open_child), ("root", unsorted)],
        ),
    ] {
        let expect = |parts: Vec<(&str, &str)>| -> Vec<TreeFinding> {
            parts
                .into_iter()
                .map(|(place, message)| TreeFinding::new(place, message))
                .collect()
        };
        let mut root = plan(tree);
        assert_eq!(check(&root, TreeOrder::Any), expect(any.clone()), "{tree}");
        let all = expect([any.clone(), sorted].concat());
        assert_eq!(check(&root, TreeOrder::Sorted), all, "{tree}");
        root.sort();
        let left = check(&root, TreeOrder::Sorted);
        assert!(left.iter().all(|it| it.message != unsorted), "{tree}");
    }
}

/// So many nodes, each the only child of the one before.
fn chain(levels: usize) -> String {
    let mut text = String::new();
    for level in 1..=levels {
        let node = leaf_with(&[("id", &format!("\"n{level}\""))]);
        text.push_str(node.strip_suffix("]}").unwrap());
    }
    text + &"]}".repeat(levels)
}

#[test]
fn sixty_four_levels_and_no_more() {
    let text = chain(64);
    let root = parse(text.as_bytes()).unwrap();
    assert_eq!(root.lineage("n64").unwrap().len(), MAX_LEVELS);
    assert!(check(&root, TreeOrder::Sorted).is_empty());
    assert_eq!(parse(&to_bytes(&root)).unwrap(), root);
    let leaf = root.find("n64").unwrap();
    assert!(leaf.is_leaf() && root.path_of("n64").unwrap().ends_with("/n63/n64"));

    refused(chain(65), "the tree is deeper than 64 levels");
    // The level counts, not the place: also as the second child.
    let wide = chain(63).replace(
        r#""children":[]"#,
        &format!(r#""children":[{0},{0}]"#, chain(1)),
    );
    assert!(parse(wide.as_bytes()).is_ok());
    let wide = chain(63).replace(
        r#""children":[]"#,
        &format!(r#""children":[{},{}]"#, chain(1), chain(2)),
    );
    refused(wide, "the tree is deeper than 64 levels");
}

#[test]
fn no_depth_overflows_the_stack() {
    const DEEP: usize = 50_000;
    refused(chain(DEEP), "the tree is deeper than 64 levels");
    refused(
        r#"{"children":["#.repeat(DEEP),
        "the tree is deeper than 64 levels",
    );
    let (lists, maps) = ("[".repeat(DEEP), r#"{"a":"#.repeat(DEEP));
    refused(&lists, "invalid type: sequence, expected a node object");
    assert_eq!(findings(maps.as_bytes()).len(), 1);
    for (field, _) in PARTS {
        for deep in [&lists, &maps] {
            for end in ["", "]", "}"] {
                let value = format!("{deep}{}", end.repeat(DEEP));
                assert_eq!(findings(leaf_with(&[(field, &value)]).as_bytes()).len(), 1);
            }
            let unknown = format!(r#"{{"more":{deep}"#);
            assert_eq!(findings(unknown.as_bytes()).len(), 1);
        }
    }
}
