//! The canonical form: fixed key order, two spaces, one trailing newline.

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::Node;

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        let mut object = output.serialize_struct("Node", 9)?;
        object.serialize_field("id", &self.id)?;
        object.serialize_field("order", &self.order)?;
        object.serialize_field("title", &self.title)?;
        object.serialize_field("goal", &self.goal)?;
        object.serialize_field("acceptance", &self.acceptance)?;
        object.serialize_field("passes", &self.passes)?;
        object.serialize_field("attempts", &self.attempts)?;
        object.serialize_field("max_attempts", &self.max_attempts)?;
        object.serialize_field("children", &self.children)?;
        object.end()
    }
}

/// The bytes of tree.json for a tree whose children are sorted.
pub fn to_bytes(root: &Node<'_>) -> Vec<u8> {
    let mut bytes = to_json(root).into_bytes();
    bytes.push(b'\n');
    bytes
}

/// The canonical JSON of a subtree, without the trailing newline.
pub fn to_json(node: &Node<'_>) -> String {
    // Strings, integers and lists only: there is nothing that could fail.
    serde_json::to_string_pretty(node).unwrap_or_default()
}
