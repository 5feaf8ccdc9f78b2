// Output: the last part of a file of a task, then a stream; or of all tasks, which are polled.

import { byId, el, show } from "./dom.js";
import { Refused, get, listen, pause } from "./net.js";
import { bytes, clock, duration, memory, number, plural, spoken } from "./words.js";

const MAX_TEXT = 1200000; // characters
const MAX_DRAWN = 400000; // characters
const LAST = 65536; // bytes of the first read
const MOST = 1048576; // bytes of the first read while the user searches
const RETRY = 3000; // ms
const POLL = 2000; // ms between two reads of all tasks
const MAX_TASKS = 20; // tasks whose output is shown together
const FEW = 8192; // bytes of the first read of each of them
const MOST_OF_ALL = 8388608; // bytes of the first read of all of them while the user searches

// Remove terminal escapes; of overwritten lines, keep the last state.
export function plain(text) {
  const bare = text.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, "").replace(/\r\n/g, "\n").replace(/\u0008+/g, "\r");
  return bare.includes("\r") ? bare.split("\n").map(lastState).join("\n") : bare;
}

const lastState = (line) => line.split("\r").findLast((state) => state !== "") ?? "";

// One file, or the files of this name of all tasks, in one element.
class Pane {
  #reading = null;
  #raw = "";
  #lines = null; // of all tasks: time and text
  #total = "";

  constructor(pre, state) {
    this.pre = pre;
    this.state = state;
  }

  stop() {
    this.#reading?.abort();
    this.#reading = null;
  }

  // `source`: `task`, `launch` ("": the last), `file`, `tasks` (names, if all are read), `length`, `follow`.
  read(source) {
    this.stop();
    this.#raw = "";
    this.#lines = source.tasks ? [] : null;
    this.#total = "";
    this.draw();
    this.#reading = new AbortController();
    const { signal } = this.#reading;
    if (source.tasks) this.#all(source, signal);
    else if (source.follow && !source.launch) this.#follow(source, signal);
    else this.#once(source, signal);
  }

  async #once(source, signal) {
    try {
      const piece = await get(address(source.task, source));
      if (!signal.aborted) this.#add(piece.data, piece);
    } catch (error) {
      if (!signal.aborted) this.#say(why(error));
    }
  }

  async #follow(source, signal) {
    let next = null;
    const onEvent = (kind, data, id) => {
      if (signal.aborted) return;
      if (kind === "log") {
        next = id;
        this.#add(data.data, data);
      } else if (kind === "launch") {
        next = "0";
        this.#add(`\n── relaunched: ${data.id}\n`, null);
      } else if (kind === "end") {
        this.#say(`Task ended: ${data.state ?? "state unknown"}.`);
        this.stop();
      } else if (kind === "error") {
        throw new Refused(data.error.status, data.error.message);
      }
    };
    this.#say("Waiting for output.");
    while (!signal.aborted) {
      try {
        await listen(`${address(source.task, source)}&follow=true${next === null ? "" : `&offset=${next}`}`, signal, onEvent);
      } catch (error) {
        if (!signal.aborted) this.#say(why(error));
      }
      await pause(RETRY);
    }
  }

  // Browsers allow few streams, so the tasks are polled. Each line begins with its task.
  async #all({ tasks, file, length, follow }, signal) {
    const names = tasks.slice(0, MAX_TASKS);
    const others = tasks.length - names.length;
    const first = length === MOST ? Math.min(MOST, Math.floor(MOST_OF_ALL / names.length)) : FEW;
    const read = new Map(); // task -> launch, position and incomplete line
    this.#total = `${plural(names.length, "task")}, from the last ${bytes(first)} of each${others ? `; ${plural(others, "further task")} not shown` : ""}`;
    for (;;) {
      const pieces = await Promise.all(names.map((name) => this.#piece(name, file, read, first)));
      if (signal.aborted) return;
      this.#merge(pieces.flat());
      if (!follow) return;
      await pause(POLL);
    }
  }

  async #piece(name, file, read, first) {
    const before = read.get(name) ?? { id: null, next: null, rest: "" };
    try {
      const from = before.next === null ? "" : `&offset=${before.next}`;
      let piece = await get(`${address(name, { file, length: before.next === null ? first : LAST })}${from}`);
      const fresh = before.id && piece.id !== before.id;
      if (fresh) piece = await get(`${address(name, { file, length: LAST })}&offset=0`);
      const rest = fresh ? "" : before.rest;
      const lines = (rest + piece.data).split("\n");
      read.set(name, { id: piece.id, next: piece.next, rest: lines.pop() });
      if (!lines.length) return [];
      const index = await times(name, file, before.next === null || fresh ? LAST : FEW);
      return timed(lines, piece.offset - size(rest), index).map(([time, line]) => [time, `${name} | ${plain(line)}\n`]);
    } catch {
      return []; // the next read tries again
    }
  }

  // Sort by time; new lines without times come last.
  #merge(more) {
    const latest = this.#lines.at(-1)?.[0] ?? 0;
    const lines = [...this.#lines, ...more.map(([time, text]) => [time ?? latest, text])].sort(([one], [other]) => one - other);
    let [first, left] = [lines.length, MOST_OF_ALL];
    while (first > 0 && (left -= lines[first - 1][1].length) >= 0) first -= 1;
    this.#lines = lines.slice(first);
    this.draw();
  }

  #add(text, piece) {
    this.#raw = (this.#raw + text).slice(-MAX_TEXT);
    if (piece) this.#total = piece.size ? `${bytes(piece.size)} in total` : "The file is empty.";
    this.draw();
  }

  draw() {
    // Keep the position if the user has scrolled up.
    const { pre } = this;
    const atEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 30;
    const wanted = byId("search").value.toLowerCase();
    const text = this.#lines ? this.#lines.map(([, line]) => line).join("") : plain(this.#raw);
    const lines = wanted ? text.split("\n") : [];
    const found = lines.filter((line) => line.toLowerCase().includes(wanted));
    pre.textContent = (wanted ? found.join("\n") : text).slice(-MAX_DRAWN);
    if (atEnd) pre.scrollTop = pre.scrollHeight;
    this.#say([wanted ? `${number(found.length)} of ${plural(lines.length, "line")} match` : "", this.#total].filter(Boolean).join("; "));
  }

  #say(words) {
    this.state.textContent = words;
  }
}

