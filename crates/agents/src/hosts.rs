//! Which hosts each agent CLI talks to.

use std::path::{Path, PathBuf};

use serde_json::Value as JsonValue;
use toml::{Table, Value};

use crate::jsonc;

/// What an agent's hosts follow from.
pub struct AgentHostsInput<'a> {
    /// `[executor] model`.
    pub model: &'a str,
    /// `[executor] extra_args`.
    pub extra_args: &'a [String],
    /// A variable that the session gets, unless it is empty.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The text of a file, where there is one.
    pub file: &'a dyn Fn(&Path) -> Option<String>,
}

impl AgentHostsInput<'_> {
    fn is_on(&self, name: &str) -> bool {
        (self.variable)(name).is_some_and(|value| !matches!(value.as_str(), "0" | "false"))
    }

    /// A file in a folder that a variable names, or else below HOME.
    fn settings(&self, variable: &str, below_home: &str, name: &str) -> Option<String> {
        let folder = (self.variable)(variable).map(PathBuf::from);
        let home = || Some(PathBuf::from((self.variable)("HOME")?).join(below_home));
        (self.file)(&folder.or_else(home)?.join(name))
    }

    /// The host of an address that a variable holds.
    fn address(&self, name: &str) -> Option<String> {
        host_of((self.variable)(name)?.as_str())
    }
}

/// The entry for the host and port of an address.
fn host_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.trim().split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = rest[..end].rsplit('@').next().unwrap_or_default();
    let (host, port) = runner_core::config::split_port(authority);
    let usual = match scheme.to_ascii_lowercase().as_str() {
        "http" | "ws" => "80",
        "https" | "wss" => "443",
        _ => return None,
    };
    let entry = format!("{host}:{}", port.unwrap_or(usual));
    runner_core::config::check_host(&entry)
        .is_ok()
        .then_some(entry)
}

fn owned(hosts: &[&str]) -> Vec<String> {
    hosts.iter().map(|host| (*host).to_owned()).collect()
}

/// Where codex logs in, and where its models are.
const CODEX_HOSTS: &[&str] = &["api.openai.com", "auth.openai.com", "chatgpt.com"];

/// The hosts of codex: those of the provider that its config chooses.
pub(crate) fn codex(input: &AgentHostsInput<'_>) -> Vec<String> {
    let text = input.settings("CODEX_HOME", ".codex", "config.toml");
    let mut config: Table = text.and_then(|text| text.parse().ok()).unwrap_or_default();
    let words = codex_words(input.extra_args);
    let set: Table = words.iter().fold(Table::new(), |mut set, (key, value)| {
        set_at(&mut set, key, value.clone());
        set
    });
    let profile = text_at(&set, &["profile"]).or_else(|| text_at(&config, &["profile"]));
    if let Some(own) = profile.and_then(|name| table_at(&config, &["profiles", &name])) {
        merge(&mut config, &own);
    }
    merge(&mut config, &set);
    let provider = text_at(&config, &["model_provider"]);
    let named = provider.as_deref().unwrap_or("openai");
    let address = text_at(&config, &["model_providers", named, "base_url"])
        .or_else(|| (named == "openai").then(|| text_at(&config, &["openai_base_url"]))?)
        .or_else(|| (named == "openai").then(|| (input.variable)("OPENAI_BASE_URL"))?);
    let mut hosts = match (address.as_deref().and_then(host_of), named) {
        (Some(host), _) => vec![host],
        (None, "openai") => owned(CODEX_HOSTS),
        (None, "oss" | "ollama") => own_machine(input, "CODEX_OSS_PORT", "11434"),
        (None, "lmstudio") => own_machine(input, "CODEX_OSS_PORT", "1234"),
        (None, "amazon-bedrock") => bedrock(input),
        (None, _) => Vec::new(),
    };
    hosts.extend(text_at(&config, &["chatgpt_base_url"]).and_then(|url| host_of(&url)));
    let login = ["model_providers", named, "requires_openai_auth"];
    if value_at(&config, &login).and_then(Value::as_bool) == Some(true) {
        hosts.extend(owned(CODEX_HOSTS));
    }
    hosts
}

