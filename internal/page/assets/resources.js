// The table of resources.

import { breakable, byId, cells, element, reconcile, setClass, setMarked, setText } from "./dom.js";
import { age, count, counted, oneLine, short, since } from "./words.js";

const states = {
  synced: { icon: "ok", level: "ok" },
  starting: { icon: "waiting", level: "warning" },
  degraded: { icon: "critical", level: "critical" },
};

const ranks = { degraded: 0, starting: 2, synced: 3 };

// rank orders failing resources first.
const rank = (r) => (r.state === "synced" && r.publishError ? 1 : ranks[r.state] ?? 0);

export function showResources(d) {
  const all = [...d.resources].sort((a, b) => rank(a) - rank(b) || a.resource.localeCompare(b.resource));
  setText(byId("resource-count"), count(all.length));
  // The error of a resource is long, so it has its own row below the resource.
  const rows = all.flatMap((r) => (failureOf(r) ? [{ r }, { r, error: true }] : [{ r }]));
  reconcile(byId("resources"), rows, (row) => (row.error ? `error of ${row.r.resource}` : row.r.resource), (row) => (row.error ? createError() : createRow(row.r)), update);
  reconcile(byId("resource-names"), d.resources, (r) => r.resource, (r) => {
    const o = element("option", "");
    o.value = r.resource;
    return o;
  }, () => {});
}

const failureOf = (r) => r.watchError ?? r.publishError;

const columns = ["State", "Objects", "Unsent", "Age", "Lag", "Published"];

function createRow(r) {
  const head = element("th", "name", ...breakable(r.resource));
  head.scope = "row";
  const row = element("tr", "", head);
  for (const name of columns) {
    const cell = element("td", name === "State" ? "state" : "number");
    cell.dataset.label = name;
    row.append(cell);
  }
  return cells(row);
}

function createError() {
  const cell = element("td", "");
  cell.colSpan = columns.length + 1;
  return cells(element("tr", "", cell));
}

function update(row, { r, error }) {
  const known = states[r.state] ?? states.degraded;
  const level = failureOf(r) && known.level === "ok" ? "warning" : known.level;
  setClass(row, error ? `error ${level}` : level);
  if (error) {
    setText(row.firstChild, errorText(r, failureOf(r)));
    return;
  }
  const [state, objects, unsent, old, lag, published] = row.querySelectorAll("td");
  setMarked(state, level === "warning" && known.level === "ok" ? "warning" : known.icon, r.state + (r.reason ? ` (${r.reason})` : ""));
  setText(objects, r.objects === 0 && r.state !== "synced" ? "–" : count(r.objects)); // nothing was listed yet
  setText(unsent, r.dirty === undefined ? "–" : count(r.dirty));
  setClass(unsent, r.dirty > 0 ? "number some" : "number");
  setText(old, r.consistentAsOf ? age(r.consistentAsOf) : "–");
  setText(lag, r.lagSeconds === undefined ? "–" : short(r.lagSeconds));
  setText(published, r.lastPublished ? `${age(r.lastPublished)} ago` : "–");
}

function errorText(r, failure) {
  const what = failure === r.watchError ? "Not watched" : "Not published";
  const where = r.degradedNamespaces ? ` in ${counted(r.degradedNamespaces.length, "namespace")}: ${r.degradedNamespaces.slice(0, 5).join(", ")}` : "";
  return `${what}${where}${since(failure.since)}: ${oneLine(failure.message)}`;
}
