// Numbers, sizes, moments and spans as people read them.

const whole = new Intl.NumberFormat("en");
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SPANS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 100000) return `${number(Math.round(value / 1000))}k/s`;
  return `${number(value >= 10 ? Math.round(value) : Math.round(value * 10) / 10)}/s`;
}

export function size(value) {
  let unit = 0;
  while (value >= 1024 && unit < SIZES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? value.toFixed(1) : value} ${SIZES[unit]}`;
}

export function span(seconds) {
  for (const [length, unit] of SPANS) if (seconds >= 2 * length || length === 1) return `${Math.floor(Math.max(seconds, 0) / length)} ${unit}`;
}

/** How long something lasts that may be very short. */
export const lasting = (seconds) => (seconds < 1 ? `${Math.round(seconds * 1000)} ms` : span(seconds));

let skew = 0; // of this browser's clock against the server's
export const clock = (now) => (skew = now - Date.now());
export const now = () => Date.now() + skew;

export const ago = (moment) => (moment ? `${span((now() - moment) / 1000)} ago` : "–");
const two = (value, digits = 2) => String(value).padStart(digits, "0");

export function time(moment) {
  if (!moment) return "–";
  const date = new Date(moment);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** How far the clock of this browser is from UTC at a moment: `UTC`, `UTC+02:00`. */
export function zone(value) {
  const minutes = -new Date(value).getTimezoneOffset();
  if (!minutes) return "UTC";
  const far = Math.abs(minutes);
  return `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(far / 60))}:${two(far % 60)}`;
}

/** A time of today for a sentence, with its zone. */
export const stamp = (value) => (value ? `${time(value)} ${zone(value)}` : "–");

export const clockTime = (value, seconds) => (seconds ? time(value) : time(value).slice(0, 5));

export function day(value) {
  const date = new Date(value);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

export function moment(value) {
  if (!value) return "–";
  const date = new Date(value);
  return `${day(value)} ${time(value)}.${two(date.getMilliseconds(), 3)} ${zone(value)}`;
}

export const many = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;
