// All channels: found by a part of the name, in any order, page by page.

import { ask, mayAct } from "./api.js";
import { Query, shown } from "./query.js";
import { confirm } from "./dialog.js";
import { h, named } from "./dom.js";
import { ago, lasting, many, now, number, rate, size, stamp } from "./format.js";
import { pager, search, table } from "./table.js";

const LIMIT = 50;
const GREY_MS = 75000; // lists are made again within a minute, unless nobody answers
const OLD_MS = 8000; // it is said of what time it is

/** How many parts a channel has that are told of: `4 parts`, `2 of 4 parts`. */
export const partsOf = (row) => `${row.parts.length === row.of ? "" : `${number(row.parts.length)} of `}${many(row.of, "part")}`;

/** The parts of a channel, below it once they are asked for. */
function parts(row) {
  if (!row.parts) return null;
  return h("details", { "data-key": "parts" }, h("summary", {}, partsOf(row)), h("ul", { class: "members" }, row.parts.map((part) => h("li", { "data-key": part.key },
    h("a", { href: `#/channel/${part.key}` }, part.name),
      ` ${many(part.messages, "message")}, ${size(part.bytes)}, ${rate(part.rate)}, lag ${number(part.lag)}, group ${part.group}`))));
}

const COLUMNS = [
  { name: "Channel", sort: "name", cell: (row) => [h("a", { href: `#/channel/${row.key}` }, named(row.name)), parts(row)] },
  { name: "Messages", sort: "messages", number: true, cell: (row) => number(row.messages) },
  { name: "Size", sort: "bytes", number: true, cell: (row) => size(row.bytes) },
  { name: "Newest", sort: "last", number: true, cell: (row) => (row.parts ? "–" : number(row.last)) },
  { name: "Rate", sort: "rate", number: true, cell: (row) => rate(row.rate) },
  { name: "Lag", sort: "lag", number: true, cell: (row) => number(row.lag) },
  { name: "Subscribers", number: true, cell: (row) => [number(row.online), row.offline ? h("span", { class: "muted" }, ` + ${number(row.offline)} offline`) : null] },
  { name: "Time to live", number: true, cell: (row) => (row.ttl ? lasting(row.ttl) : "–") },
  { name: "Last message", sort: "active", number: true, cell: (row) => ago(row.last_time) },
];

/** What is missing of a list, and why. */
export function gaps(data) {
  return [
    data.missing.length > 0 && h("p", { class: "notice warn", role: "status" },
      `Without ${data.missing.length === 1 ? "group" : "groups"} ${data.missing.join(", ")}: nobody answers for ${data.missing.length === 1 ? "it" : "them"} at the moment.`),
    data.cut && h("p", { class: "notice warn", role: "status" }, "There are more than these pages look at."),
  ];
}

/** What all pages with one long table have in common. */
export function listed(context, { title, name, columns, keyOf, sort, label, filter = () => null, buttons = () => null, extra = {} }) {
  const query = new Query((params, signal) => ask(name, { limit: LIMIT, ...params }, signal), context.redraw);
  const go = (change) => context.query({ ...context.params, offset: "", ...change });
  const want = () => query.want({ ...extra, ...context.params });
  want();
  const draw = () => {
    const { params } = context;
    return [
      h("div", { class: "head" }, h("h1", {}, title), buttons()),
      h("div", { class: "tools" }, search(label, params.search ?? "", (text) => go({ search: text })), shownFilter(query, filter, go)),
      shown(query, (data) => [gaps(data),
        h("p", { class: "muted", role: "status" },
          params.search || params.state ? `${number(data.matching)} of ${number(data.total)}` : `${number(data.total)} in all`,
          now() - data.at > OLD_MS && `, as of ${stamp(data.at)}`),
        h("div", { class: now() - data.at > GREY_MS ? "old" : "" }, data.rows.length ? table(title, columns, data.rows, keyOf,
          { sort: params.sort || sort, by: (next) => go({ sort: next }) }) : h("p", { class: "empty" },
          data.total ? "Nothing matches." : "There is nothing yet.")),
        pager(data, LIMIT, (offset) => go({ offset: offset || "" }))]),
    ];
  };
  return { title, draw, refresh: () => query.refresh(), navigate: want, close: () => query.close() };
}

const shownFilter = (query, filter, go) => query.data && filter(query.data, go);

export function channels(context) {
  const create = () => confirm({ title: "Create a channel", text: "It is empty until something is published.", button: "Create", action: "create_channel",
    fields: [{ name: "name", label: "Name", type: "text" }], make: (values) => ({ channel: encodeURIComponent(values.name) }), done: context.refresh });
  return listed(context, { title: "Channels", name: "channels", columns: COLUMNS, keyOf: (row) => row.key, sort: "name", label: "Search channels",
    buttons: () => mayAct() && h("button", { type: "button", id: "create", onclick: create }, "Create…") });
}
