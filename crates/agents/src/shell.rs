//! The command inside a shell call.

use std::borrow::Cow;

/// The command without the shell that a CLI wraps around it: `bash -lc 'ls'` is `ls`
/// to a reader. Anything that is not plainly such a call stays as it is.
pub(crate) fn unwrapped(command: &str) -> Cow<'_, str> {
    inner(command).unwrap_or(Cow::Borrowed(command))
}

fn inner(command: &str) -> Option<Cow<'_, str>> {
    let (program, rest) = command.split_once(' ')?;
    let name = program.rsplit('/').next()?;
    if !matches!(name, "sh" | "bash" | "zsh" | "dash") {
        return None;
    }
    let (flag, script) = rest.split_once(' ')?;
    if !matches!(flag, "-c" | "-lc") {
        return None;
    }
    if let Some(quoted) = script
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''))
    {
        return (!quoted.contains('\'')).then_some(Cow::Borrowed(quoted));
    }
    if let Some(quoted) = script
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    {
        return unescaped(quoted).map(Cow::Owned);
    }
    // One word needs no quotes.
    let plain = |c: char| c.is_alphanumeric() || "-_./=:@%+,".contains(c);
    script.chars().all(plain).then_some(Cow::Borrowed(script))
}

/// What stands between double quotes; nothing if they end before.
fn unescaped(quoted: &str) -> Option<String> {
    let mut text = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => return None,
            '\\' => match rest.next()? {
                escaped @ ('"' | '\\' | '$' | '`') => text.push(escaped),
                other => {
                    text.push('\\');
                    text.push(other);
                }
            },
            _ => text.push(c),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_shell_calls_are_unwrapped() {
        for (command, expected) in [
            ("/bin/bash -lc 'echo hi > a; exit 3'", "echo hi > a; exit 3"),
            ("bash -lc ls", "ls"),
            (
                "/usr/bin/zsh -c \"echo \\\"it's\\\" \\$x \\n\"",
                "echo \"it's\" $x \\n",
            ),
            ("sh -c ''", ""),
            ("bash -lc 'a'\\''b'", "bash -lc 'a'\\''b'"),
            ("bash -lc \"a\" \"b\"", "bash -lc \"a\" \"b\""),
            ("bash -lc 'a' b", "bash -lc 'a' b"),
            ("bash script.sh", "bash script.sh"),
            ("bash", "bash"),
            ("cargo -c x", "cargo -c x"),
            ("bash -lc '", "bash -lc '"),
            ("bash -lc \"\\\"", "bash -lc \"\\\""),
            ("", ""),
        ] {
            assert_eq!(unwrapped(command), expected, "{command}");
        }
    }
}
