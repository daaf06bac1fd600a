//! Folders outside the project that stay writable: the caches of package managers, and what the
//! configuration names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The package caches that exist, where the tools themselves would look for them.
///
/// `var` is the environment of the child; `PATH` in it tells which folders programs are run from.
/// Those never become writable: of a cache with such a folder inside, only what lies beside it does.
pub fn default_caches(home: &Path, var: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let folder = |name: &str| {
        let path = PathBuf::from(var(name)?);
        path.is_absolute().then_some(path)
    };
    let cargo = folder("CARGO_HOME").unwrap_or_else(|| home.join(".cargo"));
    // A list, of which the first one takes the downloads.
    let go = var("GOPATH")
        .and_then(|list| std::env::split_paths(&list).next())
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| home.join("go"));
    let mut candidates = vec![
        cargo.join("registry"),
        cargo.join("git"),
        folder("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache")),
        home.join(".npm"),
        go.join("pkg"),
    ];
    candidates.extend(folder("GOMODCACHE"));
    candidates.extend(folder("GOCACHE"));

    let on_path: Vec<PathBuf> = var("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .filter(|dir| dir.is_absolute())
        .filter_map(|dir| dir.canonicalize().ok())
        .collect();
    // The locks on the first two, so that several cargos at once, contained or not, still take turns.
    let locks = [".package-cache", ".package-cache-mutate"].map(|name| cargo.join(name));
    let mut caches: Vec<PathBuf> = locks
        .iter()
        .filter_map(|lock| lock.canonicalize().ok())
        .filter(|lock| lock.is_file())
        .collect();
    for candidate in candidates {
        if let Ok(path) = candidate.canonicalize()
            && path.is_dir()
        {
            add_beside(&path, &on_path, &mut caches);
        }
    }
    caches.sort();
    caches.dedup();
    caches
}

/// Adds the folder, or its entries where one of the `excluded` lies in it.
fn add_beside(folder: &Path, excluded: &[PathBuf], found: &mut Vec<PathBuf>) {
    if excluded.iter().any(|other| other == folder) {
        return;
    }
    if !excluded.iter().any(|other| other.starts_with(folder)) {
        found.push(folder.to_owned());
        return;
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        // Links are left out: an earlier session could write here, and may have planted one.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_beside(&entry.path(), excluded, found);
        }
    }
}

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
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(home: &Path, vars: &[(&str, OsString)]) -> String {
        let var = |name: &str| {
            let found = vars.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone())
        };
        let home = home.canonicalize().unwrap();
        let shown: Vec<String> = default_caches(&home, var)
            .iter()
            .map(|path| path.strip_prefix(&home).unwrap().display().to_string())
            .collect();
        shown.join(" ")
    }

    #[test]
    fn caches_that_exist() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(names(home.path(), &[]), "");
        for dir in [
            ".cargo/registry",
            ".cargo/bin",
            ".cache",
            ".npm",
            "go/pkg/mod",
            "go/bin",
        ] {
            fs::create_dir_all(home.path().join(dir)).unwrap();
        }
        fs::write(home.path().join(".cargo/git"), "a file").unwrap();
        fs::write(home.path().join(".cargo/.package-cache"), "").unwrap();
        fs::create_dir(home.path().join(".cargo/.package-cache-mutate")).unwrap();
        let all = ".cache .cargo/.package-cache .cargo/registry .npm go/pkg";
        assert_eq!(names(home.path(), &[]), all);
        let path = |dirs: &[&str]| {
            let dirs = dirs.iter().map(|dir| home.path().join(dir));
            ("PATH", std::env::join_paths(dirs).unwrap())
        };
        assert_eq!(names(home.path(), &[path(&[".cargo/bin", "go/bin"])]), all);
        assert_eq!(
            names(home.path(), &[path(&[".npm", "gone"])]),
            ".cache .cargo/.package-cache .cargo/registry go/pkg"
        );
        assert_eq!(
            names(home.path(), &[("XDG_CACHE_HOME", "relative".into())]),
            all
        );
    }

    #[test]
    fn folders_on_path_inside_a_cache() {
        let home = tempfile::tempdir().unwrap();
        for dir in [
            ".cache/pip",
            ".cache/venvs/a/bin",
            ".cache/venvs/a/lib",
            ".cache/venvs/b",
        ] {
            fs::create_dir_all(home.path().join(dir)).unwrap();
        }
        fs::write(home.path().join(".cache/file"), "").unwrap();
        symlink("/", home.path().join(".cache/planted")).unwrap();
        let on_path = home.path().join(".cache/venvs/a/bin");
        assert_eq!(
            names(home.path(), &[("PATH", on_path.into())]),
            ".cache/pip .cache/venvs/a/lib .cache/venvs/b"
        );
    }

    #[test]
    fn caches_that_were_moved() {
        let home = tempfile::tempdir().unwrap();
        for dir in [
            "c/registry",
            "c/git",
            "x",
            "g1/pkg",
            "g2/pkg",
            "mod",
            "build",
            ".cache",
        ] {
            fs::create_dir_all(home.path().join(dir)).unwrap();
        }
        symlink("build", home.path().join("link")).unwrap();
        let at = |dir: &str| home.path().join(dir).into_os_string();
        let vars = [
            ("CARGO_HOME", at("c")),
            ("XDG_CACHE_HOME", at("x")),
            (
                "GOPATH",
                std::env::join_paths([at("g1"), at("g2")]).unwrap(),
            ),
            ("GOMODCACHE", at("mod")),
            ("GOCACHE", at("link")),
        ];
        assert_eq!(
            names(home.path(), &vars),
            "build c/git c/registry g1/pkg mod x"
        );
    }

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
