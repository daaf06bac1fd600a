// A line of an agent's stream in words. Each CLI has its own JSON; what is not known is
// shown as it is, never left out.

export type StreamKind = 'message' | 'thought' | 'command' | 'file' | 'tool' | 'usage' | 'error' | 'note' | 'raw';

export interface StreamEntry {
  kind: StreamKind;
  text: string;
  /** The command or tool failed. */
  failed: boolean;
  /** It has begun and not ended. */
  running: boolean;
}

type Json = Record<string, unknown>;

/** What a line says. One line may hold several things. */
export function describeLine(line: string): StreamEntry[] {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return line.trim() === '' ? [] : [entry('raw', line)];
  }
  if (!isObject(value)) return [entry('raw', line)];
  const found = ownEvent(value) ?? codexEvent(value) ?? claudeEvent(value) ?? opencodeEvent(value);
  return found ?? [entry('raw', line)];
}

/** The small protocol of `command` agents. */
function ownEvent(value: Json): StreamEntry[] | null {
  switch (value['event']) {
    case 'turn_started':
      return [entry('note', 'the model was asked')];
    case 'command':
      return [command(text(value['command']), value['exit_code'], value['running'] === true)];
    case 'message':
      return [entry('message', text(value['text']))];
    case 'file_change':
      return [entry('file', `${text(value['kind']) || 'update'} ${text(value['path'])}`)];
    case 'usage':
      return [usage(value)];
    case 'error':
      return [entry('error', text(value['message']), true)];
    default:
      return null;
  }
}

function codexEvent(value: Json): StreamEntry[] | null {
  const type = text(value['type']);
  if (type === 'turn.started') return [entry('note', 'the model was asked')];
  if (type === 'thread.started') return [entry('note', 'a session began')];
  if (type === 'turn.completed' && isObject(value['usage'])) return [usage(value['usage'])];
  if (type === 'turn.failed') return [entry('error', text(isObject(value['error']) ? value['error']['message'] : ''), true)];
  if (type === 'error' && typeof value['message'] === 'string') return [entry('error', value['message'], true)];
  if (!type.startsWith('item.') || !isObject(value['item'])) return null;
  const item = value['item'];
  const running = type !== 'item.completed';
  switch (item['type']) {
    case 'agent_message':
      return [entry('message', text(item['text']))];
    case 'reasoning':
      return [entry('thought', text(item['text']))];
    case 'command_execution':
      return [command(text(item['command']), item['exit_code'], running)];
    case 'file_change':
      return list(item['changes']).map((change) => entry('file', `${text(change['kind'])} ${text(change['path'])}`));
    case 'error':
      return [entry('error', text(item['message']), true)];
    default:
      return null;
  }
}

function claudeEvent(value: Json): StreamEntry[] | null {
  const type = value['type'];
  if (type === 'system') return [entry('note', text(value['subtype']) || 'system')];
  if (type === 'result') {
    const failed = value['is_error'] === true;
    return [entry(failed ? 'error' : 'message', text(value['result']) || 'the session ended', failed)];
  }
  if ((type !== 'assistant' && type !== 'user') || !isObject(value['message'])) return null;
  const content = value['message']['content'];
  if (typeof content === 'string') return [entry('message', content)];
  return list(content).flatMap((block) => claudeBlock(block));
}

function claudeBlock(block: Json): StreamEntry[] {
  switch (block['type']) {
    case 'text':
      return [entry('message', text(block['text']))];
    case 'thinking':
      return [entry('thought', text(block['thinking']))];
    case 'tool_use': {
      const input = isObject(block['input']) ? block['input'] : {};
      if (typeof input['command'] === 'string') return [command(input['command'], null, true)];
      const path = text(input['file_path']) || text(input['notebook_path']);
      const name = text(block['name']);
      return [path === '' ? entry('tool', `${name} ${JSON.stringify(input)}`) : entry('file', `${name} ${path}`)];
    }
    case 'tool_result': {
      if (block['is_error'] !== true) return [];
      const content = block['content'];
      const said = typeof content === 'string' ? content : list(content).map((part) => text(part['text'])).join('\n');
      return [entry('error', said, true)];
    }
    default:
      return [];
  }
}

function opencodeEvent(value: Json): StreamEntry[] | null {
  if (value['type'] === 'error') return [entry('error', JSON.stringify(value['error'] ?? value), true)];
  if (!isObject(value['part'])) return null;
  const part = value['part'];
  if (typeof part['text'] === 'string') return [entry(value['type'] === 'reasoning' ? 'thought' : 'message', part['text'])];
  if (typeof part['tool'] === 'string') {
    const state = isObject(part['state']) ? part['state'] : {};
    const input = isObject(state['input']) ? state['input'] : {};
    const running = state['status'] === 'running' || state['status'] === 'pending';
    if (typeof input['command'] === 'string') {
      const metadata = isObject(state['metadata']) ? state['metadata'] : {};
      return [command(input['command'], metadata['exit'], running)];
    }
    const path = text(input['filePath']);
    return [entry(path === '' ? 'tool' : 'file', `${part['tool']} ${path}`.trim())];
  }
  if (value['type'] === 'step_start' || value['type'] === 'step_finish') return [entry('note', text(value['type']).replace('_', ' '))];
  return null;
}

function command(words: string, exit: unknown, running: boolean): StreamEntry {
  const code = typeof exit === 'number' ? exit : null;
  const failed = code !== null && code !== 0;
  return { kind: 'command', text: failed ? `${words}  → exit ${code}` : words, failed, running: running && code === null };
}

function usage(value: Json): StreamEntry {
  const part = (key: string, name: string): string[] =>
    typeof value[key] === 'number' ? [`${value[key].toLocaleString('en')} ${name}`] : [];
  const words = [...part('input_tokens', 'tokens in'), ...part('cached_input_tokens', 'cached'), ...part('output_tokens', 'out')];
  return entry('usage', words.join(', '));
}

function entry(kind: StreamKind, words: string, failed = false): StreamEntry {
  return { kind, text: words, failed, running: false };
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function list(value: unknown): Json[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
