// A task's form: its pictures, its prompt, its settings; all from the task's schema.

import * as api from "./api.js";
import { demo } from "./demo.js";
import { diagnosisOf } from "./diagnosis.js";
import { el } from "./dom.js";
import * as drafts from "./drafts.js";
import { forecast, presetChooser } from "./estimate.js";
import { choice, group, isValid, markErrors, suggest, validate } from "./form.js";
import { gallery } from "./gallery.js";
import { maskEditor } from "./mask.js";
import { recommendedFor, unusual, usualType } from "./recommended.js";
import { areSeveral, dropped, severalPanel } from "./several.js";
import { pictureSlot } from "./slot.js";
import { humanise, pictureLabel, t, wordsOf } from "./strings.js";
import { remember } from "./truth.js";

/** Fields of any task that are worth seeing at once, after those it requires. */
const MAIN_FIELDS = ["operator", "sigma", "compare_unguided"];
const DRAFT_MILLISECONDS = 400;

/** A task's form; ``onJob`` gets the accepted job. */
export function composer(task, described, samples, { onJob, onProblem }) {
  const words = wordsOf(task.type, task.summary);
  const settings = settingsForm(task, described);
  const several = settings.degrades ? severalPanel({ task, limits: described.limits, settings, onProblem }) : null;
  // the demonstration degrades one picture
  const onSeveral = several && ((files) => (demonstration?.on() ? pictures.give(files[0]) : several.take(files)));
  const pictures = pictureInputs(task, described.limits, settings, onProblem, onSeveral);
  const starts = samples.filter((sample) => sample.task === task.type);
  const galleries = [false, true].map((forDemo) => gallery(starts.filter((start) => Boolean(start.demo) === forDemo), forDemo ? t.demo.samples : words.samples, pictures, settings, onProblem));
  const demonstration = settings.degrades && pictures.slots.has("image") ? demonstrationOf(task, pictures, settings, galleries) : null;
  const restoreFound = () => {
    settings.write({ operator: { type: "auto" } });
    form.requestSubmit();
  };
  const diagnosis = demonstration && diagnosisOf(pictures.slots.get("image"), settings, { skip: demonstration.on, onRestore: restoreFound });
  const submit = el("button", { class: "primary", type: "submit", textContent: words.submit });
  const sizeOf = () => (demonstration?.on() ? demonstration.size() : pictures.size());
  const crop = pictures.slots.has("image") ? (longest) => pictures.slots.get("image").crop(longest) : null;
  const predicted = forecast(task, { settings, sizeOf, onCrop: crop, valid: () => isValid(settings.element) });
  const actions = el("div", { class: "actions" }, pictures.thumb, submit, predicted.line);
  const notice = el("p", { class: "note", textContent: words.notice });
  const form = el(
    "form",
    { noValidate: true, class: pictures.any ? "columns" : "columns alone" },
    el("section", { class: "pictures" }, demonstration?.choice, ...pictures.elements, several?.element, diagnosis, demonstration?.shown, ...galleries),
    el("section", { class: "settings", "aria-label": t.settingsTitle }, settings.warning, settings.element, predicted.details, actions, notice),
  );
  const plainly = async () => ({ files: await pictures.files(), spec: settings.read() });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (submit.disabled) return; // being sent
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
      await drafts.drop(task.type);
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
    if (pasted && form.isConnected) pictures.give(pasted, t.pasted);
  });
  document.addEventListener("drop", (event) => {
    if (event.dataTransfer?.files.length && form.isConnected && !event.target.closest(".drop")) dropped(event.dataTransfer).then((files) => (several && areSeveral(files) ? onSeveral(files) : files[0] && pictures.give(files[0])));
  });
  const intro = el("div", { class: "intro" }, el("h1", { tabIndex: -1, textContent: words.title }), el("p", { textContent: words.lede }));
  /** Takes over a past job's pictures and settings. */
  const fill = async (job) => {
    demonstration?.off(); // what the job was given is degraded already
    settings.write(job.spec);
    await pictures.fill(job);
  };
  for (const slot of pictures.slots.values()) for (const kind of ["shown", "painted"]) slot.element.addEventListener(kind, predicted.later);
  demonstration?.shown.addEventListener("simulated", predicted.later);
  keepDraft(task, form, { settings, pictures, demonstration });
  return { element: el("div", { class: "compose" }, intro, form), title: words.title, fill };
}

