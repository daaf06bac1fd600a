//! Real agent CLIs with everything that a person, and an earlier session, can have set up for them:
//! each thing leaves a mark, a file that it touches or a word in what the model is asked.
#![allow(dead_code)] // Each test file uses what it needs.

#[path = "../agent_support/mod.rs"]
pub(crate) mod agent_support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use agent_support::contained::with_mechanism;
use agent_support::{GOAL, put_first_on_path};
use runner_testkit::model::{self, ModelServer, ModelTurn};
use runner_testkit::{TestRepo, TestRun};
use serde_json::{Value, json};

pub(crate) const DONE: &str = r#"{"status":"done","summary":"wrote greeting.txt"}"#;

/// A real CLI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RealCli {
    Codex,
    Claude,
    Opencode,
}

pub(crate) const ALL: [RealCli; 3] = [RealCli::Codex, RealCli::Claude, RealCli::Opencode];

impl RealCli {
    pub(crate) fn name(self) -> &'static str {
        match self {
            RealCli::Codex => "codex",
            RealCli::Claude => "claude",
            RealCli::Opencode => "opencode",
        }
    }

    fn binary(self) -> PathBuf {
        let variable = format!("RUNNER_{}", self.name().to_uppercase());
        let Some(path) = std::env::var_os(&variable) else {
            panic!(
                "{variable} names no binary: `cargo xtask setup` installs it and prints the variable"
            );
        };
        fs::canonicalize(path).unwrap()
    }

    /// The file with the project's instructions.
    pub(crate) fn instructions(self) -> &'static str {
        match self {
            RealCli::Claude => "CLAUDE.md",
            _ => "AGENTS.md",
        }
    }

    /// The last words of a session.
    pub(crate) fn done(self) -> Vec<ModelTurn> {
        match self {
            RealCli::Opencode => vec![
                ModelTurn::shell(&format!("printf '%s' '{DONE}' > \"$RUNNER_OUTPUT_PATH\"")),
                ModelTurn::message("done"),
            ],
            _ => vec![ModelTurn::message(DONE)],
        }
    }

    /// What a person has in the home folder: the model, which sessions need, and what they may not
    /// have unless it is let in.
    fn set_up_for_a_person(self, home: &Path, marks: &Path) {
        let touch = |name: &str| format!("touch {}", marks.join(name).display());
        let mark = |name: &str| marks.join(name).display().to_string();
        let write = |path: &str, text: String| put(&home.join(path), &text);
        let url = model::ISOLATED_BASE_URL;
        match self {
            RealCli::Codex => {
                let key = model::KEY_VARIABLE;
                write(
                    ".codex/config.toml",
                    format!(
                        "model = \"from-a-person\"\nmodel_provider = \"mine\"\n\
                         notify = [\"touch\", {:?}]\n\
                         developer_instructions = \"PERSON-INSTRUCTIONS\"\n\
                         [shell_environment_policy]\nset = {{ OF_A_PERSON = \"1\" }}\n\
                         [model_providers.mine]\nname = \"mine\"\nbase_url = {url:?}\nenv_key = {key:?}\n\
                         wire_api = \"responses\"\nrequest_max_retries = 0\nstream_max_retries = 0\n\
                         supports_websockets = false\n\
                         [mcp_servers.mine]\ncommand = \"touch\"\nargs = [{:?}]\n",
                        mark("person-notify"),
                        mark("person-mcp"),
                    ),
                );
                write(".codex/hooks.json", hooks(&touch("person-hook")));
                write(".codex/AGENTS.md", "PERSON-INSTRUCTIONS".to_owned());
                write(".codex/skills/mine/SKILL.md", skill("PERSON-SKILL"));
                write(".agents/skills/mine/SKILL.md", skill("PERSON-SKILL"));
            }
            RealCli::Claude => {
                let settings = json!({
                    "model": "from-a-person",
                    "env": {"ANTHROPIC_BASE_URL": model::ISOLATED_ROOT_URL, "OF_A_PERSON": "1"},
                    "hooks": serde_json::from_str::<Value>(&hooks(&touch("person-hook"))).unwrap()["hooks"],
                });
                write(".claude/settings.json", settings.to_string());
                let servers = json!({"mcpServers": {"mine": {"command": "touch", "args": [mark("person-mcp")]}}});
                write(".claude.json", servers.to_string());
                write(".claude/CLAUDE.md", "PERSON-INSTRUCTIONS".to_owned());
                write(".claude/skills/mine/SKILL.md", skill("PERSON-SKILL"));
            }
            RealCli::Opencode => {
                let config = json!({
                    "model": "mine/from-a-person",
                    "provider": {"mine": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": {"baseURL": url, "apiKey": "made-up"},
                        "models": {"from-a-person": {"name": "M"}},
                    }},
                    "mcp": {"mine": {"type": "local", "command": ["touch", mark("person-mcp")]}},
                    "username": "OF-A-PERSON",
                    "permission": {"webfetch": "deny"},
                });
                write(".config/opencode/opencode.json", config.to_string());
                write(
                    ".config/opencode/AGENTS.md",
                    "PERSON-INSTRUCTIONS".to_owned(),
                );
                write(
                    ".config/opencode/plugin/mine.js",
                    plugin(&mark("person-hook")),
                );
                write(".opencode/plugin/mine.js", plugin(&mark("person-dot-hook")));
                write(".claude/skills/mine/SKILL.md", skill("PERSON-SKILL"));
                write(".claude/CLAUDE.md", "PERSON-INSTRUCTIONS".to_owned());
            }
        }
    }

    /// A shell script that sets up as much for the project.
    pub(crate) fn planted_in_project(self, marks: &Path, word: &str) -> String {
        let mark = |name: &str| marks.join(name).display().to_string();
        let hooks = hooks(&format!("touch {}", mark("project-hook")));
        let mut script = String::new();
        let mut write = |path: &str, text: &str| {
            let folder = Path::new(path).parent().unwrap().display().to_string();
            let lines = [
                "mkdir -p ./",
                &folder,
                "\ncat >",
                path,
                " <<'END'\n",
                text,
                "\nEND\n",
            ];
            script.push_str(&lines.concat());
        };
        write("AGENTS.md", word);
        write("CLAUDE.md", word);
        write("sub/AGENTS.md", word);
        match self {
            RealCli::Codex => {
                let server = format!(
                    "[mcp_servers.planted]\ncommand = \"touch\"\nargs = [{:?}]",
                    mark("project-mcp")
                );
                write(".codex/config.toml", &server);
                write(".codex/hooks.json", &hooks);
                write(".agents/skills/planted/SKILL.md", &skill("PROJECT-SKILL"));
            }
            RealCli::Claude => {
                write(".claude/settings.json", &hooks);
                write(".claude/settings.local.json", &hooks);
                let server = json!({"mcpServers": {"planted": {"command": "touch", "args": [mark("project-mcp")]}}});
                write(".mcp.json", &server.to_string());
                write("CLAUDE.local.md", word);
                write(".claude/rules/planted.md", word);
                write(".claude/skills/planted/SKILL.md", &skill("PROJECT-SKILL"));
            }
            RealCli::Opencode => {
                let server = json!({"mcp": {"planted": {"type": "local", "command": ["touch", mark("project-mcp")]}}});
                write("opencode.json", &server.to_string());
                write(
                    ".opencode/plugin/planted.js",
                    &plugin(&mark("project-hook")),
                );
                write(".claude/skills/planted/SKILL.md", &skill("PROJECT-SKILL"));
            }
        }
        script
    }
}

