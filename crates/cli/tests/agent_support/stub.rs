//! Stubs on the PATH that play recorded sessions of agent CLIs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use runner_testkit::{TestConfig, TestRepo, write_program};
use serde_json::{Value, json};

use super::{BIN, GOAL, put_first_on_path};

/// What a session prints and does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// Its events.
    pub(crate) stream: String,
    /// What it says on stderr.
    pub(crate) stderr: String,
    /// A script that runs first: what the agent's tools do.
    pub(crate) before: String,
    /// A script that runs after the events; the last of it is the exit code.
    pub(crate) after: String,
}

impl Scene {
    /// These events, and a good end.
    pub(crate) fn of(events: &[Value]) -> Self {
        let lines: Vec<String> = events.iter().map(|event| format!("{event}\n")).collect();
        Self {
            stream: lines.concat(),
            ..Self::default()
        }
    }

    /// A recorded session.
    pub(crate) fn recorded(name: &str) -> Self {
        let expected = expected(name);
        let stderr = expected["stderr"].as_array().unwrap().iter();
        let stderr: Vec<String> = stderr
            .map(|line| format!("{}\n", line.as_str().unwrap()))
            .collect();
        Self {
            stream: fs::read_to_string(recordings().join(format!("{name}.jsonl"))).unwrap(),
            stderr: stderr.concat(),
            before: String::new(),
            after: match expected["exit"].as_i64() {
                Some(code) => format!("exit {code}"),
                None => "kill -KILL $$".to_owned(),
            },
        }
    }

    #[must_use]
    pub(crate) fn before(mut self, script: &str) -> Self {
        script.clone_into(&mut self.before);
        self
    }

    #[must_use]
    pub(crate) fn after(mut self, script: &str) -> Self {
        script.clone_into(&mut self.after);
        self
    }
}

/// What the reader made of a recorded session.
pub(crate) fn expected(name: &str) -> Value {
    let path = recordings().join(format!("{name}.expected.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The names of the recorded sessions of a CLI, in order.
pub(crate) fn recorded_names(cli: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(recordings())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned))
        .filter(|name| name.starts_with(&format!("{cli}-")))
        .collect();
    names.sort();
    assert!(names.len() > 5, "no recordings of {cli}");
    names
}

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../agents/tests/streams")
}

/// A repository whose agent is the stub of a CLI.
pub(crate) struct Stub {
    pub(crate) repo: TestRepo,
    bin: PathBuf,
}

impl Stub {
    /// A started run with a guard that wants `greeting.txt`.
    pub(crate) fn started(cli: &str, change: impl FnOnce(&mut TestConfig)) -> Self {
        let mut stub = Self::installed(cli, change);
        stub.repo.start_run(GOAL, &["test", "-f", "greeting.txt"]);
        stub
    }

    /// The stub on the PATH and in the configuration; no run yet.
    pub(crate) fn installed(cli: &str, change: impl FnOnce(&mut TestConfig)) -> Self {
        let mut repo = TestRepo::new(BIN);
        let bin = repo.root().join("bin");
        fs::create_dir_all(bin.join("scenes")).unwrap();
        let flags = match cli {
            "claude" => include_str!("claude.sh"),
            "opencode" => include_str!("opencode.sh"),
            _ => "",
        };
        fs::write(bin.join("flags.sh"), flags).unwrap();
        let program = bin.join(cli);
        write_program(&program, include_str!("stub.sh"));
        put_first_on_path(&mut repo, &bin);
        repo.config(|config| {
            config
                .set("sandbox.mode", "auto")
                .set("sandbox.writable", json!(["~/../out"]))
                .set("executor.backend", cli)
                .set("executor.command", json!([]));
            change(config);
        });
        Self { repo, bin }
    }

    /// What every session that has no scene of its own plays.
    pub(crate) fn play(&self, scene: &Scene) {
        self.put("default", scene);
    }

    /// What the session of one iteration plays.
    pub(crate) fn play_at(&self, iter: u64, scene: &Scene) {
        self.put(&iter.to_string(), scene);
    }

    fn put(&self, name: &str, scene: &Scene) {
        let folder = self.bin.join("scenes").join(name);
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in [
            ("stream", &scene.stream),
            ("stderr", &scene.stderr),
            ("before.sh", &scene.before),
            ("after.sh", &scene.after),
        ] {
            fs::write(folder.join(file), text).unwrap();
        }
    }

    /// The arguments that the session of an iteration got.
    pub(crate) fn args(&self, iter: u64) -> Vec<String> {
        split(&self.seen(iter, "args"))
    }

    /// Its environment.
    pub(crate) fn env(&self, iter: u64) -> BTreeMap<String, String> {
        let pairs = split(&self.seen(iter, "env"));
        let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// What it read on its stdin.
    pub(crate) fn prompt(&self, iter: u64) -> String {
        String::from_utf8(self.seen(iter, "prompt")).unwrap()
    }

    fn seen(&self, iter: u64, what: &str) -> Vec<u8> {
        let path = self.repo.root().join(format!("out/seen-{iter}/{what}"));
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

fn split(bytes: &[u8]) -> Vec<String> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect()
}
