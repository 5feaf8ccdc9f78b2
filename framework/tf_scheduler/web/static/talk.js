// Messages and dialogs.

import { byId } from "./dom.js";
import { keepToken } from "./net.js";

const SHOWN = 8000; // ms
let timer = 0;

export function say(words, wrong = false) {
  const place = byId("said");
  place.textContent = words;
  place.classList.toggle("wrong", wrong);
  place.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => (place.hidden = true), SHOWN);
}

// Ask for confirmation; resolves to whether the user agrees.
export function agreed(title, words, yes) {
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = words;
  byId("confirm-yes").textContent = yes;
  return answered(byId("confirm")).then((answer) => answer === "yes");
}

// Ask until the user enters a token. `wrong`: error message for the previous token.
export async function askToken(wrong) {
  byId("login-wrong").textContent = wrong;
  byId("token").value = "";
  while (!byId("token").value.trim()) await answered(byId("login"));
  keepToken(byId("token").value.trim());
  byId("token").value = "";
}

function answered(dialog) {
  return new Promise((resolve) => {
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
    dialog.showModal();
  });
}
