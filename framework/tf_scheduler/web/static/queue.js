// Main module of the page of a queue service: its jobs in their order, expected starts, and shares.

import { askToken } from "./dialogs.js";
import { byId, el, hint, show } from "./dom.js";
import { RefusedError, describeError, get, pageWithToken, sleep } from "./net.js";
import { formatDuration, formatTime, pluralize, toneOf } from "./words.js";

const INTERVAL = 2000; // ms

function table(label, titles, rows) {
  const head = titles.map((title) => el("th", { role: "columnheader", scope: "col" }, title));
  return el(
    "table",
    { role: "table", "aria-label": label, "data-key": label },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, head)),
    el("tbody", { role: "rowgroup" }, rows),
  );
}

function row(key, titles, cells) {
  const all = cells.map((content, index) => el("td", { role: "cell", "data-name": titles[index] }, content));
  return el("tr", { role: "row", "data-key": key }, all);
}

const bar = (label, value, max) => el("progress", { value: String(Math.min(value, max)), max: String(max || 1), "aria-label": label });

const JOB_TITLES = ["job", "state", "queue", "owner", "priority", "cpus", "start or end", "why it waits"];

function renderJob(job, now) {
  const hasScheduler = job.state !== "queued";
  return row(job.id, JOB_TITLES, [
    renderName(job, hasScheduler),
    el("span", { class: `status ${toneOf(job.state)}` }, job.position ? `${job.position}. QUEUED` : job.state.toUpperCase()),
    job.queue,
    job.owner,
    String(job.priority),
    String(job.needs.cpus),
    hasScheduler ? renderEnd(job, now) : describeStart(job, now),
    hasScheduler ? "" : job.reason,
  ]);
}

// A bar from the start of a job to its expected end.
function renderEnd(job, now) {
  if (!job.started) return "starting";
  const elapsed = now - job.started;
  if (!job.expected_end) return `runs for ${formatDuration(elapsed)}`;
  const left = Math.max(0, job.expected_end - now);
  return [bar(`progress of ${job.id}`, elapsed, elapsed + left), ` ${formatDuration(left)} left`];
}

function describeStart(job, now) {
  if (!job.grounds) return "";
  if (job.expected_start === null) return `unknown: ${job.grounds}`;
  return `in ${formatDuration(Math.max(0, job.expected_start - now))}: ${job.grounds}`;
}

const ENDED_TITLES = ["ended job", "result", "queue", "owner", "ended", "ran for", "why"];

function renderEnded(job) {
  const ran = job.started ? formatDuration(job.since - job.started) : "";
  const state = el("span", { class: `status ${toneOf(job.verdict)}` }, job.verdict.toUpperCase());
  return row(job.id, ENDED_TITLES, [renderName(job, job.started), state, job.queue, job.owner, formatTime(job.since), ran, job.reason]);
}

const renderName = (job, hasPage) => (hasPage ? el("a", { href: pageWithToken(`.${job.url}/`) }, job.id) : job.id);

const QUEUE_TITLES = ["queue", "weight", "share", "running", "waiting", "CPU-hours in the last hour"];

function renderQueue(queue, seconds) {
  const share = [bar(`share of ${queue.name}`, queue.share, 1), ` ${Math.round(100 * queue.share)} %`];
  const hour = renderHour(queue, seconds);
  return row(queue.name, QUEUE_TITLES, [queue.name, String(queue.weight), share, String(queue.running), String(queue.queued), hour]);
}

const OWNER_TITLES = ["owner", "cpus", "running", "waiting", "CPU-hours in the last hour"];

function renderOwner(owner, seconds) {
  const cells = [owner.name, String(owner.used.cpus), String(owner.running), String(owner.queued), renderHour(owner, seconds)];
  return row(owner.name, OWNER_TITLES, cells);
}

const renderHour = ({ name, seconds }, all) => [bar(`last hour of ${name}`, seconds, all), ` ${(seconds / 3600).toFixed(2)}`];

function draw(queue) {
  const now = Date.now() / 1000;
  const seconds = queue.queues.reduce((sum, each) => sum + each.seconds, 0);
  document.title = `${queue.name}: ${pluralize(queue.jobs.length, "job")}`;
  byId("name").textContent = queue.name;
  byId("about").textContent = `order: ${queue.order}; preemption: ${queue.preemption}; ${queue.identities}`;
  byId("problem").hidden = !queue.problem;
  show(byId("problem"), el("p", { class: "error", "data-key": "problem" }, queue.problem));
  const hidden = queue.waiting - queue.jobs.filter((job) => job.state === "queued").length;
  show(
    byId("jobs"),
    queue.jobs.length ? table("Jobs", JOB_TITLES, queue.jobs.map((job) => renderJob(job, now))) : hint("No job waits or runs."),
    hidden ? hint(`${pluralize(hidden, "more job")} wait.`) : "",
  );
  byId("ended").hidden = !queue.ended.length;
  show(byId("ended"), table("Ended jobs", ENDED_TITLES, queue.ended.map(renderEnded)));
  show(byId("queues"), table("Queues", QUEUE_TITLES, queue.queues.map((each) => renderQueue(each, seconds))));
  show(byId("owners"), table("Owners", OWNER_TITLES, queue.owners.map((each) => renderOwner(each, seconds))));
}

for (let prompts = 0; ; ) {
  try {
    draw(await get("v1/queue"));
  } catch (error) {
    if (error instanceof RefusedError && error.status === 401) {
      await askToken(prompts++ ? "Invalid token." : "");
      continue;
    }
    byId("problem").hidden = false;
    show(byId("problem"), el("p", { class: "error", "data-key": "problem" }, describeError(error)));
  }
  await sleep(INTERVAL);
}
