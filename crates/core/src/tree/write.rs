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
    let mut bytes = write(root);
    bytes.push(b'\n');
    bytes
}

/// The canonical JSON of a subtree, without the trailing newline.
pub fn to_json(node: &Node<'_>) -> String {
    String::from_utf8(write(node)).unwrap_or_default()
}

fn write(node: &Node<'_>) -> Vec<u8> {
    // A large tree is written once into a buffer that does not have to grow.
    let mut bytes = Vec::with_capacity(estimated_len(node, 0));
    // Strings, integers and lists only: there is nothing that could fail.
    let _ = serde_json::to_writer_pretty(&mut bytes, node);
    bytes
}

/// About how long the canonical form is: texts, names of fields, indentation.
fn estimated_len(node: &Node<'_>, level: usize) -> usize {
    const NAMES: usize = 160;
    let indent = 11 * (2 + 4 * level);
    let texts = node.id.len() + node.title.len() + node.goal.len();
    let acceptance: usize = node
        .acceptance
        .iter()
        .map(|text| text.len() + 8 + 4 * level)
        .sum();
    let children: usize = node
        .children
        .iter()
        .map(|child| estimated_len(child, level + 1))
        .sum();
    NAMES + indent + texts + texts / 16 + acceptance + children
}
