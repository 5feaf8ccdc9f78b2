// Output: the last part of a file of a task, then a stream; or of all tasks, which are polled.

import { byId, el, show } from "./dom.js";
import { RefusedError, describeError, get, listen, postDocument, sleep } from "./net.js";
import { formatNumber, formatTime, labelOf, pluralize } from "./words.js";

const MAX_TEXT = 1200000; // characters
const MAX_DRAWN = 400000; // characters
const FIRST_READ = 65536; // bytes of the first read
const SEARCH_READ = 1048576; // bytes of the first read while the user searches
const RETRY = 3000; // ms
const POLL_INTERVAL = 2000; // ms between two reads of all tasks
const MAX_TASKS = 20; // tasks whose output is shown together
const SMALL_READ = 8192; // bytes of the first read of each of them
const STACKS = { command: ["python", "-m", "tf_executor.stacks"], timeout: 60 }; // needs the right of `exec`
const STACKS_POLL = 500; // ms
const MAX_SEARCH_READ = 8388608; // bytes of the first read of all of them while the user searches

// Remove terminal escapes; of overwritten lines, keep the last state.
export function toPlainText(text) {
  const bare = text.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, "").replace(/\r\n/g, "\n").replace(/\u0008+/g, "\r");
  return bare.includes("\r") ? bare.split("\n").map(lastState).join("\n") : bare;
}

const lastState = (line) => line.split("\r").findLast((state) => state !== "") ?? "";

// One file, or the files of this name of all tasks, in one element.
class Pane {
  #abort = null;
  #raw = "";
  #lines = null; // of all tasks: time and text
  #summary = "";

  constructor(pre, state) {
    this.pre = pre;
    this.state = state;
  }

  stop() {
    this.#abort?.abort();
    this.#abort = null;
  }

  // `source`: `task`, `launch` ("": the last), `file`, `tasks` (names, if all are read), `length`, `follow`; or `task`
  // and `stacks`.
  read(source) {
    this.stop();
    this.#raw = "";
    this.#lines = source.tasks ? [] : null;
    this.#summary = "";
    this.draw();
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    if (source.stacks) this.#readStacks(source, signal);
    else if (source.tasks) this.#pollAll(source, signal);
    else if (source.follow && !source.launch) this.#follow(source, signal);
    else this.#readOnce(source, signal);
  }

