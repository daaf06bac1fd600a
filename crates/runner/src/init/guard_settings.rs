//! Files of the project that the settings of a test tool name: what runs before the tests, around
//! them, or instead of them.

/// Settings of jest and vitest whose value is code that they run.
const CODE_SETTINGS: [&str; 17] = [
    "setupFiles",
    "setupFilesAfterEnv",
    "globalSetup",
    "globalTeardown",
    "preset",
    "transform",
    "reporters",
    "runner",
    "testRunner",
    "testEnvironment",
    "environment",
    "testSequencer",
    "resolver",
    "snapshotSerializers",
    "testResultsProcessor",
    "dependencyExtractor",
    "projects",
];

/// The texts behind those settings of a config of jest or vitest.
pub(super) fn code_settings(text: &str) -> Vec<String> {
    let text = text.replace("<rootDir>/", "./");
    let mut found = Vec::new();
    for name in CODE_SETTINGS {
        for (at, _) in text.match_indices(name) {
            let rest = text[at + name.len()..].trim_start_matches(['"', '\'']);
            let Some(value) = rest.trim_start().strip_prefix(':').map(str::trim_start) else {
                continue;
            };
            let end = match value.chars().next() {
                Some('[') => value.find(']'),
                Some('{') => value.find('}'),
                _ => value.find(['\n', ',', '}']),
            };
            found.push(value[..end.unwrap_or(value.len())].to_owned());
        }
    }
    found
}

/// The modules that pytest loads because its options or a conftest.py name them, as files.
pub(super) fn pytest_plugins(text: &str) -> Vec<String> {
    let is_word = |word: &&str| !word.is_empty();
    let words: Vec<&str> = text
        .split(|letter: char| letter.is_whitespace() || "\"'[](),=".contains(letter))
        .filter(is_word)
        .collect();
    let mut names: Vec<&str> = words
        .windows(2)
        .filter(|pair| pair[0] == "-p")
        .map(|pair| pair[1])
        .collect();
    names.extend(words.iter().filter_map(|word| {
        let name = word.strip_prefix("-p")?;
        (!name.is_empty() && !name.starts_with('-')).then_some(name)
    }));
    if let Some((_, rest)) = text.split_once("pytest_plugins") {
        let list = rest.trim_start_matches([' ', '=']);
        let end = match list.chars().next() {
            Some('[') => list.find(']'),
            Some('(') => list.find(')'),
            _ => list.find('\n'),
        };
        let list = &list[..end.unwrap_or(list.len())];
        names.extend(list.split(['"', '\'']).skip(1).step_by(2));
    }
    let modules = names.into_iter().filter(|name| {
        let mut letters = name.chars();
        letters.all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '.'))
    });
    modules
        .map(|name| name.replace('.', "/"))
        .flat_map(|path| [format!("{path}.py"), format!("{path}/__init__.py")])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_settings_name() {
        let text = "module.exports = {\n  setupFiles: ['<rootDir>/tools/a.js',\n    './b.js'],\n  \"globalSetup\": './c.js',\n  roots: ['./src'],\n  transform: {'x': './d.js'},\n};\n";
        let found = code_settings(text).join(" ");
        for path in ["./tools/a.js", "./b.js", "./c.js", "./d.js"] {
            assert!(found.contains(path), "{path}: {found}");
        }
        assert!(!found.contains("./src"), "{found}");
    }

    #[test]
    fn plugins_of_pytest() {
        let text = "[pytest]\naddopts = -q -p tools.plugin -pother\n";
        let found = pytest_plugins(text);
        assert!(found.contains(&"tools/plugin.py".to_owned()), "{found:?}");
        assert!(found.contains(&"other.py".to_owned()), "{found:?}");
        let found = pytest_plugins("import os\npytest_plugins = [\"a.b\", 'c']\nX = 'd'\n");
        assert_eq!(
            found,
            ["a/b.py", "a/b/__init__.py", "c.py", "c/__init__.py"]
        );
        assert!(pytest_plugins("python3 -m pytest -q tests\n").is_empty());
    }
}
