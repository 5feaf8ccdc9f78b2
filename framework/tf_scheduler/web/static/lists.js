// Lists of pending tasks and events, and the result.

import { el, soft } from "./dom.js";
import { clock, plural, spoken, tone } from "./words.js";

const PENDING = 20; // shown tasks

export function pending(body) {
  const offers = `${plural(body.offers, "offer")} of ${plural(body.agents, "agent")}`;
  const at = body.evaluated_at;
  const looked = at === null ? "No offers evaluated." : `Last evaluation at ${clock(at)}: ${offers}.`;
  const rows = body.tasks.slice(0, PENDING).map((task) =>
    el(
      "li",
      { "data-key": `${task.plan} ${task.name}` },
      el("b", {}, task.name),
      " ",
      el("span", { class: `status ${tone(task.status)}` }, spoken(task.status)),
      task.plan === "deploy" ? "" : el("small", {}, ` in plan ${task.plan}`),
      el("ul", { class: "reasons" }, task.reasons.map((reason) => el("li", {}, reason))),
    ),
  );
  const more = body.tasks.length - rows.length;
  return [soft(looked), el("ul", { class: "plain" }, rows), more ? soft(`and ${plural(more, "more task")}`) : ""];
}

// Newest first.
export function events(entries) {
  if (!entries.length) return el("li", { class: "soft" }, "No events.");
  return entries.map((entry) =>
    el(
      "li",
      { class: entry.warning ? "warning" : "", "data-key": String(entry.number) },
      el("time", { datetime: new Date(entry.time * 1000).toISOString(), title: entry.kind }, clock(entry.time)),
      el(
        "span",
        {},
        entry.warning ? el("b", { class: "mark" }, "warning ") : "",
        entry.task && !entry.message.startsWith(entry.task) ? [el("b", {}, entry.task), " "] : "",
        entry.message,
      ),
    ),
  );
}

export function result(body, overview) {
  const when = body.decided_at === null ? "" : ` at ${clock(body.decided_at)}`;
  let now = "Remaining tasks are being stopped.";
  if (body.over) now = "The framework is removed from Mesos.";
  else if (overview.kept && overview.tasks.some((task) => task.live)) now = "Some tasks are kept running.";
  else if (overview.kept) now = "The service has no tasks and stays registered until it is uninstalled.";
  return [
    el("p", { class: `verdict ${tone(body.verdict)}` }, el("b", {}, body.verdict), when),
    body.reason ? el("p", {}, body.reason) : "",
    soft(now, overview.checkpoint_dir ? ` Checkpoints are in ${overview.checkpoint_dir}` : ""),
  ];
}
