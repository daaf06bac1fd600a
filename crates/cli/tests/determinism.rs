//! The same repository and the same agent outputs give the same bytes.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use runner_testkit::TestRepo;

const BIN: &str = env!("CARGO_BIN_EXE_runner");

/// A bit of everything: planning, a failing guard, a retry, an agent error, a
/// runner error, an invalid tree with a refused and an accepted repair.
const SESSIONS: &[&str] = &[
    r#"add_child root a 1 "First"; add_child root b 2 "Second"; out decomposed "two parts""#,
    r#"echo bad > a.txt; echo "- a needs care" >> .runner/state/assumptions.md; out done "wrote a""#,
    r#"echo good > a.txt; out done "mended a""#,
    r#"echo "half" > b.txt; echo "- which b?" >> .runner/state/questions.md; out retry "half of b""#,
    r#"echo evil > ci.sh; out done "changed the guard""#,
    "echo more >> b.txt; true",
    r#"echo '{' > .runner/state/tree.json; out retry "broke the tree""#,
    r#"out retry "did nothing""#,
    r#"git show HEAD~2:.runner/state/tree.json > .runner/state/tree.json; out retry "brought it back""#,
    r#"tree_edit 'n("b")["title"] = "Second, renamed"'; echo good > b.txt; out done "b is there""#,
];

fn play() -> TestRepo {
    let mut repo = TestRepo::new(BIN);
    repo.write(
        "ci.sh",
        "if cat *.txt | grep bad; then exit 1; fi\necho all good\n",
    );
    repo.commit_all("a guard");
    repo.config(|config| {
        config.set("guard.protected", serde_json::json!(["ci.sh"]));
        config.set("guard.watched", serde_json::json!(["*.txt"]));
    });
    for (iter, session) in (1..).zip(SESSIONS) {
        let keep = format!(
            "cp -r .runner/context {}/context-{iter}\n{session}",
            repo.agent_dir().display()
        );
        repo.agent_at(iter, &keep);
    }
    repo.start_run("# Both files\n\nShall be good.\n", &["sh", "ci.sh"])
        .success();
    repo.runner(&["loop"]).success();
    repo
}

/// Every file below a folder with its bytes.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Messages without commit names: those depend on the time of the commits.
fn messages(repo: &TestRepo) -> Vec<String> {
    repo.git(&["log", "--reverse", "--format=%B%x00"])
        .split('\0')
        .map(|message| {
            let lines = message
                .lines()
                .filter(|line| !line.starts_with("Runner-Last-Valid: "))
                // Those of the machine that made them.
                .filter(|line| {
                    !line.starts_with("Runner-Key: ") && !line.starts_with("Runner-Proof: ")
                });
            lines.collect::<Vec<_>>().join("\n")
        })
        .collect()
}

#[test]
fn a_rich_run_comes_out_the_same_in_two_folders() {
    let (one, two) = (play(), play());
    assert_ne!(one.path(""), two.path(""));
    let statuses: Vec<String> = (1..=SESSIONS.len() as u64)
        .map(|iter| format!("{} {}", one.meta(iter)["class"], one.meta(iter)["guard"]))
        .collect();
    assert_eq!(
        statuses,
        [
            r#""ok" "skipped""#,
            r#""ok" "fail""#,
            r#""ok" "pass""#,
            r#""ok" "skipped""#,
            r#""agent_error" "skipped""#,
            r#""runner_error" "skipped""#,
            r#""invalid_tree" "skipped""#,
            r#""repair_refused" "skipped""#,
            r#""repaired" "skipped""#,
            r#""ok" "pass""#,
        ]
    );
    for path in [
        ".runner/state/tree.json",
        ".runner/state/run_state.json",
        ".runner/state/assumptions.md",
    ] {
        assert_eq!(one.read(path), two.read(path), "{path}");
    }
    assert_eq!(messages(&one), messages(&two));
    for iter in 1..=SESSIONS.len() as u64 {
        let context = |repo: &TestRepo| contents(&repo.agent_dir().join(format!("context-{iter}")));
        assert_eq!(context(&one), context(&two), "context of iteration {iter}");
        assert!(!context(&one).is_empty());
        for name in [
            "prompt.md",
            "tree.before.json",
            "tree.agent.json",
            "tree.after.json",
            "guard.log",
        ] {
            let bytes = |repo: &TestRepo| std::fs::read(repo.iteration(iter).join(name)).ok();
            assert_eq!(bytes(&one), bytes(&two), "{name} of iteration {iter}");
        }
    }
    // Every tree in every commit is the one its trailer names.
    for repo in [&one, &two] {
        repo.runner(&["replay"]).success();
    }
}

