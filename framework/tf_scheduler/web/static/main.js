// Main module: polls the API every two seconds, sooner after events, with back-off while the scheduler does not answer.

import { renderCluster, renderGpuNote, renderIdleAgents } from "./cluster.js";
import { askConfirmation, askToken, showMessage } from "./dialogs.js";
import { byId, el, hint, show } from "./dom.js";
import { Feed } from "./feed.js";
import { renderBanner, renderPending } from "./lists.js";
import { RefusedError, UnreachableError, describeError, get, post } from "./net.js";
import { Output, fillSelects, renderFacts } from "./output.js";
import { VERBS, commandPath, needsAttention, renderPlans, renderStatus, stepNames } from "./plans.js";
import { Runs } from "./runs.js";
import { renderSettings } from "./settings.js";
import { describeLosses, joinRows, renderTasks } from "./tasks.js";
import { curveNames, formatTitle, renderCharts, renderJobs, renderTiles } from "./training.js";
import { formatDuration, formatTime, toneOf } from "./words.js";

const MIN_INTERVAL = 2000; // ms
const INTERVAL_FACTOR = 4; // pause after an update, in durations of the update, so that large services are asked less often
const EVENT_DELAY = 200; // ms after an event
const MAX_BACK_OFF = 30000; // ms
const PLAN_CODES = [417]; // status of a plan with errors

const output = new Output();
const runs = new Runs();
const feed = new Feed(() => updateSoon());
const openNodes = new Set(); // keys of nodes of plans with visible buttons
const folds = new Map(); // plan -> whether the user has expanded it
let selected = "";
let verdict = null; // of the last update
let answers = null; // of the last update
let updatedAt = 0; // time of the last update in ms
let failures = 0; // failed updates since then
let interval = MIN_INTERVAL;
let timer = 0;
let isUpdating = false;
let neededAttention = false; // whether a plan waited or had errors
let tokenPrompts = 0;

async function fetchAnswers() {
  const overview = await get("v1/tf/overview");
  // Curves of a few tasks only: those of thousands would be megabytes.
  const curves = encodeURIComponent(curveNames(overview, selected).join() || "chief-0");
  const paths = ["tf/result", "tasks", `tf/progress?points=240&tasks=${curves}`, "pending", "plans"];
  const [result, body, training, pending, planNames] = await Promise.all(paths.map((path) => get(`v1/${path}`)));
  const plans = await Promise.all(planNames.map((name) => get(`v1/plans/${encodeURIComponent(name)}`, PLAN_CODES)));
  const named = planNames.map((name, index) => ({ ...plans[index], name }));
  const board = body.tasks.some((task) => task.job === "tensorboard") ? await get("v1/tf/tensorboard") : null;
  const target = byId("options-fold").open ? await get("v1/configurations/target") : null;
  const rows = joinRows(body.tasks, overview);
  return { overview, result, tasks: body.tasks, rows, abandoned: body.may_still_run, training, pending, plans: named, board, target };
}

async function update() {
  if (isUpdating || document.hidden) return;
  clearTimeout(timer);
  isUpdating = true;
  const start = performance.now();
  try {
    answers = await fetchAnswers();
    [updatedAt, failures] = [Date.now(), 0];
    byId("lost").hidden = true;
    draw();
    feed.start();
    if (!output.task && selected) readOutput();
    interval = Math.max(MIN_INTERVAL, INTERVAL_FACTOR * (performance.now() - start));
  } catch (error) {
    await handleError(error);
  } finally {
    isUpdating = false;
    scheduleUpdate();
  }
}

async function handleError(error) {
  if (error instanceof RefusedError && error.status === 401) {
    stopStreams();
    await askToken(tokenPrompts++ ? "Invalid token." : "");
    failures = -1;
    return;
  }
  if (!(error instanceof UnreachableError) && !(error instanceof RefusedError)) console.error(error);
  failures += 1;
  if (failures === 1) stopStreams();
}

