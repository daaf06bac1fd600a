//! The fleet's API against its own OpenAPI: schemathesis asks a running server everything
//! that the document allows, and much that it does not.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cmd::{ToolCommand, target_dir};
use crate::failure::{FailureContext as _, TaskFailure, TaskResult};
use crate::pinned;

/// The one version whose checks are known.
const VERSION: &str = "4.32.5";

/// The same requests each time.
const SEED: &str = "1";
const EXAMPLES: &str = "25";

/// Whether the wanted version is there.
pub(crate) fn is_there() -> bool {
    let info = format!("schemathesis-{VERSION}.dist-info");
    folder().join(info).is_dir()
}

/// Installs it into the build's folder, where no other Python sees it.
pub(crate) fn install() -> TaskResult<()> {
    pinned::install_with_pip(&folder(), &format!("schemathesis=={VERSION}"))
}

/// Starts `runner fleet serve` in a repository with some tasks, and checks it.
pub(crate) fn check_api() -> TaskResult<()> {
    if !is_there() {
        return Err(TaskFailure::new("schemathesis is not there").hint("run `cargo xtask setup`"));
    }
    ToolCommand::cargo("build --locked --quiet --package runner-cli").run()?;
    let project = ApiProject::new()?;
    let server = project.serve()?;
    project.seed()?;
    let (url, token) = (&server.url, &server.token);
    // It leaves caches where it runs.
    let place = pinned::folder("schemathesis-work");
    fs::create_dir_all(&place).context(place.display().to_string())?;
    ToolCommand::new("python3")
        .clear_env()
        .env("PYTHONPATH", folder())
        .env("HOME", &place)
        .env("LC_ALL", "C.UTF-8")
        .dir(&place)
        .words("-m schemathesis.cli run --no-color --generation-database none --checks all")
        // Some rules are beyond a schema, such as that a dependency exists: refusing that
        // with 422 is right.
        .words("--exclude-checks positive_data_acceptance")
        // A stream does not end; the tests of the server listen to it.
        .words("--exclude-path /events")
        .args(["--seed", SEED, "--max-examples", EXAMPLES])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .arg(format!("{url}/openapi.json"))
        .hint("the report names each request; `runner fleet serve` starts the server")
        .run()
}

fn folder() -> PathBuf {
    pinned::folder("schemathesis")
}

/// A repository with a fleet's ledger, gone when this is dropped.
struct ApiProject(TempDir);

impl ApiProject {
    fn new() -> TaskResult<ApiProject> {
        let project = ApiProject(tempfile::tempdir().context("no temporary folder".to_owned())?);
        let folder = project.folder();
        fs::create_dir(&folder).context(folder.display().to_string())?;
        project.git("init --quiet --initial-branch main")?;
        project.git("commit --quiet --allow-empty --message begin")?;
        Ok(project)
    }

    /// The repository, in the home of its user: private folders lie outside of it.
    fn folder(&self) -> PathBuf {
        self.0.path().join("project")
    }

    /// Makes tasks in every state that a command can lead to.
    fn seed(&self) -> TaskResult<()> {
        for words in [
            "task add judged --scope a",
            "task add cooling --scope b",
            "task add running --scope c",
            "task add canceled --scope d",
            "task add first --scope e --role docser",
            "task add second --scope f --depends first",
            "task cancel canceled --reason no",
        ] {
            self.runner(words).stdout()?;
        }
        let packet = json!({
            "schema_version": "1.0.0", "run_id": "judged-1", "task_id": "judged",
            "status": "done", "worklog_path": "worklog.md", "notes_for_orchestrator": [],
            "changes": [{"resource": "a/x", "action": "created"}],
            "acceptance_check": [{"criterion": "guard", "status": "pass", "evidence": "0"}],
        });
        let file = self.folder().join("packet.json");
        fs::write(&file, packet.to_string()).context(file.display().to_string())?;
        for (task, ending) in [
            ("judged", "--success --result 1234567 --packet packet.json"),
            ("cooling", "--failed test --note red"),
        ] {
            let token = self.start(task)?;
            let words = format!("task finish {task} --owner w1 --token {token} {ending}");
            self.runner(&words).stdout()?;
        }
        self.start("running").map(drop)
    }

    fn start(&self, task: &str) -> TaskResult<u64> {
        let start = self.runner(&format!("task start {task} --owner w1 --json"));
        let said: Value = serde_json::from_slice(&start.stdout()?)
            .context(format!("`task start {task}` printed no JSON"))?;
        let token = said.pointer("/claimed/task/token").and_then(Value::as_u64);
        token.ok_or_else(|| TaskFailure::new(format!("`task start {task}` printed no token")))
    }

    fn command(&self, program: impl AsRef<OsStr>) -> ToolCommand {
        let name = "runner";
        ToolCommand::new(program)
            .clear_env()
            .env("HOME", self.0.path())
            .env("GIT_AUTHOR_NAME", name)
            .env("GIT_AUTHOR_EMAIL", name)
            .env("GIT_COMMITTER_NAME", name)
            .env("GIT_COMMITTER_EMAIL", name)
            .dir(self.folder())
    }

    fn git(&self, words: &str) -> TaskResult<()> {
        self.command("git").words(words).stdout().map(drop)
    }

    fn runner(&self, words: &str) -> ToolCommand {
        self.command(target_dir().join("debug/runner")).words(words)
    }

    fn serve(&self) -> TaskResult<ApiServer> {
        let serve = self.runner("fleet serve --port 0 --json --quiet");
        let mut child = serve.spawn(Stdio::piped())?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            let read = BufReader::new(stdout).read_line(&mut line);
            read.context("cannot read from `runner fleet serve`".to_owned())?;
        }
        let mut server = ApiServer {
            child,
            url: String::new(),
            token: String::new(),
        };
        let said: Value =
            serde_json::from_str(&line).context(format!("`runner fleet serve` said {line:?}"))?;
        let word = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        server.url = word("api");
        let file = word("token_file");
        let token = fs::read_to_string(&file).context(file)?;
        token.trim().clone_into(&mut server.token);
        Ok(server)
    }
}

/// Ends when this is dropped.
struct ApiServer {
    child: Child,
    url: String,
    token: String,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
