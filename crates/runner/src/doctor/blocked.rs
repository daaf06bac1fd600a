//! What a person is told of a guard that is refused paths in the sandbox.

use std::path::{Path, PathBuf};

use crate::grants::{GrantAdvice, GrantContext};

/// What to do about it. `written` and `read`: what `[sandbox.guard]` has in its lists by now.
pub(super) fn remedy(
    denied: &[PathBuf],
    (written, read): (&[String], &[String]),
    context: &GrantContext<'_>,
) -> String {
    let mut advice: Vec<GrantAdvice> = denied.iter().map(|path| context.advise(path)).collect();
    advice.sort();
    advice.dedup();
    let (mut writable, mut hidden, mut closed) = (Vec::new(), Vec::new(), Vec::new());
    for it in &advice {
        match it {
            GrantAdvice::Writable(path) => writable.push(path.as_path()),
            GrantAdvice::Hidden(path) => hidden.push(path.as_path()),
            GrantAdvice::Closed(path) => closed.push(path.as_path()),
        }
    }
    let shown =
        |paths: &[&Path]| -> Vec<String> { paths.iter().map(|path| context.shown(path)).collect() };
    let complete = |list: &[String], paths: &[&Path]| {
        let all = list.iter().cloned().chain(shown(paths));
        all.map(|path| format!("{path:?}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut said = Vec::new();
    if !writable.is_empty() {
        let mut text = format!(
            "it could not write to {}; in .runner/state/config.toml: [sandbox.guard] writable = [{}]",
            shown(&writable).join(", "),
            complete(written, &writable)
        );
        if writable.iter().any(|path| (context.kind)(path).is_none()) {
            text.push_str("; make it first, for what is not there is left out");
        }
        said.push(text);
    }
    if !hidden.is_empty() {
        said.push(format!(
            "{} is hidden: open it with [sandbox.guard] readable = [{}] if the guard is to have it",
            shown(&hidden).join(", "),
            complete(read, &hidden)
        ));
    }
    if !closed.is_empty() {
        said.push(format!(
            "it was refused {}, which stays closed because it decides verdicts, is shared or holds \
             something that is: let it write below $TMPDIR or to a folder of its own",
            shown(&closed).join(", ")
        ));
    }
    if said.is_empty() {
        return "its output names no folder that it could not write to: find out where it writes, and add that folder to [sandbox.guard] writable"
            .to_owned();
    }
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::PathKind;

    #[test]
    fn the_line_for_the_config_is_complete() {
        let context = GrantContext {
            home: Some("/h/u".into()),
            on_path: Vec::new(),
            closed: vec!["/h/u/bin/check.sh".into()],
            hidden: vec!["/h/u/.kube".into()],
            kind: &|path| {
                let there = ["/", "/h", "/h/u", "/h/u/.tool"];
                let is_there = there.iter().any(|it| Path::new(it) == path);
                is_there.then_some(PathKind::Folder)
            },
        };
        let lists = (&["~/.cache".to_owned()][..], &["~/.netrc".to_owned()][..]);
        let told = |paths: &[&str]| {
            let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            remedy(&paths, lists, &context)
        };
        assert_eq!(
            told(&["/h/u/.tool/x", "/h/u/.tool/y"]),
            "it could not write to ~/.tool; in .runner/state/config.toml: [sandbox.guard] writable = [\"~/.cache\", \"~/.tool\"]"
        );
        assert!(
            told(&["/h/u/.new/x"])
                .ends_with("\"~/.new\"]; make it first, for what is not there is left out")
        );
        assert_eq!(
            told(&["/h/u/.kube/config"]),
            "~/.kube/config is hidden: open it with [sandbox.guard] readable = [\"~/.netrc\", \"~/.kube/config\"] \
             if the guard is to have it"
        );
        let closed = told(&["/h/u/bin/check.sh"]);
        assert!(
            closed.starts_with("it was refused ~/bin/check.sh, which stays closed"),
            "{closed}"
        );
        assert!(!closed.contains("[sandbox"), "{closed}");
        assert!(told(&[]).contains("names no folder"));
    }
}
