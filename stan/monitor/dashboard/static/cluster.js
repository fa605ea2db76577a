// The nodes, and which of them leads which group.

import { ask, mayChangeAll } from "./api.js";
import { Query, shown } from "./query.js";
import { bar } from "./chart.js";
import { confirm } from "./dialog.js";
import { h } from "./dom.js";
import { ago, now, number, size, stamp } from "./format.js";
import { level } from "./table.js";

const NAME = (group) => (group ? `Group ${group}` : "Metadata");
const OLD_MS = 15000; // nodes are asked every ten seconds at least
const MARKS = { leader: "★", follower: "●", candidate: "?", observer: "○" };

export function cluster(context) {
  const query = new Query((_, signal) => ask("cluster", {}, signal), context.redraw);
  query.want({});
  return { title: "Cluster", draw: () => [h("div", { class: "head" }, h("h1", {}, "Cluster")),
    shown(query, (data) => page(data, context))], refresh: () => query.refresh(), close: () => query.close() };
}

function page(data, context) {
  const numbers = Array.from({ length: data.groups + 1 }, (_, at) => at);
  return [
    h("section", { class: "nodes", "aria-label": "Nodes" }, data.nodes.map(card)),
    h("section", { class: "card" }, h("h2", {}, "Who leads what"),
      h("p", { class: "muted small" }, "★ leader, ● follower, with the entries it is behind, ○ copy without a vote."),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Groups and nodes" },
        h("table", { class: "matrix" }, h("caption", { class: "unseen" }, "The role of each node in each group"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Group"),
          data.nodes.map((node) => h("th", { scope: "col" }, node.name)),
          mayChangeAll() && data.clustered && h("th", { scope: "col" }, "Change"))),
        h("tbody", {}, numbers.map((number_) => h("tr", { "data-key": number_ }, h("th", { scope: "row" }, NAME(number_)),
          data.nodes.map((node) => cell(node, number_, data.nodes)),
          mayChangeAll() && data.clustered && h("td", {}, data.nodes.some((node) => !node.silent && node.groups[number_]?.role === "leader")
            && h("button", { type: "button", class: "small", onclick: () => stepDown(number_, context) }, "Hand over…")))))))),
  ];
}

function stepDown(group, context) {
  confirm({ title: `Hand over ${NAME(group)}?`,
    text: "Another node leads it then. Publishing to its channels pauses for a fraction of a second.", button: "Hand over",
    action: "step_down", make: () => ({ group }), done: context.refresh });
}

function card(node) {
  const bad = node.silent || node.not_ready.length > 0;
  const used = 1 - node.disk_free / (node.disk_total || 1);
  return h("article", { class: `card node ${bad ? "bad" : "ok"}`, "data-key": node.id },
    h("h2", {}, h("span", { class: "dot" }), node.name, node.replica && h("small", { class: "muted" }, " read replica")),
    node.silent ? level("bad", `does not answer since ${stamp(node.silent)} (${ago(node.silent)})`)
      : now() - node.asked > OLD_MS ? level("warn", `as it was at ${stamp(node.asked)} (${ago(node.asked)})`)
        : node.not_ready.length ? h("ul", {}, node.not_ready.map((why) => h("li", {}, why)))
          : level("ok", "ready"),
    h("dl", { class: node.silent ? "old" : "" }, h("dt", {}, "Up"), h("dd", {}, node.silent || !node.started ? "–" : ago(node.started).replace(" ago", "")), h("dt", {}, "Version"),
      h("dd", {}, node.product || "–"), ...(node.labels ? [h("dt", {}, "Labels"), h("dd", {}, node.labels)] : []),
      h("dt", {}, "Memory"), h("dd", {}, node.rss ? size(node.rss) : "–"), h("dt", {}, "Disk left"),
      h("dd", {}, node.disk_total ? [size(node.disk_free), bar(used, `${Math.round(used * 100)} % used`, used >= 0.95 ? "bad" : used >= 0.85 ? "warn" : "")] : "–"),
      h("dt", {}, "Store"), h("dd", {}, [node.store, node.sync && `sync ${node.sync}`, node.kernel && `kernel ${node.kernel}`].filter(Boolean).join(", ") || "–")));
}

function cell(node, group, nodes) {
  const of = node.groups[group];
  if (!of || node.silent) return h("td", { class: "none" }, node.silent ? "?" : "–");
  const leader = nodes.find((other) => other.groups[group]?.role === "leader" && !other.silent);
  const behind = leader?.groups[group].behind[node.id];
  const words = [of.role, of.trouble, behind ? `${number(behind)} behind` : ""].filter(Boolean).join(", ");
  return h("td", { class: `${of.role} ${of.trouble ? "bad" : ""}`, title: `${words}; term ${of.term}, entry ${number(of.applied)}${of.hash ? `, hash ${of.hash}` : ""}` },
    h("span", { "aria-hidden": "true" }, MARKS[of.role] ?? "·"), " ",
      h("span", { class: of.role === "leader" ? "" : "muted" }, of.role), behind ? h("small", {}, ` −${number(behind)}`) : null,
      of.trouble && [" ", h("small", { class: "why" }, of.trouble)]);
}
