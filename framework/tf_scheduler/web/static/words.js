// Format numbers, times and states as tf_executor/contract/text.py does.

import { TONES } from "./states.js";

export function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size > 1e9 || (size && size < 1e-4)) {
    const [digits, power] = value.toExponential(3).split("e");
    return `${Number(digits)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  }
  return size < 1000 ? String(Number(value.toPrecision(4))) : value.toLocaleString("en", { maximumFractionDigits: 0 });
}

const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (seconds > 0 && seconds < 10 && seconds !== whole) return `${seconds.toFixed(1)} s`;
  const [size, unit, smaller, rest] = UNITS.find(([least]) => whole >= least) ?? [1, "s", 1, ""];
  const count = rest && whole < 1e9 ? Math.floor((whole % size) / smaller) : 0;
  return `${number(Math.floor(whole / size))} ${unit}${count ? ` ${count} ${rest}` : ""}`;
}

const two = (part) => String(part).padStart(2, "0");

// Time of day, with the date if it is not today.
export function clock(seconds) {
  const then = new Date(seconds * 1000);
  const time = `${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}`;
  const today = then.toDateString() === new Date().toDateString();
  return today ? time : `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())} ${time}`;
}

export function memory(megabytes) {
  return megabytes >= 1000 ? `${number(Math.round(megabytes / 10.24) / 100)} GB` : `${number(Math.round(megabytes))} MB`;
}

export const percent = (share) => `${share >= 1 ? 100 : Math.min(99, Math.max(0, Math.round(100 * share)))} %`;

export function bytes(count) {
  if (count < 1000) return plural(count, "byte");
  const [size, unit] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([least]) => count >= least);
  return `${(count / size).toFixed(1)} ${unit}`;
}

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

// Return the colour class of a state.
export const tone = (state) => TONES[state.toUpperCase()] ?? "asked";

export const spoken = (status) => status.toLowerCase().replaceAll("_", " ");