fn hooks(command: &str) -> String {
    let hook = json!([{"hooks": [{"type": "command", "command": command}]}]);
    json!({"hooks": {"SessionStart": hook}}).to_string()
}

fn plugin(mark: &str) -> String {
    format!(
        "import {{ writeFileSync }} from \"fs\"\nexport const Mine = async () => {{ writeFileSync({mark:?}, \"\"); return {{}} }}\n"
    )
}

fn skill(word: &str) -> String {
    format!(
        "---\nname: {}\ndescription: {word}\n---\nx\n",
        word.to_lowercase()
    )
}

pub(crate) fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A started run with a real CLI, of a person who has much set up for it.
pub(crate) struct RealStage {
    pub(crate) cli: RealCli,
    pub(crate) repo: TestRepo,
    pub(crate) server: ModelServer,
    wrapper: PathBuf,
}

impl RealStage {
    /// The guard wants `greeting.txt`. `inherit`: what of the person's is let in.
    pub(crate) fn new(
        cli: RealCli,
        mechanism: &str,
        inherit: &[&str],
        turns: Vec<ModelTurn>,
    ) -> Self {
        let server = ModelServer::start(turns);
        let mut repo = with_mechanism(mechanism);
        let marks = repo.root().join("marks");
        fs::create_dir(&marks).unwrap();
        cli.set_up_for_a_person(&home(&repo), &marks);
        repo.config(|config| {
            config
                .set("executor.backend", cli.name())
                .set("executor.command", json!([]))
                .set("executor.inherit", json!(inherit))
                .set("sandbox.writable", json!([marks]));
            match cli {
                RealCli::Codex => {
                    config.set(&format!("executor.env.{}", model::KEY_VARIABLE), "made-up");
                }
                RealCli::Claude => {
                    config.set("executor.env.ANTHROPIC_API_KEY", "made-up");
                }
                // What it would fetch is not there.
                RealCli::Opencode => {
                    config.set("executor.env.OPENCODE_DISABLE_MODELS_FETCH", "1");
                    config.set("executor.env.npm_config_fetch_retries", "0");
                }
            }
        });
        let bin = repo.root().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(cli.binary(), bin.join(cli.name())).unwrap();
        put_first_on_path(&mut repo, &bin);
        repo.write(cli.instructions(), "PROJECT-INSTRUCTIONS\n");
        repo.commit_all("instructions");
        repo.start_run(GOAL, &["test", "-f", "greeting.txt"]);
        let wrapper = repo.root().join("in-a-network-of-its-own");
        server.write_wrapper(&wrapper, agent_support::BIN.as_ref());
        RealStage {
            cli,
            repo,
            server,
            wrapper,
        }
    }

