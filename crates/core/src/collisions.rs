//! Names that are one and the same where a file system does not tell upper from lower case.

use std::collections::{BTreeSet, HashMap, HashSet};

/// A new path that cannot lie beside another one on every file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameCollision {
    /// The new path.
    pub path: Vec<u8>,
    /// The file or folder that is there already under another spelling.
    pub with: Vec<u8>,
}

/// Those of the new paths that differ from another one, or lie in a folder that differs from
/// another one, in nothing but case. `known` paths never collide, not with each other either: they
/// were there before. Of several new ones the first in byte order stays.
pub fn name_collisions<'p>(
    known: impl Iterator<Item = &'p [u8]>,
    new: &BTreeSet<&'p [u8]>,
) -> Vec<NameCollision> {
    let asked: HashSet<Vec<u8>> = new
        .iter()
        .flat_map(|path| prefixes(path).map(|(folded, _)| folded))
        .collect();
    if asked.is_empty() {
        return Vec::new();
    }
    let mut spellings: HashMap<Vec<u8>, Vec<&[u8]>> = HashMap::new();
    for path in known {
        // Whoever asks for something in a folder asks for the folder, too.
        for (folded, spelling) in prefixes(path).take_while(|(folded, _)| asked.contains(folded)) {
            note(&mut spellings, folded, spelling);
        }
    }
    let mut found = Vec::new();
    for path in new {
        let other = prefixes(path).find_map(|(folded, spelling)| {
            let there = spellings.get(&folded)?;
            (!there.contains(&spelling)).then(|| there[0].to_vec())
        });
        if let Some(with) = other {
            let path = path.to_vec();
            found.push(NameCollision { path, with });
            continue;
        }
        for (folded, spelling) in prefixes(path) {
            note(&mut spellings, folded, spelling);
        }
    }
    found
}

fn note<'p>(spellings: &mut HashMap<Vec<u8>, Vec<&'p [u8]>>, folded: Vec<u8>, spelling: &'p [u8]) {
    let there = spellings.entry(folded).or_default();
    if !there.contains(&spelling) {
        there.push(spelling);
    }
}

/// The folders above a path and itself, outermost first: without case, and as written.
fn prefixes(path: &[u8]) -> impl Iterator<Item = (Vec<u8>, &[u8])> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let ends = slashes.map(|(at, _)| at).chain([path.len()]);
    ends.map(|end| &path[..end])
        .map(|prefix| (folded(prefix), prefix))
}

fn folded(path: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(path) {
        Ok(text) if !text.is_ascii() => text.to_lowercase().into_bytes(),
        _ => path.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A label, known paths, new ones, and what collides with what.
    type CollisionRow<'a> = (
        &'a str,
        &'a [&'a str],
        &'a [&'a str],
        &'a [(&'a str, &'a str)],
    );

    #[test]
    fn what_collides_with_what() {
        let rows: &[CollisionRow<'_>] = &[
            ("nothing new", &["a", "A"], &[], &[]),
            ("another name", &["a"], &["b", "c/a"], &[]),
            (
                "a tracked one stays",
                &["README.md"],
                &["Readme.md"],
                &[("Readme.md", "README.md")],
            ),
            (
                "of two new ones the first in byte order stays",
                &[],
                &["a.txt", "A.txt", "b"],
                &[("a.txt", "A.txt")],
            ),
            (
                "folders",
                &["src/y"],
                &["Src/x", "Src/deep/z", "src/x"],
                &[("Src/deep/z", "src"), ("Src/x", "src")],
            ),
            (
                "a folder deep down",
                &["a/b/c/d"],
                &["a/B/e", "a/b/e"],
                &[("a/B/e", "a/b")],
            ),
            (
                "a file and a folder",
                &["src/y"],
                &["SRC"],
                &[("SRC", "src")],
            ),
            (
                "both spellings were there before",
                &["a/x", "A/x"],
                &["a/new", "A/other"],
                &[],
            ),
            (
                "beyond ASCII",
                &["Größe"],
                &["GRÖßE"],
                &[("GRÖßE", "Größe")],
            ),
        ];
        for (label, known, new, expected) in rows {
            let known = known.iter().map(|path| path.as_bytes());
            let new = new.iter().map(|path| path.as_bytes()).collect();
            let found: Vec<(String, String)> = name_collisions(known, &new)
                .into_iter()
                .map(|it| [it.path, it.with].map(|it| String::from_utf8(it).unwrap()))
                .map(|[path, with]| (path, with))
                .collect();
            let expected: Vec<(String, String)> = expected
                .iter()
                .map(|(path, with)| ((*path).to_owned(), (*with).to_owned()))
                .collect();
            assert_eq!(found, expected, "{label}");
        }
        let bytes: [&[u8]; 2] = [b"\xff", b"\xfe"];
        let found = name_collisions(bytes[..1].iter().copied(), &BTreeSet::from([bytes[1]]));
        assert_eq!(found, []);
    }
}
