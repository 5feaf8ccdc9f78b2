// Why tasks wait, what happened, the end.

import { el } from "./dom.js";
import { clock, plural, spoken, tone } from "./words.js";

export function pending(body) {
  if (!body.tasks.length) return el("p", { class: "soft" }, "Nothing waits.");
  const looked =
    body.evaluated_at === null
      ? "No offer has been looked at yet."
      : `Last look at ${clock(body.evaluated_at)}: ${plural(body.offers, "offer")} of ${plural(body.agents, "agent")}.`;
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
  if (!entries.length) return el("li", { class: "soft" }, "Nothing has happened yet.");
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
    ? "Mesos has forgotten the framework; nothing of it is left there."
    : overview.kept
      ? overview.tasks.some((task) => task.live)
        ? "Some of its tasks are kept for a while."
        : "It has no task any more, and stays with Mesos until it is uninstalled."
      : "What still runs is being stopped.";
  return [
    el("p", { class: `verdict ${body.verdict === "succeeded" ? "good" : body.verdict === "failed" ? "bad" : "asked"}` }, el("b", {}, body.verdict), when),
    body.reason ? el("p", {}, body.reason) : "",
    el("p", { class: "soft" }, now, overview.checkpoint_dir ? ` Checkpoints are in ${overview.checkpoint_dir}` : ""),
  ];
}
