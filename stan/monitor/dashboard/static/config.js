// The configuration in force, of each node, and where each value comes from.

import { ask } from "./api.js";
import { Query, shown } from "./query.js";
import { h } from "./dom.js";
import { many } from "./format.js";
import { search, table } from "./table.js";

export function config(context) {
  const query = new Query((_, signal) => ask("options", {}, signal), context.redraw);
  query.want({});
  const draw = () => [
    h("div", { class: "head" }, h("h1", {}, "Configuration")),
    h("div", { class: "tools" }, search("Search options", context.params.search ?? "", (text) => context.query({ ...context.params, search: text }))),
    shown(query, (data) => page(data, context.params)),
  ];
  return { title: "Configuration", draw, refresh: () => {}, navigate: context.redraw, close: () => query.close() };
}

function page(data, params) {
  const names = [...new Set(data.nodes.flatMap((node) => node.options.map(([name]) => name)))];
  const of = data.nodes.map((node) => new Map(node.options.map((option) => [option[0], option])));
  const word = (params.search ?? "").toLowerCase();
  const rows = names.filter((name) => name.toLowerCase().includes(word));
  const differs = (name) => new Set(of.map((map) => map.get(name)?.[1])).size > 1;
  const columns = [{ name: "Option", cell: (name) => [h("code", {}, name), differs(name) && h("small", { class: "muted" }, "not the same on all nodes")] },
    ...data.nodes.map((node, at) => ({ name: node.name,
      cell: (name) => [h("span", { class: "value" }, of[at].get(name)?.[1] || "–"),
      h("small", { class: of[at].get(name)?.[2] === "default" ? "muted" : "set" }, of[at].get(name)?.[2] ?? "")] }))];
  const isSet = (name) => of.some((map) => (map.get(name)?.[2] ?? "default") !== "default");
  const [own, usual] = [rows.filter(isSet), rows.filter((name) => !isSet(name))];
  return [h("p", { class: "muted" }, "Secrets are not shown."),
    !rows.length && h("p", { class: "empty" }, "Nothing matches."),
    own.length > 0 && h("section", { "data-key": "own", id: "own" }, h("h2", {}, "Other than the default"), table("Options that were set", columns, own, (name) => name)),
    usual.length > 0 && h("details", { "data-key": "usual", id: "usual", open: Boolean(word) || !own.length }, h("summary", {}, `${many(usual.length, "option")} at the default`),
      table("Options at their defaults", columns, usual, (name) => name))];
}
