//! Which files of a project are its product: what is left without tests, CI, manifests, lock files
//! and the settings of tools.

use crate::packages::PackageFile;
use crate::paths::{GlobError, GlobList, is_state_path};

/// Stands for all files that say how a project is built and checked.
pub const SETTINGS: &str = "@settings";

/// What `init` proposes, and what counts where a config names nothing.
pub const USUAL_PRODUCT: [&str; 2] = ["**", "!@settings"];

/// What tests are called in most languages.
pub const USUAL_TESTS: [&str; 22] = [
    "**/tests/**",
    "**/test/**",
    "**/spec/**",
    "**/__tests__/**",
    "**/__mocks__/**",
    "**/__snapshots__/**",
    "**/testdata/**",
    "**/*_test.*",
    "**/*-test.*",
    "**/*.test.*",
    "**/*_spec.*",
    "**/*.spec.*",
    "**/test_*",
    "**/test-*",
    "**/test.*",
    "**/tests.*",
    "**/*Test.{java,kt,php,cs,scala,swift}",
    "**/*.bats",
    "**/*.feature",
    "features/{step_definitions,steps,support}/**",
    "e2e/**",
    "t/**/*.t",
];

/// CI, recipes of builds and checks, manifests that are not read, settings of tools, and packages
/// that were installed. Files with [`PackageFile`] belong to them, too.
const SETTINGS_GLOBS: &[&str] = &[
    // CI
    "**/.github/**",
    "**/.gitlab/**",
    "**/.gitlab-ci.{yml,yaml}",
    "**/.circleci/**",
    "**/.buildkite/**",
    "**/.travis.{yml,yaml}",
    "**/.woodpecker.{yml,yaml}",
    "**/.woodpecker/**",
    "**/.drone.{yml,yaml}",
    "**/azure-pipelines*.{yml,yaml}",
    "**/bitbucket-pipelines.{yml,yaml}",
    "**/{Jenkinsfile,appveyor.yml,.appveyor.yml,cloudbuild.yaml,Earthfile}",
    "{.ci,ci}/**",
    // scripts that checks are made of
    "{scripts,script,hack,xtask}/**",
    // recipes
    "**/{GNUmakefile,makefile,Makefile,*.mk}",
    "**/{justfile,Justfile,JUSTFILE,.justfile,.Justfile,*.just}",
    "**/{Rakefile,*.rake,noxfile.py,fabfile.py,dodo.py,SConstruct,SConscript,wscript}",
    "**/{Taskfile,taskfile}.{yml,yaml}",
    "**/{CMakeLists.txt,CMakePresets.json,*.cmake,meson.build,meson_options.txt,configure.ac}",
    "**/{BUILD,BUILD.bazel,WORKSPACE,WORKSPACE.bazel,MODULE.bazel,.bazelrc,BUCK,.buckconfig,pants.toml}",
    "**/{gulpfile,Gruntfile,gruntfile,webpack.mix}.*",
    "**/{Dockerfile*,*.dockerfile,Containerfile*,.dockerignore}",
    "**/{docker-compose,compose}*.{yml,yaml}",
    "**/{flake,shell,default}.nix",
    "**/flake.lock",
    // manifests and lock files
    "**/{setup.py,setup.cfg,MANIFEST.in,environment.yml,environment.yaml,.python-version}",
    "**/{go.work,go.work.sum,go.env,pnpm-workspace.yaml,lerna.json,rush.json,bun.lockb,deno.lock}",
    "**/{pom.xml,*.gradle,*.gradle.kts,gradle.properties,gradlew,gradlew.bat,mvnw,mvnw.cmd,build.sbt}",
    "**/{gradle,.mvn}/**",
    "**/{*.gemspec,mix.exs,mix.lock,rebar.config,rebar.lock,pubspec.yaml,pubspec.lock}",
    "**/{Package.swift,Package.resolved,*.cabal,stack.yaml,cabal.project*,dune-project,*.opam}",
    "**/{*.csproj,*.fsproj,*.vbproj,*.sln,Directory.Build.*,global.json,nuget.config,packages.lock.json}",
    // settings of tools
    "**/*.config.{js,cjs,mjs,jsx,ts,cts,mts,json}",
    "**/*.workspace.{js,ts,json}",
    "**/.*rc",
    "**/.*rc.{js,cjs,mjs,ts,json,json5,yml,yaml,toml}",
    "**/.{npmrc,yarnrc,yarnrc.yml,pnpmfile.cjs,babelrc,swcrc,nycrc,node-version,nvmrc,tool-versions}",
    "**/.{yarn,config,cargo,bundle,husky,vscode,idea,devcontainer,storybook}/**",
    "**/{tsconfig,jsconfig}*.json",
    "**/{turbo,nx,deno,biome,vercel,karma.conf,wallaby}.{json,jsonc,js}",
    "**/{pytest.ini,.pytest.ini,pytest.toml,.pytest.toml,tox.ini,tox.toml,.coveragerc,mypy.ini,.mypy.ini,.flake8,ruff.toml,.ruff.toml,pylintrc,.pylintrc,pyrightconfig.json}",
    "**/{conftest,sitecustomize,usercustomize}.py",
    "**/*.pth",
    "**/{rust-toolchain,rust-toolchain.toml,clippy.toml,.clippy.toml,rustfmt.toml,.rustfmt.toml,deny.toml,nextest.toml,tarpaulin.toml,bacon.toml}",
    "**/.golangci.{yml,yaml,toml,json}",
    "**/{phpunit,phpcs,psalm,infection}*.{xml,dist,json,json5}",
    "**/{phpunit.xml.dist,phpstan.neon,phpstan.neon.dist,.rspec,.rubocop.yml,.simplecov}",
    "**/{.pre-commit-config.yaml,.editorconfig,.gitattributes,.gitmodules,.gitignore,.envrc,.env,.env.*}",
    // what was installed
    "**/{node_modules,.venv,venv,site-packages,vendor}/**",
    // what is loaded in the place of the source that it was compiled from
    "**/__pycache__/**",
    "**/*.{pyc,pyo}",
];

