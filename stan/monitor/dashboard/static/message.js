// One message, as lists of messages show it: where it is, its key and headers, and its data as text, JSON or bytes.

import { address, mayAct } from "./api.js";
import { redrive } from "./deadletters.js";
import { h } from "./dom.js";
import { moment, number, size } from "./format.js";
import { bytes, laidOut, viewed } from "./payload.js";

/** *key*, *name*, *may*: of its channel; *view*: how data is shown; *remove*(sequence), *changed*(): what can be done with it. */
export function messageLine(message, { key, name, may, view, remove, changed }) {
  const deadLetter = message.headers.some(([header]) => header === "stan-channel");
  return h("li", { class: "message", "data-key": message.sequence, "data-sequence": message.sequence },
    h("div", { class: "about" }, h("a", { href: `#/channel/${key}?seq=${message.sequence}`, title: "Address of this message" },
      `#${number(message.sequence)}`), h("time", { class: "muted" }, moment(message.time)),
      h("span", { class: "muted" }, size(message.size)),
      message.key && h("span", { class: "key" }, `key ${message.key}`),
      message.reply && h("span", { class: "muted" }, `reply ${message.reply}`),
      !message.whole && h("a", { href: address("payload", { name: key, sequence: message.sequence }) }, "load all of it"),
      mayAct() && may.redrive && deadLetter && h("button", { type: "button", class: "small", onclick: () => redrive(key, name, message.sequence, message.sequence, changed) }, "Put back…"),
      mayAct() && may.change && h("button", { type: "button", class: "small", onclick: () => remove(message.sequence) }, "Delete…")),
    message.headers.length > 0 && h("dl", { class: "headers" }, message.headers.map(([header, value]) => [h("dt", {}, header), h("dd", {}, value)]),
      message.more_headers > 0 && [h("dt", {}, "…"), h("dd", {}, `${number(message.more_headers)} more`)]),
    decoded(message, view) ?? payload(message, view));
}

/** The data as its schema reads it; null: as it is. */
function decoded(message, view) {
  const found = message.decoded;
  if (!found || view === "text" || view === "hex") return null;
  const version = `version ${found.version} of the schema (${found.kind})`;
  if (found.misfit) return [h("p", { class: "why misfit" }, `It does not fit ${version}: ${found.misfit}`), payload(message, view)];
  if (found.text === undefined) return null;
  return [h("small", { class: "muted" }, `Decoded by ${version}`),
    h("pre", { class: "payload json", tabindex: "0", "aria-label": `Message ${message.sequence}, decoded` }, (found.whole && laidOut(found.text)) || found.text,
      found.whole ? "" : "\n… there is more")];
}

function payload(message, view) {
  const data = bytes(message.data);
  if (!data.length) return h("p", { class: "muted empty-payload" }, "empty");
  const { kind, text } = viewed(data, view);
  return h("pre", { class: `payload ${kind}`, tabindex: "0", "aria-label": `Message ${message.sequence} as ${kind}` }, text,
    message.whole ? "" : `\n… ${number(message.size)} bytes in all`);
}
