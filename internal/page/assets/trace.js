// The form that traces one object.

import { cluster, selected } from "./clusters.js";
import { byId, element, setMarked } from "./dom.js";
import { age, oneLine, since } from "./words.js";

let resources = []; // names of the watched resources

export function setResources(all) { resources = all; }

export function listenForTraces() {
  byId("trace").addEventListener("submit", (e) => {
    e.preventDefault();
    const f = new FormData(e.target);
    trace(resolve(f.get("resource").trim()), f.get("namespace").trim(), f.get("name").trim());
  });
}

// traceObject fills in the form and traces the object.
export function traceObject(resource, namespace, name) {
  const form = byId("trace");
  form.resource.value = resource;
  form.namespace.value = namespace;
  form.elements.namedItem("name").value = name;
  trace(resource, namespace, name);
}

// resolve finds the resource for a plural without its group, or for a singular.
function resolve(name) {
  const wanted = name.toLowerCase();
  const plural = (r) => r.split(".")[0];
  return resources.find((r) => r === wanted)
    ?? resources.find((r) => [wanted, `${wanted}s`, `${wanted}es`, wanted.replace(/y$/, "ies")].includes(plural(r)))
    ?? wanted;
}

let latest = 0; // number of the latest request; responses to earlier requests are not shown

async function trace(resource, namespace, name) {
  const number = ++latest;
  const query = new URLSearchParams({ ...selected, resource, namespace, name });
  let shown;
  try {
    const response = await fetch(`api/v1/trace?${query}`, { cache: "no-store" });
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    shown = answer(resource, namespace, name, await response.json());
  } catch (e) {
    shown = [element("p", "trace-verdict bad", `The forwarder does not respond: ${e.message}`)];
  }
  if (number === latest) byId("traced").replaceChildren(...shown);
}

const icons = ["ok", "warning", "critical"]; // by exit code

function answer(resource, namespace, name, f) {
  const v = f.verdict;
  const list = element("dl", "trace");
  const line = (title, ...parts) => {
    const text = parts.filter(Boolean).map(oneLine).join(", ");
    if (text) list.append(element("dt", "", title), element("dd", "", text));
  };
  line("object", `${resource} ${namespace ? `${namespace}/` : ""}${name}`);
  const s = f.selection;
  if (s) line("selection", { yes: "selected", no: "not selected", forbidden: "forbidden" }[s.selected] ?? "unknown", s.selector && `by ${s.selector}`, s.detail, s.filter && `filter ${s.filter}`);
  const w = f.watch;
  if (w) line("watch", w.state, w.reason, w.error && `fails${since(w.error.since)}: ${w.error.message}`, w.object === "exists" ? `version ${w.version}` : w.object, w.uid && `uid ${w.uid}`);
  if (f.role === "leading") {
    const e = f.publishError;
    line("queue", f.unsent ? `a change waits${since(f.unsent)}` : "nothing waits", f.queue?.replaceAll("_", " "), f.attempts && `${f.attempts} failed attempts`, f.decision && `decision ${f.decision}`,
      e && `last error${e.otherObject ? " of another object" : ""}${since(e.since)}: ${e.message}`, f.busUnavailable && `bus unavailable${since(f.busUnavailable.since)}`);
  }
  const c = f.checkpoint;
  if (c) line("bus", c.state === "absent" ? "nothing" : c.state, c.version && `version ${c.version}`, c.position && `at ${c.position}`, c.time && `${age(c.time)} ago`);
  line("forwarder", f.role, f.error);
  const fix = v.fix ? element("p", "fix", element("strong", "", "Fix:"), ` ${v.fix}`) : null;
  const command = `forwarder trace ${resource}/${name}${namespace ? ` -n ${namespace}` : ""}${cluster === null ? "" : ` --cluster=${cluster}`}`;
  const head = element("p", `trace-verdict code${v.exitCode}`);
  setMarked(head, icons[v.exitCode], v.summary);
  return [head, fix, list,
    element("p", "note", "This is what the forwarder knows. To also ask the API server and the bus: ", element("code", "", command))].filter(Boolean);
}
