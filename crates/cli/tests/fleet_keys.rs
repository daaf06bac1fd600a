//! What opens a fleet is out of reach of everything that it runs: sessions and guards try, under
//! each mechanism, with the ledger in a file and on a server.
#![allow(clippy::unwrap_used)]

mod agent_support;
mod fleet_project;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use agent_support::hide_program;
use fleet_project::{BIN, WORKS, issue, repo};
use runner_core::digest::sha256_hex;
use runner_testkit::{TestChild, TestPostgres, TestRepo, eventually};
use serde_json::{Value, json};

const ATTACK: &str = include_str!("fleet_keys_support/attack.py");

/// Where the ledger is, and who says so.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StoreBy {
    File,
    Argument,
    Variable,
}

/// What was tried by sessions and by guards, and worked.
struct Attacked {
    session: BTreeSet<String>,
    guard: BTreeSet<String>,
    /// The states of the tasks afterwards, by id.
    tasks: Vec<(String, String)>,
}

fn worked(text: &str) -> BTreeSet<String> {
    let tried: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap();
    let worked = tried.into_iter().filter(|(_, worked)| *worked == true);
    worked.map(|(name, _)| name).collect()
}

fn names(list: &str) -> BTreeSet<String> {
    list.split_whitespace().map(str::to_owned).collect()
}

/// What the attack looks for; it knows what it looks like, and by its digest which one is ours.
fn password(mechanism: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (mechanism, std::process::id()).hash(&mut hasher);
    format!("MARK-{:016x}", hasher.finish())
}

/// A fleet whose session and guard attack it.
fn attacked(mechanism: &str, by: StoreBy, server: Option<(&TestPostgres, &str)>) -> Attacked {
    let password = password(mechanism);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let mut repo = repo();
    if mechanism == "landlock" {
        hide_program(&mut repo, "bwrap");
    }
    let agent_dir = repo.agent_dir().to_owned();
    std::fs::write(agent_dir.join("attack.py"), ATTACK).unwrap();
    // The file that names the interpreter is written with the first script.
    repo.agent("true");
    let postgres = server.map_or("-".to_owned(), |(server, _)| server.port().to_string());
    let attack = |who: &str| {
        format!(
            "\"$(cat {dir}/python)\" {dir}/attack.py {dir}/tried-{who} {project} {home} {BIN} {port} {postgres} {digest}",
            digest = sha256_hex(password.as_bytes()),
            dir = agent_dir.display(),
            project = repo.root().join("repo").display(),
            home = repo.root().join("home").display(),
        )
    };
    repo.agent(&format!("{}\n{WORKS}", attack("session")));
    let guard = attack("guard");
    repo.config(|config| {
        let mode = if mechanism == "none" {
            "off"
        } else {
            "required"
        };
        config
            .set("sandbox.mode", mode)
            .set("sandbox.writable", json!([agent_dir]))
            .set("guard.command", json!(["sh", "-c", guard]));
    });
    repo.write_config();
    let mut store: Vec<String> = Vec::new();
    if let Some((server, database)) = server {
        let url = server
            .url(database)
            .replace("postgres@", &format!("postgres:{password}@"));
        if by == StoreBy::Argument {
            store = vec!["--store".to_owned(), url];
        } else {
            repo.env("RUNNER_STORE", url);
        }
    }
    // What earlier versions left in the project.
    repo.write(
        ".runner/fleet/api-token",
        "0123456789abcdef0123456789abcdef",
    );
    issue(&repo, 1, "Agent: worker\nAllowed paths: issue-1/**");
    let call = |words: &[&str]| {
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        words.extend(store.iter().cloned());
        repo.runner(&words)
    };
    call(&["task", "add", "victim", "--scope", "v", "--role", "tester"]).success();
    let up = [
        "fleet",
        "up",
        "--until-idle",
        "--testers",
        "0",
        "--port",
        &port,
    ];
    let up = call(&up);
    assert!(!repo.exists(".runner/fleet/api-token"), "{}", up.describe());
    let warned = up
        .stderr
        .contains("the password of the ledger was on the command line");
    assert_eq!(warned, by == StoreBy::Argument, "{}", up.describe());
    assert!(!up.stderr.contains(&password) && !up.stdout.contains(&password));
    let read = |who: &str| {
        let path = agent_dir.join(format!("tried-{who}"));
        let text = std::fs::read_to_string(path);
        text.unwrap_or_else(|error| panic!("{who}: {error}: {}", up.describe()))
    };
    let tasks = call(&["task", "list", "--json"]).success().json();
    let tasks = tasks["tasks"].as_array().unwrap().iter();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    Attacked {
        session: worked(&read("session")),
        guard: worked(&read("guard")),
        tasks: tasks
            .map(|task| (word(&task["id"]), word(&task["state"])))
            .collect(),
    }
}

