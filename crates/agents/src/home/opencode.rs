//! What is in the folders that opencode uses in a session: one for each of its `XDG_*` variables.

use std::path::{Path, PathBuf};

use runner_core::config::InheritPart;
use serde_json::{Map, Value};

use crate::jsonc;

use super::{HomeContent, HomeEntry, HomeInput, SettingGroup, filtered, object, pretty};

const GROUPS: &[SettingGroup] = &[
    // What answers.
    (
        None,
        &[
            "$schema",
            "provider",
            "model",
            "small_model",
            "enabled_providers",
            "disabled_providers",
        ],
    ),
    (Some(InheritPart::Mcp), &["mcp"]),
    (Some(InheritPart::Hooks), &["plugin", "hook", "hooks"]),
    (Some(InheritPart::Instructions), &["instructions", "skills"]),
];

const LINKS: &[(InheritPart, &[&str])] = &[
    (
        InheritPart::Hooks,
        &[
            "plugin",
            "plugins",
            "tool",
            "tools",
            "node_modules",
            "package.json",
        ],
    ),
    (
        InheritPart::Settings,
        &[
            "agent", "agents", "command", "commands", "mode", "modes", "themes",
        ],
    ),
    (InheritPart::Instructions, &["skill", "skills"]),
];

/// The variables that name the folders, what is usual below HOME, and the names here.
pub(crate) const FOLDERS: &[(&str, &str, &str)] = &[
    ("XDG_CONFIG_HOME", ".config", "config"),
    ("XDG_DATA_HOME", ".local/share", "data"),
    ("XDG_STATE_HOME", ".local/state", "state"),
    ("XDG_CACHE_HOME", ".cache", "cache"),
];

/// What opencode takes for the home folder.
pub(crate) const HOME: &str = "home";

/// The name of its folder in each of them.
const OWN: &str = "opencode";

/// What is in the folders.
pub(crate) fn content(input: &HomeInput<'_>) -> HomeContent {
    let mut content = HomeContent::default();
    for (variable, usual, name) in FOLDERS {
        // Whatever else is looked for there is the person's, as ever.
        let from = input.folder(variable, usual);
        content.mirror(input, (&from, Path::new(name)), &[OWN]);
        let own = Path::new(name).join(OWN);
        content.entries.push(HomeEntry::Folder(own));
    }
    content.entries.push(HomeEntry::Folder(HOME.into()));
    let own = input.folder("XDG_CONFIG_HOME", ".config").join(OWN);
    let config = Path::new("config").join(OWN);
    let settings = settings(input, &own, &mut content);
    content.file(config.join("opencode.json"), pretty(settings));
    content.instructions(input, &own.join("AGENTS.md"), config.join("AGENTS.md"));
    content.links(input, (&own, &config), LINKS);
    if input.has(InheritPart::Mcp) {
        let data = input.folder("XDG_DATA_HOME", ".local/share").join(OWN);
        content.entries.push(HomeEntry::Link(
            Path::new("data").join(OWN).join("mcp-auth.json"),
            data.join("mcp-auth.json"),
        ));
    }
    // The list of models, which would be fetched for each session.
    let cache = input.folder("XDG_CACHE_HOME", ".cache").join(OWN);
    if let Some(models) = (input.read)(&cache.join("models.json")) {
        let path = Path::new("cache").join(OWN).join("models.json");
        content.file(path, models);
    }
    content
}

/// All that a person has set up, in the order in which opencode reads it.
fn settings(input: &HomeInput<'_>, own: &Path, content: &mut HomeContent) -> Map<String, Value> {
    let mut files: Vec<PathBuf> = ["config.json", "opencode.json", "opencode.jsonc"]
        .iter()
        .map(|name| own.join(name))
        .collect();
    let named = |variable: &str| (input.var)(variable).map(PathBuf::from);
    files.extend(named("OPENCODE_CONFIG"));
    if let Some(folder) = named("OPENCODE_CONFIG_DIR") {
        files.extend(["opencode.json", "opencode.jsonc"].map(|name| folder.join(name)));
    }
    let mut merged = Map::new();
    for path in files {
        let Some(text) = (input.read)(&path) else {
            continue;
        };
        let folder = path.parent().unwrap_or(own);
        match object(&jsonc::plain(&text)) {
            Some(found) => merge(&mut merged, rooted(found, folder)),
            None => content.unreadable(&path),
        }
    }
    if let Some(text) = (input.var)("OPENCODE_CONFIG_CONTENT")
        && let Some(found) = object(&jsonc::plain(&text.to_string_lossy()))
    {
        merge(&mut merged, found);
    }
    filtered(merged, GROUPS, input)
}

