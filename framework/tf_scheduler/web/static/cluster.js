// Cluster view: agents with their tasks, unplaced tasks, and agents without tasks.

import { el } from "./dom.js";
import { clock, memory, number, plural, spoken, tone } from "./words.js";

const ENDED = ["FINISHED", "FAILED", "KILLED", "ERROR", "LOST", "GONE", "DROPPED", "GONE_BY_OPERATOR"];

const RECENT = 60; // seconds; older offers show their time

export const isLive = (task) => task.id !== null && !ENDED.includes(task.status);

export function cluster(tasks, chosen, progress) {
  const boxes = new Map();
  for (const task of tasks) {
    const host = task.hostname ?? "";
    boxes.set(host, [...(boxes.get(host) ?? []), task]);
  }
  const hosts = [...boxes.keys()].filter(Boolean).sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  const shown = hosts.map((host) => agent(host, boxes.get(host), chosen, progress));
  if (boxes.has("")) shown.push(unplaced(boxes.get(""), chosen, progress));
  return shown.length ? shown : el("p", { class: "soft" }, "No tasks.");
}

function agent(host, tasks, chosen, progress) {
  const live = tasks.filter(isLive);
  const used = (name) => live.reduce((sum, task) => sum + task.resources[name], 0);
  const place = [tasks[0].region, tasks[0].zone].filter(Boolean).join(" / ");
  const gpus = used("gpus");
  const amount = live.length ? `${number(used("cpus"))} cpus, ${memory(used("mem"))}` : "no running tasks";
  return el(
    "article",
    { class: "agent", "data-key": `agent ${host}`, "aria-label": `Agent ${host}` },
    el("h3", {}, host, place && el("small", {}, place)),
    el("p", { class: "soft" }, amount, gpus ? `, ${plural(gpus, "GPU")}` : ""),
    chips(tasks, chosen, progress),
  );
}

export function others({ agents, more_agents: more }) {
  const count = plural(agents.length + more, "other agent");
  const boxes = agents.map((each) => idle(each, Date.now() / 1000 - each.offered_at > RECENT));
  return [
    el("p", { class: "soft" }, count, agents.length + more === 1 ? ", last offer" : ", last offers"),
    el("div", { class: "agents" }, boxes),
    more ? el("p", { class: "soft" }, `and ${number(more)} more`) : "",
  ];
}

function idle({ hostname, region, zone, cpus, mem, gpus, offered_at: at }, old) {
  const place = [region, zone].filter(Boolean).join(" / ");
  return el(
    "article",
    { class: "agent", "aria-label": `Agent ${hostname}, without a task of this service` },
    el("h3", {}, hostname, place && el("small", {}, place)),
    el("p", { class: "soft" }, `${number(cpus)} cpus, ${memory(mem)}`),
    gpus ? gpuRow(gpus) : "",
    old ? el("p", { class: "soft" }, `offered at ${clock(at)}`) : "",
  );
}

function unplaced(tasks, chosen, progress) {
  return el(
    "article",
    { class: "agent nowhere", "data-key": "nowhere", "aria-label": "Unplaced tasks" },
    el("h3", {}, "not placed"),
    el("p", { class: "soft" }, plural(tasks.length, "task")),
    chips(tasks, chosen, progress),
  );
}

function chips(tasks, chosen, progress) {
  return el("ul", { class: "chips" }, tasks.map((task) => chip(task, task.name === chosen, progress.get(task.name))));
}

function chip(task, chosen, progress) {
  const unhealthy = task.healthy === false && isLive(task);
  const colour = unhealthy ? "bad" : tone(task.status);
  const gpus = task.resources.gpus;
  const share = progress?.step != null && progress.total ? Math.min(1, progress.step / progress.total) : null;
  return el(
    "li",
    { "data-key": task.name },
    el(
      "button",
      { type: "button", class: `chip ${colour}`, "data-task": task.name, "aria-pressed": String(chosen) },
      el("b", {}, task.name),
      el("span", { class: "state" }, unhealthy ? "unhealthy" : spoken(task.status)),
      gpus ? gpuRow(gpus) : "",
      share === null ? "" : el("progress", { max: "1", value: String(share), "aria-label": `${Math.round(share * 100)} %` }),
    ),
  );
}

function gpuRow(gpus) {
  const boxes = Array.from({ length: Math.min(8, Math.ceil(gpus)) }, () => el("i", { "aria-hidden": "true" }));
  return el("span", { class: "gpus", title: plural(gpus, "GPU") }, boxes, el("span", {}, plural(gpus, "GPU")));
}
