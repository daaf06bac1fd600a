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
    let mut writer = TreeWriter {
        bytes: Vec::with_capacity(estimated_len(node, 0)),
    };
    writer.node(node, 0);
    writer.bytes
}

/// What serde_json's pretty printer writes, in a third of the time: there are nine known fields, and
/// most texts need no escapes. A property test holds the two together.
struct TreeWriter {
    bytes: Vec<u8>,
}

impl TreeWriter {
    fn node(&mut self, node: &Node<'_>, level: usize) {
        self.bytes.push(b'{');
        self.field(level, "\"id\": ", |it| it.text(&node.id));
        self.field(level, ",\"order\": ", |it| it.number(node.order));
        self.field(level, ",\"title\": ", |it| it.text(&node.title));
        self.field(level, ",\"goal\": ", |it| it.text(&node.goal));
        self.field(level, ",\"acceptance\": ", |it| {
            it.list(level + 1, &node.acceptance, |it, text| it.text(text));
        });
        self.field(level, ",\"passes\": ", |it| {
            let word: &[u8] = if node.passes { b"true" } else { b"false" };
            it.bytes.extend_from_slice(word);
        });
        self.field(level, ",\"attempts\": ", |it| it.number(node.attempts));
        self.field(level, ",\"max_attempts\": ", |it| {
            it.number(node.max_attempts);
        });
        self.field(level, ",\"children\": ", |it| {
            it.list(level + 1, &node.children, |it, child| {
                it.node(child, level + 2);
            });
        });
        self.new_line(level);
        self.bytes.push(b'}');
    }

    /// A field on a line of its own, one level in; a comma before its name ends the line before.
    fn field(&mut self, level: usize, name: &str, value: impl FnOnce(&mut Self)) {
        let name = match name.strip_prefix(',') {
            Some(name) => {
                self.bytes.push(b',');
                name
            }
            None => name,
        };
        self.new_line(level + 1);
        self.bytes.extend_from_slice(name.as_bytes());
        value(self);
    }

    fn list<T>(&mut self, level: usize, items: &[T], item: impl Fn(&mut Self, &T)) {
        self.bytes.push(b'[');
        for (number, it) in items.iter().enumerate() {
            if number > 0 {
                self.bytes.push(b',');
            }
            self.new_line(level + 1);
            item(self, it);
        }
        if !items.is_empty() {
            self.new_line(level);
        }
        self.bytes.push(b']');
    }

    fn new_line(&mut self, level: usize) {
        const SPACES: [u8; 64] = [b' '; 64];
        self.bytes.push(b'\n');
        let mut left = 2 * level;
        while left > 0 {
            let now = left.min(SPACES.len());
            self.bytes.extend_from_slice(&SPACES[..now]);
            left -= now;
        }
    }

    fn text(&mut self, text: &str) {
        let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
        if text.bytes().all(plain) {
            self.bytes.push(b'"');
            self.bytes.extend_from_slice(text.as_bytes());
            self.bytes.push(b'"');
        } else {
            // A string cannot fail.
            let _ = serde_json::to_writer(&mut self.bytes, text);
        }
    }

    fn number(&mut self, number: impl Serialize) {
        // Nor can an integer.
        let _ = serde_json::to_writer(&mut self.bytes, &number);
    }
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
