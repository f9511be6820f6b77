// Numbers and times in words.

let clock = null; // the time of the forwarder, and when it was received

// setClock sets the time to the forwarder's, so that ages do not depend on the clock of the browser.
export function setClock(time) {
  clock = { time: Date.parse(time), at: performance.now() };
}

// now returns the time of the forwarder in milliseconds.
export function now() {
  return clock ? clock.time + performance.now() - clock.at : Date.now();
}

// duration formats a duration like kubectl.
export function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const m = Math.floor(s / 60), h = Math.floor(s / 3600), d = Math.floor(s / 86400);
  if (s < 120) return `${s}s`;
  if (m < 10) return s % 60 ? `${m}m${s % 60}s` : `${m}m`;
  if (h < 3) return `${m}m`;
  if (h < 8) return m % 60 ? `${h}h${m % 60}m` : `${h}h`;
  if (h < 48) return `${h}h`;
  return `${d}d`;
}

export const age = (time) => duration((now() - Date.parse(time)) / 1000);

export const since = (time) => (time ? ` for ${age(time)}` : "");

// short formats a duration of less than 10 seconds with milliseconds or tenths of a second.
export function short(seconds) {
  if (seconds < 0.001) return "<1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  return duration(seconds);
}

export const size = (bytes) => `${Math.floor(bytes / 1048576)} MiB`;

export const count = (n) => n.toLocaleString("en-US");

// rate rounds a rate of 10 or more to an integer, and a smaller one to tenths.
export const rate = (n) => (n >= 10 || n === 0 ? count(Math.round(n)) : n.toFixed(1));

export const oneLine = (text) => text.split(/\s+/).join(" ").trim();

export const clockTime = (time) => new Date(time).toISOString().slice(11, 19);

export const counted = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