/// Every way to keep a ledger, under one mechanism.
fn check(
    mechanism: &str,
    expected: impl Fn(StoreBy) -> BTreeSet<String>,
    tasks: impl Fn(StoreBy) -> Vec<(&'static str, &'static str)>,
) {
    let server = TestPostgres::start(false);
    for database in ["argument", "variable"] {
        server.create_database(database, None);
    }
    server.ask_for_password(&password(mechanism));
    for (by, database) in [
        (StoreBy::File, None),
        (StoreBy::Argument, Some("argument")),
        (StoreBy::Variable, Some("variable")),
    ] {
        let seen = attacked(mechanism, by, database.map(|name| (&server, name)));
        assert_eq!(seen.session, expected(by), "{mechanism} {by:?}: session");
        assert_eq!(seen.guard, expected(by), "{mechanism} {by:?}: guard");
        let found: Vec<(&str, &str)> = seen
            .tasks
            .iter()
            .map(|(id, state)| (id.as_str(), state.as_str()))
            .collect();
        assert_eq!(found, tasks(by), "{mechanism} {by:?}");
    }
}

#[test]
fn nothing_of_the_fleet_is_reached_under_bubblewrap() {
    // That somebody answers on loopback, who wants the token.
    check(
        "bubblewrap",
        |_| names("api_lives"),
        |_| vec![("issue-1", "done"), ("victim", "todo")],
    );
}

#[test]
fn nothing_of_the_fleet_is_reached_under_landlock() {
    // Names of processes are seen; what belongs to them is not.
    check(
        "landlock",
        |_| names("api_lives sees_the_runner"),
        |_| vec![("issue-1", "done"), ("victim", "todo")],
    );
}

/// What gets through without a sandbox, and why: everything that files of the same user can tell. What
/// processes hold is closed to all but root.
#[test]
fn without_a_sandbox_files_are_open_and_processes_closed() {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let expected = |by: StoreBy| {
        // Files of the user are open, and so is the work tree with a ledger in it.
        let mut all = names(
            "address_file api_lives api_with_found_token notes_write sees_the_runner \
             token_by_command token_file",
        );
        if by == StoreBy::File {
            all.extend(names("ledger_read ledger_write task_by_command"));
        }
        if is_root {
            all.extend(names(
                "descriptor_of_the_runner folder_of_the_runner maps memory open_files \
                 process_vm_readv root_of_the_runner traced",
            ));
        }
        if is_root && by != StoreBy::File {
            all.extend(names("postgres_opened"));
        }
        if is_root && by == StoreBy::Variable {
            all.extend(names("environ"));
        }
        all
    };
    check("none", expected, |by| {
        let mut tasks = vec![("issue-1", "done"), ("planted", "todo")];
        if by == StoreBy::File {
            tasks.push(("planted-by-command", "todo"));
        }
        tasks.push(("victim", "canceled"));
        tasks
    });
}

/// Serves the API, and what it said first.
fn serve(repo: &TestRepo, more: &[&str]) -> (TestChild, Value) {
    let words = [&["fleet", "serve", "--port", "0", "--json"], more].concat();
    let running = repo.spawn_runner(&words);
    eventually("it says where it is", Duration::from_secs(60), || {
        running.stdout_so_far().contains('\n')
    });
    let said = running.stdout_so_far();
    let said = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    (running, said)
}

