// Samples to start a task from.

import * as api from "./api.js";
import { button, el } from "./dom.js";
import { humanise, t } from "./strings.js";

/** Things to start from, a button each: pictures with their settings, or a prompt. */
export function gallery(starts, title, pictures, settings, onProblem) {
  if (!starts.length) return null;
  const buttons = starts.map(({ name, pictures: files, spec }) => {
    const shown = Object.values(files)[0];
    const picture = shown && el("img", { src: `samples/${shown}`, alt: "", width: 96, height: 96, loading: "lazy" });
    const take = async () => {
      try {
        for (const [slot, file] of Object.entries(files)) await pictures.slots.get(slot)?.take(new File([await api.blob(`samples/${file}`)], file, { type: "image/png" }));
      } catch (error) {
        if (!(error instanceof api.Problem)) throw error;
        return onProblem(error);
      }
      settings.write(spec);
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === made));
    };
    const made = button("", take, { class: shown ? "sample" : "chip-button", "aria-pressed": "false" });
    made.append(...[picture, el("span", { textContent: t.samples[name] ?? humanise(name) })].filter(Boolean));
    return made;
  });
  const list = el("ul", { class: Object.keys(starts[0].pictures).length ? "samples" : "chips" }, ...buttons.map((each) => el("li", {}, each)));
  return el("div", { class: "gallery" }, el("h2", { textContent: title }), list);
}
