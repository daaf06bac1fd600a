//! What is in the `CODEX_HOME` of a session.

use std::path::Path;

use runner_core::config::InheritPart;
use toml::{Table, Value};

use super::{HomeContent, HomeInput, SettingGroup, is_let_in};

const GROUPS: &[SettingGroup] = &[
    // What answers, and how one is known to it.
    (
        None,
        &[
            "model",
            "model_provider",
            "model_providers",
            "model_reasoning_effort",
            "model_reasoning_summary",
            "model_supports_reasoning_summaries",
            "model_verbosity",
            "model_catalog_json",
            "service_tier",
            "oss_provider",
            "openai_base_url",
            "chatgpt_base_url",
            "preferred_auth_method",
            "forced_login_method",
            "forced_chatgpt_workspace_id",
            "cli_auth_credentials_store",
            "profile",
            "profiles",
        ],
    ),
    (
        Some(InheritPart::Mcp),
        &[
            "mcp_servers",
            "mcp_oauth_credentials_store",
            "mcp_oauth_callback_port",
            "mcp_oauth_callback_url",
            "apps",
        ],
    ),
    (
        Some(InheritPart::Hooks),
        &["hooks", "notify", "plugins", "marketplaces"],
    ),
    (
        Some(InheritPart::Instructions),
        &[
            "instructions",
            "developer_instructions",
            "model_instructions_file",
            "experimental_instructions_file",
            "compact_prompt",
            "skills",
            "agents",
            "memories",
        ],
    ),
];

/// Which folders a person trusts is of no concern to a session, which is told.
const NEVER: &[&str] = &["projects"];

const LINKS: &[(InheritPart, &[&str])] = &[
    (InheritPart::Mcp, &[".credentials.json"]),
    (InheritPart::Hooks, &["hooks.json", "plugins"]),
    (InheritPart::Settings, &["rules"]),
    (InheritPart::Instructions, &["prompts"]),
];

/// What is in the folder.
pub(crate) fn content(input: &HomeInput<'_>) -> HomeContent {
    let own = input.folder("CODEX_HOME", ".codex");
    let mut content = HomeContent::default();
    let path = own.join("config.toml");
    if let Some(text) = (input.read)(&path) {
        match text.parse::<Table>() {
            Ok(table) => content.file("config.toml", filtered(table, input).to_string()),
            Err(_) => content.unreadable(&path),
        }
    }
    let profiles = (input.names)(&own).into_iter().filter_map(|name| {
        let name = name.into_string().ok()?;
        name.ends_with(".config.toml").then_some(name)
    });
    for name in profiles {
        let path = own.join(&name);
        match (input.read)(&path).map(|text| text.parse::<Table>()) {
            Some(Ok(table)) => content.file(name, filtered(table, input).to_string()),
            Some(Err(_)) => content.unreadable(&path),
            None => {}
        }
    }
    content.instructions(input, &own.join("AGENTS.md"), "AGENTS.md");
    content.links(input, (&own, Path::new("")), LINKS);
    if input.has(InheritPart::Instructions) {
        let folders = (&*own.join("skills"), Path::new("skills"));
        content.mirror(input, folders, &[".system"]);
    }
    content
}

fn filtered(table: Table, input: &HomeInput<'_>) -> Table {
    let kept = table.into_iter();
    let kept = kept.filter(|(key, _)| !NEVER.contains(&key.as_str()));
    let kept = kept.filter(|(key, _)| is_let_in(GROUPS, input, key));
    kept.map(|(key, value)| match value {
        // Each of them is such a table again.
        Value::Table(profiles) if key == "profiles" => {
            let inner = profiles.into_iter().map(|(name, profile)| match profile {
                Value::Table(profile) => (name, Value::Table(filtered(profile, input))),
                other => (name, other),
            });
            (key, Value::Table(inner.collect()))
        }
        other => (key, other),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::shown;
    use super::*;

    const CONFIG: &str = r#"
model = "m"
model_provider = "mine"
notify = ["touch", "x"]
developer_instructions = "mine"
sandbox_mode = "read-only"
[model_providers.mine]
base_url = "http://h/v1"
[mcp_servers.s]
command = "x"
[projects."/p"]
trust_level = "trusted"
[profiles.fast]
model = "f"
approval_policy = "never"
"#;

    fn made(inherit: &[InheritPart]) -> String {
        let files = [
            ("/c/config.toml", CONFIG),
            ("/c/AGENTS.md", "mine"),
            ("/c/skills/.system/x", ""),
            ("/c/skills/own/SKILL.md", ""),
            ("/h/.codex/config.toml", "model = \"another\""),
        ];
        shown(content, &files, &[("CODEX_HOME", "/c")], inherit)
    }

    #[test]
    fn model_and_provider_stay_and_nothing_else() {
        let expected = "config.toml: model = \"m\" model_provider = \"mine\" [model_providers.mine] \
            base_url = \"http://h/v1\" [profiles.fast] model = \"f\"\nAGENTS.md: of the project";
        assert_eq!(made(&[]), expected);
    }

    #[test]
    fn parts_are_let_in() {
        for (part, words) in [
            (InheritPart::Mcp, "[mcp_servers.s]"),
            (InheritPart::Hooks, "notify = [\"touch\", \"x\"]"),
            (InheritPart::Hooks, "hooks.json -> /c/hooks.json"),
            (InheritPart::Settings, "sandbox_mode = \"read-only\""),
            (InheritPart::Settings, "approval_policy"),
            (InheritPart::Instructions, "developer_instructions"),
            (InheritPart::Instructions, "AGENTS.md: mine of the project"),
            (InheritPart::Instructions, "skills/own -> /c/skills/own"),
        ] {
            let made = made(&[part]);
            assert!(made.contains(words), "{words:?} in {made}");
            assert!(!made.contains("trust_level") && !made.contains(".system"));
            for (other, words) in [
                (InheritPart::Mcp, "mcp_servers"),
                (InheritPart::Hooks, "notify"),
                (InheritPart::Settings, "sandbox_mode"),
                (InheritPart::Instructions, "developer_instructions"),
            ] {
                assert_eq!(made.contains(words), other == part, "{words:?} in {made}");
            }
        }
    }

    #[test]
    fn a_broken_file_is_told() {
        let files = [("/h/.codex/config.toml", "model = ")];
        let made = shown(content, &files, &[], &[]);
        assert!(
            made.contains("note: /h/.codex/config.toml cannot be understood"),
            "{made}"
        );
    }
}
