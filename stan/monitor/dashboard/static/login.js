// The way in: name and password, or a token. What is typed goes to this server only, and stays nowhere in the browser.

import { logIn } from "./api.js";
import { h } from "./dom.js";

/** A page that asks who somebody is; *done*() once the server knows. */
export function login(context, done) {
  let error = "";
  let busy = false;
  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    busy = true;
    const { user, password, token } = Object.fromEntries(new FormData(event.target));
    try {
      await logIn(token ? { token } : { user, password });
      error = "";
      done();
    } catch (problem) {
      error = problem.message;
      event.target.querySelector("[name=password]").value = "";
    }
    busy = false;
    context.redraw();
  };
  const field = (label, name, type, autocomplete) => h("label", { class: "field" }, label,
    h("input", { name, type, autocomplete, autocapitalize: "off", spellcheck: "false" }));
  const draw = () => h("form", { class: "card login", "data-key": "login", onsubmit: submit, "aria-label": "Log in" },
    h("h1", {}, "Log in"),
    error && h("p", { class: "notice bad", role: "alert" }, error),
    field("User", "user", "text", "username"), field("Password", "password", "password", "current-password"),
    h("details", {}, h("summary", {}, "With a token instead"), field("Token", "token", "password", "off")),
    h("div", { class: "buttons" }, h("button", { type: "submit", id: "log-in" }, "Log in")));
  return { title: "Log in", draw, refresh: () => {}, close: () => {} };
}
