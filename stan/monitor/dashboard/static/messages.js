// The messages of a channel: the newest, from a sequence, from a time; as text, JSON or bytes.

import { ask } from "./api.js";
import { Query, shown } from "./query.js";
import { confirm } from "./dialog.js";
import { h } from "./dom.js";
import { number } from "./format.js";
import { messageLine } from "./message.js";
import { search } from "./search.js";

const LIMIT = 20;
const VIEWS = { auto: "Auto", text: "Text", json: "JSON", hex: "Hex" };

export function messages(key, context, changed) {
  const query = new Query((params, signal) => ask("messages", { name: key, limit: LIMIT, ...params }, signal), context.redraw);
  let view = "auto";
  let follow = false;
  let newest = true;
  const want = (params) => {
    newest = Object.keys(params).length === 0;
    query.want(params);
  };
  const navigate = () => {
    const seq = Number(context.params.seq);
    if (seq > 0) want({ sequence: seq, last: context.params.to });
    else if (context.params.at) want({ time: Number(context.params.at) });
    else want({});
  };
  const find = search(key, context, (message, channel) => line(message, channel));
  const from = (params) => context.query(params, navigate);
  navigate();
  const remove = (sequence, name) => confirm({ title: `Delete message ${number(sequence)} of ${name}?`,
    text: "Who has not got it yet will not get it. Its sequence stays unused.", button: "Delete", action: "delete_message",
    make: () => ({ channel: key, sequence }), done: () => { query.want({ ...query.params }); changed(); } });

  const controls = () => h("div", { class: "tools browse" },
    h("button", { type: "button", id: "newest", "aria-pressed": String(newest), onclick: () => from({}) }, "Newest"),
    h("button", { type: "button", id: "older", disabled: !query.data?.messages.length || query.data.messages[0].sequence <= query.data.first, onclick: older }, "← Older"),
    h("button", { type: "button", id: "newer",
      disabled: !query.data?.messages.length || query.data.messages.at(-1).sequence >= query.data.last,
      onclick: () => from({ seq: query.data.messages.at(-1).sequence + 1 }) }, "Newer →"),
    h("form", { class: "inline", onsubmit: (event) => { event.preventDefault(); const value = event.target.elements.seq.value; if (value) from({ seq: value }); } },
      h("label", {}, "From sequence ", h("input",
        { name: "seq", id: "from-sequence", type: "number", min: 1, inputmode: "numeric" })),
        h("button", { type: "submit", id: "go-sequence" }, "Go")),
    h("form", { class: "inline",
      onsubmit: (event) => { event.preventDefault(); const value = new Date(event.target.elements.at.value).getTime(); if (value) from({ at: value }); } },
      h("label", {}, "From time ", h("input", { name: "at", id: "from-time", type: "datetime-local", step: 1 })), h("button", { type: "submit", id: "go-time" }, "Go")),
    h("fieldset", { class: "views" }, h("legend", { class: "unseen" }, "Show as"), Object.entries(VIEWS).map(([value, name]) =>
      h("label", {}, h("input", { type: "radio", name: "view", value, checked: view === value, onchange: () => { view = value; context.redraw(); } }), name))),
    h("label", { class: "check" }, h("input", { type: "checkbox", id: "follow", onchange: (event) => { follow = event.target.checked; if (follow) from({}); } }), " follow"));

  function older() {
    const first = query.data.messages[0].sequence;
    from({ seq: Math.max(query.data.first, first - LIMIT), to: first - 1 });
  }

  const line = (message, channel) => messageLine(message, { key, name: channel.name, may: channel.may, view, remove: (sequence) => remove(sequence, channel.name),
    changed: () => { query.want({ ...query.params }); changed(); } });

  const list = (channel) => (data) => {
    const found = newest ? [...data.messages].reverse() : data.messages;
    return [h("p", { class: "muted", role: "status", id: "shown-range" },
      found.length ? `Sequences ${number(data.messages[0].sequence)} to ${number(data.messages.at(-1).sequence)}${newest ? ", newest first" : ""}` : "No messages here."),
      h("ol", { class: "messages" }, found.map((message) => line(message, channel)))];
  };

  return {
    draw: (channel) => h("section", { class: "card", id: "messages", "aria-label": "Messages" }, h("h2", {}, "Messages"), find.draw(channel), controls(), shown(query, list(channel))),
    refresh: () => { if (query.phase === "failed" || (newest && follow)) query.refresh(); },
    newest: () => query.want({ ...query.params }),
    navigate, close: () => { query.close(); find.close(); },
  };
}
