// The recent events.

import { byId, cells, element, reconcile, setText } from "./dom.js";
import { traceObject } from "./trace.js";
import { clockTime, short } from "./words.js";

const marks = { created: "+", snapshot: "+", updated: "~", deleted: "−", deselected: "−" };

const shown = 20;

let last = { events: [] };

export function showEvents(message) {
  last = message;
  if (message.events.length > 0) byId("no-events").hidden = true;
  reconcile(byId("events"), message.events.slice(0, shown), (e) => String(e.number), createEvent, () => {});
}

// explainNone says why there are no events.
export function explainNone(role) {
  const none = byId("no-events");
  none.hidden = last.events.length > 0;
  if (last.hidden) setText(none, "Names of objects are shown at the loopback address only, as through kubectl port-forward, or with KUBERELAY_METRICS_AUTH=true.");
  else if (role === "leading") setText(none, "No event since this forwarder began to lead.");
  else setText(none, "None: only the leader publishes.");
}

function createEvent(e) {
  const object = e.namespace ? `${e.namespace}/${e.name}` : e.name;
  const button = element("button", "object", element("span", "resource", e.resource), " ", element("span", "name", object));
  button.type = "button";
  button.title = `Trace ${e.resource} ${object}`;
  button.addEventListener("click", () => traceObject(e.resource, e.namespace ?? "", e.name));
  const time = element("time", "", clockTime(e.time));
  time.dateTime = e.time;
  const type = element("td", "type", element("span", "mark", marks[e.type] ?? "·"), ` ${e.type}`);
  const version = element("td", "number version", e.version);
  version.title = `published ${short(e.lagSeconds)} after its change was observed`;
  return cells(element("tr", "", element("td", "time", time), type, element("td", "", button), version));
}
