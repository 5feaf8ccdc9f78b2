// Plans as a tree with commands, labelled as in the SDK's command line.

import { el, soft } from "./dom.js";
import { plural, spoken, tone } from "./words.js";

const DONE = "COMPLETE";
const STEPS = 50; // shown steps of a phase

// API verb -> button label and confirmation text; null: no confirmation.
export const VERBS = {
  interrupt: { word: "Pause", asks: null },
  continue: { word: "Resume", asks: null },
  restart: { word: "Restart", asks: "Restarts from the first step; running tasks are stopped and launched again." },
  forceComplete: { word: "Force complete", asks: "Marks it as complete regardless of its state; dependent steps continue." },
};

// Whether the plan or a part of it waits for the operator, or has errors.
export function needsAttention(plan) {
  const parts = [plan, ...plan.phases, ...plan.phases.flatMap((phase) => phase.steps)];
  return plan.errors.length > 0 || parts.some(({ status: word }) => word === "WAITING" || word === "ERROR");
}

// Names of the steps at `path`, which are those of tasks.
export function stepsAt(plans, [plan, phase, step]) {
  const phases = plans.filter(({ name }) => name === plan).flatMap((found) => found.phases);
  const steps = phases.filter(({ name }) => phase === undefined || name === phase).flatMap((found) => found.steps);
  return steps.map(({ name }) => name).filter((name) => step === undefined || name === step);
}

// `open`: keys of nodes with visible buttons. `unfolded`: plan -> whether the user has expanded it.
export function trees(plans, working, open, unfolded) {
  return plans.map((plan) => {
    const shown = unfolded.get(plan.name) ?? (plan.name === working || plan.status !== DONE);
    const phases = shown ? plan.phases.map((phase) => branch([plan.name, phase.name], phase, open)) : [];
    const head = { type: "button", class: "fold", "data-fold": plan.name, "aria-expanded": shown };
    return el(
      "section",
      { class: "plan", "data-key": plan.name, "aria-label": `Plan ${plan.name}` },
      el("div", { class: "node top" }, el("h3", {}, el("button", head, plan.name)), status(plan), plan.phases.length ? buttons([plan.name], plan) : ""),
      plan.errors.map((error) => el("p", { class: "wrong" }, error)),
      phases.length ? el("ul", { class: "tree" }, phases) : "",
      shown && !phases.length ? soft("Nothing to do.") : "",
    );
  });
}

function branch(path, phase, open) {
  // Of many steps, the incomplete ones.
  const due = phase.steps.length > STEPS ? phase.steps.filter((step) => step.status !== DONE) : phase.steps;
  const steps = due.slice(0, STEPS).map((step) => node([...path, step.name], step, open, "step"));
  const more = phase.steps.length - steps.length;
  return node(path, phase, open, "phase", [el("ul", {}, steps), more ? soft(`and ${plural(more, "more step")}`) : ""]);
}

function node(path, part, open, kind, below = "") {
  const key = path.join("/");
  const shown = open.has(key);
  const label = `Commands for ${kind} ${path.slice(1).join(" ")}`;
  const more = el("button", { type: "button", class: "more", "data-open": key, "aria-expanded": shown, "aria-label": label }, "⋯");
  return el(
    "li",
    { "data-key": key },
    el("div", { class: `node ${kind}` }, el("span", { class: "name" }, part.name), status(part), more, shown ? buttons(path, part) : ""),
    part.message && part.status !== DONE ? el("p", { class: "soft why" }, part.message) : "",
    below,
  );
}

export function status(part) {
  const steps = part.steps ?? part.phases?.flatMap((phase) => phase.steps);
  const count = steps?.length ? `${steps.filter((step) => step.status === DONE).length}/${steps.length}` : "";
  return el("span", { class: `status ${tone(part.status)}` }, spoken(part.status), count && el("small", {}, count));
}

function buttons(path, part) {
  const first = part.status === "WAITING" ? "continue" : "interrupt";
  const verbs = part.status === DONE ? ["restart"] : [first, "restart", "forceComplete"];
  const button = (verb) => {
    const names = { "data-verb": verb, "data-path": JSON.stringify(path), "data-key": verb };
    const { word } = VERBS[verb];
    return el("button", { type: "button", ...names, "aria-label": `${word} ${path.join(" ")}` }, word);
  };
  return el("span", { class: "verbs" }, verbs.map(button));
}

export function address(verb, [plan, phase, step]) {
  const query = new URLSearchParams({ ...(phase !== undefined && { phase }), ...(step !== undefined && { step }) });
  return `v1/plans/${encodeURIComponent(plan)}/${verb}${query.size ? `?${query}` : ""}`;
}
