// Cluster view: agents with their tasks, unplaced tasks, and agents without tasks.

import { el, soft } from "./dom.js";
import { ENDED } from "./states.js";
import { clock, memory, number, percent, plural, spoken, tone } from "./words.js";

const AGENTS = 40; // shown agents, and tasks of each
const CHIPS = 12;
const RECENT = 60; // seconds; older offers show their time

export const isLive = (task) => task.id !== null && !ENDED.includes(task.status);

export function cluster(tasks, chosen, progress) {
  const boxes = new Map();
  for (const task of tasks) {
    const host = task.hostname ?? "";
    boxes.set(host, [...(boxes.get(host) ?? []), task]);
  }
  const hosts = [...boxes.keys()].filter(Boolean).sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  const shown = hosts.slice(0, AGENTS).map((host) => agent(host, boxes.get(host), chosen, progress));
  if (hosts.length > AGENTS) shown.push(soft(`and ${plural(hosts.length - AGENTS, "more agent")}`));
  if (boxes.has("")) shown.push(unplaced(boxes.get(""), chosen, progress));
  return shown.length ? shown : soft("No tasks.");
}

function box(name, { region, zone }, attributes, ...content) {
  const place = [region, zone].filter(Boolean).join(" / ");
  return el("article", { class: "agent", ...attributes }, el("h3", {}, name, place && el("small", {}, place)), content);
}

function agent(host, tasks, chosen, progress) {
  const live = tasks.filter(isLive);
  const used = (name) => live.reduce((sum, task) => sum + task.resources[name], 0);
  const amount = live.length ? `${number(used("cpus"))} cpus, ${memory(used("mem"))}` : "no running tasks";
  const gpus = used("gpus") ? `, ${plural(used("gpus"), "GPU")}` : "";
  const names = { "data-key": `agent ${host}`, "aria-label": `Agent ${host}` };
  return box(host, tasks[0], names, soft(amount, gpus), chips(tasks, chosen, progress));
}

// Why agents with GPUs are missing.
export function unseen(tasks) {
  if (tasks.some((task) => task.resources.gpus)) return "";
  return soft("Agents with GPUs are not shown: no task asks for GPUs (worker.gpus), so Mesos does not offer them.");
}

export function others({ agents, more_agents: more }) {
  const count = plural(agents.length + more, "other agent");
  return [
    soft(count, agents.length + more === 1 ? ", last offer" : ", last offers"),
    el("div", { class: "agents" }, agents.map(idle)),
    more ? soft(`and ${number(more)} more`) : "",
  ];
}

function idle(each) {
  const old = Date.now() / 1000 - each.offered_at > RECENT;
  return box(
    each.hostname,
    each,
    { "aria-label": `Agent ${each.hostname}, without a task of this service` },
    soft(`${number(each.cpus)} cpus, ${memory(each.mem)}`),
    each.gpus ? gpuRow(each.gpus) : "",
    old ? soft(`offered at ${clock(each.offered_at)}`) : "",
  );
}

function unplaced(tasks, chosen, progress) {
  const names = { class: "agent nowhere", "data-key": "nowhere", "aria-label": "Unplaced tasks" };
  return box("not placed", {}, names, soft(plural(tasks.length, "task")), chips(tasks, chosen, progress));
}

function chips(tasks, chosen, progress) {
  const shown = tasks.slice(0, CHIPS).map((task) => chip(task, task.name === chosen, progress.get(task.name)));
  const more = tasks.length - shown.length;
  return [el("ul", { class: "chips" }, shown), more > 0 ? soft(`and ${plural(more, "more task")}`) : ""];
}

function chip(task, chosen, progress) {
  const unhealthy = task.healthy === false && isLive(task);
  const state = unhealthy ? "unhealthy" : task.status;
  const gpus = task.resources.gpus;
  const share = progress?.step != null && progress.total ? Math.min(1, progress.step / progress.total) : null;
  const button = el(
    "button",
    { type: "button", class: `chip ${tone(state)}`, "data-task": task.name, "aria-pressed": chosen },
    el("b", {}, task.name),
    el("span", { class: "state" }, spoken(state)),
    gpus ? gpuRow(gpus) : "",
    share === null ? "" : el("progress", { max: 1, value: share, "aria-label": percent(share) }),
  );
  return el("li", { "data-key": task.name }, button);
}

function gpuRow(gpus) {
  const boxes = Array.from({ length: Math.min(8, Math.ceil(gpus)) }, () => el("i", { "aria-hidden": "true" }));
  return el("span", { class: "gpus", title: plural(gpus, "GPU") }, boxes, el("span", {}, plural(gpus, "GPU")));
}
