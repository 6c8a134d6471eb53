// Selection in lists, and the bulk bar: the plan of an act is shown in a dialog.
import { call, text, toast } from "./page.js";
import { startCopies } from "./copies.js";

export function startLists() {
  const form = document.querySelector("form[data-bulk]");
  if (!form) return;
  form.addEventListener("change", () => picked(form));
  form.addEventListener("submit", (event) => plan(event, form));
  const all = form.querySelector("[data-pick-all]");
  all?.addEventListener("change", () => {
    for (const box of form.querySelectorAll('input[name="key"]')) box.checked = all.checked;
    picked(form);
  });
}

export function picked(form) {
  const count = form.querySelectorAll('input[name="key"]:checked').length;
  const bar = form.querySelector(".bulk-bar");
  if (!bar) return;
  const all = form.elements.scope.value === "all";
  bar.classList.toggle("open", count > 0 || all);
  form.querySelector("[data-picked]").textContent = text("selected", { n: count });
}

async function plan(event, form) {
  event.preventDefault();
  const body = new URLSearchParams(new FormData(form, event.submitter));
  try {
    const answer = await call(form.action, { method: "POST", body });
    if (!answer.headers.get("content-type").startsWith("text/html")) return toast((await answer.json()).text, true);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    show(page.querySelector("[data-plan]"));
  } catch {
    toast(text("no_answer"), true);
  }
}

function show(content) {
  const dialog = document.getElementById("ask");
  dialog.querySelector("[data-ask-content]").replaceChildren(document.adoptNode(content));
  startCopies(dialog);
  const cancel = dialog.querySelector("[data-cancel]");
  cancel?.addEventListener("click", (event) => { event.preventDefault(); dialog.close(); });
  dialog.showModal();
}
