//! Every file that redefines a guard, whether it exists or not: an agent that may write them needs
//! no tests.
//!
//! The lists are never complete. What they miss, the verdict at `land` is for, which lays only the
//! product files over the tests and settings of the beginning.

use std::collections::BTreeSet;

use runner_core::paths::{GlobList, PYTHON_MODULES};
use runner_core::product::USUAL_TESTS;

use super::detect::MAKEFILES;
use super::guard_recipes::{
    imported, included, included_by_variable, targets_that_files_stand_for,
};
use super::guard_settings::{code_settings, pytest_plugins};
use super::guard_tools::{GuardTool, JUSTFILES, TOOLS};
use super::guard_words::{WordRole, looped_globs, search_folders, words_of, words_of_argv};
use super::product_modules::{has_other_product, is_product_module};
use super::script_imports::{has_modules, is_python, join, taken_in};
use crate::script_folders::is_for_scripts;

/// How deep scripts that call scripts are looked into.
const DEPTH: usize = 4;

/// How names of scripts end.
const SCRIPT_ENDINGS: [&str; 11] = [
    "sh", "bash", "py", "js", "mjs", "cjs", "ts", "rb", "pl", "mk", "just",
];

/// Options of pytest that take the next word.
const PYTEST_OPTIONS: [&str; 8] = ["-k", "-m", "-p", "-n", "-c", "-o", "-W", "-r"];

/// What must stay as it is for a guard to mean what it meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GuardFiles {
    /// Globs for `[guard] protected`.
    pub(super) protected: Vec<String>,
    /// Entries for `[guard] protected_values`.
    pub(super) values: Vec<String>,
}

/// What can be asked about the project that a guard judges.
pub(super) struct GuardedFiles<'r> {
    /// The text of a file.
    pub(super) read: &'r dyn Fn(&str) -> Option<String>,
    /// Whether there is a file or folder.
    pub(super) is_there: &'r dyn Fn(&str) -> bool,
    /// Whether folders have a go.mod of their own.
    pub(super) has_modules: bool,
    /// Every file of the project.
    pub(super) tracked: &'r [String],
}

/// All files that redefine a guard. `setup`: what makes a checkout ready for it, whose scripts could
/// do the same.
pub(super) fn guard_files(
    command: &[String],
    setup: &[String],
    project: &GuardedFiles<'_>,
) -> GuardFiles {
    let mut scan = GuardScan {
        project,
        files: GuardFiles::default(),
        seen: BTreeSet::new(),
        paths: Vec::new(),
        module_folders: Vec::new(),
        only_scripts: false,
    };
    scan.command(command, DEPTH);
    scan.only_scripts = true;
    scan.command(setup, DEPTH - 1);
    scan.files
}

struct GuardScan<'r> {
    project: &'r GuardedFiles<'r>,
    files: GuardFiles,
    seen: BTreeSet<String>,
    /// Folders of the project in which programs are looked for by their names.
    paths: Vec<String>,
    /// Folders in which Python looks for modules.
    module_folders: Vec<String>,
    /// Tools of setup say nothing of the guard.
    only_scripts: bool,
}

