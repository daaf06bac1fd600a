//! The package managers that `runner init` knows, each with a project whose packages git ignores:
//! from `init` over a session to `land` and `verify`, with the real tools and without a network.
//!
//! `RUNNER_MANAGERS` names the folder of those that `cargo xtask setup` installs; `cargo xtask ci`
//! sets it.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod fleet_project;
mod init_support;
mod scenario;

use std::fs;
use std::path::Path;

use fleet_project::{merged, three_issues};
use init_support::{
    NPM, StoryBox, WHEEL, expect, expect_proposed, from_init_to_land, init, installed, need, node,
    project, python, run, take, tried_by_agent,
};
use runner_testkit::TestRepo;
use scenario::{GOAL, plan};
use serde_json::json;

use StoryBox::{Bubblewrap, Landlock, Off};

// --- Node

/// A package, and its lock file as this command writes it.
fn locked_by(install: &[&str], change: impl FnOnce(&mut TestRepo)) -> TestRepo {
    let mut repo = node("");
    change(&mut repo);
    run(&repo, "", install);
    repo.commit_all("Lock the packages");
    repo
}

const PNPM: [&str; 3] = ["pnpm", "install", "--offline"];

/// A project for pnpm. It keeps its locks in this folder, whatever TMPDIR says.
fn for_pnpm(repo: &mut TestRepo) {
    take(repo, "pnpm");
    repo.env("TMPDIR", "/tmp");
}

#[test]
fn pnpm() {
    let value = from_init_to_land(locked_by(&PNPM, for_pnpm), Bubblewrap, &[]);
    expect_proposed(&value, "pnpm install --frozen-lockfile", "pnpm test");
}

/// Not under Landlock: it keeps its locks in /tmp itself, which is closed there.
#[test]
fn pnpm_without_a_sandbox() {
    from_init_to_land(locked_by(&PNPM, for_pnpm), Off, &[]);
}

#[test]
fn a_member_of_a_workspace_of_pnpm() {
    let member = r#"{"name": "web", "version": "1.0.0", "scripts": {"test": "node test.js"},
        "dependencies": {"left": "workspace:*"}}"#;
    let mut repo = project(&[
        (".gitignore", "node_modules/\n"),
        ("package.json", r#"{"name": "all", "private": true}"#),
        ("pnpm-workspace.yaml", "packages:\n  - packages/*\n"),
        ("packages/left/package.json", init_support::LEFT),
        ("packages/left/index.js", "module.exports = 1;\n"),
        ("packages/web/package.json", member),
        ("packages/web/test.js", init_support::TEST),
    ]);
    for_pnpm(&mut repo);
    run(&repo, "", &PNPM);
    repo.commit_all("Lock the packages");
    let web = repo.path("packages/web").display().to_string();
    let value = from_init_to_land(repo, Bubblewrap, &["-C", &web]);
    let guard = "sh -c cd packages/web && pnpm test";
    expect_proposed(&value, "pnpm install --frozen-lockfile", guard);
}

#[test]
fn the_first_yarn() {
    let install = ["yarn", "install", "--offline"];
    let repo = locked_by(&install, |repo| take(repo, "yarn-classic"));
    let value = from_init_to_land(repo, Bubblewrap, &[]);
    expect_proposed(&value, "yarn install --frozen-lockfile", "yarn test");
}

/// Yarn copies a folder that a package names, so what a session changes there must be copied anew
/// into a checkout that stays.
#[test]
fn a_folder_that_is_copied_is_copied_again() {
    let install = ["yarn", "install", "--offline"];
    let mut repo = locked_by(&install, |repo| take(repo, "yarn-classic"));
    repo.config(|config| {
        config.set("workspace.setup", "yarn install --frozen-lockfile");
    });
    repo.agent(
        "echo \"module.exports = '$RUNNER_NODE_ID';\" > left/index.js\n\
         echo \"if (require('left') !== '$RUNNER_NODE_ID') process.exit(3);\" > test.js\n\
         out done 'changed both'",
    );
    repo.start_run(GOAL, &["yarn", "test"]);
    plan(&repo, &["a", "b", "c"]);
    repo.runner(&["loop"]).success();
    assert_eq!(repo.agent_calls().len(), 4, "{:?}", repo.agent_calls());
}

