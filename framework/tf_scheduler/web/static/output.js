// Output of one task: last part of a file, then a stream.

import { byId, el, show } from "./dom.js";
import { Refused, get, listen, pause } from "./net.js";
import { bytes, clock, duration, memory, number, plural, spoken } from "./words.js";

const MAX_TEXT = 400000; // characters
const LAST = 65536; // bytes of the first read
const RETRY = 3000; // ms

// Remove terminal escapes; of overwritten lines, keep the last state.
export function plain(text) {
  const bare = text.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, "").replace(/\r\n/g, "\n").replace(/\u0008+/g, "\r");
  return bare.includes("\r") ? bare.split("\n").map(lastState).join("\n") : bare;
}

const lastState = (line) => line.split("\r").findLast((state) => state !== "") ?? "";

export class Output {
  #reading = null;
  #raw = "";
  task = "";

  // Start reading `task` with the selected file.
  read(task) {
    this.stop();
    this.task = task;
    this.#raw = "";
    this.#draw();
    if (!task) {
      this.#say("No task selected.");
      return;
    }
    this.#reading = new AbortController();
    const file = byId("file").value;
    if (byId("follow").checked) this.#follow(task, file, this.#reading.signal);
    else this.#once(task, file, this.#reading.signal);
  }

  stop() {
    this.#reading?.abort();
    this.#reading = null;
  }

  async #once(task, file, signal) {
    try {
      const piece = await get(address(task, file));
      if (!signal.aborted) this.#add(piece.data, piece);
    } catch (error) {
      if (!signal.aborted) this.#say(error instanceof Refused ? error.message : "The scheduler does not answer.");
    }
  }

  async #follow(task, file, signal) {
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
        await listen(`${address(task, file)}&follow=true${next === null ? "" : `&offset=${next}`}`, signal, onEvent);
      } catch (error) {
        if (!signal.aborted) this.#say(error instanceof Refused ? error.message : "The scheduler does not answer.");
      }
      await pause(RETRY);
    }
  }

  #add(text, piece) {
    this.#raw = (this.#raw + text).slice(-MAX_TEXT);
    this.#draw();
    if (piece) this.#say(piece.size ? `${bytes(piece.size)} in total` : "The file is empty.");
  }

  #draw() {
    const pre = byId("log");
    // Keep the position if the user has scrolled up.
    const atEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 30;
    pre.textContent = plain(this.#raw);
    if (atEnd) pre.scrollTop = pre.scrollHeight;
  }

  #say(words) {
    byId("log-state").textContent = words;
  }
}

const address = (task, file) => `v1/tasks/${encodeURIComponent(task)}/logs?file=${encodeURIComponent(file)}&length=${LAST}`;

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
    ["launched", task.launched_at === null ? "" : `${clock(task.launched_at)}, ${duration(Date.now() / 1000 - task.launched_at)} ago`],
    ["generation", task.generation === null ? "" : String(task.generation)],
    ["resources", `${number(resources.cpus)} cpus, ${memory(resources.mem)}${gpus}`],
    ["id", task.id],
    ["message", task.message || task.reason],
  ];
  const row = ([name, value]) => el("div", { "data-key": name }, el("dt", {}, name), el("dd", {}, value));
  return el("dl", { class: "facts" }, rows.filter(([, value]) => value).map(row));
}

export function choices(tasks, chosen) {
  show(byId("task"), tasks.map((task) => el("option", { value: task.name, "data-key": task.name }, task.name)));
  if (chosen) byId("task").value = chosen;
}
