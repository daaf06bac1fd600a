//! What Makefiles and justfiles take in, and files that would stand for a target of make.

use std::collections::BTreeSet;

/// The files that a Makefile includes, as far as they are named; globs where it includes by those.
pub(super) fn included(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| {
        let line = line.trim_start();
        ["include ", "-include ", "sinclude "]
            .iter()
            .find_map(|word| line.strip_prefix(word))
    });
    let spelled = lines.map(|line| line.replace("$(wildcard ", "").replace("${wildcard ", ""));
    let mut found = Vec::new();
    for line in spelled {
        let paths = line.split_whitespace().map(|path| {
            let path = path.trim_end_matches([')', '}']);
            path.strip_prefix("./").unwrap_or(path)
        });
        let inside = paths.filter(|path| {
            let is_outside = path.is_empty() || path.starts_with('/') || path.starts_with("..");
            !is_outside && !path.contains(['$', '%'])
        });
        found.extend(inside.map(str::to_owned));
    }
    found
}

/// The files that a justfile imports.
pub(super) fn imported(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let named = lines.clone().filter_map(|line| {
        let rest = line
            .strip_prefix("import? ")
            .or_else(|| line.strip_prefix("import "))?;
        let path = rest.trim().trim_matches(['\'', '"']);
        Some(path.strip_prefix("./").unwrap_or(path).to_owned())
    });
    let modules = lines.filter_map(|line| {
        let rest = line
            .strip_prefix("mod? ")
            .or_else(|| line.strip_prefix("mod "))?;
        let name = rest.split_whitespace().next()?;
        Some([
            format!("{name}.just"),
            format!("{name}/mod.just"),
            format!("{name}/justfile"),
        ])
    });
    let modules: Vec<String> = modules.flatten().collect();
    named.chain(modules).collect()
}

/// The wanted targets, and those they lead to, that are not phony and have recipes: with a file of
/// such a name make has nothing to do.
pub(super) fn targets_that_files_stand_for(text: &str, wanted: &[&str]) -> Vec<String> {
    let rules: Vec<MakeRule<'_>> = text.lines().filter_map(MakeRule::parse).collect();
    let phony: BTreeSet<&str> = rules
        .iter()
        .filter(|rule| rule.targets.contains(&".PHONY"))
        .flat_map(|rule| rule.needed.iter().copied())
        .collect();
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = wanted.to_vec();
    let mut seen: BTreeSet<&str> = open.iter().copied().collect();
    while let Some(name) = open.pop() {
        let own = rules.iter().filter(|rule| rule.targets.contains(&name));
        for rule in own {
            if !phony.contains(name) {
                found.insert(name.to_owned());
            }
            open.extend(rule.needed.iter().filter(|needed| seen.insert(needed)));
        }
    }
    found.into_iter().collect()
}

/// `targets: what they need`.
struct MakeRule<'t> {
    targets: Vec<&'t str>,
    needed: Vec<&'t str>,
}

impl<'t> MakeRule<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        if line.starts_with(['\t', '#', ' ']) {
            return None;
        }
        let (targets, rest) = line.split_once(':')?;
        // An assignment, such as `A := b`, or something that only make can read.
        if rest.starts_with('=') || targets.contains(['=', '$', '%']) {
            return None;
        }
        let needed = rest.trim_start_matches(':').split(['#', ';']).next()?;
        Some(MakeRule {
            targets: targets.split_whitespace().collect(),
            needed: needed.split_whitespace().filter(|it| *it != "|").collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_makefile_includes() {
        let text = "include ./rules/a.mk .make/b.mk\n-include $(wildcard rules/*.mk)\nsinclude $(OUT)/c.mk ../d.mk /e.mk\n";
        assert_eq!(included(text), ["rules/a.mk", ".make/b.mk", "rules/*.mk"]);
    }

    #[test]
    fn files_that_stand_for_targets() {
        let text = "A := b\nall: lint test\n.PHONY: all lint\ntest: build | out\n\t./run\nlint:\n\tx\nbuild: src/a.c\n\tcc\n";
        assert_eq!(
            targets_that_files_stand_for(text, &["all"]),
            ["build", "test"]
        );
        let phony = format!("{text}.PHONY: test build\n");
        assert!(targets_that_files_stand_for(&phony, &["all"]).is_empty());
        assert!(targets_that_files_stand_for(text, &["other"]).is_empty());
    }
}
