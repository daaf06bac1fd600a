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

/// Globs of the files that a Makefile includes by names that only make can read
/// (`-include $(OBJS:.o=.d)`): by what those end with.
pub(super) fn included_by_variable(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let words = ["include ", "-include ", "sinclude "];
        words.iter().find_map(|word| line.strip_prefix(word))
    });
    let mut found = BTreeSet::new();
    let words = lines.flat_map(parts).flat_map(|word| {
        // Those without a variable are named.
        let inner = ["$(wildcard ", "${wildcard "];
        let inner = inner.iter().find_map(|begin| word.strip_prefix(begin));
        inner.map_or_else(|| vec![word], |it| parts(&it[..it.len().saturating_sub(1)]))
    });
    for word in words.filter(|word| word.contains('$')) {
        let mut known = BTreeSet::new();
        let mut ends = BTreeSet::new();
        ends_of(word, text, &mut known, &mut ends);
        if ends.is_empty() {
            // What compilers write for make is the usual case.
            ends.extend(["**/*.d".to_owned(), "**/*.mk".to_owned()]);
        }
        found.append(&mut ends);
    }
    found.into_iter().collect()
}

/// The words of a line; what is in parentheses is one.
fn parts(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut depth, mut begin) = (0_usize, None);
    for (at, letter) in line.char_indices() {
        match letter {
            '(' | '{' => depth += 1,
            ')' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if letter.is_whitespace() && depth == 0 {
            found.extend(begin.take().map(|begin: usize| &line[begin..at]));
        } else if begin.is_none() {
            begin = Some(at);
        }
    }
    found.extend(begin.map(|begin| &line[begin..]));
    found
}

/// What the names of a word end with: by its own ending, or by the last one that its variables name.
fn ends_of(word: &str, text: &str, known: &mut BTreeSet<String>, ends: &mut BTreeSet<String>) {
    let literal = word.rsplit([')', '}']).next().unwrap_or_default();
    if !literal.is_empty() {
        let name = literal.rsplit('/').next().unwrap_or_default();
        if !name.is_empty() && !name.contains(['$', '%', '(']) {
            let glob = match (literal.starts_with('/'), name.strip_prefix('.')) {
                (true, _) => format!("**/{name}"),
                (false, _) => format!("**/*{name}"),
            };
            ends.insert(glob.replace("**/**", "**/*"));
        }
        return;
    }
    // `$(X:.o=.d)`, `$(patsubst %.c,$(OUT)/%.d,$(SRC))`
    let is_end = |it: &&str| {
        let rest = it.strip_prefix('.').unwrap_or_default();
        !rest.is_empty() && rest.chars().all(|it| it.is_ascii_alphanumeric())
    };
    let own = word
        .split(|it: char| !(it.is_ascii_alphanumeric() || it == '.' || it == '_'))
        .filter(is_end);
    let own: Vec<&str> = own.collect();
    if word.contains(':') || word.contains("patsubst") || word.contains("addsuffix") {
        ends.extend(own.iter().map(|end| format!("**/*{end}")));
        return;
    }
    let name = word.trim_start_matches(['$', '(', '{']);
    let name = name.trim_end_matches([')', '}']).trim();
    if !known.insert(name.to_owned()) {
        return;
    }
    for line in text.lines() {
        let Some((left, value)) = line.split_once('=') else {
            continue;
        };
        if left.trim_end_matches([':', '+', '?', ' ', '\t']).trim() != name {
            continue;
        }
        for word in parts(value) {
            if word.contains('$') {
                ends_of(word, text, known, ends);
            } else {
                ends.insert(word.strip_prefix("./").unwrap_or(word).to_owned());
            }
        }
    }
    ends.retain(|it| !it.starts_with(['/', '.', '-', '|']));
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
    fn what_a_makefile_includes_by_variables() {
        for (text, expected) in [
            ("-include $(OBJS:.o=.d)\n", &["**/*.d", "**/*.o"][..]),
            (
                "DEPS := $(SRC:%.c=%.dep)\n-include $(DEPS)\n",
                &["**/*.c", "**/*.dep"],
            ),
            ("X = a.mk b.mk\ninclude $(X)\n", &["a.mk", "b.mk"]),
            ("sinclude $(OUT)/c.mk\n", &["**/c.mk"]),
            ("include $(wildcard $(D)/*.inc)\n", &["**/*.inc"]),
            ("include $(wildcard rules/*.mk)\n", &[]),
            ("include a.mk\n", &[]),
        ] {
            assert_eq!(included_by_variable(text), expected, "{text}");
        }
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
