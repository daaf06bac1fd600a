//! What agents and guards can read, and whose caches they use, by each mechanism: the whole runner
//! with a scripted agent.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use agent_support::GOAL;
use agent_support::contained::{MECHANISMS, TRY, step, tried, tried_in, with_mechanism};
use runner_testkit::TestRepo;
use serde_json::json;

/// Files of a home folder that hold something secret.
const SECRETS: &[&str] = &[
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".gradle/gradle.properties",
    ".fly/config.yml",
    ".netrc",
    ".git-credentials",
    ".config/gh/hosts.yml",
    ".docker/config.json",
    ".cargo/credentials.toml",
    ".local/share/keyrings/login.keyring",
    ".password-store/mail.gpg",
    ".mozilla/firefox/x/logins.json",
    ".bash_history",
    ".codex/auth.json",
    ".claude/.credentials.json",
];

const SECRET: &str = "the-very-secret";

/// Files of settings that hold a secret, and something to be seen.
const SETTINGS: &[(&str, &str)] = &[
    (
        ".npmrc",
        "fund=seen\n//r.example/:_authToken=the-very-secret\n",
    ),
    (
        ".gitconfig",
        "[user]\n\tname = seen\n[github]\n\ttoken = the-very-secret\n\
         [url \"https://me:the-very-secret@h.example/\"]\n\tinsteadOf = https://h.example/\n",
    ),
    (
        ".config/git/config",
        "[core]\n\teditor = seen\n[http]\n\textraHeader = the-very-secret\n",
    ),
    (
        ".config/pip/pip.conf",
        "[global]\nindex-url = https://me:the-very-secret@seen.example/\n",
    ),
    (
        ".m2/settings.xml",
        "<settings><seen/><servers><password>the-very-secret</password></servers></settings>",
    ),
];

fn with_secrets(repo: &TestRepo) {
    let home = repo.root().join("home");
    for name in SECRETS {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, SECRET).unwrap();
    }
    for (name, text) in SETTINGS {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::create_dir_all(home.join(".config/tool")).unwrap();
    fs::write(home.join(".config/tool/settings"), "open").unwrap();
}

/// All files in which there is something secret.
fn hidden_files() -> impl Iterator<Item = &'static str> {
    let settings = SETTINGS.iter().map(|(name, _)| *name);
    SECRETS.iter().copied().chain(settings)
}

/// Tries to read each of them, in more than one way.
fn read_all(who: &str) -> String {
    let mut script = String::new();
    for (number, name) in hidden_files().enumerate() {
        let path = format!("$REAL_HOME/{name}");
        writeln!(
            script,
            "try {who}-{number} 'cat \"{path}\" \"$HOME/{name}\" \"/proc/self/root{path}\" \"/proc/1/root{path}\" | grep -q {SECRET}'"
        ).unwrap();
    }
    write!(
        script,
        "try {who}-search 'grep -rqs {SECRET} \"$REAL_HOME\" \"$HOME\" --exclude-dir=state'\n\
         try {who}-open 'grep -q open \"$HOME/.config/tool/settings\"'\n\
         try {who}-seen 'for it in .npmrc .gitconfig .config/git/config .config/pip/pip.conf .m2/settings.xml; do grep -q seen \"$HOME/$it\" || exit 1; done'\n\
         try {who}-git 'git config --global --list | grep -q user.name=seen && git status'\n\
         try {who}-names 'env | grep -q {SECRET}'\n"
    )
    .unwrap();
    script
}

#[test]
fn secrets_of_the_home_folder_are_hidden() {
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        with_secrets(&repo);
        let home = repo.root().join("home").display().to_string();
        let places = format!("REAL_HOME='{home}'; export REAL_HOME\n");
        repo.agent(&format!("{TRY}{places}{}out done tried", read_all("agent")));
        let guard = format!("{TRY}{places}{}", read_all("guard"));
        repo.start_run(GOAL, &["sh", "-c", &guard]);
        step(&repo, mechanism);
        for who in ["agent", "guard"] {
            for (number, name) in hidden_files().enumerate() {
                assert!(
                    !tried(&repo, &format!("{who}-{number}")),
                    "{mechanism} {who}: {name}"
                );
            }
            assert!(!tried(&repo, &format!("{who}-search")), "{mechanism} {who}");
            assert!(!tried(&repo, &format!("{who}-names")), "{mechanism} {who}");
            assert!(tried(&repo, &format!("{who}-open")), "{mechanism} {who}");
            // Without what is secret, and no tool is stopped by that.
            assert!(tried(&repo, &format!("{who}-seen")), "{mechanism} {who}");
            assert!(tried(&repo, &format!("{who}-git")), "{mechanism} {who}");
        }
        for name in SECRETS {
            let text = fs::read_to_string(repo.root().join("home").join(name)).unwrap();
            assert_eq!(text, SECRET, "{mechanism}: {name}");
        }
    }
}

