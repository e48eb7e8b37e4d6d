// What seems to have happened to the chosen picture, a button that undoes it, and one that corrects it first.

import * as api from "./api.js";
import { button, el } from "./dom.js";
import { t } from "./strings.js";

/**
 * Diagnoses the picture of ``slot`` as soon as it shows (if it is a part, the whole one), unless ``skip()``, and selects the prior that was trained on
 * pages, if it is one. ``onRestore(proposal)`` restores what is found;
 * the proposal goes to ``settings`` to be corrected.
 */
export function diagnosisOf(slot, settings, { skip, onRestore }) {
  const summary = el("p", { role: "status" });
  const doubts = el("ul", { class: "help" });
  const text = el("p", { class: "note warn", textContent: t.diagnosis.text, hidden: true });
  const documents = el("p", { class: "help", textContent: t.diagnosis.documents, hidden: true });
  const restore = button(t.diagnosis.restore, () => onRestore(proposal), { class: "tonal" });
  const correct = button(t.diagnosis.correct, () => {
    settings.write(proposal);
    settings.show("operator");
  });
  const actions = el("div", { class: "actions" }, restore, correct);
  const element = el("section", { class: "diagnosis", hidden: true, "aria-label": t.diagnosis.title }, el("h2", { textContent: t.diagnosis.title }), summary, doubts, documents, text, actions);
  let proposal = null;
  let latest = 0;

  const show = (found) => {
    const page = Boolean(found?.findings.some(({ kind, values }) => kind === "content" && values.document));
    proposal = found?.proposal ?? null;
    // the service chooses the prior for a photograph, by the operator too, which may be corrected
    if (proposal && !page) proposal = Object.fromEntries(Object.entries(proposal).filter(([name]) => name !== "prior"));
    summary.textContent = found ? found.summary : t.diagnosis.looking;
    doubts.replaceChildren(...(found?.unsure ?? []).map((doubt) => el("li", { textContent: doubt })));
    text.hidden = !proposal || !page;
    documents.hidden = !proposal?.prior;
    if (found) settings.usePrior(proposal?.prior);
    actions.hidden = !proposal;
    element.hidden = false;
  };

  slot.element.addEventListener("shown", async () => {
    const number = ++latest;
    element.hidden = true;
    if (!slot.file() || skip()) return;
    show(null);
    try {
      const found = await api.diagnose(slot.whole() ?? slot.file());
      if (number === latest) show(found);
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      if (number === latest) element.hidden = true; // the picture can be sent all the same
    }
  });
  return element;
}
