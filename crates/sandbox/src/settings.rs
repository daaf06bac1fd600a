//! Files of settings that children need, without the logins in them.

/// How a file of settings is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsFormat {
    /// A name and a value in each line, as npm, yarn and pip have it.
    Lines,
    /// As git has it: sections with names and values.
    Git,
    /// Elements, as Maven and NuGet have it.
    Xml,
}

/// What the names of secret values contain where a line is a name and a value.
const SECRET_PARTS: &[&str] = &["_auth", "token", "password", "_secret", "otp"];

/// How the names of secret values end in git's config.
const SECRET_ENDS: &[&str] = &[
    "token",
    "password",
    "passwd",
    "secret",
    "smtppass",
    "apikey",
    "extraheader",
];

/// Elements that hold secrets, by the beginning of their names.
const SECRET_ELEMENTS: &[&str] = &[
    "servers",
    "password",
    "passphrase",
    "privateKey",
    "packageSourceCredentials",
    "apikeys",
];

/// Schemes in which a name alone before a host may be a token.
const WEB: &[&str] = &["http", "https", "ftp", "ftps", "socks5"];

/// A file of settings without the values that are secret, and without the logins in addresses;
/// `None`: it has none.
pub fn without_tokens(format: SettingsFormat, text: &str) -> Option<String> {
    let kept = match format {
        SettingsFormat::Lines => kept_lines(text, |line| is_secret(line).then_some("")),
        SettingsFormat::Git => kept_lines(text, secret_in_git),
        SettingsFormat::Xml => without_elements(text),
    };
    let kept = without_logins(&kept);
    (kept != text).then_some(kept)
}

/// The files that a git config includes, as they are written there.
pub fn included_settings(text: &str) -> Vec<&str> {
    let mut includes = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let (header, rest) = git_header(line);
        if let Some(header) = header {
            includes = header.to_ascii_lowercase().starts_with("include");
        }
        if let Some((name, value)) = rest.split_once('=')
            && includes
            && name.trim().eq_ignore_ascii_case("path")
        {
            found.push(value.trim().trim_matches('"'));
        }
    }
    found
}

/// All lines but those of which a rule keeps only a beginning.
fn kept_lines(text: &str, rule: impl Fn(&str) -> Option<&str>) -> String {
    let mut kept = String::new();
    let mut goes_on = false;
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches(['\n', '\r']);
        let is_cut = goes_on || rule(content).is_some();
        if !is_cut {
            kept.push_str(line);
            continue;
        }
        let beginning = rule(content).filter(|_| !goes_on).unwrap_or_default();
        if !beginning.is_empty() {
            kept.push_str(beginning);
            kept.push('\n');
        }
        // A value that goes on in the next line is as secret there.
        goes_on = content.ends_with('\\');
    }
    kept
}

fn is_secret(line: &str) -> bool {
    let parts: Vec<&str> = line.split(['=', ':']).collect();
    // The last part is the value, and in `.npmrc` the key has colons of its own.
    let names = parts.len().saturating_sub(1).max(1);
    let name = parts[..names].join(":").to_ascii_lowercase();
    SECRET_PARTS.iter().any(|word| name.contains(word))
}

/// What stays of a line of git's with a secret: the header of its section, if it has one.
fn secret_in_git(line: &str) -> Option<&str> {
    let (header, rest) = git_header(line);
    let rest = rest.trim_start().trim_start_matches(['#', ';']);
    let (name, value) = rest.split_once('=').unwrap_or((rest, ""));
    let name = name.trim().to_ascii_lowercase();
    // A helper may be a piece of shell that prints what it is asked for.
    let is_inline = name == "helper" && value.trim_start().trim_start_matches('"').starts_with('!');
    let is_secret = is_inline || SECRET_ENDS.iter().any(|end| name.ends_with(end));
    is_secret.then(|| {
        let length = header.map_or(0, |_| line.len() - git_header(line).1.len());
        &line[..length]
    })
}

/// What is between the brackets at the beginning of a line, and what follows.
fn git_header(line: &str) -> (Option<&str>, &str) {
    let Some(inside) = line.trim_start().strip_prefix('[') else {
        return (None, line);
    };
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, letter) in inside.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ']' if !is_quoted => return (Some(&inside[..at]), &inside[at + 1..]),
            _ => {}
        }
    }
    (None, line)
}

/// All but the elements that hold secrets.
fn without_elements(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let name = rest[1..].split(|letter: char| !letter.is_ascii_alphanumeric());
        let name = name.into_iter().next().unwrap_or_default();
        let is_secret = SECRET_ELEMENTS
            .iter()
            .any(|it| name.eq_ignore_ascii_case(it));
        let end = is_secret.then(|| element_end(rest, name));
        // One that does not end: nothing of what follows is safe to show.
        let length = end.unwrap_or(1).min(rest.len());
        if !is_secret {
            kept.push('<');
        }
        rest = &rest[length..];
    }
    kept.push_str(rest);
    kept
}

