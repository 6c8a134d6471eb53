// What all modules share: texts of the page, paths below its prefix, toasts, calls of the portal.
const texts = JSON.parse(document.getElementById("texts")?.textContent || "{}");

export const root = document.body.dataset.root || "";

export function text(key, values = {}) {
  const found = texts[key] ?? key;
  return String(found).replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

export function toast(message, bad = false) {
  const place = document.getElementById("toasts");
  if (!place || !message) return;
  const box = document.createElement("div");
  box.className = bad ? "toast bad" : "toast";
  box.textContent = message;
  place.append(box);
  setTimeout(() => box.remove(), bad ? 9000 : 5000);
}

// A call that stays on this page. A session that has ended opens the login dialog; afterwards the
// call is made again, so nothing that was typed is lost.
export async function call(url, options = {}) {
  const headers = { "X-Skep-Fragment": "1", ...(options.headers || {}) };
  const answer = await fetch(url, { credentials: "same-origin", ...options, headers });
  if (answer.status !== 401) return answer;
  const { logInAgain } = await import("./login_again.js");
  await logInAgain();
  return call(url, options);
}
