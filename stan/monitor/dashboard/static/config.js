// The configuration in force, of each node, and where each value comes from.

import { ask } from "./api.js";
import { Query, shown } from "./query.js";
import { h } from "./dom.js";
import { search, table } from "./table.js";

export function config(context) {
  const query = new Query((_, signal) => ask("options", {}, signal), context.redraw);
  query.want({});
  const draw = () => [
    h("div", { class: "head" }, h("h1", {}, "Configuration")),
    h("div", { class: "tools" }, search("Search options", context.params.search ?? "", (text) => context.query({ ...context.params, search: text })),
      h("label", { class: "check" },
        h("input", { type: "checkbox", checked: Boolean(context.params.set),
          onchange: (event) => context.query({ ...context.params, set: event.target.checked ? "1" : "" }) }), " only what was set")),
    shown(query, (data) => page(data, context.params)),
  ];
  return { title: "Configuration", draw, refresh: () => {}, navigate: context.redraw, close: () => query.close() };
}

function page(data, params) {
  const names = [...new Set(data.nodes.flatMap((node) => node.options.map(([name]) => name)))];
  const of = data.nodes.map((node) => new Map(node.options.map((option) => [option[0], option])));
  const word = (params.search ?? "").toLowerCase();
  const rows = names.filter((name) => name.toLowerCase().includes(word) && (!params.set || of.some((map) => map.get(name) && map.get(name)[2] !== "default")));
  const differs = (name) => new Set(of.map((map) => map.get(name)?.[1])).size > 1;
  const columns = [{ name: "Option", cell: (name) => [h("code", {}, name), differs(name) && h("small", { class: "muted" }, "not the same on all nodes")] },
    ...data.nodes.map((node, at) => ({ name: node.name,
      cell: (name) => [h("span", { class: "value" }, of[at].get(name)?.[1] || "–"),
      h("small", { class: of[at].get(name)?.[2] === "default" ? "muted" : "set" }, of[at].get(name)?.[2] ?? "")] }))];
  return [h("p", { class: "muted" }, "Secrets are not shown."), rows.length ? table("Options", columns, rows, (name) => name) : h("p", { class: "empty" }, "Nothing matches.")];
}