/** Brings back the form as it was left unsent, then keeps it as it changes. */
async function keepDraft(task, form, { settings, pictures, demonstration }) {
  const draft = await drafts.kept(task.type);
  if (draft) {
    if (draft.demo) demonstration?.turnOn();
    settings.write(draft.spec);
    await pictures.restore(draft.pictures);
  }
  let timer = 0;
  const save = async () => drafts.keep(task.type, { spec: settings.read(), pictures: await pictures.state(), demo: Boolean(demonstration?.on()) });
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(save, DRAFT_MILLISECONDS);
  };
  for (const kind of ["input", "change", "choose", "shown", "painted"]) form.addEventListener(kind, later);
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
  const properties = { ...schema.properties };
  if (names.length) properties.prior = { ...properties.prior, enum: names, default: names[0] };
  const folding = Object.keys(properties).filter((name) => properties[name]["x-default-type"] || (properties[name].$ref && schema.$defs[properties[name].$ref.split("/").at(-1)]?.properties));
  const skip = [...folding, "preset", ...(names.length > 1 ? [] : ["prior"])];
  const preset = presetChooser(properties.preset);
  const main = group({ properties }, schema.$defs, "", undefined, skip);
  const chosenPrior = () => offered.find(({ name }) => name === main.controls.get("prior")?.read()) ?? offered[0];
  const usual = offered[0]; // its settings are shown first
  const withUsual = (name) => (properties[name].oneOf ? { ...properties[name], "x-default-type": usualType(properties[name], usual, name, task.type) } : properties[name]);
  const folds = new Map(folding.map((name) => [name, foldedGroup(name, withUsual(name), schema.$defs, usual?.recommended[name] ?? {})]));
  // large results take long: suggest twice the size the prior was made for
  if (usual?.native_size) main.controls.get("working_size")?.write(2 * Math.max(...usual.native_size));

  const open = [...new Set([...(Object.keys(task.pictures).length ? [] : ["prompt"]), ...(schema.required ?? []), ...MAIN_FIELDS])].filter((name) => main.controls.has(name));
  const rest = [...main.controls.keys()].filter((name) => !open.includes(name));
  const part = (some) => el("div", { class: "fields" }, ...some.map((name) => main.controls.get(name).element));
  const element = el("div", { class: "groups" }, part(open), preset?.element, rest.length > 0 && folded(t.more, part(rest)), ...[...folds.values()].map((fold) => fold.element));
  const available = offered.some((candidate) => candidate.available);
  const warning = available || !makes ? null : el("p", { class: "note warn", textContent: t.noPrior(t.kinds[makes] ?? makes) });
  /** Shows in the sampler's empty fields what the chosen preset puts there. */
  const showPreset = () => {
    const fold = folds.get("sampler");
    if (!preset || !fold) return;
    const only = schema.$defs[properties.sampler.$ref?.split("/").at(-1)]?.properties.type?.default;
    const prior = chosenPrior();
    const type = fold.read().type ?? only ?? usualType(properties.sampler, prior, "sampler", task.type);
    suggest(fold.element, "/sampler", recommendedFor(prior, "sampler", type, preset.read()));
  };
  for (const kind of ["change", "choose"]) element.addEventListener(kind, showPreset);
  showPreset();
  const read = () => {
    const spec = { ...main.read(), ...(preset && { preset: preset.read() }) };
    for (const [name, fold] of folds) {
      const chosen = fold.read();
      if (Object.keys(chosen).length) spec[name] = chosen;
    }
    return spec;
  };
  const write = (spec) => {
    const chosen = spec.preset ?? preset?.read();
    if (spec.preset) preset?.write(spec.preset);
    for (const [name, value] of Object.entries(spec)) {
      if (main.controls.has(name)) main.controls.get(name).write(value);
      else folds.get(name)?.write(value && unusual(value, chosenPrior(), name, chosen));
    }
    element.dispatchEvent(new Event("choose", { bubbles: true }));
  };
  // a degradation may or may not need a mask or kernel; a task without one that takes masks needs them always
  /** Brings a field into sight and focuses its first control. */
  const show = (name) => {
    const field = main.controls.get(name).element;
    field.scrollIntoView({ block: "start" });
    (field.querySelector("input:checked") ?? field.querySelector("input, select"))?.focus({ preventScroll: true });
  };
  const needs = (name) => (main.controls.has("operator") ? wantsUpload(main.controls.get("operator").read(), name, described) : true);
  /** Selects a prior; without a name, the first. One that is selected already is left alone: a change renews every offer. */
  const usePrior = (name) => {
    const wanted = name ?? usual?.name;
    if (wanted !== chosenPrior()?.name) write({ prior: wanted });
  };
  const isUsualPrior = () => chosenPrior() === usual;
  return { element, warning, preset, read, write, usePrior, isUsualPrior, show, needs, degrades: main.controls.has("operator") };
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
  const field = described.operators.find(({ type }) => type === operator.type)?.schema.properties?.[name];
  return (operator[name] ?? field?.default) === "upload" || (operator.stages ?? []).some((stage) => wantsUpload(stage, name, described));
}

