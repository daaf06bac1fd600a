//! The real agent CLIs work without what belongs to a person, and without what an earlier session
//! wrote for them; with `[executor] inherit` parts of the former come in.
//!
//! `RUNNER_CODEX`, `RUNNER_CLAUDE` and `RUNNER_OPENCODE` name the binaries; `cargo xtask ci` sets them.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod hermetic_support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use hermetic_support::agent_support::contained;
use hermetic_support::{ALL, RealCli, RealStage};
use runner_testkit::model::ModelTurn;

const WRITE: &str = "echo hi > greeting.txt; env > environment.txt";

fn one_step(cli: RealCli) -> Vec<ModelTurn> {
    let mut turns = vec![ModelTurn::shell(WRITE)];
    turns.extend(cli.done());
    turns
}

/// A step of a person who has much set up, none of which takes part.
fn works_alone(cli: RealCli, mechanism: &str) {
    takes_a_step(
        &RealStage::new(cli, mechanism, &[], one_step(cli)),
        mechanism,
    );
}

fn takes_a_step(stage: &RealStage, mechanism: &str) {
    let run = stage.run(&["step", "--json"]).success();
    assert_eq!(run.json()["status"], "done", "{}", run.describe());
    assert_eq!(stage.repo.meta(1)["sandbox"], mechanism);
    assert_eq!(stage.repo.read("greeting.txt"), "hi\n");
    assert_eq!(stage.marks(), Vec::<String>::new());
    let asked = stage.asked();
    assert!(asked.contains("PROJECT-INSTRUCTIONS"), "{asked}");
    assert!(asked.contains("from-a-person"), "the model is the person's");
    for word in ["PERSON-INSTRUCTIONS", "PERSON-SKILL"] {
        assert!(!asked.contains(word), "{word} in {asked}");
    }
    let environment = stage.repo.read("environment.txt");
    assert!(!environment.contains("OF_A_PERSON"), "{environment}");
    // Nothing of the private home stays.
    let left = stage.repo.root().join("home/.local/state/runner");
    assert!(!has_folder(&left, ".agent"), "{}", left.display());
}

fn has_folder(folder: &std::path::Path, ending: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let is_folder = entry.file_type().unwrap().is_dir();
        is_folder
            && (entry.file_name().to_string_lossy().ends_with(ending)
                || has_folder(&entry.path(), ending))
    })
}

/// Claude refuses flags to root.
#[test]
fn an_ordinary_user_has_it_too() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return; // All tests are run by one.
    }
    for cli in ALL {
        let mut stage = RealStage::new(cli, "bubblewrap", &[], one_step(cli));
        stage.become_nobody();
        takes_a_step(&stage, "bubblewrap");
    }
}

#[test]
fn codex_works_alone() {
    for mechanism in contained::ALL {
        works_alone(RealCli::Codex, mechanism);
    }
}

#[test]
fn claude_works_alone() {
    for mechanism in contained::ALL {
        works_alone(RealCli::Claude, mechanism);
    }
}

#[test]
fn opencode_works_alone() {
    for mechanism in contained::ALL {
        works_alone(RealCli::Opencode, mechanism);
    }
}

#[test]
fn parts_of_a_person_are_let_in() {
    for cli in ALL {
        for (part, marks, words) in [
            ("mcp", &["person-mcp"][..], &[][..]),
            ("hooks", &["person-hook"], &[]),
            ("settings", &[], &[]),
            (
                "instructions",
                &[],
                &["PERSON-INSTRUCTIONS", "PERSON-SKILL"],
            ),
        ] {
            let stage = RealStage::new(cli, "bubblewrap", &[part], one_step(cli));
            let run = stage.run(&["step", "--json"]).success();
            assert_eq!(run.json()["status"], "done", "{}", run.describe());
            let about = format!("{cli:?} {part} {}", run.describe());
            let mut expected: Vec<&str> = marks.to_vec();
            if (cli, part) == (RealCli::Codex, "hooks") {
                expected.push("person-notify");
            }
            assert_eq!(stage.marks(), expected, "{about}");
            let asked = stage.asked();
            for word in ["PERSON-INSTRUCTIONS", "PERSON-SKILL"] {
                // The skills of other CLIs are left out in any case.
                let is_in =
                    words.contains(&word) && !(cli == RealCli::Opencode && word == "PERSON-SKILL");
                assert_eq!(asked.contains(word), is_in, "{word}: {about}");
            }
            assert!(asked.contains("PROJECT-INSTRUCTIONS"), "{about}");
            if cli != RealCli::Opencode {
                let environment = stage.repo.read("environment.txt");
                let has = environment.contains("OF_A_PERSON");
                assert_eq!(has, part == "settings", "{about}");
            }
        }
    }
}

