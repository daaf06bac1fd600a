//! What a model says in the streaming Chat Completions API, which opencode speaks to providers that
//! are compatible with it.

use serde_json::{Value, json};

use super::TurnTokens;

/// Whether a request is part of a session: a title for it is asked for, too, and without tools.
pub(super) fn is_of_session(request: &Value) -> bool {
    request["tools"]
        .as_array()
        .is_some_and(|tools| !tools.is_empty())
}

/// A call of the shell tool, if the request offers one.
pub(super) fn shell_call(request: &Value, command: &str) -> Option<Value> {
    let tools = request["tools"].as_array()?;
    let has_shell = tools.iter().any(|tool| tool["function"]["name"] == "bash");
    let input = json!({"command": command, "description": "as the script says"});
    has_shell.then(|| {
        json!({"role": "assistant", "tool_calls": [{
            "index": 0,
            "id": "call_scripted",
            "type": "function",
            "function": {"name": "bash", "arguments": input.to_string()},
        }]})
    })
}

/// A message of the assistant.
pub(super) fn message(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// A whole stream with one message.
pub(super) fn complete(delta: &Value, tokens: TurnTokens) -> String {
    let reason = if delta["tool_calls"].is_array() {
        "tool_calls"
    } else {
        "stop"
    };
    let chunk = |delta: &Value, reason: Value| {
        json!({
            "id": "chatcmpl-scripted",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "scripted",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        })
    };
    let mut last = chunk(&json!({}), reason.into());
    last["usage"] = json!({
        "prompt_tokens": tokens.input,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
    });
    format!(
        "data: {}\n\ndata: {last}\n\ndata: [DONE]\n\n",
        chunk(delta, Value::Null)
    )
}
