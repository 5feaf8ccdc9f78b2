// Plans as a tree with commands, labelled as in the SDK's command line.

import { el, hint } from "./dom.js";
import { labelOf, pluralize, toneOf } from "./words.js";

const COMPLETE = "COMPLETE";
const MAX_STEPS = 50; // shown steps of a phase

// API verb -> button label and question before it; null: none.
export const VERBS = {
  interrupt: { word: "Pause", question: null },
  continue: { word: "Resume", question: null },
  restart: { word: "Restart", question: "Restarts from the first step; running tasks are stopped and launched again." },
  forceComplete: { word: "Force complete", question: "Marks it as complete regardless of its state; dependent steps continue." },
};

// Whether the plan or a part of it waits for the operator, or has errors.
export function needsAttention(plan) {
  const parts = [plan, ...plan.phases, ...plan.phases.flatMap((phase) => phase.steps)];
  return plan.errors.length > 0 || parts.some(({ status }) => status === "WAITING" || status === "ERROR");
}

// Names of the steps at a path, which are those of tasks.
export function stepNames(plans, [planName, phaseName, stepName]) {
  const phases = plans.filter(({ name }) => name === planName).flatMap((plan) => plan.phases);
  const steps = phases.filter(({ name }) => phaseName === undefined || name === phaseName).flatMap((phase) => phase.steps);
  return steps.map(({ name }) => name).filter((name) => stepName === undefined || name === stepName);
}

// `openNodes`: keys of nodes with visible buttons. `folds`: plan -> whether the user has expanded it.
export function renderPlans(plans, active, openNodes, folds) {
  return plans.map((plan) => {
    const isExpanded = folds.get(plan.name) ?? (plan.name === active || plan.status !== COMPLETE);
    const phases = isExpanded ? plan.phases.map((phase) => renderPhase([plan.name, phase.name], phase, openNodes)) : [];
    const head = { type: "button", class: "fold", "data-fold": plan.name, "aria-expanded": isExpanded };
    const buttons = plan.phases.length ? renderButtons([plan.name], plan) : "";
    return el(
      "section",
      { class: "plan", "data-key": plan.name, "aria-label": `Plan ${plan.name}` },
      el("div", { class: "node top" }, el("h3", {}, el("button", head, plan.name)), renderStatus(plan), buttons),
      plan.errors.map((error) => el("p", { class: "error" }, error)),
      phases.length ? el("ul", { class: "tree" }, phases) : "",
      isExpanded && !phases.length ? hint("Nothing to do.") : "",
    );
  });
}

function renderPhase(path, phase, openNodes) {
  // Of many steps, the incomplete ones.
  const candidates = phase.steps.length > MAX_STEPS ? phase.steps.filter((step) => step.status !== COMPLETE) : phase.steps;
  const steps = candidates.slice(0, MAX_STEPS).map((step) => renderNode([...path, step.name], step, openNodes, "step"));
  const more = phase.steps.length - steps.length;
  const below = [el("ul", {}, steps), more ? hint(`and ${pluralize(more, "more step")}`) : ""];
  return renderNode(path, phase, openNodes, "phase", below);
}

function renderNode(path, part, openNodes, kind, below = "") {
  const key = path.join("/");
  const isOpen = openNodes.has(key);
  const label = `Commands for ${kind} ${path.slice(1).join(" ")}`;
  const attributes = { type: "button", class: "more", "data-open": key, "aria-expanded": isOpen, "aria-label": label };
  const buttons = [el("button", attributes, "⋯"), isOpen ? renderButtons(path, part) : ""];
  return el(
    "li",
    { "data-key": key },
    el("div", { class: `node ${kind}` }, el("span", { class: "name" }, part.name), renderStatus(part), buttons),
    part.message && part.status !== COMPLETE ? el("p", { class: "soft reason" }, part.message) : "",
    below,
  );
}

export function renderStatus(part) {
  const steps = part.steps ?? part.phases?.flatMap((phase) => phase.steps);
  const count = steps?.length ? `${steps.filter((step) => step.status === COMPLETE).length}/${steps.length}` : "";
  return el("span", { class: `status ${toneOf(part.status)}` }, labelOf(part.status), count && el("small", {}, count));
}

function renderButtons(path, part) {
  const first = part.status === "WAITING" ? "continue" : "interrupt";
  const verbs = part.status === COMPLETE ? ["restart"] : [first, "restart", "forceComplete"];
  const button = (verb) => {
    const data = { "data-verb": verb, "data-path": JSON.stringify(path), "data-key": verb };
    const { word } = VERBS[verb];
    return el("button", { type: "button", ...data, "aria-label": `${word} ${path.join(" ")}` }, word);
  };
  return el("span", { class: "verbs" }, verbs.map(button));
}

export function commandPath(verb, [plan, phase, step]) {
  const query = new URLSearchParams({ ...(phase !== undefined && { phase }), ...(step !== undefined && { step }) });
  return `v1/plans/${encodeURIComponent(plan)}/${verb}${query.size ? `?${query}` : ""}`;
}