// Stop the streams until the scheduler answers.
function stopStreams() {
  feed.stop();
  output.stop();
  output.task = "";
}

// Schedule the next update: exponential back-off with jitter.
function scheduleUpdate() {
  if (failures < 0) failures = 0;
  const backOff = Math.min(MAX_BACK_OFF, 1000 * 2 ** (failures - 1)) * (0.75 + Math.random() / 2);
  const wait = failures ? backOff : interval;
  if (failures) showLostConnection(wait);
  clearTimeout(timer);
  timer = setTimeout(update, updatedAt ? wait : Math.min(wait, MAX_BACK_OFF));
}

function showLostConnection(wait) {
  const since = updatedAt ? ` The data is of ${formatTime(updatedAt / 1000)}.` : "";
  byId("lost-text").textContent = `The scheduler does not answer.${since} Next attempt in ${Math.round(wait / 1000)} s.`;
  byId("lost").hidden = false;
}

function updateSoon() {
  if (failures || isUpdating) return;
  clearTimeout(timer);
  timer = setTimeout(update, Math.max(EVENT_DELAY, interval - MIN_INTERVAL));
}

function draw() {
  const { overview, result, tasks, rows, training, pending, plans, target } = answers;
  if (!tasks.some((task) => task.name === selected)) {
    selected = tasks.find((task) => task.name === training.leader)?.name ?? tasks[0]?.name ?? "";
    output.task = "";
  }
  drawHead(overview);
  if (result.verdict && !verdict && byId("runs-fold").open) runs.read();
  verdict = result.verdict;
  show(byId("banner"), renderBanner(answers));
  byId("banner").hidden = !byId("banner").hasChildNodes();
  show(byId("tiles"), renderTiles(tasks, training, overview.activity === "training"));
  show(byId("tasks"), renderTasks(rows, byId("find").value, selected));
  show(byId("cluster"), renderCluster(tasks, selected, overview));
  byId("others").hidden = !overview.agents.length;
  show(byId("others"), renderIdleAgents(overview));
  show(byId("gpu-note"), renderGpuNote(tasks));
  show(byId("jobs"), renderJobs(training));
  drawCharts();
  show(byId("board"), renderBoardNote());
  if (target) show(byId("options"), renderSettings(target));
  foldPlans(plans, overview.plan);
  show(byId("plans"), byId("plans-fold").open ? renderPlans(plans, overview.plan, openNodes, folds) : "");
  byId("pending-card").hidden = !pending.tasks.length;
  show(byId("pending"), renderPending(pending));
  fillSelects(tasks, selected);
  show(byId("facts"), renderFacts(tasks.find((task) => task.name === selected)));
}

function drawCharts() {
  const view = { across: byId("across").value, smoothing: Number(byId("smoothing").value) };
  const charts = renderCharts(answers.training, view);
  byId("curve-controls").hidden = !charts.some(Boolean);
  show(byId("charts"), charts);
}

function renderBoardNote() {
  const { overview, board } = answers;
  if (board) return board.running ? "" : hint(`TensorBoard: ${board.reason}`);
  return overview.verdict ? "" : hint("TensorBoard is off. To turn it on, set service.use_tensorboard to true in the options.");
}

function drawHead(overview) {
  const { board, result } = answers;
  const activity = overview.refused ? "refused" : overview.activity;
  document.title = formatTitle(overview, activity);
  byId("service").textContent = overview.service;
  byId("pill").textContent = activity.toUpperCase();
  byId("pill").className = `pill ${toneOf(activity)}`;
  byId("banner").className = `card ${toneOf(activity)}`;
  const end = result.decided_at ?? Date.now() / 1000;
  const since = overview.started_at && `started ${formatTime(overview.started_at)} · ${formatDuration(end - overview.started_at)} elapsed`;
  byId("about").textContent = [overview.strategy, overview.program, since].filter(Boolean).join(" · ");
  const boardLink = board?.running && { href: `${board.path}framed`, target: "_blank", rel: "noopener noreferrer" };
  show(byId("links"), boardLink ? el("a", boardLink, "TensorBoard") : "", el("a", { href: "v1/openapi.json" }, "API"));
  byId("foot").textContent = `As of ${formatTime(updatedAt / 1000)}${overview.framework_id ? "" : ", not registered with Mesos"}`;
}

