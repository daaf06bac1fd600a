//! Node ids: they go into paths and commit messages, so their alphabet is small.

/// The id under which repair steps are recorded; no node may have it.
pub const REPAIR_NODE: &str = "repair-tree";

/// The longest id, in bytes.
pub const MAX_LEN: usize = 64;

/// Whether `id` has the form of a node id (the reserved one included).
pub fn is_well_formed(id: &str) -> bool {
    (1..=MAX_LEN).contains(&id.len())
        && id != "."
        && id != ".."
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (id, good) in [
            ("root", true),
            ("a.b_c-D9", true),
            ("...", true),
            (&"x".repeat(64), true),
            (&"x".repeat(65), false),
            ("", false),
            (".", false),
            ("..", false),
            ("a/b", false),
            ("a b", false),
            ("ä", false),
            ("a\n", false),
        ] {
            assert_eq!(is_well_formed(id), good, "{id:?}");
        }
    }
}
