//! Plans: the published schema, every finding, and the tasks that come out.

use proptest::prelude::*;
use runner_core::config::FleetConfig;
use runner_testkit::set_json;
use serde_json::{Value, json};

use super::super::schemas::{assert_fresh, generated};
use super::*;

#[test]
fn the_published_schema_is_fresh() {
    assert_fresh("plan", SCHEMA, &generated::<TaskPlan>("runner:plan:1"));
}

fn defaults() -> TaskDefaults {
    TaskDefaults::from(&FleetConfig::default())
}

fn task(id: &str, paths: &[&str], needs: &[&str]) -> Value {
    json!({
        "id": id,
        "title": format!("make {id}"),
        "goal": "it is there",
        "role": "worker",
        "allowed_paths": paths,
        "forbidden_paths": [],
        "depends_on": needs,
        "acceptance": [{"id": "guard", "text": "green", "check": "command"}],
        "commands": [],
        "priority": "normal",
        "risk": "medium",
        "expects_change": true
    })
}

fn plan() -> Value {
    json!({"tasks": [
        task("docs", &["docs/**"], &["parser"]),
        task("parser", &["src/parser"], &[]),
        task("lexer", &["src/lexer.rs"], &[]),
    ]})
}

const SIGNATURE: &str = "0123456789abcdef";

fn read_json(plan: &Value) -> Result<Vec<NewTask>, Vec<String>> {
    read(&plan.to_string(), SIGNATURE, &defaults())
        .map_err(|all| all.iter().map(ToString::to_string).collect())
}

#[test]
fn a_good_plan_becomes_tasks() {
    let mut good = plan();
    set_json(&mut good, "/tasks/0/role", json!("docser"));
    let tasks = read_json(&good).unwrap();
    let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(
        ids,
        ["p01234567-parser", "p01234567-docs", "p01234567-lexer"]
    );
    assert_eq!(tasks[1].dependencies, [tasks[0].id.clone()]);
    assert_eq!(tasks[1].role, "docser");
    assert_eq!(tasks[1].lane.as_str(), "docser");
    assert_eq!(tasks[1].lock_scope[0].as_str(), "docs");
    assert_eq!(tasks[0].source.as_deref(), Some("plan:0123456789abcdef"));
    assert_eq!(tasks[0].timeout_seconds, 90);
    // The same plan again gives the same ids.
    assert_eq!(read_json(&good).unwrap(), tasks);
    let fenced = format!("```json\n{good}\n```");
    assert_eq!(read(&fenced, SIGNATURE, &defaults()).unwrap(), tasks);
}

#[test]
fn findings_row_by_row() {
    for (pointer, value, expected) in [
        ("/tasks", json!([]), "the plan is empty: it has no task"),
        (
            "/tasks/0/id",
            json!("a b"),
            "task `a b`: its id needs 1 to 40 letters, digits, `_` or `-`, beginning with a \
             letter or digit",
        ),
        (
            "/tasks/2/id",
            json!("Parser"),
            "task `Parser`: another task has the same id",
        ),
        (
            "/tasks/0/title",
            json!(" "),
            "task `docs`: its title is empty",
        ),
        (
            "/tasks/0/goal",
            json!("a\u{0}b"),
            "task `docs`: its goal contains a control character",
        ),
        (
            "/tasks/0/role",
            json!("judge"),
            "task `docs`: role `judge` is unknown: worker, tester, docser",
        ),
        (
            "/tasks/0/allowed_paths",
            json!([]),
            "task `docs`: allowed_paths is empty: name what it may change",
        ),
        (
            "/tasks/0/allowed_paths",
            json!(["../x"]),
            "task `docs`: path `../x`: `.` and `..` are no parts of a path",
        ),
        (
            "/tasks/0/forbidden_paths",
            json!(["docs"]),
            "task `docs`: everything that it may change is forbidden to it",
        ),
        (
            "/tasks/0/depends_on",
            json!(["docs"]),
            "task `docs`: it depends on itself",
        ),
        (
            "/tasks/0/depends_on",
            json!(["parsr"]),
            "task `docs`: it depends on `parsr`, which is no task of this plan (did you mean \
             `parser`?)",
        ),
        (
            "/tasks/0/depends_on",
            json!(["parser", "parser"]),
            "task `docs`: dependency `parser` is named twice",
        ),
        (
            "/tasks/1/depends_on",
            json!(["docs"]),
            "the tasks depend on each other in a circle: `docs` -> `parser` -> `docs`",
        ),
        (
            "/tasks/2/allowed_paths",
            json!(["src/**"]),
            "task `parser`: its allowed paths overlap those of `lexer`: let one depend on the \
             other, or give them different paths",
        ),
        (
            "/tasks/0/acceptance",
            json!([]),
            "task `docs`: acceptance is empty: say how one can see that it is done",
        ),
        (
            "/tasks/0/acceptance/0/id",
            json!(""),
            "task `docs`: criterion `` needs an id of its own",
        ),
        (
            "/tasks/0/acceptance/0/check",
            json!("review"),
            "task `docs`: criterion `guard` asks for a review, and reviews are off: use a command",
        ),
        (
            "/tasks/0/commands",
            json!(["a\nb"]),
            "task `docs`: a command is one line",
        ),
        (
            "/tasks/0/commands",
            json!(vec!["x"; 31]),
            "task `docs`: commands has 31 entries, 30 at most",
        ),
    ] {
        let mut wrong = plan();
        set_json(&mut wrong, pointer, value);
        let findings = read_json(&wrong).unwrap_err();
        // One id less also breaks what depends on it.
        assert!(
            findings.contains(&expected.to_owned()),
            "{pointer} {findings:?}"
        );
        assert!(findings.len() <= 2, "{findings:?}");
    }
}

