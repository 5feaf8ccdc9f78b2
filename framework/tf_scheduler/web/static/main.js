// Main module: polls the API every two seconds, sooner after events, with back-off while the scheduler does not answer.

import { cluster, others, unseen } from "./cluster.js";
import { byId, el, show, soft } from "./dom.js";
import { Feed } from "./feed.js";
import { pending, result } from "./lists.js";
import { Away, Refused, get, post } from "./net.js";
import { Output, choices, facts } from "./output.js";
import { VERBS, address, needsAttention, status, stepsAt, trees } from "./plans.js";
import { Runs } from "./runs.js";
import { settings } from "./settings.js";
import { agreed, askToken, say } from "./talk.js";
import { losses, rowsOf, table } from "./tasks.js";
import { charts, drawn, jobs, tiles, title } from "./training.js";
import { clock, duration, tone } from "./words.js";

const EVERY = 2000; // ms
const SHARE = 4; // pause after an update, in durations of the update, so that large services are asked less often
const SOON = 200; // ms after an event
const SLOWEST = 30000; // ms; maximum back-off
const PLAN_CODES = [417]; // status of a plan with errors

const output = new Output();
const runs = new Runs();
const feed = new Feed(() => sooner());
const open = new Set();
const unfolded = new Map();
let chosen = "";
let picture = null; // last answers
let seen = 0; // time of the last answers in ms
let failed = 0; // failed attempts since then
let every = EVERY;
let timer = 0;
let asking = false;
let plansDue = false; // whether a plan waited or had errors
let tokens = 0; // number of token prompts

async function everything() {
  const overview = await get("v1/tf/overview");
  // Curves of a few tasks only: those of thousands would be megabytes.
  const curves = encodeURIComponent(drawn(overview, chosen).join() || "chief-0");
  const names = ["tf/result", "tasks", `tf/progress?points=240&tasks=${curves}`, "pending", "plans"];
  const [end, tasks, training, waiting, planNames] = await Promise.all(names.map((name) => get(`v1/${name}`)));
  const plans = await Promise.all(planNames.map((name) => get(`v1/plans/${encodeURIComponent(name)}`, PLAN_CODES)));
  const named = planNames.map((name, index) => ({ ...plans[index], name }));
  const board = tasks.tasks.some((task) => task.job === "tensorboard") ? await get("v1/tf/tensorboard") : null;
  const target = byId("options-fold").open ? await get("v1/configurations/target") : null;
  const rows = rowsOf(tasks.tasks, overview);
  return { overview, end, tasks: tasks.tasks, rows, left: tasks.may_still_run, training, waiting, plans: named, board, target };
}

async function look() {
  if (asking || document.hidden) return;
  clearTimeout(timer);
  asking = true;
  const begin = performance.now();
  try {
    picture = await everything();
    [seen, failed] = [Date.now(), 0];
    byId("lost").hidden = true;
    draw();
    feed.start();
    if (!output.task && chosen) read();
    every = Math.max(EVERY, SHARE * (performance.now() - begin));
  } catch (error) {
    await wrong(error);
  } finally {
    asking = false;
    plan();
  }
}

async function wrong(error) {
  if (error instanceof Refused && error.status === 401) {
    quiet();
    await askToken(tokens++ ? "Invalid token." : "");
    failed = -1;
    return;
  }
  if (!(error instanceof Away) && !(error instanceof Refused)) console.error(error);
  failed += 1;
  if (failed === 1) quiet();
}

// Stop the streams until the scheduler answers.
function quiet() {
  feed.stop();
  output.stop();
  output.task = "";
}

// Schedule the next request: exponential back-off with jitter.
function plan() {
  if (failed < 0) failed = 0;
  const wait = failed ? Math.min(SLOWEST, 1000 * 2 ** (failed - 1)) * (0.75 + Math.random() / 2) : every;
  if (failed) lost(wait);
  clearTimeout(timer);
  timer = setTimeout(look, seen ? wait : Math.min(wait, SLOWEST));
}

function lost(wait) {
  const since = seen ? ` The data is of ${clock(seen / 1000)}.` : "";
  byId("lost-text").textContent = `The scheduler does not answer.${since} Next attempt in ${duration(Math.round(wait / 1000))}.`;
  byId("lost").hidden = false;
}

function sooner() {
  if (failed || asking) return;
  clearTimeout(timer);
  timer = setTimeout(look, Math.max(SOON, every - EVERY));
}

function draw() {
  const { overview, end, tasks, rows, training, waiting, plans, target } = picture;
  if (!tasks.some((task) => task.name === chosen)) {
    chosen = tasks.find((task) => task.name === training.leader)?.name ?? tasks[0]?.name ?? "";
    output.task = "";
  }
  head(overview);
  byId("notices").hidden = !overview.notices.length;
  show(byId("notices"), overview.notices.map((text) => el("li", { "data-key": text }, text)));
  if (end.verdict && byId("result").hidden && byId("runs-fold").open) runs.read();
  byId("result").hidden = !end.verdict;
  if (end.verdict) show(byId("result-body"), result(end, overview));
  show(byId("tiles"), tiles(tasks, training, overview.activity === "training"));
  show(byId("tasks"), table(rows, byId("find").value, chosen));
  show(byId("cluster"), cluster(tasks, chosen, new Map(overview.tasks.map((row) => [row.name, row]))));
  byId("others").hidden = !overview.agents.length;
  show(byId("others"), others(overview));
  show(byId("unseen"), unseen(tasks));
  show(byId("jobs"), jobs(training));
  drawCharts();
  show(byId("board"), boardNote());
  if (target) show(byId("options"), settings(target));
  foldPlans(plans, overview.plan);
  show(byId("plans"), byId("plans-fold").open ? trees(plans, overview.plan, open, unfolded) : "");
  byId("pending-card").hidden = !waiting.tasks.length;
  show(byId("pending"), pending(waiting));
  choices(tasks, chosen);
  show(byId("facts"), facts(tasks.find((task) => task.name === chosen)));
}

