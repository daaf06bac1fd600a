//! Sessions that turn the files of `.runner/` into anything but what they should
//! be: the tree is repaired, everything else is put back.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;
use std::os::unix::fs::symlink;

use hostile_support::{
    all, assert_contained, case, check, find_content, finish, play, play_one, repo_under, step,
};
use runner_testkit::TestRepo;

const TREE: &str = ".runner/state/tree.json";

/// `tree_deep N`: a tree of that many levels.
const DEEP: &str = r#"
tree_deep() {
    awk -v n="$1" 'BEGIN {
        for (i = 0; i < n; i++) printf "{\"id\":\"n%d\",\"order\":0,\"title\":\"t\",\"goal\":\"g\",\"acceptance\":[],\"passes\":false,\"attempts\":0,\"max_attempts\":3,\"children\":[", i
        for (i = 0; i < n; i++) printf "]}"
    }' > "$TREE"
}
"#;

/// A session that brings back the tree that the commit before had.
const BRING_BACK: &str =
    "git show HEAD~1:.runner/state/tree.json > .runner/state/tree.json; out done mended";

/// A session that breaks the tree, then one that brings the last valid one back.
fn broken_and_repaired(repo: &TestRepo, name: &str, says: &str, script: &str) {
    let before = repo.read(TREE);
    let iter = repo.run_state()["next_iter"].as_u64().unwrap();
    let script = format!("{DEEP}\n{script}\necho '{name}' >> broken.txt; out done x");
    repo.agent_at(iter, &script);
    let (run, json) = step(repo);
    assert_eq!(json["class"], "invalid_tree", "{name}: {}", run.describe());
    assert_eq!(
        (run.code, &json["attempts"]),
        (Some(0), &0.into()),
        "{name}"
    );
    assert!(
        run.stdout.contains(says),
        "{name}: should say {says:?}: {}",
        run.describe()
    );
    check(repo, name);
    let work = repo.git(&["show", "HEAD:broken.txt"]);
    assert!(work.contains(name), "{name}: the work is kept");
    let meta = repo.path(TREE).symlink_metadata();
    assert!(
        meta.is_err() || meta.unwrap().is_file(),
        "{name}: nothing but a file stays there"
    );
    repo.runner(&["select", "--json"]).code(1).says("repair");

    repo.agent_at(iter + 1, BRING_BACK);
    let (run, json) = step(repo);
    assert_eq!(json["class"], "repaired", "{name}: {}", run.describe());
    check(repo, name);
    assert_eq!(repo.read(TREE), before, "{name}");
}

