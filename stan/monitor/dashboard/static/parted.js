// A channel with parts: its sums, where its parts are, what is wrong with them, and who reads them. Messages are on the pages of the parts.

import { partsOf } from "./channels.js";
import { h, named } from "./dom.js";
import { state } from "./durables.js";
import { ago, number, rate, size } from "./format.js";
import { table } from "./table.js";

const share = (part, all) => (all ? `${Math.floor((100 * part) / all)} %` : "–");

const columns = (all) => [
  { name: "Part", cell: (row) => h("a", { href: `#/channel/${row.key}` }, named(row.name)) },
  { name: "Group", cell: (row) => [`${row.group} `, h("span", { class: "muted" }, row.leader || "without a leader")] },
  { name: "Messages", number: true, cell: (row) => number(row.messages) },
  { name: "Share", number: true, cell: (row) => share(row.messages, all) },
  { name: "Size", number: true, cell: (row) => size(row.bytes) },
  { name: "Newest", number: true, cell: (row) => number(row.last) },
  { name: "Rate", number: true, cell: (row) => rate(row.rate) },
  { name: "Lag", number: true, cell: (row) => number(row.lag) },
  { name: "Last message", number: true, cell: (row) => ago(row.last_time) },
];

const readers = (of) => [
  { name: "Name", cell: (row) => [h("b", {}, named(row.name)), h("small", { class: "muted" }, row.kind)] },
  { name: "Parts", number: true, cell: (row) => `${number(row.parts)} of ${number(of)}` },
  { name: "State", cell: (row) => state(row) },
  { name: "Lag", number: true, cell: (row) => number(row.lag) },
  { name: "Pending", number: true, cell: (row) => number(row.pending) },
  { name: "Last ack", number: true, cell: (row) => ago(row.last_ack) },
];

export function parted(data) {
  const fact = (name, value) => h("div", { class: "fact" }, h("b", {}, value), h("span", { class: "muted" }, name));
  return [
    data.faults.map((fault, at) => h("p", { class: "notice warn", role: "status", "data-key": `fault ${at}` }, fault.text)),
    h("section", { class: "facts", "aria-label": "In figures" },
      fact("", partsOf(data)), fact("messages", number(data.messages)), fact("stored", size(data.bytes)), fact("published", rate(data.rate)),
      fact("newest", data.messages ? ago(data.last_time) : "–")),
    h("section", { class: "card" }, h("h2", {}, "Its parts"), table("Parts", columns(data.messages), data.parts, (row) => row.key)),
    h("section", { class: "card" }, h("h2", {}, "Who reads it"), data.durables.length
      ? table("Durables, queue groups and subscriptions", readers(data.of), data.durables, (row) => `${row.kind}/${row.client}/${row.name}`)
      : h("p", { class: "muted" }, "Nobody is subscribed.")),
  ];
}
