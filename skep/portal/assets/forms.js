// Acts without leaving the page: sent once, answered with a toast; a refused act changes nothing.
import { call, text, toast } from "./page.js";

export function startForms() {
  document.addEventListener("submit", submitted);
  linkLogin();
  for (const one of document.querySelectorAll(".notice")) setTimeout(() => one.remove(), 15000);
  document.addEventListener("click", closePops);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") closePops(event, true); });
}

function linkLogin() {
  const form = document.querySelector("[data-link-login]");
  if (!form || location.hash.length < 10) return;
  form.link.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname + location.search);
  form.submit();
}

async function submitted(event) {
  const form = event.target;
  if (form.matches("form[data-once]")) once(form, event);
  if (!form.matches("form[data-act]")) return;
  event.preventDefault();
  if (form.dataset.sent) return;
  form.dataset.sent = "yes";
  const buttons = form.querySelectorAll("button");
  const body = new URLSearchParams(new FormData(form, event.submitter));
  buttons.forEach((one) => { one.disabled = true; });
  try {
    const answer = await call(form.action, { method: "POST", body });
    const said = await answer.json();
    toast(said.text, !answer.ok);
    if (answer.ok) done(form, said.url);
  } catch {
    toast(text("no_answer"), true);
  } finally {
    delete form.dataset.sent;
    buttons.forEach((one) => { one.disabled = false; });
  }
}

// A form whose answer is a page: a second click does not send it again.
function once(form, event) {
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
  addEventListener("pageshow", () => { delete form.dataset.sent; }, { once: true });
}

function done(form, url) {
  form.closest("details")?.removeAttribute("open");
  form.closest("dialog")?.close();
  const target = new URL(url, location.href);
  if (target.pathname !== location.pathname) location.assign(target);
  else document.dispatchEvent(new Event("skep:reload"));
}

// A click elsewhere and Escape close open menus; Escape returns the focus to the menu's button.
function closePops(event, all = false) {
  for (const one of document.querySelectorAll("details.who[open], details.range[open], details.copies[open], details.ask[open]"))
    if (all || !one.contains(event.target)) {
      if (all && one.contains(document.activeElement)) one.querySelector("summary").focus();
      one.removeAttribute("open");
    }
}
