// The verdict and the facts of the document.

import { byId, element, link, reconcile, setClass, setMarked, setText } from "./dom.js";
import { age, counted, since } from "./words.js";

let announced = "";

export function showVerdict(d) {
  const { level, summary, findings } = d.verdict;
  setClass(byId("verdict"), `verdict card ${level}`);
  const wrong = findings.filter((f) => f.level !== "notice").length;
  const more = wrong > 1 ? ` · ${counted(wrong, "finding")}` : "";
  setMarked(byId("level"), level, level.toUpperCase() + more);
  // The first finding is the headline of the page; its fix is below.
  setText(byId("summary"), wrong > 0 ? titled(findings[0]) : sentence(summary));
  const error = byId("error");
  error.hidden = wrong === 0 || !hasMore(findings[0]);
  if (!error.hidden) setText(error, sentence(findings[0].message));
  reconcile(byId("findings"), findings, (f) => `${f.cluster ?? ""} ${f.reason} ${f.level} ${f.fix}`, createFinding, updateFinding);
  document.title = `${level.toUpperCase()} · ${nameOf(d)} · Kuberelay`;
  announce(d);
}

// announce tells screen readers about a new state, but not about growing ages.
function announce(d) {
  const state = d.verdict.level + d.verdict.findings.map((f) => f.reason).join();
  if (state === announced) return;
  announced = state;
  setText(byId("announcement"), `${d.verdict.level}: ${d.verdict.summary}`);
}

function createFinding(f) {
  const more = link("Troubleshooting", f.see);
  more.setAttribute("aria-label", `Troubleshooting: ${f.reason.replaceAll("_", " ")}`);
  return element("li", "",
    element("p", "message", element("span", "tag", ""), " ", element("span", "text", "")),
    element("p", "error", ""),
    element("p", "fix", element("strong", "", "Fix:"), ` ${sentence(f.fix)}. `, more));
}

function updateFinding(e, f) {
  setClass(e, f.level);
  setMarked(e.querySelector(".tag"), f.level, f.level);
  setText(e.querySelector(".text"), titled(f));
  const error = e.querySelector(".error");
  error.hidden = !hasMore(f);
  if (!error.hidden) setText(error, sentence(f.message));
}

// headline says in one line what is wrong, and for how long.
const headline = (f) => (f.headline ?? f.message) + since(f.since);

// titled returns the headline as a sentence. It does not capitalize the name of a cluster.
const titled = (f) => f.cluster ? headline(f) : sentence(headline(f));

// hasMore reports whether the message has an error or names that the headline lacks.
const hasMore = (f) => f.headline !== undefined && f.message !== f.headline;

export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export function showFacts(d) {
  fact("bus", busNames[d.bus.sink] ?? d.bus.sink, ...busWords(d.bus));
  if (d.lease) fact("lease", ...leaseWords(d.lease));
  else if (d.waitingFor) fact("lease", "not known yet", "the forwarder is starting");
  else fact("lease", "none", "leader election is off");
  fact("copy", ...copyWords(d));
  fact("selection", counted(d.resources.length, "resource"), d.selectors.length > 0 ? d.selectors.join(", ") : "all their objects");
}

const busNames = { nats: "NATS", kafka: "Kafka", stdout: "standard output" };

function fact(id, main, more, bad) {
  const e = byId(id);
  setClass(e, bad ? "bad" : "");
  setText(e.querySelector("strong"), main);
  setText(e.querySelector("span"), more);
}

function busWords(b) {
  if (b.state === "unused") return ["not used"];
  const words = [b.state + since(b.since), `${b.queued} queued`, `${b.inFlight} in flight`];
  if (b.foreignEvents > 0) words.push(`${counted(b.foreignEvents, "foreign event")} repaired`);
  return [words.join(", "), b.state === "unavailable"];
}

function leaseWords(l) {
  if (l.error) return ["access denied", l.name, true];
  if (l.leading) return ["leading", `${l.name}, held by ${l.holder ?? "this forwarder"}`];
  if (!l.holder) return ["nobody leads", l.name, true];
  return ["standing by", `${l.name}, held by ${l.holder}`];
}

function copyWords(d) {
  const objects = d.resources.reduce((n, r) => n + r.objects, 0);
  const words = [];
  if (d.oldestUnsent) words.push(`oldest unsent change${since(d.oldestUnsent)}`);
  const points = d.resources.map((r) => r.consistentAsOf);
  if (points.length > 0 && points.every(Boolean)) words.push(`consistent as of ${age(points.sort()[0])} ago`);
  else if (d.bus.state === "unused") words.push("only the leader knows what is published");
  else if (d.consistencyPointsOff) words.push("consistency points are off");
  else if (points.length > 0) words.push("not consistent yet");
  return [counted(objects, "object"), words.join(", ")];
}

// nameOf returns the name of the cluster, or "all clusters".
export const nameOf = (d, none = "no cluster") => (d?.clusters ? "all clusters" : d?.cluster ?? none);

// roleOf returns the role of the forwarder. Without leader election, the forwarder leads.
export function roleOf(d) {
  if (d.waitingFor) return "starting";
  if (!d.lease || d.lease.leading) return "leading";
  return d.lease.error ? "not leading" : "standby";
}

