// The slider over a job's steps, with a button that plays them.

import { el, icon } from "./dom.js";
import { t } from "./strings.js";

const GLYPHS = { play: "M6 4l10 6-10 6z", pause: "M6.5 4v12M13.5 4v12" };
const FRAME_MILLISECONDS = 160;
const PLAY_MILLISECONDS = 4000;

/** ``onStep`` gets the step to show; ``countOf`` tells how many tokens a step decided. */
export function timeline({ onStep, countOf }) {
  const slider = el("input", { type: "range", min: 1, max: 1, value: 1, disabled: true, class: "scrub", "aria-label": t.scrub });
  const toggle = el("button", { type: "button", disabled: true, class: "icon play" });
  const text = el("span", { class: "help step-text" });
  const element = el("div", { class: "timeline" }, toggle, slider, text);
  let total = 1;
  let following = true; // the newest step, until somebody moves the slider back
  let timer = 0;

  const say = () => {
    text.textContent = t.step(slider.value, total);
    slider.setAttribute("aria-valuetext", t.scrubValue(Number(slider.value), total, countOf(Number(slider.value))));
  };
  const show = (step) => {
    slider.value = step;
    say();
    onStep(step);
  };
  const pause = () => {
    clearInterval(timer);
    timer = 0;
    name("play");
  };
  const name = (what) => {
    toggle.replaceChildren(icon(GLYPHS[what]));
    toggle.setAttribute("aria-label", t[what]);
  };
  const play = () => {
    const last = Number(slider.max);
    if (Number(slider.value) >= last) show(1);
    following = false;
    name("pause");
    timer = setInterval(
      () => {
        const step = Math.min(Number(slider.max), Number(slider.value) + 1);
        show(step);
        if (step < Number(slider.max)) return;
        following = true;
        pause();
      },
      Math.min(FRAME_MILLISECONDS, PLAY_MILLISECONDS / last),
    );
  };
  toggle.addEventListener("click", () => (timer ? pause() : play()));
  slider.addEventListener("input", () => {
    if (timer) pause();
    following = slider.value === slider.max;
    show(Number(slider.value));
  });
  name("play");
  return {
    element,
    /** A step was finished; it is shown unless an earlier one is being looked at, or more are known to follow at once. */
    reach(step, of, moreFollow = false) {
      slider.disabled = toggle.disabled = false;
      total = of;
      slider.max = Math.max(slider.max, step);
      text.style.minWidth = `${t.step(of, of).length}ch`; // the slider keeps its width
      if (following && !moreFollow) return show(Number(slider.max));
      if (following) slider.value = slider.max;
      say();
    },
    step: () => Number(slider.value),
    following: () => following,
    stop: pause,
  };
}
