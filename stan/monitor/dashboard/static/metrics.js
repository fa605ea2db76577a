// What /metrics tells of this node, readable.

import { metrics as ask } from "./api.js";
import { Query, shown } from "./query.js";
import { h } from "./dom.js";
import { number } from "./format.js";
import { search, table } from "./table.js";

const SHOWN_MAX = 300;
const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;

/** Samples of the text form: {name, labels, value, help}. */
export function parsed(text) {
  const help = new Map();
  const found = [];
  for (const line of text.split("\n")) {
    const told = /^# HELP (\S+) (.*)/.exec(line);
    if (told) help.set(told[1], told[2]);
    const sample = line.startsWith("#") ? null : LINE.exec(line);
    if (sample && !sample[1].endsWith("_bucket")) found.push({ name: sample[1], labels: sample[2] ?? "", value: Number(sample[3]),
      help: help.get(sample[1]) ?? help.get(sample[1].replace(/_(sum|count|total)$/, "")) ?? "" });
  }
  return found;
}

const COLUMNS = [
  { name: "Metric", cell: (row) => [h("code", {}, row.name), h("small", { class: "muted" }, row.help)] },
  { name: "Of", cell: (row) => h("code", { class: "labels" }, row.labels) },
  { name: "Value", number: true, cell: (row) => (Number.isInteger(row.value) ? number(row.value) : String(row.value)) },
];

export function metrics(context) {
  const query = new Query((_, signal) => ask(signal), context.redraw);
  query.want({});
  const draw = () => [
    h("div", { class: "head" }, h("h1", {}, "Metrics"), h("a", { href: "/metrics" }, "/metrics for Prometheus")),
    h("div", { class: "tools" }, search("Search metrics", context.params.search ?? "", (text) => context.query({ search: text }))),
    shown(query, (text) => {
      const words = (context.params.search ?? "").toLowerCase().split(/\s+/);
      const rows = parsed(text).filter((row) => words.every((word) => `${row.name} ${row.labels} ${row.help}`.toLowerCase().includes(word)));
      return [h("p", { class: "muted", role: "status" }, `${number(rows.length)} of this node${rows.length > SHOWN_MAX ? `, the first ${SHOWN_MAX} shown` : ""}`),
        table("Metrics of this node", COLUMNS, rows.slice(0, SHOWN_MAX), (row) => `${row.name}{${row.labels}}`)];
    }),
  ];
  return { title: "Metrics", draw, refresh: () => query.refresh(), navigate: context.redraw, close: () => query.close() };
}
