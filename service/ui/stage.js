// The view of a running job: a picture with its tokens, or an answer with its boxes. Both have the same methods.

import { textStage } from "./answers.js";
import { inputName } from "./api.js";
import { el } from "./dom.js";
import { t } from "./strings.js";
import { rampCss, tokenGrid } from "./tokens.js";
import { viewer } from "./viewer.js";

const MODES = ["off", "settled", "heat", "confidence"];

/** The stage that suits the job. */
export const stageFor = (job, task, words) => (job.output_size ? pictureStage(job, task, words) : textStage(job, expired));

function pictureStage(job, task, words) {
  const before = sent(job);
  const view = viewer(job.output_size, words, before);
  const grid = tokenGrid(view.tokens);
  const frames = new Map();
  let shown = 0;
  let total = 1;
  let mode = "off";
  let current = ""; // address of the estimate within a step
  const paint = () => {
    grid.paint(shown, total, mode);
    grid.fit(view.shownSize());
  };
  view.onShown(paint);

  const picker = el("select", { class: "overlay" }, ...MODES.map((value) => el("option", { value, textContent: t.overlays[value] })));
  const ends = [el("span"), el("span")];
  const bar = el("span", { class: "ramp-bar" });
  const ramp = el("span", { class: "ramp", hidden: true }, ends[0], bar, ends[1]);
  bar.style.background = rampCss;
  const help = el("span", { class: "help" });
  let hint = ""; // what the result's controls do
  const explain = () => (help.textContent = mode === "off" ? hint : t.overlayHelp[mode] + (grid.count() < grid.all() ? t.overlayKnown : ""));
  picker.addEventListener("change", () => {
    mode = picker.value;
    ramp.hidden = !t.rampEnds[mode];
    for (const [index, end] of ends.entries()) end.textContent = t.rampEnds[mode]?.[index] ?? "";
    explain();
    paint();
  });
  const label = el("label", { class: "overlay-label" }, el("span", { textContent: t.overlay }), picker);
  const tools = el("div", { class: "stage-tools" }, label, view.bar);
  const legend = el("div", { class: "legend" }, help, ramp);

  return {
    element: el("div", { class: "picture-stage" }, view.element),
    tools: el("div", { class: "stage-below" }, tools, legend),
    before,
    add(event) {
      grid.add(event);
      total = event.total;
      if (!event.preview_url || frames.has(event.step)) return;
      const frame = new Image(); // kept, so that scrubbing finds it decoded
      frame.src = event.preview_url;
      frames.set(event.step, frame);
    },
    show(event) {
      shown = event.step;
      if (event.preview_url) view.estimate(event.preview_url, t.preview(event.step));
      paint();
    },
    /** The estimate within ``step``; the next one takes its place. */
    refine(jpeg, step) {
      URL.revokeObjectURL(current);
      current = URL.createObjectURL(jpeg);
      view.estimate(current, t.previewWithin(step));
    },
    result(url, alt, text) {
      shown = total;
      view.result(url, alt, text);
      hint = before ? t.done : t.doneAlone;
      explain();
      paint();
    },
    settled: () => t.settled(grid.settled() / (grid.count() || 1)),
  };
}

/** The picture that was sent, and where it lies in the result, which may have grown beyond it. */
function sent(job) {
  const artifact = job.artifacts.find(({ name }) => name === inputName("image"));
  if (!artifact || expired(job)) return null;
  const { left = 0, top = 0, right = 0, bottom = 0 } = job.spec;
  const [width, height] = job.output_size;
  const place = { left: left / width, top: top / height, width: (width - left - right) / width, height: (height - top - bottom) / height };
  return { url: artifact.url, place, coarse: Math.max(...job.image_size) };
}

export const expired = (job) => Boolean(job.expires_at && new Date(job.expires_at) < new Date());
