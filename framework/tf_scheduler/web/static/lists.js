// Lists of pending tasks and events, and the result.

import { el, hint } from "./dom.js";
import { formatTime, labelOf, pluralize, toneOf } from "./words.js";

const MAX_PENDING = 20; // shown tasks
const CAUSES = ["failed", "frozen", "stalled"]; // activities of tasks whose output may show why

export function renderPending(body) {
  const offers = `${pluralize(body.offers, "offer")} of ${pluralize(body.agents, "agent")}`;
  const time = body.evaluated_at;
  const evaluation = time === null ? "No offers evaluated." : `Last evaluation at ${formatTime(time)}: ${offers}.`;
  const rows = body.tasks.slice(0, MAX_PENDING).map((task) =>
    el(
      "li",
      { "data-key": `${task.plan} ${task.name}` },
      el("b", {}, task.name),
      " ",
      el("span", { class: `status ${toneOf(task.status)}` }, labelOf(task.status)),
      task.plan === "deploy" ? "" : el("small", {}, ` in plan ${task.plan}`),
      el("ul", { class: "reasons" }, task.reasons.map((reason) => el("li", {}, reason))),
    ),
  );
  const more = body.tasks.length - rows.length;
  return [hint(evaluation), el("ul", { class: "plain" }, rows), more ? hint(`and ${pluralize(more, "more task")}`) : ""];
}

// Newest first.
export function renderEvents(events) {
  if (!events.length) return el("li", { class: "soft" }, "No events.");
  return events.map((event) =>
    el(
      "li",
      { class: event.warning ? "warning" : "", "data-key": String(event.number) },
      el("time", { datetime: new Date(event.time * 1000).toISOString(), title: event.kind }, formatTime(event.time)),
      el(
        "span",
        {},
        event.warning ? el("b", { class: "mark" }, "warning ") : "",
        event.task && !event.message.startsWith(event.task) ? [el("b", {}, event.task), " "] : "",
        event.message,
      ),
    ),
  );
}

// What needs attention, or the result: why, with a link to the output of the task, then the notices.
export function renderBanner({ overview, result, abandoned }) {
  const { activity, detail, restart } = overview;
  const doing = restart || !detail ? detail : `${labelOf(activity)}: ${detail}`;
  const causes = [overview.refused || doing, ...abandoned].filter(Boolean).join("; ");
  const task = restart?.task ?? overview.tasks.find((task) => CAUSES.includes(task.activity))?.name;
  const link = { type: "button", class: "link", "data-task": task, "data-output": "", "data-key": "task" };
  return [
    result.verdict ? renderResult(result, overview) : causes ? el("p", { id: "cause" }, causes) : "",
    overview.notices.map((text) => el("p", { "data-key": text }, text)),
    task ? el("button", link, `Output of ${task}`) : "",
  ];
}

function renderResult(body, overview) {
  const time = body.decided_at === null ? "" : ` at ${formatTime(body.decided_at)}`;
  let remains = "Remaining tasks are being stopped.";
  if (body.over) remains = "Its resources are released.";
  else if (overview.kept && overview.tasks.some((task) => task.live)) remains = "Some tasks are kept running.";
  else if (overview.kept) remains = "The service has no tasks and stays registered until it is uninstalled.";
  return [
    el("p", { class: `verdict ${toneOf(body.verdict)}` }, el("b", {}, body.verdict), time),
    body.reason ? el("p", {}, body.reason) : "",
    hint(remains, overview.checkpoint_dir ? ` Checkpoints are in ${overview.checkpoint_dir}` : ""),
  ];
}