fn element_end(text: &str, name: &str) -> usize {
    let opened = text.find('>').unwrap_or(text.len());
    if text[..opened].ends_with('/') {
        return opened + 1;
    }
    let closing = format!("</{name}");
    let found = text.find(&closing).unwrap_or(text.len());
    text[found..]
        .find('>')
        .map_or(text.len(), |at| found + at + 1)
}

/// Addresses without the names and passwords in them. A name alone is kept where it is no token, as in
/// `ssh://git@host`.
fn without_logins(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        kept.push_str(before);
        let scheme = before[..at].rsplit(|letter: char| !letter.is_ascii_alphanumeric());
        let is_web = scheme
            .into_iter()
            .next()
            .is_some_and(|scheme| WEB.iter().any(|it| it.eq_ignore_ascii_case(scheme)));
        let ends = |letter: char| {
            letter == '/' || letter == '"' || letter == '\'' || letter.is_whitespace()
        };
        let authority = &after[..after.find(ends).unwrap_or(after.len())];
        rest = match authority.rfind('@') {
            Some(login) if is_web || authority[..login].contains(':') => &after[login + 1..],
            _ => after,
        };
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: SettingsFormat, cases: &[(&str, Option<&str>)]) {
        for (text, expected) in cases {
            assert_eq!(without_tokens(format, text).as_deref(), *expected, "{text}");
        }
    }

    #[test]
    fn lines_with_tokens() {
        check(
            SettingsFormat::Lines,
            &[
                ("registry=https://r.example/\n", None),
                ("", None),
                (
                    "registry=https://r.example/\n//r.example/:_authToken=abc\nfund=false\n",
                    Some("registry=https://r.example/\nfund=false\n"),
                ),
                ("_auth = abc", Some("")),
                ("//r.example/:_password=\"abc\"", Some("")),
                (
                    "npmRegistryServer: \"https://r\"\nnpmAuthToken: abc\n",
                    Some("npmRegistryServer: \"https://r\"\n"),
                ),
                // A value that speaks of tokens is none.
                ("message=no token here", None),
                // Logins in addresses, as pip has them.
                (
                    "[global]\nindex-url = https://me:abc@r.example/simple\nextra-index-url =\n  https://abc@s.example/\n  https://t.example/a@b\n",
                    Some(
                        "[global]\nindex-url = https://r.example/simple\nextra-index-url =\n  https://s.example/\n  https://t.example/a@b\n",
                    ),
                ),
            ],
        );
    }

    #[test]
    fn git_configs_with_tokens() {
        check(
            SettingsFormat::Git,
            &[
                (
                    "[user]\n\tname = A Token\n\temail = a@b\n[core]\n\taskPass = /bin/ask\n",
                    None,
                ),
                (
                    "[url \"ssh://git@h.example/\"]\n\tinsteadOf = https://h.example/\n",
                    None,
                ),
                ("[credential]\n\thelper = store\n", None),
                (
                    "[credential]\n\thelper = \"!f() { echo password=abc; }; f\"\n[a]\nb = c\n",
                    Some("[credential]\n[a]\nb = c\n"),
                ),
                (
                    "[url \"https://me:abc@h.example/\"]\n\tinsteadOf = https://h.example/\n",
                    Some("[url \"https://h.example/\"]\n\tinsteadOf = https://h.example/\n"),
                ),
                (
                    "[http \"https://h.example/\"]\n\textraHeader = Authorization: abc\n\tproxy = http://me:abc@p\n",
                    Some("[http \"https://h.example/\"]\n\tproxy = http://p\n"),
                ),
                (
                    "[github] token = abc\n[sendemail]\n\tsmtpPass = a\\\nbc\n\tsmtpUser = me\n",
                    Some("[github]\n[sendemail]\n\tsmtpUser = me\n"),
                ),
                ("[gitlab]\n\tAPI-Token=abc\r\n", Some("[gitlab]\n")),
                ("[a]\n# token = abc\n", Some("[a]\n")),
            ],
        );
    }

    #[test]
    fn elements_with_passwords() {
        check(
            SettingsFormat::Xml,
            &[
                (
                    "<settings><mirrors><url>https://r</url></mirrors></settings>",
                    None,
                ),
                (
                    "<settings>\n<servers><server><password>abc</password></server></servers><a/></settings>\n",
                    Some("<settings>\n<a/></settings>\n"),
                ),
                (
                    "<a><proxy><Password>abc</Password></proxy></a>",
                    Some("<a><proxy></proxy></a>"),
                ),
                ("<a><servers/></a>", Some("<a></a>")),
                (
                    "<configuration><packageSourceCredentials><x><add key=\"p\" value=\"abc\" /></x></packageSourceCredentials></configuration>",
                    Some("<configuration></configuration>"),
                ),
                ("<a><password>abc", Some("<a>")),
            ],
        );
    }

    #[test]
    fn included_files() {
        let text = "[include]\n\tpath = ~/.work\n[user]\n\tpath = x\n[includeIf \"gitdir:~/w/\"] path = \"/etc/w\"\n";
        assert_eq!(included_settings(text), ["~/.work", "/etc/w"]);
    }
}
