//! The least that the same results take: the ledger's calls alone, and git alone.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use runner_fleet::ledger_port::LedgerPort;
use runner_fleet::rules::answers::{GUARD, done_packet, pass};
use runner_ledger::{ClaimRequest, Ledger};
use runner_lifecycle::packet::ResultPacket;
use runner_lifecycle::request::{Claim, JudgeEnding, WorkEnding};
use runner_lifecycle::row::Intent;
use runner_lifecycle::run::Lease;
use runner_lifecycle::{BasePosition, Facts, LeasePurpose, Task, TaskId};

use crate::fleet::{WORKERS, create};
use crate::instant::changes_of;

/// Lives a second through the calls of the ledger that change something, and through the
/// look for what one was given: nobody dispatches, waits or decides.
pub(crate) async fn ledger(ledger: &Ledger, tasks: u32) -> f64 {
    create(ledger, (0..tasks).map(|n| format!("t{n}"))).await;
    let begun = Instant::now();
    let queue = Arc::new(tokio::sync::Mutex::new(()));
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..WORKERS {
        let (ledger, queue) = (LedgerPort::new(ledger.clone()), Arc::clone(&queue));
        clients.spawn(async move {
            let owner = format!("c{client}");
            let mut done = 0_u32;
            loop {
                let key = format!("{owner}/{done}");
                let claim_request = ClaimRequest::work(&owner, "worker", &key);
                let Some(claimed) = ledger.claim_next(&claim_request).await.unwrap() else {
                    return done;
                };
                life(&ledger, &owner, &key, &claimed.task.id, &queue).await;
                done += 1;
            }
        });
    }
    let mut done = 0;
    while let Some(ended) = clients.join_next().await {
        done += ended.unwrap();
    }
    assert_eq!(done, tasks);
    f64::from(tasks) / begun.elapsed().as_secs_f64()
}

fn packet(task: &Task, run_id: &str) -> ResultPacket {
    let answers = vec![pass(GUARD, "exit 0, log 1234")];
    done_packet(task, run_id, &changes_of(task.id.as_str()), answers, vec![])
}

async fn lease(ledger: &LedgerPort, owner: &str) -> (Task, Lease) {
    let given = ledger.assigned(owner).await.unwrap().unwrap();
    (given.task, given.lease)
}

/// From claimed to merged.
async fn life(
    ledger: &LedgerPort,
    owner: &str,
    key: &str,
    id: &TaskId,
    queue: &tokio::sync::Mutex<()>,
) {
    let (task, held) = lease(ledger, owner).await;
    ledger.heartbeat(&held).await.unwrap();
    let run_id = held.run_id.clone();
    let ending = WorkEnding::Success {
        result: Some(id.to_string()),
        packet: packet(&task, &run_id),
    };
    ledger
        .finish(&held, ending, Facts::default())
        .await
        .unwrap();
    let claim = Claim {
        owner: owner.to_owned(),
        purpose: LeasePurpose::Judge,
        key: format!("{key}/judge"),
        base: None,
    };
    ledger.claim(id, claim).await.unwrap();
    let (task, held) = lease(ledger, owner).await;
    ledger.heartbeat(&held).await.unwrap();
    let approve = JudgeEnding::Approve {
        packet: packet(&task, &run_id),
    };
    ledger.judge(&held, approve).await.unwrap();
    // One head per base, and it is whoever is first: perhaps another one's result.
    let _head = queue.lock().await;
    let mut claim_request = ClaimRequest::work(owner, "", &format!("{key}/merge"));
    claim_request.purpose = LeasePurpose::Merge;
    claim_request.base = Some("main".to_owned());
    ledger.claim_next(&claim_request).await.unwrap().unwrap();
    let (task, held) = lease(ledger, owner).await;
    let packet = packet(&task, &held.run_id);
    ledger.heartbeat(&held).await.unwrap();
    let intent = Intent {
        old_base: "old".to_owned(),
        merge_commit: "new".to_owned(),
    };
    ledger.record_intent(&held, &intent, packet).await.unwrap();
    let settled = ledger.settle_intent(&held, &intent, BasePosition::Merged);
    settled.await.unwrap();
}

/// Tasks a second through git alone: for each a clone that borrows objects, the agent, the
/// guard, a commit, a fetch; then, one after the other, a merge, its checkout, the guard,
/// the move of the base, and the checkout that follows.
pub(crate) fn git(repo: &Path, agent: &Path, tasks: u32) -> f64 {
    let begun = Instant::now();
    let next = Mutex::new(0..tasks);
    let queue = Mutex::new(());
    std::thread::scope(|threads| {
        for _ in 0..WORKERS {
            threads.spawn(|| {
                loop {
                    let number = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(number) = number else { return };
                    one(repo, agent, &format!("t{number}"), &queue);
                }
            });
        }
    });
    f64::from(tasks) / begun.elapsed().as_secs_f64()
}

fn one(repo: &Path, agent: &Path, task: &str, queue: &Mutex<()>) {
    let text = |path: &Path| path.display().to_string();
    let folder = clone(repo, task, "main");
    let work = folder.join("answer.json");
    let session = [("RUNNER_RUN_ID", format!("{task}-1"))]
        .into_iter()
        .chain([("RUNNER_ITER", "1".to_owned())])
        .chain([("RUNNER_NODE_ID", "root".to_owned())])
        .chain([("RUNNER_PROJECT_DIR", text(&folder))])
        .chain([("RUNNER_OUTPUT_PATH", text(&work))]);
    run(command("sh", &folder).arg(agent).envs(session));
    std::fs::remove_file(work).unwrap();
    run(&mut command("true", &folder));
    git_in(&folder, &["add", "-A"]);
    git_in(&folder, &["commit", "-q", "-m", task]);
    let result = format!("refs/result/{task}");
    let refspec = format!("HEAD:{result}");
    git_in(repo, &["fetch", "-q", &text(&folder), &refspec]);
    std::fs::remove_dir_all(folder).unwrap();

    let _head = queue.lock().unwrap_or_else(PoisonError::into_inner);
    let base = git_in(repo, &["rev-parse", "main"]);
    let tree = git_in(repo, &["merge-tree", "--write-tree", &base, &result]);
    let words = ["commit-tree", &tree, "-p", &base, "-p", &result, "-m", task];
    let merge = git_in(repo, &words);
    git_in(repo, &["update-ref", "refs/merge", &merge]);
    let folder = clone(repo, &format!("{task}-merge"), &merge);
    run(&mut command("true", &folder));
    std::fs::remove_dir_all(folder).unwrap();
    git_in(repo, &["update-ref", "refs/heads/fleet/main", &merge]);
    git_in(repo, &["merge", "-q", "--ff-only", "fleet/main"]);
}

fn clone(repo: &Path, name: &str, commit: &str) -> PathBuf {
    let folder = repo.with_file_name(format!("clone-{name}"));
    let to = folder.display().to_string();
    let words = ["clone", "-q", "--shared", "--no-checkout", ".", &to];
    git_in(repo, &words);
    git_in(&folder, &["checkout", "-q", "--detach", commit]);
    folder
}

/// Bare on purpose: a floor has no supervisor.
#[allow(clippy::disallowed_methods)]
fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// What git says in a folder.
pub(crate) fn git_in(folder: &Path, words: &[&str]) -> String {
    run(command("git", folder).args(words))
}
