//! What the demo is about: a requirement, the plan that the scripted planner makes of it,
//! and the files that the scripted sessions write.

use serde_json::{Value, json};

/// What shall be so.
pub(super) const REQUIREMENT: &str = "\
# A box of text tools

Small shell programs in tools/ that read standard input: count words, print in capitals,
reverse, sort, and drop repeated lines. They share lib/text.sh, each has a test in tests/,
menu.txt lists them, and docs/ says how to use them. What is left of the old tools goes.
";

/// The guard.
pub(super) const GUARD: &str = "\
#!/bin/sh
# Runs every test. Nothing is merged that makes it red.
status=0
for test in tests/*.sh; do
    [ -e \"$test\" ] || continue
    if ! sh \"$test\"; then
        echo \"FAILED $test\"
        status=1
    fi
done
exit $status
";

/// What \"the user\" commits while the fleet works on the same file.
pub(super) const BY_HAND: &str = "#!/bin/sh\n# Sorts lines; written by hand.\nLC_ALL=C sort\n";

/// An object that the project has as soon as the user has committed.
pub(super) const SIGN: &str = "the user has committed\n";
/// The file that it is made of.
pub(super) const SIGN_FILE: &str = ".runner/fleet/committed";

/// Whose worker is killed.
pub(super) const KILLED: &str = "reverse";
/// Where the user writes, too.
pub(super) const CONFLICT: &str = "sort";
/// Those that cannot be done.
pub(super) const UNDONE: [&str; 2] = ["legacy", "migrate"];

/// The plan. The first one lets two tasks change the same file at the same time: it is
/// refused, and the planner is told.
pub(super) fn plan(first: bool) -> Value {
    let after_a: &[&str] = if first { &[] } else { &["menu-a"] };
    let tool = |id: &str, goal: &str| {
        let paths = [format!("tools/{id}.sh"), format!("tests/{id}.sh")];
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        task(id, "worker", goal, &paths, &["lib"])
    };
    let mut check = task(
        "check",
        "tester",
        "Every tool passes its test.",
        &["tests/report"],
        &["count", "upper", "reverse", "sort", "unique"],
    );
    check["expects_change"] = json!(false);
    json!({"tasks": [
        task("lib", "worker", "lib/text.sh trims lines.", &["lib/**", "tests/lib.sh"], &[]),
        tool("count", "tools/count.sh prints the number of words."),
        tool("upper", "tools/upper.sh prints its input in capitals."),
        tool("reverse", "tools/reverse.sh prints the last line first."),
        tool("sort", "tools/sort.sh sorts lines."),
        tool("unique", "tools/unique.sh drops repeated lines and keeps the order."),
        task("menu-a", "worker", "menu.txt lists count and upper.", &["menu.txt"], &[]),
        task("menu-b", "worker", "menu.txt lists the other tools.", &["menu.txt"], after_a),
        task("legacy", "worker", "The old tools are gone.", &["legacy/**"], &[]),
        task("migrate", "worker", "Users of the old tools are moved.", &["migrate/**"], &["legacy"]),
        check,
        task("docs", "docser", "docs/usage.md tells how to call each tool.", &["docs/**"], &["menu-b"]),
    ]})
}

fn task(id: &str, role: &str, goal: &str, paths: &[&str], needs: &[&str]) -> Value {
    json!({
        "id": id, "title": goal.trim_end_matches('.'), "goal": goal, "role": role,
        "allowed_paths": paths, "forbidden_paths": [], "depends_on": needs,
        "acceptance": [{"id": "guard", "text": "the guard is green", "check": "command"}],
        "commands": [], "priority": "normal", "risk": "medium", "expects_change": true,
    })
}

/// The name of a task in the plan, its place in its lineage and the number of the run, of
/// a run id such as `p1a2b3c4d-sort.2-1`.
pub(super) fn parts(run_id: &str) -> Option<(&str, u32, u32)> {
    let (task, run) = run_id.rsplit_once('-')?;
    let (_, local) = task.split_once('-')?;
    let (name, place) = match local.split_once('.') {
        Some((name, place)) => (name, place.parse().ok()?),
        None => (local, 1),
    };
    Some((name, place, run.parse().ok()?))
}

/// A tool and its test; `good`: the test is green.
pub(super) fn tool(name: &str, good: bool) -> Vec<(String, String)> {
    let (body, input, expected) = match (name, good) {
        ("count", true) => ("wc -w | tr -d ' '", "one two\\nthree\\n", "3"),
        ("count", false) => ("wc -l | tr -d ' '", "one two\\nthree\\n", "3"),
        ("upper", _) => ("tr '[:lower:]' '[:upper:]'", "ab\\n", "AB"),
        ("reverse", _) => ("sed '1!G;h;$!d'", "a\\nb\\n", "b"),
        ("sort", true) => (
            "# Sorts lines; by hand and by the fleet.\nLC_ALL=C sort",
            "b\\na\\n",
            "a",
        ),
        ("sort", false) => (
            "# Sorts lines; written by the fleet.\nsort",
            "b\\na\\n",
            "a",
        ),
        ("unique", true) => ("awk '!seen[$0]++'", "b\\na\\nb\\n", "b"),
        _ => ("sort -u", "b\\nb\\n", "b"),
    };
    vec![
        (format!("tools/{name}.sh"), format!("#!/bin/sh\n{body}\n")),
        (
            format!("tests/{name}.sh"),
            format!("test \"$(printf '{input}' | sh tools/{name}.sh | head -n 1)\" = {expected}\n"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_runs() {
        assert_eq!(parts("p1a2b3c4d-sort-1"), Some(("sort", 1, 1)));
        assert_eq!(parts("p1a2b3c4d-menu-a-2"), Some(("menu-a", 1, 2)));
        assert_eq!(parts("p1a2b3c4d-unique.2-1"), Some(("unique", 2, 1)));
        assert_eq!(parts("plan"), None);
    }

    #[test]
    fn only_the_second_plan_can_be_used() {
        use runner_fleet::rules::draft::TaskDefaults;
        use runner_fleet::rules::plan::read;
        let defaults = TaskDefaults::from(&runner_core::config::FleetConfig::default());
        let found = read(&plan(true).to_string(), "0123456789abcdef", &defaults).unwrap_err();
        assert!(found[0].to_string().contains("menu"), "{found:?}");
        let tasks = read(&plan(false).to_string(), "0123456789abcdef", &defaults).unwrap();
        assert_eq!(tasks.len(), 12);
    }
}
