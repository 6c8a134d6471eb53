// Keys: / filter, g + letter pages, j k x rows, Enter opens, p pauses, ? lists the keys.
import { openPalette } from "./palette.js";
import { picked } from "./lists.js";

let afterG = 0;
let at = -1;

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openPalette();
    } else if (!event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target)) {
      if (pressed(event.key)) event.preventDefault();
    }
  });
}

function typing(element) {
  return element.matches("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]") || Boolean(document.querySelector("dialog[open]"));
}

function pressed(key) {
  if (afterG && Date.now() - afterG < 1500) {
    afterG = 0;
    const link = document.querySelector(`.side a[data-key="${CSS.escape(key)}"]`);
    link?.click();
    return Boolean(link);
  }
  if (key === "g") afterG = Date.now();
  else if (key === "/") return focusFilter();
  else if (key === "?") document.getElementById("keys")?.showModal();
  else if (key === "p") document.querySelector("[data-pause]")?.click();
  else if (key === "j" || key === "k") move(key === "j" ? 1 : -1);
  else if (key === "x") select();
  else if (key === "Enter" && at >= 0 && document.activeElement === document.body) rows()[at]?.querySelector("a")?.click();
  else return false;
  return true;
}

function focusFilter() {
  const field = document.getElementById("filter");
  field?.focus();
  field?.select();
  return Boolean(field);
}

function rows() {
  return [...document.querySelectorAll("#rows tbody tr, table[data-live-rows] tbody tr")].filter((row, place, all) => all.indexOf(row) === place);
}

function move(step) {
  const all = rows();
  if (!all.length) return;
  all[at]?.classList.remove("at");
  at = Math.max(0, Math.min(all.length - 1, at + step));
  all[at].classList.add("at");
  all[at].scrollIntoView({ block: "nearest" });
}

function select() {
  const box = rows()[at]?.querySelector('input[name="key"]');
  if (!box) return;
  box.checked = !box.checked;
  picked(box.form);
}
