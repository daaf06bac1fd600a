//! `runner eval report`, `compare` and `clean`, and the page in a real browser.

mod eval_support;

use std::fs;
use std::path::{Path, PathBuf};

use eval_support::{DOES_IT, results, run_json, with_eval, write_case};
use runner_testkit::TestRepo;

/// Two sets of two cases: in `before` a coin of the workspace's name decides, in `after` all pass.
fn two_sets() -> TestRepo {
    let repo = with_eval();
    let agent = format!("case $(pwd) in *-0[13579]) exit 1;; esac\n{DOES_IT}");
    write_case(&repo, "a", &agent, "true", "");
    write_case(&repo, "b", &agent, "true", "");
    let script = repo.root().join("solve.sh");
    fs::write(&script, DOES_IT).expect("a script can be written");
    let solve = format!("command:sh {}", script.display());
    run_json(
        &repo,
        &["a", "b", "--runs", "4", "--jobs", "2", "--label", "before"],
    )
    .code(1);
    run_json(
        &repo,
        &[
            "a",
            "b",
            "--runs",
            "4",
            "--jobs",
            "2",
            "--label",
            "after",
            "--executor",
            &solve,
        ],
    )
    .success();
    repo
}

#[test]
fn numbers_of_two_sets_and_their_difference() {
    let repo = two_sets();
    let report = repo.runner(&["eval", "report", "--json"]).success().json();
    assert_eq!(
        (&report["runs"], &report["passed"]),
        (&16.into(), &12.into())
    );
    let case = &report["cases"][0];
    assert_eq!(
        (&case["case"], &case["runs"], &case["passed"]),
        (&"a".into(), &8.into(), &6.into())
    );
    assert_eq!(case["outcomes"]["error"], 2);
    assert_eq!(case["reasons"][0]["reason"], "no_output");
    assert_eq!(case["pass_k"][0]["k"], 1);
    assert!(case["interval"][0].as_f64().unwrap() > 0.3);
    assert!(case["duration_ms"]["p95"].as_f64().unwrap() > 0.0);
    repo.runner(&["eval", "report", "a", "--set", "before"])
        .success()
        .says("a  2 of 4 50%  95% interval 15% to 85%")
        .says("pass^k      1: 50%  2: 17%  3: 0%")
        .says("2 × no_output");
    repo.runner(&["eval", "report", "nothing"])
        .code(1)
        .says("there are no results of the case nothing");

    let compared = repo
        .runner(&["eval", "compare", "before", "after", "--json"])
        .success()
        .json();
    assert_eq!(compared["test"], "paired_sign");
    assert_eq!(
        (&compared["pairs"], &compared["b_alone"]),
        (&8.into(), &4.into())
    );
    assert_eq!(compared["verdict"], "too_few");
    assert!(compared["runs_needed"].as_u64().unwrap() > 4);
    assert_eq!(compared["changed"][0][0], "config");
    repo.runner(&["eval", "compare", "previous", "latest", "--case", "a"])
        .success()
        .says("A  previous: 2 of 4 50%")
        .says("too few runs to tell (need about")
        .says("Fisher's exact test");
    repo.runner(&["eval", "compare", "before", "nothing"])
        .code(1)
        .says("there are no runs for \"nothing\"")
        .says("after (");
}

#[test]
fn enough_runs_tell_the_better_from_the_worse() {
    let repo = with_eval();
    write_case(&repo, "c", "exit 1", "true", "");
    let script = repo.root().join("solve.sh");
    fs::write(&script, DOES_IT).unwrap();
    let solve = format!("command:sh {}", script.display());
    run_json(
        &repo,
        &["c", "--runs", "4", "--jobs", "2", "--label", "bad"],
    )
    .code(1);
    let args = [
        "c",
        "--runs",
        "4",
        "--jobs",
        "2",
        "--label",
        "good",
        "--executor",
        &solve,
    ];
    run_json(&repo, &args).success();
    repo.runner(&["eval", "compare", "bad", "good"])
        .success()
        .says("B is better");
    repo.runner(&["eval", "compare", "good", "bad"])
        .success()
        .says("B is worse");
}

