// Table of all tasks: what each does, its step, what it uses of what it asked for, restarts.

import { el, hint } from "./dom.js";
import { URGENT } from "./states.js";
import { formatNumber, labelOf, pluralize, toneOf } from "./words.js";

const MAX_NAMED = 4; // tasks in a confirmation
const MAX_ROWS = 50; // more rows only by search

// Join both views of the tasks by name; `tasks` also has tasks that were never launched.
export function joinRows(tasks, overview) {
  const rows = new Map(overview.tasks.map((row) => [row.name, row]));
  return tasks.map((task) => ({ ...task, activity: "queued", step: null, ...rows.get(task.name), task }));
}

// What the restart of tasks loses, in sentences; nothing for tasks without steps.
export function describeLosses(rows) {
  const losing = rows.filter((row) => row.live && row.restart_loss);
  const sentences = losing.slice(0, MAX_NAMED).map((row) => `${row.name} restarts${row.restart_loss}.`);
  const more = losing.length - sentences.length;
  return [...sentences, ...(more ? [`So does ${pluralize(more, "further task")}.`] : [])].join(" ");
}

// The rows that contain all words of `search`; of many rows, those that need attention first.
export function renderTasks(rows, search, selected) {
  if (!rows.length) return hint("No tasks.");
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const textOf = (row) => `${row.name} ${row.activity} ${row.hostname ?? ""}`.toLowerCase();
  const matches = rows.filter((row) => words.every((word) => textOf(row).includes(word)));
  const visible = matches.length > MAX_ROWS ? sortByUrgency(matches).slice(0, MAX_ROWS) : matches;
  const more = matches.length - visible.length;
  const columns = ["task", "state", "step", "cpus", "memory", "restarts", "agent"];
  const head = el("tr", { role: "row" }, columns.map((name) => el("th", { role: "columnheader", scope: "col" }, name)));
  return [
    matches.length
      ? el(
          "table",
          { role: "table", "aria-label": "Tasks" },
          el("thead", { role: "rowgroup" }, head),
          el("tbody", { role: "rowgroup" }, visible.map((row) => renderRow(row, row.name === selected))),
        )
      : hint("No task matches."),
    more ? hint(`and ${pluralize(more, "more task")}: ${countActivities(matches, visible)}`) : "",
  ];
}

const urgencyOf = ({ activity }) => (URGENT.includes(activity) ? URGENT.indexOf(activity) : URGENT.length);

const sortByUrgency = (rows) =>
  rows
    .map((row, index) => [urgencyOf(row), index, row])
    .sort(([one, first], [other, second]) => one - other || first - second)
    .map(([, , row]) => row);

// Number of hidden rows of each activity.
function countActivities(rows, visible) {
  const excluded = new Set(visible);
  const counts = new Map();
  for (const row of rows) if (!excluded.has(row)) counts.set(row.activity, (counts.get(row.activity) ?? 0) + 1);
  return [...counts].map(([activity, count]) => `${formatNumber(count)} ${labelOf(activity)}`).join(", ");
}

function renderRow(row, isSelected) {
  const { task } = row;
  const cell = (name, ...content) => el("td", { role: "cell", class: `in-${name}`, "data-name": name }, content);
  const button = { type: "button", class: "link", "data-task": row.name, "aria-pressed": isSelected };
  const state = task.healthy === false && row.live ? "unhealthy" : row.activity;
  return el(
    "tr",
    { role: "row", "data-key": row.name, class: isSelected ? "selected" : "" },
    cell("task", el("button", button, row.name)),
    cell("state", el("span", { class: `status ${toneOf(state)}` }, state.toUpperCase())),
    cell("step", row.step_text || "–"),
    cell("cpus", task.texts.cpus),
    cell("memory", task.texts.memory, task.near_limit ? el("b", { class: "mark" }, " near its limit") : ""),
    cell("restarts", formatNumber(task.restarts)),
    cell("agent", task.hostname ?? "–"),
  );
}