#[test]
fn readable_opens_single_paths_for_whom_it_names() {
    let script = |who: &str| {
        format!(
            "try {who}-both 'grep -q {SECRET} \"$HOME/.ssh/id_ed25519\"'\n\
             try {who}-guard 'grep -q {SECRET} \"$HOME/.netrc\"'\n\
             try {who}-none 'grep -q {SECRET} \"$HOME/.aws/credentials\"'\n"
        )
    };
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        with_secrets(&repo);
        repo.config(|config| {
            config.set("sandbox.readable", json!(["~/.ssh"]));
            config.set("sandbox.guard.readable", json!(["~/.netrc"]));
        });
        repo.agent(&format!("{TRY}{}out done tried", script("agent")));
        let guard = format!("{TRY}{}", script("guard"));
        repo.start_run(GOAL, &["sh", "-c", &guard]);
        step(&repo, mechanism);
        for (name, expected) in [
            ("agent-both", true),
            ("agent-guard", false),
            ("agent-none", false),
            ("guard-both", true),
            ("guard-guard", true),
            ("guard-none", false),
        ] {
            assert_eq!(tried(&repo, name), expected, "{mechanism} {name}");
        }
        let opened = json!(["~/.ssh (read by all)", "~/.netrc (read by guard)"]);
        assert_eq!(repo.meta(1)["sandbox_opened"], opened);
        let report = repo.runner(&["report", "--json"]).json();
        assert_eq!(report["sandbox_opened"], opened, "{report:#}");
    }
}

/// Whichever folder a project keeps its private ones in: the keys in the usual place, and the
/// private folders of other projects in theirs, are out of sight.
#[test]
fn private_folders_are_hidden_wherever_they_lie() {
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        let root = repo.root().to_owned();
        let own = |name: &str| root.join(name).display().to_string();
        // Another project, with keys of a fleet; then one with a place of its own, too.
        repo.config(|config| {
            config.set("workspace.root", own("private-of-other"));
        });
        repo.agent("out done ok");
        repo.start_run(GOAL, &["true"]);
        repo.runner(&["fleet", "token"]).success();
        let other = root.join("other");
        fs::rename(root.join("repo"), &other).unwrap();
        repo.hermetic("cp")
            .current_dir(&root)
            .args(["-r", &own("other"), &own("repo")])
            .status()
            .unwrap();
        fs::remove_file(root.join("repo/.git/runner/project.json")).unwrap();

        let script = |who: &str| {
            format!(
                "REAL='{}'; export REAL\n\
                 try {who}-key 'grep -q . \"$REAL/home/.local/state/runner/proof.key\"'\n\
                 try {who}-token 'cat \"$REAL\"/private-of-other/*/keys-*/api-token | grep -q .'\n\
                 try {who}-other 'cat \"$REAL\"/private-of-other/*/project.json | grep -q .'\n\
                 try {who}-own 'cat \"$REAL\"/private-of-this/*/project.json | grep -q .'\n\
                 try {who}-list 'cat \"$REAL/home/.local/state/runner/roots.json\"'\n",
                root.display()
            )
        };
        repo.agent(&format!("{TRY}{}out done tried", script("agent")));
        let guard = format!("{TRY}{}", script("guard"));
        repo.config(|config| {
            config
                .set("workspace.root", own("private-of-this"))
                .set("guard.command", json!(["sh", "-c", guard]))
                .set(
                    "workspace.setup",
                    json!(["sh", "-c", format!("{TRY}{}", script("setup"))]),
                );
        });
        repo.write_config();
        repo.commit_all("another config");
        step(&repo, mechanism);
        let setup_log = fs::read_to_string(repo.iteration(1).join("setup.log")).unwrap();
        for what in ["key", "token", "other", "own", "list"] {
            for who in ["agent", "guard"] {
                assert!(
                    !tried(&repo, &format!("{who}-{what}")),
                    "{mechanism} {who} {what}"
                );
            }
            let line = format!("tried setup-{what}: no");
            assert!(setup_log.contains(&line), "{mechanism} {line}: {setup_log}");
        }
        // What was tried is there.
        let here = |pattern: &str| {
            let script = format!("cat '{}'/{pattern} | grep -q .", root.display());
            repo.hermetic("sh").args(["-c", &script]).status().unwrap()
        };
        for pattern in [
            "home/.local/state/runner/proof.key",
            "home/.local/state/runner/roots.json",
            "private-of-other/*/keys-*/api-token",
            "private-of-this/*/project.json",
        ] {
            assert!(here(pattern).success(), "{mechanism} {pattern}");
        }
    }
}

