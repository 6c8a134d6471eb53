// Completion of the filter field, from the field tables of the center.
import { call, root } from "./page.js";

let field, list, asked = 0, items = [], chosen = -1;

export function startFilter() {
  field = document.querySelector("[data-complete]");
  if (!field) return;
  list = Object.assign(document.createElement("ul"), { className: "suggestions", hidden: true, id: "suggestions" });
  list.setAttribute("role", "listbox");
  field.setAttribute("role", "combobox");
  field.setAttribute("aria-controls", "suggestions");
  field.setAttribute("aria-expanded", "false");
  field.parentElement.append(list);
  field.addEventListener("input", ask);
  field.addEventListener("focus", ask);
  field.addEventListener("blur", () => setTimeout(hide, 150));
  field.addEventListener("keydown", pressed);
}

async function ask() {
  const mine = ++asked;
  const query = new URLSearchParams({ resource: field.dataset.complete, text: field.value, at: field.selectionStart });
  try {
    const answer = await call(`${root}/complete?${query}`);
    if (mine !== asked || !answer.ok) return;
    items = (await answer.json()).items;
    show();
  } catch { hide(); }
}

function show() {
  chosen = -1;
  list.replaceChildren(...items.map((one, place) => {
    const row = document.createElement("li");
    row.setAttribute("role", "option");
    row.append(one.text);
    if (one.help) row.append(Object.assign(document.createElement("small"), { textContent: one.help }));
    row.onmousedown = (event) => { event.preventDefault(); take(place); };
    return row;
  }));
  list.hidden = !items.length || document.activeElement !== field;
  field.setAttribute("aria-expanded", String(!list.hidden));
}

function hide() {
  list.hidden = true;
  field.setAttribute("aria-expanded", "false");
}

function take(place) {
  const one = items[place];
  field.setRangeText(one.text, one.start, one.end, "end");
  ask();
}

function pressed(event) {
  if (event.key === "Escape") return list.hidden ? field.blur() : hide();
  if (list.hidden) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    chosen = Math.max(-1, Math.min(items.length - 1, chosen + (event.key === "ArrowDown" ? 1 : -1)));
    [...list.children].forEach((row, place) => row.setAttribute("aria-selected", String(place === chosen)));
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
  } else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) {
    event.preventDefault();
    take(chosen);
  }
}
