// Keeps relative times current and adds the local time to the exact one on hover.
import { text } from "./page.js";

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];

export function span(seconds) {
  for (const [length, unit] of UNITS) if (seconds >= 2 * length) return `${Math.round(seconds / length)} ${unit}`;
  return `${Math.floor(seconds)} s`;
}

export function showTimes(place = document) {
  const now = Date.now() / 1000;
  for (const one of place.querySelectorAll("time[data-at]")) {
    const at = Number(one.dataset.at);
    if (!one.dataset.local) {
      one.dataset.local = new Date(at * 1000).toLocaleString();
      one.title = `${one.title}\n${one.dataset.local}`;
    }
    const shown = text(at <= now ? "ago" : "in", { span: span(Math.abs(now - at)) });
    if (one.textContent !== shown) one.textContent = shown;
  }
}

export function startTimes() {
  showTimes();
  setInterval(() => { if (!document.hidden) showTimes(); }, 5000);
}