// Plans are of interest if one waits or has errors; else the user unfolds them.
function foldPlans(plans, activeName) {
  const fold = byId("plans-fold");
  const needs = plans.some(needsAttention);
  if (needs && !neededAttention) fold.open = true;
  neededAttention = needs;
  const active = plans.find((plan) => plan.name === activeName);
  show(byId("plans-state"), active ? [`${active.name} `, renderStatus(active)] : "");
}

function select(name) {
  if (name === selected && output.task) return;
  selected = name;
  byId("launch").value = "";
  if (answers) fillSelects(answers.tasks, selected);
  if (!byId("all").checked || !output.task) readOutput();
  feed.draw();
  if (answers) draw();
}

function readOutput() {
  output.read(selected, (answers?.rows ?? []).filter((row) => row.id).map((row) => row.name));
}

// `text`: question before the command; null: none. `names`: tasks that the command restarts.
async function sendCommand(path, title, text, agreement, names) {
  const losses = describeLosses(answers.rows.filter((row) => names.includes(row.name)));
  const question = text && [text, losses].filter(Boolean).join(" ");
  if (question && !(await askConfirmation(title, question, agreement))) return;
  try {
    showMessage(`${title}: ${await post(path)}`);
  } catch (error) {
    showMessage(`${title}: ${describeError(error)}`, true);
  }
  updateSoon();
}

const POD_VERBS = {
  restart: { word: "Restart", question: "Restarts the task at its address." },
  replace: { word: "Move", question: "Stops the task and launches it elsewhere. Its local files are lost." },
};

function sendPodCommand(verb) {
  if (!selected) return;
  const { word, question } = POD_VERBS[verb];
  sendCommand(`v1/pod/${encodeURIComponent(selected)}/${verb}`, `${word} ${selected}`, question, word, [selected]);
}

function sendPlanCommand(verb, node) {
  const { word, question } = VERBS[verb];
  const names = verb === "restart" ? stepNames(answers.plans, node) : [];
  sendCommand(commandPath(verb, node), `${word} ${node.join(" / ")}`, question, word, names);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { verb, path, open, fold, task, pod } = button.dataset;
  if (verb) {
    sendPlanCommand(verb, JSON.parse(path));
  } else if (open) {
    if (!openNodes.delete(open)) openNodes.add(open);
    draw();
  } else if (fold) {
    folds.set(fold, button.getAttribute("aria-expanded") === "false");
    draw();
  } else if (task) {
    select(task);
    if ("output" in button.dataset) byId("task").scrollIntoView();
  } else if (pod) {
    sendPodCommand(pod);
  } else if (button.id === "stacks") {
    if (selected) output.readStacks(selected);
  } else if (button.id === "retry") {
    update();
  }
});

byId("task").addEventListener("change", (event) => select(event.target.value));
for (const id of ["file", "follow", "all", "launch"]) byId(id).addEventListener("change", readOutput);
byId("search").addEventListener("input", () => output.search(readOutput));
for (const id of ["across", "smoothing"]) byId(id).addEventListener("input", () => answers && drawCharts());
byId("find").addEventListener("input", () => answers && draw());
byId("options-fold").addEventListener("toggle", update);
byId("runs-fold").addEventListener("toggle", (event) => event.target.open && runs.read());
byId("runs").addEventListener("change", ({ target }) => target.dataset.run && runs.select(target.dataset.run, target.checked));
for (const id of ["warnings", "only-task"]) byId(id).addEventListener("change", () => feed.draw());
byId("plans-fold").addEventListener("toggle", () => answers && draw());

// Hidden tabs stop polling and close their streams.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) stopStreams();
  else update();
});

update();
