// Format numbers, times and states.

import { TONES } from "./states.js";

export function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 1e-4) return value.toExponential(2);
  if (Math.abs(value) > 1e6) return Number(value.toPrecision(4)).toExponential();
  const whole = Math.abs(value) >= 100 || Number.isInteger(value);
  const options = whole ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: digits };
  return value.toLocaleString("en", options);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const all = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [Math.floor(all / 86400), Math.floor(all / 3600) % 24, Math.floor(all / 60) % 60];
  if (days) return `${number(days)} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  if (minutes) return `${minutes} min ${all % 60} s`;
  return `${all} s`;
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
  return megabytes >= 1024 ? `${number(megabytes / 1024)} GB` : `${number(megabytes)} MB`;
}

export function bytes(count) {
  if (count < 1024) return plural(count, "byte");
  return count < 1024 ** 2 ? `${number(count / 1024)} KB` : memory(count / 1024 ** 2);
}

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

// Return the colour class of a state.
export const tone = (state) => TONES[state.toUpperCase()] ?? "asked";

export const spoken = (status) => status.toLowerCase().replaceAll("_", " ");
