//! Programs that every machine has: a package that brings one of them would run in its place.

/// Shells, the utilities that scripts call, and interpreters.
const STANDARD_PROGRAMS: [&str; 91] = [
    "[", "ash", "awk", "basename", "bash", "c++", "cargo", "cat", "cc", "chmod", "clang", "cmake",
    "cmp", "command", "comm", "cp", "curl", "cut", "dash", "date", "diff", "dirname", "docker",
    "du", "echo", "ed", "egrep", "env", "expr", "false", "fgrep", "find", "g++", "gcc", "gem",
    "git", "go", "grep", "gunzip", "gzip", "head", "hg", "id", "java", "join", "kill", "ksh", "ln",
    "ls", "make", "mkdir", "mktemp", "mv", "nodejs", "od", "openssl", "paste", "perl", "php", "ps",
    "printf", "pwd", "python", "python3", "readlink", "realpath", "rm", "rmdir", "ruby", "rustc",
    "sed", "seq", "sh", "sleep", "sort", "stat", "sudo", "tail", "tar", "tee", "test", "timeout",
    "touch", "tr", "true", "uname", "uniq", "wc", "wget", "xargs", "zsh",
];
/// Programs of the same kind that come as packages, too, each with the package that may bring it.
const PACKAGED_PROGRAMS: [(&str, &str); 11] = [
    ("bun", "bun"),
    ("bundle", "bundler"),
    ("bunx", "bun"),
    ("composer", "composer/composer"),
    ("corepack", "corepack"),
    ("deno", "deno"),
    ("node", "node"),
    ("npm", "npm"),
    ("npx", "npm"),
    ("pnpm", "pnpm"),
    ("pnpx", "pnpm"),
];

/// Whether a package may not bring a program because every machine has it.
pub(super) fn is_standard_program(program: &str, package: &str) -> bool {
    let packaged = PACKAGED_PROGRAMS.iter().find(|(name, _)| *name == program);
    match packaged {
        Some((_, brings)) => *brings != package,
        None => STANDARD_PROGRAMS.contains(&program),
    }
}
