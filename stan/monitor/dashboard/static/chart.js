// Lines over time, drawn as SVG. The words stand beside the drawing, so that it may have any width.

import { h, s } from "./dom.js";
import { clockTime, day, zone } from "./format.js";

const WIDTH = 600;
const HEIGHT = 120;
const MINUTE = 60000;
const STEPS = [10000, 30000, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, 60 * MINUTE, 180 * MINUTE, 360 * MINUTE, 720 * MINUTE, 1440 * MINUTE, 2880 * MINUTE];
const TICKS_MAX = 6;

/** The next larger number that people like to read: 1, 2 or 5 with noughts; in bytes (*base* 1024) before KiB, MiB and so on. */
function above(value, base) {
  if (!(value > 0)) return 1;
  const unit = base === 1024 ? 1024 ** Math.max(0, Math.floor(Math.log(value) / Math.log(1024))) : 1;
  const part = 10 ** Math.floor(Math.log10(value / unit));
  const round = [1, 2, 5, 10].map((step) => step * part * unit).find((one) => one >= value) ?? 10 * part * unit;
  return base === 1024 && round >= 1000 * unit ? 1024 * unit : round;
}

/** Round moments between *begin* and *end*, in the zone of this browser. */
function ticks(begin, end) {
  const step = STEPS.find((one) => (end - begin) / one <= TICKS_MAX) ?? STEPS.at(-1);
  const offset = new Date(end).getTimezoneOffset() * MINUTE;
  const found = [];
  for (let at = Math.ceil((begin - offset) / step) * step + offset; at <= end; at += step) found.push(at);
  return { step, found };
}

const known = (points) => points.filter(([, value]) => value !== null && value !== undefined);

/** Pieces of a line, without the times of which nothing is known. */
function pieces(points, gap) {
  const found = [[]];
  for (const point of known(points)) {
    const before = found.at(-1).at(-1);
    if (before && gap && point[0] - before[0] > gap) found.push([]);
    found.at(-1).push(point);
  }
  return found.filter((piece) => piece.length > 1);
}

/**
 * *series*: [{name, points: [[ms, value or null], …]}]; *show* writes a value. *begin*, *end* (ms): of the time axis, else it is that
 * of the points; *gap* (ms): points that are further apart are not joined; *base*: 1024 for bytes; *most*: the scale ends there.
 */
export function chart(title, series, show, { begin, end, gap = 0, base = 10, most = 0 } = {}) {
  const all = known(series.flatMap((one) => one.points));
  if (all.length < 2) return h("figure", { class: "chart", "data-key": title }, h("figcaption", {}, title), h("p", { class: "muted" }, "Points come while this page is open."));
  const times = all.map((point) => point[0]);
  const [first, last] = [begin ?? Math.min(...times), end ?? Math.max(...times)];
  const top = most || above(Math.max(...all.map((point) => point[1])), base);
  const x = (at) => ((at - first) / (last - first || 1)) * WIDTH;
  const y = (value) => HEIGHT - 1 - (Math.min(value, top) / top) * (HEIGHT - 2);
  const path = (points) => points.map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const now = (one) => known(one.points).at(-1)?.[1] ?? 0;
  const text = series.map((one) => `${one.name} now ${show(now(one))}`).join(", ");
  const lines = (one, at) => pieces(one.points, gap).map((piece) => [
    s("path", { class: `area s${at}`, d: `${path(piece)}L${x(piece.at(-1)[0]).toFixed(1)} ${HEIGHT}L${x(piece[0][0]).toFixed(1)} ${HEIGHT}Z` }),
    s("path", { class: `line s${at}`, d: path(piece), "vector-effect": "non-scaling-stroke" })]);
  const axis = ticks(first, last);
  return h("figure", { class: "chart", "data-key": title },
    h("figcaption", {}, title, h("span", { class: "legend" },
      series.map((one, at) => h("span", { class: `series s${at}` }, `${one.name} `, h("b", {}, show(now(one))))))),
    h("div", { class: "plot" },
      h("div", { class: "scale muted", "aria-hidden": "true" }, [top, top / 2, 0].map((value) => h("span", {}, show(value)))),
      s("svg", { class: "curves", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${text}; the scale ends at ${show(top)}` },
        [0, 0.25, 0.5, 0.75].map((part) => s("line", { class: "grid", x1: 0, x2: WIDTH, y1: y(top * (1 - part)), y2: y(top * (1 - part)) })),
        axis.found.map((at) => s("line", { class: "grid", x1: x(at), x2: x(at), y1: 0, y2: HEIGHT })),
        series.map(lines))),
    h("div", { class: "axis muted" }, h("span", {}, zone(last)), s("svg", { class: "times", "aria-hidden": "true" },
      axis.found.map((at) => s("text", { x: `${((100 * x(at)) / WIDTH).toFixed(2)}%`, y: "1em", "text-anchor": x(at) < 30 ? "start" : x(at) > WIDTH - 30 ? "end" : "middle" },
        axis.step >= 1440 * MINUTE ? day(at).slice(5) : clockTime(at, axis.step < MINUTE))))));
}

/** A bar that is filled in part. */
export function bar(part, label, level = "") {
  const width = Math.max(0, Math.min(1, part || 0)) * 100;
  return h("span", { class: `bar ${level}`, role: "img", "aria-label": label, title: label },
    s("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none" }, s("rect", { width: 100, height: 6, class: "back" }), s("rect", { width, height: 6, class: "fill" })));
}
