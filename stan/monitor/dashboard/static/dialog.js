// Asking back before something is changed, and saying what came of it.

import { act } from "./api.js";
import { draw, h } from "./dom.js";

export function toast(text, level = "ok") {
  const line = h("p", { class: `toast ${level}` }, text);
  document.getElementById("toasts").append(line);
  setTimeout(() => line.remove(), level === "ok" ? 6000 : 12000);
}

/** A button that leads to what can be done with one thing; *choices*: [[text, call], …]. */
export function menu(title, choices) {
  const open = () => {
    const dialog = document.getElementById("dialog");
    const back = document.activeElement;
    const close = () => {
      dialog.close();
      draw(dialog, []);
      back?.focus?.();
    };
    dialog.oncancel = (event) => {
      event.preventDefault();
      close();
    };
    dialog.replaceChildren(h("h2", { id: "dialog-title" }, title), h("div", { class: "choices" },
      choices.filter(Boolean).map(([text, call]) => h("button", { type: "button", onclick: () => { close(); call(); } }, text))),
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Cancel")));
    dialog.showModal();
    dialog.querySelector("button").focus();
  };
  return h("button", { type: "button", class: "small menu", "aria-haspopup": "dialog", onclick: open }, "Change…");
}

/**
 * Say what will happen, ask for values, and do it when it is confirmed.
 * *fields*: [{name, label, type, value, min}]; *make*(values) gives what the action is asked with; *word*: to be typed first.
 */
export function confirm({ title, text, fields = [], word = "", button, action, make, done = () => {} }) {
  const dialog = document.getElementById("dialog");
  const back = document.activeElement;
  const inputs = fields.map((field) => h(field.type === "textarea" ? "textarea" : "input",
    { name: field.name, type: field.type === "textarea" ? null : field.type, value: field.type === "textarea" ? null : field.value,
      min: field.min, required: field.required !== false, rows: field.type === "textarea" ? 6 : null, autocomplete: "off" }));
  const typed = word && h("input", { name: "word", type: "text", autocomplete: "off", spellcheck: "false" });
  const problem = h("p", { class: "notice bad", role: "alert", hidden: true });
  const yes = h("button", { type: "submit", class: "danger" }, button);
  if (typed) {
    yes.disabled = true;
    typed.oninput = () => (yes.disabled = typed.value !== word);
  }
  const close = () => {
    dialog.close();
    draw(dialog, []);
    back?.focus?.();
  };
  const submit = async (event) => {
    event.preventDefault();
    yes.disabled = true;
    try {
      const values = Object.fromEntries(inputs.map((input) => [input.name, input.value]));
      const answer = await act(action, make(values));
      close();
      toast(answer.text);
      done();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      yes.disabled = false;
    }
  };
  dialog.oncancel = (event) => {
    event.preventDefault();
    close();
  };
  dialog.replaceChildren(h("form", { method: "dialog", onsubmit: submit },
    h("h2", { id: "dialog-title" }, title), h("p", {}, text),
    fields.map((field, at) => h("label", { class: "field" }, field.label, inputs[at])),
    typed && h("label", { class: "field" }, `Type ${word} to go on`, typed),
    problem,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Cancel"), yes)));
  dialog.showModal();
  (typed || inputs[0] || dialog.querySelector("button")).focus();
}