  // Where the Python processes of the task are now.
  async #readStacks({ task }, signal) {
    const path = `v1/tasks/${encodeURIComponent(task)}/exec`;
    this.#showState(`Reading the Python stacks of ${task}.`);
    try {
      const { id, launch } = await postDocument(path, STACKS);
      for (;;) {
        const answer = await get(`${path}/${id}?launch=${encodeURIComponent(launch)}`);
        if (signal.aborted) return;
        this.#raw = (answer.stdout ?? "") + (answer.stderr ?? "");
        this.#summary = answer.error || `Python stacks of ${task} at ${formatTime(Date.now() / 1000)}`;
        if (answer.state !== "running") return this.draw();
        await sleep(STACKS_POLL);
      }
    } catch (error) {
      if (!signal.aborted) this.#showState(describeError(error));
    }
  }

  async #readOnce(source, signal) {
    try {
      const piece = await get(logPath(source.task, source));
      if (!signal.aborted) this.#append(piece.data, piece);
    } catch (error) {
      if (!signal.aborted) this.#showState(describeError(error));
    }
  }

  async #follow(source, signal) {
    let next = null;
    const onEvent = (kind, data, id) => {
      if (signal.aborted) return;
      if (kind === "log") {
        next = id;
        this.#append(data.data, data);
      } else if (kind === "launch") {
        next = "0";
        this.#append(`\n── relaunched: ${data.id}\n`, null);
      } else if (kind === "end") {
        this.#showState(`Task ended: ${data.state ?? "state unknown"}.`);
        this.stop();
      } else if (kind === "error") {
        throw new RefusedError(data.error.status, data.error.message);
      }
    };
    this.#showState("Waiting for output.");
    while (!signal.aborted) {
      try {
        await listen(`${logPath(source.task, source)}&follow=true${next === null ? "" : `&offset=${next}`}`, signal, onEvent);
      } catch (error) {
        if (!signal.aborted) this.#showState(describeError(error));
      }
      await sleep(RETRY);
    }
  }

  // Browsers allow few streams, so the tasks are polled. Each line begins with its task.
  async #pollAll({ tasks, file, length, follow }, signal) {
    const names = tasks.slice(0, MAX_TASKS);
    const more = tasks.length - names.length;
    const first = length === SEARCH_READ ? Math.min(SEARCH_READ, Math.floor(MAX_SEARCH_READ / names.length)) : SMALL_READ;
    const positions = new Map(); // task -> launch, position and incomplete line
    const rest = more ? `; ${pluralize(more, "further task")} not shown` : "";
    this.#summary = `${pluralize(names.length, "task")}, from the last ${pluralize(first, "byte")} of each${rest}`;
    for (;;) {
      const pieces = await Promise.all(names.map((name) => this.#readLines(name, file, positions, first)));
      if (signal.aborted) return;
      this.#merge(pieces.flat());
      if (!follow) return;
      await sleep(POLL_INTERVAL);
    }
  }

  async #readLines(name, file, positions, first) {
    const before = positions.get(name) ?? { id: null, next: null, rest: "" };
    try {
      const isFirst = before.next === null;
      const offset = isFirst ? "" : `&offset=${before.next}`;
      let piece = await get(`${logPath(name, { file, length: isFirst ? first : FIRST_READ })}${offset}`);
      const isRelaunched = before.id && piece.id !== before.id;
      if (isRelaunched) piece = await get(`${logPath(name, { file, length: FIRST_READ })}&offset=0`);
      const rest = isRelaunched ? "" : before.rest;
      const lines = (rest + piece.data).split("\n");
      positions.set(name, { id: piece.id, next: piece.next, rest: lines.pop() });
      if (!lines.length) return [];
      const index = await readTimes(name, file, isFirst || isRelaunched ? FIRST_READ : SMALL_READ);
      return addTimes(lines, piece.offset - byteLength(rest), index).map(([time, line]) => [time, `${name} | ${toPlainText(line)}\n`]);
    } catch {
      return []; // the next read tries again
    }
  }

  // Sort by time; new lines without times come last.
  #merge(newLines) {
    const latest = this.#lines.at(-1)?.[0] ?? 0;
    const timed = newLines.map(([time, text]) => [time ?? latest, text]);
    const lines = [...this.#lines, ...timed].sort(([one], [other]) => one - other);
    let [first, left] = [lines.length, MAX_SEARCH_READ];
    while (first > 0 && (left -= lines[first - 1][1].length) >= 0) first -= 1;
    this.#lines = lines.slice(first);
    this.draw();
  }

  #append(text, piece) {
    this.#raw = (this.#raw + text).slice(-MAX_TEXT);
    if (piece) this.#summary = piece.size ? `${piece.size_text} in total` : "The file is empty.";
    this.draw();
  }

  draw() {
    // Keep the position if the user has scrolled up.
    const { pre } = this;
    const isAtEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 30;
    const search = byId("search").value.toLowerCase();
    const text = this.#lines ? this.#lines.map(([, line]) => line).join("") : toPlainText(this.#raw);
    const lines = search ? text.split("\n") : [];
    const matches = lines.filter((line) => line.toLowerCase().includes(search));
    pre.textContent = (search ? matches.join("\n") : text).slice(-MAX_DRAWN);
    if (isAtEnd) pre.scrollTop = pre.scrollHeight;
    const count = search ? `${formatNumber(matches.length)} of ${pluralize(lines.length, "line")} match` : "";
    this.#showState([count, this.#summary].filter(Boolean).join("; "));
  }

  #showState(text) {
    this.state.textContent = text;
  }
}

function logPath(task, { file, length, launch }) {
  const query = new URLSearchParams({ file, length, ...(launch && { launch }) });
  return `v1/tasks/${encodeURIComponent(task)}/logs?${query}`;
}

// When a file was written, as [offset, Unix time], oldest first; empty if the executor has not recorded it.
async function readTimes(task, file, length) {
  try {
    const { data, offset } = await get(logPath(task, { file: `${file}.times`, length }));
    const lines = data.split("\n").slice(offset ? 1 : 0); // without an incomplete one
    return lines.map((line) => line.split(" ").map(Number)).filter(([position, time]) => position >= 0 && time > 0);
  } catch {
    return [];
  }
}