/// Which files are product, by `[guard] product`.
#[derive(Clone, Debug)]
pub struct ProductFiles {
    taken: GlobList,
    left_out: GlobList,
    settings: Option<GlobList>,
}

impl ProductFiles {
    /// Compiles the entries; one that begins with `!` takes files out again.
    pub fn new<S: AsRef<str>>(entries: &[S]) -> Result<Self, GlobError> {
        let entries = entries.iter().map(AsRef::as_ref);
        let (out, taken): (Vec<&str>, Vec<&str>) = entries.partition(|it| it.starts_with('!'));
        let out = out.iter().map(|it| &it[1..]);
        let (sets, left_out): (Vec<&str>, Vec<&str>) = out.partition(|it| *it == SETTINGS);
        if let Some(named) = taken.iter().find(|it| it.starts_with('@')) {
            return Err(GlobError {
                pattern: (*named).to_owned(),
                message: "it names no files that a product consists of".to_owned(),
                hint: Some(format!("`!{SETTINGS}` leaves the settings of tools out")),
            });
        }
        let settings = (!sets.is_empty()).then(|| GlobList::new(SETTINGS_GLOBS));
        Ok(ProductFiles {
            taken: GlobList::new(&taken)?,
            left_out: GlobList::new(&left_out)?,
            settings: settings.transpose()?,
        })
    }

    /// Whether nothing is product.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Whether a path is product.
    pub fn is_product(&self, path: &[u8]) -> bool {
        let is_setting = || {
            let by_name = std::str::from_utf8(path).ok().and_then(PackageFile::of);
            self.settings
                .as_ref()
                .is_some_and(|settings| by_name.is_some() || settings.is_match(path))
        };
        self.taken.is_match(path)
            && !is_state_path(path)
            && !self.left_out.is_match(path)
            && !is_setting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_product() {
        let usual = ProductFiles::new(&USUAL_PRODUCT).unwrap();
        for path in [
            "src/lib.rs",
            "README.md",
            "docs/a.md",
            "app.py",
            "build.rs",
            "internal/config.go",
            "src/config.ts",
            "src/scripts/x.sh",
            "data/settings.json",
            "web/index.html",
            "app/tasks.py",
            "src/ci/mod.rs",
            "internal/target/a.go",
        ] {
            assert!(usual.is_product(path.as_bytes()), "{path}");
        }
        for path in [
            "package.json",
            "web/package-lock.json",
            "Cargo.toml",
            "crates/a/Cargo.toml",
            ".github/workflows/ci.yml",
            "vitest.config.ts",
            "web/jest.config.cjs",
            ".eslintrc",
            ".babelrc.json",
            "tsconfig.build.json",
            "turbo.json",
            "conftest.py",
            "pkg/conftest.py",
            "pytest.ini",
            ".cargo/config.toml",
            ".config/nextest.toml",
            "Makefile",
            "rules/common.mk",
            "requirements-dev.txt",
            "node_modules/jest/index.js",
            "pkg/vendor/x/y.go",
            "ci/check.sh",
            "scripts/lib.sh",
            ".gitattributes",
            ".runner/state/tree.json",
            "docker-compose.yml",
            "compose.dev.yaml",
            "go.env",
            "__pycache__/rules.cpython-311.pyc",
            "rules.pyc",
        ] {
            assert!(!usual.is_product(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn entries() {
        let some = ProductFiles::new(&["src/**", "lib/**", "!src/gen/**"]).unwrap();
        assert!(some.is_product(b"src/a.rs"));
        assert!(some.is_product(b"lib/package.json"), "as the entries say");
        assert!(!some.is_product(b"src/gen/a.rs"));
        assert!(!some.is_product(b"a.rs"));
        assert!(ProductFiles::new::<&str>(&[]).unwrap().is_empty());
        for wrong in ["@settings", "!", "!tests/", "/x"] {
            assert!(ProductFiles::new(&["**", wrong]).is_err(), "{wrong}");
        }
    }
}
