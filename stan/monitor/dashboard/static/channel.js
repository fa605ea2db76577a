// One channel: how full it is, how fast, who reads it, and its messages; of one with parts what they are.

import { ask, mayAct } from "./api.js";
import { Query, shown } from "./query.js";
import { bar, chart } from "./chart.js";
import { confirm } from "./dialog.js";
import { h } from "./dom.js";
import { COLUMNS, actions } from "./durables.js";
import { ago, lasting, many, now, number, rate, size, span } from "./format.js";
import { messages } from "./messages.js";
import { table } from "./table.js";
import { parted } from "./parted.js";

const OWN = COLUMNS.filter((column) => column.name !== "Channel").map(({ sort, ...column }) => column);

export function channel(context) {
  const key = context.path[1] ?? "";
  const query = new Query((_, signal) => ask("channel", { name: key }, signal), context.redraw);
  const browser = messages(key, context, () => query.refresh());
  query.want({});
  let name = key;
  try {
    name = decodeURIComponent(key);
  } catch {
    // bytes that are no text; the server tells what it shows of them
  }
  const draw = () => {
    const data = query.data;
    return [
      h("p", { class: "trail" }, h("a", { href: "#/channels" }, "Channels"), " /",
        data?.whole && [" ", h("a", { href: `#/channel/${data.whole}` }, data.whole_name), " /"],
        data && !data.parts && h("span", { class: "muted" }, ` group ${data.group}`)),
      h("div", { class: "head" }, h("h1", { class: "name" }, data?.name ?? name),
        data && !data.parts && mayAct() && buttons(data, () => { query.refresh(); browser.newest(); }, context)),
      shown(query, (found) => (found.parts ? parted(found) : page(context, query)(found))),
      data && !data.parts && (data.may.read ? browser.draw(data) : h("p", { class: "muted", id: "unread" }, "You may not read the messages of this channel.")),
    ];
  };
  return { title: name, draw, refresh: () => { query.refresh(); browser.refresh(); }, navigate: () => browser.navigate(), close: () => { query.close(); browser.close(); } };
}

function buttons(data, done, context) {
  const channel_ = { channel: data.key };
  const deed = (id, text, call) => h("button", { type: "button", id, onclick: call }, text);
  const { may } = data;
  return h("div", { class: "actions" },
    may.publish && deed("publish", "Publish…", () => confirm({ title: `Publish to ${data.name}`, text: "Subscribers get it like any other message.", button: "Publish", action: "publish",
      fields: [{ name: "text", label: "Message", type: "textarea", required: false }], make: (values) => ({ ...channel_, text: values.text }), done })),
    may.change && deed("purge", "Purge…", () => confirm({ title: `Purge ${data.name}?`, button: "Purge", action: "purge", done,
      text: `It holds ${many(data.messages, "message")}, sequences ${number(data.first)} to ${number(data.last)}. `
        + "All but so many of the newest are removed for good; who has not got them will not get them.",
      fields: [{ name: "keep", label: "Newest to keep", type: "number", min: 0, value: 0 }], make: (values) => ({ ...channel_, keep: Number(values.keep) }) })),
    may.change && deed("limits", "Limits…", () => confirm({ title: `Limits of ${data.name}`,
      text: "In force at once, over those of the configuration; what is beyond them is removed. 0: no limit.", button: "Set",
      action: "edit_limits", done,
      fields: [{ name: "max_msgs", label: "Messages", type: "number", min: 0, value: data.limits.max_msgs ?? 0 },
        { name: "max_bytes", label: "Bytes", type: "number", min: 0, value: data.limits.max_bytes ?? 0 },
        { name: "max_age", label: "Age, seconds", type: "number", min: 0, value: data.limits.max_age ?? 0 }],
      make: (values) => ({ ...channel_, ...changed(values, data.limits) }) })),
    may.change && data.edited.length > 0 && deed("reset", "Limits as configured…",
      () => confirm({ title: `Limits of ${data.name} as configured?`,
      text: "What was edited is forgotten; what is beyond the limits of the configuration is removed.", button: "Reset",
      action: "edit_limits", make: () => ({ ...channel_, reset: true }), done })),
    may.change && deed("delete", "Delete…", () => confirm({ title: `Delete ${data.name}?`,
      text: `Its ${many(data.messages, "message")}${data.delayed ? `, ${many(data.delayed, "delayed message")}` : ""} and its subscriptions are gone then. This cannot be taken back.`,
      word: data.name, button: "Delete", action: "delete_channel",
      make: () => ({ ...channel_, uid: data.uid }), done: () => context.go("#/channels") })));
}