/// A model server on this machine.
fn own_machine(input: &AgentHostsInput<'_>, variable: &str, usual: &str) -> Vec<String> {
    let port = (input.variable)(variable).unwrap_or_else(|| usual.to_owned());
    let named = input.address("CODEX_OSS_BASE_URL");
    named.map_or_else(|| vec![format!("localhost:{port}")], |host| vec![host])
}

fn bedrock(input: &AgentHostsInput<'_>) -> Vec<String> {
    let region = (input.variable)("AWS_REGION").unwrap_or_else(|| "us-east-1".to_owned());
    [
        format!("bedrock-runtime.{region}.amazonaws.com"),
        format!("bedrock.{region}.amazonaws.com"),
        format!("bedrock-mantle.{region}.api.aws"),
        format!("sts.{region}.amazonaws.com"),
    ]
    .into()
}

/// The settings among codex's arguments: keys as paths, and values.
fn codex_words(args: &[String]) -> Vec<(Vec<String>, Value)> {
    let mut found = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let inline = |prefix: &str| arg.strip_prefix(prefix).map(str::to_owned);
        let setting = match arg.as_str() {
            "-c" | "--config" => args.next().cloned(),
            _ => inline("--config=").or_else(|| inline("-c")),
        };
        let profile = match arg.as_str() {
            "-p" | "--profile" => args.next().cloned(),
            _ => inline("--profile="),
        };
        if let Some(name) = profile {
            found.push((vec!["profile".to_owned()], Value::String(name)));
        } else if arg == "--oss" {
            let oss = Value::String("oss".to_owned());
            found.push((vec!["model_provider".to_owned()], oss));
        } else if let Some((key, value)) = setting.as_deref().and_then(|it| it.split_once('=')) {
            let path = key.trim().split('.').map(|part| part.trim_matches('"'));
            // As codex does: a text where it is no value of TOML.
            let parsed: Option<Table> = format!("x = {value}").parse().ok();
            let parsed = parsed.and_then(|mut table| table.remove("x"));
            let text = || Value::String(value.trim().trim_matches(['"', '\'']).to_owned());
            let path = path.map(str::to_owned).collect();
            found.push((path, parsed.unwrap_or_else(text)));
        }
    }
    found
}

fn set_at(table: &mut Table, path: &[String], value: Value) {
    match path {
        [] => {}
        [key] => {
            table.insert(key.clone(), value);
        }
        [key, rest @ ..] => {
            let inner = table
                .entry(key.clone())
                .or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                set_at(inner, rest, value);
            }
        }
    }
}

/// Lays one table over another.
fn merge(below: &mut Table, above: &Table) {
    for (key, value) in above {
        match (below.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            _ => {
                below.insert(key.clone(), value.clone());
            }
        }
    }
}

fn value_at<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(table.get(*first)?, |value, key| value.get(*key))
}

fn text_at(table: &Table, path: &[&str]) -> Option<String> {
    Some(value_at(table, path)?.as_str()?.to_owned())
}

fn table_at(table: &Table, path: &[&str]) -> Option<Table> {
    value_at(table, path)?.as_table().cloned()
}

/// Where claude logs in, and where its models are.
const CLAUDE_HOSTS: &[&str] = &[
    "api.anthropic.com",
    "claude.ai",
    "console.anthropic.com",
    "platform.claude.com",
];

