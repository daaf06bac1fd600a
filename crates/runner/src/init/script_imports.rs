//! What scripts of a guard take in: a helper beside a check decides as much as the check.

/// A name in a folder; the root has none.
pub(super) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// The files that a script may take in, from its own folder or from the root.
pub(super) fn taken_in(script: &str, text: &str) -> Vec<String> {
    let ending = script.rsplit_once('.').map_or("", |(_, ending)| ending);
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        match ending {
            "py" => {
                let words: Vec<&str> = line.split([' ', ',']).filter(|it| !it.is_empty()).collect();
                let modules: Vec<String> = match words.as_slice() {
                    ["import", names @ ..] => names.iter().map(|it| (*it).to_owned()).collect(),
                    ["from", module, "import", names @ ..] => {
                        let inner = names.iter().map(|name| format!("{module}.{name}"));
                        inner.chain([(*module).to_owned()]).collect()
                    }
                    _ => continue,
                };
                for module in modules {
                    let path = module.trim_start_matches('.').replace('.', "/");
                    found.push(format!("{path}.py"));
                    found.push(format!("{path}/__init__.py"));
                }
            }
            "js" | "mjs" | "cjs" | "ts" => {
                for part in line.split(['"', '\'', '`']) {
                    if let Some(path) = part.strip_prefix("./") {
                        found.push(path.to_owned());
                        for ending in ["js", "mjs", "cjs", "ts", "json"] {
                            found.push(format!("{path}.{ending}"));
                            found.push(format!("{path}/index.{ending}"));
                        }
                    }
                }
            }
            _ => {
                // `"$(dirname "$0")/lib.sh"`, `$DIR/lib.sh`, `./lib.sh` after a `cd`.
                let words = line.split(|it: char| it.is_whitespace() || "\"'`;|&()<>".contains(it));
                for word in words {
                    let path = match word.split_once('/') {
                        Some((before, rest))
                            if before.is_empty() || before == "." || before.contains('$') =>
                        {
                            rest
                        }
                        _ => continue,
                    };
                    found.push(path.to_owned());
                }
            }
        }
    }
    found
}