/** The limits that somebody has changed; ages in ms. */
function changed(values, before) {
  const found = Object.entries(values).filter(([name, value]) => Number(value) !== (before[name] ?? 0));
  if (!found.length) throw new Error("Nothing is changed yet.");
  return Object.fromEntries(found.map(([name, value]) => [name, Number(value) * (name === "max_age" ? 1000 : 1)]));
}

const fill = (used, most, text) => (most ? bar(used / most, text, used / most > 0.95 ? "warn" : "") : null);

const compressed = ({ clear, kept }, fact) => (kept
  ? fact(`compressed, ${(clear / kept).toFixed(1)} times smaller`, size(kept))
  : fact("to be compressed", "nothing yet"));

const STAYS = { newest: "the newest message of a key stays", oldest: "the oldest message of a key stays", none: "by no policy any more" };

/** How far a channel is compacted by key. */
function compacted(told, fact) {
  const held = told.held ? `up to ${number(told.held)}, until ${told.held_by || "a subscription without a durable name"} has passed them` : "none";
  return h("section", { class: "facts", id: "compaction", "aria-label": "Compaction by key" },
    fact(`compacted of ${number(told.until)}: ${STAYS[told.stays] ?? told.stays}`, number(told.here)),
    fact(told.passes ? `last pass, ${many(told.passes, "time")} since the log was opened` : "last pass", told.ended ? ago(told.ended) : "–"),
    fact("saved by compaction", size(told.saved)),
    fact("tombstones may be gone up to", number(told.tombstones_until)),
    fact("tombstones that wait", held));
}

const WEEK_MS = 7 * 86400000;
const WEEK_GAP_MS = 900000; // a step without a large lag is not there
const page = (context, query) => (data) => {
  const { limits } = data;
  const age = data.first_time && data.messages ? (Date.now() - data.first_time) / 1000 : 0;
  const fact = (name, value, extra) => h("div", { class: "fact" }, h("b", {}, value), h("span", { class: "muted" }, name), extra);
  const lags = data.durables.filter((row) => row.trend.length > 1).sort((a, b) => b.lag - a.lag).slice(0, 4);
  const weeks = data.durables.filter((row) => row.week.length > 1).sort((a, b) => b.lag - a.lag).slice(0, 4);
  const cut = data.durables.filter((row) => row.windows.length > 1 && row.windows.some(([, window]) => window < row.window)).slice(0, 4);
  return [
    h("section", { class: "facts", "aria-label": "In figures" },
      fact(limits.max_msgs ? `of ${number(limits.max_msgs)} messages` : "messages", number(data.messages), fill(data.messages, limits.max_msgs, "filled by count")),
      fact(limits.max_bytes ? `of ${size(limits.max_bytes)}` : "stored", size(data.bytes), fill(data.bytes, limits.max_bytes, "filled by size")),
      fact(limits.max_age ? `oldest, of ${span(limits.max_age)}` : "oldest", age ? span(age) : "–", fill(age, limits.max_age, "filled by age")),
      fact("sequences", data.last ? `${number(data.first)} – ${number(data.last)}` : "–"),
      fact("published", rate(data.rate)), fact("newest", data.messages ? ago(data.last_time) : "–"),
      fact("acked once a majority has it", data.on_disk ? "on disk" : "in memory"),
      ...(data.compression ? [compressed(data.compression, fact)] : []),
      ...(data.ttl ? [fact("time to live", lasting(data.ttl))] : []),
      ...(data.delayed ? [fact("delayed, on their way", number(data.delayed))] : [])),
    data.compaction && compacted(data.compaction, fact),
    h("div", { class: "columns" },
      h("section", { class: "card" }, chart("Published a second", [{ name: "in", points: data.pace }], rate)),
      h("section", { class: "card" }, chart("Lag", lags.map((row) => ({ name: row.name, points: row.trend })), number)),
      weeks.length > 0 && h("section", { class: "card", id: "week" }, chart("Lag over a week", weeks.map((row) => ({ name: row.name, points: row.week })), number,
        { begin: now() - WEEK_MS, end: now(), gap: WEEK_GAP_MS })),
      cut.length > 0 && h("section", { class: "card" }, chart("Adaptive window", cut.map((row) => ({ name: row.name, points: row.windows })), number))),
    h("section", { class: "card" }, h("h2", {}, "Who reads it"), data.durables.length
      ? table("Durables, queue groups and subscriptions",
        mayAct() && data.may.change ? [...OWN, { name: "Change", cell: (row) => actions(row, () => query.refresh()) }] : OWN, data.durables,
        (row) => row.cursor)
      : h("p", { class: "muted" }, "Nobody is subscribed.")),
  ];
};