#[test]
fn a_session_does_not_steer_the_next_one() {
    for cli in ALL {
        for mechanism in ["bubblewrap", "none"] {
            let mut turns = Vec::new();
            let stage = RealStage::new(cli, mechanism, &["mcp", "hooks"], Vec::new());
            let script = cli.planted_in_project(&stage.marks_folder(), "PLANTED-INSTRUCTIONS");
            // Also into the places that it has for itself.
            let own = r#"for folder in "$CODEX_HOME" "$CLAUDE_CONFIG_DIR" "$XDG_CONFIG_HOME/opencode"; do
                test -d "$folder" && for name in AGENTS.md CLAUDE.md; do echo PLANTED-INSTRUCTIONS > "$folder/$name"; done
                done; true"#;
            turns.push(ModelTurn::shell(&format!("{script}{own}")));
            turns.extend(cli.done());
            for turn in turns {
                stage.server.push(turn);
            }
            let run = stage.run(&["step", "--json"]).success();
            assert_eq!(run.json()["guard"], "fail", "{}", run.describe());
            let asked = stage.server.requests().len();
            for name in fs::read_dir(stage.marks_folder()).unwrap() {
                fs::remove_file(name.unwrap().path()).unwrap();
            }
            for turn in one_step(cli) {
                stage.server.push(turn);
            }
            let run = stage.run(&["step", "--json"]).success();
            let about = format!("{cli:?} {mechanism} {}", run.describe());
            assert_eq!(run.json()["status"], "done", "{about}");
            let requests = stage.server.requests();
            let asked: String = requests[asked..].iter().map(ToString::to_string).collect();
            assert!(!asked.contains("PLANTED-INSTRUCTIONS"), "{about}\n{asked}");
            assert!(!asked.contains("PROJECT-SKILL"), "{about}\n{asked}");
            assert!(asked.contains("PROJECT-INSTRUCTIONS"), "{about}\n{asked}");
            let marks = stage.marks();
            assert!(
                !marks.iter().any(|it| it.starts_with("project")),
                "{marks:?} {about}"
            );
            assert!(
                marks.contains(&"person-mcp".to_owned()),
                "{marks:?} {about}"
            );
            // What it wrote is a file like any other.
            assert_eq!(
                stage.repo.read(cli.instructions()),
                "PLANTED-INSTRUCTIONS\n"
            );
        }
    }
}

/// A login as codex keeps it.
fn login(account: &str, token: &str) -> String {
    let tokens = serde_json::json!({
        "id_token": token, "access_token": token, "refresh_token": token, "account_id": account,
    });
    serde_json::json!({"OPENAI_API_KEY": null, "tokens": tokens, "last_refresh": token}).to_string()
}

/// The tokens of the person after a session that ran this, and of what the next session sees.
fn renewed_by(mechanism: &str, script: &str) -> (String, String) {
    let turns = vec![
        ModelTurn::shell(&format!(
            "cat \"$CODEX_HOME/auth.json\" > seen.json; {script}; true"
        )),
        ModelTurn::message(hermetic_support::DONE),
        ModelTurn::shell("cp \"$CODEX_HOME/auth.json\" greeting.txt"),
        ModelTurn::message(hermetic_support::DONE),
    ];
    let stage = RealStage::new(RealCli::Codex, mechanism, &[], turns);
    let own = stage.home().join(".codex/auth.json");
    hermetic_support::put(&own, &login("mine", "old"));
    let run = stage.run(&["step", "--json"]).success();
    assert!(
        stage.repo.exists("seen.json"),
        "{script}\n{}",
        run.describe()
    );
    assert!(stage.repo.read("seen.json").contains("mine"));
    let run = stage.run(&["step", "--json"]).success();
    assert_eq!(run.json()["status"], "done", "{}", run.describe());
    let token = |text: &str| {
        let login: serde_json::Value = serde_json::from_str(text).unwrap();
        format!(
            "{} {}",
            login["tokens"]["account_id"], login["tokens"]["access_token"]
        )
        .replace('"', "")
    };
    let kept = fs::read_to_string(&own).unwrap();
    (token(&kept), token(&stage.repo.read("greeting.txt")))
}