const byteLength = (text) => new TextEncoder().encode(text).length;

// Add the time to each line of the text at `offset`.
function addTimes(lines, offset, index) {
  let [position, entry] = [offset, 0];
  return lines.map((line) => {
    while (index[entry + 1]?.[0] <= position) entry += 1;
    position += byteLength(line) + 1;
    return [index[entry]?.[1] ?? null, line];
  });
}

export class Output {
  #panes = ["log", "log-2"].map((id) => new Pane(byId(id), byId(`${id}-state`)));
  #isSearch = false;
  task = "";

  // Read the selected files of `task`, or of all `tasks`.
  read(task, tasks) {
    this.stop();
    this.task = task;
    const files = byId("file").value === "both" ? ["stdout", "stderr"] : [byId("file").value];
    byId("panes").classList.toggle("two", files.length > 1);
    byId("pane-2").hidden = files.length < 2;
    this.#isSearch = byId("search").value !== "";
    const isAll = byId("all").checked;
    if (!task && !isAll) {
      byId("log-state").textContent = "No task selected.";
      return;
    }
    const length = this.#isSearch ? SEARCH_READ : FIRST_READ;
    const launch = isAll ? "" : byId("launch").value;
    const source = { task, launch, length, follow: byId("follow").checked, ...(isAll && { tasks }) };
    files.forEach((file, index) => this.#panes[index].read({ ...source, file }));
  }

  // Show the Python stacks of a task instead of its output.
  readStacks(task) {
    this.stop();
    byId("panes").classList.remove("two");
    byId("pane-2").hidden = true;
    this.#panes[0].read({ task, stacks: true });
  }

  // The first search reads more of the files with `read`.
  search(read) {
    if (byId("search").value && !this.#isSearch) read();
    else for (const pane of this.#panes) pane.draw();
  }

  stop() {
    for (const pane of this.#panes) pane.stop();
  }
}

const FOLDED = ["address", "further ports", "generation", "id"]; // facts for operators

// Details of the selected task.
export function renderFacts(task) {
  if (!task) return "";
  const rows = [
    ["state", labelOf(task.status)],
    ["health", task.healthy === null ? "" : task.healthy ? "healthy" : "unhealthy"],
    ["exit", task.exit_code !== null ? `code ${task.exit_code}` : task.signal !== null ? `signal ${task.signal}` : ""],
    ["agent", task.hostname],
    ["address", task.address],
    ["further ports", (task.more_ports ?? []).join(", ")],
    ["launched", task.launched_at === null ? "" : formatTime(task.launched_at)],
    ["generation", task.generation === null ? "" : String(task.generation)],
    ["resources", task.texts.resources],
    ["restarts", task.restarts ? formatNumber(task.restarts) : ""],
    ["id", task.id],
    ["message", task.message || task.reason],
  ];
  const row = ([name, value]) => el("div", { "data-key": name }, el("dt", {}, name), el("dd", {}, value));
  const list = (isFolded) => el("dl", { class: "facts" }, rows.filter(([name, value]) => value && FOLDED.includes(name) === isFolded).map(row));
  return [list(false), el("details", {}, el("summary", {}, "For operators"), list(true))];
}

let listedTasks = "";

// Set the options of the selects; the names of many tasks are set only when they change.
export function fillSelects(tasks, selected) {
  const names = tasks.map((task) => task.name);
  if (names.join() !== listedTasks) {
    listedTasks = names.join();
    byId("task").replaceChildren(...names.map((name) => el("option", { value: name }, name)));
  }
  if (selected) byId("task").value = selected;
  const earlier = tasks.find((task) => task.name === selected)?.earlier ?? [];
  const label = (launch) => `of ${formatTime(launch.launched_at)} on ${launch.hostname}`;
  const options = earlier.map((launch) => el("option", { value: launch.id, "data-key": launch.id }, label(launch)));
  show(byId("launch"), el("option", { value: "", "data-key": "last" }, "the last"), options.reverse());
  byId("launches").hidden = !earlier.length;
}