/// The answer to one request.
fn get(url: &str, path: &str, more: &str) -> String {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let ask = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(ask.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_token_is_outside_the_project_and_printed_by_a_command() {
    let repo = repo();
    repo.write(
        ".runner/fleet/api-token",
        "0123456789abcdef0123456789abcdef",
    );
    repo.runner(&["fleet", "token", "--link"])
        .code(1)
        .says("nobody serves the API of this fleet");
    let (running, said) = serve(&repo, &[]);
    assert!(!repo.exists(".runner/fleet/api-token"));
    let file = Path::new(said["token_file"].as_str().unwrap());
    assert!(!file.starts_with(repo.root().join("repo")), "{said}");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(file.parent().unwrap())), (0o600, 0o700));

    let url = said["api"].as_str().unwrap();
    let header = repo.runner(&["fleet", "token", "--header"]).success();
    let header = format!("{}\r\n", header.stdout.trim_end());
    assert!(get(url, "/tasks", &header).starts_with("HTTP/1.1 200"));
    let token = repo.runner(&["fleet", "token"]).success().stdout;
    assert_eq!(
        header.trim_end(),
        format!("Authorization: Bearer {}", token.trim_end())
    );
    assert_ne!(token.trim_end(), "0123456789abcdef0123456789abcdef");
    let told = repo.runner(&["fleet", "token", "--json"]).success().json();
    assert_eq!(told["token_file"], said["token_file"]);

    // What serves it for a person says nothing that opens it, where that goes to a file.
    let link = repo.runner(&["fleet", "token", "--link"]).success().stdout;
    let path = link.trim_end().strip_prefix(url).unwrap();
    let page = get(url, path, "");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let cookie = page
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = format!("Cookie: {}\r\n", cookie.unwrap().split(';').next().unwrap());
    assert!(get(url, "/tasks", &cookie).starts_with("HTTP/1.1 200"));
    for (path, cookie) in [(path, ""), ("/tasks", ""), ("/tasks", "Cookie: a=b\r\n")] {
        assert!(get(url, path, cookie).starts_with("HTTP/1.1 401"), "{path}");
    }
    // Commands ask over a socket beside it.
    let asked = repo.runner(&["fleet", "api", "/tasks"]).success().json();
    assert_eq!(asked["tasks"], json!([]));
    let task = r#"{"id":"a","title":"A","goal":"G","lock_scope":["a"]}"#;
    let made = repo
        .runner(&["fleet", "api", "/tasks", "--data", task])
        .success()
        .json();
    assert_eq!(made["task"]["id"], "a", "{made}");
    let refused = repo.runner(&["fleet", "api", "/none"]).code(1).json();
    assert_eq!(refused["error"]["code"], "NOT_FOUND");
    repo.runner(&["fleet", "api", "tasks"])
        .code(1)
        .says("is no request");
    let sockets = || {
        let entries = std::fs::read_dir(file.parent().unwrap()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.extension().is_none() && path != file)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        sockets().iter().map(|it| mode(it)).collect::<Vec<_>>(),
        [0o600]
    );
    running.signal("TERM");
    let ended = running.wait_within(Duration::from_secs(60)).code(130);
    assert!(sockets().is_empty());
    for secret in [token.trim_end(), "?token="] {
        assert!(!ended.stderr.contains(secret), "{}", ended.describe());
    }
    for words in [["fleet", "token", "--link"], ["fleet", "api", "/tasks"]] {
        repo.runner(&words)
            .code(1)
            .says("nobody serves the API of this fleet");
    }
}

#[test]
fn a_password_is_seen_on_no_command_line_and_handed_to_nobody() {
    let server = TestPostgres::start(false);
    server.create_database("fleet", None);
    let password = password("argument");
    server.ask_for_password(&password);
    let url = server.url("fleet");
    let url = |password: &str| url.replace("postgres@", &format!("postgres:{password}@"));
    let repo = repo();
    for store in [
        vec!["--store".to_owned(), url(&password)],
        vec![format!("--store={}", url(&password))],
        vec![format!(
            "--store={}?password={password}",
            server.url("fleet")
        )],
    ] {
        let words: Vec<&str> = store.iter().map(String::as_str).collect();
        let (running, said) = serve(&repo, &words);
        let shown = std::fs::read(format!("/proc/{}/cmdline", running.pid())).unwrap();
        let shown = String::from_utf8(shown).unwrap().replace('\0', " ");
        assert!(!shown.contains(&password), "{shown}");
        let stars = "*".repeat(password.len());
        assert!(shown.ends_with(&format!("{} ", store.join(" ").replace(&password, &stars))));
        // It was understood all the same.
        let token = std::fs::read_to_string(said["token_file"].as_str().unwrap()).unwrap();
        let header = format!("Authorization: Bearer {token}\r\n");
        let ready = get(said["api"].as_str().unwrap(), "/health/ready", &header);
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        running.signal("TERM");
        let ended = running.wait_within(Duration::from_secs(60)).code(130);
        assert!(ended.stderr.contains("warning: the password of the ledger"));
        assert!(!ended.stderr.contains(&password), "{}", ended.describe());
    }
    // A wrong one is no reason to tell it.
    let wrong = url("another-password");
    let refused = repo.runner(&["task", "list", "--store", &wrong]).code(1);
    assert!(
        !refused.stderr.contains("another-password"),
        "{}",
        refused.describe()
    );
}
