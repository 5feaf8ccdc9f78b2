// API client. Paths are relative, because on DC/OS the page is at /service/NAME/.

const KEPT = "tensorflow-token";
const TIMEOUT = 15000; // ms until an answer
const STREAM_TIMEOUT = 45000; // ms without data; streams send a keep-alive every 15 s
const FIRST_BYTE_TIMEOUT = 8000; // ms until a stream starts; later, a proxy buffers it

// Error answer of the API with its HTTP status.
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// The scheduler is unreachable: no answer, or a proxy's error.
export class Away extends Error {}

export const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));

// Kept in the history of this tab, because web storage is shared with TensorBoard, which has the same origin.
let token = history.state?.[KEPT] ?? "";

export function keepToken(text) {
  token = text;
  history.replaceState({ [KEPT]: text }, "");
}

// `local run` prints an address with #token=...; browsers do not send this part. Remove it from the address bar.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) history.replaceState(null, "", location.pathname + location.search);
  if (given || token) keepToken(given || token);
}

takeToken();
addEventListener("hashchange", takeToken);

function headers(accept) {
  // X-Requested-With suppresses the browser's password dialog.
  const all = { Accept: accept, "X-Requested-With": "XMLHttpRequest" };
  // Not Authorization: on DC/OS, Admin Router would take it for a login to DC/OS.
  return token ? { ...all, "X-TensorFlow-Token": token } : all;
}

async function ask(path, options) {
  try {
    return await fetch(path, { ...options, cache: "no-store", redirect: "error" });
  } catch (error) {
    throw new Away(String(error));
  }
}

// Return the JSON of an answer. `good`: further statuses that are not errors.
export async function get(path, good = []) {
  const [answer, body] = await exchange(path, "GET");
  if (!answer.ok && !good.includes(answer.status)) throw problem(answer, body);
  if (typeof body !== "object") throw new Away("the answer is not from the scheduler");
  return body;
}

// Send a command and return the scheduler's message.
export async function post(path) {
  const [answer, body] = await exchange(path, "POST");
  if (!answer.ok) throw problem(answer, body);
  if (answer.status === 208) return "Nothing to do.";
  return typeof body === "object" ? (body.message ?? "Done.") : body || "Done.";
}

async function exchange(path, method) {
  const options = { method, headers: headers("application/json"), signal: AbortSignal.timeout(TIMEOUT) };
  const answer = await ask(path, options);
  return [answer, await content(answer)];
}

async function content(answer) {
  let text;
  try {
    text = await answer.text();
  } catch (error) {
    throw new Away(String(error));
  }
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function problem(answer, body) {
  if (typeof body === "object" && body?.error) return new Refused(answer.status, body.error.message);
  // Without the API's error format, the answer is a proxy's.
  if ([502, 503, 504].includes(answer.status)) return new Away(`HTTP ${answer.status}`);
  const text = typeof body === "string" ? body.slice(0, 300) : "";
  return new Refused(answer.status, text || `HTTP ${answer.status}`);
}

// Read server-sent events with fetch, because EventSource sends no token. Calls `onEvent(kind, data, id)`; comments have
// the kind "". Returns when the stream ends; throws Refused or Away.
export async function listen(path, signal, onEvent) {
  const ending = new AbortController();
  const end = () => ending.abort();
  signal.addEventListener("abort", end, { once: true });
  let timer = setTimeout(end, FIRST_BYTE_TIMEOUT);
  try {
    const answer = await ask(path, { headers: headers("text/event-stream"), signal: ending.signal });
    if (!answer.ok || !answer.headers.get("content-type")?.startsWith("text/event-stream")) {
      throw problem(answer, await content(answer));
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser(onEvent);
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(end, STREAM_TIMEOUT);
      parse(value);
    }
  } catch (error) {
    throw error instanceof Refused ? error : new Away(String(error));
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", end);
    ending.abort();
  }
}

// Parser for the part of WHATWG HTML 9.2.6 that the API uses.
function parser(onEvent) {
  let rest = "";
  return (piece) => {
    const blocks = (rest + piece).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = { event: "", data: "", id: null };
      for (const line of block.split("\n")) {
        const at = line.indexOf(":");
        if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).replace(/^ /, "");
      }
      onEvent(fields.event, fields.data ? JSON.parse(fields.data) : null, fields.id);
    }
  };
}
