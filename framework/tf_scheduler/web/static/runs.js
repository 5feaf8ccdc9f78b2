// Past runs of the service or of all services, and the comparison of selected ones: curves, and options that differ.

import { byId, el, hint, show } from "./dom.js";
import { UnreachableError, describeError, get } from "./net.js";
import { renderCharts } from "./training.js";
import { formatTime, pluralize, toneOf } from "./words.js";

const MAX_COMPARED = 6; // runs in a comparison, each with a colour
const POINTS = 240;

export class Runs {
  list = null; // answer of v1/tf/runs
  #details = new Map(); // id -> answer of v1/tf/runs/ID
  #selected = []; // ids
  #error = "";

  // `isOfAll`: the page is of all services; it selects a run, and has reports, logs and files of selected runs.
  constructor({ isOfAll = false } = {}) {
    this.isOfAll = isOfAll;
  }

  async read() {
    await this.#attempt(async () => {
      const isFirst = this.list === null;
      this.list = await get("v1/tf/runs");
      if (this.isOfAll && isFirst) this.#selected = [this.list.selected];
      const ids = new Set(this.list.runs.map((run) => run.id));
      this.#selected = this.#selected.filter((id) => ids.has(id));
      for (const run of this.list.runs) if (run.current || run.state === "running") this.#details.delete(run.id);
      await this.#readDetails();
    });
  }

  async select(id, isSelected) {
    this.#selected = this.#selected.filter((other) => other !== id);
    if (isSelected) this.#selected.push(id);
    this.#draw();
    await this.#attempt(() => this.#readDetails());
  }

  async #readDetails() {
    const missing = this.#selected.filter((id) => !this.#details.has(id));
    const path = (id) => `v1/tf/runs/${encodeURIComponent(id)}?points=${POINTS}`;
    await Promise.all(missing.map(async (id) => this.#details.set(id, await get(path(id)))));
  }

  async #attempt(work) {
    try {
      await work();
      this.#error = "";
    } catch (error) {
      const hasEnded = this.isOfAll && error instanceof UnreachableError;
      this.#error = hasEnded ? "The page has ended. To open it again: dcos-tensorflow open" : describeError(error);
    }
    this.#draw();
  }

  #draw() {
    const runs = this.list?.runs ?? [];
    show(byId("runs"), this.#error ? el("p", { class: "error" }, this.#error) : "", this.list ? this.#renderList(runs) : "");
    const compared = runs.filter((run) => this.#selected.includes(run.id) && this.#details.has(run.id));
    const named = compared.map((run, index) => ({ ...this.#details.get(run.id), name: nameOf(run, index), letter: letterOf(index) }));
    const invitation = runs.length > 1 ? hint("Select runs to compare them.") : "";
    const isShown = named.length > (this.isOfAll ? 0 : 1);
    show(byId("compare"), isShown ? renderComparison(named) : invitation, this.isOfAll ? named.map(renderFiles) : "");
  }

  #renderList(runs) {
    const { problem, unreadable, store } = this.list;
    const titles = ["run", ...(this.isOfAll ? ["service"] : []), "result", "time", "step", "loss", "best", "note"];
    const cells = titles.map((title) => el("th", { role: "columnheader", scope: "col" }, title));
    const origin = store ? `Runs of this service in ${store}.` : "Runs of this service on this machine.";
    return [
      problem ? el("p", { class: "error", "data-key": "problem" }, problem) : "",
      unreadable ? el("p", { class: "soft", "data-key": "unreadable" }, `${pluralize(unreadable, "file")} in ${store} cannot be read.`) : "",
      runs.length
        ? el(
            "table",
            { role: "table", "aria-label": "Runs", "data-key": "table" },
            el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, cells)),
            el("tbody", { role: "rowgroup" }, runs.map((run) => this.#renderRow(run))),
          )
        : hint("No runs yet."),
      runs.length && !this.isOfAll ? el("p", { class: "soft", "data-key": "origin" }, origin) : "",
    ];
  }

  #renderRow(run) {
    const cell = (title, ...content) => el("td", { role: "cell", class: `in-${title}`, "data-name": title }, content);
    const isFull = this.#selected.length >= MAX_COMPARED && !this.#selected.includes(run.id);
    const state = isFull ? { disabled: "" } : this.#selected.includes(run.id) ? { checked: "" } : {};
    const box = { type: "checkbox", "data-run": run.id, "aria-label": `Compare ${run.id}`, ...state };
    return el(
      "tr",
      { role: "row", "data-key": run.id },
      cell("task", el("label", { class: "check" }, el("input", box), labelOfRun(run))),
      this.isOfAll ? cell("service", run.service) : "",
      cell("state", el("span", { class: `status ${toneOf(run.state)}`, title: run.reason }, run.state.toUpperCase())),
      ["time", "step", "loss", "best"].map((name) => cell(name, run.texts[name])),
      cell("note", run.note || "–"),
    );
  }
}

const labelOfRun = (run) => (run.current ? "this run" : formatTime(run.submitted));
const letterOf = (index) => String.fromCharCode(65 + index);
const nameOf = (run, index) => `${letterOf(index)}: ${labelOfRun(run)}`;

function renderComparison(runs) {
  const lines = runs.map((run) => ({ name: run.name, points: run.points.map(toPoint) }));
  const withMetrics = lines.map((line) => ({ ...line, metrics: Object.assign({}, ...line.points.map((point) => point.metrics)) }));
  const charts = renderCharts({ tasks: withMetrics }, { across: "step", smoothing: 0 });
  return [
    runs.length > 1 ? el("h3", { "data-key": "title" }, "Comparison") : "",
    charts.some(Boolean) ? el("div", { class: "charts", "data-key": "charts" }, charts) : hint("No curves were recorded."),
    runs.length > 1 ? renderDifferences(runs) : "",
  ];
}

// A speed in steps and one in examples are different curves.
function toPoint(point) {
  if (point.examples_per_second === null) return point;
  return { ...point, metrics: { ...point.metrics, "examples a second": point.examples_per_second }, steps_per_second: null };
}

function renderDifferences(runs) {
  const textOf = (value) => (value === undefined ? "default" : typeof value === "string" ? value : JSON.stringify(value));
  const options = [...new Set(runs.flatMap((run) => Object.keys(run.options)))];
  const differences = options.filter((option) => new Set(runs.map((run) => textOf(run.options[option]))).size > 1);
  if (!differences.length) return hint("Their options are the same.");
  const row = (option) =>
    el(
      "div",
      { "data-key": option },
      el("dt", {}, option),
      runs.map((run) => el("dd", {}, el("b", {}, `${run.letter}: `), textOf(run.options[option]))),
    );
  return el("div", { class: "settings", "data-key": "options" }, el("h3", {}, "Options that differ"), el("dl", {}, differences.map(row)));
}

// Links of a run. The addresses are those of the server; the texts come from users.
function renderFiles({ letter, id, service, state, reason, note, folder, report, files }) {
  const link = (href, text) => el("a", { href, target: "_blank", rel: "noopener noreferrer" }, text);
  return el(
    "div",
    { class: "files", "data-key": `files ${id}` },
    el("h3", {}, `${letter}: ${service} `, el("small", {}, id)),
    el("p", {}, el("span", { class: `status ${toneOf(state)}` }, state.toUpperCase()), ` ${reason}`),
    note ? el("p", {}, note) : "",
    el(
      "ul",
      { class: "links" },
      el("li", {}, link(report, "Report")),
      files.map(({ name, size, address }) => el("li", {}, link(address, name), el("small", {}, ` ${size}`))),
    ),
    folder ? hint(folder) : "",
  );
}
