// Durables, queue groups and subscriptions: what each does in words, and if it gets nothing, why.

import { mayAct } from "./api.js";
import { bar } from "./chart.js";
import { listed } from "./channels.js";
import { confirm, menu } from "./dialog.js";
import { h, named } from "./dom.js";
import { explain } from "./explain.js";
import { ago, many, number } from "./format.js";
import { level } from "./table.js";

const cut = (row) => (row.window_now < row.window ? `, window cut to ${number(row.window_now)}` : "");
const window_ = (row) => bar(row.pending / (row.window || 1), `${number(row.pending)} of ${number(row.window)} in flight${cut(row)}`, row.level);

/** The state, and why it gets nothing; the reason is left out if all is well. */
export const state = (row) => [level(row.level, row.state), row.level !== "ok" && h("small", { class: "why" }, row.text)];

/** Who shares a queue group, and what each has in flight. */
function members(row) {
  if (row.members.length < 2) return null;
  const evict = (member) => confirm({ title: `Put ${member.client} out of ${row.name}?`,
    text: "Its subscription is closed; what it has in flight goes to the others.", button: "Put it out", action: "evict_member",
    make: () => ({ channel: row.channel_key, subscription: member.subscription }) });
  return h("details", { "data-key": "members" }, h("summary", {}, many(row.members.length, "member")),
    h("ul", { class: "members" }, row.members.map((member) => h("li", { "data-key": member.subscription },
    `${member.client}: ${number(member.pending)} of ${number(member.window)} in flight${cut(member)}`,
    `${member.active ? ", active" : ""}${member.failing ? ", not answering" : ""} `, mayAct() && row.may !== false && h("button", { type: "button", class: "small", onclick: () => evict(member) }, "Put out…")))));
}

const owner = (row) => (row.client && row.client !== row.name && row.members.length < 2 ? [" of ", named(row.client)] : "");

export const COLUMNS = [
  { name: "Name", sort: "name", cell: (row) => [h("b", {}, named(row.name)), h("small", { class: "muted" }, row.kind, owner(row)), members(row)] },
  { name: "Channel", cell: (row) => h("a", { href: `#/channel/${row.channel_key}` }, named(row.channel)) },
  { name: "State", sort: "state", cell: (row) => state(row) },
  { name: "Lag", sort: "lag", number: true, cell: (row) => [number(row.lag),
    row.held_back > 0 && h("small", { class: "muted" }, `${number(row.held_back)} held back by the order by key`)] },
  { name: "Pending", sort: "pending", number: true, cell: (row) => [number(row.pending), window_(row)] },
  { name: "Position", number: true, cell: (row) => [h("a", { href: `#/channel/${row.channel_key}?seq=${row.acked + 1}` },
    number(row.acked)), h("small", { class: "muted" }, `of ${number(row.last)}`),
    h("button", { type: "button", class: "small", onclick: () => explain(row) }, "Explain…")] },
  { name: "Last ack", number: true, cell: (row) => ago(row.last_ack) },
];

/** What can be done with one, where something may be done. */
export function actions(row, done) {
  if (!mayAct() || row.may === false) return null;
  const which = { channel: row.channel_key, cursor: row.cursor };
  const name = `${row.name} on ${row.channel}`;
  const ask = (action, title, text, button, fields, make) =>
    confirm({ action, title, text, button, fields, done, make: (values) => ({ ...which, ...(make ? make(values) : {}) }) });
  const deed = (text, call) => [text, call];
  return menu(name, [
    row.paused
      ? deed("Resume…", () => ask("resume", `Resume ${name}?`, `It gets what is waiting: ${many(row.lag, "message")}.`, "Resume"))
      : deed("Pause…", () => ask("pause", `Pause ${name}?`, "Nothing is sent to it until it is resumed; acks count.", "Pause")),
    deed("Move…", () => ask("move", `Move ${name}`, "The next message it gets. What is pending before is let go of; what follows is sent, also what it had already.", "Move",
      [{ name: "sequence", label: "Next sequence", type: "number", min: 1, value: row.acked + 1 }], (values) => ({ to: "sequence", sequence: Number(values.sequence) }))),
    deed("Back in time…", () => ask("move", `Move ${name} to a time`, "It gets all messages from then on, also what it had already.", "Move",
      [{ name: "time", label: "From", type: "datetime-local" }], (values) => ({ to: "time", time: new Date(values.time).getTime() }))),
    row.pending > 0 && deed("Skip…", () => ask("skip", `Skip a message of ${name}`, "It counts as acknowledged and is not sent again.", "Skip",
      [{ name: "sequence", label: "Sequence", type: "number", min: 1, value: row.acked + 1 }], (values) => ({ sequence: Number(values.sequence) }))),
    row.pending > 0 && deed("Send again…", () => ask("redeliver", `Send what is pending for ${name} again?`,
      `${many(row.pending, "message")}, flagged as redelivered.`, "Send again")),
    deed("Delete…", () => ask("delete_cursor", `Delete ${name}?`, "Its position is lost, and its members get nothing any more. This cannot be taken back.", "Delete"))]);
}

export function durables(context) {
  const filter = (data, go) => h("label", { class: "filter", "data-key": "filter" }, h("span", { class: "unseen" }, "State"),
    h("select", { "data-value": context.params.state ?? "", onchange: (event) => go({ state: event.target.value }) },
      h("option", { value: "" }, "Every state"), Object.entries(data.states).sort().map(([word, count]) =>
        h("option", { value: word, selected: context.params.state === word }, `${word} (${number(count)})`))));
  const columns = mayAct() ? [...COLUMNS, { name: "Change", cell: (row) => actions(row, context.refresh) }] : COLUMNS;
  return listed(context, { title: "Durables and queue groups", name: "durables", columns,
    keyOf: (row) => `${row.channel_key}/${row.cursor}`, sort: "state", label: "Search durables, channels, clients", filter });
}
