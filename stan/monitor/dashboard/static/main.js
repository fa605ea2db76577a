// Which page is seen, by the address behind the #; and what stands around it: health, navigation, colours, news.

import { begin, logOut, onUnknown, seesAll, user } from "./api.js";
import { channel } from "./channel.js";
import { channels } from "./channels.js";
import { clients } from "./clients.js";
import { cluster } from "./cluster.js";
import { config } from "./config.js";
import { deadLetters } from "./deadletters.js";
import { draw, h } from "./dom.js";
import { durables } from "./durables.js";
import { ago, clock, now, stamp } from "./format.js";
import { Live } from "./live.js";
import { login } from "./login.js";
import { metrics } from "./metrics.js";
import { overview } from "./overview.js";
import { schema, schemas } from "./schemas.js";
import * as theme from "./theme.js";

const PAGES = {
  "": ["Overview", overview],
  channels: ["Channels", channels],
  durables: ["Durables", durables],
  deadletters: ["Dead letters", deadLetters],
  schemas: ["Schemas", schemas],
  clients: ["Clients", clients],
  cluster: ["Cluster", cluster],
  metrics: ["Metrics", metrics],
  config: ["Configuration", config],
};
const OTHERS = { channel: ["", channel], schema: ["", schema] };
const ABOVE = { channel: "channels", schema: "schemas" };
const OF_EVERYTHING = ["clients", "cluster", "metrics", "config"]; // not for those who may see some channels only
const LIVE = { stream: "Live", poll: "Asking every few seconds", off: "Not live" };

const main = document.getElementById("main");
let page = null;
let route = "";
let planned = 0;
let known = true; // the server knows who looks, or does not ask

function read() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/"), params: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

const context = {
  path: [],
  params: {},
  redraw: () => {
    planned ||= requestAnimationFrame(render);
  },
  refresh: () => page?.refresh(),
  go: (hash) => (location.hash = hash),
  /** Other parameters of the same page, without another step in the history. */
  query: (params, then) => {
    const kept = Object.entries(params).filter(([, value]) => value !== "" && value !== undefined);
    const text = new URLSearchParams(kept).toString();
    history.replaceState(null, "", `#/${context.path.join("/")}${text ? `?${text}` : ""}`);
    context.params = Object.fromEntries(kept.map(([name, value]) => [name, String(value)]));
    if (then) then();
    else page?.navigate?.();
    context.redraw();
  },
};

/** A page that is none. */
function unknown({ path }) {
  const draw_ = () => [h("div", { class: "head" }, h("h1", {}, "There is no such page")),
    h("p", {}, `Nothing is called "${path.join("/")}" here. `, h("a", { href: "#/" }, "To the overview"))];
  return { title: "No such page", draw: draw_, refresh: () => {}, close: () => {} };
}

function render() {
  planned = 0;
  if (page) draw(main, [page.draw()]);
}

function turn() {
  if (!known) return;
  const { path, params } = read();
  const name = path[0];
  const [, make] = PAGES[name] ?? OTHERS[name] ?? ["", unknown];
  const same = page !== null && route === path.join("/");
  Object.assign(context, { path, params });
  if (same) {
    page.navigate?.();
  } else {
    page?.close();
    page = null;
    main.replaceChildren();
    route = path.join("/");
    page = make(context);
    document.title = `${page.title} – stan`;
    if (document.activeElement !== document.body) main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  navigation(name);
  context.redraw();
}

function navigation(name) {
  const here = ABOVE[name] ?? name;
  const pages = known ? Object.entries(PAGES).filter(([path]) => seesAll() || !OF_EVERYTHING.includes(path)) : [];
  draw(document.getElementById("pages"), pages.map(([path, [text]]) =>
    h("li", {}, h("a", { href: `#/${path}`, "aria-current": path === here ? "page" : null }, text))));
}

function health(state, sentence) {
  const link = document.getElementById("health");
  link.dataset.state = state;
  link.lastElementChild.textContent = { ok: "Healthy", warn: "Warning", bad: "Trouble", unknown: "Unknown" }[state] ?? state;
  link.title = sentence;
}

const OLD_MS = 15000;
let newsAt = 0;

/** What is shown is from when there were news last; "": it is how things are. */
function lost(text, state = "bad") {
  const notice = document.getElementById("lost");
  notice.hidden = !text;
  notice.textContent = !text ? "" : `${text}.${newsAt ? ` What is shown is as it was at ${stamp(newsAt)} (${ago(newsAt)}).` : ""}`;
  main.toggleAttribute("data-lost", Boolean(text));
  if (text) health(state, text);
}

const live = new Live(
  (news) => {
    clock(news.now);
    newsAt = news.now;
    lost("");
    health(news.state, news.sentence);
    page?.refresh();
  },
  lost,
  (how) => {
    const place = document.getElementById("live");
    place.dataset.live = how;
    place.title = LIVE[how];
    place.textContent = how === "off" ? "" : how === "stream" ? "live" : "polling";
  },
);

theme.begin(document.getElementById("theme"));
document.querySelector(".skip").onclick = (event) => {
  event.preventDefault();
  main.focus();
};

/** Show who looks, and the way out. */
function who() {
  const place = document.getElementById("user");
  draw(place, known && user() ? [h("span", { class: "muted" }, user()), " ",
    h("button", { type: "button", class: "quiet", id: "log-out", onclick: () => logOut().catch(() => {}).finally(askWho) }, "Log out")] : []);
}

/** In place of all pages: who is it? */
function askWho() {
  if (!known) return;
  known = false;
  live.stop();
  page?.close();
  route = "";
  document.getElementById("lost").hidden = true;
  document.getElementById("health").hidden = true;
  main.toggleAttribute("data-lost", false);
  main.replaceChildren();
  page = login(context, start);
  document.title = `${page.title} – stan`;
  navigation("");
  who();
  context.redraw();
  requestAnimationFrame(() => document.querySelector("[name=user]")?.focus());
}

async function start() {
  try {
    const { cluster: name, node } = await begin();
    document.getElementById("cluster").textContent = node ? `${name} · ${node}` : name;
    if (!known) {
      page = null;
      main.replaceChildren();
    }
    known = true;
    document.getElementById("health").hidden = false;
  } catch {
    // it only shows then, or asks who it is
  }
  if (!known) return;
  who();
  turn();
  live.start();
}

onUnknown(askWho);
navigation(read().path[0]);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && known && newsAt && now() - newsAt > OLD_MS) lost("Asking again", "unknown");
});
addEventListener("hashchange", turn);
await start();
