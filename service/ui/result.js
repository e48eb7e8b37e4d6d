// A finished job: its pictures or its answer, its downloads, and how it was made.

import * as api from "./api.js";
import { contactStrip } from "./contact.js";
import { button, el } from "./dom.js";
import { shareBox } from "./share.js";
import { codeBox } from "./snippets.js";
import { expired } from "./stage.js";
import { humanise, t, valueName } from "./strings.js";
import { truthFacts, truthOf } from "./truth.js";

/** The parts of a job's page that are about its result; none is shown until ``show``. Without ``onAgain`` they are read-only. */
export function resultView(first, task, described, words, stage, { onAgain, onProblem, events }) {
  const download = el("a", { class: "button primary", textContent: first.output_size ? t.download : t.downloadText });
  const sidecar = el("a", { class: "button", textContent: t.sidecar });
  const contact = button(t.contact, async () => {
    try {
      const before = stage.before && { ...stage.before, label: words.before };
      const strip = await contactStrip({ before, events: events(), after: { url: chosen.url, label: chosen.label }, size: first.output_size, notice: words.notice });
      save(strip, `${first.id}-contact.png`);
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      onProblem(error);
    }
  }, { hidden: !first.output_size });
  const sharing = onAgain && shareBox(first, described, onProblem);
  const again = onAgain && button(t.again, () => onAgain(first));
  const fresh = onAgain && el("a", { class: "button quiet", href: `#${first.task}`, textContent: t.fresh });
  const actions = el("div", { class: "actions inner later" }, download, sharing?.button, again, contact, sidecar, fresh);
  const warning = el("p", { class: "note warn", role: "note", hidden: true });
  const told = el("div", { class: "told", hidden: true });
  const strip = el("div", { class: "strip", hidden: true });
  const facts = el("div", { class: "facts later" });
  const code = el("div", { class: "code-place" });
  let chosen = null;

  const choose = (picture = chosen) => {
    if (!picture) return showAnswer();
    chosen = picture;
    stage.result(picture.url, picture.alt, picture.label);
    link(download, picture.artifact, first, t.download);
    for (const each of strip.querySelectorAll("button")) each.setAttribute("aria-pressed", String(each.value === picture.artifact.name));
  };

  let answered = null; // the finished job of a text task
  const showAnswer = async () => {
    try {
      if (answered) await stage.result(answered);
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      onProblem(error);
    }
  };

  /** All facts at once, also where the distance from a known truth takes a moment. */
  const showFacts = async (job, artifact) => {
    let truth = [];
    try {
      truth = await truthFacts(job, artifact);
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      onProblem(error);
    }
    facts.replaceChildren(...(expired(job) ? [el("p", { class: "note warn", textContent: t.expired })] : truth), ...factsOf(job, described));
  };

  const show = (job) => {
    actions.style.minHeight = `${actions.offsetHeight}px`; // fewer buttons take the same place
    actions.classList.remove("later");
    if (onAgain) code.replaceChildren(codeBox(job, task, described));
    warning.textContent = job.metrics.text_notice ?? "";
    warning.hidden = !warning.textContent;
    told.hidden = !job.metrics.found;
    const find = (name) => job.artifacts.find((artifact) => artifact.name === name);
    const gone = expired(job);
    if (job.metrics.found) told.replaceChildren(undone(job, onAgain, gone ? null : find("blur.png")));
    for (const each of [download, sidecar, contact]) each.hidden ||= job.state !== "succeeded" || gone;
    sharing?.show(job);
    showFacts(job, gone ? null : find("result.png"));
    if (gone || job.state !== "succeeded") return;
    link(sidecar, find("result.json"), job, t.sidecar);
    if (!job.output_size) {
      link(download, find("answer.txt"), job, t.downloadText);
      answered = job;
      return choose();
    }
    const pictures = picturesOf(job, find, words);
    choose(pictures.find(({ artifact }) => artifact.name === "result.png") ?? pictures[0]);
    const truth = truthOf(job);
    const several = pictures.length > 1 ? pictures.filter(({ artifact }) => artifact.name !== "result.png") : [];
    const shown = truth ? [...(several.length ? several : pictures), truth] : several;
    strip.hidden = shown.length === 0;
    const list = el("ul", { class: "draws" }, ...shown.map((picture) => thumbnail(picture, choose)));
    const help = find("spread.png") ? el("p", { class: "help", textContent: t.spreadHelp }) : null;
    strip.replaceChildren(el("h2", { textContent: several.length ? t.strip : t.compareWith }), list, ...(help ? [help] : []));
  };
  return { warning, told, actions, share: sharing?.element, strip, facts, code, show, choose };
}

