// A search of a channel's messages: what is found is shown as it is found. It ends when somebody leaves or stops it.

import { address, lines } from "./api.js";
import { h } from "./dom.js";
import { many, number, size, span } from "./format.js";

const FIELDS = ["text", "key", "header", "sequence", "since", "until"];
const millis = (text) => (text ? new Date(text).getTime() || "" : "");

/** *line*(message, channel) makes an element of a message. */
export function search(key, context, line) {
  let asked = null; // what was searched for last
  let found = [];
  let looked = null;
  let error = "";
  let stop = null;
  let begun = 0;

  const end = () => {
    stop?.abort();
    stop = null;
  };

  async function run(params, more = false) {
    end();
    const own = (stop = new AbortController());
    Object.assign(params, { name: key });
    if (!more) found = [];
    [asked, looked, error, begun] = [params, null, "", Date.now()];
    context.redraw();
    try {
      for await (const step of lines(address("search", params), own.signal)) {
        if (stop !== own) return;
        if (step.error) throw new Error(step.error);
        if (step.message) found.push(step.message);
        if (step.looked) looked = step.looked;
        context.redraw();
      }
    } catch (problem) {
      if (stop !== own) return;
      error = problem.message || String(problem);
    }
    if (stop === own) stop = null;
    context.redraw();
  }

  const submit = (event) => {
    event.preventDefault();
    const given = Object.fromEntries(FIELDS.map((name) => [name, event.target.elements[name].value.trim()]));
    run({ ...given, since: millis(given.since), until: millis(given.until), case: event.target.elements.case.checked ? 1 : "" });
  };
  const clear = () => {
    end();
    [asked, found, looked, error] = [null, [], null, ""];
    context.redraw();
  };
  const field = (label, name, attributes = {}) => h("label", { class: "field" }, label, h("input", { name, type: "text", autocomplete: "off", spellcheck: "false", ...attributes }));

  const form = () => h("form", { class: "find", id: "find", role: "search", "aria-label": "Search messages", onsubmit: submit },
    h("div", { class: "fields" }, field("Text in the data", "text"), field("Key", "key"), field("Header", "header", { placeholder: "NAME or NAME=VALUE" }),
      field("From sequence", "sequence", { type: "number", min: 1, inputmode: "numeric" }),
      field("From time", "since", { type: "datetime-local", step: 1 }), field("Up to time", "until", { type: "datetime-local", step: 1 })),
    h("div", { class: "tools" }, h("label", { class: "check" }, h("input", { type: "checkbox", name: "case" }), " upper and lower case count"),
      h("span", { class: "space" }),
      stop ? h("button", { type: "button", id: "stop-search", "data-key": "stop", onclick: () => { end(); context.redraw(); } }, "Stop")
        : asked && h("button", { type: "button", id: "clear-search", "data-key": "clear", onclick: clear }, "Clear"),
      h("button", { type: "submit", id: "start-search", "data-key": "start" }, "Search")));

  function progress() {
    if (!looked) return stop ? "Searching …" : "";
    const far = `${many(looked.messages, "message")}, ${size(looked.bytes)}`;
    const count = found.length === 1 ? "1 match" : `${number(found.length)} matches`;
    if (stop) return `${count} so far in ${far}, up to sequence ${number(looked.sequence)} (${span((Date.now() - begun) / 1000)}) …`;
    return looked.done && !looked.next ? `${count} in ${far}.` : `${count} in ${far}; the search ended at sequence ${number(looked.sequence)}.`;
  }

  const results = (channel) => asked && h("div", { class: "found", "data-key": "found" },
    error && h("p", { class: "notice bad", role: "alert" }, error),
    h("p", { class: "muted", role: "status", id: "searched" }, progress()),
    h("ol", { class: "messages" }, found.map((message) => line(message, channel))),
    !stop && looked?.next > 0 && h("button", { type: "button", id: "go-on", onclick: () => run({ ...asked, sequence: looked.next, since: "" }, true) }, "Go on from there"));

  return {
    draw: (channel) => h("details", { class: "finder", "data-key": "finder" }, h("summary", {}, "Search messages"), form(), results(channel)),
    close: end,
  };
}
