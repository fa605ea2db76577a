// The one state machine of all pages: something is asked for, and is loading, failed or loaded.
//
// Promises: what was asked for last is what is shown, whatever was on its way and whichever answer comes first; a repeat of the
// same question that fails leaves what is shown, and says so.

import { h } from "./dom.js";

export class Asked {
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
export function shown(asked, make, key = "shown") {
  const attributes = { class: "asked", "data-key": key, "data-phase": asked.phase, "aria-busy": String(asked.phase === "loading") };
  if (asked.phase === "failed") {
    return h("div", attributes, h("div", { class: "notice bad", role: "alert" },
      h("p", {}, asked.error), h("button", { type: "button", onclick: () => asked.want(asked.params) }, "Try again")));
  }
  if (asked.data === null) return h("div", attributes, h("p", { class: "waiting", role: "status" }, "Loading…"));
  const stale = asked.error && h("p", { class: "notice warn", role: "status" }, `Not up to date: ${asked.error}`);
  return h("div", attributes, stale, make(asked.data));
}