#[test]
fn a_renewed_login_goes_back_to_its_owner() {
    let (mine, renewed) = ("mine old".to_owned(), "mine new".to_owned());
    for (script, expected) in [
        // As CLIs do it: into the file, or with another one in its place.
        (
            "sed --follow-symlinks -i s/old/new/g \"$CODEX_HOME/auth.json\"",
            &renewed,
        ),
        ("sed -i s/old/new/g \"$CODEX_HOME/auth.json\"", &renewed),
        // Somebody else's, or nothing at all (codex itself refuses `rm -f`).
        (
            "sed --follow-symlinks -i s/mine/yours/g \"$CODEX_HOME/auth.json\"",
            &mine,
        ),
        ("echo '{}' > \"$CODEX_HOME/auth.json\"", &mine),
        ("echo no > \"$CODEX_HOME/auth.json\"", &mine),
        (
            "rm \"$(readlink -f \"$CODEX_HOME/auth.json\")\" \"$CODEX_HOME/auth.json\"",
            &mine,
        ),
        // A trap for whoever writes there.
        (
            "store=$(dirname \"$(readlink -f \"$CODEX_HOME/auth.json\")\"); mv \"$store\" \"$store.old\"; ln -s / \"$store\"",
            &mine,
        ),
        (
            "file=$(readlink -f \"$CODEX_HOME/auth.json\"); rm \"$file\"; mkdir -p \"$file/x\"; chmod 0 \"$file\"",
            &mine,
        ),
    ] {
        let found = renewed_by("bubblewrap", script);
        assert_eq!(found, (expected.clone(), expected.clone()), "{script}");
    }
    for mechanism in ["landlock", "none"] {
        let script = "sed --follow-symlinks -i s/old/new/g \"$CODEX_HOME/auth.json\"";
        assert_eq!(
            renewed_by(mechanism, script),
            (renewed.clone(), renewed.clone())
        );
    }
}

#[test]
fn the_folders_of_a_person_are_not_written() {
    for (cli, folder) in [
        (RealCli::Codex, ".codex"),
        (RealCli::Claude, ".claude"),
        (RealCli::Opencode, ".config/opencode"),
    ] {
        for mechanism in contained::MECHANISMS {
            let stage = RealStage::new(cli, mechanism, &[], Vec::new());
            let path = stage.home().join(folder).join("planted");
            let script = format!("touch '{}'; {WRITE}", path.display());
            stage.server.push(ModelTurn::shell(&script));
            for turn in cli.done() {
                stage.server.push(turn);
            }
            let run = stage.run(&["step", "--json"]).success();
            assert_eq!(run.json()["status"], "done", "{}", run.describe());
            assert!(!path.exists(), "{cli:?} under {mechanism}");
        }
    }
}

#[test]
fn a_folder_that_the_config_names_is_used_as_it_is() {
    let turns = one_step(RealCli::Codex);
    let mut stage = RealStage::new(RealCli::Codex, "bubblewrap", &[], turns);
    let own = stage.repo.root().join("own-codex");
    fs::rename(stage.home().join(".codex"), &own).unwrap();
    stage.repo.config(|config| {
        config.set("executor.env.CODEX_HOME", own.to_str().unwrap());
    });
    stage.repo.write_config();
    stage.repo.commit_all("a folder of its own");
    let run = stage.run(&["step", "--json"]).success();
    assert_eq!(run.json()["status"], "done", "{}", run.describe());
    assert!(
        stage.marks().contains(&"person-mcp".to_owned()),
        "{}",
        run.describe()
    );
    // What a session could have written is left out all the same.
    let asked = stage.asked();
    assert!(asked.contains("PROJECT-INSTRUCTIONS"), "{asked}");
    assert!(!asked.contains("PROJECT-SKILL"), "{asked}");
}

#[test]
fn doctor_tries_it() {
    for (cli, words) in [
        (
            RealCli::Codex,
            "a planted hook and a planted MCP server ran when let in, and not otherwise",
        ),
        (
            RealCli::Claude,
            "a planted hook and a planted MCP server ran when let in, and not otherwise",
        ),
        (
            RealCli::Opencode,
            "a planted MCP server ran when let in, and not otherwise",
        ),
    ] {
        let stage = RealStage::new(cli, "bubblewrap", &["settings"], Vec::new());
        let run = stage.run(&["doctor", "--json"]);
        let value = run.json();
        let checks = value["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == "agent_home");
        let message = check.unwrap()["message"].as_str().unwrap();
        assert!(message.contains(words), "{cli:?}: {message}");
        assert!(message.contains("and your settings"), "{message}");
        // Nothing of the person's was touched, and no model was asked.
        assert_eq!(stage.marks(), Vec::<String>::new());
        assert_eq!(stage.server.requests().len(), 0);
    }
}

/// With a network of its own: its model is all that it can reach.
fn reaches_its_model(cli: RealCli) {
    let mut stage = RealStage::new(cli, "bubblewrap", &[], one_step(cli));
    stage.repo.config(|config| {
        config.set("sandbox.network.session", "agent");
    });
    stage.repo.write_config();
    stage.repo.commit_all("a network of its own");
    takes_a_step(&stage, "bubblewrap");
    // Opencode asks for packages of its own, and does without.
    let refused = stage.repo.meta(1)["network_refused"].to_string();
    assert!(!refused.contains("127.0.0.1"), "{cli:?} {refused}");
}

#[test]
fn codex_reaches_its_model_through_the_proxy() {
    reaches_its_model(RealCli::Codex);
}

#[test]
fn claude_reaches_its_model_through_the_proxy() {
    reaches_its_model(RealCli::Claude);
}

#[test]
fn opencode_reaches_its_model_through_the_proxy() {
    reaches_its_model(RealCli::Opencode);
}
