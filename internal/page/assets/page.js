// The status page. It shows the messages of the stream. Between two messages, only ages change.

import { createCharts, drawCharts, sample, setRates } from "./charts.js";
import { cluster, selected, setClusters, showClusters } from "./clusters.js";
import { byId, setClass, setText } from "./dom.js";
import { explainNone, showEvents } from "./events.js";
import { showResources } from "./resources.js";
import { listenForTraces, setResources } from "./trace.js";
import { nameOf, roleOf, showFacts, showVerdict } from "./verdict.js";
import { clockTime, duration, now, setClock } from "./words.js";
import { showWork } from "./work.js";

// Times in milliseconds. A stream without a message for longer than silence is broken, because the forwarder
// sends a document every 5 seconds. patience is how long the browser may take to reconnect before the page
// says that the stream is broken.
const silence = 20_000, patience = 5_000, retryAfter = 10_000;

let status = null; // the last document
let heard = performance.now(); // when the last message arrived, or the page was opened
let broken = null; // when the stream broke, or null
let source = null;

function show() {
  if (!status) return;
  setText(byId("cluster"), nameOf(status, "–"));
  setText(byId("instance"), status.instance || "–");
  setText(byId("version"), status.version || "–");
  showVerdict(status);
  showClusters();
  if (status.clusters) return;
  setText(byId("role"), roleOf(status));
  showWork(status);
  showFacts(status);
  showResources(status);
  explainNone(roleOf(status));
}

// tick updates ages, and notices a broken stream.
function tick() {
  const at = performance.now();
  if (broken === null && at - heard > silence) {
    broken = at;
    connect();
  }
  const lost = broken !== null && at - broken > patience;
  setClass(document.body, lost ? "stale" : "");
  setClass(byId("live"), lost ? "live lost" : "live");
  byId("lost").hidden = !lost;
  if (lost) {
    setText(byId("live"), `Not live for ${duration((at - heard) / 1000)}`);
    setText(byId("lost"), status
      ? `The forwarder does not respond. The page shows its state at ${clockTime(status.time)} UTC, and tries again.`
      : "The forwarder does not respond, or refuses: too many pages may be open. The page tries again.");
    document.title = `NOT LIVE · ${nameOf(status)} · Kuberelay`;
  } else if (status) {
    setText(byId("live"), `● Live · ${clockTime(now())} UTC`);
    show();
    drawCharts();
  }
}

function on(kind, handle) {
  source.addEventListener(kind, (e) => {
    heard = performance.now();
    broken = null;
    handle(JSON.parse(e.data));
  });
}

function connect() {
  source?.close();
  source = new EventSource(`api/v1/status/stream?${new URLSearchParams(selected)}`);
  const own = source;
  source.addEventListener("error", () => {
    broken ??= performance.now();
    // The browser retries a broken connection, but not a refusal.
    if (own.readyState === EventSource.CLOSED) setTimeout(() => own === source && connect(), retryAfter);
  });
  on("status", (d) => {
    if (status && status.version !== d.version) location.reload(); // this page belongs to another version of the forwarder
    status = d;
    setClock(d.time);
    setResources(d.resources.map((r) => r.resource));
    sample(d);
    tick();
  });
  on("clusters", (all) => { setClusters(all); showClusters(); });
  on("rates", (r) => { setRates(r); drawCharts(); });
  on("events", showEvents);
}

byId("all-clusters").hidden = cluster === null;
createCharts();
listenForTraces();
connect();
setInterval(tick, 1000);
