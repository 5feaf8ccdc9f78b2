// Options of the service: those that differ from the defaults, then what each job gets.

import { el, hint } from "./dom.js";
import { formatNumber, formatTime } from "./words.js";

export function renderSettings(target) {
  const options = flatten(target.options ?? {});
  const rejected = (target.rejected ?? []).map((text) => el("p", { class: "error" }, text));
  const changes = (target.changed ?? []).map((change) => [change.option, `${textOf(change.old)} → ${textOf(change.new)}`]);
  return [
    rejected.length ? [hint("The new options were rejected; the service runs with these."), rejected] : "",
    options.length ? renderList("Options that differ from the defaults", options) : hint("All options have their defaults."),
    changes.length ? renderList(`Changed by the update of ${formatTime(target.at)}`, changes) : "",
    (target["pod-specs"] ?? []).map((pod) => renderList(`${pod.type} (${formatNumber(pod.count)})`, jobRows(pod))),
    hint("All other options have the defaults of docs/reference/options.md. Secrets are masked."),
  ];
}

// Nested options -> rows such as `worker.count`, `4`.
function flatten(options, prefix = "") {
  return Object.entries(options).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? flatten(value, `${prefix}${name}.`)
      : [[prefix + name, textOf(value)]],
  );
}

const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function jobRows({ image, user, resources, "placement-rule": rules, "task-specs": [task] }) {
  const environment = Object.entries(task["command-spec"].environment ?? {});
  return [
    ["command", task["command-spec"].value],
    ["resources", resources],
    ["image", image],
    ["user", user],
    ["placement", rules.join(", ")],
    ["environment", environment.map(([name, value]) => `${name}=${value}`).join(" ")],
  ].filter(([, value]) => value);
}

function renderList(title, rows) {
  const row = ([name, value]) => el("div", { "data-key": name }, el("dt", {}, name), el("dd", {}, value));
  return el("div", { "data-key": title, class: "settings" }, el("h3", {}, title), el("dl", {}, rows.map(row)));
}
