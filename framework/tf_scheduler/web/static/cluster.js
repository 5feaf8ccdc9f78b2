// Cluster view: agents with their tasks, unplaced tasks, and agents without tasks.

import { el, hint } from "./dom.js";
import { ENDED } from "./states.js";
import { formatTime, labelOf, pluralize, toneOf } from "./words.js";

const MAX_AGENTS = 40; // shown agents
const MAX_CHIPS = 12; // shown tasks of each
const RECENT = 60; // seconds; older offers show their time

export const isLive = (task) => task.id !== null && !ENDED.includes(task.status);

export function renderCluster(tasks, selected, overview) {
  const groups = new Map();
  for (const task of tasks) {
    const host = task.hostname ?? "";
    groups.set(host, [...(groups.get(host) ?? []), task]);
  }
  const rows = new Map(overview.tasks.map((row) => [row.name, row]));
  const chips = (host) => renderChips(groups.get(host), selected, rows);
  const hosts = [...groups.keys()].filter(Boolean).sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  const agents = hosts.slice(0, MAX_AGENTS).map((host) => renderAgent(host, groups.get(host)[0], overview.in_use[host], chips(host)));
  if (hosts.length > MAX_AGENTS) agents.push(hint(`and ${pluralize(hosts.length - MAX_AGENTS, "more agent")}`));
  if (groups.has("")) agents.push(renderUnplaced(groups.get("").length, chips("")));
  return agents.length ? agents : hint("No tasks.");
}

function renderBox(name, { region, zone }, attributes, ...content) {
  const location = [region, zone].filter(Boolean).join(" / ");
  return el("article", { class: "agent", ...attributes }, el("h3", {}, name, location && el("small", {}, location)), content);
}

function renderAgent(host, location, resources, chips) {
  const names = { "data-key": `agent ${host}`, "aria-label": `Agent ${host}` };
  return renderBox(host, location, names, hint(resources ?? "no running tasks"), chips);
}

function renderUnplaced(count, chips) {
  const names = { class: "agent unplaced", "data-key": "unplaced", "aria-label": "Unplaced tasks" };
  return renderBox("not placed", {}, names, hint(pluralize(count, "task")), chips);
}

// Why agents with GPUs are missing.
export function renderGpuNote(tasks) {
  if (tasks.some((task) => task.resources.gpus)) return "";
  return hint("Agents with GPUs are not shown: no task asks for GPUs (worker.gpus), so Mesos does not offer them.");
}

export function renderIdleAgents({ agents, more_agents: more }) {
  const count = agents.length + more;
  return [
    hint(pluralize(count, "other agent"), count === 1 ? ", last offer" : ", last offers"),
    el("div", { class: "agents" }, agents.map(renderIdleAgent)),
    more ? hint(`and ${pluralize(more, "more agent")}`) : "",
  ];
}

function renderIdleAgent(agent) {
  const isOld = Date.now() / 1000 - agent.offered_at > RECENT;
  return renderBox(
    agent.hostname,
    agent,
    { "aria-label": `Agent ${agent.hostname}, without a task of this service` },
    hint(agent.text),
    agent.gpus ? renderGpus(agent.gpus) : "",
    isOld ? hint(`offered at ${formatTime(agent.offered_at)}`) : "",
  );
}

function renderChips(tasks, selected, rows) {
  const chips = tasks.slice(0, MAX_CHIPS).map((task) => renderChip(task, task.name === selected, rows.get(task.name)));
  const more = tasks.length - chips.length;
  return [el("ul", { class: "chips" }, chips), more > 0 ? hint(`and ${pluralize(more, "more task")}`) : ""];
}

function renderChip(task, isSelected, row) {
  const state = task.healthy === false && isLive(task) ? "unhealthy" : task.status;
  const { gpus } = task.resources;
  const button = el(
    "button",
    { type: "button", class: `chip ${toneOf(state)}`, "data-task": task.name, "aria-pressed": isSelected },
    el("b", {}, task.name),
    el("span", { class: "state" }, labelOf(state)),
    gpus ? renderGpus(gpus) : "",
    row?.share_text ? el("progress", { max: row.total, value: Math.min(row.step, row.total), "aria-label": row.share_text }) : "",
  );
  return el("li", { "data-key": task.name }, button);
}

function renderGpus(count) {
  const boxes = Array.from({ length: Math.min(8, Math.ceil(count)) }, () => el("i", { "aria-hidden": "true" }));
  const text = pluralize(count, "GPU");
  return el("span", { class: "gpus", title: text }, boxes, el("span", {}, text));
}
