// Registered clients.

import { mayChangeAll } from "./api.js";
import { listed } from "./channels.js";
import { confirm } from "./dialog.js";
import { h, named } from "./dom.js";
import { number } from "./format.js";
import { level } from "./table.js";

const COLUMNS = [
  { name: "Client", sort: "name", cell: (row) => named(row.name) },
  { name: "State", cell: (row) => (row.failing ? level("warn", "does not answer heartbeats") : level("ok", "connected")) },
  { name: "Subscriptions", sort: "subscriptions", number: true, cell: (row) => h("a", { href: `#/durables?search=${encodeURIComponent(row.name)}` }, number(row.subscriptions)) },
  { name: "Worst lag", sort: "lag", number: true, cell: (row) => number(row.lag) },
  { name: "Pings", cell: (row) => (row.ping_interval ? `every ${row.ping_interval} s, ${row.ping_max_out} may be lost` : "none") },
];

export function clients(context) {
  const evict = (row) => confirm({ title: `Close the connection of ${row.name}?`,
    text: "As if it had closed it: its subscriptions end, its durables stay. It may connect again.", button: "Close it",
    action: "evict_client", make: () => ({ client: row.key }), done: context.refresh });
  const columns = mayChangeAll() ? [...COLUMNS, { name: "Change", cell: (row) => h("button", { type: "button", class: "small", onclick: () => evict(row) }, "Close…") }] : COLUMNS;
  return listed(context, { title: "Clients", name: "clients", columns, keyOf: (row) => row.key, sort: "name", label: "Search clients" });
}
