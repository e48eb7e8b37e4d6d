// What seems to have happened to the chosen picture, and a button that takes over the proposal.

import * as api from "./api.js";
import { button, el } from "./dom.js";
import { t } from "./strings.js";

/** Diagnoses the picture of ``slot`` as soon as it shows, unless ``skip()``; the proposal goes to ``settings``. */
export function diagnosisOf(slot, settings, skip) {
  const summary = el("p", { role: "status" });
  const doubts = el("ul", { class: "help" });
  const use = button(t.diagnosis.use, () => {
    settings.write(proposal);
    use.textContent = t.diagnosis.used;
  });
  const element = el("section", { class: "diagnosis", hidden: true, "aria-label": t.diagnosis.title }, el("h2", { textContent: t.diagnosis.title }), summary, doubts, el("div", { class: "actions" }, use));
  let proposal = null;
  let latest = 0;

  const show = (found) => {
    proposal = found?.proposal ?? null;
    summary.textContent = found ? found.summary : t.diagnosis.looking;
    doubts.replaceChildren(...(found?.unsure ?? []).map((doubt) => el("li", { textContent: doubt })));
    use.hidden = !proposal;
    use.textContent = t.diagnosis.use;
    element.hidden = false;
  };

  slot.element.addEventListener("shown", async () => {
    const number = ++latest;
    element.hidden = true;
    if (!slot.file() || skip()) return;
    show(null);
    try {
      const found = await api.diagnose(slot.file());
      if (number === latest) show(found);
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      if (number === latest) element.hidden = true; // the picture can be sent all the same
    }
  });
  return element;
}
