// What has happened to one message of a durable or queue group: each delivery and why it was made, from the servers' log.

import { ask } from "./api.js";
import { draw, h } from "./dom.js";
import { moment, number } from "./format.js";

const step = (one) => h("li", {}, h("time", { class: "muted" }, one.time ? moment(one.time) : "–"), ` ${one.text}`,
  one.leader && h("small", { class: "muted" }, ` (${one.leader})`));
const told = (found) => [
  h("ol", { class: "steps", id: "steps" }, found.steps.map(step)),
  !found.steps.length && h("p", { class: "muted" }, "The log tells of no delivery."),
  h("p", { role: "status", id: "explained" }, found.state, found.note && ` ${found.note}`)];

/** Ask for a sequence, and show what the log tells of it. */
export function explain(row) {
  const dialog = document.getElementById("dialog");
  const back = document.activeElement;
  const input = h("input", { name: "sequence", type: "number", min: 1, required: true, inputmode: "numeric", value: row.acked + 1 });
  const result = h("div", { class: "explained" });
  const close = () => {
    dialog.close();
    draw(dialog, []);
    back?.focus?.();
  };
  const submit = async (event) => {
    event.preventDefault();
    draw(result, [h("p", { class: "muted", role: "status" }, "Reading the log …")]);
    try {
      draw(result, told(await ask("explain", { name: row.channel_key, cursor: row.cursor, sequence: input.value })));
    } catch (error) {
      draw(result, [h("p", { class: "notice bad", role: "alert" }, error.message)]);
    }
  };
  dialog.oncancel = (event) => {
    event.preventDefault();
    close();
  };
  dialog.replaceChildren(h("form", { method: "dialog", onsubmit: submit },
    h("h2", { id: "dialog-title" }, `What happened to a message for ${row.name}`),
      h("p", {}, `Each delivery from channel ${row.channel} and its cause, of up to ${number(row.last)}.`),
    h("label", { class: "field" }, "Sequence", input), result,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Close"), h("button", { type: "submit" }, "Explain"))));
  dialog.showModal();
  input.focus();
}
