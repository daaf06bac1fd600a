//! GOAL.md and its front matter.

use proptest::prelude::*;

use super::*;

#[test]
fn ids_and_bodies() {
    for (text, id, body) in [
        ("", None, ""),
        ("# A\n", None, "# A\n"),
        ("---\nid: run-1\n---\n# A\n", Some("run-1"), "# A\n"),
        (
            "\u{feff}---\r\nid: run-1\r\n---\r\n# A\r\n",
            Some("run-1"),
            "# A\r\n",
        ),
        ("\u{feff}# A", None, "# A"),
        ("---\nid: \"a b\"x\n---", None, "error"),
        ("---\nid: \"q-1\" # mine\n---", Some("q-1"), ""),
        ("---\nid: 'q-1'\n---\n", Some("q-1"), ""),
        ("---\nid :x\n---\n\nb", Some("x"), "\nb"),
        ("---\nid:\n---\n", None, ""),
        ("---\nid: # none yet\n---\n", None, ""),
        ("---\nid: null\n---\n", None, ""),
        ("---\nid: \"\"\n---\n", None, ""),
        ("---\nid:#\n---\n", None, "error"),
        (
            "---\nids: a\nother:\n  id: inner\nid: x\n---\n",
            Some("x"),
            "",
        ),
        ("---\n---\nbody\n---\n", None, "body\n---\n"),
        ("\n---\nid: x\n---\n", None, "\n---\nid: x\n---\n"),
        ("----\nid: x\n", None, "----\nid: x\n"),
    ] {
        if body == "error" {
            assert!(Goal::parse(text).is_err());
            continue;
        }
        let goal = Goal::parse(text).unwrap();
        assert_eq!(goal.id(), id, "{text:?}");
        assert_eq!(goal.body(), body, "{text:?}");
        assert_eq!(goal.text(), text);
    }
}

#[test]
fn errors_name_line_and_remedy() {
    for (text, line, message) in [
        (
            "---\nid: x\n# A\n",
            1,
            "line 1: the front matter that begins here has no closing `---` line",
        ),
        (
            "---",
            1,
            "line 1: the front matter that begins here has no closing `---` line",
        ),
        (
            "---\nid: x\na: b\nid: x\n---\n",
            4,
            "line 4: the front matter has a second id (the first is on line 2)",
        ),
        (
            "---\r\na: b\r\nid: a/b\r\n---\r\n",
            3,
            "line 3: the id `a/b` cannot be used: it contains `/`, but only letters A-Z and \
             a-z, digits, `.`, `_` and `-` are allowed",
        ),
        (
            "---\nid: .x\n---\n",
            2,
            "line 2: the id `.x` cannot be used: it must not begin with `.` or `-`",
        ),
    ] {
        let error = Goal::parse(text).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.line(), line);
        assert!(!error.hint().is_empty());
    }
}

#[test]
fn run_ids() {
    for good in ["a", "run-1a2b3c4d-2", "A.b_c-9", "a.locks", &"x".repeat(64)] {
        assert_eq!(check_run_id(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        ".",
        "..",
        ".a",
        "-a",
        "a..b",
        "a.",
        "a.lock",
        "a/b",
        "a b",
        "a\n",
        "ä",
        "a~1",
        "@",
        &"x".repeat(65),
    ] {
        assert!(check_run_id(bad).is_err(), "{bad}");
    }
}

#[test]
fn setting_the_id_changes_nothing_else() {
    for (text, expected) in [
        ("# A\n", "---\nid: new\n---\n# A\n"),
        ("", "---\nid: new\n---\n"),
        ("# A\r\nb\r\n", "---\r\nid: new\r\n---\r\n# A\r\nb\r\n"),
        ("\u{feff}# A", "\u{feff}---\nid: new\n---\n# A"),
        ("---\nid: old\n---\n# A", "---\nid: new\n---\n# A"),
        (
            "---\na: 1\nid:   'old'  # why\nb: 2\n---\n",
            "---\na: 1\nid:   new  # why\nb: 2\n---\n",
        ),
        ("---\nid:\n---\n", "---\nid: new\n---\n"),
        ("---\nid: # why\n---\n", "---\nid: new # why\n---\n"),
        ("---\nid: ~\n---\n", "---\nid: new\n---\n"),
        (
            "---\r\na: 1\r\n---\r\n",
            "---\r\nid: new\r\na: 1\r\n---\r\n",
        ),
        ("---\nid: \"new\"\n---\n", "---\nid: \"new\"\n---\n"),
    ] {
        assert_eq!(
            Goal::parse(text).unwrap().with_id("new"),
            expected,
            "{text:?}"
        );
    }
}

#[test]
fn titles() {
    let long = format!("# {}", "x".repeat(100));
    let cut = format!("{}…", "x".repeat(79));
    for (text, title) in [
        ("# A calculator\n\ntext", "A calculator"),
        ("intro\n\n## Second ##\n", "Second"),
        ("#hashtag first\n", "#hashtag first"),
        ("# C#\n", "C#"),
        ("#\n# #\ntext", "#"),
        ("\n\n  plain words \nmore", "plain words"),
        ("<!-- # no -->\n# Yes", "Yes"),
        ("<!--\n# no\n--> # Yes <!-- x -->", "Yes"),
        ("```sh\n# no\n```\n# Yes", "Yes"),
        ("---\nid: x\n---\n# Yes", "Yes"),
        ("", ""),
        ("<!-- only this -->\n", ""),
        (&long, &cut),
    ] {
        let goal = Goal::parse(text).unwrap();
        assert_eq!(goal.title(), title, "{text:?}");
        assert_eq!(goal.is_blank(), title.is_empty());
    }
}

#[test]
fn the_template_is_recognised() {
    let template = Goal::parse(TEMPLATE).unwrap();
    assert!(template.is_template());
    assert_eq!(template.title(), "Describe the goal here");
    let with_id = Goal::parse(&template.with_id("x")).unwrap();
    assert!(with_id.is_template());
    let windows = TEMPLATE.replace('\n', "\r\n");
    assert!(Goal::parse(&windows).unwrap().is_template());
    let edited = TEMPLATE.replace("Describe the goal here", "A calculator");
    assert!(!Goal::parse(&edited).unwrap().is_template());
}

proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>) {
        if let Ok(goal) = Goal::parse(&String::from_utf8_lossy(&bytes)) {
            goal.title();
        }
    }

    #[test]
    fn a_set_id_is_read_back_and_the_body_stays(
        text in "(\u{feff})?(---\r?\n)?((id|x)( )?:[ \"#a]{0,4}\r?\n){0,3}(---\r?\n)?(?s).{0,30}"
    ) {
        if let Ok(goal) = Goal::parse(&text) {
            let set = goal.with_id("run-1");
            let again = Goal::parse(&set).unwrap();
            prop_assert_eq!(again.id(), Some("run-1"));
            prop_assert_eq!(again.body(), goal.body());
            prop_assert_eq!(again.with_id("run-1"), set);
            let title = goal.title();
            prop_assert!(title.chars().count() <= MAX_TITLE_CHARS);
        }
    }
}
