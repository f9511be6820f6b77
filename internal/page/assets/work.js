// The progress of long-running work, and an estimate of the time left.

import { byId, element, reconcile, setText } from "./dom.js";
import { count, duration, rate } from "./words.js";

export function showWork(d) {
  const list = byId("work");
  const all = d.work ?? [];
  list.hidden = all.length === 0;
  reconcile(list, all, (w) => w.work, create, update);
}

function create() {
  const bar = element("progress", "");
  bar.setAttribute("aria-hidden", "true"); // the text says the same
  return element("li", "", element("span", "", ""), bar);
}

function update(e, w) {
  const [text, bar] = e.children;
  setText(text, words(w));
  if (w.total) {
    bar.max = w.total;
    bar.value = Math.min(w.done, w.total);
  } else {
    bar.removeAttribute("value"); // the total is unknown
  }
}

// words uses the same words as forwarder status.
function words(w) {
  const name = w.work.replaceAll("_", " ");
  let text = `${name.charAt(0).toUpperCase()}${name.slice(1)}: ${count(w.done)}`;
  if (w.total !== undefined) text += ` of ${count(w.total)}`;
  text += ` ${w.unit}`;
  if (w.growing) text += " so far";
  if (w.perSecond > 0) text += `, ${rate(w.perSecond)}/s`;
  if (w.secondsLeft !== undefined) text += `, ${duration(w.secondsLeft)} left`;
  return text;
}
