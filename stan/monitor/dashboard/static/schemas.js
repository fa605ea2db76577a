// The registered schemas: of which channels, which versions, and their texts.

import { ask } from "./api.js";
import { Query, shown } from "./query.js";
import { h, named } from "./dom.js";
import { moment, size } from "./format.js";
import { table } from "./table.js";

const COLUMNS = [
  { name: "Channels", cell: (row) => h("a", { href: `#/schema/${row.key}` }, named(row.pattern)) },
  { name: "Version", number: true, cell: (row) => row.version },
  { name: "Kind", cell: (row) => [row.kind, row.message && h("small", { class: "muted" }, row.message)] },
  { name: "Promise", cell: (row) => row.compatibility },
  { name: "Size", number: true, cell: (row) => size(row.size) },
  { name: "Added", cell: (row) => moment(row.at) },
];

export function schemas(context) {
  const query = new Query((_, signal) => ask("schemas", {}, signal), context.redraw);
  query.want({});
  const draw = () => [h("div", { class: "head" }, h("h1", {}, "Schemas")),
    h("p", { class: "muted intro" }, "How messages are written. Those of Avro and protobuf are shown decoded by the version that they name, or else by the newest."),
    shown(query, (data) => (data.rows.length ? table("Schemas", COLUMNS, data.rows, (row) => `${row.key}/${row.version}`)
      : h("p", { class: "empty" }, "No schema is registered.")))];
  return { title: "Schemas", draw, refresh: () => query.refresh(), close: () => query.close() };
}

/** All versions of one pattern. */
export function schema(context) {
  const key = context.path[1] ?? "";
  const query = new Query((_, signal) => ask("schema", { name: key }, signal), context.redraw);
  query.want({});
  const version = (one, at) => h("section", { class: "card", "data-key": one.version }, h("details", { open: at === 0 },
    h("summary", {}, h("b", {}, `Version ${one.version}`), ` ${one.kind}${one.message ? `, message ${one.message}` : ""}, ${size(one.size)}, added ${moment(one.at)}`),
    h("pre", { class: "payload", tabindex: "0" }, one.text)));
  const draw = () => [
    h("p", { class: "trail" }, h("a", { href: "#/schemas" }, "Schemas"), " /"),
    h("div", { class: "head" }, h("h1", { class: "name" }, query.data?.pattern ?? decodeURIComponent(key))),
    shown(query, (data) => [h("p", { class: "muted" }, `Promise of a new version: ${data.versions[0].compatibility}.`), data.versions.map(version)]),
  ];
  return { title: "Schema", draw, refresh: () => {}, close: () => query.close() };
}
