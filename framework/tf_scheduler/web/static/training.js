// Training progress: a bar per job, and curves over the steps.

import { el, soft, svg } from "./dom.js";
import { clock, duration, number, percent, spoken } from "./words.js";

const COLOURS = 6;
const MAX_METRICS = 16;
const MAX_LINES = 8;
const MAX_CHANGES = 8; // in the label of a chart
const GAP = 5; // percent of the width that a number needs

// Title of the tab, such as `58 % mnist`.
export function title({ service, tasks, leader }, activity) {
  const sign = { succeeded: "✓", failed: "!", refused: "!" }[activity];
  if (sign) return `${sign} ${service}`;
  const reporting = tasks.filter((task) => task.step !== null);
  const first = reporting.find((task) => task.name === leader) ?? reporting[0];
  if (activity !== "training" || !first) return `${spoken(activity)} ${service}`;
  return `${first.total ? percent(first.step / first.total) : `step ${number(first.step)}`} ${service}`;
}

// Names of the tasks whose curves are drawn: the leader, the selected task, and the first that report.
export function drawn({ leader, tasks }, chosen) {
  const reporting = tasks.filter((task) => task.step !== null).map((task) => task.name);
  const names = new Set([leader, ...(reporting.includes(chosen) ? [chosen] : []), ...reporting].filter(Boolean));
  return [...names].slice(0, MAX_LINES);
}

export function tiles(tasks, training, trains) {
  const running = tasks.filter((task) => task.status === "RUNNING");
  const gpus = running.reduce((sum, task) => sum + task.resources.gpus, 0);
  const all = {
    "tasks running": `${number(running.length)} of ${number(tasks.length)}`,
    ...training.summary,
    ...(trains ? {} : { "time left": "–" }),
    ...(gpus ? { "GPUs in use": number(gpus) } : {}),
  };
  return Object.entries(all).map(([what, value]) => el("div", { class: "tile", "data-key": what }, el("b", {}, value), el("span", {}, what)));
}

export function jobs(training) {
  const rows = Object.entries(training.jobs).filter(([, job]) => job.reporting > 0);
  if (!rows.length) return soft("No running task reports progress (docs/reference/tasks.md, Progress).");
  return rows.map(([name, job]) => {
    const bar = { max: job.total, value: Math.min(job.step, job.total), "aria-label": `${name}: steps` };
    return el(
      "div",
      { class: "job", "data-key": name },
      el("b", {}, name),
      job.step !== null && job.total ? el("progress", bar) : el("span"),
      el("span", { class: "soft" }, job.text),
    );
  });
}

const CURVES = [
  ["loss", "Loss"],
  ["steps_per_second", "Steps a second"],
];

// `view`: `across`, `step` or `time`; `smoothing`, from 0 (none) to less than 1.
export function charts(training, view) {
  const names = new Set(training.tasks.flatMap((task) => Object.keys(task.metrics)));
  const [loss, speed] = CURVES;
  return [loss, ...[...names].slice(0, MAX_METRICS).map((name) => [name, name]), speed].map(([field, title]) => {
    const lines = training.tasks
      .map((task, index) => ({ name: task.name, colour: index % COLOURS, points: usable(task.points, field, view.across) }))
      .filter((line) => line.points.length > 1);
    const leading = field === "steps_per_second" ? lines.find((line) => line.name === training.leader) : null;
    return lines.length ? chart(field, title, lines, changes(leading?.points ?? []), view) : null;
  });
}

// After a relaunch the steps go back to the checkpoint, and a new line starts.
function usable(points, field, across) {
  const reported = CURVES.some(([name]) => name === field);
  let before = Infinity;
  return points
    .map((point) => ({ ...point, x: point[across], y: (reported ? point : point.metrics)[field] ?? null }))
    .filter(({ step, y }) => step !== null && y !== null)
    .filter(({ x }, index, all) => x !== all[index + 1]?.x) // of reports at the same step, the last
    .map((point) => {
      const starts = point.step < before;
      before = point.step;
      return { ...point, starts };
    });
}

