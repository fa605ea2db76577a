// Questions to the server, and changes. Promises: an error is one sentence; a change carries the token of this server's process.

let session = { actions: false, token: "", header: "", user: "", all: true, changes_all: false };
let unknown = () => {};

/** *call*() whenever the server does not know who asks. */
export const onUnknown = (call) => (unknown = call);

async function answered(response) {
  let body;
  try {
    body = await response.json();
  } catch {
    body = { error: `The server answers ${response.status} ${response.statusText}` };
  }
  if (response.status === 401 && body.login) unknown();
  if (!response.ok) throw new Error(body.error || `The server answers ${response.status}`);
  return body;
}

const unreachable = (error) => (["AbortError", "TimeoutError"].includes(error.name) ? error : new Error("The server cannot be reached"));

export function address(name, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) if (value !== undefined && value !== null && value !== "") query.set(key, value);
  const text = query.toString();
  return `/api/v1/${name}${text ? `?${text}` : ""}`;
}

export async function ask(name, params, signal) {
  const response = await fetch(address(name, params), { signal, cache: "no-store" }).catch((error) => {
    throw unreachable(error);
  });
  return answered(response);
}

/** The lines of JSON of a long answer, one after the other as they come. */
export async function* lines(where, signal) {
  const response = await fetch(where, { signal, cache: "no-store" }).catch((error) => {
    throw unreachable(error);
  });
  if (!response.ok) await answered(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

export async function begin() {
  session = await ask("session");
  return session;
}

export const mayAct = () => session.actions;
export const mayChangeAll = () => session.actions && session.changes_all;
export const seesAll = () => session.all;
export const user = () => session.user;

async function post(path, fields, headers = {}) {
  const told = { "Content-Type": "application/json", ...headers };
  const response = await fetch(`/api/v1/${path}`, { method: "POST", headers: told, body: JSON.stringify(fields) }).catch((error) => {
    throw unreachable(error);
  });
  return answered(response);
}

export const logIn = (fields) => post("login", fields);
export const logOut = () => post("logout", {});
export const act = (name, fields) => post(`actions/${name}`, fields, { [session.header]: session.token });
