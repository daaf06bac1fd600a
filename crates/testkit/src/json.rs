//! Documents that differ from a good one in one place.

use serde_json::Value;

/// Sets the value at a JSON pointer; with null, removes it.
pub fn set_json(document: &mut Value, pointer: &str, value: Value) {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer with a slash");
    let parent = document
        .pointer_mut(parent)
        .expect("a parent that is there");
    if value.is_null() {
        let parent = parent.as_object_mut();
        parent.expect("an object to remove from").remove(name);
    } else if let Ok(index) = name.parse::<usize>() {
        parent[index] = value;
    } else {
        parent[name] = value;
    }
}
