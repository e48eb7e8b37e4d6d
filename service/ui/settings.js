// The settings of a task, all from its schema: the common fields open, the rest folded.

import { el } from "./dom.js";
import { presetChooser } from "./estimate.js";
import { suggest } from "./fields.js";
import { choice, group } from "./form.js";
import { recommendedFor, unusual, usualType } from "./recommended.js";
import { humanise, t, valueName } from "./strings.js";

/** Fields of any task that are worth seeing at once, after those it requires. */
const MAIN_FIELDS = ["operator", "sigma", "compare_unguided"];

/** The task's priors that this service offers: those that make what its own default makes. */
function priorsFor(schema, described) {
  const makes = described.priors.find(({ name }) => name === schema.properties.prior?.default)?.makes;
  return { makes, offered: described.priors.filter((prior) => prior.offered && prior.makes === makes) };
}

/** The settings' form: ``read()`` gives the spec, ``write(spec)`` fills it in. */
export function settingsForm(task, described) {
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
  /** Says in the first option which prior is used where none is named: the default if a field is given that it alone reads. */
  const showChoice = () => {
    const unless = properties.prior?.["x-chosen-unless"];
    const option = unless && main.controls.get("prior")?.element.querySelector("option[value='']");
    if (!option) return;
    const given = unless.some((name) => name in read());
    option.textContent = given ? t.defaultOption(valueName(task.schema.properties.prior.default)) : t.chosenOption;
  };
  const read = () => {
    const spec = { ...main.read(), ...(preset && { preset: preset.read() }) };
    for (const [name, fold] of folds) {
      const chosen = fold.read();
      if (Object.keys(chosen).length) spec[name] = chosen;
    }
    return spec;
  };
  for (const kind of ["input", "change", "choose"]) {
    element.addEventListener(kind, showPreset);
    element.addEventListener(kind, showChoice);
  }
  showPreset();
  showChoice();
  const write = (spec) => {
    const chosen = spec.preset ?? preset?.read();
    if (spec.preset) preset?.write(spec.preset);
    for (const [name, value] of Object.entries(spec)) {
      if (main.controls.has(name)) main.controls.get(name).write(value);
      else folds.get(name)?.write(value && unusual(value, chosenPrior(), name, chosen));
    }
    element.dispatchEvent(new Event("choose", { bubbles: true }));
  };
  /** Brings a field into sight and focuses its first control. */
  const show = (name) => {
    const field = main.controls.get(name).element;
    field.scrollIntoView({ block: "start" });
    (field.querySelector("input:checked") ?? field.querySelector("input, select"))?.focus({ preventScroll: true });
  };
  // a degradation may or may not need a mask or kernel; a task without one that takes masks needs them always
  const needs = (name) => (main.controls.has("operator") ? wantsUpload(main.controls.get("operator").read(), name, described) : true);
  let proposed; // prior of the last diagnosis
  /** Selects the prior that a diagnosis proposes, without a name none, unless another was chosen. */
  const usePrior = (name) => {
    const current = main.controls.get("prior")?.read();
    if (current !== undefined && current !== proposed) return;
    proposed = name;
    if (name !== current) write({ prior: name }); // a change renews every offer
  };
  return { element, warning, preset, read, write, usePrior, show, needs, degrades: main.controls.has("operator") };
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