function drawCharts() {
  const curves = charts(picture.training, { across: byId("across").value, smoothing: Number(byId("smoothing").value) });
  byId("curve-controls").hidden = !curves.some(Boolean);
  show(byId("charts"), curves);
}

function boardNote() {
  const { overview, board } = picture;
  if (board) return board.running ? "" : soft(`TensorBoard: ${board.reason}`);
  return overview.verdict ? "" : soft("TensorBoard is off. To turn it on, set service.use_tensorboard to true in the options.");
}

function head(overview) {
  const activity = overview.refused ? "refused" : overview.activity;
  document.title = title(overview, activity);
  byId("service").textContent = overview.service;
  byId("pill").textContent = activity.toUpperCase();
  byId("pill").className = `pill ${tone(activity)}`;
  const { board, left } = picture;
  const framework = overview.framework_id ? `framework ${overview.framework_id}` : "not registered with Mesos";
  byId("about").textContent = overview.refused || [overview.detail, ...left].filter(Boolean).join("; ");
  const there = board?.running && el("a", { href: `${board.path}framed`, target: "_blank", rel: "noopener noreferrer" }, "TensorBoard");
  show(byId("links"), there || "", el("a", { href: "v1/openapi.json" }, "API"));
  byId("foot").textContent = `As of ${clock(seen / 1000)}, ${framework}`;
}

// Plans are of interest if one waits or has errors; else the user unfolds them.
function foldPlans(plans, working) {
  const fold = byId("plans-fold");
  const due = plans.some(needsAttention);
  if (due && !plansDue) fold.open = true;
  plansDue = due;
  const active = plans.find((plan) => plan.name === working);
  show(byId("plans-state"), active ? [`${active.name} `, status(active)] : "");
}

function choose(name) {
  if (name === chosen && output.task) return;
  chosen = name;
  byId("launch").value = "";
  if (picture) choices(picture.tasks, chosen);
  if (!byId("all").checked || !output.task) read();
  feed.draw();
  if (picture) draw();
}

function read() {
  output.read(chosen, (picture?.rows ?? []).filter((row) => row.id).map((row) => row.name));
}

// `names`: tasks that the command restarts.
async function command(path, title, text, yes, names) {
  const lost = losses(picture.rows.filter((row) => names.includes(row.name)));
  const asks = text && [text, lost].filter(Boolean).join(" ");
  if (asks && !(await agreed(title, asks, yes))) return;
  try {
    say(`${title}: ${await post(path)}`);
  } catch (error) {
    say(`${title}: ${error instanceof Refused ? error.message : "the scheduler does not answer"}`, true);
  }
  sooner();
}

const PODS = {
  restart: ["Restart", "Restarts the task at its address."],
  replace: ["Move", "Stops the task and launches it elsewhere. Its local files are lost."],
};

function pod(verb) {
  if (!chosen) return;
  const [word, asks] = PODS[verb];
  command(`v1/pod/${encodeURIComponent(chosen)}/${verb}`, `${word} ${chosen}`, asks, word, [chosen]);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { verb, path, open: node, fold, task, pod: podVerb } = button.dataset;
  if (verb) {
    const place = JSON.parse(path);
    const { word, asks } = VERBS[verb];
    const names = verb === "restart" ? stepsAt(picture.plans, place) : [];
    command(address(verb, place), `${word} ${place.join(" / ")}`, asks, word, names);
  } else if (node) {
    if (!open.delete(node)) open.add(node);
    draw();
  } else if (fold) {
    unfolded.set(fold, button.getAttribute("aria-expanded") === "false");
    draw();
  } else if (task) {
    choose(task);
  } else if (podVerb) {
    pod(podVerb);
  } else if (button.id === "again") {
    look();
  }
});

byId("task").addEventListener("change", (event) => choose(event.target.value));
for (const id of ["file", "follow", "all", "launch"]) byId(id).addEventListener("change", read);
byId("search").addEventListener("input", () => output.search(read));
for (const id of ["across", "smoothing"]) byId(id).addEventListener("input", () => picture && drawCharts());
byId("find").addEventListener("input", () => picture && draw());
byId("options-fold").addEventListener("toggle", look);
byId("runs-fold").addEventListener("toggle", (event) => event.target.open && runs.read());
byId("runs").addEventListener("change", ({ target }) => target.dataset.run && runs.choose(target.dataset.run, target.checked));
for (const id of ["warnings", "only-task"]) byId(id).addEventListener("change", () => feed.draw());

byId("plans-fold").addEventListener("toggle", () => picture && draw());

// Hidden tabs stop polling and close their streams.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) quiet();
  else look();
});

look();
