// The view of a text job: its answers while they are written, side by side, and the order in which their tokens were decided.

import * as api from "./api.js";
import { el } from "./dom.js";
import { promptText, t } from "./strings.js";
import { rampAt, rampCss } from "./tokens.js";

/** One answer: its text, its reward, and whether it is the best of several. */
function answerCard(title) {
  const body = el("p", { class: "answer" });
  const reward = el("span", { class: "help" });
  const element = el("article", { class: "answer-card", "aria-label": title }, el("h2", {}, title, reward), body);
  const write = (text) => {
    const parts = text.split(/(▢+)/);
    body.replaceChildren(...parts.filter(Boolean).map((part) => (part[0] === "▢" ? openBoxes(part.length) : part)));
  };
  /** Every token on the colour of the step that decided it, until ``step``; later ones are boxes. */
  const order = (tokens, step, steps) =>
    body.replaceChildren(
      ...tokens.map((token) => {
        if (!token || token.step > step) return openBoxes(1);
        const [red, green, blue] = rampAt(steps > 1 ? (token.step - 1) / (steps - 1) : 1);
        const piece = el("span", { class: "token", textContent: token.piece, title: t.decidedIn(token.step) });
        piece.style.backgroundColor = `rgb(${red} ${green} ${blue} / 0.4)`;
        return piece;
      }),
    );
  const note = (text) => body.replaceChildren(el("span", { class: "help", textContent: text }));
  const score = (value, best = false) => {
    if (typeof value === "number") reward.textContent = best ? t.bestReward(value) : t.rewardOf(value);
    element.classList.toggle("best", best);
  };
  return { element, write, order, note, score };
}

const openBoxes = (count) => el("span", { class: "open", "aria-hidden": "true", textContent: "▢".repeat(count) });

/** The prompts of a job, each with the cards of its answers. */
function board(prompts, runs, perPrompt) {
  const several = prompts.length > 1;
  const title = (run, p, k) => {
    const name = perPrompt > 1 ? t.candidate(t[run], k + 1) : t[run];
    return several ? t.ofPrompt(name, p + 1) : name;
  };
  const cards = new Map(runs.map((run) => [run, prompts.flatMap((_, p) => Array.from({ length: perPrompt }, (_, k) => answerCard(title(run, p, k))))]));
  const layout = perPrompt > 1 ? "candidates" : runs.length > 1 ? "pair" : "single";
  const sections = prompts.map((prompt, p) => {
    const mine = runs.flatMap((run) => cards.get(run).slice(p * perPrompt, (p + 1) * perPrompt));
    return [el("blockquote", { class: "prompt", textContent: promptText(prompt) }), el("div", { class: layout }, ...mine.map((card) => card.element))];
  });
  return { cards, element: el("div", { class: "answers" }, ...sections.flat()) };
}

/** The stage of a text job; ``expired`` tells whether its files are gone. */
export function textStage(job, expired) {
  const runs = job.spec.guidance === false ? ["unguided"] : job.spec.compare_unguided ? ["guided", "unguided"] : ["guided"];
  const perPrompt = job.spec.num_samples ?? 1;
  const prompts = [job.spec.prompt, ...(job.spec.more_prompts ?? [])];
  const { cards, element } = board(prompts, runs, perPrompt);
  const several = perPrompt * prompts.length > 1;
  const latest = new Map(); // events by step
  const tokens = new Map(runs.map((run) => [run, cards.get(run).map(() => [])])); // of each row: {piece, step} by position
  let total = 1;
  let shown = 0;
  let settled = 0;
  let finished = null; // the answers of the finished job, by run
  const perRun = () => total / runs.length;
  if (runs.length > 1) for (const card of cards.get("unguided")) card.note(t.notStarted);

  const picker = el("select", {}, ...["off", "heat"].map((value) => el("option", { value, textContent: t.order[value] })));
  const ends = t.rampEnds.heat.map((textContent) => el("span", { textContent }));
  const bar = el("span", { class: "ramp-bar" });
  const ramp = el("span", { class: "ramp", hidden: true }, ends[0], bar, ends[1]);
  bar.style.background = rampCss;
  picker.addEventListener("change", () => {
    ramp.hidden = picker.value === "off";
    paint();
  });

  /** Answers of a finished job, by run; a single one is an artifact, several are in the sidecar. */
  const answers = async (done) => {
    const find = (name) => done.artifacts.find((artifact) => artifact.name === name);
    if (several) {
      const told = JSON.parse(await api.text(find("result.json").url));
      return [told.answers, told.unguided_answers];
    }
    const named = [["answer.txt", done.metrics.reward], ["unguided.txt", done.metrics.unguided_reward]];
    return Promise.all(named.map(async ([name, reward]) => (find(name) ? [{ text: await api.text(find(name).url), reward }] : [])));
  };

  const paintRun = (run, index) => {
    const first = perRun() * index;
    const step = Math.min(shown, first + perRun());
    const seen = latest.get(step);
    const done = finished && shown >= total;
    for (const [k, card] of cards.get(run).entries()) {
      if (picker.value === "heat" && step > first) card.order(tokens.get(run)[k], step - first, perRun());
      else if (done) card.write(finished[index][k].text);
      else if (step <= first) card.note(t.notStarted);
      else if (seen) card.write(seen.rows[k].text);
      if (done) card.score(finished[index][k].reward, finished[index][k].best);
      else if (seen && several) card.score(seen.rows[k].reward);
    }
  };
  const paint = () => {
    for (const [index, run] of runs.entries()) paintRun(run, index);
  };

  return {
    element,
    tools: el("div", { class: "stage-tools" }, el("label", { class: "overlay-label" }, el("span", { textContent: t.overlay }), picker), ramp),
    add(event) {
      total = event.total;
      latest.set(event.step, event);
      settled += event.decided.length;
      const index = Math.floor((event.step - 1) / perRun());
      for (const [k, row] of event.rows.entries())
        for (const [i, place] of row.decided.entries()) tokens.get(runs[index])[k][place] = { piece: row.pieces[i], step: event.step - perRun() * index };
    },
    show(event) {
      shown = event.step;
      paint();
    },
    async result(done) {
      if (expired(done)) return;
      finished = (await answers(done)).map((rows) => markBest(rows ?? [], perPrompt));
      shown = Infinity; // the end, also where the events arrive later
      paint();
    },
    settled: () => t.settledCount(settled),
  };
}

/** Marks the best answer to every prompt, the first of equals, if a prompt has several. */
function markBest(rows, perPrompt) {
  return rows.map((row, k) => {
    const first = k - (k % perPrompt);
    const rewards = rows.slice(first, first + perPrompt).map(({ reward }) => reward);
    return { ...row, best: perPrompt > 1 && rewards.indexOf(Math.max(...rewards)) === k - first };
  });
}