/// The hosts of claude: those of the provider that its variables choose.
pub(crate) fn claude(input: &AgentHostsInput<'_>) -> Vec<String> {
    // Variables in its settings count like those of the environment, and before them.
    let settings = input.settings("CLAUDE_CONFIG_DIR", ".claude", "settings.json");
    let settings: JsonValue = settings
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let variable = |name: &str| {
        let set = settings["env"][name].as_str().filter(|it| !it.is_empty());
        set.map(str::to_owned).or_else(|| (input.variable)(name))
    };
    let input = &AgentHostsInput {
        model: input.model,
        extra_args: input.extra_args,
        variable: &variable,
        file: input.file,
    };
    let text = |name: &str, usual: &str| (input.variable)(name).unwrap_or(usual.to_owned());
    if input.is_on("CLAUDE_CODE_USE_BEDROCK") {
        let named = input.address("ANTHROPIC_BEDROCK_BASE_URL");
        return named.map_or_else(|| bedrock(input), |host| vec![host]);
    }
    if input.is_on("CLAUDE_CODE_USE_VERTEX") {
        let region = text("CLOUD_ML_REGION", "us-east5");
        let usual = match region.as_str() {
            "global" => "aiplatform.googleapis.com".to_owned(),
            "us" | "eu" => format!("aiplatform.{region}.rep.googleapis.com"),
            region => format!("{region}-aiplatform.googleapis.com"),
        };
        let mut hosts = owned(&["oauth2.googleapis.com", "sts.googleapis.com"]);
        hosts.insert(
            0,
            input.address("ANTHROPIC_VERTEX_BASE_URL").unwrap_or(usual),
        );
        return hosts;
    }
    if input.is_on("CLAUDE_CODE_USE_FOUNDRY") {
        let resource = (input.variable)("ANTHROPIC_FOUNDRY_RESOURCE");
        let named = input.address("ANTHROPIC_FOUNDRY_BASE_URL");
        let host = named.or(resource.map(|name| format!("{name}.services.ai.azure.com")));
        let login = "login.microsoftonline.com".to_owned();
        return host.into_iter().chain([login]).collect();
    }
    match input.address("ANTHROPIC_BASE_URL") {
        Some(host) => vec![host],
        None => owned(CLAUDE_HOSTS),
    }
}

/// The providers that opencode knows best: their name, and their host.
const OPENCODE_PROVIDERS: &[(&str, &str)] = &[
    ("anthropic", "api.anthropic.com"),
    ("openai", "api.openai.com"),
    ("openrouter", "openrouter.ai"),
    ("google", "generativelanguage.googleapis.com"),
    ("groq", "api.groq.com"),
    ("mistral", "api.mistral.ai"),
    ("deepseek", "api.deepseek.com"),
    ("xai", "api.x.ai"),
    ("opencode", "opencode.ai"),
    ("github-copilot", "api.githubcopilot.com"),
    ("github-copilot", "api.github.com"),
    ("ollama", "localhost:11434"),
    ("lmstudio", "localhost:1234"),
];

/// Where it gets the list of models.
const OPENCODE_MODELS: &str = "models.dev";

/// The hosts of opencode: those of the provider of its model, or of all that it may choose from.
pub(crate) fn opencode(input: &AgentHostsInput<'_>) -> Vec<String> {
    let named = (input.variable)("OPENCODE_CONFIG").map(PathBuf::from);
    let in_folder = |name: &str| {
        let folder = (input.variable)("OPENCODE_CONFIG_DIR").map(PathBuf::from);
        folder.and_then(|folder| (input.file)(&folder.join(name)))
    };
    let xdg = |name: &str| {
        let name = format!("opencode/{name}");
        input.settings("XDG_CONFIG_HOME", ".config", &name)
    };
    let files = ["opencode.json", "opencode.jsonc", "config.json"];
    let mut texts: Vec<String> = files.iter().filter_map(|name| xdg(name)).collect();
    texts.extend(named.and_then(|path| (input.file)(&path)));
    texts.extend(files.iter().filter_map(|name| in_folder(name)));
    texts.extend((input.variable)("OPENCODE_CONFIG_CONTENT"));
    let configs: Vec<JsonValue> = texts
        .iter()
        .filter_map(|text| serde_json::from_str(&jsonc::plain(text)).ok())
        .collect();
    // The last one wins, and the config of the runner over all of them.
    let configured = configs.iter().rev().find_map(|it| it["model"].as_str());
    let model = Some(input.model)
        .filter(|model| !model.is_empty())
        .or(configured);
    let provider = model.and_then(|model| Some(model.split_once('/')?.0.to_owned()));
    let is_meant = |name: &str| provider.as_deref().is_none_or(|provider| provider == name);
    let mut addresses: Vec<(String, String)> = Vec::new();
    for config in &configs {
        let providers = config["provider"].as_object().into_iter().flatten();
        for (name, settings) in providers.filter(|(name, _)| is_meant(name)) {
            let address = settings["options"]["baseURL"]
                .as_str()
                .or(settings["api"].as_str());
            let host = address.and_then(|url| host_of(&with_variables(url, input)));
            addresses.retain(|(known, _)| known != name || host.is_none());
            addresses.extend(host.map(|host| (name.clone(), host)));
        }
    }
    let usual = OPENCODE_PROVIDERS
        .iter()
        .filter(|(name, _)| is_meant(name) && !addresses.iter().any(|(known, _)| known == name))
        // Without a model to go by, this machine is not meant.
        .filter(|(_, host)| provider.is_some() || !host.starts_with("localhost"))
        .map(|(_, host)| (*host).to_owned());
    let usual: Vec<String> = usual.collect();
    let mut hosts: Vec<String> = addresses.into_iter().map(|(_, host)| host).collect();
    hosts.extend(usual);
    if provider.as_deref() == Some("amazon-bedrock") {
        hosts.extend(bedrock(input));
    }
    if !input.is_on("OPENCODE_DISABLE_MODELS_FETCH") {
        hosts.push(OPENCODE_MODELS.to_owned());
    }
    hosts
}

