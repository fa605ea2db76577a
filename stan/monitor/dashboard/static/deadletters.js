// Dead letter channels: how much is there, of whom, and back with it. Their messages are seen on the page of the channel.

import { mayAct } from "./api.js";
import { listed } from "./channels.js";
import { confirm } from "./dialog.js";
import { h, named } from "./dom.js";
import { ago, many, number, size } from "./format.js";

const COLUMNS = [
  { name: "Channel", sort: "name", cell: (row) => h("a", { href: `#/channel/${row.key}` }, named(row.name)) },
  { name: "Messages", sort: "messages", number: true, cell: (row) => number(row.messages) },
  { name: "Size", sort: "bytes", number: true, cell: (row) => size(row.bytes) },
  { name: "Given up by", cell: (row) => row.sources.map((source) => h("div", {},
    h("a", { href: `#/channel/${source.channel_key}` }, source.channel), ` / ${source.name}`,
    source.exhausted > 0 && h("small", { class: "why" },
    `${many(source.exhausted, "message")} still pending${source.fault ? `: ${source.fault}` : ""}`))) },
  { name: "Last message", sort: "active", number: true, cell: (row) => ago(row.last_time) },
];

/** Puts dead letters of a channel back: those of a range, or one. */
export function redrive(key, name, first, last, done) {
  const one = first === last;
  return confirm({ title: one ? `Put dead letter ${number(first)} of ${name} back?` : `Put dead letters of ${name} back`, action: "redrive", button: "Put back", done,
    text: "They go behind the newest message of the channel that they come from, and all who read it get them. What was put back three times stays.",
    fields: one ? [] : [{ name: "first", label: "From sequence", type: "number", min: 1, value: first },
      { name: "last", label: "To sequence", type: "number", min: 1, value: last }],
    make: (values) => ({ channel: key, first: Number(values.first ?? first), last: Number(values.last ?? last) }) });
}

export function deadLetters(context) {
  const columns = mayAct() ? [...COLUMNS, { name: "Change",
    cell: (row) => row.may && row.messages > 0 && h("button",
    { type: "button", class: "small", onclick: () => redrive(row.key, row.name, row.first, row.last, context.refresh) },
    "Put back…") }] : COLUMNS;
  return listed(context, { title: "Dead letters", name: "dead_letters", columns, keyOf: (row) => row.key, sort: "name", label: "Search dead letter channels" });
}