/** What an unknown degradation was taken for, with a picture of its blur and a way to correct it. */
function undone(job, onAgain, blur) {
  const { found } = job.metrics;
  const correct = () => onAgain({ ...job, spec: { ...job.spec, operator: found.operator } });
  const doubts = found.unsure.map((doubt) => el("li", { textContent: doubt }));
  const actions = onAgain && el("div", { class: "actions" }, button(t.found.correct, correct));
  const drawn = blur && el("figure", { class: "blur" }, el("img", { class: "coarse", src: blur.url, alt: t.found.blurAlt, width: 72, height: 72 }), el("figcaption", { class: "help", textContent: t.found.blur }));
  return el("section", { class: "diagnosis", "aria-label": t.found.title }, el("h2", { textContent: t.found.title }), el("p", { textContent: found.text }), drawn, el("ul", { class: "help" }, ...doubts), actions);
}

/** What can be looked at, each with its words. */
function picturesOf(job, find, words) {
  const named = [["result.png", words.after, t.pictureAlt.result], ["mean.png", t.mean, t.pictureAlt.mean], ["spread.png", t.spread, t.pictureAlt.spread]];
  const samples = job.artifacts.filter(({ name }) => /^sample-\d+\.png$/.test(name));
  const entry = (artifact, label, alt) => ({ artifact, url: artifact.url, label, alt });
  const [result, ...derived] = named.filter(([name]) => find(name)).map(([name, label, alt]) => entry(find(name), label, alt));
  return [result, ...samples.map((artifact, index) => entry(artifact, t.draw(index + 1), t.draw(index + 1))), ...derived];
}

function link(element, artifact, job, text) {
  element.href = artifact.url;
  element.download = `${job.id}-${artifact.name}`;
  element.textContent = text;
}

/** Gives the browser a file to keep. */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function thumbnail(picture, choose) {
  const made = button("", () => choose(picture), { class: "sample", value: picture.artifact.name, "aria-pressed": "false" });
  made.append(el("img", { src: picture.url, alt: "", width: 72, height: 72 }), el("span", { textContent: picture.label }));
  return el("li", {}, made);
}

function factsOf(job, described) {
  const { spec, metrics } = job;
  const rows = {
    operator: spec.operator && operatorText(metrics.found?.operator ?? spec.operator, described),
    sigma: number(metrics.sigma ?? spec.sigma),
    prompt: job.output_size ? spec.prompt : undefined,
    seed: spec.seed,
    sampler: spec.sampler && t.samplerText(spec.sampler.steps, spec.sampler.inner_steps),
    prior: spec.prior && valueName(spec.prior),
    size: job.output_size && t.size(...job.output_size),
    misfit: metrics.noise_floor > 0 && metrics.misfit?.length ? `${metrics.misfit.map(number).join(", ")} / ${number(metrics.noise_floor)}` : undefined,
    seconds: metrics.sampling_seconds && t.seconds(metrics.sampling_seconds),
    waited: metrics.wait_seconds >= 1 ? t.seconds(metrics.wait_seconds) : undefined,
  };
  const known = Object.entries(rows).filter(([, value]) => value !== undefined && value !== "" && value !== null && value !== false);
  const list = el("dl", {}, ...known.map(([name, value]) => el("div", {}, el("dt", { textContent: t.facts[name] }), el("dd", { textContent: value }))));
  const { found, text_notice: warning } = metrics;
  const above = [warning, found?.text, ...(found?.unsure ?? []).map((doubt) => `Not certain: ${doubt}`)];
  const notes = (metrics.notes ?? []).filter((note) => !above.includes(note)).map((note) => el("p", { class: "help", textContent: note }));
  return [el("h2", { textContent: t.factsTitle }), list, ...notes];
}

const number = (value) => (typeof value === "number" ? Number(value.toPrecision(3)).toString() : value);

/** An operator's name; of several, each one's. */
export function operatorName({ type, stages }) {
  return stages ? stages.map(operatorName).join(t.thenWord) : (t.names[type] ?? humanise(type));
}

/** An operator and those of its settings that matter, in one line. */
function operatorText(operator, described) {
  const { type, stages, ...settings } = operator;
  if (stages) return stages.map((stage) => operatorText(stage, described)).join(t.thenWord);
  const properties = described.operators.find((each) => each.type === type)?.schema.properties ?? {};
  const matters = (name) => Object.entries(properties[name]?.["x-when"] ?? {}).every(([other, value]) => [value].flat().includes(settings[other]));
  const shown = (value) => (Array.isArray(value) ? t.pixels(value[0].length, value.length) : value);
  const values = Object.entries(settings).filter(([name]) => matters(name)).map(([name, value]) => `${humanise(name).toLowerCase()} ${shown(value)}`);
  return [operatorName(operator), ...values].join(", ");
}