#[test]
fn replay_finds_a_single_changed_byte() {
    let repo = play();
    repo.runner(&["replay"])
        .success()
        .says("10 iterations derived again");
    let (mut kinds, mut places) = (BTreeSet::new(), Vec::new());
    for iter in 1..=10 {
        for name in contents(&repo.iteration(iter)).into_keys() {
            // Each kind of file once, and everything of two iterations.
            let path = repo.iteration(iter).join(&name);
            if kinds.insert(name) || [2, 9].contains(&iter) {
                places.push((path, format!("iteration {iter}: ")));
            }
        }
    }
    let run_folder = repo.iteration(1).parent().unwrap().to_owned();
    places.push((run_folder.join("events.jsonl"), "events.jsonl".to_owned()));
    for name in [
        "agent_error.log",
        "argv.json",
        "executor.log",
        "guard.log",
        "journal.jsonl",
        "meta.json",
        "output.json",
        "prompt.md",
        "quarantine/ci.sh",
        "tree.after.json",
        "tree.agent.json",
        "tree.before.json",
        "tree.valid.json",
    ] {
        assert!(kinds.contains(name), "{name} in {kinds:?}");
    }
    for (path, words) in places {
        let original = fs::read(&path).unwrap();
        // A new file each time, so that hard-linked copies stay as they are.
        let put = |bytes: &[u8]| {
            fs::remove_file(&path).unwrap();
            fs::write(&path, bytes).unwrap();
        };
        let is_last_line_open = path.ends_with("events.jsonl");
        let end = if is_last_line_open {
            original.len() / 3
        } else {
            original.len().saturating_sub(1)
        };
        for at in BTreeSet::from([0, original.len() / 2, end]) {
            let mut changed = original.clone();
            match changed.get_mut(at) {
                Some(byte) => *byte ^= 1,
                None => changed.push(b'x'),
            }
            put(&changed);
            let run = repo.runner(&["replay"]).code(1);
            assert!(
                run.stdout.contains(&words),
                "{}@{at}: {}",
                path.display(),
                run.describe()
            );
        }
        fs::remove_file(&path).unwrap();
        repo.runner(&["replay"]).code(1).says(&words);
        fs::write(&path, original).unwrap();
    }
    for iter in [1, 5, 10] {
        let (folder, aside) = (repo.iteration(iter), run_folder.join("aside"));
        fs::rename(&folder, &aside).unwrap();
        let words = format!("iteration {iter}: there are no logs of it in this clone");
        repo.runner(&["replay"]).code(1).says(&words);
        fs::rename(&aside, &folder).unwrap();
    }
    repo.runner(&["replay"]).success();
}

