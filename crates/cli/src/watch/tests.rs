//! The screen as a person would see it, for each state and several sizes.

use std::rc::Rc;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;
use runner_core::tree::Node;

use super::screen::{WatchKey, WatchModel, WatchView, draw};
use crate::commands::tree;
use crate::style::TextTone;

/// The whole screen as text.
fn shown(model: &WatchModel, view: &mut WatchView, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, view, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines: Vec<String> = (0..height)
        .map(|y| {
            let cells = (0..width).map(|x| buffer[(x, y)].symbol());
            cells.collect::<String>().trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

/// The line that is marked.
fn marked(model: &WatchModel, view: &mut WatchView, width: u16, height: u16) -> Option<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, view, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = (0..height).find(|y| buffer[(0, *y)].modifier.contains(Modifier::REVERSED))?;
    let cells = (0..width).map(|x| buffer[(x, line)].symbol());
    Some(cells.collect::<String>().trim_end().to_owned())
}

fn small_tree() -> Node<'static> {
    let mut root = Node::leaf("root", "A word counter", "", 3);
    let mut count = Node::leaf("count", "Count the words of a file", "", 3);
    count.passes = true;
    let mut flags = Node::leaf("flags", "Options", "", 3);
    let mut lines = Node::leaf("lines", "Count lines with -l", "", 3);
    lines.attempts = 1;
    flags.children = vec![lines, Node::leaf("bytes", "Count bytes with -c", "", 3)];
    root.children = vec![
        count,
        flags,
        Node::leaf("readme", "Say how to use it", "", 3),
    ];
    root
}

fn running() -> WatchModel {
    let tree = tree::lines(&small_tree());
    WatchModel {
        title: "A word counter".to_owned(),
        state: ("running", Some(TextTone::Busy)),
        branch: "runner/run-b008ab9f".to_owned(),
        progress: Some((1, 4)),
        iteration: (7, 100),
        phase: "the agent works".to_owned(),
        elapsed: Some((125, 1800)),
        spent_ms: 754_000,
        tokens: Some((123_456, 5_000_000)),
        cost: Some((0.421, 0.0)),
        notice: None,
        current: tree.iter().position(|line| line.is_next),
        tree: Rc::new(tree),
        doing: Some("cargo test --workspace".to_owned()),
        messages: vec![
            (
                TextTone::Plain,
                "I will look at the tests first.".to_owned(),
            ),
            (TextTone::Good, "$ ls tests: exit code 0".to_owned()),
            (TextTone::Busy, "changed src/main.rs".to_owned()),
            (
                TextTone::Plain,
                "Now the option -l; the tests say what it prints.".to_owned(),
            ),
        ],
        outcomes: vec![
            (
                TextTone::Busy,
                "  6 lines: done, guard fail, 2m05s".to_owned(),
            ),
            (
                TextTone::Good,
                "  5 count: done, guard pass, 1m12s".to_owned(),
            ),
            (
                TextTone::Busy,
                "  4 root: decomposed, guard skipped, 42s".to_owned(),
            ),
        ],
    }
}

fn at_rest() -> WatchModel {
    WatchModel {
        state: ("open", Some(TextTone::Busy)),
        phase: String::new(),
        elapsed: None,
        doing: None,
        messages: Vec::new(),
        ..running()
    }
}

fn check(name: &str, model: &WatchModel, width: u16, height: u16) {
    let text = shown(model, &mut WatchView::new(true), width, height);
    insta::assert_snapshot!(name, text);
}

#[test]
fn running_in_three_sizes() {
    for (width, height) in [(40, 12), (80, 24), (120, 40)] {
        check(
            &format!("running_{width}x{height}"),
            &running(),
            width,
            height,
        );
    }
}

#[test]
fn idle() {
    let mut model = at_rest();
    model.notice = Some((
        TextTone::Busy,
        "stopped: 6 steps were taken, as asked; `runner loop` goes on".to_owned(),
    ));
    check("idle_80x24", &model, 80, 24);
}

#[test]
fn before_the_first_start() {
    let model = WatchModel {
        title: "A word counter".to_owned(),
        state: ("not started", Some(TextTone::Dim)),
        iteration: (0, 100),
        notice: Some((TextTone::Busy, "`runner start` begins a run".to_owned())),
        ..WatchModel::default()
    };
    check("not_started_40x12", &model, 40, 12);
}

#[test]
fn stuck() {
    let mut root = small_tree();
    root.children[1].children[0].attempts = 3;
    let tree = tree::lines(&root);
    let mut model = at_rest();
    model.state = ("stuck", Some(TextTone::Bad));
    model.current = tree.iter().position(|line| line.is_next);
    model.tree = Rc::new(tree);
    model.notice = Some((
        TextTone::Bad,
        "root/flags/lines has used up its attempts: `runner why lines`".to_owned(),
    ));
    check("stuck_80x24", &model, 80, 24);
}

fn pass(node: &mut Node<'_>) {
    node.passes = true;
    node.children.iter_mut().for_each(pass);
}

#[test]
fn complete() {
    let mut root = small_tree();
    pass(&mut root);
    let mut model = at_rest();
    model.state = ("complete", Some(TextTone::Good));
    model.progress = Some((4, 4));
    model.tree = Rc::new(tree::lines(&root));
    model.current = None;
    check("complete_80x24", &model, 80, 24);
}

#[test]
fn waiting_for_a_quota() {
    let mut model = at_rest();
    model.state = ("quota", Some(TextTone::Busy));
    model.phase = "waiting before the next try".to_owned();
    model.notice = Some((
        TextTone::Busy,
        "until 03:40:00: You've hit your session limit".to_owned(),
    ));
    check("quota_40x12", &model, 40, 12);
    check("quota_80x24", &model, 80, 24);
}

fn long_tree() -> WatchModel {
    let mut root = Node::leaf("root", "A long one", "", 3);
    root.children = (1..=200)
        .map(|n| Node::leaf(format!("n{n:03}"), format!("Node {n}"), "", 3))
        .collect();
    for node in &mut root.children[..120] {
        node.passes = true;
    }
    let tree = tree::lines(&root);
    let mut model = running();
    model.current = tree.iter().position(|line| line.is_next);
    model.tree = Rc::new(tree);
    model
}

#[test]
fn a_long_tree_shows_the_current_leaf_and_scrolls() {
    let model = long_tree();
    check("long_tree_80x24", &model, 80, 24);

    let (width, height) = (80, 24);
    let mut view = WatchView::new(true);
    assert_eq!(marked(&model, &mut view, width, height), None);
    let mut press = |keys: &[WatchKey]| {
        for key in keys {
            view.press(*key, &model);
        }
        let line = marked(&model, &mut view, width, height);
        (line, shown(&model, &mut view, width, height))
    };
    let (line, _) = press(&[WatchKey::Down]);
    assert_eq!(line.unwrap(), "├─ ○ n122  Node 122");
    let (line, _) = press(&[WatchKey::Up, WatchKey::Up]);
    assert_eq!(line.unwrap(), "├─ ✓ n120  Node 120");
    let (line, text) = press(&[WatchKey::Top]);
    assert_eq!(line.unwrap(), "○ root  A long one  120 of 200");
    assert!(text.contains("tree 1-"), "{text}");
    let (line, _) = press(&[WatchKey::Up]);
    assert_eq!(line.unwrap(), "○ root  A long one  120 of 200");
    let (line, text) = press(&[WatchKey::Bottom]);
    assert_eq!(line.unwrap(), "└─ ○ n200  Node 200");
    assert!(text.contains("of 201"), "{text}");
    let (line, _) = press(&[WatchKey::Down, WatchKey::PageUp]);
    let line = line.unwrap();
    assert!(line.contains("n19"), "{line}");
    let (line, text) = press(&[WatchKey::Current]);
    assert_eq!(line, None);
    assert!(text.contains("▶ n121"), "{text}");
}

#[test]
fn it_stays_with_the_current_leaf_until_somebody_moves() {
    let mut model = long_tree();
    let mut view = WatchView::new(false);
    for current in [5, 50, 199, 3] {
        model.current = Some(current);
        let text = shown(&model, &mut view, 60, 20);
        assert!(text.contains(&format!("n{current:03}")), "{text}");
    }
    view.press(WatchKey::Top, &model);
    model.current = Some(150);
    let text = shown(&model, &mut view, 60, 20);
    assert!(text.contains("root") && !text.contains("n150"), "{text}");
}

#[test]
fn no_size_and_no_model_is_too_small() {
    for model in [WatchModel::default(), running(), long_tree()] {
        for (width, height) in [(1, 1), (3, 2), (10, 4), (20, 5), (300, 3), (2, 100)] {
            let mut view = WatchView::new(true);
            for key in [
                WatchKey::Down,
                WatchKey::Bottom,
                WatchKey::PageDown,
                WatchKey::PageUp,
                WatchKey::Top,
            ] {
                shown(&model, &mut view, width, height);
                view.press(key, &model);
            }
        }
    }
}

#[test]
fn without_colours_there_are_none() {
    let model = running();
    for colours in [true, false] {
        let mut view = WatchView::new(colours);
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal
            .draw(|frame| draw(&model, &mut view, frame))
            .unwrap();
        let buffer = terminal.backend().buffer();
        let painted = buffer
            .content()
            .iter()
            .any(|cell| cell.fg != ratatui::style::Color::Reset);
        assert_eq!(painted, colours);
    }
}

/// Runs in a terminal of its own, started by the test below.
#[test]
#[ignore = "takes a terminal over and panics: only as a child of the test below"]
fn takes_over_and_panics() {
    let taken = super::TakenOver::begin().unwrap();
    // As in release builds, where a panic drops nothing.
    std::mem::forget(taken);
    panic!("on purpose");
}

#[test]
#[allow(clippy::disallowed_methods)] // the test calls itself, in a terminal
fn a_panic_gives_the_terminal_back() {
    let mut cmd = std::process::Command::new(std::env::current_exe().unwrap());
    let name = "watch::tests::takes_over_and_panics";
    cmd.args(["--ignored", "--exact", name, "--nocapture"]);
    cmd.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    cmd.env("TERM", "xterm");
    let mut pty = runner_testkit::TestPty::spawn(&cmd, 80, 24);
    let before = pty.modes();
    pty.wait_for("on purpose");
    let (_, rest) = pty.wait();
    assert!(rest.contains("FAILED"), "{rest}");
    let begun = rest.find("\u{1b}[?1049h").unwrap();
    let ended = rest.find("\u{1b}[?1049l").unwrap();
    let said = rest.find("on purpose").unwrap();
    assert!(begun < ended && ended < said, "{rest:?}");
    assert!(rest.contains("\u{1b}[?25h"), "the cursor is back");
    assert_eq!(pty.modes(), before);
}
