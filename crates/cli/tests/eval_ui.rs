//! The live view on the link of a case follows a run from its first second, and the next run too.

mod eval_support;
#[allow(clippy::unwrap_used)] // It is for tests alone.
mod ui_support;

use std::fs;
use std::time::Duration;

use eval_support::{DOES_IT, with_eval, write_case};
use runner_testkit::eventually;
use ui_support::Ui;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn the_live_view_follows_a_run_from_its_first_second() {
    let repo = with_eval();
    let gate = repo.root().join("gate");
    let agent = format!(
        "until [ -e '{}' ]; do sleep 0.05; done\n{DOES_IT}",
        gate.display()
    );
    write_case(&repo, "gated", &agent, "true", "");
    // As `just eval-with-ui` does: the view is there before the link is.
    let link = repo.path("eval/workspaces/gated_latest");
    let link = link.display().to_string();
    let ui = Ui::of(repo.spawn_runner(&["-C", &link, "ui", "--port", "0"]));
    assert_ne!(ui.get("/api/run").0, 200);

    for iteration in ["first", "second"] {
        let _ = fs::remove_file(&gate);
        let run = repo.spawn_runner(&["eval", "run", "gated"]);
        let state = || match ui.get("/api/run") {
            (200, text) => serde_json::from_str(&text).unwrap_or_default(),
            _ => serde_json::Value::Null,
        };
        eventually(iteration, LONG, || {
            let now = state();
            now["state"] == "running" && now["phase"] == "agent"
        });
        assert_eq!(state()["run_id"], "gated");
        fs::write(&gate, "").expect("a file can be written");
        eventually("its end", LONG, || state()["state"] == "complete");
        run.wait().success();
    }
}
