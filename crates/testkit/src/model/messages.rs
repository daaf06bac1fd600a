//! What a model says in the streaming Messages API, which claude speaks.

use serde_json::{Value, json};

use super::TurnTokens;

/// The tool by which claude wants an answer that follows a schema.
const STRUCTURED: &str = "StructuredOutput";

/// A call of the shell tool, if the request offers one.
pub(super) fn shell_call(request: &Value, command: &str) -> Option<Value> {
    let name = ["Bash", "bash"]
        .into_iter()
        .find(|it| offers(request, it))?;
    Some(tool_use(
        name,
        &json!({"command": command, "description": "as the script says"}),
    ))
}

/// A message; where the request wants one that follows a schema, it is such a one.
pub(super) fn message(request: &Value, text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(report) if report.is_object() && offers(request, STRUCTURED) => {
            tool_use(STRUCTURED, &report)
        }
        _ => json!({"type": "text", "text": text}),
    }
}

/// A whole stream with one block.
pub(super) fn complete(request: &Value, block: &Value, tokens: TurnTokens) -> String {
    let is_call = block["type"] == "tool_use";
    let (empty, delta) = if is_call {
        let mut empty = block.clone();
        empty["input"] = json!({});
        let input = block["input"].to_string();
        (
            empty,
            json!({"type": "input_json_delta", "partial_json": input}),
        )
    } else {
        let delta = json!({"type": "text_delta", "text": block["text"]});
        (json!({"type": "text", "text": ""}), delta)
    };
    let message = json!({
        "type": "message",
        "id": "msg_scripted",
        "role": "assistant",
        "model": request["model"],
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {
            "input_tokens": tokens.input - tokens.cached,
            "cache_read_input_tokens": tokens.cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": 1,
        },
    });
    let reason = if is_call { "tool_use" } else { "end_turn" };
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": empty}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": null},
            "usage": {"output_tokens": tokens.output},
        }),
        json!({"type": "message_stop"}),
    ];
    events.iter().map(super::responses::event).collect()
}

fn tool_use(name: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": "toolu_scripted", "name": name, "input": input})
}

fn offers(request: &Value, name: &str) -> bool {
    let tools = request["tools"].as_array();
    tools.is_some_and(|tools| tools.iter().any(|tool| tool["name"] == name))
}
