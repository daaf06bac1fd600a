//! Folders as the configuration names them.

use std::path::{Path, PathBuf};

/// A folder as the configuration names it: absolute, below the home folder (`~`, `~/x`), or
/// relative to the project. The error is a lowercase fragment.
pub fn expand_home(text: &str, home: Option<&Path>, project: &Path) -> Result<PathBuf, String> {
    let Some(rest) = text.strip_prefix('~') else {
        return Ok(project.join(text));
    };
    let below = match rest.strip_prefix('/') {
        Some(below) => below.trim_start_matches('/'),
        None if rest.is_empty() => "",
        None => return Err(format!("`{text}`: homes of other users are not looked up")),
    };
    let home = home.ok_or_else(|| format!("`{text}`: HOME is not set"))?;
    Ok(home.join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes() {
        let home = Some(Path::new("/h"));
        for (text, expected) in [
            ("~", "/h"),
            ("~/", "/h"),
            ("~/a b", "/h/a b"),
            ("~//a", "/h/a"),
            ("/a", "/a"),
            ("a/~", "/p/a/~"),
            ("", "/p"),
        ] {
            let found = expand_home(text, home, Path::new("/p")).unwrap();
            assert_eq!(found, Path::new(expected), "{text}");
        }
        for (text, home, expected) in [
            (
                "~bob/x",
                home,
                "`~bob/x`: homes of other users are not looked up",
            ),
            ("~/x", None, "`~/x`: HOME is not set"),
        ] {
            let error = expand_home(text, home, Path::new("/p")).unwrap_err();
            assert_eq!(error, expected);
        }
    }
}
