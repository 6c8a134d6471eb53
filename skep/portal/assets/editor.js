// The definition of a job while it is typed: the center checks it, and form and YAML follow each
// other. Only fields without the focus are changed. Saving first makes sure that the session lives.
import { call, toast, text } from "./page.js";

const PAUSE = 500;

export function startEditor() {
  const form = document.querySelector("form[data-editor]");
  if (form) new Editor(form).start();
}

class Editor {
  constructor(form) {
    this.form = form;
    this.yaml = form.elements.namedItem("yaml");
    this.number = 0;
    this.timer = null;
    this.ready = false;
  }

  start() {
    this.form.addEventListener("input", (event) => this.typed(event.target === this.yaml ? "check" : "form"));
    this.form.addEventListener("submit", (event) => this.submitted(event));
    const revision = document.getElementById("job-revision");
    if (revision) new MutationObserver(() => this.typed("check")).observe(revision, { childList: true, subtree: true });
  }

  typed(act) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(act), PAUSE);
  }

  async check(act) {
    const mine = ++this.number;
    const body = new URLSearchParams(new FormData(this.form));
    body.set("act", act);
    try {
      const answer = await call(this.form.action, { method: "POST", body, headers: { Accept: "text/html" } });
      if (mine !== this.number) return;
      if (!answer.ok) toast((await answer.json()).text, true);
      else this.show(new DOMParser().parseFromString(await answer.text(), "text/html"), act);
    } catch {
      toast(text("no_answer"), true);
    }
  }

  // The answer is the same page: its result is shown, and the side that was not typed follows.
  show(page, act) {
    const fresh = page.getElementById("check");
    if (!fresh) return;
    document.getElementById("check").replaceChildren(...[...fresh.childNodes].map((node) => document.adoptNode(node)));
    if (act === "form") {
      this.yaml.value = page.getElementById("yaml").value;
      return;
    }
    const form = page.querySelector("form[data-editor]");
    for (const field of this.form.elements) {
      const other = field.name && field !== this.yaml && field.type !== "hidden" && form.elements.namedItem(field.name);
      if (!other || field === document.activeElement || field.tagName === "BUTTON") continue;
      if (field.type === "checkbox") field.checked = other.checked;
      else field.value = other.value;
    }
  }

  async submitted(event) {
    if (this.ready) return;
    event.preventDefault();
    clearTimeout(this.timer);
    const button = event.submitter;
    await this.check("check");
    this.ready = true;
    this.form.requestSubmit(button);
    this.ready = false;
  }
}
