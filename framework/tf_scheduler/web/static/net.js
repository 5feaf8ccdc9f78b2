// API client. Paths are relative, because on DC/OS the page is at /service/NAME/.

const TOKEN_KEY = "tensorflow-token";
const TIMEOUT = 15000; // ms until an answer
const STREAM_TIMEOUT = 45000; // ms without data; streams send a keep-alive every 15 s
const FIRST_BYTE_TIMEOUT = 8000; // ms until a stream starts; later, a proxy buffers it

// Error answer of the API with its HTTP status.
export class RefusedError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// The scheduler is unreachable: no answer, or a proxy's error.
export class UnreachableError extends Error {}

// Sentence for an error of a request.
export const describeError = (error) => (error instanceof RefusedError ? error.message : "The scheduler does not answer.");

export const sleep = (time) => new Promise((resolve) => setTimeout(resolve, time));

// Kept in the history of this tab, because web storage is shared with TensorBoard, which has the same origin.
let token = history.state?.[TOKEN_KEY] ?? "";

export function keepToken(text) {
  token = text;
  history.replaceState({ [TOKEN_KEY]: text }, "");
}

// Return a page's address with the token, which another page would ask for.
export const pageWithToken = (path) => (token ? `${path}#token=${encodeURIComponent(token)}` : path);

// `local run` prints an address with #token=...; browsers do not send this part. Remove it from the address bar.
function takeToken() {
  const fromAddress = new URLSearchParams(location.hash.slice(1)).get("token");
  if (fromAddress) history.replaceState(null, "", location.pathname + location.search);
  if (fromAddress || token) keepToken(fromAddress || token);
}

takeToken();
addEventListener("hashchange", takeToken);

function headers(accept) {
  // X-Requested-With suppresses the browser's password dialog.
  const common = { Accept: accept, "X-Requested-With": "XMLHttpRequest" };
  // Not Authorization: on DC/OS, Admin Router would take it for a login to DC/OS.
  return token ? { ...common, "X-TensorFlow-Token": token } : common;
}

async function request(path, options) {
  try {
    return await fetch(path, { ...options, cache: "no-store", redirect: "error" });
  } catch (error) {
    throw new UnreachableError(String(error));
  }
}

// Return the JSON of an answer. `accepted`: further statuses that are not errors.
export async function get(path, accepted = []) {
  const [answer, body] = await exchange(path, "GET");
  if (!answer.ok && !accepted.includes(answer.status)) throw toError(answer, body);
  if (typeof body !== "object") throw new UnreachableError("the answer is not from the scheduler");
  return body;
}

// Send a command and return the scheduler's message.
export async function post(path) {
  const [answer, body] = await exchange(path, "POST");
  if (!answer.ok) throw toError(answer, body);
  if (answer.status === 208) return "Nothing to do.";
  return typeof body === "object" ? (body.message ?? "Done.") : body || "Done.";
}

// Send a document and return the JSON of the answer.
export async function postDocument(path, content) {
  const [answer, body] = await exchange(path, "POST", JSON.stringify(content));
  if (!answer.ok) throw toError(answer, body);
  return body;
}

async function exchange(path, method, content) {
  const common = headers("application/json");
  const options = { method, body: content, signal: AbortSignal.timeout(TIMEOUT) };
  const answer = await request(path, { ...options, headers: content ? { ...common, "Content-Type": "application/json" } : common });
  return [answer, await readBody(answer)];
}

async function readBody(answer) {
  let text;
  try {
    text = await answer.text();
  } catch (error) {
    throw new UnreachableError(String(error));
  }
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function toError(answer, body) {
  if (typeof body === "object" && body?.error) return new RefusedError(answer.status, body.error.message);
  // Without the API's error format, the answer is a proxy's.
  if ([502, 503, 504].includes(answer.status)) return new UnreachableError(`HTTP ${answer.status}`);
  const text = typeof body === "string" ? body.slice(0, 300) : "";
  return new RefusedError(answer.status, text || `HTTP ${answer.status}`);
}

// Read server-sent events with fetch, because EventSource sends no token. Calls `onEvent(kind, data, id)`; comments have
// the kind "". Returns when the stream ends; throws RefusedError or UnreachableError.
export async function listen(path, signal, onEvent) {
  const controller = new AbortController();
  const abort = () => controller.abort();
  signal.addEventListener("abort", abort, { once: true });
  let timer = setTimeout(abort, FIRST_BYTE_TIMEOUT);
  try {
    const answer = await request(path, { headers: headers("text/event-stream"), signal: controller.signal });
    if (!answer.ok || !answer.headers.get("content-type")?.startsWith("text/event-stream")) {
      throw toError(answer, await readBody(answer));
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = eventParser(onEvent);
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(abort, STREAM_TIMEOUT);
      parse(value);
    }
  } catch (error) {
    throw error instanceof RefusedError ? error : new UnreachableError(String(error));
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", abort);
    controller.abort();
  }
}

// Parser for the part of WHATWG HTML 9.2.6 that the API uses.
function eventParser(onEvent) {
  let rest = "";
  return (piece) => {
    const blocks = (rest + piece).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = { event: "", data: "", id: null };
      for (const line of block.split("\n")) {
        const colon = line.indexOf(":");
        if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, "");
      }
      onEvent(fields.event, fields.data ? JSON.parse(fields.data) : null, fields.id);
    }
  };
}
