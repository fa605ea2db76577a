// A payload as people read it. Promises: nothing is shown as another value than it has: JSON is laid out as it was written, numbers
// and all.

const utf8 = new TextDecoder("utf-8", { fatal: true });
const SHORT = 110; // characters that are read as well in one line
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f]/;

export const bytes = (base64) => Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));

export function text(data) {
  try {
    return utf8.decode(data);
  } catch {
    return null;
  }
}

/** JSON with line breaks; null if it is none. */
export function laidOut(source) {
  try {
    JSON.parse(source);
  } catch {
    return null;
  }
  let depth = 0;
  let out = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of source.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/gs)) {
    if (token === "{" || token === "[") {
      depth += 1;
      out += token + line();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const open = token === "}" ? "{" : "[";
      out = out.trimEnd();
      out += out.endsWith(open) ? token : line() + token;
    } else out += token === "," ? token + line() : token === ":" ? ": " : token;
  }
  return out;
}

/** Sixteen bytes a line: where, which, and as characters. */
export function hex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = [...data.subarray(at, at + 16)];
    const codes = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    lines.push(`${at.toString(16).padStart(6, "0")}  ${codes}  ${part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("")}`);
  }
  return lines.join("\n");
}

/** {kind, text}: as asked for, or what suits it best. */
export function viewed(data, view) {
  const plain = view === "hex" ? null : text(data);
  if (view === "text") return { kind: "text", text: plain ?? new TextDecoder().decode(data) };
  if (view === "auto" && plain !== null && plain.length <= SHORT && !CONTROL.test(plain)) return { kind: "text", text: plain };
  const json = plain !== null && view !== "hex" && (view === "json" || /^\s*[{[]/.test(plain)) ? laidOut(plain) : null;
  if (json !== null) return { kind: "json", text: json };
  if (view === "json") return { kind: "text", text: `This is no JSON:\n${plain ?? hex(data)}` };
  if (plain !== null && !CONTROL.test(plain)) return { kind: "text", text: plain };
  return { kind: "hex", text: hex(data) };
}
