// A log of any length: lines are kept as data, and only those in view are in the page. Scrolling up
// loads older lines; at the end, new ones follow by themselves.
import { call, root } from "./page.js";

const ROW = 18, EXTRA = 30, MOST = 200000;

export function startLogs() {
  for (const place of document.querySelectorAll("[data-log]")) new LogView(place).start();
}

export class LogView {
  constructor(place) {
    this.place = place;
    this.path = root + (place.dataset.lines || "/lines");
    this.older = place.dataset.older;
    this.newer = place.dataset.newer;
    this.lines = [...place.children].map(read);
    this.space = Object.assign(document.createElement("div"), { className: "space" });
    this.shown = Object.assign(document.createElement("div"), { className: "shown" });
    this.loading = false;
  }

  start() {
    this.space.append(this.shown);
    this.place.replaceChildren(this.space);
    this.place.classList.add("scripted-log");
    document.querySelector("a[data-older]")?.parentElement.remove();
    this.draw();
    this.place.scrollTop = this.place.scrollHeight;
    this.place.addEventListener("scroll", () => this.scrolled());
    this.draw();
    if (this.newer) this.follow();
  }

  atEnd() {
    return this.place.scrollTop + this.place.clientHeight >= this.lines.length * ROW - 2 * ROW;
  }

  scrolled() {
    this.draw();
    if (this.place.scrollTop < 40 * ROW) this.load();
  }

  draw() {
    this.space.style.height = `${this.lines.length * ROW}px`;
    const first = Math.max(0, Math.floor(this.place.scrollTop / ROW) - EXTRA);
    const last = Math.min(this.lines.length, first + Math.ceil(this.place.clientHeight / ROW) + 2 * EXTRA);
    this.shown.style.top = `${first * ROW}px`;
    this.shown.replaceChildren(...this.lines.slice(first, last).map(made));
  }

  async load() {
    if (this.loading || !this.older || this.lines.length >= MOST) return;
    this.loading = true;
    try {
      const answer = await call(`${this.path}?${this.older}`);
      if (!answer.ok) return;
      const found = await answer.json();
      this.older = found.older;
      this.lines = found.lines.concat(this.lines);
      this.space.style.height = `${this.lines.length * ROW}px`;
      this.place.scrollTop += found.lines.length * ROW;
      this.draw();
    } finally {
      this.loading = false;
    }
  }

  // One call waits at the center until there are lines; it rests while the page is hidden.
  async follow() {
    while (this.place.isConnected && this.newer) {
      try {
        if (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
        const answer = await call(`${this.path}?${this.newer}`);
        if (!answer.ok) throw new Error(answer.statusText);
        const found = await answer.json();
        this.newer = found.newer;
        if (found.lines.length) this.append(found.lines, found.joins);
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 3000));
      }
    }
  }

  append(lines, joins) {
    const end = this.atEnd(), last = this.lines.at(-1);
    if (joins && last) this.lines[this.lines.length - 1] = { ...last, text: last.text + lines.shift().text };
    this.lines = this.lines.concat(lines).slice(-MOST);
    this.draw();
    if (end) this.place.scrollTop = this.lines.length * ROW;
  }
}

function read(row) {
  const time = row.querySelector("time");
  const context = row.querySelector("a")?.search.slice(1) ?? "";
  return { context, time: time.textContent, exact: time.title, level: row.querySelector("b").textContent, source: row.querySelector("i").textContent, text: row.querySelector("span").textContent };
}

function made(line) {
  const row = Object.assign(document.createElement("div"), { className: `line ${line.level}` });
  const time = Object.assign(document.createElement("time"), { textContent: line.time, title: line.exact });
  const level = Object.assign(document.createElement("b"), { textContent: line.level });
  const source = Object.assign(document.createElement("i"), { textContent: line.source });
  const text = Object.assign(document.createElement("span"), { textContent: line.text });
  const link = Object.assign(document.createElement("a"), { href: `${root}/logs/context?${line.context}#at` });
  link.append(time);
  row.append(link, " ", level, " ", source, " ", text);
  return row;
}