// Points at which the number of workers differs from the previous one, with the first point; empty without a difference.
function changes(points) {
  const all = points.filter((point) => point.workers).filter(({ workers }, index, known) => workers !== known[index - 1]?.workers);
  return all.length > 1 ? all : [];
}

// Exponential moving average without the bias of its start, as TensorBoard has it.
function smooth(points, weight) {
  let [sum, count] = [0, 0];
  return points.map((point) => {
    if (point.starts) [sum, count] = [0, 0];
    sum = sum * weight + (1 - weight) * point.y;
    count += 1;
    return { ...point, y: sum / (1 - weight ** count) };
  });
}

function chart(field, title, lines, marks, { across, smoothing }) {
  const all = lines.flatMap((line) => line.points);
  const wide = extent(all.map(({ x }) => x));
  const up = extent(all.map(({ y }) => y), field === "steps_per_second");
  const levels = ticks(up);
  const high = (y) => 100 - 100 * part(y, up);
  const place = ({ x, y }) => [100 * part(x, wide), high(y)];
  const last = (line) => number(line.points.at(-1).y);
  const over = across === "time" ? "time" : "steps";
  const from = ({ x }) => (across === "time" ? clock(x) : `step ${number(x)}`);
  const members = marks.map((mark, index) => `${number(mark.workers)}${index ? ` from ${from(mark)}` : ""}`).slice(-MAX_CHANGES);
  const now = lines.map((line) => `${line.name} ${last(line)}`).join(", ");
  const label = `${title} over the ${over}; now: ${now}${members.length ? `; workers: ${members.join("; ")}` : ""}`;
  const draw = (line, points, name = "") => svg("path", { class: `line c${line.colour} ${name}`, d: path(points, place) });
  const picture = svg(
    "svg",
    { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": label },
    levels.map((value) => svg("line", { class: "level", x1: 0, x2: 100, y1: high(value), y2: high(value) })),
    lines.map((line) => draw(line, line.points, smoothing ? "raw" : "")),
    smoothing ? lines.map((line) => draw(line, smooth(line.points, smoothing))) : "",
  );
  const count = marks.length
    ? el("li", { "data-key": "workers" }, el("i", { class: "dot joined" }), "workers ", el("b", {}, number(marks.at(-1).workers)))
    : "";
  const numbers = el("div", { class: "levels", "aria-hidden": "true" }, levels.map((value) => el("span", {}, number(value))));
  const ends = across === "time" ? [clock(wide[0]), duration(wide[1] - wide[0])] : [number(wide[0]), `step ${number(wide[1])}`];
  const entry = (line) =>
    el("li", { "data-key": line.name }, el("i", { class: `dot c${line.colour}` }), line.name, " ", el("b", {}, last(line)));
  return el(
    "figure",
    { "data-key": field },
    el("figcaption", {}, title),
    el("div", { class: "frame" }, numbers, picture, marks.length ? joined(marks, wide) : ""),
    el("div", { class: "under", "aria-hidden": "true" }, ends.map((text) => el("span", {}, text))),
    el("ul", { class: "legend" }, lines.map(entry), count),
  );
}

// Vertical lines with the number of workers from there on; percentages, so that the numbers are not stretched.
function joined(marks, wide) {
  const at = marks.map(({ x }) => 100 * part(x, wide));
  const mark = ({ workers }, index) => {
    const [x, next, isLast] = [at[index], at[index + 1] ?? Infinity, at[index] > 90];
    const text = { x: `${x}%`, y: "100%", dx: isLast ? -4 : 4, dy: -4, "text-anchor": isLast ? "end" : "start" };
    const fits = Math.abs(next - x) >= GAP;
    return [svg("line", { x1: `${x}%`, x2: `${x}%`, y1: 0, y2: "100%" }), fits ? svg("text", text, number(workers)) : ""];
  };
  return svg("svg", { class: "joined", "aria-hidden": "true" }, marks.map(mark).slice(1));
}

function path(points, place) {
  return points
    .map((point) => {
      const [x, y] = place(point);
      return `${point.starts ? "M" : "L"}${x.toFixed(2)} ${y.toFixed(2)}`;
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
