// A problem, in a box over the page or in its place.

import { button, byId, el } from "./dom.js";
import { t } from "./strings.js";

/** Shows a problem, or takes it away. */
export function alertUser(problem) {
  const box = byId("alert");
  const title = problem?.title ? el("strong", { textContent: problem.title }) : null;
  const close = button("×", () => alertUser(null), { class: "icon", "aria-label": t.dismiss });
  box.replaceChildren(...(problem ? [el("p", {}, title, el("span", { textContent: problem.message })), close] : []));
  box.hidden = !problem;
}

/** What stands in the page's place where there is nothing to show. */
export const failure = (title, { message }) => el("div", { class: "intro", role: "alert" }, el("h1", { textContent: title }), el("p", { textContent: message }));
