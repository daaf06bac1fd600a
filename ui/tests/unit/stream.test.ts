import { describe, expect, test } from 'vitest';
import { describeLine } from '../../src/logic/stream';

describe('a line of an agent', () => {
  const cases: [string, object, [string, string][]][] = [
    ['own message', { event: 'message', text: 'hi' }, [['message', 'hi']]],
    ['own command', { event: 'command', command: 'make', running: true }, [['command', 'make']]],
    ['own failed command', { event: 'command', command: 'make', exit_code: 2, running: false }, [['command', 'make  → exit 2']]],
    ['own usage', { event: 'usage', input_tokens: 1500, cached_input_tokens: null, output_tokens: 3 }, [['usage', '1,500 tokens in, 3 out']]],
    ['codex message', { type: 'item.completed', item: { type: 'agent_message', text: 'done' } }, [['message', 'done']]],
    ['codex command', { type: 'item.started', item: { type: 'command_execution', command: 'ls' } }, [['command', 'ls']]],
    ['codex files', { type: 'item.completed', item: { type: 'file_change', changes: [{ path: 'a', kind: 'add' }, { path: 'b', kind: 'update' }] } }, [['file', 'add a'], ['file', 'update b']]],
    ['codex failure', { type: 'turn.failed', error: { message: 'no' } }, [['error', 'no']]],
    ['claude text and tool', { type: 'assistant', message: { content: [{ type: 'text', text: 'look' }, { type: 'tool_use', name: 'Bash', input: { command: 'ls' } }] } }, [['message', 'look'], ['command', 'ls']]],
    ['claude edit', { type: 'assistant', message: { content: [{ type: 'tool_use', name: 'Edit', input: { file_path: 'x' } }] } }, [['file', 'Edit x']]],
    ['claude result of a tool', { type: 'user', message: { content: [{ type: 'tool_result', is_error: true, content: 'bad' }] } }, [['error', 'bad']]],
    ['opencode text', { type: 'text', part: { text: 'hm' } }, [['message', 'hm']]],
    ['opencode tool', { type: 'tool_use', part: { tool: 'bash', state: { status: 'completed', input: { command: 'ls' }, metadata: { exit: 0 } } } }, [['command', 'ls']]],
    ['unknown', { what: 1 }, [['raw', '{"what":1}']]],
  ];
  test.each(cases)('%s', (_, line, expected) => {
    expect(describeLine(JSON.stringify(line)).map((entry) => [entry.kind, entry.text])).toEqual(expected);
  });

  test('what is no JSON is shown as it is', () => {
    expect(describeLine('Segmentation fault')).toMatchObject([{ kind: 'raw', text: 'Segmentation fault' }]);
    expect(describeLine('')).toEqual([]);
    expect(describeLine('[1]')).toMatchObject([{ kind: 'raw' }]);
    expect(describeLine('null')).toMatchObject([{ kind: 'raw' }]);
  });
});