const why = (error) => (error instanceof Refused ? error.message : "The scheduler does not answer.");

function address(task, { file, length, launch }) {
  const query = new URLSearchParams({ file, length, ...(launch && { launch }) });
  return `v1/tasks/${encodeURIComponent(task)}/logs?${query}`;
}

// When a file was written, as [offset, Unix time], oldest first; empty if the executor has not recorded it.
async function times(task, file, length) {
  try {
    const { data, offset } = await get(address(task, { file: `${file}.times`, length }));
    const lines = data.split("\n").slice(offset ? 1 : 0); // without an incomplete one
    return lines.map((line) => line.split(" ").map(Number)).filter(([at, time]) => at >= 0 && time > 0);
  } catch {
    return [];
  }
}

const size = (text) => new TextEncoder().encode(text).length;

// Add the time to each line of the text at `offset`.
function timed(lines, offset, index) {
  let [at, number] = [offset, 0];
  return lines.map((line) => {
    while (index[number + 1]?.[0] <= at) number += 1;
    at += size(line) + 1;
    return [index[number]?.[1] ?? null, line];
  });
}

export class Output {
  #panes = ["log", "log-2"].map((id) => new Pane(byId(id), byId(`${id}-state`)));
  #searched = false;
  task = "";

  // Read the selected files of `task`, or of all `tasks`.
  read(task, tasks) {
    this.stop();
    this.task = task;
    const files = byId("file").value === "both" ? ["stdout", "stderr"] : [byId("file").value];
    byId("panes").classList.toggle("two", files.length > 1);
    byId("pane-2").hidden = files.length < 2;
    this.#searched = byId("search").value !== "";
    const all = byId("all").checked;
    if (!task && !all) {
      byId("log-state").textContent = "No task selected.";
      return;
    }
    const length = this.#searched ? MOST : LAST;
    const launch = all ? "" : byId("launch").value;
    const common = { task, launch, length, follow: byId("follow").checked, ...(all && { tasks }) };
    files.forEach((file, index) => this.#panes[index].read({ ...common, file }));
  }

  // The first search reads more of the files with `read`.
  search(read) {
    if (byId("search").value && !this.#searched) read();
    else for (const pane of this.#panes) pane.draw();
  }

  stop() {
    for (const pane of this.#panes) pane.stop();
  }
}

// Details of the selected task.
export function facts(task) {
  if (!task) return "";
  const { resources } = task;
  const gpus = resources.gpus ? `, ${plural(resources.gpus, "GPU")}` : "";
  const rows = [
    ["state", spoken(task.status)],
    ["health", task.healthy === null ? "" : task.healthy ? "healthy" : "unhealthy"],
    ["exit", task.exit_code !== null ? `code ${task.exit_code}` : task.signal !== null ? `signal ${task.signal}` : ""],
    ["agent", task.hostname],
    ["address", task.address],
    ["further ports", (task.more_ports ?? []).join(", ")],
    ["launched", task.launched_at === null ? "" : `${clock(task.launched_at)}, ${duration(Math.round(Date.now() / 1000 - task.launched_at))} ago`],
    ["generation", task.generation === null ? "" : String(task.generation)],
    ["resources", `${number(resources.cpus)} cpus, ${memory(resources.mem)}${gpus}`],
    ["restarts", task.restarts ? number(task.restarts) : ""],
    ["id", task.id],
    ["message", task.message || task.reason],
  ];
  const row = ([name, value]) => el("div", { "data-key": name }, el("dt", {}, name), el("dd", {}, value));
  return el("dl", { class: "facts" }, rows.filter(([, value]) => value).map(row));
}

let named = "";

// Options of the selects; the names of many tasks are set only when they change.
export function choices(tasks, chosen) {
  const names = tasks.map((task) => task.name);
  if (names.join() !== named) {
    named = names.join();
    byId("task").replaceChildren(...names.map((name) => el("option", { value: name }, name)));
  }
  if (chosen) byId("task").value = chosen;
  const earlier = tasks.find((task) => task.name === chosen)?.earlier ?? [];
  const label = (launch) => `of ${clock(launch.launched_at)} on ${launch.hostname}`;
  const options = earlier.map((launch) => el("option", { value: launch.id, "data-key": launch.id }, label(launch)));
  show(byId("launch"), el("option", { value: "", "data-key": "last" }, "the last"), options.reverse());
  byId("launches").hidden = !earlier.length;
}
