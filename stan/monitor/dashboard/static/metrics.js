// Figures of the cluster as charts with one time axis, over an hour or a week; those of this node as text are behind a link.

import { ask } from "./api.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import { number, rate, size } from "./format.js";
import { Query, shown } from "./query.js";

const SPANS = { hour: "An hour", week: "A week" };
const GAPS_MS = { hour: 90000, week: 1800000 }; // nodes are asked every ten seconds at least, durables every five minutes
const EVERY_MS = { hour: 6000, week: 60000 };
const bytes = (value) => size(Math.round(value));
const count = (value) => number(Math.round(value * 10) / 10);
const OF_POSITIONS = { gap: 900000 }; // ms
const CHARTS = [
  ["Messages a second", { in: "messages_in", out: "messages_out" }, rate, {}],
  ["Bytes a second", { in: "bytes_in", out: "bytes_out" }, (value) => `${bytes(value)}/s`, { base: 1024 }],
  ["Lag, in messages", { "all together": "lag", "the largest": "worst_lag" }, count, OF_POSITIONS],
  ["Sent and not acked, in messages", { "all together": "pending" }, count, OF_POSITIONS],
  ["Stuck durables and queue groups", { stuck: "stuck" }, count, OF_POSITIONS],
  ["Clients", { registered: "clients" }, count, {}],
  ["Memory of all servers", { used: "memory" }, bytes, { base: 1024 }],
  ["Disk", { "the fullest": "disk_used" }, (value) => `${Math.round(100 * value)} %`, { most: 1 }],
  ["Servers that do not answer", { silent: "silent" }, count, {}],
  ["Replication, in log entries behind", { "the slowest": "behind" }, count, {}],
];

export function metrics(context) {
  let asked = 0;
  const query = new Query((params, signal) => ask("history", params, signal), context.redraw);
  const span = () => (context.params.span in SPANS ? context.params.span : "hour");
  const want = () => {
    asked = Date.now();
    query.want({ span: span() });
  };
  want();
  const choice = () => h("fieldset", { class: "views" }, h("legend", { class: "unseen" }, "Span"), Object.entries(SPANS).map(([value, name]) =>
    h("label", {}, h("input", { type: "radio", name: "span", value, checked: value === span(), onchange: () => context.query({ span: value }) }), name)));
  const page = (data) => {
    const column = (name) => data.columns.indexOf(name) + 1;
    const series = (names) => Object.entries(names).map(([name, of]) => ({ name, points: data.points.map((point) => [point[0], point[column(of)]]) }));
    return h("div", { class: "columns charts" }, CHARTS.map(([title, names, show, more]) => h("section", { class: "card", "data-key": title },
      chart(title, series(names), show, { begin: data.begin, end: data.end, gap: Math.max(GAPS_MS[span()], more.gap ?? 0), ...more, ...(span() === "week" ? { gap: GAPS_MS.week } : {}) }))));
  };
  return {
    title: "Metrics",
    draw: () => [
      h("div", { class: "head" }, h("h1", {}, "Metrics"), choice(), h("a", { href: "/metrics", id: "raw" }, "All of this node as text, for Prometheus")),
      shown(query, page)],
    refresh: () => {
      if (Date.now() - asked < EVERY_MS[span()]) return;
      asked = Date.now();
      query.refresh();
    },
    navigate: want,
    close: () => query.close(),
  };
}
