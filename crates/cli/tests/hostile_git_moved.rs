//! Sessions that let a submodule be at another commit: what its remote has may be recorded,
//! anything else is undone and said.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use hostile_support::{
    BIN, add_submodule, all, assert_contained, check, finish, started, step, under,
};
use runner_testkit::TestRepo;

/// A run whose submodule `sub` is at the first of the commits of its remote, the second of which
/// the user has fetched; and a third that the user has, but on no branch of the remote.
struct MovingRun {
    repo: TestRepo,
    inner: TestRepo,
    first: String,
    second: String,
    third: String,
}

fn moving_run(mechanism: &str, may_move: bool) -> MovingRun {
    let inner = TestRepo::new(BIN);
    let commit = |text: &str| {
        inner.write("lib.txt", format!("{text}\n"));
        inner.commit_all(text);
        inner.head()
    };
    let first = commit("first");
    let mut others = (String::new(), String::new());
    let repo = started(under(mechanism), |repo| {
        add_submodule(repo, &inner, "sub");
        repo.git(&["commit", "-qm", "submodule"]);
        others.0 = commit("second");
        repo.git(&["-C", "sub", "fetch", "-q", "origin"]);
        inner.git(&["switch", "-q", "-c", "side"]);
        others.1 = commit("third");
        let from = inner.path("").display().to_string();
        let side = "side:refs/heads/mine";
        repo.git(&["-C", "sub", "fetch", "-q", &from, side]);
        // Temp folders of others are not there for a session.
        let readable = serde_json::json!([inner.path("")]);
        repo.config(|config| {
            config
                .set("workspace.submodules_may_move", may_move)
                .set("sandbox.readable", readable);
        });
    });
    let (second, third) = others;
    MovingRun {
        repo,
        inner,
        first,
        second,
        third,
    }
}

impl MovingRun {
    /// A session that puts a clone of the remote in the place of the submodule, at a commit.
    #[track_caller]
    fn play(&self, commit: &str, then: &str, class: &str, says: &str) {
        let iter = self.repo.run_state()["next_iter"].as_u64().unwrap();
        let from = self.inner.path("");
        let script = format!(
            "rm -rf sub; git -c protocol.file.allow=always clone -q '{}' sub\n\
             git -C sub checkout -q {commit}\n{then}\nout retry x",
            from.display()
        );
        self.repo.agent_at(iter, &script);
        let (run, json) = step(&self.repo);
        assert_eq!(json["class"], class, "{}", run.describe());
        assert!(run.stdout.contains(says), "{says}: {}", run.describe());
    }

    fn recorded(&self) -> String {
        self.repo.git(&["rev-parse", "HEAD:sub"])
    }
}

#[test]
fn what_is_not_of_its_remote_is_undone() {
    for mechanism in all() {
        let run = moving_run(mechanism, false);
        let words = "commit OID is on no branch of its remote, as far as your clone knows; [workspace] submodules_may_move would allow it";
        let undone =
            ") is a submodule: what changed in it cannot be committed here and has been undone";
        let cases = [
            (&run.third, "", words.replace("OID", &run.third) + undone),
            (
                &run.second,
                "git -C sub -c user.name=n -c user.email=e commit -q --allow-empty -m mine",
                "your clone of it does not have commit".to_owned(),
            ),
            (
                &run.second,
                "echo edited > sub/lib.txt",
                format!("its files are not those of commit {}", run.second),
            ),
            (
                &run.second,
                "echo more > sub/more.txt",
                format!("its files are not those of commit {}", run.second),
            ),
            (
                &run.first,
                "echo edited > sub/lib.txt",
                "sub is a submodule: what changed in it cannot be committed here".to_owned(),
            ),
        ];
        for (commit, then, says) in cases {
            run.play(commit, then, "agent_error", &says);
            check(&run.repo, &says);
            assert_eq!(run.recorded(), run.first, "{says}");
        }
        finish(&run.repo);
        assert_contained(&run.repo, mechanism);
    }
}

#[test]
fn a_commit_of_its_remote_is_recorded_and_judged() {
    for mechanism in all() {
        let run = moving_run(mechanism, false);
        run.play(
            &run.second,
            "git -C sub config core.fsmonitor \"$AGENT_DIR/evil.sh\"",
            "ok",
            "",
        );
        assert_eq!(run.recorded(), run.second);
        hostile_support::assert_never_ran(&run.repo, "moved");
        let changed = run.repo.git(&["diff", "--name-only", "HEAD~1"]);
        assert!(changed.contains("sub"), "{changed}");
        // The next session and its verdict have those files, and no repository is left.
        let iter = run.repo.run_state()["next_iter"].as_u64().unwrap();
        let script = "grep -q second sub/lib.txt && test ! -e sub/.git && echo good > good.txt && out done x";
        run.repo.agent_at(iter, script);
        let config = run.repo.read(".runner/state/config.toml");
        let config = config.replace("\"true\"", "\"grep -q second sub/lib.txt\"");
        run.repo.write(".runner/state/config.toml", config);
        run.repo
            .git(&["commit", "-qm", "guard", "--", ".runner/state/config.toml"]);
        let (told, json) = step(&run.repo);
        assert_eq!(json["guard"], "pass", "{}", told.describe());
        assert_eq!(run.recorded(), run.second);
        assert_contained(&run.repo, mechanism);
    }
}

#[test]
fn a_person_may_allow_any_commit_of_the_clone() {
    for mechanism in all() {
        let run = moving_run(mechanism, true);
        run.play(&run.third, "", "ok", "");
        assert_eq!(run.recorded(), run.third);
        let says = format!("its files are not those of commit {}", run.second);
        run.play(&run.second, "rm sub/lib.txt", "agent_error", &says);
        assert_eq!(run.recorded(), run.third);
        assert_contained(&run.repo, mechanism);
    }
}
