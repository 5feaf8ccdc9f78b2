// Options of the service: those that differ from the defaults, then what each job gets.

import { el, soft } from "./dom.js";
import { clock, memory, number } from "./words.js";

export function settings(target) {
  const own = flat(target.options ?? {});
  const rejected = (target.rejected ?? []).map((text) => el("p", { class: "wrong" }, text));
  const changed = (target.changed ?? []).map(({ option, old, new: now }) => [option, `${words(old)} → ${words(now)}`]);
  return [
    rejected.length ? [soft("The new options were rejected; the service runs with these."), rejected] : "",
    own.length ? list("Options that differ from the defaults", own) : soft("All options have their defaults."),
    changed.length ? list(`Changed by the update of ${clock(target.at)}`, changed) : "",
    (target["pod-specs"] ?? []).map((pod) => list(`${pod.type} (${number(pod.count)})`, job(pod))),
    soft("All other options have the defaults of docs/reference/options.md. Secrets are masked."),
  ];
}

// Nested options -> rows such as `worker.count`, `4`.
function flat(options, before = "") {
  return Object.entries(options).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? flat(value, `${before}${name}.`)
      : [[before + name, words(value)]],
  );
}

const words = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function job({ image, user, "placement-rule": rules, "task-specs": [task] }) {
  const amounts = new Map(
    task["resource-set"]["resource-specifications"].map(({ name, value }) => [name, value.scalar.value]),
  );
  const environment = Object.entries(task["command-spec"].environment ?? {});
  return [
    ["command", task["command-spec"].value],
    ["cpus", number(amounts.get("cpus") ?? 0)],
    ["mem", memory(amounts.get("mem") ?? 0)],
    ["disk", memory(amounts.get("disk") ?? 0)],
    ["gpus", number(amounts.get("gpus") ?? 0)],
    ["image", image],
    ["user", user],
    ["placement", rules.join(", ")],
    ["environment", environment.map(([name, value]) => `${name}=${value}`).join(" ")],
  ].filter(([, value]) => value);
}

function list(title, rows) {
  const row = ([name, value]) => el("div", { "data-key": name }, el("dt", {}, name), el("dd", {}, value));
  return el("div", { "data-key": title, class: "settings" }, el("h3", {}, title), el("dl", {}, rows.map(row)));
}
