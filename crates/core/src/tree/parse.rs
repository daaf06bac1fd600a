//! From untrusted bytes to a tree, strictly: every field there, none unknown,
//! none twice, at most 64 levels.
//!
//! Hand-written rather than derived for two reasons: strings are borrowed from
//! the input wherever they contain no escapes, and the depth is counted while
//! parsing, so that a tree of 50,000 levels is a finding and not a stack
//! overflow (serde_json's own limit would already refuse level 64).

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::{MAX_LEVELS, Node, TreeFinding, TreeOrder, check};
use crate::ids;
use crate::text::{cut_chars, cut_end, cut_middle, escape_path};

/// Parses a tree and checks what the schema says of each field by itself.
///
/// What concerns nodes together (unique ids, order, levels of attempts) is
/// [`super::check`]'s.
pub fn parse(bytes: &[u8]) -> Result<Node<'_>, Vec<TreeFinding>> {
    let root = read(bytes)?;
    let findings = field_findings(&root);
    valid(root, findings)
}

/// Parses a tree and reports everything that is wrong with it at once, also what
/// concerns nodes together.
pub fn parse_and_check(bytes: &[u8], order: TreeOrder) -> Result<Node<'_>, Vec<TreeFinding>> {
    let root = read(bytes)?;
    let mut findings = field_findings(&root);
    findings.extend(check(&root, order));
    valid(root, findings)
}

/// The tree as far as syntax goes: what is wrong there ends the reading.
fn read(bytes: &[u8]) -> Result<Node<'_>, Vec<TreeFinding>> {
    let mut input = serde_json::Deserializer::from_slice(bytes);
    input.disable_recursion_limit();
    NodeSeed { level: 1 }
        .deserialize(&mut input)
        .and_then(|node| input.end().map(|()| node))
        .map_err(|error| vec![syntax_finding(&error)])
}

fn valid(root: Node<'_>, findings: Vec<TreeFinding>) -> Result<Node<'_>, Vec<TreeFinding>> {
    if findings.is_empty() {
        Ok(root)
    } else {
        Err(findings)
    }
}

/// The longest message of one finding.
const MAX_MESSAGE_BYTES: usize = 400;

fn syntax_finding(error: &serde_json::Error) -> TreeFinding {
    let text = error.to_string();
    let place = format!("line {} column {}", error.line(), error.column());
    // A message can quote a whole value, however long it is.
    let message = |text| cut_middle(text, MAX_MESSAGE_BYTES, 50).into_owned();
    match text.strip_suffix(&format!(" at {place}")) {
        Some(text) => TreeFinding::new(place, message(text)),
        None => TreeFinding::new("tree.json", message(&text)),
    }
}

fn field_findings(root: &Node<'_>) -> Vec<TreeFinding> {
    let mut findings = Vec::new();
    for node in root.walk() {
        if !ids::is_well_formed(&node.id) {
            findings.push(TreeFinding::new(
                format!("node {:?}", cut_end(&node.id, 80)),
                "the id must be 1 to 64 characters of A-Z a-z 0-9 . _ - and not . or ..",
            ));
        }
        if node.max_attempts == 0 {
            findings.push(TreeFinding::new(
                format!("node {:?}", cut_end(&node.id, 80)),
                "max_attempts must be at least 1",
            ));
        }
    }
    findings
}

const FIELDS: &[&str] = &[
    "id",
    "order",
    "title",
    "goal",
    "acceptance",
    "passes",
    "attempts",
    "max_attempts",
    "children",
];

struct NodeSeed {
    level: usize,
}

impl<'de> DeserializeSeed<'de> for NodeSeed {
    type Value = Node<'de>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Node<'de>, D::Error> {
        if self.level > MAX_LEVELS {
            return Err(D::Error::custom(format_args!(
                "the tree is deeper than {MAX_LEVELS} levels"
            )));
        }
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for NodeSeed {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node<'de>, A::Error> {
        let (mut id, mut order, mut title, mut goal) = (None, None, None, None);
        let (mut acceptance, mut passes, mut attempts) = (None, None, None);
        let (mut max_attempts, mut children) = (None, None);
        while let Some(field) = map.next_key_seed(FieldSeed)? {
            match field {
                "id" => put(&mut id, field, map.next_value_seed(TextSeed)?)?,
                "order" => put(&mut order, field, map.next_value()?)?,
                "title" => put(&mut title, field, map.next_value_seed(TextSeed)?)?,
                "goal" => put(&mut goal, field, map.next_value_seed(TextSeed)?)?,
                "acceptance" => put(&mut acceptance, field, map.next_value_seed(TextsSeed)?)?,
                "passes" => put(&mut passes, field, map.next_value()?)?,
                "attempts" => put(&mut attempts, field, map.next_value()?)?,
                "max_attempts" => put(&mut max_attempts, field, map.next_value()?)?,
                _ => {
                    let seed = ChildrenSeed {
                        level: self.level + 1,
                    };
                    put(&mut children, field, map.next_value_seed(seed)?)?;
                }
            }
        }
        Ok(Node {
            id: need(id, "id")?,
            order: need(order, "order")?,
            title: need(title, "title")?,
            goal: need(goal, "goal")?,
            acceptance: need(acceptance, "acceptance")?,
            passes: need(passes, "passes")?,
            attempts: need(attempts, "attempts")?,
            max_attempts: need(max_attempts, "max_attempts")?,
            children: need(children, "children")?,
        })
    }
}

fn put<T, E: de::Error>(slot: &mut Option<T>, field: &'static str, value: T) -> Result<(), E> {
    if slot.replace(value).is_some() {
        return Err(E::duplicate_field(field));
    }
    Ok(())
}

fn need<T, E: de::Error>(slot: Option<T>, field: &'static str) -> Result<T, E> {
    slot.ok_or_else(|| E::missing_field(field))
}

/// A key, as the static name of the field.
struct FieldSeed;

impl<'de> DeserializeSeed<'de> for FieldSeed {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<&'static str, D::Error> {
        input.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldSeed {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<&'static str, E> {
        FIELDS
            .iter()
            .find(|field| **field == name)
            .copied()
            .ok_or_else(|| E::unknown_field(&escape_path(cut_chars(name, 80).as_bytes()), FIELDS))
    }
}

/// A string, borrowed where the input has it verbatim.
struct TextSeed;

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Cow<'de, str>, D::Error> {
        input.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

struct TextsSeed;

impl<'de> DeserializeSeed<'de> for TextsSeed {
    type Value = Vec<Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for TextsSeed {
    type Value = Vec<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = seq.next_element_seed(TextSeed)? {
            texts.push(text);
        }
        Ok(texts)
    }
}

struct ChildrenSeed {
    level: usize,
}

impl<'de> DeserializeSeed<'de> for ChildrenSeed {
    type Value = Vec<Node<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ChildrenSeed {
    type Value = Vec<Node<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut children = Vec::new();
        while let Some(child) = seq.next_element_seed(NodeSeed { level: self.level })? {
            children.push(child);
        }
        Ok(children)
    }
}
