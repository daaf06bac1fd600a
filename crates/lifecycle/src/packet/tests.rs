//! Packets: the published schemas, the strict parser, and that both agree.

use std::sync::LazyLock;

use proptest::prelude::*;
use runner_testkit::set_json;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, transform::transform_subschemas};
use serde_json::{Value, json};

use super::*;

/// Every object takes its own fields and those that begin with `x_`.
fn strict(schema: &mut Schema) {
    if let Some(object) = schema.as_object_mut()
        && object.contains_key("properties")
    {
        object.insert("additionalProperties".to_owned(), json!(false));
        object.insert("patternProperties".to_owned(), json!({ "^x_": true }));
    }
    transform_subschemas(&mut strict, schema);
}

fn generated<T: JsonSchema>(id: &str) -> String {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.transforms.push(Box::new(strict));
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("$id".to_owned(), json!(id));
    serde_json::to_string_pretty(&schema).unwrap() + "\n"
}

#[test]
fn published_schemas_are_fresh() {
    for (file, published, fresh) in [
        (
            "assignment",
            ASSIGNMENT_SCHEMA,
            generated::<Assignment>("runner:assignment:1"),
        ),
        (
            "result",
            RESULT_SCHEMA,
            generated::<ResultPacket>(RESULT_SCHEMA_ID),
        ),
    ] {
        assert!(jsonschema::meta::is_valid(&schema(&fresh)));
        assert!(
            published == fresh,
            "schemas/{file}.schema.json is stale; it should read\n{fresh}"
        );
    }
}

