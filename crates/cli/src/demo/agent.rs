//! The demo's agent: it really edits files, decides by the node it is given
//! and by what it hears in `.runner/context/`, and knows no iteration numbers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use runner_core::tree::{self, Node};
use serde_json::json;

/// One session.
pub(crate) fn main() -> ExitCode {
    let (Some(project), Some(output), Ok(node)) = (
        std::env::var_os("RUNNER_PROJECT_DIR"),
        std::env::var_os("RUNNER_OUTPUT_PATH"),
        std::env::var("RUNNER_NODE_ID"),
    ) else {
        return ExitCode::FAILURE;
    };
    let session = LoopDemoSession {
        project: PathBuf::from(project),
    };
    let (status, summary) = match session.work(&node) {
        Ok(result) => result,
        Err(error) => ("retry", format!("could not work: {error}")),
    };
    let answer = json!({"status": status, "summary": summary}).to_string();
    match std::fs::write(Path::new(&output), answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

struct LoopDemoSession {
    project: PathBuf,
}

type DemoAnswer = std::io::Result<(&'static str, String)>;

impl LoopDemoSession {
    fn work(&self, node: &str) -> DemoAnswer {
        match node {
            "root" => self.decompose(
                node,
                &[
                    (
                        "count",
                        "Count words",
                        "`wordcount.sh` prints the number of words on its standard input.",
                    ),
                    (
                        "report",
                        "Print a report",
                        "`wordcount.sh --report` prints lines and words.",
                    ),
                    (
                        "docs",
                        "Document it",
                        "A person can learn from the repository how to use it.",
                    ),
                ],
            ),
            "count" => self.count(),
            "report" => self.report(),
            "docs" => self.decompose(
                node,
                &[
                    (
                        "usage",
                        "Usage",
                        "README.md says how to call `wordcount.sh`.",
                    ),
                    (
                        "example",
                        "Example",
                        "`examples/` holds a text and what comes out for it.",
                    ),
                ],
            ),
            "usage" => self.usage(),
            "example" => self.example(),
            other => Ok(("retry", format!("no script for node {other}"))),
        }
    }

    /// First with a bug, then, when the guard has spoken, without it.
    fn count(&self) -> DemoAnswer {
        self.write("tests/count.sh", "test \"$(printf 'one two\\nthree\\n' | sh wordcount.sh)\" = 3 || { echo 'expected 3 words'; exit 1; }\n")?;
        if self.project.join(".runner/context/failure.md").exists() {
            self.write("wordcount.sh", "#!/bin/sh\nwc -w | tr -d ' '\n")?;
            return Ok((
                "done",
                "The guard was right: lines were counted, not words. Mended.".to_owned(),
            ));
        }
        self.write("wordcount.sh", "#!/bin/sh\nwc -l | tr -d ' '\n")?;
        Ok(("done", "Wrote wordcount.sh and a test for it.".to_owned()))
    }

    /// First only half of it, then, reminded by its own words, the rest.
    fn report(&self) -> DemoAnswer {
        if !self.project.join(".runner/context/history.md").exists() {
            self.append(
                ".runner/state/assumptions.md",
                "- The report is plain text on standard output.\n",
            )?;
            self.write(
                "tests/report.sh",
                "printf 'a b\\n' | sh wordcount.sh --report | grep -q '^words: 2$'\n",
            )?;
            return Ok((
                "retry",
                "Wrote the test for the report; wordcount.sh itself still has to learn it."
                    .to_owned(),
            ));
        }
        self.write(
            "wordcount.sh",
            "#!/bin/sh\ntext=$(cat)\nwords=$(printf '%s\\n' \"$text\" | wc -w | tr -d ' ')\nlines=$(printf '%s\\n' \"$text\" | wc -l | tr -d ' ')\nif [ \"$1\" = --report ]; then\n    echo \"lines: $lines\"\n    echo \"words: $words\"\nelse\n    echo \"$words\"\nfi\n",
        )?;
        Ok((
            "done",
            "wordcount.sh --report prints lines and words.".to_owned(),
        ))
    }

    fn usage(&self) -> DemoAnswer {
        self.write("README.md", "# wordcount\n\n    sh wordcount.sh < text            the number of words\n    sh wordcount.sh --report < text   lines and words\n")?;
        self.write(
            "tests/usage.sh",
            "grep -q 'wordcount.sh --report' README.md\n",
        )?;
        Ok(("done", "README.md tells how to call it.".to_owned()))
    }

    fn example(&self) -> DemoAnswer {
        self.write("examples/poem.txt", "so much depends\nupon\n")?;
        self.write("examples/poem.words", "4\n")?;
        self.write(
            "tests/example.sh",
            "sh wordcount.sh < examples/poem.txt | diff - examples/poem.words\n",
        )?;
        self.append(
            ".runner/state/questions.md",
            "- Should hyphenated words count as one?\n",
        )?;
        Ok((
            "done",
            "An example with its expected count, and a test that compares them.".to_owned(),
        ))
    }

    fn decompose(
        &self,
        parent: &str,
        parts: &[(&'static str, &'static str, &'static str)],
    ) -> DemoAnswer {
        let path = self.project.join(runner_core::paths::TREE);
        let bytes = std::fs::read(&path)?;
        let mut root =
            tree::parse(&bytes).map_err(|_| std::io::Error::other("the tree is invalid"))?;
        let Some(node) = root.find_mut(parent) else {
            return Ok(("retry", format!("node {parent} is not in the tree")));
        };
        for (order, (id, title, goal)) in (1..).zip(parts) {
            let mut child = Node::leaf(*id, *title, *goal, 3);
            child.order = order;
            node.children.push(child);
        }
        std::fs::write(&path, tree::to_bytes(&root))?;
        let names: Vec<&str> = parts.iter().map(|part| part.0).collect();
        Ok((
            "decomposed",
            format!("Split {parent} into {}.", names.join(", ")),
        ))
    }

    fn write(&self, path: &str, text: &str) -> std::io::Result<()> {
        let path = self.project.join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, text)
    }

    fn append(&self, path: &str, text: &str) -> std::io::Result<()> {
        let path = self.project.join(path);
        let mut all = std::fs::read_to_string(&path).unwrap_or_default();
        all.push_str(text);
        std::fs::write(path, all)
    }
}
