// The one state machine of all pages: something is asked for, and is loading, failed or loaded.
//
// Promises: what was asked for last is what is shown, whatever was on its way and whichever answer comes first; a repeat of the
// same question that fails leaves what is shown, and says so.

import { h } from "./dom.js";

export class Query {
  /** *ask*(params, signal) gives a promise; *changed*() draws. */
  constructor(ask, changed) {
    this.ask = ask;
    this.changed = changed;
    this.params = null;
    this.phase = "loading";
    this.data = null;
    this.of = null; // the question that the data answers
    this.error = "";
    this.stop = null;
  }

  get busy() {
    return this.stop !== null;
  }

  /** Whether the data answers what was asked for last. */
  get current() {
    return this.phase === "loaded" && this.of === this.params;
  }

  /** Another question; what is on its way is of no interest any more. */
  want(params) {
    this.params = params;
    this.phase = "loading";
    this.#go();
  }

  /** The same question again, unless it is on its way. */
  refresh() {
    if (!this.busy && this.params !== null) this.#go();
  }

  close() {
    this.stop?.abort();
    this.stop = null;
  }

  async #go() {
    this.stop?.abort();
    const stop = (this.stop = new AbortController());
    const params = this.params;
    this.changed();
    try {
      const data = await this.ask(params, stop.signal);
      if (this.stop !== stop) return;
      Object.assign(this, { data, of: params, phase: "loaded", error: "" });
    } catch (error) {
      if (this.stop !== stop) return;
      this.error = error.message || String(error);
      if (this.of !== params) this.phase = "failed";
    }
    this.stop = null;
    this.changed();
  }
}

/** What is seen of it: a place holder, the error with a way on, or what *make* makes of the data. */
export function shown(query, make, key = "shown") {
  const attributes = { class: "query", "data-key": key, "data-phase": query.phase, "aria-busy": String(query.phase === "loading") };
  if (query.phase === "failed") {
    return h("div", attributes, h("div", { class: "notice bad", role: "alert" },
      h("p", {}, query.error), h("button", { type: "button", onclick: () => query.want(query.params) }, "Try again")));
  }
  if (query.data === null) return h("div", attributes, h("p", { class: "waiting", role: "status" }, "Loading…"));
  const stale = query.error && h("p", { class: "notice warn", role: "status" }, `Not up to date: ${query.error}`);
  return h("div", attributes, stale, make(query.data));
}
