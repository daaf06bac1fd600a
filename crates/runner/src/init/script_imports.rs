//! What scripts of a guard take in: a helper beside a check decides as much as the check.

use std::collections::BTreeSet;

/// A name in a folder; the root has none.
pub(super) fn join(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    let mut rest = name;
    while let Some(above) = rest.strip_prefix("../") {
        if parts.pop().is_none() {
            break;
        }
        rest = above;
    }
    parts.push(rest);
    parts.join("/")
}

/// The first parts of the modules that Python code imports.
pub(crate) fn python_names(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.split([' ', ',']).filter(|it| !it.is_empty()).collect();
        let modules: &[&str] = match words.as_slice() {
            ["import", names @ ..] => names,
            ["from", module, "import", ..] => std::slice::from_ref(module),
            _ => continue,
        };
        let mut before = "";
        for module in modules {
            let name = module.split('.').next().unwrap_or_default();
            if !name.is_empty() && *module != "as" && before != "as" {
                found.insert(name.to_owned());
            }
            before = module;
        }
    }
    found
}

/// Whether a file is source of Python.
pub(super) fn is_python(path: &str) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(_, ending)| ending == "py")
}

/// Whether scripts with this ending take in modules: what others take in is always run.
pub(super) fn has_modules(script: &str) -> bool {
    let ending = script.rsplit_once('.').map_or("", |(_, ending)| ending);
    matches!(ending, "py" | "js" | "mjs" | "cjs" | "ts")
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
                    let path = part.strip_prefix("./");
                    if let Some(path) = path.or_else(|| part.starts_with("../").then_some(part)) {
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