#[test]
fn trees_that_are_no_files() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let victim = repo.agent_dir().join("victim");
        fs::write(&victim, "{\"untouched\": true}").unwrap();
        for (name, says, script) in [
            (
                "a link",
                "symbolic link",
                "rm $TREE; ln -s \"$AGENT_DIR/victim\" $TREE",
            ),
            (
                "a dangling link",
                "symbolic link",
                "rm $TREE; ln -s /nowhere $TREE",
            ),
            (
                "a link to the true one",
                "symbolic link",
                "mv $TREE \"$AGENT_DIR/moved\"; ln -s \"$AGENT_DIR/moved\" $TREE",
            ),
            (
                "a folder",
                "a folder",
                "rm $TREE; mkdir $TREE; echo kept > $TREE/file",
            ),
            ("a pipe", "named pipe", "rm $TREE; mkfifo $TREE"),
            ("gone", "missing", "rm $TREE"),
            ("huge", "larger than", "truncate -s 600M $TREE"),
        ] {
            broken_and_repaired(&repo, name, says, script);
        }
        let text = fs::read_to_string(victim).unwrap();
        assert_eq!(text, "{\"untouched\": true}");
        let kept = find_content(&repo.run_dir(), b"kept\n");
        assert_eq!(kept.len(), 1, "what was in the folder");
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn trees_that_are_no_trees() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        for (name, says, script) in [
            ("empty", "", ": > $TREE"),
            ("half-written", "", "head -c 60 $TREE > half; mv half $TREE"),
            ("not UTF-8", "", "printf '{\"id\":\"\\377\"}' > $TREE"),
            ("binary", "", "head -c 5000 /dev/urandom > $TREE"),
            ("not a tree", "", "echo '[1,2,3]' > $TREE"),
            ("50,000 deep", "64", "tree_deep 50000"),
            (
                "a million brackets",
                "",
                "head -c 1000000 /dev/zero | tr '\\0' '[' > $TREE",
            ),
            (
                "duplicate ids",
                "twin",
                "add_child root twin 1 A; add_child root twin 2 B",
            ),
            ("an unknown key", "extra", "tree_edit 't[\"extra\"] = 1'"),
            ("an id that is a path", "../x", "add_child root ../x 1 A"),
            (
                "a number that is too big",
                "",
                "tree_edit 't[\"order\"] = 10**30'",
            ),
        ] {
            broken_and_repaired(&repo, name, says, script);
        }
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn owned_files_in_every_shape() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        repo.write(".runner/INSTRUCTIONS.md", "Be nice.\n");
        repo.runner(&["start"]).success();
        let files = [
            ".runner/state/config.toml",
            ".runner/GOAL.md",
            ".runner/state/run_state.json",
            ".runner/INSTRUCTIONS.md",
            ".runner/.gitignore",
            ".runner/.gitattributes",
            ".runner/state/schema.json",
            ".runner/state/agent_output.schema.json",
        ];
        // Bubblewrap lets nobody write them; elsewhere that is found out.
        let is_refused = mechanism == "bubblewrap";
        // All files in one session: each must be named.
        for script in [
            "echo more >> FILE",
            "rm FILE",
            "chmod +x FILE",
            "rm FILE; mkdir FILE; true > FILE/x",
            "mv FILE \"$AGENT_DIR/moved-$n\"; ln -s \"$AGENT_DIR/moved-$n\" FILE; n=1$n",
            "rm FILE; mkfifo FILE",
            "echo more >> FILE; git add -f FILE; git commit -qm mine",
        ] {
            let before = files.map(|file| repo.read(file));
            let next = repo.run_state()["next_iter"].as_u64().unwrap();
            let lines = files.map(|file| script.replace("FILE", file));
            repo.agent_at(next, &format!("{}\nout retry x", lines.join("\n")));
            let (run, json) = step(&repo);
            let class = if is_refused { "ok" } else { "agent_error" };
            assert_eq!(json["class"], class, "{script}: {}", run.describe());
            check(&repo, script);
            for (file, before) in files.iter().zip(before) {
                let wanted = format!("{file} belongs to the runner");
                assert_eq!(
                    run.stdout.contains(&wanted),
                    !is_refused,
                    "{script}, {file}: {}",
                    run.describe()
                );
                if !file.ends_with("run_state.json") {
                    assert_eq!(repo.read(file), before, "{script}, {file}");
                }
                let mode = repo.git(&["ls-files", "-s", file]);
                assert!(mode.starts_with("100644"), "{script}, {file}: {mode}");
            }
        }
        // One that has not been there must not come either.
        repo.git(&["rm", "-q", ".runner/INSTRUCTIONS.md"]);
        repo.git(&["commit", "-qm", "no instructions"]);
        let (class, says) = if is_refused {
            ("ok", "")
        } else {
            (
                "agent_error",
                ".runner/INSTRUCTIONS.md belongs to the runner",
            )
        };
        let cases = [case(
            "new instructions",
            class,
            says,
            "echo 'Obey me.' > .runner/INSTRUCTIONS.md; out retry x",
        )];
        play(&repo, &cases);
        assert!(!repo.exists(".runner/INSTRUCTIONS.md"));
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn folders_of_the_state_replaced() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let outside = repo.agent_dir().join("outside");
        fs::create_dir(&outside).unwrap();
        let cases = [
            case(
                "state is a link",
                "agent_error",
                ".runner/state/config.toml belongs to the runner",
                "mv .runner/state \"$AGENT_DIR/state\"; ln -s \"$AGENT_DIR/state\" .runner/state; \
             sed -i 's/\"title\": .*/\"title\": \"planted\",/' \"$AGENT_DIR/state/tree.json\"",
            ),
            case(
                "state is a file",
                "agent_error",
                ".runner/state/config.toml",
                "rm -rf .runner/state; true > .runner/state",
            ),
            case(
                "state is gone",
                "agent_error",
                ".runner/state/config.toml",
                "rm -rf .runner/state",
            ),
            case(
                "context is a link",
                "ok",
                "",
                "rm -rf .runner/context; ln -s \"$AGENT_DIR/outside\" .runner/context; out retry x",
            ),
            case(
                "context is a pipe",
                "ok",
                "",
                "rm -rf .runner/context; mkfifo .runner/context; out retry x",
            ),
            case(
                "context is full of traps",
                "ok",
                "",
                "mkdir -p .runner/context/a/b; rm -f .runner/context/*.md; mkfifo .runner/context/goal.md; \
             ln -s \"$AGENT_DIR/outside\" .runner/context/failure.md; chmod 0 .runner/context/a; out retry x",
            ),
            case(
                "nodes is a link",
                "ok",
                "",
                "rm -rf .runner/nodes; ln -s \"$AGENT_DIR/outside\" .runner/nodes; out retry x",
            ),
        ];
        let mut cases = cases.as_slice();
        if mechanism == "bubblewrap" {
            // Of that folder nothing but the tree can be taken away.
            let (replaced, others) = cases.split_at(3);
            for case in replaced {
                broken_and_repaired(&repo, case.name, "missing", case.script);
            }
            cases = others;
        }
        play(&repo, cases);
        let written = fs::read_dir(&outside).unwrap().count();
        assert_eq!(written, 0, "nothing is written through a link");
        let planted = fs::read_to_string(repo.agent_dir().join("state/tree.json")).unwrap();
        assert!(
            planted.contains("planted"),
            "what lies outside is left alone"
        );
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn the_logs_replaced_in_mid_session() {
    for mechanism in all() {
        for (name, script, class, in_bubblewrap) in [
            (
                "removed",
                "rm -rf .runner/iterations; mkdir -p \"${RUNNER_OUTPUT_PATH%/*}\"; out retry x",
                "ok",
                "ok",
            ),
            (
                "removed with the output",
                "rm -rf .runner/iterations",
                "runner_error",
                "runner_error",
            ),
            (
                "a link",
                "mv .runner/iterations \"$AGENT_DIR/it\"; ln -s \"$AGENT_DIR/it\" .runner/iterations; out retry x",
                "runner_error",
                "ok",
            ),
            (
                "the run is a link",
                "mv .runner/iterations/$RUNNER_RUN_ID \"$AGENT_DIR/run\"; \
             ln -s \"$AGENT_DIR/run\" .runner/iterations/$RUNNER_RUN_ID; out retry x",
                "runner_error",
                "ok",
            ),
            (
                "all of it a link",
                "mv .runner \"$AGENT_DIR/all\"; ln -s \"$AGENT_DIR/all\" .runner; out retry x",
                "runner_error",
                "invalid_tree",
            ),
            (
                "all of it a file",
                "rm -rf .runner; echo kept > .runner",
                "runner_error",
                "runner_error",
            ),
            (
                "all of it gone",
                "rm -rf .runner",
                "runner_error",
                "runner_error",
            ),
            (
                "the locks",
                "rm .runner/iterations/*lock; mkfifo .runner/iterations/lock .runner/iterations/session.lock; out retry x",
                "ok",
                "ok",
            ),
        ] {
            let repo = repo_under(mechanism);
            repo.agent_at(1, &format!("echo work > work.txt; {script}"));
            let (run, json) = step(&repo);
            // There these folders can be emptied, but not replaced.
            let is_held = mechanism == "bubblewrap";
            let class = if is_held { in_bubblewrap } else { class };
            assert_eq!(
                json["class"],
                class,
                "{mechanism} {name}: {}",
                run.describe()
            );
            check(&repo, name);
            assert_eq!(repo.git(&["show", "HEAD:work.txt"]), "work", "{name}");
            assert!(repo.iteration(1).join("meta.json").is_file(), "{name}");
            assert!(repo.iteration(1).join("executor.log").is_file(), "{name}");
            if name == "all of it a file" && !is_held {
                assert_eq!(find_content(&repo.iteration(1), b"kept\n").len(), 1);
            }
            repo.runner(&["log", "1"]).success();
            if class == "invalid_tree" {
                repo.agent_at(2, BRING_BACK);
                assert_eq!(step(&repo).1["class"], "repaired", "{name}");
            }
            finish(&repo);
            assert_contained(&repo, mechanism);
        }
    }
}

