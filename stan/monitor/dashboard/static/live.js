// News of the server while the page is seen: by a stream, or by asking where there is none to be had.

import { ask } from "./api.js";

const POLL_MS = 4000;
const AGAIN_MS = 30000;
const SILENT_MS = 8000; // a stream tells something every two seconds; no news for so long are no good news

export class Live {
  /** *heard*(news), *lost*(text); *how*("stream" | "poll" | "off"). */
  constructor(heard, lost, how) {
    Object.assign(this, { heard, lost, how, stream: null, timer: 0, silence: 0, streamAt: 0, wanted: false });
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.pause();
      else if (this.wanted) this.start();
    });
  }

  start() {
    this.pause();
    this.wanted = true;
    this.streamAt = Date.now() + AGAIN_MS;
    const stream = (this.stream = new EventSource("/api/v1/live"));
    const watch = () => {
      clearTimeout(this.silence);
      this.silence = setTimeout(() => {
        this.lost("The server does not answer");
        stream.onerror();
      }, SILENT_MS);
    };
    watch();
    stream.onmessage = (event) => {
      watch();
      this.how("stream");
      this.heard(JSON.parse(event.data));
    };
    stream.onerror = () => {
      if (this.stream !== stream) return;
      stream.close();
      this.stream = null;
      clearTimeout(this.silence);
      this.poll();
    };
  }

  /** No news until `start`. */
  stop() {
    this.wanted = false;
    this.pause();
  }

  pause() {
    this.stream?.close();
    this.stream = null;
    clearTimeout(this.timer);
    clearTimeout(this.silence);
    this.timer = 0;
    this.how("off");
  }

  async poll() {
    try {
      const news = await ask("news", {}, AbortSignal.timeout(SILENT_MS));
      if (!this.wanted) return;
      this.how("poll");
      this.heard(news);
    } catch (error) {
      if (!this.wanted) return;
      this.how("off");
      this.lost(error.name === "TimeoutError" ? "The server does not answer" : error.message);
    }
    if (this.stream || document.hidden) return;
    this.timer = setTimeout(() => (Date.now() > this.streamAt ? this.start() : this.poll()), POLL_MS);
  }
}
