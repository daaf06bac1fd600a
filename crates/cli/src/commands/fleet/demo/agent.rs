//! The scripted agent of the fleet's demo: it plans, works and reviews, and decides by the
//! name of its run alone what goes wrong.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::check::git;
use super::script::{CONFLICT, KILLED, SIGN, parts, plan, tool};

/// How long the session lasts that is to be killed; long enough for somebody to do it.
const LONG: Duration = Duration::from_secs(60);
/// How often a session looks whether the user has committed.
const LOOK: Duration = Duration::from_millis(100);
/// What the provider says; the quota is there again soon.
const QUOTA: &str = "You've hit your usage limit. Try again in 5 seconds.";

/// One session.
pub(crate) fn main() -> ExitCode {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (Some(project), Some(output)) = (
        std::env::var_os("RUNNER_PROJECT_DIR"),
        std::env::var_os("RUNNER_OUTPUT_PATH"),
    ) else {
        return ExitCode::FAILURE;
    };
    let run = variable("RUNNER_RUN_ID");
    let answer = match variable("RUNNER_QUESTION").as_str() {
        "plan" => Some(plan(!prompt().contains("What was wrong with your plan"))),
        "review" => Some(verdict(&run)),
        _ => DemoSession {
            project: PathBuf::from(project),
        }
        .work(&run),
    };
    let Some(answer) = answer else {
        let event = json!({"event": "error", "message": QUOTA, "fatal": true});
        say(&event.to_string());
        return ExitCode::FAILURE;
    };
    match std::fs::write(Path::new(&output), answer.to_string()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

#[allow(clippy::print_stdout)] // A session speaks to its reader, not to a person.
fn say(line: &str) {
    println!("{line}");
}

fn prompt() -> String {
    let mut text = String::new();
    // A prompt that cannot be read says nothing.
    let _ = std::io::stdin().read_to_string(&mut text);
    text
}

/// A reviewer that lets one mistake not pass.
fn verdict(run: &str) -> Value {
    if matches!(parts(run), Some(("unique", 1, _))) {
        return json!({
            "verdict": "reject", "criteria": [],
            "summary": "tools/unique.sh sorts: the order of the lines is lost.",
            "findings": [{"id": "order-lost",
                "text": "tools/unique.sh uses `sort -u`; lines must stay in their order"}],
        });
    }
    json!({"verdict": "approve", "summary": "It does what was asked.", "findings": [], "criteria": []})
}

struct DemoSession {
    project: PathBuf,
}

impl DemoSession {
    /// What the session reports; none: its quota is used up.
    fn work(&self, run: &str) -> Option<Value> {
        let (name, place, number) = parts(run)?;
        let first = place == 1 && number == 1;
        let files = match name {
            "upper" if first => return None,
            "lib" => self.library(),
            "legacy" | "check" => Vec::new(),
            "menu-a" => vec![("menu.txt".to_owned(), "count\nupper\n".to_owned())],
            "menu-b" => {
                let before = std::fs::read_to_string(self.project.join("menu.txt"));
                let text = format!("{}reverse\nsort\nunique\n", before.unwrap_or_default());
                vec![("menu.txt".to_owned(), text)]
            }
            "docs" => vec![(
                "docs/usage.md".to_owned(),
                "# Use\n\nEach tool reads standard input: `sh tools/count.sh < text`.\n".to_owned(),
            )],
            KILLED if first => {
                std::thread::sleep(LONG);
                tool(name, true)
            }
            CONFLICT if place == 1 => {
                self.wait_for_the_user();
                tool(name, false)
            }
            "count" => tool(name, number > 1),
            "unique" => tool(name, place > 1),
            name => tool(name, true),
        };
        for (path, text) in &files {
            if let Err(error) = self.write(path, text) {
                return Some(json!({"status": "retry", "summary": format!("{path}: {error}")}));
            }
        }
        let summary = match files.len() {
            0 => format!("Looked at {name}; nothing had to change."),
            _ => format!("Wrote {}.", files[0].0),
        };
        Some(json!({"status": "done", "summary": summary}))
    }

    /// Lasts until the user has committed to the same file.
    fn wait_for_the_user(&self) {
        let file = std::env::temp_dir().join("sign");
        let path = file.display().to_string();
        let sign = std::fs::write(&file, SIGN)
            .ok()
            .and_then(|()| git(&self.project, &["hash-object", &path]).ok());
        let Some(sign) = sign else {
            return;
        };
        let until = Instant::now() + LONG;
        while git(&self.project, &["cat-file", "-e", sign.trim()]).is_err()
            && Instant::now() < until
        {
            std::thread::sleep(LOOK);
        }
    }

    /// First with a bug, then, when the guard has spoken, without it.
    fn library(&self) -> Vec<(String, String)> {
        let heard = self.project.join(".runner/context/failure.md").exists();
        let pattern = if heard { "s/^ *//; s/ *$//" } else { "s/^ *//" };
        vec![
            (
                "lib/text.sh".to_owned(),
                format!("trim() {{\n    sed '{pattern}'\n}}\n"),
            ),
            (
                "tests/lib.sh".to_owned(),
                ". lib/text.sh\ntest \"$(printf '[%s]' \"$(echo ' a ' | trim)\")\" = '[a]'\n"
                    .to_owned(),
            ),
        ]
    }

    fn write(&self, path: &str, text: &str) -> std::io::Result<()> {
        let path = self.project.join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, text)
    }
}
