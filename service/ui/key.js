// If the service requires API keys: asks for one and exchanges it for a cookie that scripts cannot read.
//
// The key is sent in the header of one request only. It is never put into a URL or into storage.

import { button, el } from "./dom.js";
import { t } from "./strings.js";

const FORM = "aps_[0-9a-f]{12}_[A-Za-z0-9_\\-]{43}";

let asking = null;

/** Asks for a key unless the dialog is already open; resolves to true with a session, to false without. */
export function askForKey() {
  asking ??= ask().finally(() => (asking = null));
  return asking;
}

/** Deletes the session here and on the service; false if the service is unreachable. An expired session counts as deleted. */
export const forgetKey = () =>
  fetch("/v1/session", { method: "DELETE" }).then(
    ({ ok, status }) => ok || status === 401,
    () => false,
  );

function ask() {
  const input = el("input", { type: "password", id: "key", autocomplete: "off", spellcheck: false, required: true, pattern: FORM, placeholder: "aps_…" });
  const error = el("p", { id: "key-error", class: "field-error", role: "alert" });
  input.setAttribute("aria-describedby", "key-help key-error");
  const send = el("button", { class: "primary", type: "submit", textContent: t.key.send });
  const dialog = el("dialog", { class: "dialog", "aria-labelledby": "key-title" });
  const form = el(
    "form",
    { noValidate: true },
    el("h2", { id: "key-title", textContent: t.key.title }),
    el("p", { class: "note", textContent: t.key.lede }),
    el("div", { class: "field" }, el("label", { htmlFor: "key", textContent: t.key.label }), input, error, el("p", { id: "key-help", class: "help", textContent: t.key.help })),
    el("div", { class: "actions" }, send, button(t.key.later, () => dialog.close(), { class: "quiet" })),
  );
  dialog.append(form);
  const refuse = (words) => {
    error.textContent = words;
    input.setAttribute("aria-invalid", "true");
    input.focus();
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    input.value = input.value.trim();
    if (!input.validity.valid) return refuse(t.key.malformed);
    send.disabled = true;
    const answer = await fetch("/v1/session", { method: "POST", headers: { Authorization: `Bearer ${input.value}` } }).catch(() => null);
    send.disabled = false;
    if (answer?.ok) return dialog.close("given");
    refuse(answer?.status === 401 ? t.key.unknown : t.unreachable);
  });
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((done) =>
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(dialog.returnValue === "given");
    }),
  );
}
