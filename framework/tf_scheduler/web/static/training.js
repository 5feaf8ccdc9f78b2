// Training progress: figures, a bar per job, and curves over the steps.

import { el, hint, svg } from "./dom.js";
import { formatNumber, formatTime, labelOf } from "./words.js";

const COLOURS = 6;
const MAX_METRICS = 16;
const MAX_LINES = 8;
const MAX_CHANGES = 8; // in the label of a chart
const MIN_GAP = 5; // percent of the width that a number needs

// Title of the tab, such as `58 % mnist`.
export function formatTitle({ service, tasks, leader }, activity) {
  const sign = { succeeded: "✓", failed: "!", refused: "!" }[activity];
  if (sign) return `${sign} ${service}`;
  const reporting = tasks.filter(isReporting);
  const first = reporting.find((task) => task.name === leader) ?? reporting[0];
  if (activity !== "training" || !first) return `${labelOf(activity)} ${service}`;
  return `${first.share_text || (first.step === null ? first.step_text : `step ${first.step_text}`)} ${service}`;
}

// A program may report epochs alone.
const isReporting = ({ step, epoch }) => step !== null || epoch !== null;

// Names of the tasks whose curves are drawn: the leader, the selected task, and the first that report.
export function curveNames({ leader, tasks }, selected) {
  const reporting = tasks.filter(isReporting).map((task) => task.name);
  const names = new Set([leader, ...(reporting.includes(selected) ? [selected] : []), ...reporting].filter(Boolean));
  return [...names].slice(0, MAX_LINES);
}

export function renderTiles(tasks, training, isTraining) {
  const running = tasks.filter((task) => task.status === "RUNNING");
  const gpus = running.reduce((sum, task) => sum + task.resources.gpus, 0);
  const tiles = {
    "tasks running": `${formatNumber(running.length)} of ${formatNumber(tasks.length)}`,
    ...training.summary,
    ...(isTraining ? {} : { "time left": "–" }),
    ...(gpus ? { "GPUs in use": formatNumber(gpus) } : {}),
  };
  const tile = ([title, text]) => {
    const [value, total] = text.split(" of ");
    const name = total === undefined ? title : `of ${total} ${title === "step" ? "steps" : title}`;
    return el("div", { class: "tile", "data-key": title }, el("b", {}, value), " ", el("span", {}, name));
  };
  return Object.entries(tiles).map(tile);
}

