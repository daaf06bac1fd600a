//! Sessions that leave strange things in the work tree: odd names, pipes, sockets,
//! files that nobody may read, protected files in disguise, very many files.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use hostile_support::{
    BIN, all, assert_contained, case, check, finish, play, play_one, repo_under, started, step,
    under,
};
use runner_testkit::TestRepo;

#[test]
fn odd_names() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let cases = [
            case(
                "new",
                "ok",
                "",
                "mkdir -p 'a folder'; for n in 'two\nlines' 'quote\"d' \"it's\" ' space ' -dash --all ':(exclude)x' ':!y' \
             '*' '?' '[a]' 'back\\slash' '~' '$HOME' '#hash' '!bang' 'tab\there' \"$(printf 'bad\\377utf8')\" 'größe' \
             '.hidden' 'a folder/in it' 'ends with dot.' 'con'; do echo \"$n\" > \"./$n\"; done; out retry x",
            ),
            case(
                "changed",
                "ok",
                "",
                "for n in 'two\nlines' 'quote\"d' -dash ':(exclude)x' \"$(printf 'bad\\377utf8')\"; do echo more >> \"./$n\"; done; out retry x",
            ),
            case(
                "hidden by flags",
                "ok",
                "",
                "git update-index --assume-unchanged -- 'two\nlines' \"$(printf 'bad\\377utf8')\"; echo hidden > \"$(printf 'bad\\377utf8')\"; out retry x",
            ),
            case(
                "denied",
                "agent_error",
                "must not go into a commit",
                "printf secret > \"$(printf '\\377\\n.pem')\"; printf secret > ./-x.key",
            ),
            case(
                "removed",
                "ok",
                "",
                "rm -- 'two\nlines' -dash ':(exclude)x' \"$(printf 'bad\\377utf8')\"; out retry x",
            ),
            case(
                "repositories",
                "agent_error",
                "is a git repository of its own",
                "git init -q \"$(printf 'nested\\377\\nrepo')\"; echo x > \"$(printf 'nested\\377\\nrepo')/f\"",
            ),
        ];
        play(&repo, &cases);
        let odd = OsStr::from_bytes(b"nested\xff\nrepo/f");
        assert!(repo.path(odd).is_file());
        let count = repo.git(&["ls-files", "-z"]).split('\0').count();
        assert!(count > 30, "{count}");
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn pipes_and_sockets() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let cases = [
            case(
                "untracked",
                "agent_error",
                "s/pipe (a named pipe) cannot be committed",
                "mkfifo pipe; mkdir s; mkfifo s/pipe; out retry x",
            ),
            case(
                "in the place of a tracked file",
                "agent_error",
                "README.md (a named pipe) cannot",
                "rm README.md; mkfifo README.md; out retry x",
            ),
            case(
                "a socket",
                "agent_error",
                "data.bin (a socket) cannot",
                "\"$(cat \"$AGENT_DIR/python\")\" -c 'import socket, os; os.remove(\"data.bin\"); socket.socket(socket.AF_UNIX).bind(\"data.bin\")'; out retry x",
            ),
            case(
                "rules that are pipes",
                "agent_error",
                "src/deep/.gitattributes (a pipe or the like) cannot",
                "mkfifo .gitignore .gitattributes .gitmodules .mailmap src/.gitignore src/deep/.gitattributes; out retry x",
            ),
            case(
                "attributes for a new file",
                "agent_error",
                "new/.gitattributes (a ",
                "mkdir new; mkfifo new/.gitattributes; echo x > new/file; out retry x",
            ),
            case(
                "a protected file",
                "agent_error",
                "ci.sh is protected",
                "rm ci.sh; mkfifo ci.sh",
            ),
            case(
                "a pipe named as a protected one",
                "agent_error",
                "checks/new (a named pipe) cannot",
                "mkdir -p checks; mkfifo checks/new; out retry x",
            ),
        ];
        play(&repo, &cases);
        assert_eq!(repo.git(&["show", "HEAD:new/file"]), "x");
        for file in ["README.md", "data.bin"] {
            let name = format!("HEAD:{file}");
            assert!(repo.git_try(&["cat-file", "-e", &name]).is_ok(), "{file}");
        }
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn names_that_git_leaves_out_without_a_word() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let cases = [
            case(
                "git's own name in capitals",
                "agent_error",
                ".GIT/config cannot be committed",
                "mkdir .GIT; echo x > .GIT/config; echo kept > kept.txt",
            ),
            case(
                "deeper, as other systems spell it",
                "agent_error",
                "src/git~1/f cannot be committed",
                "mkdir src/git~1; echo x > src/git~1/f",
            ),
            case(
                "a list of submodules that is none",
                "agent_error",
                ".gitmodules (git cannot read it) cannot",
                "printf '[submodule \"x\\npath' > .gitmodules",
            ),
            case(
                "a list of submodules elsewhere",
                "agent_error",
                ".gitmodules (git cannot read it) cannot",
                "ln -s README.md .gitmodules",
            ),
            case(
                "sockets that are ignored",
                "ok",
                "",
                "mkdir tmp; echo '/tmp' >> .gitignore; echo '*.sock' >> .gitignore; mkfifo tmp/a src/b.sock; out retry x",
            ),
        ];
        play(&repo, &cases);
        assert_eq!(repo.git(&["show", "HEAD:kept.txt"]), "kept");
        assert!(repo.workspace("src/b.sock").exists());
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn rules_that_are_pipes_where_only_git_looks() {
    for mechanism in all() {
        // In a folder that has never been tracked: git waits for ever, the runner not.
        let repo = repo_under(mechanism);
        play(
            &repo,
            &[case(
                "in a new folder",
                "agent_error",
                "new/deep/.gitignore (a pipe or the like) cannot",
                "mkdir -p new/deep; mkfifo new/deep/.gitignore; echo x > new/deep/file; out retry x",
            )],
        );
        assert_eq!(repo.git(&["show", "HEAD:new/deep/file"]), "x");
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn files_become_folders_and_the_other_way_round() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let cases = [
            case(
                "a file becomes a folder",
                "ok",
                "",
                "rm src/main.txt; mkdir src/main.txt; echo x > src/main.txt/x; out retry x",
            ),
            case(
                "a folder becomes a file",
                "ok",
                "",
                "rm -rf src/deep; echo file > src/deep; out retry x",
            ),
            case(
                "a folder becomes a link",
                "ok",
                "",
                "mkdir d; echo x > d/x; git add d; git commit -qm d; mv d e; ln -s e d; out retry x",
            ),
            case(
                "a file becomes a link",
                "ok",
                "",
                "ln -sf /etc/passwd README.md; out retry x",
            ),
            case(
                "a folder becomes a repository's file",
                "ok",
                "",
                "rm -rf e; echo 'gitdir: x' > e; out retry x",
            ),
            case(
                "everything is gone",
                "agent_error",
                "ci.sh is protected",
                "git ls-files -z | grep -zv '^.runner' | xargs -0 rm -f",
            ),
        ];
        play(&repo, &cases);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn protected_files_in_disguise() {
    for mechanism in all() {
        let repo = started(under(mechanism), |repo| {
            repo.write("checks/unit.sh", "exit 0\n");
            repo.write("checks/sub/deep.sh", "exit 0\n");
            repo.write("app.lock", "1\n");
            repo.write("pkg/Makefile", "all:\n");
            repo.write("pkg/conftest.py", "pass\n");
            repo.write(".gitignore", "*.pyc\nbuild/\n");
            repo.commit_all("checks");
            repo.config(|config| {
                let globs = [
                    "ci.sh",
                    "checks/**",
                    "*.lock",
                    "**/conftest.py",
                    "*/Makefile",
                ];
                config.set("guard.protected", serde_json::json!(globs));
            });
        });
        fs::create_dir(repo.agent_dir().join("planted")).unwrap();
        let cases = [
            case(
                "changed",
                "agent_error",
                "checks/sub/deep.sh is protected",
                "echo exit 1 > checks/sub/deep.sh",
            ),
            case(
                "deleted",
                "agent_error",
                "app.lock is protected",
                "rm app.lock",
            ),
            case(
                "the bit",
                "agent_error",
                "ci.sh is protected",
                "chmod +x ci.sh",
            ),
            case(
                "a link",
                "agent_error",
                "ci.sh is protected",
                "cp ci.sh \"$AGENT_DIR/planted/\"; ln -sf \"$AGENT_DIR/planted/ci.sh\" ci.sh",
            ),
            case(
                "its folder a link",
                "agent_error",
                "checks/unit.sh is protected",
                "mv checks \"$AGENT_DIR/planted/\"; ln -s \"$AGENT_DIR/planted/checks\" checks",
            ),
            case(
                "its folder a file",
                "agent_error",
                "checks/unit.sh is protected",
                "rm -rf checks; : > checks",
            ),
            case(
                "new",
                "agent_error",
                "checks/new.sh is protected",
                "echo new > checks/new.sh",
            ),
            case(
                "new at the top",
                "agent_error",
                "x.lock is protected",
                "echo new > x.lock",
            ),
            case(
                "new and committed",
                "agent_error",
                "checks/new2.sh is protected",
                "echo new > checks/new2.sh; git add -A; git commit -qm mine",
            ),
            case(
                "new and a link",
                "agent_error",
                "checks/l is protected",
                "ln -s /etc/passwd checks/l",
            ),
            case(
                "hidden by a new rule",
                "agent_error",
                "checks/h.sh is protected",
                "echo 'h.sh' >> .gitignore; echo new > checks/h.sh",
            ),
            case(
                "hidden by a rule of its own",
                "agent_error",
                "src/conftest.py is protected",
                "echo '*' > src/.gitignore; echo new > src/conftest.py",
            ),
            case(
                "hidden, deep",
                "agent_error",
                "a/b/c/conftest.py is protected",
                "mkdir -p a/b/c; echo '/a' >> .gitignore; echo new > a/b/c/conftest.py",
            ),
            case(
                "hidden, one down",
                "agent_error",
                "z/Makefile is protected",
                "echo Makefile >> .gitignore; echo x > src/deep/Makefile; mkdir -p z; echo x > z/Makefile",
            ),
            case(
                "hidden by removing a rule's exception",
                "agent_error",
                "checks/k.lockx",
                "printf '*.lockx\\n' > .gitignore; echo x > checks/k.lockx",
            ),
            case(
                "the old rules again",
                "ok",
                "",
                "printf '*.pyc\\nbuild/\\n' > .gitignore; out retry x",
            ),
            case(
                "what tests leave is ignored",
                "ok",
                "",
                "echo x > checks/unit.pyc; mkdir -p checks/build; echo x > checks/build/o; out retry x",
            ),
            case(
                "also next to a new rule",
                "ok",
                "",
                "echo '*.tmp' >> .gitignore; echo x > checks/other.pyc; out retry x",
            ),
            case(
                "odd names",
                "agent_error",
                "is protected",
                "echo x > \"checks/$(printf 'odd\\377\\nname')\"",
            ),
        ];
        for case in &cases {
            let json = play_one(&repo, case);
            // Too deep for `*/Makefile`.
            assert!(
                !json["findings"].to_string().contains("src/deep/Makefile"),
                "{json}"
            );
            assert_eq!(repo.read("ci.sh"), "exit 0\n", "{}", case.name);
            assert_eq!(repo.read("checks/sub/deep.sh"), "exit 0\n", "{}", case.name);
            assert!(
                !repo.exists("checks/h.sh") && !repo.exists("a/b/c/conftest.py"),
                "{}",
                case.name
            );
        }
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn five_thousand_new_files() {
    for mechanism in all() {
        let repo = started(under(mechanism), |repo| {
            repo.config(|config| {
                config.set("guard.protected", serde_json::json!(["many/**", "more/**"]));
            });
            for folder in 0..50 {
                for file in 1..=100 {
                    repo.write(format!("many/{folder}/f{file}"), "");
                }
            }
            repo.commit_all("Many files");
        });
        let script = "mkdir -p more; i=0; while [ $i -lt 50 ]; do mkdir more/$i; \
         ( cd more/$i; seq -f f%g 1 100 | xargs touch ); i=$((i+1)); done; out retry x";
        play_one(
            &repo,
            &case("made", "agent_error", "more/7/f7 is protected", script),
        );
        assert_eq!(repo.git(&["ls-files", "more"]), "");
        play_one(
            &repo,
            &case(
                "green",
                "ok",
                "",
                "add_child root a 1 A; add_child root b 2 B; out decomposed x; : out done",
            ),
        );
        let (run, _) = step(&repo);
        assert!(run.elapsed.as_secs() < 20, "{}", run.describe());
        repo.agent("for f in many/7/*; do echo x > $f; done; out done x");
        let (run, json) = step(&repo);
        assert_eq!(json["class"], "agent_error", "{}", run.describe());
        check(&repo, "many changed");
        assert_eq!(fs::metadata(repo.path("many/7/f7")).unwrap().len(), 0);
        assert_contained(&repo, mechanism);
    }
}

/// Makes the repository somebody's who is not root; what a step of theirs is
/// called with. `None` where that cannot be had.
fn give_to_nobody(repo: &TestRepo) -> Option<std::path::PathBuf> {
    let binary = repo.root().join("runner");
    fs::copy(BIN, &binary).ok()?;
    let mut own = repo.hermetic("chown");
    own.args(["-R", "65534:65534"]).arg(repo.root());
    own.status().ok()?.success().then_some(binary)
}

#[test]
fn what_its_owner_may_not_read() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let Some(binary) = give_to_nobody(&repo) else {
            eprintln!("skipped: this user cannot become another one");
            return;
        };
        let step = || {
            let mut command = repo.hermetic("setpriv");
            command
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .arg(&binary)
                .args(["step", "--json"]);
            repo.spawn(command).wait()
        };
        let git = |args: &[&str]| repo.git(&[&["-c", "safe.directory=*"], args].concat());
        let cases = [
            (
                "files",
                "chmod 000 src/main.txt; echo x > new.txt; chmod 000 new.txt; chmod 000 README.md",
                "ok",
                "",
            ),
            (
                "tracked folders",
                "echo x > src/deep/new.txt; chmod 000 src/deep",
                "ok",
                "",
            ),
            (
                "new folders",
                "mkdir -p n/e/w; echo x > n/e/w/file; chmod 000 n/e/w; chmod 000 n/e; mkdir ro; echo x > ro/f; chmod 555 ro",
                "ok",
                "",
            ),
            ("protected files", "chmod 000 ci.sh", "ok", ""),
            (
                "the tree",
                "chmod 000 .runner/state/tree.json",
                "invalid_tree",
                "cannot be read",
            ),
            (
                "the tree again",
                "git show HEAD~1:.runner/state/tree.json > .runner/state/tree.json",
                "repaired",
                "",
            ),
            ("the state", "chmod 000 .runner/state", "ok", ""),
            (
                "the context",
                "mkdir -p .runner/context/a/b; chmod 000 .runner/context/a",
                "ok",
                "",
            ),
            (
                "a nested repository",
                "git init -q nest; echo x > nest/x; chmod 000 nest/.git; chmod 500 nest",
                "agent_error",
                "nest is a git repository of its own",
            ),
            ("a closed config", "chmod 000 .git/config", "ok", ""),
            (
                "nothing may be written",
                "out retry x; chmod -R a-w .",
                "ok",
                "",
            ),
            ("a closed repository", "chmod -R 000 .git", "ok", ""),
            (
                "closed logs",
                "out retry x; chmod 000 .runner/iterations/*/1; chmod 500 .runner/iterations/* .runner/iterations .runner",
                "ok",
                "",
            ),
            (
                "another branch and closed folders",
                "git checkout -q -b away; mkdir c; echo x > c/x; chmod 500 c; chmod 500 src",
                "ok",
                "",
            ),
        ];
        for (iter, (name, script, class, says)) in (1..).zip(cases) {
            repo.agent_at(iter, &format!("{script}; out retry x"));
            let run = step();
            assert_eq!(run.json()["class"], class, "{name}: {}", run.describe());
            assert!(run.stdout.contains(says), "{name}: {}", run.describe());
            let status = git(&["status", "--porcelain", "-uall"]);
            assert!(status.is_empty(), "{name}: {status}");
        }
        for path in [
            "new.txt",
            "src/deep/new.txt",
            "n/e/w/file",
            "ro/f",
            "nest/x",
        ] {
            assert_eq!(git(&["show", &format!("HEAD:{path}")]), "x", "{path}");
        }
        let run = step();
        assert_eq!(run.json()["guard"], "pass", "{}", run.describe());
        assert_contained(&repo, mechanism);
    }
}
