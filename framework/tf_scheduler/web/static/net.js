// Asks the API. Addresses are relative: on DC/OS the page is at /service/NAME/.

const KEPT = "tensorflow-token";
const PATIENCE = 15000; // ms for an answer
const SILENCE = 45000; // ms without a byte of a stream, which has a sign of life every 15 s
const FIRST = 8000; // ms until the first byte of a stream: a proxy that keeps answers back is of no use for them

// The API said no; `status` is HTTP's.
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Nobody answered, or a proxy did for a scheduler that is not there.
export class Away extends Error {}

// In the history of this tab, where no other page looks: what is stored is stored for all of an origin, TensorBoard's too.
let token = history.state?.[KEPT] ?? "";

export function keepToken(text) {
  token = text;
  history.replaceState({ [KEPT]: text }, "");
}

addEventListener("hashchange", () => token && keepToken(token));

function headers(accept) {
  // The last one: the browser must not ask for a password by itself.
  const all = { Accept: accept, "X-Requested-With": "XMLHttpRequest" };
  return token ? { ...all, Authorization: `Bearer ${token}` } : all;
}

async function ask(path, options) {
  try {
    return await fetch(path, { ...options, cache: "no-store", redirect: "error" });
  } catch (error) {
    throw new Away(String(error));
  }
}

// The JSON of an answer. `good`: statuses besides 2xx whose body is the answer, too.
export async function get(path, good = []) {
  const answer = await ask(path, { headers: headers("application/json"), signal: AbortSignal.timeout(PATIENCE) });
  const body = await content(answer);
  if (answer.ok || good.includes(answer.status)) {
    if (typeof body === "object") return body;
    throw new Away("something else than the scheduler has answered");
  }
  throw problem(answer, body);
}

// What the scheduler says to a command.
export async function post(path) {
  const options = { method: "POST", headers: headers("application/json"), signal: AbortSignal.timeout(PATIENCE) };
  const answer = await ask(path, options);
  const body = await content(answer);
  if (!answer.ok) throw problem(answer, body);
  if (answer.status === 208) return "There was nothing to do.";
  return typeof body === "object" ? (body.message ?? "Done.") : body || "Done.";
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
  // No answer in the API's shape: it is of a proxy.
  if ([502, 503, 504].includes(answer.status)) return new Away(`HTTP ${answer.status}`);
  const text = typeof body === "string" ? body.slice(0, 300) : "";
  return new Refused(answer.status, text || `HTTP ${answer.status}`);
}

// Server-sent events, by fetch: an EventSource sends no token. `heard(kind, data, id)`; `heard` of a comment has the
// kind "". Returns when the stream ends; throws Refused or Away.
export async function listen(path, signal, heard) {
  const ending = new AbortController();
  const end = () => ending.abort();
  signal.addEventListener("abort", end, { once: true });
  let timer = setTimeout(end, FIRST);
  try {
    const answer = await ask(path, { headers: headers("text/event-stream"), signal: ending.signal });
    if (!answer.ok || !answer.headers.get("content-type")?.startsWith("text/event-stream")) {
      throw problem(answer, await content(answer));
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser(heard);
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(end, SILENCE);
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

// WHATWG HTML, 9.2.6, as far as the API uses it.
function parser(heard) {
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
      heard(fields.event, fields.data ? JSON.parse(fields.data) : null, fields.id);
    }
  };
}