/// As opencode does it: lists of these are added to each other.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => merge(known, more),
            (Some(Value::Array(known)), Value::Array(more))
                if ["plugin", "instructions"].contains(&key.as_str()) =>
            {
                known.extend(more);
            }
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// The same with all that is relative to the file's folder made absolute.
fn rooted(object: Map<String, Value>, folder: &Path) -> Map<String, Value> {
    let rooted_entry = |(key, value): (String, Value)| {
        let value = match value {
            Value::Array(list) if key == "instructions" => {
                list.into_iter().map(|it| absolute(it, folder)).collect()
            }
            other => with_files(other, folder),
        };
        (key, value)
    };
    object.into_iter().map(rooted_entry).collect()
}

fn absolute(value: Value, folder: &Path) -> Value {
    match value {
        Value::String(text) if !text.contains("://") && !text.starts_with('~') => {
            folder.join(text).to_string_lossy().into_owned().into()
        }
        other => other,
    }
}

/// `{file:key.txt}` stands for what is in a file.
fn with_files(value: Value, folder: &Path) -> Value {
    const MARK: &str = "{file:";
    match value {
        Value::String(text) if text.contains(MARK) => {
            let mut parts = text.split(MARK);
            let mut whole = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                whole.push_str(MARK);
                let is_relative = !part.starts_with(['/', '~']);
                if is_relative {
                    whole.push_str(&folder.to_string_lossy());
                    whole.push('/');
                }
                whole.push_str(part);
            }
            whole.into()
        }
        Value::Array(list) => list.into_iter().map(|it| with_files(it, folder)).collect(),
        Value::Object(object) => {
            let inner = object.into_iter();
            inner
                .map(|(key, value)| (key, with_files(value, folder)))
                .collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::shown;
    use super::*;

    const CONFIG: &str = r#"{ // mine
        "model": "p/m", "provider": {"p": {"options": {"apiKey": "{file:key}"}}},
        "mcp": {"s": {}}, "plugin": ["a"], "instructions": ["rules.md"], "permission": {"bash": "deny"},
    }"#;

    fn made(inherit: &[InheritPart]) -> String {
        let files = [
            ("/h/.config/opencode/opencode.jsonc", CONFIG),
            ("/h/.config/opencode/AGENTS.md", "mine"),
            ("/h/.config/git/config", ""),
            (
                "/o/more.json",
                r#"{"provider": {"p": {"name": "P"}}, "plugin": ["b"]}"#,
            ),
            ("/h/.cache/opencode/models.json", "{}"),
        ];
        let vars = [
            ("OPENCODE_CONFIG", "/o/more.json"),
            ("OPENCODE_CONFIG_CONTENT", r#"{"small_model": "p/s"}"#),
        ];
        shown(content, &files, &vars, inherit)
    }

    #[test]
    fn model_and_provider_stay_and_nothing_else() {
        let expected = "config/\nconfig/git -> /h/.config/git\nconfig/opencode/\ndata/\ndata/opencode/\n\
            state/\nstate/opencode/\ncache/\ncache/opencode/\nhome/\n\
            config/opencode/opencode.json: { \"model\": \"p/m\", \"provider\": { \"p\": { \"name\": \"P\", \
            \"options\": { \"apiKey\": \"{file:/h/.config/opencode/key}\" } } }, \"small_model\": \"p/s\" }\n\
            config/opencode/AGENTS.md: of the project\ncache/opencode/models.json: {}";
        assert_eq!(made(&[]), expected);
    }

    #[test]
    fn parts_are_let_in() {
        for (part, words) in [
            (InheritPart::Mcp, "\"mcp\""),
            (InheritPart::Hooks, "\"plugin\": [ \"a\", \"b\" ]"),
            (
                InheritPart::Hooks,
                "config/opencode/plugins -> /h/.config/opencode/plugins",
            ),
            (InheritPart::Settings, "\"permission\""),
            (InheritPart::Instructions, "/h/.config/opencode/rules.md"),
            (InheritPart::Instructions, "AGENTS.md: mine of the project"),
        ] {
            let made = made(&[part]);
            assert!(made.contains(words), "{words:?} in {made}");
            for (other, words) in [
                (InheritPart::Mcp, "\"mcp\""),
                (InheritPart::Hooks, "\"plugin\""),
                (InheritPart::Settings, "permission"),
                (InheritPart::Instructions, "mine"),
            ] {
                assert_eq!(made.contains(words), other == part, "{words:?} in {made}");
            }
        }
    }
}