export function renderJobs(training) {
  const rows = Object.entries(training.jobs).filter(([, job]) => job.reporting > 0);
  if (!rows.length) return hint("No running task reports progress (docs/reference/tasks.md, Progress).");
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

const LOSS = { field: "loss", title: "Loss" };
const SPEED = { field: "steps_per_second", title: "Steps a second" };

// `view`: `across`, `step` or `time`; `smoothing`, from 0 (none) to less than 1.
export function renderCharts(training, view) {
  const names = new Set(training.tasks.flatMap((task) => Object.keys(task.metrics)));
  const metrics = [...names].slice(0, MAX_METRICS).map((name) => ({ field: name, title: name, isMetric: true }));
  return [LOSS, ...metrics, SPEED].map((curve) => {
    const all = training.tasks
      .map((task, index) => ({ name: task.name, colour: index % COLOURS, points: usablePoints(task.points, curve, view.across) }))
      .filter((line) => line.points.length > 1);
    const leading = curve === SPEED ? all.find((line) => line.name === training.leader) : null;
    const lines = all.reduce(mergeEqual, []);
    return lines.length ? renderChart(curve, lines, workerChanges(leading?.points ?? []), view) : null;
  });
}

// After a relaunch the steps go back to the checkpoint, and a new line starts.
function usablePoints(points, { field, isMetric }, across) {
  let before = Infinity;
  const unit = points.some(({ step }) => step !== null) ? "step" : "epoch";
  return points
    .map((point) => ({ ...point, step: point[unit], unit }))
    .map((point) => ({ ...point, x: point[across], y: (isMetric ? point.metrics : point)[field] ?? null }))
    .filter(({ step, y }) => step !== null && y !== null)
    .filter(({ x }, index, all) => x !== all[index + 1]?.x) // of reports at the same step, the last
    .map((point) => {
      const isStart = point.step < before;
      before = point.step;
      return { ...point, isStart };
    });
}

// Add a line to `lines`; if one of them shows the same values, only its name.
function mergeEqual(lines, line) {
  const values = new Map(line.points.map(({ x, y }) => [x, formatNumber(y)]));
  const isEqual = ({ points }) => {
    const shared = points.filter(({ x }) => values.has(x));
    return 2 * shared.length > points.length && shared.every(({ x, y }) => values.get(x) === formatNumber(y));
  };
  const equal = lines.find(isEqual);
  if (!equal) return [...lines, line];
  const longer = equal.points.length < line.points.length ? line : equal;
  return lines.map((other) => (other === equal ? { ...equal, points: longer.points, name: `${equal.name}, ${line.name}` } : other));
}

// Points at which the number of workers differs from the previous one, with the first point; empty without a difference.
function workerChanges(points) {
  const counted = points.filter((point) => point.workers);
  const changes = counted.filter(({ workers }, index) => workers !== counted[index - 1]?.workers);
  return changes.length > 1 ? changes : [];
}

// Exponential moving average without the bias of its start, as TensorBoard has it.
function smooth(points, weight) {
  let [sum, count] = [0, 0];
  return points.map((point) => {
    if (point.isStart) [sum, count] = [0, 0];
    sum = sum * weight + (1 - weight) * point.y;
    count += 1;
    return { ...point, y: sum / (1 - weight ** count) };
  });
}

function renderChart({ field, title }, lines, changes, { across, smoothing }) {
  const isTime = across === "time";
  const points = lines.flatMap((line) => line.points);
  const width = extentOf(points.map(({ x }) => x));
  const height = extentOf(points.map(({ y }) => y), field === SPEED.field);
  const levels = [height[1], (height[0] + height[1]) / 2, height[0]];
  const toHeight = (y) => 100 - percentOf(y, height);
  const toPosition = ({ x, y }) => [percentOf(x, width), toHeight(y)];
  const draw = (line, linePoints, name = "") =>
    svg("path", { class: `line c${line.colour} ${name}`, d: pathData(linePoints, toPosition) });
  const picture = svg(
    "svg",
    { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": chartLabel(title, lines, changes, isTime) },
    levels.map((y) => svg("line", { class: "level", x1: 0, x2: 100, y1: toHeight(y), y2: toHeight(y) })),
    lines.map((line) => draw(line, line.points, smoothing ? "raw" : "")),
    smoothing ? lines.map((line) => draw(line, smooth(line.points, smoothing))) : "",
  );
  const numbers = el("div", { class: "levels", "aria-hidden": "true" }, levels.map((y) => el("span", {}, formatNumber(y))));
  const ends = isTime ? width.map(formatTime) : [formatNumber(width[0]), `${points[0].unit} ${formatNumber(width[1])}`];
  return el(
    "figure",
    { "data-key": field },
    el("figcaption", {}, title),
    el("div", { class: "frame" }, numbers, picture, changes.length ? renderWorkerMarks(changes, width) : ""),
    el("div", { class: "under", "aria-hidden": "true" }, ends.map((text) => el("span", {}, text))),
    renderLegend(lines, changes),
  );
}

const lastValue = (line) => formatNumber(line.points.at(-1).y);

function chartLabel(title, lines, changes, isTime) {
  const values = lines.map((line) => `${line.name} ${lastValue(line)}`).join(", ");
  const from = ({ x }) => ` from ${isTime ? formatTime(x) : `step ${formatNumber(x)}`}`;
  const workers = changes.map((change, index) => `${formatNumber(change.workers)}${index ? from(change) : ""}`).slice(-MAX_CHANGES);
  return `${title} over the ${isTime ? "time" : "steps"}; now: ${values}${workers.length ? `; workers: ${workers.join("; ")}` : ""}`;
}

function renderLegend(lines, changes) {
  const entry = (key, dot, text, value) => el("li", { "data-key": key }, el("i", { class: `dot ${dot}` }), `${text} `, el("b", {}, value));
  const workers = changes.length ? entry("workers", "joined", "workers", formatNumber(changes.at(-1).workers)) : "";
  return el("ul", { class: "legend" }, lines.map((line) => entry(line.name, `c${line.colour}`, line.name, lastValue(line))), workers);
}

// Vertical lines with the number of workers from there on; percentages, so that the numbers are not stretched.
function renderWorkerMarks(changes, width) {
  const positions = changes.map(({ x }) => percentOf(x, width));
  const mark = ({ workers }, index) => {
    const [x, next, isLast] = [positions[index], positions[index + 1] ?? Infinity, positions[index] > 90];
    const text = { x: `${x}%`, y: "100%", dx: isLast ? -4 : 4, dy: -4, "text-anchor": isLast ? "end" : "start" };
    const hasRoom = Math.abs(next - x) >= MIN_GAP;
    return [svg("line", { x1: `${x}%`, x2: `${x}%`, y1: 0, y2: "100%" }), hasRoom ? svg("text", text, formatNumber(workers)) : ""];
  };
  return svg("svg", { class: "joined", "aria-hidden": "true" }, changes.map(mark).slice(1));
}

function pathData(points, toPosition) {
  return points
    .map((point) => {
      const [x, y] = toPosition(point);
      return `${point.isStart ? "M" : "L"}${x.toFixed(2)} ${y.toFixed(2)}`;
    })
    .join("");
}

// Lowest and highest value, and a range around it if they are equal.
function extentOf(values, fromZero = false) {
  const low = fromZero ? 0 : Math.min(...values);
  const high = Math.max(...values);
  return low === high ? [low - Math.abs(low) / 2 - 1e-9, high + Math.abs(high) / 2 + 1e-9] : [low, high];
}

const percentOf = (value, [low, high]) => 100 * ((value - low) / (high - low));
