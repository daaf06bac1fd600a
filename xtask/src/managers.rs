//! The package managers that tests set projects up with, and the test tools that they judge them
//! with: which ones, and where `setup` put them.
//!
//! Each has a folder of its own with a `bin/` that holds its program and nothing else, so that a
//! test takes one without the others. Those of the system (go, bundle, composer) are on the PATH.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::cmd::ToolCommand;
use crate::failure::{FailureContext as _, TaskFailure, TaskResult};
use crate::{out, pinned};

/// Names the folder with all of them to the tests.
pub(crate) const VARIABLE: &str = "RUNNER_MANAGERS";

/// Something that tests need to set projects up, in the versions whose flags are known.
pub(crate) struct ProjectTool {
    /// Its folder.
    name: &'static str,
    source: ToolSource,
    packages: &'static [&'static str],
}

enum ToolSource {
    /// A package of the npm registry, and the program that it brings.
    Npm(&'static str),
    /// The same, where the program is that of a package for this machine in another scope: what
    /// the package itself has is made by a script.
    NpmBinary {
        program: &'static str,
        scope: &'static str,
    },
    /// A package of the Python index that is a program and no modules.
    Pip(&'static str),
    /// A package of the Python index with modules of its own: its program gets an environment,
    /// because a variable that leads to them would reach the project's own Python, too.
    Environment(&'static str),
    /// Packages of the Python index as files, for projects to install.
    Wheels,
    /// Packages of the npm registry that tests put above their projects.
    Packages,
}

pub(crate) const PNPM: ProjectTool = ProjectTool {
    name: "pnpm",
    source: ToolSource::Npm("pnpm"),
    packages: &["pnpm@12.18.0"],
};
pub(crate) const YARN_CLASSIC: ProjectTool = ProjectTool {
    name: "yarn-classic",
    source: ToolSource::Npm("yarn"),
    packages: &["yarn@1.22.22"],
};
pub(crate) const YARN_BERRY: ProjectTool = ProjectTool {
    name: "yarn-berry",
    source: ToolSource::Npm("yarn"),
    packages: &["@yarnpkg/cli-dist@4.18.1"],
};
pub(crate) const BUN: ProjectTool = ProjectTool {
    name: "bun",
    source: ToolSource::NpmBinary {
        program: "bun",
        scope: "@oven",
    },
    packages: &["bun@1.4.4"],
};
pub(crate) const UV: ProjectTool = ProjectTool {
    name: "uv",
    source: ToolSource::Pip("uv"),
    packages: &["uv==0.13.7"],
};
pub(crate) const POETRY: ProjectTool = ProjectTool {
    name: "poetry",
    source: ToolSource::Environment("poetry"),
    packages: &["poetry==2.5.1"],
};
pub(crate) const PIPENV: ProjectTool = ProjectTool {
    name: "pipenv",
    source: ToolSource::Environment("pipenv"),
    packages: &["pipenv==2026.10.3"],
};
pub(crate) const WHEELS: ProjectTool = ProjectTool {
    name: "wheels",
    source: ToolSource::Wheels,
    packages: &["pytest==9.2.0", "setuptools==84.2.1"],
};
pub(crate) const PYTEST: ProjectTool = ProjectTool {
    name: "pytest",
    source: ToolSource::Environment("pytest"),
    packages: &["pytest==9.2.0"],
};
pub(crate) const JEST: ProjectTool = ProjectTool {
    name: "jest",
    source: ToolSource::Packages,
    packages: &["jest@30.5.2"],
};
// The newest that Node.js 20 runs.
pub(crate) const VITEST: ProjectTool = ProjectTool {
    name: "vitest",
    source: ToolSource::Packages,
    packages: &["vitest@4.1.12"],
};
pub(crate) const MOCHA: ProjectTool = ProjectTool {
    name: "mocha",
    source: ToolSource::Packages,
    packages: &["mocha@12.0.3"],
};
// The newest that Node.js 20 runs.
pub(crate) const AVA: ProjectTool = ProjectTool {
    name: "ava",
    source: ToolSource::Packages,
    packages: &["ava@7.0.0"],
};
pub(crate) const TYPESCRIPT: ProjectTool = ProjectTool {
    name: "typescript",
    source: ToolSource::Packages,
    packages: &["typescript@7.0.2"],
};

impl ProjectTool {
    /// Whether it is there in the wanted versions.
    pub(crate) fn is_there(&self) -> bool {
        fs::read_to_string(self.stamp()).is_ok_and(|text| text == self.packages.join("\n"))
    }

    pub(crate) fn install(&self) -> TaskResult<()> {
        let folder = all().join(self.name);
        // What another version left is in the way.
        if folder.exists() {
            fs::remove_dir_all(&folder).context(folder.display())?;
        }
        fs::create_dir_all(&folder).context(folder.display())?;
        match self.source {
            ToolSource::Npm(program) => {
                self.install_with_npm()?;
                self.link(Some(folder.join("node_modules/.bin").join(program)))?;
            }
            ToolSource::NpmBinary { program, scope } => {
                self.install_with_npm()?;
                let scope = folder.join("node_modules").join(scope);
                self.link(pinned::program_below(&scope, program, 3))?;
            }
            ToolSource::Pip(program) => {
                for package in self.packages {
                    pinned::install_with_pip(&folder.join("modules"), package)?;
                }
                self.link(Some(folder.join("modules/bin").join(program)))?;
            }
            ToolSource::Environment(program) => {
                self.fill_environment(&folder.join("environment"))?;
                self.link(Some(folder.join("environment/bin").join(program)))?;
            }
            ToolSource::Packages => self.install_with_npm()?,
            ToolSource::Wheels => {
                let pip = pinned::pip("download --quiet --dest")
                    .arg(&folder)
                    .args(self.packages);
                let what = format!("pip download {}", self.packages.join(" "));
                out::step(&what, || pip.stdout())?;
            }
        }
        fs::write(self.stamp(), self.packages.join("\n")).context(folder.display())
    }

    /// By uv, which takes seconds for what takes pip a minute.
    fn fill_environment(&self, environment: &Path) -> TaskResult<()> {
        let uv = |words: &str| {
            ToolCommand::new(all().join("uv/bin/uv"))
                .words(words)
                .arg(environment)
                .hint("it takes a connection to the Python index, once")
        };
        let install = uv("pip install --quiet --python").args(self.packages);
        out::step(
            &format!("uv pip install {}", self.packages.join(" ")),
            || {
                uv("venv --quiet").stdout()?;
                install.stdout()
            },
        )?;
        Ok(())
    }

    fn install_with_npm(&self) -> TaskResult<()> {
        let folder = all().join(self.name);
        let mut packages = self.packages.iter();
        packages.try_for_each(|package| pinned::install_with_npm(&folder, package))
    }

    /// Makes `bin/` with the program, which lies at this path.
    fn link(&self, program: Option<PathBuf>) -> TaskResult<()> {
        let found = program.filter(|path| path.is_file());
        let Some((path, name)) = found
            .as_ref()
            .and_then(|path| Some((path, path.file_name()?)))
        else {
            return Err(TaskFailure::new(format!(
                "{} was installed, but it brought no program for this machine",
                self.packages.join(" ")
            )));
        };
        let bin = all().join(self.name).join("bin");
        fs::create_dir_all(&bin).context(bin.display())?;
        symlink(path, bin.join(name)).context(bin.display())
    }

    /// A file that says what is there, written last.
    fn stamp(&self) -> PathBuf {
        all().join(self.name).join("installed")
    }
}

/// The folder with the folders of all.
pub(crate) fn all() -> PathBuf {
    pinned::folder("managers")
}

/// The command with the folder named to it.
pub(crate) fn named_to(cmd: ToolCommand) -> ToolCommand {
    cmd.env(VARIABLE, all())
}
