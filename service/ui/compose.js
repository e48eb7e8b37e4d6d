// The form: a picture, how it was degraded, and what the service should make of it.

import * as api from "./api.js";
import { COARSE_PIXELS } from "./compare.js";
import { byId, el } from "./dom.js";
import { group, markErrors, validate } from "./form.js";
import { t } from "./strings.js";

const TASK = "restore";
const MAIN_FIELDS = ["operator", "sigma", "seed", "prompt", "working_size"];

/** Builds the form from the service's capabilities; ``onJob`` gets the accepted job. */
export function compose(described, samples, { onJob, onProblem }) {
  const picture = pictureInput(described.limits, onProblem);
  const settings = settingsForm(described);
  showSamples(samples, picture, settings, onProblem);

  const form = byId("compose");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    onProblem(null);
    if (!picture.file()) return fail(onProblem, { message: t.needImage }, () => byId("image").focus());
    if (!validate(form)) return fail(onProblem, { message: t.fixFields });
    busy(true);
    try {
      const mask = settings.needsMask() ? (byId("mask").files[0] ?? null) : null;
      onJob(await api.restore(picture.file(), mask, settings.read()));
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      fail(onProblem, error, () => byId("alert").focus());
      markErrors(form, error.errors);
    } finally {
      busy(false);
    }
  });
  return { focusId: "image" };
}

function fail(onProblem, problem, focus = () => {}) {
  onProblem(problem);
  focus();
}

function busy(sending) {
  const button = byId("submit");
  button.disabled = sending;
  button.textContent = sending ? t.submitting : t.submit;
}

/** Everything of the task's schema: the common fields open, the rest folded. */
function settingsForm(described) {
  const { schema } = described.tasks.find((task) => task.type === TASK);
  const offered = described.priors.filter((prior) => prior.offered);
  const prior = offered[0];
  const priors = offered.map(({ name }) => name);
  const properties = { ...schema.properties, prior: { ...schema.properties.prior, enum: priors, default: priors[0] } };
  const skip = ["sampler", ...(priors.length > 1 ? [] : ["prior"])];
  const main = group({ properties }, schema.$defs, "", undefined, skip);
  const sampler = group(schema.$defs.APSConfig, schema.$defs, "/sampler", prior?.recommended ?? {});
  // large results take long: suggest twice the size the prior was made for
  if (prior) main.controls.get("working_size").write(2 * Math.max(...prior.native_size));

  const ordered = [...MAIN_FIELDS, ...main.controls.keys()].filter((name, index, all) => main.controls.has(name) && all.indexOf(name) === index);
  const part = (names) => el("div", { class: "fields" }, ...names.map((name) => main.controls.get(name).element));
  byId("fields").replaceChildren(
    part(ordered.filter((name) => MAIN_FIELDS.includes(name))),
    folded(t.more, part(ordered.filter((name) => !MAIN_FIELDS.includes(name)))),
    folded(t.labels.sampler, el("p", { class: "help", textContent: schema.properties.sampler.description }), sampler.element),
  );
  const needsMask = () => wantsUpload(main.controls.get("operator").read());
  const showMask = () => (byId("mask-field").hidden = !needsMask());
  byId("fields").addEventListener("change", showMask);
  byId("fields").addEventListener("choose", showMask);
  showMask();
  const read = () => {
    const chosen = sampler.read();
    return { ...main.read(), ...(Object.keys(chosen).length ? { sampler: chosen } : {}) };
  };
  const write = (spec) => {
    for (const [name, value] of Object.entries(spec)) main.controls.get(name).write(value);
    showMask();
  };
  return { read, write, needsMask };
}

/** Whether an operator, or one inside it, takes its mask from an upload. */
function wantsUpload(operator) {
  return operator.mask === "upload" || Object.values(operator).some((value) => Array.isArray(value) && value.some(wantsUpload));
}

function folded(title, ...content) {
  return el("details", { class: "folded" }, el("summary", { textContent: title }), ...content);
}

/** The picture, dropped, pasted or chosen. */
function pictureInput(limits, onProblem) {
  const shown = byId("image-shown");
  const drop = byId("drop");
  let file = null;
  byId("image-action").textContent = t.choose;
  byId("image-hint").textContent = t.imageHint(limits.max_upload_bytes);

  const take = (chosen, name = chosen.name) => {
    file = chosen;
    URL.revokeObjectURL(shown.src);
    shown.src = URL.createObjectURL(chosen);
    shown.alt = t.imageAlt;
    shown.hidden = false;
    shown.onload = () => {
      byId("image-hint").textContent = t.imageInfo(name, shown.naturalWidth, shown.naturalHeight);
      shown.classList.toggle("coarse", Math.max(shown.naturalWidth, shown.naturalHeight) < COARSE_PIXELS);
      onProblem(null);
    };
    shown.onerror = () => {
      file = null;
      shown.hidden = true;
      drop.classList.remove("filled");
      byId("image-action").textContent = t.choose;
      onProblem({ message: t.notAPicture(name) });
    };
    byId("image-action").textContent = t.change;
    drop.classList.add("filled");
    for (const button of document.querySelectorAll("#samples button")) button.setAttribute("aria-pressed", "false");
  };

  const input = byId("image");
  input.addEventListener("change", () => {
    if (input.files[0]) take(input.files[0]);
    input.value = ""; // so that the same file can be chosen again
  });
  for (const kind of ["dragenter", "dragover"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => {
    const pasted = event.clipboardData?.files[0];
    if (pasted && !byId("compose").hidden) take(pasted, t.pasted);
  });
  return { take, file: () => file };
}

function showSamples(samples, picture, settings, onProblem) {
  const items = samples.map(({ name, file, spec }) => {
    const image = el("img", { src: `samples/${file}`, alt: "", width: 96, height: 96, loading: "lazy" });
    const button = el("button", { type: "button", class: "sample", "aria-pressed": "false" }, image, el("span", { textContent: t.samples[name] ?? name }));
    button.addEventListener("click", async () => {
      const answer = await fetch(image.src).catch(() => null);
      if (!answer?.ok) return onProblem({ message: t.unreachable });
      picture.take(new File([await answer.blob()], file, { type: "image/png" }));
      settings.write(spec);
      button.setAttribute("aria-pressed", "true");
    });
    return el("li", {}, button);
  });
  byId("samples").replaceChildren(...items);
}
