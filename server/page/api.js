// Talks to the server that the page came from. Paths are relative, so that the page also works behind a
// proxy that serves it under a path of its own.

export const at = (path) => new URL(path, document.baseURI);

// The API key, where the server asks for one: as long as this tab is open, and not among the settings,
// which outlive it.
const KEY = 'tandem-api-key';
let key = '';
try {
  key = sessionStorage.getItem(KEY) ?? '';
} catch { /* Without storage the key lasts as long as the page. */ }

export const apiKey = () => key;

export function setApiKey(value) {
  key = value.trim();
  try {
    sessionStorage.setItem(KEY, key);
  } catch { /* as above */ }
}

const authorization = () => (key ? { authorization: `Bearer ${key}` } : {});

// What went wrong. `status` is that of HTTP, or one of these two.
export const UNREACHABLE = 0;
export const CUT_SHORT = -1;

export class Failure extends Error {
  constructor(status, message, { param = null, retryAfterMs = 0, requestId = '' } = {}) {
    super(message);
    Object.assign(this, { status, param, retryAfterMs, requestId });
  }
}

// An error within a stream has no status of its own, only the code that goes with one.
const STATUS_OF = {
  rate_limit_exceeded: 429, unavailable: 503, timeout: 504, cancelled: 499, unsupported_value: 400,
};

function failureInStream(error) {
  const status = STATUS_OF[error.code] ?? (error.type === 'invalid_request_error' ? 400 : 500);
  return new Failure(status, error.message ?? '', { param: error.param });
}

async function failureOf(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch { /* A proxy's own answer is not JSON; its status says enough. */ }
  const header = (name) => response.headers.get(name);
  return new Failure(response.status, error.message ?? '', {
    param: error.param,
    retryAfterMs: Number(header('retry-after-ms') ?? 1000 * Number(header('retry-after') ?? 0)) || 0,
    requestId: header('x-request-id') ?? '',
  });
}

async function get(path, headers, signal) {
  let response;
  try {
    response = await fetch(at(path), { cache: 'no-store', headers: { ...headers, ...authorization() }, signal });
  } catch (error) {
    throw new Failure(UNREACHABLE, error.message);
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

// A server that has sent nothing whole after `timeoutMs` counts as unreachable; 0: it may take its time.
export async function getJson(path, timeoutMs = 0) {
  const response = await get(path, {}, timeoutMs > 0 ? AbortSignal.timeout(timeoutMs) : null);
  try {
    return await response.json();
  } catch (error) {
    throw new Failure(UNREACHABLE, error.message);
  }
}

export async function getText(path) {
  return (await get(path, { accept: 'text/plain' }, null)).text();
}

// 'ready', 'not ready' or 'unreachable'.
export async function health() {
  try {
    return (await fetch(at('health'), { cache: 'no-store' })).ok ? 'ready' : 'not ready';
  } catch {
    return 'unreachable';
  }
}

// The data of each event of a text/event-stream. Comments, which keep connections open, have none.
async function* eventData(stream, signal) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (signal.aborted) throw error;
      throw new Failure(CUT_SHORT, error.message);
    }
    if (part.done) return;
    const lines = (rest + part.value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith('data:')) yield line.slice(5).trim();
    }
  }
}

// Sends `body` and yields first {requestId}, then every event until the server says that it is done.
export async function* generate(path, body, signal) {
  let response;
  try {
    response = await fetch(at(path), {
      method: 'POST', signal, body: JSON.stringify(body),
      headers: { 'content-type': 'application/json', ...authorization() },
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Failure(UNREACHABLE, error.message);
  }
  if (!response.ok) throw await failureOf(response);
  yield { requestId: response.headers.get('x-request-id') ?? '' };
  for await (const data of eventData(response.body, signal)) {
    if (data === '[DONE]') return;
    const event = JSON.parse(data);
    if (event.error) throw failureInStream(event.error);
    yield event;
  }
  throw new Failure(CUT_SHORT, '');
}

// What a failure means, and what to do about it. `begun`: some of the answer had come.
export function explain(failure, route, begun) {
  const seconds = Math.ceil(failure.retryAfterMs / 1000);
  const wait = seconds > 0 ? ` Wait ${seconds} s, then try again.` : ' Try again in a moment.';
  if (begun && (failure.status === CUT_SHORT || failure.status >= 500)) {
    return ['The answer broke off.', 'What had come by then is kept. Try again for the whole answer.'];
  }
  switch (failure.status) {
    case UNREACHABLE: case CUT_SHORT:
      return ['The server cannot be reached.', `Is Tandem still running at ${location.host}?`];
    case 400: case 422:
      return ['The server refused this request.', 'Change what it names, then try again.'];
    case 401:
      return ['The server asks for an API key.', 'Enter one that it knows under Settings, then try again.'];
    case 403:
      return ['The API key may not do this.', 'Ask whoever runs the server for one that may.'];
    case 404:
      return ['The server has no such model or path.', 'Reload the page to see what it serves now.'];
    case 413:
      return ['This is too large for one request.', 'Shorten it, or start a new conversation.'];
    case 429:
      return ['The server is busy: too many requests are in flight.', wait.trim()];
    case 503:
      return route === 'auto'
        ? ['No worker can take this request now.', `Workers may be loading the model.${wait}`]
        : [`No worker can take this request on the route ${route} now.`,
          `Choose the route Automatic, or start workers for this one.${wait}`];
    case 504:
      return ['The request took longer than the server allows.', 'Ask for fewer tokens.'];
    default:
      return ['The server failed.', 'Its log says more. Trying again may help.'];
  }
}
