// The table of clusters, for a forwarder of several clusters.

import { breakable, byId, cells, element, reconcile, setClass, setMarked, setText } from "./dom.js";
import { sentence } from "./verdict.js";
import { age, count } from "./words.js";

// cluster is the name of the cluster that the page shows. It is null for all clusters, or if there is only one.
export const cluster = new URLSearchParams(location.search).get("cluster");

// selected has the query parameter that selects the cluster.
export const selected = cluster === null ? {} : { cluster };

const ranks = { critical: 0, warning: 1, ok: 2 };

const columns = ["Verdict", "Resources", "Objects", "Unsent", "Age", "Bus"];

let last = null;

export function setClusters(all) {
  last = all;
  // The sections after the verdict describe a single cluster.
  for (const e of document.querySelectorAll(".one")) e.hidden = true;
  byId("clusters-card").hidden = false;
}

export function showClusters() {
  if (!last) return;
  const all = [...last].sort((a, b) => ranks[a.level] - ranks[b.level] || a.cluster.localeCompare(b.cluster));
  setText(byId("cluster-count"), count(all.length));
  // The finding of a cluster is long, so it has its own row below the cluster.
  const rows = all.flatMap((c) => (c.headline ? [{ c }, { c, finding: true }] : [{ c }]));
  reconcile(byId("clusters"), rows, (row) => `${row.finding ? "finding" : "row"} ${row.c.cluster}`, (row) => (row.finding ? createFinding() : createRow(row.c)), update);
}

function createRow(c) {
  const to = element("a", "", ...breakable(c.cluster));
  to.href = `?${new URLSearchParams({ cluster: c.cluster })}`;
  const head = element("th", "name", to);
  head.scope = "row";
  const row = element("tr", "", head);
  for (const name of columns) {
    const cell = element("td", name === "Verdict" ? "state" : "number");
    cell.dataset.label = name;
    row.append(cell);
  }
  return cells(row);
}

function createFinding() {
  const cell = element("td", "");
  cell.colSpan = columns.length + 1;
  return cells(element("tr", "", cell));
}

function update(row, { c, finding }) {
  setClass(row, finding ? `error ${c.level}` : c.level);
  if (finding) {
    setText(row.firstChild, sentence(c.headline));
    return;
  }
  const [verdict, resources, objects, unsent, old, bus] = row.querySelectorAll("td");
  setMarked(verdict, c.level, c.level);
  setText(resources, count(c.resources));
  setText(objects, count(c.objects));
  setText(unsent, c.dirty === undefined ? "–" : count(c.dirty));
  setClass(unsent, c.dirty > 0 ? "number some" : "number");
  setText(old, c.consistentAsOf ? age(c.consistentAsOf) : "–");
  setText(bus, c.bus + (c.lease && !c.lease.leading ? ", standby" : ""));
}
