//! The tasks of the fleet that is killed, the agent that plays them, and the user beside it.

use std::time::Duration;

use runner_testkit::{TestRepo, eventually};
use serde_json::json;

/// The task during which the user changes the same file.
const CONFLICT: u32 = 2;
/// Two tasks that are green alone and red together.
const PAIR: [u32; 2] = [3, 4];
/// Changes nothing though a change is expected.
const IDLE: u32 = 5;
/// Depends on that.
const BEHIND_IDLE: u32 = 6;
/// Names no role, and so waits for a person.
pub(crate) const PARKED: u32 = 7;
/// Expects no change.
pub(crate) const TESTER: u32 = 8;
const DOCSER: u32 = 9;
/// The fewest tasks with which everybody has a part.
pub(crate) const FEWEST: u32 = 12;

/// Tasks that cannot be done, whatever happens.
pub(crate) const UNDONE: [u32; 3] = [IDLE, BEHIND_IDLE, PARKED];

/// Whether the task writes to the list that all of these share.
pub(crate) const fn shares(number: u32) -> bool {
    number > DOCSER && (number <= 11 || number % 5 == 3)
}

/// Red while something is broken, or while both of the pair are there and neither knows of
/// the other.
const GUARD: &str = "\
test -z \"$(find . -name broken -not -path './.runner/*')\" || { echo broken; exit 1; }
if [ -e issue-3/file ] && [ -e issue-4/file ]; then
    [ -e issue-3/knows ] || [ -e issue-4/knows ] || { echo 'the pair does not fit'; exit 1; }
fi
";

/// Decides by the name of its run alone what goes wrong.
const AGENT: &str = r#"
id=${RUNNER_RUN_ID%-*}; run=${RUNNER_RUN_ID##*-}; root=${id%%.*}; n=${root#issue-}
sleep "0.$((n % 4))"
case $n in
2)  mkdir -p conflict
    if grep -q hand conflict/file 2>/dev/null; then echo both > conflict/file; else
        : > "$AGENT_DIR/asks"
        until [ -e "$AGENT_DIR/answered" ]; do sleep 0.05; done
        echo fleet > conflict/file
    fi ;;
3|4) mkdir -p "$root"; echo "$id" > "$root/file"; [ "$id" = "$root" ] || : > "$root/knows" ;;
5|8) ;;
9)  mkdir -p docs; echo "$id" > docs/usage.md ;;
*)  mkdir -p "$root"; echo "$id" > "$root/file"
    if [ "$SHARES" = yes ]; then
        mkdir -p shared; grep -qsx "$root" shared/list || echo "$root" >> shared/list
    fi ;;
esac
case $((n % 5)) in
0)  if [ "$n" -ge 10 ] && [ "$run" = 1 ]; then : > "$root/broken"; fi ;;
1)  if [ "$n" -ge 10 ] && [ "$RUNNER_ITER" = 1 ]; then : > "$root/broken"; else rm -f "$root/broken"; fi ;;
esac
out done did
"#;

/// A project with so many issues, and a fleet that tries again at once.
pub(crate) fn repo(tasks: u32) -> TestRepo {
    assert!(tasks >= FEWEST, "at least {FEWEST} tasks, not {tasks}");
    let mut repo = TestRepo::new(env!("CARGO_BIN_EXE_runner"));
    repo.env("RUNNER_FLEET_COOLDOWN_SECS", "0");
    repo.write("guard.sh", GUARD);
    repo.write("conflict/file", "old\n");
    repo.commit_all("A guard");
    repo.config(|config| {
        config
            .set("max_attempts_default", 2)
            .set("guard.command", json!(["sh", "guard.sh"]))
            .set("fleet.workers", 3)
            .set("fleet.judges", 2)
            .set("fleet.dependency_grace_hours", 0);
    });
    repo.write_config();
    let sharing: Vec<String> = (1..=tasks)
        .filter(|n| shares(*n))
        .map(|n| n.to_string())
        .collect();
    let sharing = format!(
        "case ${{RUNNER_RUN_ID#issue-}} in {}) SHARES=yes ;; *) SHARES= ;; esac\n",
        sharing
            .iter()
            .map(|n| format!("{n}-*|{n}.*"))
            .collect::<Vec<_>>()
            .join("|")
    );
    repo.agent(&format!("{sharing}{AGENT}"));
    for number in 1..=tasks {
        let path = format!(".runner/fleet/issues/{number}-x.md");
        repo.write(path, issue(number));
    }
    repo
}

fn issue(number: u32) -> String {
    let role = match number {
        PARKED => "",
        TESTER => "Agent: tester\n",
        DOCSER => "Agent: docser\n",
        _ => "Agent: worker\n",
    };
    let mut paths = match number {
        CONFLICT => "conflict/**".to_owned(),
        TESTER => "tests/**".to_owned(),
        DOCSER => "docs/**".to_owned(),
        _ => format!("issue-{number}/**"),
    };
    if shares(number) {
        paths.push_str(", shared/**");
    }
    let needs = match number {
        BEHIND_IDLE => format!("Depends on: #{IDLE}\n"),
        TESTER => format!("Depends on: #{}, #{}\n", PAIR[0], PAIR[1]),
        n if n > DOCSER && n % 5 == 2 => format!("Depends on: #1, #{}\n", n - 1),
        _ => String::new(),
    };
    format!("# Issue {number}\n\n{role}{needs}Allowed paths: {paths}\n")
}

/// The user, who changes a file while a session works on it, once it asks for that.
pub(crate) fn user_answers(repo: &TestRepo) {
    let answered = repo.agent_dir().join("answered");
    if answered.exists() || !repo.agent_dir().join("asks").exists() {
        return;
    }
    repo.write("conflict/file", "by hand\n");
    // The fleet may be about to bring the same checkout along.
    eventually("the user can commit", Duration::from_secs(30), || {
        repo.git_try(&["commit", "--quiet", "-m", "By hand", "conflict/file"])
            .is_ok()
    });
    std::fs::write(answered, "").expect("a file can be written");
}
