//! What holds for every tree there could be.

use super::forms::told;
use super::parsing::{PARTS, findings};
use super::*;

/// A value for a field, often of another type or just beyond a limit.
fn odd_value() -> impl Strategy<Value = Value> {
    let words = [
        "",
        ".",
        "..",
        "...",
        "a",
        "a/b",
        "a\n",
        "\na",
        "é",
        "repair-tree",
    ];
    let mut values: Vec<Value> = words.iter().map(|word| json!(word)).collect();
    values.extend([64, 65].map(|n| json!("x".repeat(n))));
    values.extend([0, 1, 3, -1, i64::MIN, i64::MAX].map(|n| json!(n)));
    values.extend([u64::from(u32::MAX), 1 << 32, u64::MAX].map(|n| json!(n)));
    values.extend([
        json!(1.5),
        json!(1e300),
        json!(null),
        json!(true),
        json!(false),
    ]);
    values.extend([
        json!([]),
        json!([1]),
        json!(["x"]),
        json!({}),
        json!([{}]),
        json!([[]]),
    ]);
    prop::sample::select(values)
}

fn node_at(value: &mut Value, mut index: usize) -> Option<&mut Value> {
    fn find<'v>(value: &'v mut Value, index: &mut usize) -> Option<&'v mut Value> {
        if *index == 0 {
            return Some(value);
        }
        *index -= 1;
        let children = value.get_mut("children")?.as_array_mut()?;
        children.iter_mut().find_map(|child| find(child, index))
    }
    find(value, &mut index)
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(root in any_tree(40)) {
        let mut pretty = serde_json::to_vec_pretty(&root).unwrap();
        pretty.push(b'\n');
        prop_assert_eq!(&to_bytes(&root), &pretty);
        let bytes = to_bytes(&root);
        prop_assert_eq!(findings(&bytes), Vec::<String>::new());
        let read = parse(&bytes).unwrap();
        prop_assert_eq!(&read, &root);
        prop_assert_eq!(&to_bytes(&read), &bytes);
        prop_assert_eq!(told(&root, &read), Vec::<String>::new());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        prop_assert!(!findings(&bytes).is_empty());
    }

    #[test]
    fn damaged_trees_are_read_or_refused(
        root in any_tree(6),
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<u8>()), 1..4),
    ) {
        let bytes = damaged(to_bytes(&root), &damages);
        if let Ok(read) = parse(&bytes) {
            let again = to_bytes(&read);
            prop_assert_eq!(parse(&again).unwrap(), read);
        }
    }

    #[test]
    fn parser_and_schema_accept_the_same_trees(
        root in any_tree(8),
        defects in prop::collection::vec((0_usize..8, 0_usize..10, prop::option::of(odd_value())), 0..3),
    ) {
        // Built once: compiling is what takes the time.
        static VALIDATOR: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
            let schema = serde_json::from_str(crate::schema::TREE).unwrap();
            jsonschema::validator_for(&schema).unwrap()
        });
        let mut document = serde_json::to_value(&root).unwrap();
        for (node, field, value) in defects {
            let field = PARTS.get(field).map_or("more", |(name, _)| name);
            let Some(Value::Object(node)) = node_at(&mut document, node) else { continue };
            match value {
                Some(value) => drop(node.insert(field.to_owned(), value)),
                None => drop(node.remove(field)),
            }
        }
        let bytes = serde_json::to_vec(&document).unwrap();
        let read = parse(&bytes);
        prop_assert_eq!(read.is_ok(), VALIDATOR.is_valid(&document), "{} {:?}", document, read);
    }

    #[test]
    fn a_sketch_is_a_tree(root in any_tree(20)) {
        prop_assert_eq!(sketch(&plan(&sketch(&root))), sketch(&root));
    }
}
