//! What a model says in the streaming Responses API.

use serde_json::{Value, json};

use super::TurnTokens;

const RESPONSE_ID: &str = "resp_scripted";
const CALL_ID: &str = "call_scripted";

/// The beginning of every stream.
pub(super) fn created() -> String {
    event(&json!({"type": "response.created", "response": {"id": RESPONSE_ID}}))
}

/// A whole stream with one item.
pub(super) fn complete(item: &Value, tokens: TurnTokens) -> String {
    let done = event(&json!({"type": "response.output_item.done", "item": item}));
    let completed = event(&json!({
        "type": "response.completed",
        "response": {
            "id": RESPONSE_ID,
            "usage": {
                "input_tokens": tokens.input,
                "input_tokens_details": {"cached_tokens": tokens.cached},
                "output_tokens": tokens.output,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": tokens.input + tokens.output,
            },
        },
    }));
    format!("{}{done}{completed}", created())
}

/// A stream that fails after it began well.
pub(super) fn failed(code: &str, message: &str) -> String {
    let failed = event(&json!({
        "type": "response.failed",
        "response": {
            "id": RESPONSE_ID,
            "status": "failed",
            "error": {"code": code, "message": message},
        },
    }));
    format!("{}{failed}", created())
}

/// A message of the assistant.
pub(super) fn message(text: &str) -> Value {
    json!({
        "type": "message",
        "id": "msg_scripted",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
    })
}

/// A call of the shell tool that the request offers; which one depends on the model
/// that the CLI believes to talk to.
pub(super) fn shell_call(request: &Value, command: &str) -> Option<Value> {
    let tools = offered(request);
    let named = |kind: &str, name: &str| {
        tools
            .iter()
            .find(|tool| tool.kind == kind && tool.name == name)
    };
    let argv = json!(["bash", "-lc", command]);
    if let Some(tool) = named("function", "exec_command") {
        return Some(tool.function_call(&json!({"cmd": command})));
    }
    if let Some(tool) = named("custom", "exec") {
        // Some models get a tool that runs JavaScript, in which the shell is a function.
        let script = format!(
            "const result = await tools.exec_command({});\ntext(JSON.stringify(result));",
            json!({"cmd": command})
        );
        return Some(tool.custom_call(&script));
    }
    if let Some(tool) = named("function", "shell_command") {
        return Some(tool.function_call(&json!({"command": command})));
    }
    if let Some(tool) = named("function", "shell") {
        return Some(tool.function_call(&json!({"command": argv})));
    }
    tools
        .iter()
        .any(|tool| tool.kind == "local_shell")
        .then(|| {
            json!({
                "type": "local_shell_call",
                "call_id": CALL_ID,
                "status": "completed",
                "action": {"type": "exec", "command": argv},
            })
        })
}

/// A tool that the request offers.
struct ModelTool<'a> {
    kind: &'a str,
    name: &'a str,
    namespace: Option<&'a str>,
}

impl ModelTool<'_> {
    fn function_call(&self, arguments: &Value) -> Value {
        self.in_namespace(json!({
            "type": "function_call",
            "call_id": CALL_ID,
            "name": self.name,
            "arguments": arguments.to_string(),
        }))
    }

    fn custom_call(&self, input: &str) -> Value {
        self.in_namespace(json!({
            "type": "custom_tool_call",
            "call_id": CALL_ID,
            "name": self.name,
            "input": input,
        }))
    }

    fn in_namespace(&self, mut call: Value) -> Value {
        if let Some(namespace) = self.namespace {
            call["namespace"] = namespace.into();
        }
        call
    }
}

/// Every tool of the request: the list itself, and what items of the input add.
fn offered(request: &Value) -> Vec<ModelTool<'_>> {
    let added = list(&request["input"])
        .iter()
        .filter(|item| item["type"] == "additional_tools")
        .flat_map(|item| list(&item["tools"]));
    let mut tools = Vec::new();
    for tool in list(&request["tools"]).iter().chain(added) {
        let name = tool["name"].as_str().unwrap_or_default();
        if tool["type"] == "namespace" {
            let inner = list(&tool["tools"]).iter();
            tools.extend(inner.map(|tool| self::tool(tool, Some(name))));
        } else {
            tools.push(self::tool(tool, None));
        }
    }
    tools
}

fn tool<'a>(tool: &'a Value, namespace: Option<&'a str>) -> ModelTool<'a> {
    ModelTool {
        kind: tool["type"].as_str().unwrap_or_default(),
        name: tool["name"].as_str().unwrap_or_default(),
        namespace,
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn event(data: &Value) -> String {
    let name = data["type"].as_str().unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}
