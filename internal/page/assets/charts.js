// Small charts of the last five minutes.

import { byId, drawing, element, setText } from "./dom.js";
import { count, now, rate, short, size } from "./words.js";

const width = 240, height = 48, spans = 61;

let rates = null; // the last message
const sampled = []; // values of the documents since the page was opened: { span, dirty, memory }
let unsent = null; // current number of unsent objects; null on a standby, which does not know it
let limit = 0; // memory limit

export function setRates(r) { rates = r; }

// sample keeps the values of a document for which the forwarder keeps no history.
export function sample(d) {
  const span = spanNow();
  const known = d.resources.filter((r) => r.dirty !== undefined);
  unsent = known.length > 0 ? known.reduce((n, r) => n + r.dirty, d.unwatchedDirty ?? 0) : null;
  limit = d.memory.limitBytes;
  const last = sampled.at(-1);
  if (last && last.span === span) Object.assign(last, { dirty: unsent === null ? null : Math.max(last.dirty, unsent), memory: d.memory.usedBytes });
  else sampled.push({ span, dirty: unsent, memory: d.memory.usedBytes });
  while (sampled.length > 2 * spans) sampled.shift();
}

const spanSeconds = () => rates?.spanSeconds ?? 5;

const spanNow = () => Math.floor(now() / 1000 / spanSeconds());

// counts returns a value for each span up to now. The spans after the last message have no events.
function counts(values) {
  if (!rates) return new Array(spans).fill(null);
  const first = spanNow() - spans + 1, firstKnown = rates.last - values.length + 1;
  return Array.from({ length: spans }, (_, i) => values[first + i - firstKnown] ?? 0);
}

// samples returns a value for each span. A value applies until the next one.
function samples(of) {
  const first = spanNow() - spans + 1;
  return Array.from({ length: spans }, (_, i) => {
    const s = sampled.findLast((s) => s.span <= first + i);
    return s ? of(s) : null;
  });
}

// recent returns the value of the last complete span, or of the current span if it is higher.
const recent = (values) => Math.max(values.at(-2) ?? 0, values.at(-1) ?? 0);

const charts = [
  { title: "Published", unit: (v) => `${rate(v)}/s`, values: () => counts(rates?.published ?? []).map((v) => v / spanSeconds()), now: recent },
  { title: "Slowest event", unit: short, values: () => counts(rates?.slowestSeconds ?? []), now: recent, none: "no event" },
  { title: "Unsent objects", unit: (v) => count(Math.round(v)), values: () => samples((s) => s.dirty), now: () => unsent, line: true },
  { title: "Memory", unit: size, values: () => samples((s) => s.memory), now: (v) => v.at(-1) ?? 0, line: true, more: () => (limit ? ` of ${size(limit)}` : ", no limit") },
];

export function createCharts() {
  for (const c of charts) {
    c.svg = drawing("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    c.shape = drawing("path", { class: c.line ? "line" : "bars" });
    c.svg.append(drawing("path", { class: "base", d: `M0 ${height - 0.5}H${width}` }), c.shape);
    c.value = element("strong", "");
    c.most = element("span", "most");
    const figure = element("figure", "card", element("figcaption", "", element("span", "", c.title), c.value), c.svg,
      element("p", "axis", element("span", "", "5 min ago"), c.most, element("span", "", "now")));
    byId("charts").append(figure);
  }
}

export function drawCharts() {
  for (const c of charts) {
    const values = c.values();
    const most = Math.max(0, ...values.filter((v) => v !== null));
    const present = c.now(values);
    setText(c.value, present === null ? "unknown" : (c.none && present === 0 ? c.none : c.unit(present)) + (c.more?.() ?? ""));
    setText(c.most, most > 0 ? `most ${c.unit(most)}` : "");
    c.shape.setAttribute("d", c.line ? linePath(values, most) : barPath(values, most));
  }
}

const step = width / spans;
const y = (v, most) => height - 1 - (most > 0 ? (v / most) * (height - 4) : 0);

function barPath(values, most) {
  return values.map((v, i) => (v > 0 ? `M${(i * step + 0.5).toFixed(1)} ${height - 1}V${Math.min(y(v, most), height - 2.5).toFixed(1)}h${(step - 1).toFixed(1)}V${height - 1}z` : "")).join("");
}

function linePath(values, most) {
  let path = "", open = false;
  values.forEach((v, i) => {
    if (v !== null) path += `${open ? "L" : "M"}${(i * step).toFixed(1)} ${y(v, most).toFixed(1)}H${((i + 1) * step).toFixed(1)}`;
    open = v !== null;
  });
  return path;
}
