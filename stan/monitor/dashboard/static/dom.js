// Elements from data. Promises: text is text, never markup; no address leads elsewhere; what did not change on the page is left
// alone, so that focus, selection and scrolling stay where they are while numbers move.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "oninput", "onchange", "onsubmit", "onkeydown", "onpointermove", "onpointerleave"];
const LOCAL = /^(#|\/api\/v1\/|\/metrics|\/streaming\/|icon\.svg)/;

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element[name] = value;
    else if (name === "href" && !LOCAL.test(value)) throw new Error("an address that leads elsewhere");
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element; children are nodes, texts and lists of them. */
export function h(tag, attributes, ...children) {
  return made(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function s(tag, attributes, ...children) {
  return made(document.createElementNS(SVG, tag), attributes, children);
}

const keyOf = (node) => (node.nodeType === 1 ? node.getAttribute("data-key") : null);
const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

const WHOLE_MAX = 24; // characters that have room in one line, on a phone as well
const PIECES = /[^.\-_/:]*[.\-_/:]?/g;

/** A name: whole in one line if it is short, else broken behind its dots, dashes and the like. */
export function named(text) {
  if (text.length <= WHOLE_MAX) return h("span", { class: "whole" }, text);
  return h("span", { class: "pieces" }, text.match(PIECES).flatMap((piece) => [piece, h("wbr")]));
}

/** Make the children of an element be these, changing as little as possible. */
export function draw(parent, children) {
  const fresh = document.createElement("div");
  fresh.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  sameChildren(parent, fresh);
}

function sameChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.childNodes) {
    const key = keyOf(child);
    if (key !== null) keyed.set(key, child);
  }
  let at = old.firstChild;
  for (const want of [...fresh.childNodes]) {
    const key = keyOf(want);
    let have = key === null ? at : (keyed.get(key) ?? null);
    if (have && !alike(have, want)) have = null;
    if (have === null) {
      old.insertBefore(want, at);
      continue;
    }
    if (have === at) at = at.nextSibling;
    else old.insertBefore(have, at);
    same(have, want);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function same(old, fresh) {
  if (old.nodeType !== 1) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
  if (old.nodeName === "TEXTAREA" || old.nodeName === "INPUT") return; // what somebody types stays
  if (old.nodeName === "SELECT" && old.getAttribute("data-value") !== null && old !== document.activeElement) {
    sameChildren(old, fresh);
    old.value = old.getAttribute("data-value");
    return;
  }
  sameChildren(old, fresh);
}
