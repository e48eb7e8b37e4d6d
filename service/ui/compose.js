// A task's form: its pictures, its prompt, its settings; all from the task's schema.

import * as api from "./api.js";
import { canSimulate } from "./degrade.js";
import { demo } from "./demo.js";
import { diagnosisOf } from "./diagnosis.js";
import { el, painted } from "./dom.js";
import * as drafts from "./drafts.js";
import { forecast } from "./estimate.js";
import { gallery } from "./gallery.js";
import { pictureInputs } from "./inputs.js";
import { settingsForm } from "./settings.js";
import { areSeveral, dropped, severalPanel } from "./several.js";
import { pictureLabel, t, wordsOf } from "./strings.js";
import { remember } from "./truth.js";
import { isValid, markErrors, validate } from "./validity.js";

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
  // a search is named, so that the estimate of the time includes it; all else is examined anew and measured
  const restoreFound = ({ operator }) => {
    settings.write({ operator: operator.type === "blind" ? operator : { type: "auto" } });
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
    submit.disabled = true;
    submit.textContent = t.submitting;
    await painted(); // the button answers at once
    try {
      await send();
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      onProblem(error);
      markErrors(form, error.errors);
    } finally {
      submit.disabled = false;
      submit.textContent = words.submit;
    }
  });
  /** Sends the form if it is complete; says what is missing otherwise. */
  async function send() {
    const missing = pictures.missing();
    if (missing) return onProblem({ message: missing });
    if (!validate(form)) return onProblem({ message: t.fixFields });
    const demonstrated = demonstration?.on() ? demonstration : null;
    const problem = await (demonstrated ? demonstrated.problem() : pictures.unpainted());
    if (problem) return onProblem({ message: problem });
    const { files, spec } = await (demonstrated ? demonstrated.request(settings.read()) : plainly());
    const job = await api.submit(task.type, files, spec);
    if (demonstrated) await remember(job, demonstrated.made());
    await drafts.drop(task.type);
    onJob(job);
  }
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
    if (!on) settings.write({ operator: { type: "auto" } });
    else if (!canSimulate(settings.read().operator)) settings.write({ operator: { type: "super_resolution" } });
    if (samples) samples.hidden = on;
    if (demoSamples) demoSamples.hidden = !on;
  };
  const made = demo({ picture: slot.picture, mask: pictures.mask, settings, onSwitch });
  if (demoSamples) demoSamples.hidden = true;
  for (const kind of ["shown", "painted"]) slot.element.addEventListener(kind, made.later);
  return made;
}
