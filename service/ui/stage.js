// The view of a running job: a picture with its tokens, or an answer with its boxes. Both have the same methods.

import { inputName } from "./api.js";
import * as api from "./api.js";
import { el } from "./dom.js";
import { promptText, t } from "./strings.js";
import { rampCss, tokenGrid } from "./tokens.js";
import { viewer } from "./viewer.js";

const MODES = ["off", "settled", "heat", "confidence"];

/** The stage that suits the job. */
export const stageFor = (job, task, words) => (job.output_size ? pictureStage(job, task, words) : textStage(job));

function pictureStage(job, task, words) {
  const before = sent(job);
  const view = viewer(job.output_size, words, before);
  const grid = tokenGrid(view.tokens);
  const frames = new Map();
  let shown = 0;
  let total = 1;
  let mode = "off";
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
  picker.addEventListener("change", () => {
    mode = picker.value;
    ramp.hidden = !t.rampEnds[mode];
    for (const [index, end] of ends.entries()) end.textContent = t.rampEnds[mode]?.[index] ?? "";
    help.textContent = t.overlayHelp[mode] + (mode !== "off" && grid.count() < grid.all() ? t.overlayKnown : "");
    paint();
  });
  const label = el("label", { class: "overlay-label" }, el("span", { textContent: t.overlay }), picker);
  const tools = el("div", { class: "stage-tools" }, label, view.bar);
  const legend = el("div", { class: "legend" }, help, ramp);

  return {
    element: el("div", { class: "picture-stage" }, view.element),
    tools: el("div", {}, tools, legend),
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
    result(url, alt, text) {
      shown = total;
      view.result(url, alt, text);
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

/** One answer while it is written and when it is done: its text, its reward, and whether it is the best of several. */
function answerCard(title) {
  const body = el("p", { class: "answer" });
  const reward = el("span", { class: "help" });
  const element = el("article", { class: "answer-card", "aria-label": title }, el("h2", {}, title, reward), body);
  const write = (text) => {
    const parts = text.split(/(▢+)/);
    body.replaceChildren(...parts.filter(Boolean).map((part) => (part[0] === "▢" ? el("span", { class: "open", "aria-hidden": "true", textContent: "▢".repeat(part.length) }) : part)));
  };
  const note = (text) => body.replaceChildren(el("span", { class: "help", textContent: text }));
  const score = (value, best = false) => {
    if (typeof value === "number") reward.textContent = best ? t.bestReward(value) : t.rewardOf(value);
    element.classList.toggle("best", best);
  };
  return { element, write, note, score };
}

function textStage(job) {
  const runs = job.spec.guidance === false ? ["unguided"] : job.spec.compare_unguided ? ["guided", "unguided"] : ["guided"];
  const count = job.spec.num_samples ?? 1;
  const cards = new Map(runs.map((run) => [run, Array.from({ length: count }, (_, k) => answerCard(count > 1 ? t.candidate(t[run], k + 1) : t[run]))]));
  const all = [...cards.values()].flat();
  const latest = new Map(); // of each run: its events by step
  let total = 1;
  const perRun = () => total / runs.length;
  if (runs.length > 1) for (const card of cards.get("unguided")) card.note(t.notStarted);
  let settled = 0;

  /** Answers of a finished job, by run; one is an artifact, several are in the sidecar. */
  const answers = async (finished) => {
    const find = (name) => finished.artifacts.find((artifact) => artifact.name === name);
    if (count > 1) {
      const told = JSON.parse(await api.text(find("result.json").url));
      return [told.answers, told.unguided_answers];
    }
    const named = [["answer.txt", finished.metrics.reward], ["unguided.txt", finished.metrics.unguided_reward]];
    return Promise.all(named.map(async ([name, reward]) => (find(name) ? [{ text: await api.text(find(name).url), reward }] : [])));
  };

  return {
    element: el("div", { class: "answers" }, el("blockquote", { class: "prompt", textContent: promptText(job.spec.prompt) }), el("div", { class: count > 1 ? "candidates" : runs.length > 1 ? "pair" : "single" }, ...all.map((card) => card.element))),
    tools: null,
    add(event) {
      total = event.total;
      latest.set(event.step, event);
      settled = event.decided.length ? settled + event.decided.length : settled;
    },
    show(event) {
      for (const [index, run] of runs.entries()) {
        const step = Math.min(event.step, perRun() * (index + 1));
        const seen = step > perRun() * index ? latest.get(step) : null;
        for (const [k, card] of cards.get(run).entries()) {
          if (seen) card.write(seen.rows[k].text);
          else if (event.step <= perRun() * index) card.note(t.notStarted);
          if (seen && count > 1) card.score(seen.rows[k].reward);
        }
      }
    },
    async result(finished) {
      if (expired(finished)) return;
      const found = await answers(finished);
      for (const [index, run] of runs.entries()) {
        const best = Math.max(...found[index].map(({ reward }) => reward));
        for (const [k, { text, reward }] of found[index].entries()) {
          cards.get(run)[k].write(text);
          cards.get(run)[k].score(reward, count > 1 && reward === best);
        }
      }
    },
    settled: () => t.settledCount(settled),
  };
}
