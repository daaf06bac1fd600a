//! The scripted agent: shell scripts, one per iteration or one for all.
//!
//! The runner starts `sh agent.sh`, which brings the helpers of `lib.sh` into
//! scope and then plays `<iteration>.sh`, or `default.sh` where there is none.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::run::command;

/// The file that the runner is told to start.
const ENTRY: &str = include_str!("agent/agent.sh");
/// The helpers that a script may call.
const LIB: &str = include_str!("agent/lib.sh");
/// Edits the tree file; called by the helpers.
const TREE_EDIT: &str = include_str!("agent/tree_edit.py");

/// The folder of the agent's scripts.
#[derive(Debug)]
pub(crate) struct TestAgent {
    dir: PathBuf,
}

impl TestAgent {
    /// Writes the entry and the helpers to `dir`, which must lie outside the
    /// repository: the runner wants a clean work tree.
    pub(crate) fn install(dir: PathBuf) -> Self {
        fs::create_dir(&dir).expect("the agent's folder can be made");
        let agent = Self { dir };
        agent.put("agent.sh", ENTRY);
        agent.put("lib.sh", LIB);
        agent.put("tree_edit.py", TREE_EDIT);
        agent
    }

    /// What the configuration names as the agent's command.
    pub(crate) fn argv(&self) -> Vec<String> {
        let entry = self.dir.join("agent.sh").display().to_string();
        vec!["sh".to_owned(), entry]
    }

    /// Sets the script of one iteration, or of all that have none.
    pub(crate) fn set(&self, iter: Option<u64>, script: &str) {
        // Only now, because many tests need no agent and finding python costs time.
        if !self.dir.join("python").exists() {
            self.put("python", python());
        }
        let name = iter.map_or("default.sh".to_owned(), |iter| format!("{iter}.sh"));
        self.put(&name, script);
    }

    /// One line `ITER NODE` per session so far, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.dir.join(name), text).expect("an agent script can be written");
    }
}

/// The interpreter itself, because a version manager's wrapper may need the
/// environment that the tests take away.
fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let found = command("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output();
        match found {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            }
            // The script that needs it will fail by that name.
            _ => "python3".to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::process::Output;

    use serde_json::{Value, json};

    use super::*;

    struct Stage {
        _temp: tempfile::TempDir,
        project: PathBuf,
        agent: TestAgent,
    }

    impl Stage {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let project = temp.path().join("project");
            fs::create_dir_all(project.join(".runner/state")).unwrap();
            let tree = json!({"id": "root", "order": 0, "children": []});
            fs::write(project.join(".runner/state/tree.json"), tree.to_string()).unwrap();
            let agent = TestAgent::install(temp.path().join("it's an agent"));
            Self {
                _temp: temp,
                project,
                agent,
            }
        }

        fn play(&self, iter: u64) -> Output {
            let argv = self.agent.argv();
            command(&argv[0])
                .args(&argv[1..])
                .env("RUNNER_ITER", iter.to_string())
                .env("RUNNER_NODE_ID", "root")
                .env("RUNNER_PROJECT_DIR", &self.project)
                .env("RUNNER_OUTPUT_PATH", self.project.join("output.json"))
                .current_dir(&self.project)
                .output()
                .unwrap()
        }

        fn json(&self, path: &str) -> Value {
            serde_json::from_slice(&fs::read(self.project.join(path)).unwrap()).unwrap()
        }
    }

    #[test]
    fn plays_the_script_of_the_iteration_else_the_default() {
        let stage = Stage::new();
        stage.agent.set(None, "out retry 'plain words'");
        stage
            .agent
            .set(Some(2), "out done 'a \"b\" \\ c\n\td'; exit 7");

        assert!(stage.play(1).status.success());
        let expected = json!({"status": "retry", "summary": "plain words"});
        assert_eq!(stage.json("output.json"), expected);

        assert_eq!(stage.play(2).status.code(), Some(7));
        let expected = json!({"status": "done", "summary": "a \"b\" \\ c\n\td"});
        assert_eq!(stage.json("output.json"), expected);
        assert_eq!(stage.agent.calls(), ["1 root", "2 root"]);
    }

    #[test]
    fn edits_the_tree() {
        let stage = Stage::new();
        let script = "add_child root b 2 'The second'\nadd_child root a 1 \"It's first\"\n\
            tree_edit 'n(\"b\")[\"goal\"] = \"changed\"; t[\"x\"] = len(t[\"children\"])'";
        stage.agent.set(None, script);
        let output = stage.play(1);
        assert!(output.status.success(), "{output:?}");

        let tree = stage.json(".runner/state/tree.json");
        assert_eq!(tree["x"], 2);
        assert_eq!(tree["children"][0]["id"], "a");
        assert_eq!(tree["children"][0]["title"], "It's first");
        assert_eq!(tree["children"][0]["order"], 1);
        assert_eq!(tree["children"][1]["goal"], "changed");
        assert_eq!(tree["children"][1]["passes"], false);
    }

    #[test]
    fn says_when_there_is_no_script() {
        let stage = Stage::new();
        let output = stage.play(4);
        assert_eq!(output.status.code(), Some(97));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("no script for iteration 4"), "{stderr}");
    }
}
