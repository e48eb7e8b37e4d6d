// A task's form: its pictures, its prompt, its settings; all from the task's schema.

import * as api from "./api.js";
import { demo } from "./demo.js";
import { diagnosisOf } from "./diagnosis.js";
import { button, el } from "./dom.js";
import { choice, group, markErrors, validate } from "./form.js";
import { maskEditor } from "./mask.js";
import { pictureSlot } from "./slot.js";
import { humanise, pictureLabel, t, wordsOf } from "./strings.js";
import { remember } from "./truth.js";

/** Fields of any task that are worth seeing at once, after those it requires. */
const MAIN_FIELDS = ["operator", "sigma", "compare_unguided", "num_samples", "seed"];

/** A task's form; ``onJob`` gets the accepted job. */
export function composer(task, described, samples, { onJob, onProblem }) {
  const words = wordsOf(task.type, task.summary);
  const settings = settingsForm(task, described);
  const pictures = pictureInputs(task, described.limits, settings, onProblem);
  const starts = samples.filter((sample) => sample.task === task.type);
  const galleries = [false, true].map((forDemo) => gallery(starts.filter((start) => Boolean(start.demo) === forDemo), forDemo ? t.demo.samples : words.samples, pictures, settings, onProblem));
  const demonstration = settings.degrades && pictures.slots.has("image") ? demonstrationOf(task, pictures, settings, galleries) : null;
  const diagnosis = demonstration && diagnosisOf(pictures.slots.get("image"), settings, demonstration.on);
  const submit = el("button", { class: "primary", type: "submit", textContent: words.submit });
  const actions = el("div", { class: "actions" }, submit, el("p", { class: "note", textContent: words.notice }));
  const form = el(
    "form",
    { noValidate: true, class: pictures.any ? "columns" : "columns alone" },
    el("section", { class: "pictures" }, demonstration?.choice, ...pictures.elements, diagnosis, demonstration?.shown, ...galleries),
    el("section", { class: "settings", "aria-label": t.settingsTitle }, settings.warning, settings.element, actions),
  );
  const plainly = async () => ({ files: await pictures.files(), spec: settings.read() });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    onProblem(null);
    const missing = pictures.missing();
    if (missing) return onProblem({ message: missing });
    if (!validate(form)) return onProblem({ message: t.fixFields });
    const demonstrated = demonstration?.on() ? demonstration : null;
    const problem = await demonstrated?.problem();
    if (problem) return onProblem({ message: problem });
    submit.disabled = true;
    submit.textContent = t.submitting;
    try {
      const { files, spec } = await (demonstrated ? demonstrated.request(settings.read()) : plainly());
      const job = await api.submit(task.type, files, spec);
      if (demonstrated) await remember(job, demonstrated.made());
      onJob(job);
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      onProblem(error);
      markErrors(form, error.errors);
    } finally {
      submit.disabled = false;
      submit.textContent = words.submit;
    }
  });
  document.addEventListener("paste", (event) => {
    const pasted = event.clipboardData?.files[0];
    if (pasted && form.isConnected) pictures.paste(pasted);
  });
  const intro = el("div", { class: "intro" }, el("h1", { tabIndex: -1, textContent: words.title }), el("p", { textContent: words.lede }));
  /** Takes over a past job's pictures and settings. */
  const fill = async (job) => {
    demonstration?.off(); // what the job was given is degraded already
    settings.write(job.spec);
    await pictures.fill(job);
  };
  return { element: el("div", { class: "compose" }, intro, form), title: words.title, fill };
}

/** The demonstration in a task that undoes a degradation: its own samples, and another name for the picture. */
function demonstrationOf(task, pictures, settings, [samples, demoSamples]) {
  const slot = pictures.slots.get("image");
  const onSwitch = (on) => {
    slot.rename(on ? t.demo.clean : pictureLabel(task.type, "image"));
    slot.clear();
    if (samples) samples.hidden = on;
    if (demoSamples) demoSamples.hidden = !on;
  };
  const made = demo({ picture: slot.picture, mask: pictures.mask, settings, onSwitch });
  if (demoSamples) demoSamples.hidden = true;
  for (const kind of ["shown", "painted"]) slot.element.addEventListener(kind, made.later);
  return made;
}

/** The task's priors that this service offers: those that make what its own default makes. */
function priorsFor(schema, described) {
  const makes = described.priors.find(({ name }) => name === schema.properties.prior?.default)?.makes;
  return { makes, offered: described.priors.filter((prior) => prior.offered && prior.makes === makes) };
}

