//! For tests: schemas that are generated from the types, as the published ones must be.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, transform::transform_subschemas};
use serde_json::{Value, json};

/// Every object takes its own fields only, and a choice of words is an `enum`: agents
/// understand no more than that.
fn strict(schema: &mut Schema) {
    let words: Option<Vec<Value>> = schema
        .get("oneOf")
        .and_then(Value::as_array)
        .and_then(|all| all.iter().map(|one| one.get("const").cloned()).collect());
    if let Some(words) = words {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), json!("string"));
        schema.insert("enum".to_owned(), json!(words));
    }
    if let Some(object) = schema.as_object_mut()
        && object.contains_key("properties")
    {
        object.insert("additionalProperties".to_owned(), json!(false));
    }
    transform_subschemas(&mut strict, schema);
}

pub(super) fn generated<T: JsonSchema>(id: &str) -> String {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.transforms.push(Box::new(strict));
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("$id".to_owned(), json!(id));
    serde_json::to_string_pretty(&schema).unwrap() + "\n"
}

pub(super) fn assert_fresh(file: &str, published: &str, fresh: &str) {
    let schema: Value = serde_json::from_str(fresh).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    assert!(
        published == fresh,
        "schemas/{file}.schema.json is stale; it should read\n{fresh}"
    );
}
