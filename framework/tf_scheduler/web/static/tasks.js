// Table of all tasks: what each does, its step, what it uses of what it asked for, restarts.

import { el, soft } from "./dom.js";
import { URGENT } from "./states.js";
import { memory, number, plural, spoken, tone } from "./words.js";

const NAMED = 4; // tasks in a confirmation
const ROWS = 50; // more rows only by search
const NEAR = 0.95; // share of the memory from which a task is near its limit
// Join both views of the tasks by name; `tasks` also has tasks that were never launched.
export function rowsOf(tasks, overview) {
  const rows = new Map(overview.tasks.map((row) => [row.name, row]));
  return tasks.map((task) => ({ ...task, activity: "queued", step: null, total: null, ...rows.get(task.name), task }));
}

// What the restart of tasks loses, in sentences; nothing for tasks without steps.
export function losses(rows) {
  const losing = rows.filter((row) => row.live && row.step !== null);
  const sentences = losing.slice(0, NAMED).map(({ name, step, saved_step: saved }) => {
    if ((saved ?? null) === null) return `${name} restarts at step ${number(step)}; what it has not saved is lost.`;
    const lost = Math.max(0, step - saved);
    return `${name} restarts: ${plural(lost, "step")} since its last checkpoint ${lost === 1 ? "is" : "are"} lost.`;
  });
  const more = losing.length - sentences.length;
  return [...sentences, ...(more ? [`So does ${plural(more, "further task")}.`] : [])].join(" ");
}

// The rows that contain all `words`; of many rows, those that need attention first.
export function table(rows, words, chosen) {
  if (!rows.length) return soft("No tasks.");
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (row) => `${row.name} ${row.activity} ${row.hostname ?? ""}`.toLowerCase();
  const found = wanted.length ? rows.filter((row) => wanted.every((word) => text(row).includes(word))) : rows;
  const shown = found.length > ROWS ? urgent(found).slice(0, ROWS) : found;
  const hidden = found.length - shown.length;
  const columns = ["task", "state", "step", "cpus", "memory", "restarts", "agent"];
  const head = el("tr", { role: "row" }, columns.map((name) => el("th", { role: "columnheader", scope: "col" }, name)));
  return [
    found.length
      ? el(
          "table",
          { role: "table", "aria-label": "Tasks" },
          el("thead", { role: "rowgroup" }, head),
          el("tbody", { role: "rowgroup" }, shown.map((row) => line(row, row.name === chosen))),
        )
      : soft("No task matches."),
    hidden ? soft(`and ${plural(hidden, "more task")}: ${counts(found, shown)}`) : "",
  ];
}

const urgency = ({ activity }) => (URGENT.includes(activity) ? URGENT.indexOf(activity) : URGENT.length);

const urgent = (rows) =>
  rows
    .map((row, index) => [urgency(row), index, row])
    .sort(([one, first], [other, second]) => one - other || first - second)
    .map(([, , row]) => row);

function counts(found, shown) {
  const seen = new Set(shown);
  const sums = new Map();
  for (const row of found) if (!seen.has(row)) sums.set(row.activity, (sums.get(row.activity) ?? 0) + 1);
  return [...sums].map(([activity, count]) => `${number(count)} ${spoken(activity)}`).join(", ");
}

function line(row, chosen) {
  const { task } = row;
  const cell = (name, ...content) => el("td", { role: "cell", class: `in-${name}`, "data-name": name }, content);
  const select = { type: "button", class: "link", "data-task": row.name, "aria-pressed": chosen };
  const word = task.healthy === false && row.live ? "unhealthy" : row.activity;
  return el(
    "tr",
    { role: "row", "data-key": row.name, class: chosen ? "chosen" : "" },
    cell("task", el("button", select, row.name)),
    cell("state", el("span", { class: `status ${tone(word)}` }, word.toUpperCase())),
    cell("step", row.step === null ? "–" : row.total ? `${number(row.step)} of ${number(row.total)}` : number(row.step)),
    cell("cpus", amount(task.cpus_used ?? null, task.resources.cpus, (value) => number(value))),
    cell("memory", used(row)),
    cell("restarts", number(task.restarts ?? 0)),
    cell("agent", task.hostname ?? "–"),
  );
}

const amount = (value, asked, words) => (value === null ? words(asked) : `${words(value)} of ${words(asked)}`);

function used({ task, memory_mb: granted }) {
  const asked = granted || task.resources.mem;
  const present = task.memory_used_mb ?? null;
  const peak = task.memory_peak_mb ?? null;
  if (present === null && peak !== null) return `${memory(peak)} at most, of ${memory(asked)}`;
  const near = present !== null && present >= NEAR * asked;
  return [amount(present, asked, memory), near ? el("b", { class: "mark" }, " near its limit") : ""];
}
