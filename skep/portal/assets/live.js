// Live updates: one event stream for the browser says that something changed; the page is then read
// again, and only what differs is changed in place. New rows wait behind a button. Nothing that a
// person typed, selected, opened or scrolled is touched.
import { call, root, text, toast } from "./page.js";
import { showTimes } from "./times.js";
import { startCopies } from "./copies.js";

const LEAST = 1000;
const COUNTS = 10000;
let paused = false, reading = false, wanted = false, rest = LEAST, last = 0, waiting = null, told = false;

export function startLive() {
  const watches = JSON.parse(document.body.dataset.watch || "[]");
  const every = Number(document.body.dataset.every || 0);
  startCounts();
  document.addEventListener("skep:reload", () => { last = 0; refresh(true); });
  if (!watches.length && !every) return;
  pauseButton();
  if (watches.length) follow(watches);
  if (every) setInterval(() => changed(), every * 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) changed(); });
}

// The numbers of the side bar.
function startCounts() {
  if (!document.querySelector(".side [data-count]")) return;
  const read = async () => {
    if (document.hidden || paused) return;
    try {
      const answer = await fetch(`${root}/counts`, { headers: { "X-Skep-Fragment": "1" } });
      if (answer.ok) showCounts(await answer.json());
    } catch { /* the stream says that the center is away */ }
  };
  read();
  setInterval(read, COUNTS);
}

function showCounts(counts) {
  for (const place of document.querySelectorAll(".side [data-count]")) {
    const found = counts[place.dataset.count];
    place.textContent = found?.text ?? "";
    place.className = found?.look ?? "";
  }
}

function pauseButton() {
  const button = document.querySelector("[data-pause]");
  if (!button) return;
  button.hidden = false;
  button.onclick = () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    sign(paused ? "paused" : "live");
    if (!paused) changed();
  };
}

function sign(state) {
  const button = document.querySelector("[data-pause]");
  if (!button || (paused && state !== "paused")) return;
  button.classList.toggle("paused", state === "paused");
  button.classList.toggle("offline", state === "offline");
  button.querySelector("span").textContent = text(state);
}

// All tabs share one stream in a shared worker; where there is none, each tab has its own.
function follow(watches) {
  const begin = `${root}/api/v1/events`;
  const heard = (message) => (message.state ? sign(message.state) : changed());
  if (window.SharedWorker) {
    const port = new SharedWorker(document.body.dataset.worker, { name: "skep" }).port;
    port.onmessage = (event) => heard(event.data);
    const tell = () => port.postMessage({ url: begin, watches: document.hidden ? [] : watches });
    document.addEventListener("visibilitychange", tell);
    addEventListener("pagehide", () => port.postMessage({ url: begin, watches: [], gone: true }));
    addEventListener("pageshow", tell);
    tell();
  } else {
    alone(begin, watches, heard);
  }
}

function alone(begin, watches, heard) {
  const query = watches.map((one) => `watch=${encodeURIComponent(one)}`).join("&");
  let source = null;
  const open = () => {
    source = new EventSource(`${begin}?${query}`);
    source.onopen = () => heard({ state: "live" });
    source.onerror = () => heard({ state: "offline" });
    for (const kind of ["page", "change", "reload"]) source.addEventListener(kind, () => heard({}));
  };
  document.addEventListener("visibilitychange", () => { source?.close(); if (!document.hidden) open(); });
  open();
}

function changed() {
  if (paused || document.hidden) return;
  wanted = true;
  if (reading || waiting) return;
  waiting = setTimeout(() => { waiting = null; refresh(); }, Math.max(0, last + rest - Date.now()));
}

async function refresh(forced = false) {
  if (reading || (!forced && (paused || document.hidden))) return;
  reading = true;
  wanted = false;
  const begun = Date.now();
  try {
    const answer = await call(location.href, { headers: { Accept: "text/html" } });
    if (answer.ok) update(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    sign("offline");
  }
  last = Date.now();
  rest = Math.max(LEAST, 4 * (last - begun));
  reading = false;
  if (wanted) changed();
}

function update(page) {
  if (page.body.dataset.mark !== document.body.dataset.mark && !told) {
    told = true;
    toast(text("newer"));
  }
  for (const fresh of page.querySelectorAll("[data-live][id]")) {
    const old = document.getElementById(fresh.id);
    if (old) morph(old, fresh);
  }
  for (const fresh of page.querySelectorAll("table[data-live-rows][id]")) {
    const old = document.getElementById(fresh.id);
    if (old) updateRows(old, fresh);
  }
  showTimes();
}

// A part with an open menu, focus or marked text is left alone until the next time.
function busy(element) {
  const focus = document.activeElement;
  return Boolean(element.querySelector("details[open]")) || (focus !== document.body && element.contains(focus) && focus !== element);
}

function morph(old, fresh) {
  if (busy(old) || same(old, fresh)) return;
  old.className = fresh.className;
  old.replaceChildren(...[...fresh.childNodes].map((node) => document.adoptNode(node)));
  startCopies(old);
}

function same(old, fresh) {
  const plain = (node) => {
    const copy = node.cloneNode(true);
    for (const one of copy.querySelectorAll("time")) one.replaceWith(one.getAttribute("datetime") || "");
    for (const one of copy.querySelectorAll("[data-copy]")) one.removeAttribute("hidden");
    return copy.innerHTML;
  };
  return old.className === fresh.className && plain(old) === plain(fresh);
}

function updateRows(old, fresh) {
  const known = new Map([...old.tBodies[0].rows].map((row) => [row.dataset.key, row]));
  const news = [];
  for (const row of fresh.tBodies[0].rows) {
    const mine = known.get(row.dataset.key);
    known.delete(row.dataset.key);
    if (!mine) news.push(row);
    else { mine.classList.remove("gone"); updateCells(mine, row); }
  }
  for (const row of known.values()) row.classList.add("gone");
  offer(old, news, fresh);
}

function updateCells(mine, row) {
  [...row.cells].forEach((cell, place) => {
    const own = mine.cells[place];
    if (own && !cell.classList.contains("pick") && !busy(own) && !same(own, cell)) own.replaceChildren(...[...cell.childNodes].map((node) => document.adoptNode(node)));
  });
}

function offer(old, news, fresh) {
  const button = old.closest("form")?.querySelector("[data-new-rows]");
  if (!button) {
    if (news.length || old.querySelector("tr.gone")) takeRows(old, fresh);
    return;
  }
  button.hidden = !news.length;
  button.textContent = text("new_rows", { n: news.length });
  button.onclick = () => { takeRows(old, fresh); button.hidden = true; };
}

// The order of the fresh page; selected rows stay selected.
function takeRows(old, fresh) {
  const body = old.tBodies[0];
  const kept = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const rows = [...fresh.tBodies[0].rows].map((row) => kept.get(row.dataset.key) || document.adoptNode(row));
  const picked = [...body.rows].filter((row) => row.querySelector('input[name="key"]:checked') && !rows.includes(row));
  body.replaceChildren(...rows, ...picked);
  showTimes(old);
}