#[test]
fn outputs_in_every_shape() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let answer = repo.agent_dir().join("answer");
        fs::write(&answer, "{\"status\":\"done\",\"summary\":\"s\"}").unwrap();
        // `: out done` keeps the helper from adding an answer of its own.
        let cases = [
            case(
                "a pipe",
                "runner_error",
                "named pipe",
                "mkfifo \"$RUNNER_OUTPUT_PATH\"; : out done",
            ),
            case(
                "a link",
                "runner_error",
                "symbolic link",
                "ln -s \"$AGENT_DIR/answer\" \"$RUNNER_OUTPUT_PATH\"; : out done",
            ),
            case(
                "a folder",
                "runner_error",
                "a folder",
                "mkdir \"$RUNNER_OUTPUT_PATH\"; : out done",
            ),
            case(
                "too large",
                "runner_error",
                "larger than",
                "truncate -s 2M \"$RUNNER_OUTPUT_PATH\"; : out done",
            ),
            case(
                "not UTF-8",
                "runner_error",
                "output.json",
                "printf '{\"status\":\"done\",\"summary\":\"\\377\"}' > \"$RUNNER_OUTPUT_PATH\"; : out done",
            ),
            case(
                "not JSON",
                "runner_error",
                "output.json",
                "echo yes > \"$RUNNER_OUTPUT_PATH\"; : out done",
            ),
            case(
                "an unknown key",
                "runner_error",
                "extra",
                "echo '{\"status\":\"done\",\"summary\":\"s\",\"extra\":1}' > \"$RUNNER_OUTPUT_PATH\"; : out done",
            ),
            case("an empty summary", "runner_error", "summary", "out done ''"),
            case(
                "a summary that is too long",
                "runner_error",
                "summary",
                "out done \"$(head -c 20001 /dev/zero | tr '\\0' x)\"",
            ),
            case(
                "a very long summary",
                "ok",
                "",
                "out retry \"$(head -c 20000 /dev/zero | tr '\\0' x)\"",
            ),
            case(
                "a summary full of control characters",
                "ok",
                "",
                "printf '{\"status\":\"retry\",\"summary\":\"\\\\u0000\\\\u001b[31m\\\\u2028\"}' > \"$RUNNER_OUTPUT_PATH\"; : out retry",
            ),
            case(
                "deep",
                "runner_error",
                "output.json",
                "head -c 900000 /dev/zero | tr '\\0' '[' > \"$RUNNER_OUTPUT_PATH\"; : out done",
            ),
            case(
                "none",
                "runner_error",
                "without writing output.json",
                ": out done",
            ),
        ];
        for (iter, case) in (1..).zip(&cases) {
            play_one(&repo, case);
            repo.runner(&["log", &iter.to_string()]).success();
        }
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn assumptions_and_questions_in_every_shape() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let file = ".runner/state/assumptions.md";
        play_one(
            &repo,
            &case(
                "a line",
                "ok",
                "",
                "echo first >> .runner/state/assumptions.md; out retry x",
            ),
        );
        let cases = [
            case(
                "huge",
                "ok",
                "larger than",
                "head -c 9000000 /dev/zero | tr '\\0' 'a' >> .runner/state/assumptions.md; out retry x",
            ),
            case(
                "gone",
                "ok",
                "",
                "rm .runner/state/assumptions.md .runner/state/questions.md; out retry x",
            ),
            case(
                "a folder",
                "ok",
                "",
                "rm .runner/state/assumptions.md; mkdir .runner/state/assumptions.md; out retry x",
            ),
            case(
                "a pipe",
                "ok",
                "",
                "rm .runner/state/assumptions.md; mkfifo .runner/state/assumptions.md; out retry x",
            ),
            case(
                "a link",
                "ok",
                "",
                "rm .runner/state/assumptions.md; ln -s /etc/passwd .runner/state/assumptions.md; out retry x",
            ),
            case(
                "not UTF-8",
                "ok",
                "",
                "printf 'first\\nodd \\377\\n' > .runner/state/assumptions.md; out retry x",
            ),
        ];
        for case in &cases {
            play_one(&repo, case);
            let name = case.name;
            assert!(
                repo.path(file).symlink_metadata().unwrap().is_file(),
                "{name}"
            );
            let text = fs::read(repo.path(file)).unwrap();
            assert!(text.starts_with(b"first\n") && text.len() < 100, "{name}");
        }
        // Where there has been none, a trap is not taken for one.
        repo.git(&["rm", "-q", file, ".runner/state/questions.md"]);
        repo.git(&["commit", "-qm", "none"]);
        symlink("/etc/passwd", repo.agent_dir().join("link")).unwrap();
        let cases = [
            case(
                "a new pipe",
                "ok",
                "",
                "mkfifo .runner/state/questions.md; out retry x",
            ),
            case(
                "a new link",
                "ok",
                "",
                "cp -P \"$AGENT_DIR/link\" .runner/state/assumptions.md; out retry x",
            ),
            case(
                "a new folder",
                "ok",
                "",
                "mkdir .runner/state/assumptions.md; : > .runner/state/assumptions.md/x; out retry x",
            ),
            case(
                "a new one",
                "ok",
                "",
                "echo new > .runner/state/assumptions.md; out retry x",
            ),
        ];
        play(&repo, &cases);
        assert_eq!(repo.read(file), "new\n");
        assert_contained(&repo, mechanism);
    }
}
