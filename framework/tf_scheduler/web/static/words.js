// Words of the page: labels of states, counts, times of day, and numbers on axes. All other values come as texts.

import { STATES } from "./states.js";

// Same as format_number in tf_executor/contract/text.py.
export function formatNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size > 1e9 || (size && size < 1e-4)) {
    const [digits, power] = value.toExponential(3).split("e");
    return `${Number(digits)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  }
  return size < 1000 ? String(Number(value.toPrecision(4))) : value.toLocaleString("en", { maximumFractionDigits: 0 });
}

export const pluralize = (count, word) => `${formatNumber(count)} ${word}${count === 1 ? "" : "s"}`;

// Same as format_duration in tf_executor/contract/text.py, in whole seconds.
export function formatDuration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  for (const [size, unit, smaller, rest] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    const count = Math.floor((whole % size) / smaller);
    if (whole >= size) return `${formatNumber(Math.floor(whole / size))} ${unit}${count ? ` ${count} ${rest}` : ""}`;
  }
  return `${whole} s`;
}

const padTwo = (part) => String(part).padStart(2, "0");

// Time of day of the browser, with the date if it is not today.
export function formatTime(seconds) {
  const date = new Date(seconds * 1000);
  const time = `${padTwo(date.getHours())}:${padTwo(date.getMinutes())}:${padTwo(date.getSeconds())}`;
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? time : `${date.getFullYear()}-${padTwo(date.getMonth() + 1)}-${padTwo(date.getDate())} ${time}`;
}

// Colour class of a state.
export const toneOf = (state) => STATES[state.toUpperCase()]?.tone ?? "asked";

export const labelOf = (state) => STATES[state.toUpperCase()]?.label ?? state;
