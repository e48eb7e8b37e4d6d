// Progress of a running job: a bar that moves within each step, the time left counting down, and both in the tab's title.

import { el } from "./dom.js";
import { t } from "./strings.js";

const TICK_MILLISECONDS = 1000;

const over = ({ state }) => !["queued", "running"].includes(state);

/** The panel; ``show`` takes the job, ``step`` and ``inner`` its events, ``hold`` hides the countdown, and ``stop`` ends it. */
export function progressPanel(words) {
  const bar = el("progress", { max: 1, "aria-label": words.running });
  const stepText = el("span");
  const timeText = el("span", { class: "help" });
  const element = el("div", { class: "running" }, el("div", { class: "progress-line" }, stepText, timeText), bar);
  let ends = null; // predicted time of the end on this page's clock
  let share = 0;
  let live = false;
  let held = false; // how long it takes is not known at present
  let timer = 0;

  const tick = () => {
    timeText.textContent = ends === null || held ? "" : t.remaining(Math.max(0, (ends - performance.now()) / 1000));
    document.title = [live && t.percent(share), live ? words.running : words.title, t.brand].filter(Boolean).join(" · ");
  };

  /** ``left`` are the seconds the worker predicts. Events of the past, as after a reload, arrive all at once: the last counts. */
  function move(done, text, left) {
    live = true;
    share = done;
    bar.value = done;
    stepText.textContent = text;
    ends = left === undefined || left === null ? null : performance.now() + 1000 * left;
    tick();
    timer ||= setInterval(tick, TICK_MILLISECONDS);
  }

  const step = ({ step: n, total, seconds_left: left }) => move(n / total, t.step(n, total), left);
  const inner = ({ step: n, total, inner_step: done, inner_steps: all, seconds_left: left }) => move((n - 1 + done / all) / total, t.inRound(n, total, done, all), left);
  const stop = () => {
    clearInterval(timer);
    timer = 0;
  };
  /** Not started, or interrupted: when it goes on is unknown. */
  const wait = ({ phase }) => {
    bar.removeAttribute("value");
    stepText.textContent = t.phases[phase] ?? "";
    timeText.textContent = "";
  };
  const show = (job) => {
    element.hidden = over(job);
    if (over(job)) {
      live = false;
      stop();
      document.title = `${words[job.state] ?? t.states[job.state]} · ${t.brand}`;
    } else if (job.state === "queued") {
      live = false;
      stop();
      wait(job);
    } else if (job.cancel_requested) {
      stop();
      stepText.textContent = t.phases.canceling;
      timeText.textContent = "";
    } else if (live) tick();
    else if (job.progress) step(job.progress);
    else if (job.phase === "sampling") move(0, t.phases.sampling, job.estimated_seconds);
    else wait(job);
  };
  /** Without a connection, the time left is not known. */
  const hold = (is) => {
    held = is;
    if (live) tick();
  };
  return { element, show, step, inner, hold, stop };
}
