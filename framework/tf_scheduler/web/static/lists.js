// Lists of pending tasks and events, and the result.

import { el } from "./dom.js";
import { clock, plural, spoken, tone } from "./words.js";

export function pending(body) {
  if (!body.tasks.length) return el("p", { class: "soft" }, "No pending tasks.");
  const looked =
    body.evaluated_at === null
      ? "No offers evaluated."
      : `Last evaluation at ${clock(body.evaluated_at)}: ${plural(body.offers, "offer")} of ${plural(body.agents, "agent")}.`;
  const rows = body.tasks.map((task) =>
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
  return [el("p", { class: "soft" }, looked), el("ul", { class: "plain" }, rows)];
}

// Newest first.
export function events(entries) {
  if (!entries.length) return el("li", { class: "soft" }, "No events.");
  return entries.map((entry) =>
    el(
      "li",
      { class: entry.warning ? "warning" : "", "data-key": String(entry.number) },
      el("time", { datetime: new Date(entry.time * 1000).toISOString(), title: entry.kind }, clock(entry.time)),
      el("span", {}, entry.warning ? el("b", { class: "mark" }, "warning ") : "", entry.task && !entry.message.startsWith(entry.task) ? [el("b", {}, entry.task), " "] : "", entry.message),
    ),
  );
}

export function result(body, overview) {
  const when = body.decided_at === null ? "" : ` at ${clock(body.decided_at)}`;
  const now = body.over
    ? "The framework is removed from Mesos."
    : overview.kept
      ? overview.tasks.some((task) => task.live)
        ? "Some tasks are kept running."
        : "The service has no tasks and stays registered until it is uninstalled."
      : "Remaining tasks are being stopped.";
  return [
    el("p", { class: `verdict ${body.verdict === "succeeded" ? "good" : body.verdict === "failed" ? "bad" : "asked"}` }, el("b", {}, body.verdict), when),
    body.reason ? el("p", {}, body.reason) : "",
    el("p", { class: "soft" }, now, overview.checkpoint_dir ? ` Checkpoints are in ${overview.checkpoint_dir}` : ""),
  ];
}
