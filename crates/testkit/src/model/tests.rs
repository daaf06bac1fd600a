//! The server as a plain client sees it, and the namespace around one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::json;

use super::*;

/// Posts a body and returns the answer, head and body, as it came.
fn post(server: &ModelServer, body: &Value) -> String {
    let mut stream = connect(server, body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn connect(server: &ModelServer, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let body = body.to_string();
    let head = "POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length:";
    write!(stream, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
    stream
}

/// The `data:` lines of an answer.
fn events(answer: &str) -> Vec<Value> {
    answer
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[test]
fn turns_are_played_in_order_and_then_it_is_500() {
    let server = ModelServer::start(vec![
        ModelTurn::message("hello").tokens(7, 3, 2),
        ModelTurn::Status {
            code: 429,
            body: "slow".to_owned(),
            headers: vec![("retry-after".to_owned(), "5".to_owned())],
        },
    ]);
    assert_eq!(server.turns_left(), 2);
    let answer = post(&server, &json!({"n": 1}));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("0\r\n\r\n"), "{answer}");
    let events = events(&answer);
    assert_eq!(events[0]["type"], "response.created");
    assert_eq!(events[1]["item"]["content"][0]["text"], "hello");
    let usage = &events[2]["response"]["usage"];
    assert_eq!(usage["input_tokens"], 7);
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 3);
    assert_eq!(usage["output_tokens"], 2);

    let answer = post(&server, &json!({"n": 2}));
    assert!(answer.starts_with("HTTP/1.1 429 Too Many Requests\r\n"));
    assert!(answer.contains("\r\nretry-after: 5\r\n") && answer.ends_with("\r\n\r\nslow"));

    server.push(ModelTurn::failed("rate_limit_exceeded", "slower"));
    let answer = post(&server, &json!({"n": 3}));
    assert_eq!(
        self::events(&answer)[1]["response"]["error"]["message"],
        "slower"
    );
    assert!(post(&server, &json!({"n": 4})).contains("the script is used up"));
    let requests = server.requests();
    assert_eq!(requests.len(), 4);
    assert_eq!(requests[1], json!({"n": 2}));
}

#[test]
fn the_offered_shell_tool_is_called() {
    let function = |name: &str| json!({"type": "function", "name": name});
    let exec = json!({"type": "namespace", "name": "functions",
        "tools": [{"type": "custom", "name": "exec"}]});
    for (request, kind, named, argument) in [
        (
            json!({"tools": [function("view_image"), function("exec_command")]}),
            "function_call",
            "exec_command",
            r#"{"cmd":"a \"b\""}"#,
        ),
        (
            json!({"input": [{"type": "additional_tools", "tools": [exec]}]}),
            "custom_tool_call",
            "exec",
            "const result = await tools.exec_command({\"cmd\":\"a \\\"b\\\"\"});\n\
             text(JSON.stringify(result));",
        ),
        (
            json!({"tools": [function("shell_command")]}),
            "function_call",
            "shell_command",
            r#"{"command":"a \"b\""}"#,
        ),
        (
            json!({"tools": [function("shell")]}),
            "function_call",
            "shell",
            r#"{"command":["bash","-lc","a \"b\""]}"#,
        ),
    ] {
        let server = ModelServer::start(vec![ModelTurn::shell("a \"b\"")]);
        let item = events(&post(&server, &request))[1]["item"].clone();
        assert_eq!(item["type"], kind);
        assert_eq!(item["name"], named);
        let given = item.get("arguments").unwrap_or(&item["input"]);
        assert_eq!(given, argument);
    }
    let server = ModelServer::start(vec![ModelTurn::shell("true")]);
    assert!(post(&server, &json!({})).contains("no shell tool"));
}

#[test]
fn other_requests_take_no_turn() {
    let server = ModelServer::start(vec![ModelTurn::message("x")]);
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream
        .write_all(b"GET /v1/models HTTP/1.1\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert_eq!((server.turns_left(), server.requests().len()), (1, 0));
}

#[test]
fn a_cut_ends_without_the_last_chunk_and_a_hang_ends_with_the_server() {
    let server = ModelServer::start(vec![ModelTurn::Cut, ModelTurn::Hang]);
    let cut = post(&server, &json!({}));
    assert!(cut.contains("response.created") && !cut.ends_with("0\r\n\r\n"));

    let mut hanging = connect(&server, &json!({}));
    server.wait_for_requests(2, Duration::from_secs(10));
    let started = Instant::now();
    drop(server);
    let mut rest = String::new();
    hanging.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("response.created"));
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn provider_flags_are_toml_values() {
    let args = codex_provider_args(ISOLATED_BASE_URL);
    assert_eq!(args.len(), 4);
    assert!(args[3].contains(r#"base_url="http://127.0.0.1:4141/v1""#));
    assert!(args[3].ends_with("supports_websockets=false}"));
}

/// Whether namespaces can be made here at all: not in every container.
fn can_isolate(server: &ModelServer) -> bool {
    let made = server.loopback_only("true").output();
    made.is_ok_and(|made| made.status.success())
}

#[test]
fn the_namespace_has_the_server_and_nothing_else() {
    let server = ModelServer::start(vec![ModelTurn::message("from outside")]);
    if !can_isolate(&server) {
        return;
    }
    let client = r#"
import http.client, socket
c = http.client.HTTPConnection("127.0.0.1", 4141, timeout=10)
c.request("POST", "/v1/responses", "{}")
print(c.getresponse().read().decode())
for address in ("127.0.0.1", 4142), ("192.0.2.1", 80):
    try:
        socket.create_connection(address, timeout=5)
        print("connected", address)
    except OSError as error:
        print("no way", error)
"#;
    let output = server
        .loopback_only("python3")
        .args(["-c", client])
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.contains("from outside"), "{stdout}");
    assert_eq!(stdout.matches("no way").count(), 2, "{stdout}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_wrapper_keeps_arguments_and_exit_code() {
    let server = ModelServer::start(Vec::new());
    if !can_isolate(&server) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("it's wrapped");
    server.write_wrapper(&script, std::path::Path::new("/bin/sh"));
    let output = crate::run::command(script.to_str().unwrap())
        .args(["-c", "printf '%s|' \"$@\"; exit 7", "sh", "a b", "$c"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a b|$c|");
}
