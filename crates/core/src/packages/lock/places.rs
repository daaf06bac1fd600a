//! Which version a package gets that asks for another one, where packages lie in folders of
//! `node_modules`: the nearest above it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// The packages by their places.
#[derive(Default)]
pub(super) struct PackagePlaces {
    /// What lies there, in words.
    lying: BTreeMap<String, String>,
    /// What each asks for.
    asking: BTreeMap<String, BTreeSet<String>>,
}

impl PackagePlaces {
    /// A package at its place; what lies in no `node_modules` is a part of the project.
    pub(super) fn add(&mut self, place: &str, what: String, entry: &Map<String, Value>) {
        const ASKED: [&str; 4] = [
            "dependencies",
            "optionalDependencies",
            "peerDependencies",
            "devDependencies",
        ];
        let tables = ASKED.iter().filter_map(|key| entry.get(*key)?.as_object());
        let names = tables.flatten().map(|(name, _)| name.clone());
        self.asking.insert(place.to_owned(), names.collect());
        self.lying.insert(place.to_owned(), what);
    }

    /// Who asks for what, and what that is.
    pub(super) fn answers(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut answers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (place, names) in &self.asking {
            let who = match self.lying.get(place) {
                Some(what) if is_installed(place) => what.as_str(),
                _ if place.is_empty() => "the project",
                _ => place,
            };
            for name in names {
                if let Some(what) = self.nearest(place, name) {
                    let asked = format!("{name} for {who}");
                    answers.entry(asked).or_default().insert(what.to_owned());
                }
            }
        }
        answers
    }

    fn nearest(&self, place: &str, name: &str) -> Option<&str> {
        let mut folder = place;
        loop {
            let there = if folder.is_empty() {
                format!("node_modules/{name}")
            } else {
                format!("{folder}/node_modules/{name}")
            };
            if let Some(what) = self.lying.get(&there) {
                return Some(what);
            }
            if folder.is_empty() {
                return None;
            }
            let above = folder
                .rfind("/node_modules/")
                .or_else(|| folder.rfind('/').filter(|_| !is_installed(folder)));
            folder = above.map_or("", |end| &folder[..end]);
        }
    }
}

fn is_installed(place: &str) -> bool {
    place.starts_with("node_modules/") || place.contains("/node_modules/")
}
