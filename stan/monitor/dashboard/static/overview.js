// The first page: a sentence, what is wrong, what goes through, who lags, what happened.

import { ask, seesAll } from "./api.js";
import { Query, shown } from "./query.js";
import { chart } from "./chart.js";
import { h, named } from "./dom.js";
import { ago, number, rate, size, stamp, time, zone } from "./format.js";
import { level } from "./table.js";

const fact = (name, value, href) => h(href ? "a" : "div", { class: "fact", href }, h("b", {}, value), h("span", { class: "muted" }, name));

export function overview(context) {
  const query = new Query((_, signal) => ask("overview", {}, signal), context.redraw);
  query.want({});
  return { title: "Overview", draw: () => shown(query, page), refresh: () => query.refresh(), close: () => query.close() };
}

const since = (problem) => problem.since && h("span", { class: "muted" }, ` Since ${stamp(problem.since)} (${ago(problem.since)}).`);
const UNKNOWN = () => h("p", { class: "muted" }, "Not known yet.");
const GAP_MS = 60000;
const WORDS = { ok: "All is well", warn: "Look at this", bad: "Something is wrong", unknown: "Not known yet" };

function page(data) {
  const old = data.old ? "old" : "";
  const [, into, out, bytesIn] = data.rates ?? [];
  return [
    h("section", { class: `health-card ${data.state}`, "aria-label": "Health" },
      h("h1", {}, h("span", { class: "dot" }), WORDS[data.state]),
      h("p", { id: "sentence", role: "status" }, data.sentence, data.problems.length === 1 && since(data.problems[0])),
      data.problems.length > 1 && h("ul", { class: "problems" }, data.problems.map((problem) => h("li", { class: problem.level },
        problem.link ? h("a", { href: problem.link }, problem.text) : problem.text,
        since(problem))))),
    data.old && h("p", { class: "notice warn", role: "status", id: "old" }, `The cluster does not tell its channels and durables now: what is grey is as it was at ${stamp(data.old)} (${ago(data.old)}).`),
    h("section", { class: `facts eight ${old}`, "aria-label": "In figures" },
      seesAll() && [fact("messages in", rate(into)), fact("messages out", rate(out)), fact("published", bytesIn === undefined ? "–" : `${size(Math.round(bytesIn))}/s`)],
      fact("channels", number(data.channels), "#/channels"), fact("messages kept", number(data.messages), "#/channels"),
        fact("stored", data.bytes === null ? "–" : size(data.bytes)),
      fact("durables and others", number(data.durables), "#/durables"), seesAll() && fact("clients", number(data.clients), "#/clients")),
    seesAll() && h("div", { class: "columns" },
      h("section", { class: "card" }, chart("Messages a second", [
        { name: "in", points: data.history.map((point) => [point[0], point[1]]) },
        { name: "out", points: data.history.map((point) => [point[0], point[2]]) }], rate, { gap: GAP_MS })),
      h("section", { class: "card" }, chart("Bytes a second", [
        { name: "in", points: data.history.map((point) => [point[0], point[3]]) },
        { name: "out", points: data.history.map((point) => [point[0], point[4]]) }], (value) => `${size(Math.round(value))}/s`, { gap: GAP_MS, base: 1024 }))),
    h("div", { class: "columns" },
      h("section", { class: `card ${old}` }, h("h2", {}, "Furthest behind"), !data.worst ? UNKNOWN() : data.worst.length ? h("ul", { class: "list" }, data.worst.map((row) => h("li", {},
        h("a", { href: `#/channel/${row.channel_key}` }, `${row.channel} / ${row.name}`), h("b", {}, number(row.lag)),
          level(row.level, row.state)))) : h("p", { class: "muted" }, "Nobody lags behind.")),
      h("section", { class: `card ${old}` }, h("h2", {}, "Busiest channels"),
        !data.busiest ? UNKNOWN() : data.busiest.length ? h("ul", { class: "list" }, data.busiest.map((row) => h("li", {},
        h("a", { href: `#/channel/${row.key}` }, named(row.name)), h("b", {}, rate(row.rate))))) : h("p", { class: "muted" }, "Nothing is published at the moment."))),
    h("section", { class: "card" }, h("h2", {}, "What happened", h("small", { class: "muted beside" }, `times in ${zone(Date.now())}`)), data.events.length ? h("ol", { class: "events" }, data.events.slice(0, 30).map((event) => h("li", {},
      h("time", { class: "muted" }, time(event.time)), h("span", { class: "kind" }, event.kind.replaceAll("_", " ")),
        h("span", {}, event.text)))) : h("p", { class: "muted" }, "Nothing since this node was started.")),
    h("p", { class: "muted small" }, `stan ${data.version}, as NATS Streaming Server ${data.compatible}; cluster ${data.cluster_id}.`),
  ];
}
