// Buttons that copy a text to the clipboard.
import { text, toast } from "./page.js";

export function startCopies(place) {
  for (const button of place.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.onclick = async () => {
      await copy(button.dataset.copy, button);
      toast(text("copied"));
    };
  }
}

// The clipboard exists on secure origins only; elsewhere the text is selected and copied.
async function copy(value, button) {
  if (navigator.clipboard) return navigator.clipboard.writeText(value);
  const code = button.parentElement.querySelector("code");
  const range = document.createRange();
  range.selectNodeContents(code);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  document.execCommand("copy");
}