    pub(crate) fn run(&self, args: &[&str]) -> TestRun {
        let mut command = self.repo.hermetic(&self.wrapper);
        command.args(args);
        self.repo.spawn(command).wait()
    }

    /// Lets the runner go on as an ordinary user, to whom everything here belongs from now on.
    pub(crate) fn become_nobody(&mut self) {
        let root = self.repo.root();
        let mut chown = self.repo.hermetic("chown");
        chown.args(["-R", "65534:65534"]).arg(root);
        self.repo.spawn(chown).wait().success();
        let script = root.join("as-nobody");
        let text = format!(
            "#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups '{}' \"$@\"\n",
            agent_support::BIN
        );
        runner_testkit::write_program(&script, &text);
        self.wrapper = root.join("in-a-network-as-nobody");
        self.server.write_wrapper(&self.wrapper, &script);
    }

    pub(crate) fn home(&self) -> PathBuf {
        home(&self.repo)
    }

    pub(crate) fn marks_folder(&self) -> PathBuf {
        self.repo.root().join("marks")
    }

    /// What was run of all that was set up.
    pub(crate) fn marks(&self) -> Vec<String> {
        let entries = fs::read_dir(self.marks_folder()).unwrap();
        let mut names: Vec<String> = entries
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// All that the model was asked.
    pub(crate) fn asked(&self) -> String {
        let requests = self.server.requests();
        requests.iter().map(Value::to_string).collect()
    }
}

/// The home folder of the person.
fn home(repo: &TestRepo) -> PathBuf {
    let command = repo.hermetic("env");
    let mut variables = command.get_envs();
    let home = variables.find(|(name, _)| *name == "HOME");
    home.and_then(|(_, value)| value).unwrap().into()
}