/// Every variable that leads to a cache, and the place that programs take without one.
const CACHES: &str = "\"$XDG_CACHE_HOME\" \"$CARGO_HOME\" \"$npm_config_cache\" \"$PIP_CACHE_DIR\" \
    \"$UV_CACHE_DIR\" \"$GOPATH\" \"$GOMODCACHE\" \"$GOCACHE\" \"$HOME/.cache\"";

/// What a session or an earlier guard leaves in a cache decides nothing, what the base's own trial
/// left is there, and the user's caches are as they were.
#[test]
fn caches_of_sessions_and_verdicts_are_apart() {
    // Red where anything but the base's is there; it leaves something itself.
    let guard = format!(
        "for cache in {CACHES}; do\n\
           test -n \"$cache\" && mkdir -p \"$cache\" || exit 9\n\
           if test -e planted.txt; then test \"$(cat \"$cache/base\")\" = base || exit 3; fi\n\
           if test -e \"$cache/by-session\" || test -e \"$cache/by-guard\"; then exit 4; fi\n\
         done\n\
         for cache in {CACHES}; do\n\
           if test -e planted.txt; then echo x > \"$cache/by-guard\" && echo changed > \"$cache/base\" || exit 6\n\
           else echo base > \"$cache/base\" || exit 7; fi\n\
         done"
    );
    let agent = format!(
        "for cache in {CACHES}; do\n\
           mkdir -p \"$cache\" && echo x > \"$cache/by-session\" || exit 1\n\
           if test -e \"$cache/by-guard\"; then exit 1; fi\n\
         done\n\
         echo x > planted.txt\nout done planted"
    );
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        let home = repo.root().join("home");
        fs::create_dir_all(home.join(".cache")).unwrap();
        repo.agent(&agent);
        repo.init_run(GOAL, &["sh", "-c", &guard]);
        repo.runner(&["start"]).success();
        let report = step(&repo, mechanism);
        assert_eq!(report["guard"], "pass", "{mechanism}: {}", guard_log(&repo));
        for _ in 0..2 {
            repo.runner(&["verify", "root"]).success();
        }
        for name in ["by-session", "by-guard", "base"] {
            for folder in [".cache", ".cargo", ".npm", "go"] {
                assert!(
                    !home.join(folder).join(name).exists(),
                    "{mechanism} {folder}/{name}"
                );
            }
        }
    }
}

fn guard_log(repo: &TestRepo) -> String {
    fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap_or_default()
}

/// The user's caches fill those of the runner where the project needs them; nothing is written to
/// them, and no token comes along.
#[test]
fn the_users_caches_fill_new_ones() {
    let agent = format!(
        "{TRY}try crate 'grep -q user \"$CARGO_HOME/registry/cache/x/a.crate\"'\n\
         try config 'grep -q linker \"$CARGO_HOME/config.toml\"'\n\
         try token 'grep -rq {SECRET} \"$CARGO_HOME\"'\n\
         echo changed > \"$CARGO_HOME/registry/cache/x/a.crate\"\n\
         out done tried"
    );
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        let cargo = repo.root().join("home/.cargo");
        for (name, text) in [
            ("registry/cache/x/a.crate", "user".to_owned()),
            (
                "config.toml",
                format!("linker = \"x\"\ntoken = \"{SECRET}\"\n"),
            ),
            ("credentials.toml", SECRET.to_owned()),
        ] {
            let path = cargo.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        repo.write("Cargo.toml", "");
        repo.commit_all("a manifest");
        repo.agent(&agent);
        repo.start_run(GOAL, &["true"]);
        step(&repo, mechanism);
        assert!(tried(&repo, "crate"), "{mechanism}");
        assert!(tried(&repo, "config"), "{mechanism}");
        assert!(!tried(&repo, "token"), "{mechanism}");
        let kept = fs::read_to_string(cargo.join("registry/cache/x/a.crate")).unwrap();
        assert_eq!(kept, "user", "{mechanism}");
    }
}