/// A package of a newer yarn, with this linker.
fn berry(linker: &str) -> TestRepo {
    locked_by(&["yarn", "install"], |repo| {
        take(repo, "yarn-berry");
        repo.write(".gitignore", "node_modules/\n.yarn/\n.pnp.*\n");
        let settings = format!("nodeLinker: {linker}\nenableTelemetry: false\n");
        repo.write(".yarnrc.yml", settings);
    })
}

#[test]
fn yarn() {
    let value = from_init_to_land(berry("node-modules"), Bubblewrap, &[]);
    expect_proposed(&value, "yarn install --immutable", "yarn test");
}

#[test]
fn yarn_without_a_folder_of_packages() {
    from_init_to_land(berry("pnp"), Bubblewrap, &[]);
}

#[test]
fn bun() {
    let repo = locked_by(&["bun", "install"], |repo| take(repo, "bun"));
    let value = from_init_to_land(repo, Bubblewrap, &[]);
    expect_proposed(&value, "bun install --frozen-lockfile", "bun run test");
}

#[test]
fn a_fleet_with_packages_that_git_ignores() {
    let mut repo = node("");
    run(&repo, "", NPM);
    repo.commit_all("Lock the packages");
    let value = init(&repo, &[]);
    expect(&value, "green");
    repo.env("RUNNER_FLEET_COOLDOWN_SECS", "0");
    repo.config(|config| {
        config.set("guard.command", value["guard"]["command"].clone());
        config.set("workspace.setup", value["setup"]["command"].clone());
        config.set("sandbox.mode", "auto");
    });
    repo.write_config();
    repo.agent(&format!(
        "{}\n{}",
        tried_by_agent(&value["guard"]["command"]),
        fleet_project::WORKS
    ));
    three_issues(&repo);
    repo.runner(&["fleet", "up", "--until-idle"]).success();
    assert_eq!(merged(&repo, "main"), ["issue-1", "issue-2", "issue-3"]);
}

// --- Python

const IGNORED: (&str, &str) = (".gitignore", ".venv/\n__pycache__/\n*.egg-info/\nbuild/\n");

