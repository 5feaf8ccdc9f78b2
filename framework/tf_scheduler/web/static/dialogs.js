// Messages and dialogs.

import { byId } from "./dom.js";
import { keepToken } from "./net.js";

const MESSAGE_TIME = 8000; // ms
let timer = 0;

export function showMessage(text, isError = false) {
  const place = byId("message");
  place.textContent = text;
  place.classList.toggle("error", isError);
  place.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => (place.hidden = true), MESSAGE_TIME);
}

// Ask for confirmation; resolves to whether the user agrees.
export function askConfirmation(title, question, agreement) {
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = question;
  byId("confirm-yes").textContent = agreement;
  return openDialog(byId("confirm")).then((answer) => answer === "yes");
}

// Ask until the user enters a token. `error`: message for the previous token.
export async function askToken(error) {
  byId("login-error").textContent = error;
  byId("token").value = "";
  while (!byId("token").value.trim()) await openDialog(byId("login"));
  keepToken(byId("token").value.trim());
  byId("token").value = "";
}

function openDialog(dialog) {
  return new Promise((resolve) => {
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
    dialog.showModal();
  });
}
