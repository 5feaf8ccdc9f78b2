// Earlier runs of the service, and the comparison of chosen ones: curves, and options that differ.

import { byId, el, show, soft } from "./dom.js";
import { Refused, get } from "./net.js";
import { charts } from "./training.js";
import { clock, duration, number, plural, spoken, tone } from "./words.js";

const MOST = 6; // runs in a comparison, each with a colour
const POINTS = 240;
const BEST = 3; // best values in the list

export class Runs {
  constructor() {
    this.listed = null; // answer of v1/tf/runs
    this.details = new Map(); // id -> answer of v1/tf/runs/ID
    this.chosen = []; // ids
    this.trouble = "";
  }

  async read() {
    await this.try(async () => {
      this.listed = await get("v1/tf/runs");
      const known = new Set(this.listed.runs.map((run) => run.id));
      this.chosen = this.chosen.filter((id) => known.has(id));
      for (const run of this.listed.runs) if (run.current) this.details.delete(run.id);
      await this.fill();
    });
  }

  async choose(id, wanted) {
    this.chosen = this.chosen.filter((other) => other !== id);
    if (wanted) this.chosen.push(id);
    this.draw();
    await this.try(() => this.fill());
  }

  async fill() {
    const missing = this.chosen.filter((id) => !this.details.has(id));
    const path = (id) => `v1/tf/runs/${encodeURIComponent(id)}?points=${POINTS}`;
    await Promise.all(missing.map(async (id) => this.details.set(id, await get(path(id)))));
  }

  async try(work) {
    try {
      await work();
      this.trouble = "";
    } catch (error) {
      this.trouble = error instanceof Refused ? error.message : "The scheduler does not answer.";
    }
    this.draw();
  }

  draw() {
    const runs = this.listed?.runs ?? [];
    show(byId("runs"), this.trouble ? el("p", { class: "wrong" }, this.trouble) : "", this.listed ? this.list(runs) : "");
    const compared = runs.filter((run) => this.chosen.includes(run.id) && this.details.has(run.id));
    const named = compared.map((run, index) => ({ ...this.details.get(run.id), name: name(run, index), letter: letter(index) }));
    show(byId("compare"), named.length > 1 ? comparison(named) : runs.length > 1 ? soft("Select runs to compare them.") : "");
  }

  list(runs) {
    const { problem, unreadable, store } = this.listed;
    const head = ["run", "result", "time", "step", "loss", "best", "note"];
    const cells = head.map((title) => el("th", { role: "columnheader", scope: "col" }, title));
    const from = store ? `Runs of this service in ${store}.` : "Runs of this service on this machine.";
    return [
      problem ? el("p", { class: "wrong", "data-key": "problem" }, problem) : "",
      unreadable ? el("p", { class: "soft", "data-key": "unreadable" }, `${plural(unreadable, "file")} in ${store} cannot be read.`) : "",
      runs.length
        ? el(
            "table",
            { role: "table", "aria-label": "Runs", "data-key": "table" },
            el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, cells)),
            el("tbody", { role: "rowgroup" }, runs.map((run) => this.row(run))),
          )
        : soft("No runs yet."),
      runs.length ? el("p", { class: "soft", "data-key": "from" }, from) : "",
    ];
  }

  row(run) {
    const cell = (title, ...content) => el("td", { role: "cell", class: `in-${title}`, "data-name": title }, content);
    const full = this.chosen.length >= MOST && !this.chosen.includes(run.id);
    const box = { type: "checkbox", "data-run": run.id, "aria-label": `Compare ${run.id}`, ...(full ? { disabled: "" } : {}) };
    const best = Object.entries(run).filter(([key, value]) => key.startsWith("best_") && value !== null);
    return el(
      "tr",
      { role: "row", "data-key": run.id },
      cell("task", el("label", { class: "check" }, el("input", box), run.current ? "this run" : clock(run.submitted))),
      cell("state", el("span", { class: `status ${tone(run.state)}`, title: run.reason }, spoken(run.state).toUpperCase())),
      cell("time", duration(run.seconds)),
      cell("step", number(run.last_step)),
      cell("loss", number(run.last_loss)),
      cell("best", best.slice(0, BEST).map(([key, value]) => `${key.slice(5)} ${number(value)}`).join(", ") || "–"),
      cell("note", run.note || "–"),
    );
  }
}

const letter = (index) => String.fromCharCode(65 + index);
const name = (run, index) => `${letter(index)}: ${run.current ? "this run" : clock(run.submitted)}`;

function comparison(runs) {
  const lines = runs.map((run) => ({ name: run.name, metrics: Object.assign({}, ...run.points.map(values)), points: run.points.map(point) }));
  const curves = charts({ tasks: lines }, { across: "step", smoothing: 0 });
  return [
    el("h3", { "data-key": "title" }, "Comparison"),
    curves.some(Boolean) ? el("div", { class: "charts", "data-key": "charts" }, curves) : soft("These runs have no curves."),
    differences(runs),
  ];
}

// A speed in steps and one in examples are different curves.
const values = ({ metrics, speed, unit }) => (unit === "examples" && speed !== null ? { ...metrics, "examples a second": speed } : metrics);
const point = (one) => ({ ...one, metrics: values(one), steps_per_second: one.unit === "steps" ? one.speed : null });

function differences(runs) {
  const words = (value) => (value === undefined ? "default" : typeof value === "string" ? value : JSON.stringify(value));
  const options = [...new Set(runs.flatMap((run) => Object.keys(run.options)))];
  const differ = options.filter((option) => new Set(runs.map((run) => words(run.options[option]))).size > 1);
  if (!differ.length) return soft("Their options are the same.");
  const row = (option) =>
    el(
      "div",
      { "data-key": option },
      el("dt", {}, option),
      runs.map((run) => el("dd", {}, el("b", {}, `${run.letter}: `), words(run.options[option]))),
    );
  return el("div", { class: "settings", "data-key": "options" }, el("h3", {}, "Options that differ"), el("dl", {}, differ.map(row)));
}
