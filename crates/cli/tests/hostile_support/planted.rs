//! Everything that a session can plant in git's own files to have code run.

use runner_testkit::TestRepo;

use super::{started, under};

/// What a session does, and which file the runner must name. `$EVIL` is a program
/// that leaves a mark.
pub(crate) const PLANTED: &[(&str, &str, &str)] = &[
    (
        "a clean filter",
        ".git/config",
        "git config filter.x.clean \"$EVIL\"; git config filter.x.smudge \"$EVIL\"; \
         echo '* filter=x' > .gitattributes; echo more >> src/main.txt",
    ),
    (
        "a process filter",
        ".git/config",
        "git config filter.x.process \"$EVIL\"; echo '* filter=x' > .gitattributes; echo more >> src/main.txt",
    ),
    (
        "textconv and an external diff",
        ".git/config",
        "git config diff.x.textconv \"$EVIL\"; git config diff.x.command \"$EVIL\"; git config diff.external \"$EVIL\"; \
         echo '* diff=x' > .gitattributes; echo more >> src/main.txt",
    ),
    (
        "core.fsmonitor",
        ".git/config",
        "git config core.fsmonitor \"$EVIL\"; echo more >> src/main.txt",
    ),
    (
        "core.worktree",
        ".git/config",
        "mkdir -p \"$AGENT_DIR/elsewhere\"; git config core.worktree \"$AGENT_DIR/elsewhere\"",
    ),
    (
        "core.hooksPath",
        ".git/config",
        "git config core.hooksPath \"$AGENT_DIR\"; echo more >> src/main.txt",
    ),
    (
        "core.sshCommand",
        ".git/config",
        "git config core.sshCommand \"$EVIL\"; git config core.askPass \"$EVIL\"",
    ),
    (
        "include.path",
        ".git/config",
        "git config -f \"$AGENT_DIR/more\" filter.x.clean \"$EVIL\"; git config include.path \"$AGENT_DIR/more\"; \
         echo '* filter=x' > .gitattributes; echo more >> src/main.txt",
    ),
    (
        "aliases",
        ".git/config",
        "for word in status add commit log; do git config alias.$word \"!$EVIL\"; done",
    ),
    (
        "signing, paging, editing",
        ".git/config",
        "git config commit.gpgSign true; git config gpg.program \"$EVIL\"; git config log.showSignature true; \
         git config core.pager \"$EVIL\"; git config core.editor \"$EVIL\"; git config sequence.editor \"$EVIL\"",
    ),
    ("core.bare", ".git/config", "git config core.bare true"),
    (
        "a config of the work tree",
        ".git/config.worktree",
        "git config extensions.worktreeConfig true; git config --worktree filter.x.clean \"$EVIL\"; \
         echo '* filter=x' > .gitattributes; echo more >> src/main.txt",
    ),
    (
        "pre-commit",
        ".git/hooks/pre-commit",
        "cp \"$EVIL\" .git/hooks/pre-commit",
    ),
    (
        "post-index-change",
        ".git/hooks/post-index-change",
        "cp \"$EVIL\" .git/hooks/post-index-change",
    ),
    (
        "reference-transaction",
        ".git/hooks/reference-transaction",
        "cp \"$EVIL\" .git/hooks/reference-transaction",
    ),
    (
        "hooks is a link",
        ".git/hooks",
        "rm -rf .git/hooks; ln -s \"$AGENT_DIR\" .git/hooks",
    ),
    (
        "info/attributes",
        ".git/info/attributes",
        "mkdir -p .git/info; echo '* filter=user' > .git/info/attributes; echo more >> src/main.txt",
    ),
    (
        "info/exclude",
        ".git/info/exclude",
        "mkdir -p .git/info; echo '*' >> .git/info/exclude; echo new > new.txt",
    ),
    (
        "info/grafts",
        ".git/info/grafts",
        "mkdir -p .git/info; git rev-parse HEAD > .git/info/grafts",
    ),
    (
        "a replaced commit",
        ".git/refs/replace/",
        "git replace HEAD $(git commit-tree -m 'chore(loop): start run x' HEAD^{tree}); echo new > new2.txt",
    ),
];

pub(crate) fn with_evil(repo: &TestRepo, script: &str) -> String {
    format!(
        "EVIL='{}'\n{script}\n",
        repo.agent_dir().join("evil.sh").display()
    )
}

/// A repository whose user has a filter of their own, called `user`; it works.
pub(crate) fn repo_with_a_filter(mechanism: &str) -> TestRepo {
    started(under(mechanism), |repo| {
        repo.git(&[
            "config",
            "--global",
            "filter.user.clean",
            "sed s/secret/public/",
        ]);
        repo.git(&["config", "--global", "filter.user.smudge", "cat"]);
    })
}