/// Lets pip and uv find packages in our folder, and those of the repository, and nowhere else.
fn without_an_index(repo: &TestRepo) {
    let wheels = installed("wheels");
    let wheels = wheels.display();
    // A copy: under Landlock a child does not see the checkout of a person.
    let own = repo.root().join("wheels");
    let name = Path::new(WHEEL).file_name().unwrap();
    fs::create_dir_all(&own).unwrap();
    fs::copy(repo.path(WHEEL), own.join(name)).unwrap();
    let own = own.display();
    let home = repo.root().join("home/.config");
    for (name, text) in [
        (
            "pip/pip.conf",
            format!("[global]\nno-index = true\nfind-links =\n    {wheels}\n    {own}\n"),
        ),
        (
            "uv/uv.toml",
            format!("no-index = true\nfind-links = [\"{wheels}\"]\n"),
        ),
    ] {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// A package that can be installed, and whose tests import it.
fn installable(more: &str) -> TestRepo {
    let manifest = format!(
        "[build-system]\nrequires = [\"setuptools\"]\nbuild-backend = \"setuptools.build_meta\"\n\
         [project]\nname = \"app\"\nversion = \"1.0\"\nrequires-python = \">=3.11\"\n{more}"
    );
    let test = "import app, thing\n\ndef test_both():\n    assert app.VALUE == 1 == thing.VALUE\n";
    let repo = python(&[
        IGNORED,
        ("pyproject.toml", &manifest),
        ("src/app/__init__.py", "VALUE = 1\n"),
        ("tests/test_app.py", test),
    ]);
    without_an_index(&repo);
    repo
}

#[test]
fn uv() {
    let mut repo = installable(&format!(
        "dependencies = [\"thing\"]\n[dependency-groups]\ndev = [\"pytest\"]\n\
         [tool.uv]\nenvironments = [\"sys_platform == 'linux'\"]\n\
         [tool.uv.sources]\nthing = {{ path = \"{WHEEL}\" }}\n"
    ));
    take(&mut repo, "uv");
    run(&repo, "", &["uv", "sync"]);
    repo.commit_all("Lock the packages");
    let value = from_init_to_land(repo, Bubblewrap, &[]);
    expect_proposed(&value, "uv sync --frozen", "uv run pytest");
}

#[test]
fn poetry() {
    let manifest = format!(
        "[project]\nname = \"app\"\nversion = \"1.0\"\nrequires-python = \">=3.9\"\n\
         [tool.poetry]\npackage-mode = false\n\
         [tool.poetry.dependencies]\nthing = {{ path = \"{WHEEL}\" }}\n"
    );
    let mut repo = python(&[IGNORED, ("pyproject.toml", &manifest)]);
    take(&mut repo, "poetry");
    repo.env("POETRY_VIRTUALENVS_IN_PROJECT", "true");
    run(&repo, "", &["poetry", "install", "--no-interaction"]);
    repo.env_remove("POETRY_VIRTUALENVS_IN_PROJECT");
    repo.commit_all("Lock the packages");
    let value = from_init_to_land(repo, Bubblewrap, &[]);
    let setup = "env POETRY_VIRTUALENVS_IN_PROJECT=true poetry install --no-interaction";
    let guard = "poetry run python -m unittest discover -s tests";
    expect_proposed(&value, setup, guard);
}

#[test]
fn pipenv() {
    let manifest = format!("[packages]\nthing = {{path = \"./{WHEEL}\"}}\n");
    let mut repo = python(&[IGNORED, ("Pipfile", &manifest)]);
    take(&mut repo, "pipenv");
    without_an_index(&repo);
    repo.env("PIPENV_VENV_IN_PROJECT", "1");
    run(&repo, "", &["pipenv", "install"]);
    repo.env_remove("PIPENV_VENV_IN_PROJECT");
    repo.commit_all("Lock the packages");
    let value = from_init_to_land(repo, Bubblewrap, &[]);
    let setup = "env PIPENV_VENV_IN_PROJECT=1 pipenv sync --dev";
    let guard = "env PIPENV_VENV_IN_PROJECT=1 pipenv run python -m unittest discover -s tests";
    expect_proposed(&value, setup, guard);
}

/// A package with an environment that was filled by hand: no lock file says with what.
fn filled_by_hand() -> TestRepo {
    let repo = installable(
        "dependencies = [\"thing\"]\n[project.optional-dependencies]\ntest = [\"pytest\"]\n",
    );
    run(&repo, "", &["python3", "-m", "venv", ".venv"]);
    run(&repo, "", &[".venv/bin/pip", "install", "-e", ".[test]"]);
    repo
}

#[test]
fn an_environment_without_a_lock_file() {
    let value = from_init_to_land(filled_by_hand(), Bubblewrap, &[]);
    assert_eq!(value["include"], json!([".venv"]));
    expect_proposed(&value, "", ".venv/bin/python -m pytest");
}

#[test]
fn an_environment_without_a_lock_file_under_landlock() {
    let value = from_init_to_land(filled_by_hand(), Landlock, &[]);
    assert_eq!(value["include"], json!([]));
    let setup = "sh -c python3 -m venv .venv && .venv/bin/pip install -e '.[test]'";
    expect_proposed(&value, setup, ".venv/bin/python -m pytest");
}

// --- Go

/// Makes a proxy for modules, as a folder, with one of them.
const PROXY: &str = r#"
import os, sys, zipfile
left, version = "example.test/left", "v1.0.0"
folder = f"{sys.argv[1]}/{left}/@v/"
os.makedirs(folder)
mod = f"module {left}\n\ngo 1.16\n"
info = '{"Version": "v1.0.0"}'
for name, text in [("list", version), (version + ".mod", mod), (version + ".info", info)]:
    with open(folder + name, "w") as file:
        file.write(text)
with zipfile.ZipFile(f"{folder}{version}.zip", "w") as made:
    made.writestr(f"{left}@{version}/go.mod", mod)
    made.writestr(f"{left}@{version}/left.go", "package left\n\nconst Value = 1\n")
"#;

/// A module that needs another one.
fn module() -> TestRepo {
    need("go");
    let test = "package app\n\nimport (\n\t\"testing\"\n\n\t\"example.test/left\"\n)\n\n\
        func TestLeft(t *testing.T) {\n\tif left.Value != 1 {\n\t\tt.Fatal(left.Value)\n\t}\n}\n";
    let repo = project(&[
        (
            "go.mod",
            "module example.test/app\n\ngo 1.16\n\nrequire example.test/left v1.0.0\n",
        ),
        ("app.go", "package app\n"),
        ("app_test.go", test),
    ]);
    let proxy = repo.root().join("proxy").display().to_string();
    run(&repo, "", &["python3", "-c", PROXY, &proxy]);
    let proxy = format!("GOPROXY=file://{proxy}");
    run(&repo, "", &["go", "env", "-w", &proxy, "GOSUMDB=off"]);
    run(&repo, "", &["go", "mod", "tidy"]);
    run(&repo, "", &["go", "test", "./..."]);
    repo.commit_all("Lock the modules");
    repo
}

#[test]
fn go() {
    let value = from_init_to_land(module(), Bubblewrap, &[]);
    expect_proposed(&value, "go mod download", "go test ./...");
}

#[test]
fn go_under_landlock() {
    from_init_to_land(module(), Landlock, &[]);
}

// --- Ruby

/// Makes the files of two gems: rake as the system has it, and one of our own.
const GEMS: &str = r#"
require "rake"
require "fileutils"
require "rubygems/package"
home = File.dirname($LOADED_FEATURES.grep(/\/rake\.rb$/).first)
FileUtils.mkdir_p ["lib", "exe", "gems"]
FileUtils.cp_r [File.join(home, "rake.rb"), File.join(home, "rake")], "lib"
File.write "exe/rake", "require 'rake'\nRake.application.run\n"
File.write "lib/thing.rb", "THING = 1\n"
rake = Dir["lib/rake{.rb,/**/*.rb}"] + ["exe/rake"]
{"rake" => rake, "thing" => ["lib/thing.rb"]}.each do |name, files|
  spec = Gem::Specification.new do |it|
    it.name, it.version, it.summary, it.authors = name, "1.0", name, [name]
    it.files, it.bindir = files, "exe"
    it.executables = ["rake"] if name == "rake"
  end
  Gem::Package.build spec, true, false, "gems/#{name}-1.0.gem"
end
"#;

/// A project that needs gems, from an index that is a folder.
fn bundled(ignored: &str) -> TestRepo {
    need("bundle");
    let repo = project(&[
        (".gitignore", ignored),
        (
            "Rakefile",
            "task(:test) { ruby \"-Ilib\", \"test/thing_test.rb\" }\n",
        ),
        (
            "test/thing_test.rb",
            "require \"thing\"\nexit(THING == 1 ? 0 : 3)\n",
        ),
    ]);
    let index = repo.root().join("index");
    fs::create_dir(&index).unwrap();
    let at = index.display().to_string();
    run(&repo, &at, &["ruby", "-e", GEMS]);
    run(&repo, &at, &["gem", "generate_index", "-d", "."]);
    let gemfile = format!("source \"file://{at}\"\ngem \"rake\"\ngem \"thing\"\n");
    repo.write("Gemfile", gemfile);
    run(
        &repo,
        "",
        &[
            "bundle",
            "config",
            "set",
            "--local",
            "path",
            "vendor/bundle",
        ],
    );
    run(&repo, "", &["bundle", "install"]);
    repo.commit_all("Lock the gems");
    repo
}

const BOTH: &str = "/.bundle/\n/vendor/bundle/\n";

#[test]
fn bundler() {
    let value = from_init_to_land(bundled(BOTH), Bubblewrap, &[]);
    let setup = "sh -c bundle config set --local path vendor/bundle && bundle install";
    expect_proposed(&value, setup, "bundle exec rake test");
}

#[test]
fn bundler_under_landlock() {
    from_init_to_land(bundled(BOTH), Landlock, &[]);
}

// --- PHP

/// A package that needs another one, from a folder of the repository.
fn composed() -> TestRepo {
    need("composer");
    let manifest = r#"{"name": "acme/app", "description": "x", "license": "MIT",
        "repositories": [{"type": "path", "url": "left"}],
        "require": {"acme/left": "1.0.0"}, "scripts": {"test": "php test.php"}}"#;
    let left = r#"{"name": "acme/left", "description": "x", "license": "MIT", "version": "1.0.0",
        "autoload": {"files": ["left.php"]}}"#;
    let mut repo = project(&[
        (".gitignore", "/vendor/\n"),
        ("composer.json", manifest),
        ("left/composer.json", left),
        ("left/left.php", "<?php\nfunction left() { return 1; }\n"),
        (
            "test.php",
            "<?php\nrequire 'vendor/autoload.php';\nexit(left() === 1 ? 0 : 3);\n",
        ),
    ]);
    repo.env("COMPOSER_DISABLE_NETWORK", "1");
    run(&repo, "", &["composer", "update", "--no-interaction"]);
    repo.commit_all("Lock the packages");
    repo
}

#[test]
fn composer() {
    let value = from_init_to_land(composed(), Bubblewrap, &[]);
    expect_proposed(&value, "composer install --no-interaction", "composer test");
}

#[test]
fn composer_without_a_sandbox() {
    from_init_to_land(composed(), Off, &[]);
}