fn schema(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

static ASSIGNMENTS: LazyLock<jsonschema::Validator> =
    LazyLock::new(|| jsonschema::validator_for(&schema(ASSIGNMENT_SCHEMA)).unwrap());
static RESULTS: LazyLock<jsonschema::Validator> =
    LazyLock::new(|| jsonschema::validator_for(&schema(RESULT_SCHEMA)).unwrap());

fn assignment() -> Value {
    json!({
        "schema_version": "1.0.0",
        "run_id": "t-1",
        "packet_type": "assignment",
        "global_objective": "all of it",
        "task": {
            "task_id": "t",
            "title": "one",
            "type": "parallelizable",
            "dependencies": ["d"],
            "lock_scope": ["src"],
            "forbidden_scope": ["src/secret"],
            "acceptance_criteria": [{"id": "c", "text": "green", "check": "command"}],
            "worklog_path": "log.md",
            "timeout_seconds": 90,
            "heartbeat_interval_seconds": 15,
            "priority": "normal"
        },
        "active_locks": [{"task_id": "o", "resource": "docs", "active": true}],
        "context_package": [{"kind": "note", "value": "hello"}],
        "required_output_schema": "runner:result:1"
    })
}

fn result() -> Value {
    json!({
        "schema_version": "1.0.0",
        "run_id": "t-1",
        "task_id": "t",
        "status": "done",
        "changes": [{"resource": "src/a.rs", "action": "modified", "evidence": "diff"}],
        "acceptance_check": [{"criterion": "c", "status": "pass", "evidence": "exit 0"}],
        "worklog_path": "log.md",
        "notes_for_orchestrator": ["note"]
    })
}

type Parse = fn(&[u8]) -> Result<(), Refusal>;
const PARSE_ASSIGNMENT: Parse = |bytes| Assignment::parse(bytes).map(|_| ());
const PARSE_RESULT: Parse = |bytes| ResultPacket::parse(bytes).map(|_| ());

fn code(parse: Parse, packet: &Value) -> Option<RefusalCode> {
    parse(packet.to_string().as_bytes())
        .err()
        .map(|refusal| refusal.code)
}

#[test]
fn assignments_row_by_row() {
    use RefusalCode::{MissingRequiredInput, SchemaInvalid, UnknownSchemaVersion};
    assert_eq!(code(PARSE_ASSIGNMENT, &assignment()), None);
    for (pointer, value, expected) in [
        ("/schema_version", json!("1.7.3"), None),
        (
            "/schema_version",
            json!("2.0.0"),
            Some(UnknownSchemaVersion),
        ),
        (
            "/schema_version",
            json!("0.9.0"),
            Some(UnknownSchemaVersion),
        ),
        ("/schema_version", json!("1.0"), Some(SchemaInvalid)),
        ("/schema_version", json!("one"), Some(SchemaInvalid)),
        ("/schema_version", json!("1.00.0"), Some(SchemaInvalid)),
        ("/schema_version", json!(1), Some(SchemaInvalid)),
        ("/schema_version", Value::Null, Some(MissingRequiredInput)),
        ("/run_id", Value::Null, Some(MissingRequiredInput)),
        ("/run_id", json!(""), Some(SchemaInvalid)),
        ("/packet_type", json!("result"), Some(SchemaInvalid)),
        ("/unknown", json!(1), Some(SchemaInvalid)),
        ("/x_mine", json!({"any": "thing"}), None),
        ("/task/unknown", json!(1), Some(SchemaInvalid)),
        ("/task/x_mine", json!(1), None),
        (
            "/task/acceptance_criteria/0/unknown",
            json!(1),
            Some(SchemaInvalid),
        ),
        ("/active_locks/0/unknown", json!(1), Some(SchemaInvalid)),
        ("/context_package/0/unknown", json!(1), Some(SchemaInvalid)),
        ("/task/lock_scope", json!([]), Some(SchemaInvalid)),
        ("/task/lock_scope", json!(["../x"]), Some(SchemaInvalid)),
        ("/task/acceptance_criteria", json!([]), Some(SchemaInvalid)),
        ("/task/timeout_seconds", json!(29), Some(SchemaInvalid)),
        ("/task/timeout_seconds", json!(30), None),
        ("/task/timeout_seconds", json!(90.5), Some(SchemaInvalid)),
        (
            "/task/heartbeat_interval_seconds",
            json!(4),
            Some(SchemaInvalid),
        ),
        (
            "/task/heartbeat_interval_seconds",
            json!(90),
            Some(SchemaInvalid),
        ),
        ("/task/heartbeat_interval_seconds", json!(89), None),
        ("/task/priority", json!("urgent"), Some(SchemaInvalid)),
        ("/task/priority", json!("critical"), None),
        ("/task/type", json!("serial"), None),
        (
            "/context_package/0/kind",
            json!("rumour"),
            Some(SchemaInvalid),
        ),
        (
            "/required_output_schema",
            Value::Null,
            Some(MissingRequiredInput),
        ),
    ] {
        let mut packet = assignment();
        set_json(&mut packet, pointer, value.clone());
        assert_eq!(
            code(PARSE_ASSIGNMENT, &packet),
            expected,
            "{pointer} {value}"
        );
    }
    for text in ["", "[]", "7", "{\"schema_version\": \"1.0.0\"", "\u{0}"] {
        let refusal = Assignment::parse(text.as_bytes()).unwrap_err();
        assert_eq!(refusal.code, SchemaInvalid, "{text:?}");
    }
}

#[test]
fn results_row_by_row() {
    use RefusalCode::{MissingRequiredInput, SchemaInvalid, UnknownSchemaVersion};
    assert_eq!(code(PARSE_RESULT, &result()), None);
    let notes = |n: usize| json!(vec!["note"; n]);
    for (pointer, value, expected) in [
        (
            "/schema_version",
            json!("3.0.0"),
            Some(UnknownSchemaVersion),
        ),
        ("/status", json!("success"), Some(SchemaInvalid)),
        ("/status", json!("blocked"), None),
        ("/status", Value::Null, Some(MissingRequiredInput)),
        ("/notes_for_orchestrator", notes(5), None),
        ("/notes_for_orchestrator", notes(6), Some(SchemaInvalid)),
        (
            "/notes_for_orchestrator",
            Value::Null,
            Some(MissingRequiredInput),
        ),
        ("/changes", json!([]), None),
        ("/changes/0/evidence", Value::Null, None),
        ("/changes/0/action", json!("touched"), Some(SchemaInvalid)),
        ("/changes/0/extra", json!(1), Some(SchemaInvalid)),
        ("/changes/0/x_extra", json!(1), None),
        (
            "/acceptance_check/0/status",
            json!("maybe"),
            Some(SchemaInvalid),
        ),
        ("/acceptance_check/0/evidence", json!(""), None),
        (
            "/acceptance_check/0/evidence",
            Value::Null,
            Some(MissingRequiredInput),
        ),
        ("/worklog_path", json!(""), Some(SchemaInvalid)),
    ] {
        let mut packet = result();
        set_json(&mut packet, pointer, value.clone());
        assert_eq!(code(PARSE_RESULT, &packet), expected, "{pointer} {value}");
    }
    let twice = result()
        .to_string()
        .replacen('{', "{\"run_id\": \"t-2\",", 1);
    assert!(
        ResultPacket::parse(twice.as_bytes()).is_err(),
        "a doubled key"
    );
}

#[test]
fn packets_survive_being_written_and_read() {
    let mut with_extra = result();
    set_json(&mut with_extra, "/x_tool", json!({"name": "x"}));
    for packet in [result(), with_extra] {
        let read = ResultPacket::parse(packet.to_string().as_bytes()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), packet);
    }
    let read = Assignment::parse(assignment().to_string().as_bytes()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), assignment());
}

