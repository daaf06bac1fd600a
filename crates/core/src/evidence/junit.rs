//! Reports in JUnit's format. Only elements and attributes matter, so a small reader does.

use super::TestOutcome;

/// The tests of a report with their outcomes; `None` where it is none.
pub(super) fn read(text: &str) -> Option<Vec<(String, TestOutcome)>> {
    let mut tests: Vec<(String, TestOutcome)> = Vec::new();
    let mut open = false;
    let mut is_report = false;
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        if let Some(after) = skip(rest, "<!--", "-->")
            .or_else(|| skip(rest, "<![CDATA[", "]]>"))
            .or_else(|| skip(rest, "<?", "?>"))
            .or_else(|| skip(rest, "<!", ">"))
        {
            rest = after;
            continue;
        }
        let end = tag_end(rest)?;
        let tag = &rest[1..end];
        rest = &rest[end + 1..];
        let name = tag
            .split([' ', '\t', '\n', '\r', '/'])
            .find(|it| !it.is_empty());
        match (name?, tag.starts_with('/')) {
            ("testsuite" | "testsuites", false) => is_report = true,
            ("testcase", false) => {
                let class = attribute(tag, "classname").unwrap_or_default();
                let test = attribute(tag, "name").unwrap_or_default();
                let name = format!("{class} {test}").trim().to_owned();
                tests.push((name, TestOutcome::Passed));
                open = !tag.ends_with('/');
            }
            ("testcase", true) => open = false,
            ("failure" | "error", false) if open => mark(&mut tests, TestOutcome::Failed),
            ("skipped", false) if open => mark(&mut tests, TestOutcome::Skipped),
            _ => {}
        }
    }
    is_report.then_some(tests)
}

fn mark(tests: &mut [(String, TestOutcome)], outcome: TestOutcome) {
    if let Some((_, known)) = tests.last_mut() {
        *known = outcome.max(*known);
    }
}

fn skip<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    let inner = text.strip_prefix(begin)?;
    // One that does not end takes the rest with it.
    let at = inner.find(end).map_or(inner.len(), |at| at + end.len());
    Some(&inner[at..])
}

/// The `>` of a tag, which may have another one in a value.
fn tag_end(tag: &str) -> Option<usize> {
    let mut quote: Option<char> = None;
    for (at, letter) in tag.char_indices() {
        match (quote, letter) {
            (None, '>') => return Some(at),
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    None
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let mut rest = tag;
    loop {
        let at = rest.find(name)?;
        let before = rest[..at].chars().next_back();
        rest = &rest[at + name.len()..];
        let value = rest.trim_start().strip_prefix('=').map(str::trim_start);
        if before.is_some_and(char::is_whitespace)
            && let Some(value) = value
            && let Some(quote) = value.chars().next().filter(|it| matches!(it, '"' | '\''))
        {
            let inner = &value[1..];
            return Some(unescape(&inner[..inner.find(quote)?]));
        }
    }
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report() {
        let text = "<?xml version='1.0'?>\n<!-- made > here -->\n<testsuites name=\"all\"><testsuite name=\"s\" tests=\"4\">\n\
                    <testcase classname=\"sums\" name=\"adds &lt;1&gt;\" time=\"0.1\"/>\n\
                    <testcase name='a > b' classname='sums'><skipped message=\"x\"/></testcase>\n\
                    <testcase classname=\"sums\" name=\"broken\"><failure><![CDATA[<skipped/>]]></failure></testcase>\n\
                    <testcase classname=\"sums\" name=\"last\"><system-out>out</system-out></testcase>\n\
                    </testsuite></testsuites>\n";
        assert_eq!(
            read(text).unwrap(),
            [
                ("sums adds <1>".to_owned(), TestOutcome::Passed),
                ("sums a > b".to_owned(), TestOutcome::Skipped),
                ("sums broken".to_owned(), TestOutcome::Failed),
                ("sums last".to_owned(), TestOutcome::Passed),
            ]
        );
    }

    #[test]
    fn something_else() {
        assert_eq!(read(""), None);
        assert_eq!(read("<html><body>x</body></html>"), None);
        assert_eq!(read("<testsuite tests=\"0\"/>"), Some(Vec::new()));
        assert_eq!(read("<testsuite><testcase name=\"a"), None);
    }
}
