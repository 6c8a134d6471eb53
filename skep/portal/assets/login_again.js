// The login dialog of a page whose session has ended. The page below it stays as it is.
import { root } from "./page.js";

let asking = null;

export function logInAgain() {
  asking ??= ask().finally(() => { asking = null; });
  return asking;
}

function ask() {
  const dialog = document.getElementById("login-again");
  const form = dialog.querySelector("form");
  const problem = form.querySelector(".problem");
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    form.onsubmit = async (event) => {
      event.preventDefault();
      const body = JSON.stringify({ user: form.user.value, password: form.password.value });
      const answer = await fetch(`${root}/api/v1/login`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
      if (answer.ok) {
        form.password.value = "";
        dialog.close();
        resolve();
      } else {
        problem.textContent = (await answer.json()).detail;
        problem.hidden = false;
      }
    };
  });
}