/// Documents near a valid one: a few places replaced by something else.
fn mutated(packet: Value) -> impl Strategy<Value = Value> {
    let mut places = Vec::new();
    pointers(&packet, String::new(), &mut places);
    let value = prop_oneof![
        Just(Value::Null),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
        Just(json!("")),
        Just(json!("1.2.3")),
        Just(json!("normal")),
        Just(json!("pass")),
        Just(json!(4)),
        Just(json!(50)),
        Just(json!(-1)),
        Just(json!(1.5)),
        Just(json!(5_000_000_000_u64)),
        Just(json!([""])),
        Just(json!(["a", "b", "c", "d", "e", "f"])),
    ];
    let name = prop_oneof![Just("x_new"), Just("new"), Just("X_new"), Just("x")];
    let edit = (prop::sample::select(places), value, prop::option::of(name));
    prop::collection::vec(edit, 0..3).prop_map(move |edits| {
        let mut packet = packet.clone();
        for (place, value, name) in edits {
            match (packet.pointer_mut(&place), name) {
                (Some(Value::Object(object)), Some(name)) => {
                    object.insert(name.to_owned(), value);
                }
                (Some(found), _) if !place.is_empty() => *found = value,
                _ => {}
            }
        }
        packet
    })
}

fn pointers(value: &Value, at: String, places: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, inner) in object {
                pointers(inner, format!("{at}/{name}"), places);
            }
        }
        Value::Array(array) => {
            for (index, inner) in array.iter().enumerate() {
                pointers(inner, format!("{at}/{index}"), places);
            }
        }
        _ => {}
    }
    places.push(at);
}

fn shape<T: DeserializeOwned>(
    packet: &Value,
    check: fn(&T) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    parse(packet.to_string().as_bytes()).and_then(|packet| check(&packet))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn parser_and_schema_take_the_same_assignments(packet in mutated(assignment())) {
        let parsed = shape(&packet, check::assignment_shape);
        prop_assert_eq!(parsed.is_ok(), ASSIGNMENTS.is_valid(&packet), "{:?} {}", parsed, packet);
    }

    #[test]
    fn parser_and_schema_take_the_same_results(packet in mutated(result())) {
        let parsed = shape(&packet, check::result_shape);
        prop_assert_eq!(parsed.is_ok(), RESULTS.is_valid(&packet), "{:?} {}", parsed, packet);
    }

    #[test]
    fn parsing_never_panics(bytes: Vec<u8>) {
        let _ = Assignment::parse(&bytes);
        let _ = ResultPacket::parse(&bytes);
    }
}
