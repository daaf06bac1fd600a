//! What is in the `CLAUDE_CONFIG_DIR` of a session.

use std::path::{Path, PathBuf};

use runner_core::config::InheritPart;
use serde_json::{Map, Value};

use super::{HomeContent, HomeInput, SettingGroup, filtered, object, pretty};
use crate::claude::PASSED_ENV;

/// The MCP servers of the person, for a flag.
pub(crate) const MCP_FILE: &str = "mcp.json";

const GROUPS: &[SettingGroup] = &[
    // What answers, and how one is known to it.
    (
        None,
        &[
            "$schema",
            "model",
            "availableModels",
            "modelOverrides",
            "fallbackModel",
            "effortLevel",
            "alwaysThinkingEnabled",
            "env",
            "apiKeyHelper",
            "awsAuthRefresh",
            "awsCredentialExport",
            "gcpAuthRefresh",
            "forceLoginMethod",
            "forceLoginOrgUUID",
        ],
    ),
    (
        Some(InheritPart::Mcp),
        &[
            "enableAllProjectMcpServers",
            "enabledMcpjsonServers",
            "disabledMcpjsonServers",
            "allowedMcpServers",
            "deniedMcpServers",
        ],
    ),
    (
        Some(InheritPart::Hooks),
        &[
            "hooks",
            "disableAllHooks",
            "allowedHttpHookUrls",
            "enabledPlugins",
            "extraKnownMarketplaces",
            "pluginConfigs",
            "statusLine",
            "fileSuggestion",
        ],
    ),
    (
        Some(InheritPart::Instructions),
        &["outputStyle", "language", "claudeMdExcludes"],
    ),
];

const LINKS: &[(InheritPart, &[&str])] = &[(
    InheritPart::Instructions,
    &["agents", "commands", "skills", "rules", "output-styles"],
)];

/// What of `.claude.json` says who somebody is.
const ACCOUNT: &[&str] = &[
    "oauthAccount",
    "primaryApiKey",
    "customApiKeyResponses",
    "userID",
    "hasCompletedOnboarding",
];

/// What is in the folder.
pub(crate) fn content(input: &HomeInput<'_>) -> HomeContent {
    let own = input.folder("CLAUDE_CONFIG_DIR", ".claude");
    let mut content = HomeContent::default();
    let path = own.join("settings.json");
    if let Some(text) = (input.read)(&path) {
        match object(&text) {
            Some(settings) => content.file("settings.json", pretty(settings_of(settings, input))),
            None => content.unreadable(&path),
        }
    }
    let state = (input.read)(&state_file(input)).and_then(|text| object(&text));
    let mut state = state.unwrap_or_default();
    if input.has(InheritPart::Mcp) {
        let mut servers = Map::new();
        let known = state.remove("mcpServers");
        servers.insert(
            "mcpServers".to_owned(),
            known.unwrap_or_else(|| Value::Object(Map::new())),
        );
        content.file(MCP_FILE, pretty(servers));
    }
    let account = state.into_iter();
    let account = account.filter(|(key, _)| ACCOUNT.contains(&key.as_str()));
    content.file(".claude.json", pretty(account.collect()));
    content.instructions(input, &own.join("CLAUDE.md"), "CLAUDE.md");
    content.links(input, (&own, Path::new("")), LINKS);
    if input.has(InheritPart::Hooks) {
        // It keeps notes of its own there.
        let folders = (&*own.join("plugins"), Path::new("plugins"));
        content.mirror(input, folders, &["store"]);
    }
    content
}

/// Where claude keeps what it knows about somebody.
fn state_file(input: &HomeInput<'_>) -> PathBuf {
    let moved = (input.var)("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    let moved = moved.filter(|path| path.is_absolute());
    moved
        .unwrap_or_else(|| input.user_home.to_owned())
        .join(".claude.json")
}

fn settings_of(settings: Map<String, Value>, input: &HomeInput<'_>) -> Map<String, Value> {
    let mut settings = filtered(settings, GROUPS, input);
    if !input.has(InheritPart::Settings)
        && let Some(Value::Object(env)) = settings.get_mut("env")
    {
        env.retain(|name, _| chooses_model(name));
    }
    settings
}

/// Whether a variable has to do with model, provider or login.
fn chooses_model(name: &str) -> bool {
    PASSED_ENV.contains(&name) && name != "CLAUDE_CONFIG_DIR"
        || ["ANTHROPIC_", "VERTEX_REGION_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::super::tests::shown;
    use super::*;

    const SETTINGS: &str = r#"{"model": "m", "apiKeyHelper": "k",
        "env": {"ANTHROPIC_BASE_URL": "http://h", "OTHER": "x", "CLAUDE_CONFIG_DIR": "/x"},
        "hooks": {"Stop": []}, "permissions": {"deny": ["x"]}, "outputStyle": "o"}"#;
    const STATE: &str =
        r#"{"oauthAccount": {"a": 1}, "projects": {"/p": {}}, "mcpServers": {"s": {}}}"#;

    fn made(inherit: &[InheritPart]) -> String {
        let files = [
            ("/h/.claude/settings.json", SETTINGS),
            ("/h/.claude/CLAUDE.md", "mine"),
            ("/h/.claude/plugins/p/x", ""),
            ("/h/.claude.json", STATE),
        ];
        shown(content, &files, &[], inherit)
    }

    #[test]
    fn model_and_login_stay_and_nothing_else() {
        let expected = "settings.json: { \"apiKeyHelper\": \"k\", \"env\": { \"ANTHROPIC_BASE_URL\": \
            \"http://h\" }, \"model\": \"m\" }\n.claude.json: { \"oauthAccount\": { \"a\": 1 } }\n\
            CLAUDE.md: of the project";
        assert_eq!(made(&[]), expected);
    }

    #[test]
    fn parts_are_let_in() {
        for (part, words) in [
            (
                InheritPart::Mcp,
                "mcp.json: { \"mcpServers\": { \"s\": {} } }",
            ),
            (InheritPart::Hooks, "\"hooks\""),
            (InheritPart::Hooks, "plugins/p -> /h/.claude/plugins/p"),
            (InheritPart::Settings, "\"permissions\""),
            (InheritPart::Settings, "\"OTHER\""),
            (InheritPart::Instructions, "CLAUDE.md: mine of the project"),
            (InheritPart::Instructions, "\"outputStyle\""),
            (InheritPart::Instructions, "skills -> /h/.claude/skills"),
        ] {
            let made = made(&[part]);
            assert!(made.contains(words), "{words:?} in {made}");
            assert!(!made.contains("projects"), "{made}");
            for (other, words) in [
                (InheritPart::Mcp, "mcpServers"),
                (InheritPart::Hooks, "hooks"),
                (InheritPart::Settings, "permissions"),
                (InheritPart::Instructions, "mine"),
            ] {
                assert_eq!(made.contains(words), other == part, "{words:?} in {made}");
            }
        }
    }

    #[test]
    fn folders_that_were_moved() {
        let files = [("/c/.claude.json", STATE), ("/c/settings.json", "no")];
        let made = shown(content, &files, &[("CLAUDE_CONFIG_DIR", "/c")], &[]);
        assert!(made.contains("oauthAccount"), "{made}");
        assert!(
            made.contains("note: /c/settings.json cannot be understood"),
            "{made}"
        );
    }
}
