// Tables: on a phone each row is a card. Orders and pages are asked of the server, and stand in the address.

import { h } from "./dom.js";
import { number } from "./format.js";

/** *columns*: [{name, cell(row), sort, number}]; *sorting*: {sort, by(sort)}, or nothing. */
export function table(caption, columns, rows, keyOf, sorting) {
  const head = columns.map((column) => {
    if (!column.sort || !sorting) return h("th", { scope: "col", class: column.number && "number" }, column.name);
    const [up, down] = [column.sort, `-${column.sort}`];
    const state = sorting.sort === up ? "ascending" : sorting.sort === down ? "descending" : "none";
    const first = column.number ? down : up;
    const next = sorting.sort === first ? (first === up ? down : up) : first;
    return h("th", { scope: "col", class: column.number && "number", "aria-sort": state },
      h("button", { type: "button", class: "sort", "data-sort": column.sort, onclick: () => sorting.by(next) },
        column.name, h("span", { "aria-hidden": "true" }, { ascending: " ▲", descending: " ▼", none: " ↕" }[state])));
  });
  return h("table", { class: "cards" }, h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, head)),
    h("tbody", {}, rows.map((row) => h("tr", { "data-key": keyOf(row) },
      columns.map((column, at) => h(at ? "td" : "th", { class: column.number && "number", "data-label": column.name, scope: at ? null : "row" }, column.cell(row)))))));
}

/** Ways to the other pages of a table; *to*(offset). */
export function pager({ offset, matching, rows }, limit, to) {
  if (matching <= limit && !offset) return h("p", { class: "pager muted" }, `${number(matching)} shown`);
  return h("div", { class: "pager", role: "navigation", "aria-label": "Pages of the table" },
    h("button", { type: "button", disabled: offset === 0, onclick: () => to(Math.max(0, offset - limit)) }, "← Previous"),
    h("span", { class: "muted" }, `${number(matching ? offset + 1 : 0)} to ${number(offset + rows.length)} of ${number(matching)}`),
    h("button", { type: "button", disabled: offset + limit >= matching, onclick: () => to(offset + limit) }, "Next →"));
}

/** A field that is searched by while somebody types; *by*(text). */
export function search(label, value, by) {
  let timer = 0;
  return h("label", { class: "search", "data-key": "search" }, h("span", { class: "unseen" }, label),
    h("input", { type: "search", placeholder: label, value, autocomplete: "off", spellcheck: "false",
      oninput: (event) => {
        const text = event.target.value;
        clearTimeout(timer);
        timer = setTimeout(() => by(text), 120);
      } }));
}

export const level = (name, text) => h("span", { class: `level ${name}` }, text);
