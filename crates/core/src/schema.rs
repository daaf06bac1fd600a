//! The published JSON schemas, as this binary knows them.
//!
//! The typed parsers are what the runner itself uses; the schemas are for everyone
//! else, and tests hold both to accept the same documents.

/// Schema of `.runner/state/tree.json`, kept in a project as `.runner/state/schema.json`.
pub const TREE: &str = include_str!("../../../schemas/tree.schema.json");

/// Schema of a session's report, kept in a project as
/// `.runner/state/agent_output.schema.json`.
pub const AGENT_OUTPUT: &str = include_str!("../../../schemas/agent_output.schema.json");

/// The report's schema for a model's constrained decoding.
///
/// Providers differ in which keywords they take there (lengths and `$id` are refused
/// by some), so only those that all of them know remain; the lengths are checked by
/// [`crate::output::AgentOutput::parse`] afterwards anyway.
pub const AGENT_OUTPUT_FOR_MODELS: &str = concat!(
    r#"{"type":"object","properties":{"#,
    r#""status":{"type":"string","enum":["done","retry","decomposed"]},"#,
    r#""summary":{"type":"string"}},"#,
    r#""required":["status","summary"],"additionalProperties":false}"#
);

/// The schemas of this crate with their names.
pub const ALL: &[(&str, &str)] = &[("tree", TREE), ("agent_output", AGENT_OUTPUT)];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::output::{AgentOutput, MAX_SUMMARY_CHARS};

    fn schema(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn published_schemas_are_valid_and_strict() {
        for (name, text) in ALL {
            let schema = schema(text);
            assert!(jsonschema::meta::is_valid(&schema), "{name}");
            assert_eq!(
                schema["$schema"],
                "https://json-schema.org/draft/2020-12/schema"
            );
            assert!(schema["$id"].as_str().unwrap().starts_with("runner:"));
            let object = if schema["$defs"]["node"].is_object() {
                &schema["$defs"]["node"]
            } else {
                &schema
            };
            assert_eq!(object["additionalProperties"], false, "{name}");
            let mut keys: Vec<&str> = object["properties"]
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            let mut required: Vec<&str> = object["required"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            keys.sort_unstable();
            required.sort_unstable();
            assert_eq!(keys, required, "{name}");
        }
    }

    #[test]
    fn the_models_copy_says_the_same_but_the_lengths() {
        fn strip(value: &mut Value) {
            if let Value::Object(map) = value {
                map.retain(|key, _| {
                    !key.starts_with('$')
                        && !matches!(&**key, "title" | "description" | "minLength" | "maxLength")
                });
                map.values_mut().for_each(strip);
            }
        }
        let mut published = schema(AGENT_OUTPUT);
        strip(&mut published);
        assert_eq!(published, schema(AGENT_OUTPUT_FOR_MODELS));
    }

    #[test]
    fn tree_schema_cases() {
        let validator = jsonschema::validator_for(&schema(TREE)).unwrap();
        let node = |changes: Value| {
            let mut node = json!({
                "id": "root", "order": 0, "title": "t", "goal": "g", "acceptance": ["a"],
                "passes": false, "attempts": 0, "max_attempts": 3, "children": []
            });
            for (key, value) in changes.as_object().unwrap() {
                node[key] = value.clone();
            }
            node
        };
        for (changes, good) in [
            (json!({}), true),
            (json!({"children": [node(json!({"id": "a.B_c-9"}))]}), true),
            (json!({"order": i64::MIN}), true),
            (json!({"order": i64::MAX}), true),
            (json!({"order": i128::from(i64::MAX) + 1}), false),
            (json!({"order": 1.5}), false),
            (json!({"attempts": u32::MAX}), true),
            (json!({"attempts": u64::from(u32::MAX) + 1}), false),
            (json!({"attempts": -1}), false),
            (json!({"max_attempts": 0}), false),
            (json!({"max_attempts": u32::MAX}), true),
            (json!({"max_attempts": u64::from(u32::MAX) + 1}), false),
            (json!({"id": ""}), false),
            (json!({"id": "."}), false),
            (json!({"id": ".."}), false),
            (json!({"id": "..."}), true),
            (json!({"id": "a/b"}), false),
            (json!({"id": "a\n"}), false),
            (json!({"id": "x".repeat(64)}), true),
            (json!({"id": "x".repeat(65)}), false),
            (json!({"acceptance": [1]}), false),
            (json!({"extra": 1}), false),
            (json!({"passes": "no"}), false),
            (json!({"children": [{"id": "a"}]}), false),
        ] {
            assert_eq!(
                validator.is_valid(&node(changes.clone())),
                good,
                "{changes}"
            );
        }
        let mut missing = node(json!({}));
        missing.as_object_mut().unwrap().remove("goal");
        assert!(!validator.is_valid(&missing));
    }

    fn near_status() -> impl Strategy<Value = Value> {
        prop_oneof![
            6 => prop::sample::select(vec!["done", "retry", "decomposed"]).prop_map(Value::from),
            1 => prop::sample::select(vec!["Done", "", "done ", "stuck"]).prop_map(Value::from),
            1 => odd_value(),
        ]
    }

    fn near_summary() -> impl Strategy<Value = Value> {
        prop_oneof![
            4 => "(?s).{1,20}".prop_map(Value::from),
            2 => (MAX_SUMMARY_CHARS - 1..=MAX_SUMMARY_CHARS + 1, prop::sample::select(vec!["x", "ß", "🦀"]))
                .prop_map(|(n, c)| Value::from(c.repeat(n))),
            1 => Just(Value::from("")),
            1 => odd_value(),
        ]
    }

    fn odd_value() -> impl Strategy<Value = Value> {
        prop::sample::select(vec![
            Value::Null,
            json!(true),
            json!(1),
            json!(1.5),
            json!([]),
            json!(["done"]),
            json!({}),
            json!({"done": null}),
        ])
    }

    fn near_valid() -> impl Strategy<Value = Value> {
        let object = (
            prop::option::weighted(0.9, near_status()),
            prop::option::weighted(0.9, near_summary()),
            prop::option::weighted(0.1, ("[a-z]{1,8}", odd_value())),
        )
            .prop_map(|(status, summary, extra)| {
                let mut map = Map::new();
                map.extend(extra);
                map.extend(status.map(|status| ("status".to_owned(), status)));
                map.extend(summary.map(|summary| ("summary".to_owned(), summary)));
                Value::Object(map)
            });
        prop_oneof![9 => object, 1 => odd_value()]
    }

    proptest! {
        #[test]
        fn parser_and_schema_accept_the_same_reports(document in near_valid()) {
            // Built once: compiling is what takes the time.
            static VALIDATOR: std::sync::LazyLock<jsonschema::Validator> =
                std::sync::LazyLock::new(|| {
                    jsonschema::validator_for(&schema(AGENT_OUTPUT)).unwrap()
                });
            let bytes = serde_json::to_vec(&document).unwrap();
            let parsed = AgentOutput::parse(&bytes);
            prop_assert_eq!(parsed.is_ok(), VALIDATOR.is_valid(&document), "{:?}", parsed);
        }
    }
}