/** Everything of the task's schema: the common fields open, the rest folded. */
function settingsForm(task, described) {
  const { schema } = task;
  const { makes, offered } = priorsFor(schema, described);
  const names = offered.map(({ name }) => name);
  const prior = offered[0];
  const properties = { ...schema.properties };
  if (names.length) properties.prior = { ...properties.prior, enum: names, default: names[0] };
  const folding = Object.keys(properties).filter((name) => properties[name]["x-default-type"] || (properties[name].$ref && schema.$defs[properties[name].$ref.split("/").at(-1)]?.properties));
  const skip = [...folding, ...(names.length > 1 ? [] : ["prior"])];
  const main = group({ properties }, schema.$defs, "", undefined, skip);
  const folds = new Map(folding.map((name) => [name, foldedGroup(name, properties[name], schema.$defs, prior?.recommended[name] ?? {})]));
  // large results take long: suggest twice the size the prior was made for
  if (prior?.native_size) main.controls.get("working_size")?.write(2 * Math.max(...prior.native_size));

  const open = [...new Set([...(Object.keys(task.pictures).length ? [] : ["prompt"]), ...(schema.required ?? []), ...MAIN_FIELDS])].filter((name) => main.controls.has(name));
  const rest = [...main.controls.keys()].filter((name) => !open.includes(name));
  const part = (some) => el("div", { class: "fields" }, ...some.map((name) => main.controls.get(name).element));
  const element = el("div", { class: "groups" }, part(open), rest.length > 0 && folded(t.more, part(rest)), ...[...folds.values()].map((fold) => fold.element));
  const available = offered.some((candidate) => candidate.available);
  const warning = available || !makes ? null : el("p", { class: "note warn", textContent: t.noPrior(t.kinds[makes] ?? makes) });
  const read = () => {
    const spec = main.read();
    for (const [name, fold] of folds) {
      const chosen = fold.read();
      if (Object.keys(chosen).length) spec[name] = chosen;
    }
    return spec;
  };
  const write = (spec) => {
    for (const [name, value] of Object.entries(spec)) (main.controls.get(name) ?? folds.get(name))?.write(value);
    element.dispatchEvent(new Event("choose", { bubbles: true }));
  };
  // a degradation may or may not need a mask or kernel; a task without one that takes masks needs them always
  const needs = (name) => (main.controls.has("operator") ? wantsUpload(main.controls.get("operator").read(), name, described) : true);
  return { element, warning, read, write, needs, degrades: main.controls.has("operator") };
}

/** A group of settings of which only those that were filled in are sent. */
function foldedGroup(name, property, defs, recommended) {
  const made = property.oneOf ? choice(property, defs, `/${name}`, recommended) : ownSettings(property, defs, `/${name}`, recommended);
  const help = el("p", { class: "help", textContent: property.description });
  return { ...made, element: folded(t.labels[name] ?? humanise(name), help, made.element) };
}

/** The settings of a sampler that cannot be chosen; recommendations of several are told apart by its type. */
function ownSettings(property, defs, pointer, recommended) {
  const inner = defs[property.$ref.split("/").at(-1)];
  const type = inner.properties.type?.default;
  return group(inner, defs, pointer, type ? (recommended[type] ?? {}) : recommended);
}

/** Whether an operator, or one inside it, takes its ``name`` (mask or kernel) from an upload. */
function wantsUpload(operator, name, described) {
  const field = described.operators.find(({ type }) => type === operator.type)?.schema.properties[name];
  return (operator[name] ?? field?.default) === "upload" || (operator.stages ?? []).some((stage) => wantsUpload(stage, name, described));
}

function folded(title, ...content) {
  return el("details", { class: "folded" }, el("summary", { textContent: title }), ...content);
}

/** A slot for each of the task's pictures; its mask is painted over the picture. */
function pictureInputs(task, limits, settings, onProblem) {
  const names = Object.keys(task.pictures).sort((a, b) => task.pictures[b] - task.pictures[a]);
  const masked = names.includes("mask") && names.includes("image");
  const mask = masked ? maskEditor(onProblem) : null;
  const slots = new Map();
  const tools = masked ? el("div", { class: "mask-box", hidden: true }, el("p", { class: "help", textContent: wordsOf(task.type).mask }), mask.toolbar) : null;
  let hasImage = false;
  const showMask = () => {
    if (!masked) return;
    tools.hidden = mask.surface.hidden = !hasImage || !settings.needs("mask");
  };
  const showKernel = () => {
    if (slots.has("kernel")) slots.get("kernel").element.hidden = !settings.needs("kernel");
  };
  for (const name of names.filter((candidate) => !(masked && candidate === "mask"))) {
    const onChange = (shown) => {
      if (name === "image" && masked) {
        hasImage = Boolean(shown);
        if (shown) mask.reset(shown.naturalWidth, shown.naturalHeight);
        showMask();
      }
      slot.element.dispatchEvent(new Event("shown"));
    };
    const slot = pictureSlot({ label: pictureLabel(task.type, name), required: task.pictures[name], limits, onProblem, onChange });
    slots.set(name, slot);
    if (name !== "image" || !masked) continue;
    slot.holder.append(mask.surface);
    slot.element.append(tools);
  }
  for (const show of [showMask, showKernel]) {
    settings.element.addEventListener("change", show);
    settings.element.addEventListener("choose", show);
    show();
  }

  const files = async () => {
    const found = [...slots].filter(([, slot]) => !slot.element.hidden).map(([name, slot]) => [name, slot.file()]);
    if (masked && hasImage && settings.needs("mask")) found.push(["mask", await mask.blob()]);
    return Object.fromEntries(found.filter(([, file]) => file));
  };
  const missing = () => {
    const [name, slot] = [...slots].find(([candidate, each]) => task.pictures[candidate] && !each.file()) ?? [];
    slot?.focus();
    return name ? t.needPicture(pictureLabel(task.type, name)) : null;
  };
  const fetched = async (artifact) => new File([await api.blob(artifact.url)], artifact.name, { type: artifact.media_type });
  const fill = async (job) => {
    for (const name of names) {
      const artifact = job.artifacts.find((candidate) => candidate.name === api.inputName(name));
      if (!artifact) slots.get(name)?.clear();
      else if (slots.has(name)) await slots.get(name).take(await fetched(artifact));
      else await mask.load(await fetched(artifact));
    }
  };
  const paste = (file) => ([...slots.values()].find((slot) => !slot.element.hidden && !slot.file()) ?? slots.values().next().value)?.take(file, t.pasted);
  return { elements: [...slots.values()].map((slot) => slot.element), any: slots.size > 0, slots, files, missing, fill, paste, mask: () => mask?.blob() };
}

/** Things to start from, a button each: pictures with their settings, or a prompt. */
function gallery(starts, title, pictures, settings, onProblem) {
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
