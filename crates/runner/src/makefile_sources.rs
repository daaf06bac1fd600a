//! Files from which make makes a makefile by rules of its own, where that is missing or older: what is
//! protected is not made of anything new either.

use std::path::Path;

/// Endings that make knows how to make a file without one from.
const ENDINGS: &str =
    "{sh,c,cc,cpp,C,o,s,S,f,F,p,r,l,y,m,mod,sym,def,web,w,ch,tex,txinfo,texi,texinfo}";

/// Protected files, and those from which make would make the makefiles among them. They are not in
/// the config, where nobody would want to read them.
pub(crate) fn with_makefile_sources(mut protected: Vec<String>) -> Vec<String> {
    let sources: Vec<String> = protected
        .iter()
        .filter(|entry| is_makefile(entry))
        .flat_map(|entry| sources_of(entry))
        .collect();
    protected.extend(sources);
    protected
}

fn is_makefile(entry: &str) -> bool {
    let path = Path::new(entry);
    let name = path.file_name().and_then(|it| it.to_str());
    let ending = path.extension().and_then(|it| it.to_str());
    !entry.contains(['*', '?', '[', '{', '\\'])
        && (matches!(name, Some("Makefile" | "makefile" | "GNUmakefile"))
            || matches!(ending, Some("mk" | "mak" | "make")))
}

fn sources_of(path: &str) -> Vec<String> {
    let (folder, name) = match path.rsplit_once('/') {
        Some((folder, name)) => (format!("{folder}/"), name),
        None => (String::new(), path),
    };
    vec![
        format!("{path}.{ENDINGS}"),
        format!("{path}.{ENDINGS}.*"),
        format!("{path},v"),
        format!("{folder}RCS/{name}*"),
        format!("{folder}{{s.,SCCS/s.}}{name}*"),
    ]
}

#[cfg(test)]
mod tests {
    use runner_core::paths::GlobList;

    use super::*;

    #[test]
    fn what_makes_a_makefile() {
        let listed = ["sub/Makefile", "local.mk", "ci.sh", "**/*.mk"];
        let all = with_makefile_sources(listed.map(str::to_owned).to_vec());
        let globs = GlobList::new(&all).unwrap();
        for (path, expected) in [
            ("sub/Makefile", true),
            ("sub/Makefile.sh", true),
            ("sub/RCS/Makefile,v", true),
            ("sub/SCCS/s.Makefile", true),
            ("local.mk,v", true),
            ("local.mk.sh", true),
            ("ci.sh.sh", false),
            ("Makefile.sh", false),
            ("src/a.c", false),
        ] {
            assert_eq!(globs.is_match(path.as_bytes()), expected, "{path}");
        }
    }
}
