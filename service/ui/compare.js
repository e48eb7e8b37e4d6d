// The measured picture and what came of it, one over the other, with a movable edge between them.

import { byId } from "./dom.js";
import { t } from "./strings.js";

/** Pictures smaller than this are shown with their pixels, as they were measured. */
export const COARSE_PIXELS = 100;

/** The viewer of one job; starts with the measurement alone. */
export function comparison(job) {
  const [box, before, after, tag, split] = ["compare", "before", "after", "after-tag", "split"].map(byId);
  const [width, height] = job.output_size;
  box.style.setProperty("--ratio", `${width} / ${height}`);
  box.style.setProperty("--fit", width / height);
  box.classList.remove("live", "ready");
  after.hidden = split.hidden = true;
  split.value = 50;
  after.removeAttribute("src");
  before.alt = t.beforeAlt;
  before.classList.toggle("coarse", Math.max(...job.image_size) < COARSE_PIXELS);
  const measured = job.artifacts.find((artifact) => artifact.name === "measurement.png");
  if (measured) before.src = measured.url;

  const show = (url, alt, label) => {
    after.src = url;
    after.alt = alt;
    after.hidden = false;
    tag.textContent = label;
  };
  const move = () => {
    box.style.setProperty("--split", `${100 - split.value}%`);
    split.setAttribute("aria-valuetext", t.compareValue(split.value));
  };
  split.setAttribute("aria-label", t.compare);
  split.oninput = move;

  return {
    /** The estimate of a running job, in full. */
    estimate(url) {
      box.classList.add("live");
      show(url, t.previewAlt, t.preview);
    },
    /** A result, to be compared. */
    result(url) {
      box.classList.remove("live");
      box.classList.add("ready");
      show(url, t.afterAlt, t.after);
      split.hidden = false;
      move();
    },
  };
}
