// News of the server while the page is seen: by a stream, or by asking where there is none to be had.

import { ask } from "./api.js";

const POLL_MS = 4000;
const AGAIN_MS = 30000;

export class Live {
  /** *heard*(news), *lost*(text); *how*("stream" | "poll" | "off"). */
  constructor(heard, lost, how) {
    Object.assign(this, { heard, lost, how, stream: null, timer: 0, streamAt: 0 });
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.start()));
  }

  start() {
    this.stop();
    this.streamAt = Date.now() + AGAIN_MS;
    const stream = (this.stream = new EventSource("/api/v1/live"));
    stream.onmessage = (event) => {
      this.how("stream");
      this.heard(JSON.parse(event.data));
    };
    stream.onerror = () => {
      if (this.stream !== stream) return;
      stream.close();
      this.stream = null;
      this.poll();
    };
  }

  stop() {
    this.stream?.close();
    this.stream = null;
    clearTimeout(this.timer);
    this.timer = 0;
    this.how("off");
  }

  async poll() {
    try {
      const news = await ask("news");
      this.how("poll");
      this.heard(news);
    } catch (error) {
      this.how("off");
      this.lost(error.message);
    }
    if (this.stream || document.hidden) return;
    this.timer = setTimeout(() => (Date.now() > this.streamAt ? this.start() : this.poll()), POLL_MS);
  }
}
