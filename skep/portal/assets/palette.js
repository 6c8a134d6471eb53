// The command palette: pages at once, objects through the portal while you type.
import { call, root, text } from "./page.js";

let asked = 0;

export function startPalette() {
  const dialog = document.getElementById("palette");
  for (const button of document.querySelectorAll("[data-palette]")) {
    button.hidden = false;
    button.onclick = openPalette;
  }
  const input = dialog.querySelector("[data-palette-input]");
  let timer = 0;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    show([...pages(input.value), ...acts(input.value)]);
    timer = setTimeout(() => search(input.value), 150);
  });
  dialog.addEventListener("keydown", moved);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}

export function openPalette() {
  const dialog = document.getElementById("palette");
  if (dialog.open || !document.querySelector(".side")) return;
  const input = dialog.querySelector("[data-palette-input]");
  input.value = "";
  show([...acts(""), ...pages("")]);
  dialog.showModal();
  input.focus();
}

function pages(typed) {
  const wanted = typed.trim().toLowerCase();
  return [...document.querySelectorAll(".side a:not(.brand):not(.close)")]
    .map((link) => ({ kind: "go_to", text: link.firstChild.textContent, url: link.getAttribute("href") }))
    .filter((one) => one.text.toLowerCase().includes(wanted));
}

// The acts that this page offers.
function acts(typed) {
  const wanted = typed.trim().toLowerCase();
  const buttons = document.querySelectorAll("main form[data-act] button:not([data-copy]), main form[data-act] input[type=submit]");
  return [...buttons]
    .map((button) => ({ kind: "act", text: button.textContent.trim(), run: () => act(button) }))
    .filter((one) => one.text.toLowerCase().includes(wanted));
}

// An act that asks first opens its question; it is not confirmed from here.
function act(button) {
  document.getElementById("palette").close();
  const question = button.closest("details.ask");
  if (question && !question.open) {
    question.open = true;
    button.focus();
  } else button.click();
}

async function search(typed) {
  const mine = ++asked;
  if (!typed.trim()) return;
  try {
    const answer = await call(`${root}/find?text=${encodeURIComponent(typed)}`);
    const found = await answer.json();
    if (mine === asked && answer.ok) show([...pages(typed), ...acts(typed), ...found.items]);
  } catch { /* the pages stay */ }
}

function show(items) {
  const list = document.getElementById("palette-list");
  list.replaceChildren(...items.map(line));
  if (!items.length) list.append(Object.assign(document.createElement("li"), { textContent: text("no_results") }));
  list.firstElementChild?.setAttribute("aria-selected", "true");
}

function line(one) {
  const row = document.createElement("li");
  row.setAttribute("role", "option");
  row.dataset.url = one.url ?? "";
  row.choose = one.run ?? (() => location.assign(one.url));
  const name = document.createElement("span");
  name.textContent = one.text;
  const kind = document.createElement("small");
  kind.textContent = one.kind === "go_to" ? text("go_to") : text(`kind_${one.kind}`);
  row.append(name, kind);
  row.onclick = row.choose;
  return row;
}

function moved(event) {
  const rows = [...document.querySelectorAll("#palette-list li[data-url]")];
  const at = rows.findIndex((row) => row.getAttribute("aria-selected") === "true");
  if (event.key === "Enter" && rows[at]) {
    event.preventDefault();
    rows[at].choose();
  }
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  const next = Math.max(0, Math.min(rows.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
  rows[at]?.removeAttribute("aria-selected");
  rows[next]?.setAttribute("aria-selected", "true");
  rows[next]?.scrollIntoView({ block: "nearest" });
}