function folded(title, ...content) {
  return el("details", { class: "folded" }, el("summary", { textContent: title }), ...content);
}

/** A slot for each of the task's pictures; its mask is painted over the picture. */
function pictureInputs(task, limits, settings, onProblem, onSeveral) {
  const names = Object.keys(task.pictures).sort((a, b) => task.pictures[b] - task.pictures[a]);
  const masked = names.includes("mask") && names.includes("image");
  const mask = masked ? maskEditor(onProblem) : null;
  const slots = new Map();
  const thumb = el("img", { class: "thumb-small", alt: "", width: 48, height: 48, hidden: true }); // keeps the picture in sight on a phone
  const tools = masked ? el("div", { class: "mask-box", hidden: true }, el("p", { class: "help", textContent: wordsOf(task.type).mask }), mask.toolbar) : null;
  let hasImage = false;
  const showMask = () => {
    if (!masked) return;
    tools.hidden = mask.surface.hidden = !hasImage || !settings.needs("mask");
  };
  const showKernel = () => {
    if (slots.has("kernel")) slots.get("kernel").element.hidden = !settings.needs("kernel");
  };
  // the mask is painted; the whole picture is kept by the slot of its part
  for (const name of names.filter((candidate) => !(masked && candidate === "mask") && candidate !== "whole")) {
    const onChange = (shown) => {
      if (name === "image" && masked) {
        hasImage = Boolean(shown);
        if (shown) mask.reset(shown.naturalWidth, shown.naturalHeight);
        showMask();
      }
      if (name === names[0]) {
        thumb.hidden = !shown;
        if (shown) thumb.src = shown.src;
      }
      slot.element.dispatchEvent(new Event("shown", { bubbles: true }));
    };
    const slot = pictureSlot({ label: pictureLabel(task.type, name), required: task.pictures[name], limits, onProblem, onChange, onSeveral: name === "image" ? onSeveral : undefined });
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
    if (names.includes("whole")) found.push(["whole", slots.get("image").whole()]);
    return Object.fromEntries(found.filter(([, file]) => file));
  };
  const missing = () => {
    const [name, slot] = [...slots].find(([candidate, each]) => task.pictures[candidate] && !each.file()) ?? [];
    slot?.focus();
    return name ? t.needPicture(pictureLabel(task.type, name)) : null;
  };
  const fetched = async (artifact) => new File([await api.blob(artifact.url)], artifact.name, { type: artifact.media_type });
  const fill = async (job) => {
    const sent = (name) => job.artifacts.find((candidate) => candidate.name === api.inputName(name));
    const whole = sent("whole");
    for (const name of names.filter((candidate) => candidate !== "whole")) {
      const artifact = sent(name);
      if (!artifact) slots.get(name)?.clear();
      else if (slots.has(name)) await slots.get(name).take(await fetched(artifact), undefined, name === "image" && whole ? await fetched(whole) : null);
      else await mask.load(await fetched(artifact));
    }
  };
  /** A picture that was pasted, or dropped beside the slots. */
  const give = (file, name) => ([...slots.values()].find((slot) => !slot.element.hidden && !slot.file()) ?? slots.values().next().value)?.take(file, name);
  const size = () => {
    const shown = slots.get("image")?.picture();
    return shown ? [shown.naturalWidth, shown.naturalHeight] : null;
  };
  /** Everything chosen so far; ``restore`` brings it back. */
  const state = async () => ({ slots: [...slots].filter(([, slot]) => slot.file()).map(([name, slot]) => ({ name, file: slot.file(), whole: slot.whole() })), mask: (hasImage && (await mask?.blob())) || null });
  const restore = async (kept) => {
    for (const { name, file, whole } of kept.slots) await slots.get(name)?.take(file, file.name, whole);
    if (kept.mask) await mask?.load(kept.mask);
  };
  return { elements: [...slots.values()].map((slot) => slot.element), any: slots.size > 0, thumb, slots, files, missing, fill, give, size, state, restore, mask: () => mask?.blob() };
}
