// Lines over time, drawn as SVG. The words stand beside the drawing, so that it may have any width.

import { h, s } from "./dom.js";
import { time } from "./format.js";

const WIDTH = 600;
const HEIGHT = 120;

/** *series*: [{name, points: [[ms, value], …]}]; *show* writes a value. */
export function chart(title, series, show, key = title) {
  const all = series.flatMap((one) => one.points);
  if (all.length < 2) return h("figure", { class: "chart", "data-key": key }, h("figcaption", {}, title), h("p", { class: "muted" }, "Points come while this page is open."));
  const times = all.map((point) => point[0]);
  const [begin, end] = [Math.min(...times), Math.max(...times)];
  const top = Math.max(...all.map((point) => point[1]), 0) || 1;
  const x = (at) => ((at - begin) / (end - begin || 1)) * WIDTH;
  const y = (value) => HEIGHT - 2 - (value / top) * (HEIGHT - 24); // room for the words at the top
  const path = (points) => points.map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const last = (one) => one.points.at(-1)?.[1] ?? 0;
  const text = series.map((one) => `${one.name} now ${show(last(one))}`).join(", ");
  return h("figure", { class: "chart", "data-key": key },
    h("figcaption", {}, title, h("span", { class: "legend" },
      series.map((one, at) => h("span", { class: `series s${at}` }, `${one.name} `, h("b", {}, show(last(one))))))),
    h("div", { class: "plot" },
      h("span", { class: "top muted" }, show(top)),
      s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${text}, at most ${show(top)}` },
        [0.25, 0.5, 0.75].map((part) => s("line", { class: "grid", x1: 0, x2: WIDTH, y1: y(top * part), y2: y(top * part) })),
        series.map((one, at) => one.points.length > 1 && [
          s("path", { class: `area s${at}`, d: `${path(one.points)}L${x(one.points.at(-1)[0]).toFixed(1)} ${HEIGHT}L${x(one.points[0][0]).toFixed(1)} ${HEIGHT}Z` }),
          s("path", { class: `line s${at}`, d: path(one.points), "vector-effect": "non-scaling-stroke" }),
        ]))),
    h("div", { class: "times muted" }, h("span", {}, time(begin)), h("span", {}, time(end))));
}

/** A bar that is filled in part. */
export function bar(part, label, level = "") {
  const width = Math.max(0, Math.min(1, part || 0)) * 100;
  return h("span", { class: `bar ${level}`, role: "img", "aria-label": label, title: label },
    s("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none" }, s("rect", { width: 100, height: 6, class: "back" }), s("rect", { width, height: 6, class: "fill" })));
}