#[test]
fn clean_removes_a_case_and_nothing_else() {
    let repo = with_eval();
    write_case(&repo, "hello_too", DOES_IT, "true", "");
    run_json(&repo, &["hello", "hello_too"]).success();
    let workspace = fs::read_link(repo.path("eval/workspaces/hello_latest")).unwrap();
    let other = fs::read_link(repo.path("eval/workspaces/hello_too_latest")).unwrap();
    assert!(workspace.is_dir() && other.is_dir());
    repo.runner(&["eval", "clean", "hello", "--keep-results"])
        .success()
        .says("removed 1 workspace and 0 results");
    assert!(!workspace.exists() && other.is_dir());
    assert_eq!(results(&repo, "hello").len(), 1);
    repo.runner(&["eval", "clean", "hello"]).success();
    assert!(results(&repo, "hello").is_empty());
    assert_eq!(results(&repo, "hello_too").len(), 1);
    repo.runner(&["eval", "clean", "../x"])
        .code(1)
        .says("is no name of a case");
    let cleaned = repo
        .runner(&["eval", "clean", "--all", "--json"])
        .success()
        .json();
    assert_eq!(cleaned["results"].as_array().unwrap().len(), 1);
    assert!(!other.exists());
}

#[test]
fn what_cannot_be_read_is_left_out_and_named() {
    let repo = with_eval();
    run_json(&repo, &["hello"]).success();
    repo.write("eval/results/hello/broken/meta.json", "{");
    repo.runner(&["eval", "report"])
        .success()
        .says("hello  1 of 1")
        .says("note: left out:");
}

/// The browser, or words about where to get it.
fn chromium() -> PathBuf {
    let named = std::env::var_os("RUNNER_CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path)
        .flat_map(|folder| ["chromium", "chromium-browser"].map(|name| folder.join(name)))
        .find(|program| program.is_file());
    let found = named.filter(|program| program.is_file()).or(on_path);
    found.expect("this test needs Chromium: install it (apt-get install chromium), or name it in RUNNER_CHROMIUM")
}

/// Opens a page; what the browser printed.
fn open(repo: &TestRepo, page: &Path, options: &[String]) -> runner_testkit::TestRun {
    let profile = new_profile(repo);
    let mut cmd = repo.hermetic(chromium());
    cmd.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
    ])
    .arg(format!("--user-data-dir={}", profile.display()))
    .args(options)
    .arg(format!("file://{}", page.display()));
    repo.spawn(cmd).wait().success()
}

/// A profile of its own for each call.
fn new_profile(repo: &TestRepo) -> PathBuf {
    (0..100)
        .map(|number| repo.root().join(format!("profile-{number}")))
        .find(|path| fs::create_dir(path).is_ok())
        .expect("a folder can be made")
}

/// Width, height and how many bytes of a PNG.
fn png(path: &Path) -> (u32, u32, usize) {
    let bytes = fs::read(path).expect("the browser made a picture");
    assert_eq!(&bytes[1..4], b"PNG");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    (number(16), number(20), bytes.len())
}

#[test]
fn the_page_shows_its_charts_in_chromium() {
    let repo = two_sets();
    let page = repo.root().join("out/report.html");
    repo.runner(&["eval", "report", "--html", &page.display().to_string()])
        .success()
        .says("wrote");
    let dom = open(&repo, &page, &["--dump-dom".to_owned()]).stdout;
    assert_eq!(dom.matches("<svg").count(), 4, "{dom}");
    assert_eq!(dom.matches("<circle").count(), 2 * 16, "{dom}");
    for words in ["How often it works", "12 of 16 runs", "before", "75%"] {
        assert!(dom.contains(words), "{words} in {dom}");
    }
    let shot = |name: &str, scheme: u8, size: &str| {
        let path = repo.root().join(name);
        open(
            &repo,
            &page,
            &[
                format!("--window-size={size}"),
                format!("--blink-settings=preferredColorScheme={scheme}"),
                format!("--screenshot={}", path.display()),
            ],
        );
        path
    };
    let light = shot("light.png", 1, "900,1400");
    let dark = shot("dark.png", 0, "900,1400");
    let narrow = shot("narrow.png", 1, "380,1400");
    for path in [&light, &dark, &narrow] {
        let (width, height, bytes) = png(path);
        assert!(width >= 380 && height >= 1000, "{width} x {height}");
        // A blank page of this size takes a few kilobytes.
        assert!(bytes > 30_000, "{}: {bytes}", path.display());
    }
    assert_ne!(fs::read(&light).unwrap(), fs::read(&dark).unwrap());
}
