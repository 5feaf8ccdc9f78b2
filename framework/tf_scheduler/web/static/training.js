// Training progress: a bar per job, and curves over the steps.

import { el, soft, svg } from "./dom.js";
import { duration, number, plural, spoken } from "./words.js";

const COLOURS = 6;
const MAX_METRICS = 16;

// Title of the tab, such as `58 % mnist`.
export function title({ service, tasks, leader }, activity) {
  const sign = { succeeded: "✓", failed: "!", refused: "!" }[activity];
  if (sign) return `${sign} ${service}`;
  const reporting = tasks.filter((task) => task.step !== null);
  const first = reporting.find((task) => task.name === leader) ?? reporting[0];
  if (activity !== "training" || !first) return `${spoken(activity)} ${service}`;
  return `${first.total ? percent(first) : `step ${number(first.step)}`} ${service}`;
}

const percent = ({ step, total }) => `${Math.min(100, Math.floor((100 * step) / total))} %`;

export function tiles(tasks, training) {
  const running = tasks.filter((task) => task.status === "RUNNING").length;
  const head = training.tasks.find((task) => task.name === training.leader && task.time !== null);
  const first = head ?? training.tasks.find((task) => task.time !== null);
  const gpus = tasks.filter((task) => task.status === "RUNNING").reduce((sum, task) => sum + task.resources.gpus, 0);
  const all = [
    ["tasks running", `${running} of ${tasks.length}`],
    ["step", first?.total ? `${number(first.step)} of ${number(first.total)}` : number(first?.step)],
    ["loss", number(first?.loss)],
    ...Object.entries(first?.metrics ?? {}).map(([name, value]) => [name, number(value)]),
    ["steps a second", number(first?.steps_per_second)],
    ["examples a second", number(training.examples_per_second)],
    ["time left", first ? duration(first.seconds_left) : "–"],
  ];
  if (gpus) all.push(["GPUs in use", number(gpus)]);
  return all.map(([what, value]) => el("div", { class: "tile", "data-key": what }, el("b", {}, value), el("span", {}, what)));
}

export function jobs(training) {
  const rows = Object.entries(training.jobs).filter(([, job]) => job.reporting > 0);
  if (!rows.length) return soft("No running task reports progress (docs/tasks.md, Progress).");
  return rows.map(([name, job]) => {
    const known = job.step !== null && job.total;
    const share = known ? `${percent(job)}, ` : "";
    const steps = `${share}step ${number(job.step)}${known ? ` of ${number(job.total)}` : ""}`;
    const speed = job.steps_per_second === null ? "" : `, ${number(job.steps_per_second)} steps/s`;
    const sources = new Set(training.tasks.filter((task) => task.job === name).map((task) => task.source ?? "report"));
    sources.delete("report");
    const source = sources.size ? `, from ${[...sources].join(" and ")}` : "";
    const reports = job.reporting < job.tasks ? `, ${job.reporting} of ${plural(job.tasks, "task")} report` : "";
    const bar = { max: job.total, value: Math.min(job.step, job.total), "aria-label": `${name}: steps` };
    return el(
      "div",
      { class: "job", "data-key": name },
      el("b", {}, name),
      known ? el("progress", bar) : el("span"),
      el("span", { class: "soft" }, steps, speed, reports, source),
    );
  });
}

const CURVES = [
  ["loss", "Loss"],
  ["steps_per_second", "Steps a second"],
];

export function charts(training) {
  const names = new Set(training.tasks.flatMap((task) => Object.keys(task.metrics)));
  const [loss, speed] = CURVES;
  return [loss, ...[...names].slice(0, MAX_METRICS).map((name) => [name, name]), speed].map(([field, title]) => {
    const lines = training.tasks
      .map((task, index) => ({ name: task.name, colour: index % COLOURS, points: usable(task.points, field) }))
      .filter((line) => line.points.length > 1);
    return lines.length ? chart(field, title, lines) : null;
  });
}

const usable = (points, field) =>
  points
    .map((point) => [point.step, field in point ? point[field] : (point.metrics[field] ?? null)])
    .filter(([step, value]) => step !== null && value !== null);

function chart(field, title, lines) {
  const all = lines.flatMap((line) => line.points);
  const across = extent(all.map(([step]) => step));
  const up = extent(all.map(([, value]) => value), field === "steps_per_second");
  const levels = ticks(up);
  const place = ([step, value]) => [100 * part(step, across), 100 - 100 * part(value, up)];
  const last = (line) => number(line.points.at(-1)[1]);
  const label = `${title} over the steps; now: ${lines.map((line) => `${line.name} ${last(line)}`).join(", ")}`;
  const level = (value) => {
    const [, y] = place([0, value]);
    return svg("line", { class: "level", x1: 0, x2: 100, y1: y, y2: y });
  };
  const picture = svg(
    "svg",
    { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": label },
    levels.map(level),
    lines.map((line) => svg("path", { class: `line c${line.colour}`, d: path(line.points, place) })),
  );
  const numbers = el("div", { class: "levels", "aria-hidden": "true" }, levels.map((value) => el("span", {}, number(value))));
  const steps = [number(across[0]), `step ${number(across[1])}`].map((text) => el("span", {}, text));
  const entry = (line) =>
    el("li", { "data-key": line.name }, el("i", { class: `dot c${line.colour}` }), line.name, " ", el("b", {}, last(line)));
  return el(
    "figure",
    { "data-key": field },
    el("figcaption", {}, title),
    el("div", { class: "frame" }, numbers, picture),
    el("div", { class: "under", "aria-hidden": "true" }, steps),
    el("ul", { class: "legend" }, lines.map(entry)),
  );
}

// After a relaunch the steps go back to the checkpoint, and a new line starts.
function path(points, place) {
  let before = Infinity;
  return points
    .map((point) => {
      const [x, y] = place(point);
      const sign = point[0] < before ? "M" : "L";
      before = point[0];
      return `${sign}${x.toFixed(2)} ${y.toFixed(2)}`;
    })
    .join("");
}

function extent(values, zero = false) {
  const low = zero ? 0 : Math.min(...values);
  const high = Math.max(...values);
  return low === high ? [low - Math.abs(low) / 2 - 1e-9, high + Math.abs(high) / 2 + 1e-9] : [low, high];
}

const part = (value, [low, high]) => (value - low) / (high - low);

// Top, middle, bottom.
const ticks = ([low, high]) => [high, (low + high) / 2, low];