#[test]
fn replay_reports_edits_by_hand_and_is_content() {
    let mut repo = TestRepo::new(BIN);
    repo.agent_at(
        1,
        r#"add_child root a 1 "First"; add_child root b 2 "Second"; out decomposed "plan""#,
    );
    repo.agent(r#"out done "fine""#);
    repo.start_run("# Goal\n", &["true"]).success();
    repo.runner(&["step"]).success();
    let tree = repo
        .read(".runner/state/tree.json")
        .replace("\"Second\"", "\"Second thoughts\"");
    repo.write(".runner/state/tree.json", tree);
    repo.commit_all("a person edits the plan");
    repo.runner(&["loop"]).success();
    repo.runner(&["replay"])
        .success()
        .says("edited by hand between 1 and 2");
    let other = repo.runner(&["replay", "no-such-run"]).code(1);
    assert!(
        other.stderr.contains("no logs of run"),
        "{}",
        other.describe()
    );
}

#[test]
fn verify_runs_the_guard_where_it_passed() {
    let mut repo = TestRepo::new(BIN);
    repo.agent_at(
        1,
        r#"add_child root a 1 "First"; add_child root b 2 "Second"; out decomposed "plan""#,
    );
    repo.agent_at(2, r#"echo 1 > flag; out done "a""#);
    repo.agent_at(3, r#"echo 2 > flag; out done "b""#);
    repo.start_run("# Goal\n", &["sh", "-c", "test -e flag && cat flag"])
        .success();
    repo.runner(&["loop", "--steps", "2"]).success();
    repo.runner(&["verify", "b"]).code(1).says("has not passed");
    repo.runner(&["verify", "nothing"])
        .code(1)
        .says("there is no node");
    repo.runner(&["loop"]).success();
    for (node, iter) in [("a", 2), ("b", 3), ("root", 3)] {
        let run = repo.runner(&["verify", node, "--json"]).success();
        let value = run.json();
        assert_eq!(
            (&value["holds"], &value["iter"], &value["same_log"]),
            (&true.into(), &iter.into(), &true.into())
        );
    }
    repo.assert_clean();
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);

    // A history whose guard was not green there: the proof does not hold.
    let run_id = repo.run_id();
    let message = repo.git(&["log", "-1", "--format=%B", "HEAD"]);
    repo.git(&["rm", "--quiet", "flag"]);
    repo.git(&["commit", "--quiet", "--amend", "-m", &message]);
    let run = repo.runner(&["verify", "b"]).code(1);
    assert!(
        run.stdout.contains("does not hold"),
        "{run_id} {}",
        run.describe()
    );
}

#[test]
fn a_proof_names_the_setup_of_its_verdict() {
    let mut repo = TestRepo::new(BIN);
    repo.write("list.lock", "one\n");
    repo.write(".gitignore", "made\n");
    repo.commit_all("What setup reads");
    repo.agent_at(
        1,
        r#"add_child root a 1 "First"; add_child root b 2 "Second"; out decomposed "plan""#,
    );
    repo.agent_at(2, r#"echo 1 > flag; out done "a""#);
    repo.agent_at(3, r#"rm flag; out done "b""#);
    repo.agent_at(4, r#"echo two > list.lock; echo 2 > flag; out done "b""#);
    repo.config(|config| {
        config
            .set("workspace.setup", "cp list.lock made")
            .set("workspace.setup_inputs", serde_json::json!(["*.lock"]));
    });
    repo.start_run("# Goal\n", &["sh", "-c", "test -e made && test -e flag"])
        .success();
    repo.runner(&["loop"]).success();
    let setup_of = |back: usize| {
        let message = repo.git(&["log", "-1", "--format=%B", &format!("HEAD~{back}")]);
        let mut lines = message.lines();
        lines
            .find_map(|line| line.strip_prefix("Runner-Setup: sha256:"))
            .map(str::to_owned)
    };
    let (first, red, last) = (setup_of(2), setup_of(1), setup_of(0));
    assert_eq!(first.as_deref().map(str::len), Some(64), "{first:?}");
    assert_eq!(red, None, "only a pass proves anything");
    assert!(
        last.is_some() && last != first,
        "an input changed: {last:?}"
    );
    let verified = |repo: &TestRepo| {
        let run = repo.runner(&["verify", "a", "--json"]).success().json();
        assert_eq!(run["holds"], true);
        run["same_setup"].clone()
    };
    assert_eq!(verified(&repo), true);
    // Another setup may come to the same: it is told, and no more.
    let config = repo.read(".runner/state/config.toml");
    let config = config.replace("cp list.lock made", "touch made");
    repo.write(".runner/state/config.toml", config);
    repo.commit_all("Another setup");
    assert_eq!(verified(&repo), false);
    repo.runner(&["verify", "a"])
        .success()
        .says("note: the setup of that verdict was another one");
}