/// The home folder is private: what a session writes there reaches neither the user nor a guard.
#[test]
fn a_home_folder_of_its_own() {
    let agent = "try write 'echo x > \"$HOME/.planted\"'\n\
        try keep 'test -e \"$HOME/.planted\"'\n\
        try change 'echo x >> \"$HOME/.profile\"'\n\
        try read 'grep -q mine \"$HOME/.profile\"'\n\
        try shell 'echo x > ~/.planted-too'\n\
        out done tried";
    let guard = format!("{TRY}try guard-sees 'test -e \"$HOME/.planted\"'\n");
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        let home = repo.root().join("home");
        fs::write(home.join(".profile"), "mine\n").unwrap();
        repo.agent(&format!("{TRY}{agent}"));
        repo.start_run(GOAL, &["sh", "-c", &guard]);
        step(&repo, mechanism);
        for (name, expected) in [
            ("write", true),
            ("keep", true),
            ("change", false),
            ("read", true),
            ("shell", true),
            ("guard-sees", false),
        ] {
            let found = tried_in(&repo.iteration(1), name);
            assert_eq!(found, expected, "{mechanism} {name}");
        }
        for name in [".planted", ".planted-too"] {
            assert!(!home.join(name).exists(), "{mechanism} {name}");
        }
        let profile = fs::read_to_string(home.join(".profile")).unwrap();
        assert_eq!(profile, "mine\n");
        assert!(Path::new(&home).is_dir());
    }
}

/// Values of variables that the config passes through are in nothing that is kept.
#[test]
fn values_that_are_passed_through_are_masked() {
    const VALUE: &str = "value-of-the-registry-token";
    let mut repo = with_mechanism("bubblewrap");
    repo.env("REGISTRY_TOKEN", VALUE)
        .env("GUARD_TOKEN", "guard-value-0123");
    repo.config(|config| {
        config.set("workspace.env", json!(["REGISTRY_TOKEN"]));
        config.set(
            "workspace.setup",
            json!(["sh", "-c", "echo setup $REGISTRY_TOKEN"]),
        );
        config.set("guard.env", json!(["GUARD_TOKEN"]));
    });
    repo.agent(
        "printf 'said '; printf %s \"$REGISTRY_TOKEN\" | fold -w 5 | tr -d '\\n'; echo\n\
        out done \"did it with $REGISTRY_TOKEN\"",
    );
    repo.start_run(
        GOAL,
        &[
            "sh",
            "-c",
            "test -n \"$GUARD_TOKEN\" && echo $GUARD_TOKEN $REGISTRY_TOKEN; false",
        ],
    );
    repo.runner(&["step"]).success();
    let iteration = repo.iteration(1);
    for (name, words) in [
        ("executor.log", "said ***"),
        ("guard.log", "*** ***"),
        ("setup.log", "setup ***"),
        ("output.json", "did it with ***"),
    ] {
        let text = fs::read_to_string(iteration.join(name)).unwrap();
        assert!(text.contains(words), "{name}: {text}");
    }
    let kept = repo.root().join("repo");
    let found = repo
        .hermetic("grep")
        .args([
            "-rlE",
            "value-of-the-registry|guard-value",
            "--exclude=config.toml",
        ])
        .arg(&kept)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    let log = repo.git(&["log", "--all", "--format=%B"]);
    assert!(!log.contains(VALUE), "{log}");
}

/// What a session wrote down of them is not shown to the next one, nor in the report.
#[test]
fn values_in_notes_of_sessions_are_masked_where_they_are_shown() {
    const KEY: &str = "first line of a key\nsecond line of a key";
    let mut repo = with_mechanism("bubblewrap");
    repo.env("REGISTRY_KEY", KEY);
    repo.config(|config| {
        config.set("workspace.env", json!(["REGISTRY_KEY"]));
    });
    repo.agent(
        "printf 'is %s right?\\n' \"$(printf %s \"$REGISTRY_KEY\" | tail -n 1)\" >> .runner/state/questions.md\n\
         out retry 'more to do'",
    );
    repo.start_run(GOAL, &["true"]);
    for _ in 0..2 {
        repo.runner(&["step"]).success();
    }
    let prompt = fs::read_to_string(repo.iteration(2).join("prompt.md")).unwrap();
    let report = repo.runner(&["report"]).stdout;
    // What is committed shows it no more than they do.
    let committed = repo.read(".runner/state/questions.md");
    for text in [prompt, report, committed] {
        assert!(text.contains("is *** right?"), "{text}");
        assert!(!text.contains("second line"), "{text}");
    }
}