/// `{env:NAME}` filled in.
fn with_variables(text: &str, input: &AgentHostsInput<'_>) -> String {
    let mut parts = text.split("{env:");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        filled.push_str(&(input.variable)(name).unwrap_or_default());
        filled.push_str(rest);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Given<'a> {
        model: &'a str,
        args: &'a [&'a str],
        env: &'a [(&'a str, &'a str)],
        files: &'a [(&'a str, &'a str)],
    }

    const NOTHING: Given<'_> = Given {
        model: "",
        args: &[],
        env: &[],
        files: &[],
    };

    #[track_caller]
    fn check(hosts: fn(&AgentHostsInput<'_>) -> Vec<String>, given: &Given<'_>, expected: &str) {
        let args: Vec<String> = owned(given.args);
        let find = |list: &[(&str, &str)], wanted: &str| {
            let found = list.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        };
        let found = hosts(&AgentHostsInput {
            model: given.model,
            extra_args: &args,
            variable: &|name| match name {
                "HOME" => Some("/h".to_owned()),
                _ => find(given.env, name),
            },
            file: &|path| find(given.files, path.to_str()?),
        });
        assert_eq!(found.join(" "), expected);
        for host in &found {
            assert_eq!(runner_core::config::check_host(host), Ok(()), "{host}");
        }
    }

    #[test]
    fn hosts_of_addresses() {
        for (url, expected) in [
            ("https://a.example/v1", Some("a.example:443")),
            ("http://127.0.0.1:4141/v1", Some("127.0.0.1:4141")),
            ("HTTP://u:p@[::1]:80?x", Some("[::1]:80")),
            ("wss://a.example", Some("a.example:443")),
            ("a.example", None),
            ("ftp://a.example", None),
            ("http://", None),
            ("http://a b/", None),
        ] {
            assert_eq!(host_of(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn codex_goes_where_its_config_says() {
        let own = "api.openai.com auth.openai.com chatgpt.com";
        check(codex, &NOTHING, own);
        let scripted = [
            "-c",
            "model_provider=\"scripted\"",
            "-c",
            "model_providers.scripted.base_url=\"http://127.0.0.1:4141/v1\"",
        ];
        check(
            codex,
            &Given {
                args: &scripted,
                ..NOTHING
            },
            "127.0.0.1:4141",
        );
        let file = "model_provider = \"lan\"\n[model_providers.lan]\nbase_url = \"https://llm.lan/v1\"\n\
            [profiles.home]\nmodel_provider = \"oss\"\n[profiles.away]\nmodel_provider = \"openai\"\n";
        for (args, env, path, expected) in [
            (&[][..], &[][..], "/h/.codex/config.toml", "llm.lan:443"),
            (
                &[],
                &[("CODEX_HOME", "/c")],
                "/c/config.toml",
                "llm.lan:443",
            ),
            (&[], &[("CODEX_HOME", "/c")], "/h/.codex/config.toml", own),
            (&["-p", "away"], &[], "/h/.codex/config.toml", own),
            (
                &["--profile=home"],
                &[],
                "/h/.codex/config.toml",
                "localhost:11434",
            ),
            (&["--oss"], &[], "/h/.codex/config.toml", "localhost:11434"),
            (
                &["--config=model_provider=openai"],
                &[("OPENAI_BASE_URL", "https://gate.example")],
                "/h/.codex/config.toml",
                "gate.example:443",
            ),
            (
                &["-cmodel_providers.lan={base_url=\"http://b.lan:1\",requires_openai_auth=true}"],
                &[],
                "/h/.codex/config.toml",
                "b.lan:1 api.openai.com auth.openai.com chatgpt.com",
            ),
            (
                &["-c", "model_provider=unheard"],
                &[],
                "/h/.codex/config.toml",
                "",
            ),
        ] {
            let files = [(path, file)];
            let given = Given {
                args,
                env,
                files: &files,
                ..NOTHING
            };
            check(codex, &given, expected);
        }
        let broken = [("/h/.codex/config.toml", "= no toml")];
        let given = Given {
            files: &broken,
            ..NOTHING
        };
        check(codex, &given, own);
    }

    #[test]
    fn claude_goes_where_its_variables_say() {
        let own = "api.anthropic.com claude.ai console.anthropic.com platform.claude.com";
        for (env, expected) in [
            (&[][..], own),
            (
                &[("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/x")],
                "127.0.0.1:9",
            ),
            (&[("ANTHROPIC_BASE_URL", "nonsense")], own),
            (
                &[
                    ("CLAUDE_CODE_USE_BEDROCK", "1"),
                    ("AWS_REGION", "eu-west-1"),
                ],
                "bedrock-runtime.eu-west-1.amazonaws.com bedrock.eu-west-1.amazonaws.com \
                 bedrock-mantle.eu-west-1.api.aws sts.eu-west-1.amazonaws.com",
            ),
            (
                &[
                    ("CLAUDE_CODE_USE_BEDROCK", "1"),
                    ("ANTHROPIC_BEDROCK_BASE_URL", "https://b.example"),
                ],
                "b.example:443",
            ),
            (&[("CLAUDE_CODE_USE_BEDROCK", "0")], own),
            (
                &[
                    ("CLAUDE_CODE_USE_VERTEX", "1"),
                    ("CLOUD_ML_REGION", "global"),
                ],
                "aiplatform.googleapis.com oauth2.googleapis.com sts.googleapis.com",
            ),
            (
                &[
                    ("CLAUDE_CODE_USE_FOUNDRY", "1"),
                    ("ANTHROPIC_FOUNDRY_RESOURCE", "mine"),
                ],
                "mine.services.ai.azure.com login.microsoftonline.com",
            ),
        ] {
            check(claude, &Given { env, ..NOTHING }, expected);
        }
    }

    #[test]
    fn opencode_goes_to_the_provider_of_its_model() {
        let file = "{ // mine\n \"model\": \"lan/m\", /* x */ \"provider\": {\n\
            \"lan\": {\"options\": {\"baseURL\": \"http://{env:LAN}:8000/v1\"}},\n\
            \"openai\": {\"options\": {\"baseURL\": \"https://gate.example/\"}},\n },}";
        let files = [("/h/.config/opencode/opencode.jsonc", file)];
        let env = [("LAN", "llm.lan"), ("OPENCODE_DISABLE_MODELS_FETCH", "1")];
        for (model, expected) in [
            ("", "llm.lan:8000"),
            ("openai/gpt", "gate.example:443"),
            ("anthropic/claude", "api.anthropic.com"),
            ("ollama/x", "localhost:11434"),
            ("unheard/of", ""),
        ] {
            let given = Given {
                model,
                env: &env,
                files: &files,
                ..NOTHING
            };
            check(opencode, &given, expected);
        }
        let content = r#"{"provider":{"lan":{"options":{"baseURL":"http://127.0.0.1:7"}}}}"#;
        let env = [("OPENCODE_CONFIG_CONTENT", content)];
        let given = Given {
            model: "lan/m",
            env: &env,
            files: &files,
            ..NOTHING
        };
        check(opencode, &given, "127.0.0.1:7 models.dev");
        let all = "api.anthropic.com api.openai.com openrouter.ai generativelanguage.googleapis.com \
            api.groq.com api.mistral.ai api.deepseek.com api.x.ai opencode.ai api.githubcopilot.com \
            api.github.com models.dev";
        check(opencode, &NOTHING, all);
    }
}
