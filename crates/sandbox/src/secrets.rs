//! What is hidden from children by default: keys, logins and histories.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::settings::SettingsFormat;

/// Folders and files below the home folder that no child has any business with.
const AT_HOME: &[&str] = &[
    // Keys and signatures.
    ".ssh",
    ".gnupg",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".vault-token",
    ".config/sops",
    // Clouds and hosts.
    ".aws",
    ".azure",
    ".kube",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".config/rclone",
    ".config/op",
    ".config/doctl",
    ".config/containers/auth.json",
    ".docker/config.json",
    ".config/hcloud",
    ".fly",
    ".terraformrc",
    ".terraform.d/credentials.tfrc.json",
    ".oci",
    // Registries, databases and plain logins.
    ".netrc",
    ".authinfo",
    ".git-credentials",
    ".config/git/credentials",
    ".pypirc",
    ".gem/credentials",
    ".local/share/gem/credentials",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".bundle/config",
    ".wgetrc",
    ".s3cfg",
    ".cache/huggingface/token",
    ".huggingface",
    ".databrickscfg",
    ".snowflake",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".pgpass",
    ".my.cnf",
    // Password managers and browsers.
    ".config/Bitwarden",
    ".config/Bitwarden CLI",
    ".config/1Password",
    ".config/keepassxc",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    "snap/firefox",
    "snap/chromium",
    ".var/app",
    // What people typed.
    ".bash_history",
    ".zsh_history",
    ".zhistory",
    ".histfile",
    ".history",
    ".sh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".rediscli_history",
    ".lesshst",
    ".viminfo",
    ".local/share/fish/fish_history",
    ".local/share/atuin",
    ".local/state/bash",
    ".local/state/zsh",
];

/// Where agents keep their logins, below the home folder.
const LOGINS: &[&str] = &[
    ".codex/auth.json",
    ".claude/.credentials.json",
    ".claude.json",
    ".local/share/opencode/auth.json",
    ".config/github-copilot",
    ".gemini/oauth_creds.json",
];

/// Variables that name a folder or a file of this kind, and what of it is meant.
const MOVED: &[(&str, &str)] = &[
    ("GNUPGHOME", ""),
    ("AWS_SHARED_CREDENTIALS_FILE", ""),
    ("AWS_CONFIG_FILE", ""),
    ("AZURE_CONFIG_DIR", ""),
    ("CLOUDSDK_CONFIG", ""),
    ("GH_CONFIG_DIR", ""),
    ("DOCKER_CONFIG", "config.json"),
    ("NETRC", ""),
    ("PGPASSFILE", ""),
    ("PASSWORD_STORE_DIR", ""),
    ("HISTFILE", ""),
    ("GRADLE_USER_HOME", "gradle.properties"),
    ("BUNDLE_USER_CONFIG", ""),
    ("BUNDLE_USER_HOME", "config"),
    ("COMPOSER_HOME", "auth.json"),
    ("TF_CLI_CONFIG_FILE", ""),
    ("WGETRC", ""),
    ("HF_HOME", "token"),
    ("HF_TOKEN_PATH", ""),
    ("HCLOUD_CONFIG", ""),
    ("DATABRICKS_CONFIG_FILE", ""),
    ("SNOWFLAKE_HOME", ""),
    ("CARGO_HOME", "credentials"),
    ("CARGO_HOME", "credentials.toml"),
];

/// Files of settings below the home folder, the variables that name others, and how they are written.
const SETTINGS: &[(&[&str], &[&str], SettingsFormat)] = &[
    (
        &[".npmrc", ".yarnrc.yml"],
        &["NPM_CONFIG_USERCONFIG", "npm_config_userconfig"],
        SettingsFormat::Lines,
    ),
    (
        &[".config/pip/pip.conf", ".pip/pip.conf"],
        &["PIP_CONFIG_FILE"],
        SettingsFormat::Lines,
    ),
    (
        &[".gitconfig", ".config/git/config"],
        &["GIT_CONFIG_GLOBAL"],
        SettingsFormat::Git,
    ),
    (
        &[".m2/settings.xml", ".nuget/NuGet/NuGet.Config"],
        &[],
        SettingsFormat::Xml,
    ),
];

/// Where a child looks for its own things: a home folder and an environment.
pub struct SecretPlaces<'a> {
    /// The user's home folder.
    pub home: &'a Path,
    /// A variable of the runner's own environment.
    pub var: &'a dyn Fn(&str) -> Option<OsString>,
}