impl GuardScan<'_> {
    fn read(&self, path: &str) -> Option<String> {
        (self.project.read)(path)
    }

    fn is_tracked(&self, path: &str) -> bool {
        self.project.tracked.iter().any(|known| known == path)
    }

    fn command(&mut self, command: &[String], depth: usize) {
        match command {
            [shell, option, script] if is_shell(shell) && option.starts_with('-') => {
                self.text(script, depth);
            }
            words => {
                self.search_paths(&words.join(" "));
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.words(&words_of_argv(&words), &[], depth);
            }
        }
    }

    /// The words of a script, of a recipe or of a command line.
    fn text(&mut self, text: &str, depth: usize) {
        let text = text.replace("\\\n", " ");
        self.search_paths(&text);
        self.loops(&text, depth);
        // Where `cd` leads to.
        let mut folders: Vec<String> = Vec::new();
        for line in text.lines() {
            let line = line.split(" #").next().unwrap_or(line);
            for command in line.split([';', '|', '&', '(', '`']) {
                let words = words_of(command);
                self.words(&words, &folders, depth);
                if let [("cd", _), (folder, _), ..] = words.as_slice()
                    && is_inside(folder)
                {
                    let inner: Vec<String> = folders.iter().map(|it| join(it, folder)).collect();
                    folders.push((*folder).to_owned());
                    folders.extend(inner);
                    folders.truncate(8);
                }
            }
        }
    }

    /// One command line, also as it reads in these folders.
    fn words(&mut self, words: &[(&str, WordRole)], folders: &[String], depth: usize) {
        for (at, (word, role)) in words.iter().enumerate() {
            let name = word.rsplit('/').next().unwrap_or(word);
            if !self.only_scripts {
                for tool in TOOLS.iter().filter(|tool| tool.words.contains(&name)) {
                    let rest: Vec<&str> = words[at + 1..].iter().map(|(word, _)| *word).collect();
                    self.tool(tool, name, &rest, depth);
                }
            }
            self.script(word, *role, depth);
            for folder in folders {
                let path = join(folder, word.strip_prefix("./").unwrap_or(word));
                if is_inside(word.trim_start_matches("./")) && self.is_tracked(&path) {
                    self.script(&path, *role, depth);
                }
            }
        }
    }

    /// Folders of the project in which programs and modules are looked for first.
    fn search_paths(&mut self, text: &str) {
        for folder in search_folders(text, "PATH") {
            let inside = format!("{folder}/");
            let mut tracked = self.project.tracked.iter();
            let is_filled = tracked.any(|path| path.starts_with(&inside));
            // What is there and not tracked was installed, or built.
            if !folder.is_empty() && (is_filled || !(self.project.is_there)(&folder)) {
                add(&mut self.files.protected, &format!("{folder}/**"));
            }
            self.paths.push(folder);
        }
        for folder in search_folders(text, "PYTHONPATH") {
            self.module_folder(&folder);
        }
    }

    /// A folder in which Python looks for modules before it looks for its own.
    fn module_folder(&mut self, folder: &str) {
        for name in [PYTHON_MODULES, "sitecustomize.py", "usercustomize.py"] {
            add(&mut self.files.protected, &join(folder, name));
        }
        if !self.module_folders.iter().any(|known| known == folder) {
            self.module_folders.push(folder.to_owned());
        }
    }

    /// Files that a loop runs.
    fn loops(&mut self, text: &str, depth: usize) {
        for glob in looped_globs(text) {
            let Ok(globs) = GlobList::new(&[&glob]) else {
                continue;
            };
            let tests = GlobList::new(&USUAL_TESTS);
            let is_test = |path: &str| tests.as_ref().is_ok_and(|tests| tests.is_match(path));
            let tracked = self.project.tracked.iter();
            let run: Vec<&String> = tracked
                .filter(|path| globs.is_match(path) && !is_test(path))
                .collect();
            if !glob.contains('/') || run.is_empty() {
                continue;
            }
            add(&mut self.files.protected, &glob);
            for path in run {
                self.file(path, depth.saturating_sub(1), None);
            }
        }
    }

    /// A tool with the words behind it.
    fn tool(&mut self, tool: &GuardTool, name: &str, rest: &[&str], depth: usize) {
        for glob in tool.protected {
            add(&mut self.files.protected, glob);
        }
        for value in tool.values {
            add(&mut self.files.values, value);
        }
        match name {
            "make" | "gmake" | "MAKE" => self.make(rest, depth),
            "just" => self.definitions(JUSTFILES, depth, imported),
            "npm" | "pnpm" | "yarn" | "bun" => self.package(depth),
            "jest" => self.settings("jest.config", Some("jest"), depth),
            "vitest" => {
                self.settings("vitest.config", None, depth);
                self.settings("vite.config", None, depth);
            }
            "pytest" | "py.test" => self.pytest(rest, depth),
            // A folder with one of its own is left out of `./...`.
            "go" if !self.project.has_modules => add(&mut self.files.protected, "*/**/go.mod"),
            _ => {}
        }
    }

    /// The makefiles, what they include, and what would take the place of their targets.
    fn make(&mut self, rest: &[&str], depth: usize) {
        self.definitions(&MAKEFILES, depth, included);
        self.make_targets(rest);
        let folders = rest.windows(2).filter(|pair| pair[0] == "-C");
        let folders: Vec<&str> = folders.map(|pair| pair[1].trim_end_matches('/')).collect();
        for folder in folders.into_iter().filter(|folder| is_inside(folder)) {
            for name in MAKEFILES {
                let path = join(folder, name);
                add(&mut self.files.protected, &path);
                self.file(&path, depth, Some(included));
            }
        }
    }

    /// Files that would stand for the targets that make is asked for.
    fn make_targets(&mut self, rest: &[&str]) {
        let wanted: Vec<&str> = rest
            .iter()
            .copied()
            .filter(|word| !word.starts_with('-') && !word.contains('='))
            .collect();
        let found = MAKEFILES.iter().find_map(|name| self.read(name));
        let mut text = found.unwrap_or_default();
        for path in included(&text) {
            text.push('\n');
            text.push_str(&self.read(&path).unwrap_or_default());
        }
        for glob in included_by_variable(&text) {
            // What such names are made of is product, but not what make reads.
            let is_source = [".c", ".cc", ".cpp", ".o"]
                .iter()
                .any(|end| glob.ends_with(end));
            if !is_source {
                add(&mut self.files.protected, &glob);
            }
        }
        for name in targets_that_files_stand_for(&text, &wanted) {
            if !(self.project.is_there)(&name) {
                add(&mut self.files.protected, &format!("{name}/**"));
                add(&mut self.files.protected, &name);
            }
        }
    }

    /// Code that the settings of jest or vitest name, in a file of their own or in package.json.
    fn settings(&mut self, name: &str, key: Option<&str>, depth: usize) {
        if depth == 0 || !self.seen.insert(name.to_owned()) {
            return;
        }
        let endings = ["js", "cjs", "mjs", "ts", "cts", "mts", "json"];
        let files = endings.map(|ending| self.read(&format!("{name}.{ending}")));
        let mut texts: Vec<String> = files.into_iter().flatten().collect();
        if let Some(key) = key {
            let package = self.read("package.json").unwrap_or_default();
            let package: serde_json::Value = serde_json::from_str(&package).unwrap_or_default();
            texts.push(package[key].to_string());
        }
        for value in texts.iter().flat_map(|text| code_settings(text)) {
            self.text(&value, depth - 1);
        }
    }

    /// Plugins of the project, and settings beside tests that the command names.
    fn pytest(&mut self, rest: &[&str], depth: usize) {
        let settings = [
            "pytest.ini",
            "pyproject.toml",
            "setup.cfg",
            "tox.ini",
            "conftest.py",
        ];
        let files = settings.map(|name| self.read(name));
        let mut texts: Vec<String> = files.into_iter().flatten().collect();
        for folder in texts
            .iter()
            .flat_map(|text| search_folders(text, "pythonpath"))
        {
            self.module_folder(&folder);
        }
        texts.push(rest.join(" "));
        for path in texts.iter().flat_map(|text| pytest_plugins(text)) {
            if self.read(&path).is_some() {
                add(&mut self.files.protected, &path);
                self.file(&path, depth, None);
            }
        }
        let before = [""].iter().chain(rest);
        let named = rest.iter().zip(before).filter(|(word, before)| {
            let is_value = before.starts_with("--") || PYTEST_OPTIONS.contains(before);
            is_inside(word) && !is_value
        });
        for path in named.map(|(word, _)| word.trim_end_matches('/')) {
            for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
                let folder = &path[..at];
                add(&mut self.files.protected, &format!("{folder}/tox.ini"));
                add(&mut self.files.protected, &format!("{folder}/setup.cfg"));
                let value = format!("{folder}/pyproject.toml:/tool/pytest");
                add(&mut self.files.values, &value);
            }
        }
    }

    /// Files of recipes, with those that they take in.
    fn definitions(&mut self, names: &[&str], depth: usize, others: fn(&str) -> Vec<String>) {
        for name in names {
            self.file(name, depth, Some(others));
        }
    }

    /// The scripts that a package has.
    fn package(&mut self, depth: usize) {
        if !self.seen.insert("package.json".to_owned()) || depth == 0 {
            return;
        }
        let text = self.read("package.json").unwrap_or_default();
        let package: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let scripts = package["scripts"].as_object().into_iter().flatten();
        let texts: Vec<String> = scripts
            .filter_map(|(_, script)| script.as_str().map(str::to_owned))
            .collect();
        for script in texts {
            self.text(&script, depth - 1);
        }
    }

    /// A word that names a script of the project, or what one is told to check by.
    fn script(&mut self, word: &str, role: WordRole, depth: usize) {
        let path = word.strip_prefix("./").unwrap_or(word);
        if role == WordRole::Module {
            return self.module(path, depth);
        }
        if role == WordRole::Program && !word.contains('/') {
            let places = self.paths.iter().map(|it| join(it, word));
            let places: Vec<String> = places.filter(|it| self.is_tracked(it)).collect();
            for place in places {
                self.take(&place, depth);
            }
        }
        if role == WordRole::Checked || !is_inside(path) {
            return;
        }
        let is_called = word.starts_with("./");
        let is_asked = depth == DEPTH && !self.only_scripts;
        let is_run = matches!(
            role,
            WordRole::Program | WordRole::Script | WordRole::Settings
        );
        let ending = path.rsplit_once('.').map(|(_, ending)| ending);
        let has_ending = ending.is_some_and(|ending| SCRIPT_ENDINGS.contains(&ending));
        let is_there = self.read(path).is_some();
        let is_program = is_run && (self.is_tracked(path) || is_asked && path.contains('/'))
            || self.is_tracked(path) && self.read(path).is_some_and(|text| text.starts_with("#!"));
        let is_meant = is_called || has_ending && (is_there || is_asked) || is_program;
        // What the project is about is run by its checks, too.
        let is_product = !is_asked && has_modules(path) && is_product_module(path, self.project);
        if is_meant && !is_test(path) && !is_product {
            self.take(path, depth);
        }
        if role == WordRole::Script {
            // A folder is run by this.
            for name in ["__main__.py", "index.js"] {
                let inner = join(path.trim_end_matches('/'), name);
                if self.is_tracked(&inner) {
                    self.take(&inner, depth);
                }
            }
        }
    }

    /// A module that Python runs, with the packages that it is in.
    fn module(&mut self, name: &str, depth: usize) {
        let path = name.replace('.', "/");
        let mut folders = self.module_folders.clone();
        folders.push(String::new());
        for folder in folders {
            let path = join(&folder, &path);
            let files = ["/__init__.py", "/__main__.py", ".py"].map(|end| format!("{path}{end}"));
            let found: Vec<&String> = files.iter().filter(|it| self.is_tracked(it)).collect();
            if found.is_empty() || is_test(&files[2]) {
                continue;
            }
            self.module_folder(&folder);
            for file in found {
                self.take(file, depth);
            }
            // A new one is run before the module, too.
            for (at, _) in name.match_indices('.') {
                let package = join(&folder, &name[..at].replace('.', "/"));
                self.take(&format!("{package}/__init__.py"), depth);
            }
        }
    }

    /// A file that belongs to the guard.
    fn take(&mut self, path: &str, depth: usize) {
        add(&mut self.files.protected, path);
        self.file(path, depth, None);
    }

    /// Looks into a file once.
    fn file(&mut self, path: &str, depth: usize, others: Option<fn(&str) -> Vec<String>>) {
        if depth == 0 || !self.seen.insert(path.to_owned()) {
            return;
        }
        let Some(text) = self.read(path) else {
            return;
        };
        for other in others.map(|others| others(&text)).unwrap_or_default() {
            add(&mut self.files.protected, &other);
            self.file(&other, depth - 1, others);
        }
        if is_python(path) {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            add(&mut self.files.protected, &join(folder, PYTHON_MODULES));
        }
        self.beside(path, &text, depth - 1);
        self.text(&text, depth - 1);
    }

    /// What a script takes in from its own folder, or from the root: by a path behind a variable or
    /// `dirname`, by `import`, by `require`.
    fn beside(&mut self, script: &str, text: &str, depth: usize) {
        let folder = script.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut places = Vec::new();
        for name in taken_in(script, text) {
            for place in [join(folder, &name), name.clone()] {
                if is_inside(&place) && self.read(&place).is_some() {
                    places.push(place);
                }
            }
        }
        if has_modules(script) {
            self.leave_product(script, &mut places);
        }
        for place in places {
            self.take(&place, depth);
        }
    }

    /// Leaves out the modules that the project is about.
    fn leave_product(&self, script: &str, places: &mut Vec<String>) {
        let folder_of = |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
        let folder = folder_of(script);
        places.retain(|place| {
            let is_beside = folder_of(place) == folder || is_for_scripts(place);
            is_beside && !is_product_module(place, self.project)
        });
        let known = self.seen.iter().chain(places.iter()).cloned();
        if !has_other_product(&known.collect(), self.project) {
            places.retain(|place| is_for_scripts(place));
        }
    }
}

/// Whether a command that names a file means a test, which is for agents to write. A shell script,
/// and what has no ending, is how it calls them.
fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    if matches!(ending, None | Some("sh" | "bash")) {
        return false;
    }
    path.split('/').any(|part| {
        let stem = part.split(['.', '_', '-']).next().unwrap_or(part);
        matches!(stem, "test" | "tests" | "spec" | "specs")
            || part == "__tests__"
            || [".test.", ".spec.", "_test."]
                .iter()
                .any(|it| part.contains(it))
    })
}

fn add(list: &mut Vec<String>, entry: &str) {
    if !list.iter().any(|known| known == entry) {
        list.push(entry.to_owned());
    }
}

/// Whether a word can be the path of a file of the project.
fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.starts_with(['/', '-', '~'])
        && !path.contains(['*', ':', '[', '{', '?'])
        && path
            .trim_end_matches('/')
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".." | "..."))
}

fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    matches!(name, "sh" | "bash" | "dash" | "zsh")
}

#[cfg(test)]
mod tests;