#[test]
fn the_shape_is_strict() {
    let validator = jsonschema::validator_for(&serde_json::from_str(SCHEMA).unwrap()).unwrap();
    assert!(validator.is_valid(&plan()));
    for (pointer, value) in [
        ("/more", json!(1)),
        ("/tasks", json!({})),
        ("/tasks/0/more", json!(1)),
        ("/tasks/0/goal", Value::Null),
        ("/tasks/0/goal", json!(3)),
        ("/tasks/0/priority", json!("urgent")),
        ("/tasks/0/risk", json!("none")),
        ("/tasks/0/expects_change", json!("yes")),
        ("/tasks/0/acceptance/0/check", json!("hope")),
        ("/tasks/0/acceptance/0/by", json!("me")),
    ] {
        let mut wrong = plan();
        set_json(&mut wrong, pointer, value.clone());
        let findings = read_json(&wrong).unwrap_err();
        assert_eq!(findings.len(), 1, "{pointer}");
        assert!(findings[0].starts_with("the plan is not as the schema says"));
        assert!(!validator.is_valid(&wrong), "{pointer} {value}");
    }
}

#[test]
fn caps() {
    let many: Vec<Value> = (0..=MAX_TASKS)
        .map(|n| task(&format!("t{n}"), &[&format!("d{n}")], &[]))
        .collect();
    let findings = read_json(&json!({"tasks": many})).unwrap_err();
    assert_eq!(
        findings,
        ["the plan has 61 tasks, 60 at most: make larger ones"]
    );
    let long = format!("{}{}", " ".repeat(MAX_BYTES), plan());
    assert_eq!(read(&long, SIGNATURE, &defaults()).unwrap_err().len(), 1);
    let wide: Vec<Value> = (0..MAX_TASKS)
        .map(|n| task(&format!("t{n}"), &["."], &[]))
        .collect();
    assert_eq!(
        read_json(&json!({"tasks": wide})).unwrap_err().len(),
        MAX_FINDINGS
    );
}

#[test]
fn a_chain_of_dependencies_orders_scopes() {
    let chained = json!({"tasks": [
        task("c", &["src"], &["b"]),
        task("b", &["docs"], &["a"]),
        task("a", &["src/x"], &[]),
    ]});
    let tasks = read_json(&chained).unwrap();
    let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["p01234567-a", "p01234567-b", "p01234567-c"]);
}

#[test]
fn signatures() {
    let one = plan_signature("make it\n good ", "abc");
    assert_eq!(one, plan_signature(" make it good", "abc"));
    assert_ne!(one, plan_signature("make it good", "abd"));
    assert_ne!(one, plan_signature("make it bad", "abc"));
    assert_eq!(one.len(), 16);
}

#[test]
fn reviews_when_they_are_on() {
    let mut reviewed = plan();
    set_json(
        &mut reviewed,
        "/tasks/0/acceptance/0/check",
        json!("review"),
    );
    let on = TaskDefaults {
        review: true,
        ..defaults()
    };
    assert!(read(&reviewed.to_string(), SIGNATURE, &on).is_ok());
}

proptest! {
    #[test]
    fn any_answer_is_taken(answer in "(?s).{0,200}") {
        prop_assert!(read(&answer, SIGNATURE, &defaults()).is_err());
    }

    /// Whatever the edges: a plan is refused, or its order keeps every dependency.
    #[test]
    fn order_keeps_dependencies(edges in prop::collection::vec((0usize..6, 0usize..6), 0..10)) {
        let tasks: Vec<Value> = (0..6)
            .map(|n| {
                let needs: BTreeSet<String> = edges
                    .iter()
                    .filter(|(from, _)| *from == n)
                    .map(|(_, to)| format!("t{to}"))
                    .collect();
                let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
                task(&format!("t{n}"), &[&format!("d{n}")], &needs)
            })
            .collect();
        if let Ok(tasks) = read_json(&json!({"tasks": tasks})) {
            prop_assert_eq!(tasks.len(), 6);
            for (at, task) in tasks.iter().enumerate() {
                for need in &task.dependencies {
                    prop_assert!(tasks[..at].iter().any(|done| done.id == *need));
                }
            }
        }
    }
}