impl SecretPlaces<'_> {
    /// What is hidden from every child. Most of it is not there.
    pub fn hidden(&self) -> Vec<PathBuf> {
        let mut paths = self.at_home(AT_HOME);
        for name in ["credentials", "credentials.toml"] {
            paths.push(self.home.join(".cargo").join(name));
        }
        for (variable, below) in MOVED {
            let Some(path) = self.folder(variable) else {
                continue;
            };
            paths.push(if below.is_empty() {
                path
            } else {
                path.join(below)
            });
        }
        // A list of files.
        let listed = (self.var)("KUBECONFIG");
        let listed = listed.iter().flat_map(std::env::split_paths);
        paths.extend(listed.filter(|path| path.is_absolute()));
        paths.retain(|path| !self.home.starts_with(path));
        paths
    }

    /// The logins of agents, of which a session may see its own alone.
    pub fn logins(&self) -> Vec<PathBuf> {
        let mut paths = self.at_home(LOGINS);
        for (variable, name) in [
            ("CODEX_HOME", "auth.json"),
            ("CLAUDE_CONFIG_DIR", ".credentials.json"),
            ("CLAUDE_CONFIG_DIR", ".claude.json"),
        ] {
            paths.extend(self.folder(variable).map(|folder| folder.join(name)));
        }
        paths
    }

    /// Files of settings that children need, in which single values are secret.
    pub fn settings(&self) -> Vec<(PathBuf, SettingsFormat)> {
        let mut paths = Vec::new();
        for (names, variables, format) in SETTINGS {
            let moved = variables.iter().filter_map(|it| self.folder(it));
            let all = self.at_home(names).into_iter().chain(moved);
            paths.extend(all.map(|path| (path, *format)));
        }
        paths
    }

    pub(crate) fn folder(&self, variable: &str) -> Option<PathBuf> {
        let path = PathBuf::from((self.var)(variable)?);
        path.is_absolute().then_some(path)
    }

    /// Below the home folder, and where `XDG_CONFIG_HOME` and its like have moved them.
    fn at_home(&self, names: &[&str]) -> Vec<PathBuf> {
        const MOVES: &[(&str, &str)] = &[
            (".config/", "XDG_CONFIG_HOME"),
            (".local/share/", "XDG_DATA_HOME"),
            (".local/state/", "XDG_STATE_HOME"),
        ];
        let mut paths = Vec::new();
        for name in names {
            paths.push(self.home.join(name));
            for (prefix, variable) in MOVES {
                if let Some(rest) = name.strip_prefix(prefix) {
                    paths.extend(self.folder(variable).map(|folder| folder.join(rest)));
                }
            }
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(var: &dyn Fn(&str) -> Option<OsString>) -> SecretPlaces<'_> {
        SecretPlaces {
            home: Path::new("/h"),
            var,
        }
    }

    #[test]
    fn keys_and_logins_wherever_they_were_moved() {
        let none = |_: &str| None;
        let hidden = places(&none).hidden();
        for path in [
            "/h/.ssh",
            "/h/.config/gh",
            "/h/.cargo/credentials.toml",
            "/h/.bash_history",
            "/h/.gradle/gradle.properties",
            "/h/.fly",
        ] {
            assert!(hidden.contains(&path.into()), "{path}");
        }
        let moved = |name: &str| {
            let value = match name {
                "XDG_CONFIG_HOME" => "/c",
                "KUBECONFIG" => "/k/a:relative:/k/b",
                "DOCKER_CONFIG" => "/d",
                "GNUPGHOME" => "relative",
                "CODEX_HOME" => "/x",
                "PIP_CONFIG_FILE" => "/pip",
                _ => return None,
            };
            Some(value.into())
        };
        let hidden = places(&moved).hidden();
        for path in ["/c/gh", "/h/.config/gh", "/k/a", "/k/b", "/d/config.json"] {
            assert!(hidden.contains(&path.into()), "{path}");
        }
        assert!(!hidden.iter().any(|path| path.is_relative()));
        // Whatever somebody set, the home folder itself stays.
        assert!(!hidden.contains(&"/h".into()));
        assert!(places(&moved).logins().contains(&"/x/auth.json".into()));
        let settings = places(&moved).settings();
        for (path, format) in [
            ("/h/.npmrc", SettingsFormat::Lines),
            ("/pip", SettingsFormat::Lines),
            ("/c/pip/pip.conf", SettingsFormat::Lines),
            ("/c/git/config", SettingsFormat::Git),
            ("/h/.m2/settings.xml", SettingsFormat::Xml),
        ] {
            assert!(settings.contains(&(path.into(), format)), "{path}");
        }
    }
}
