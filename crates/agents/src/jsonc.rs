//! JSON with comments and trailing commas, as opencode takes it.

/// The same as plain JSON; what is no such JSON stays none.
pub(crate) fn plain(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => {
                kept.push(c);
                kept.extend(chars.next());
            }
            '"' => {
                in_string = !in_string;
                kept.push(c);
            }
            '/' if !in_string && chars.peek() == Some(&'/') => {
                while chars.next_if(|c| *c != '\n').is_some() {}
            }
            '/' if !in_string && chars.peek() == Some(&'*') => {
                chars.next();
                let mut last = ' ';
                for c in chars.by_ref() {
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            '}' | ']' if !in_string => {
                let end = kept.trim_end().len();
                if kept[..end].ends_with(',') {
                    kept.truncate(end - 1);
                }
                kept.push(c);
            }
            _ => kept.push(c),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_commas_go() {
        for (text, expected) in [
            ("{}", "{}"),
            ("// a\n{\"a\": 1, // b\n}", "\n{\"a\": 1}"),
            ("{/* a ** , */\"a\": [1, 2, ]}", "{\"a\": [1, 2]}"),
            (r#"{"a": "// no \" , }", }"#, r#"{"a": "// no \" , }"}"#),
            ("/* open", ""),
            ("\"open", "\"open"),
            ("\"\\", "\"\\"),
        ] {
            assert_eq!(plain(text), expected, "{text}");
        }
    }
}
