// A JSON Schema becomes a form: one control a property, each with label, help and range.
//
// Every control is { element, read(), write(value) }; read() gives undefined where the field is left to
// its default. Elements carry their JSON pointer in data-pointer, by which a problem finds its field.

import { el } from "./dom.js";
import { humanise, plain, t } from "./strings.js";

/** Texts that may be as long get several lines. */
const LONG = 200;

let serial = 0;
const nextId = () => `f${++serial}`;

/** A field's label; fields of a degradation inside another are labelled like those of one alone. */
const labelOf = (pointer) => t.fieldLabels[pointer.replace(/\/stages\/\d+/g, "")] ?? t.labels[pointer.split("/").at(-1)] ?? humanise(pointer.split("/").at(-1));
const nameOf = (schema) => t.names[schema.properties.type.default] ?? humanise(schema.properties.type.default);

/** The control for ``schema``; ``defs`` are its definitions, ``suggested`` values replace defaults that the caller leaves out. */
export function control(schema, defs, pointer, suggested) {
  schema = resolve(schema, defs);
  const kinds = schema.anyOf?.find((kind) => kind.oneOf); // one of several kinds, or nothing
  if (kinds) return choice({ ...schema, oneOf: kinds.oneOf, optional: true }, defs, pointer);
  if (schema.oneOf) return choice(schema, defs, pointer, suggested);
  if (schema.properties) return group(schema, defs, pointer, suggested);
  if (schema.type === "array") return list(schema, defs, pointer);
  if (schema.type === "boolean") return check(schema, pointer, suggested);
  if (schema.enum) return select(schema, pointer, suggested);
  return input(schema, pointer, suggested);
}

function resolve(schema, defs) {
  const { $ref, ...rest } = schema;
  return $ref ? { ...defs[$ref.split("/").at(-1)], ...rest } : schema;
}

/** Label, control and help of one value. */
function field(pointer, inputElement, schema) {
  const id = nextId();
  inputElement.id = id;
  inputElement.setAttribute("aria-describedby", `${id}-help ${id}-error`);
  inputElement.dataset.pointer = pointer;
  const error = el("p", { id: `${id}-error`, class: "field-error" });
  inputElement.addEventListener("input", () => mark(inputElement, ""));
  return el(
    "div",
    { class: "field" },
    el("label", { htmlFor: id, textContent: labelOf(pointer) }),
    inputElement,
    error,
    el("p", { id: `${id}-help`, class: "help", textContent: plain(schema.description) }),
  );
}

/** Shows ``message`` at a control, or takes it away. */
function mark(inputElement, message) {
  inputElement.setAttribute("aria-invalid", String(Boolean(message)));
  const error = document.getElementById(`${inputElement.id}-error`);
  if (error) error.textContent = message;
}

function input(schema, pointer, suggested) {
  const kinds = schema.anyOf ?? [schema];
  const number = kinds.find((kind) => kind.type === "number" || kind.type === "integer");
  const word = kinds.find((kind) => kind.const !== undefined)?.const;
  const json = kinds.some((kind) => kind.type === "array"); // a word or a list, which is typed as JSON
  const fallback = suggested ?? schema.default;
  // a number that may also be left out (auto, none, or as recommended) is an empty field that says so
  const optional = word !== undefined || kinds.some((kind) => kind.type === "null") || suggested !== undefined;
  const long = !number && schema.maxLength >= LONG;
  const inputElement = long ? el("textarea", { rows: schema.maxLength > 1000 ? 4 : 2 }) : el("input", { type: number ? "number" : "text", autocomplete: "off" });
  if (number) limit(inputElement, number);
  else inputElement.maxLength = schema.maxLength ?? (json ? 100_000 : 1000);
  inputElement.required = Boolean(schema.minLength);
  if (optional) inputElement.placeholder = fallback ?? t.noDefault.toLowerCase();
  else inputElement.value = fallback ?? "";
  const read = () => {
    const text = inputElement.value.trim();
    if (json) return listOf(text);
    if (!number) return text || undefined;
    if (text === "") return optional ? undefined : fallback;
    return Number(text);
  };
  const asSuggested = (value) => suggested !== undefined && value === suggested;
  const write = (value) => (inputElement.value = value === undefined || value === null || value === word || asSuggested(value) ? "" : json ? JSON.stringify(value) : value);
  return { element: field(pointer, inputElement, schema), read, write };
}

/** A list typed as JSON; text that is none is sent as it is, for the service to name the field. */
function listOf(text) {
  try {
    return text ? JSON.parse(text) : undefined;
  } catch {
    return text;
  }
}

function check(schema, pointer, suggested) {
  const inputElement = el("input", { type: "checkbox", checked: suggested ?? schema.default ?? false });
  const element = field(pointer, inputElement, schema);
  element.classList.add("check");
  return { element, read: () => inputElement.checked, write: (value) => (inputElement.checked = value ?? schema.default ?? false) };
}

function limit(inputElement, { type, minimum, maximum, exclusiveMinimum, exclusiveMaximum }) {
  const whole = type === "integer";
  inputElement.step = whole ? 1 : "any";
  inputElement.inputMode = whole ? "numeric" : "decimal";
  const low = minimum ?? (whole && exclusiveMinimum !== undefined ? exclusiveMinimum + 1 : exclusiveMinimum);
  const high = maximum ?? (whole && exclusiveMaximum !== undefined ? exclusiveMaximum - 1 : exclusiveMaximum);
  if (low !== undefined) inputElement.min = low;
  if (high !== undefined) inputElement.max = high;
}

function select(schema, pointer, suggested) {
  const fallback = suggested ?? schema.default;
  const optional = suggested !== undefined;
  const inputElement = el("select", {}, ...(optional ? [el("option", { value: "", textContent: t.defaultOption(fallback) })] : []));
  for (const [index, value] of schema.enum.entries()) inputElement.append(el("option", { value: index, textContent: t.values[value] ?? humanise(String(value)) }));
  const write = (value) => (inputElement.value = value === undefined || (optional && value === fallback) ? "" : schema.enum.indexOf(value));
  if (!optional) write(fallback);
  const read = () => (inputElement.value === "" ? undefined : schema.enum[Number(inputElement.value)]);
  return { element: field(pointer, inputElement, schema), read, write };
}

/** Every property of an object but its fixed ones. With ``suggested``, only fields that were filled in are read. */
export function group(schema, defs, pointer, suggested, skip = []) {
  const names = Object.keys(schema.properties).filter((name) => resolve(schema.properties[name], defs).const === undefined && !skip.includes(name));
  const controls = new Map();
  for (const name of names) {
    const property = schema.properties[name];
    const hint = suggested && (suggested[name] ?? property.default ?? t.noDefault.toLowerCase());
    controls.set(name, control(property, defs, `${pointer}/${name}`, hint));
  }
  const read = () => {
    const mattering = [...controls].filter(([, part]) => !part.element.hidden);
    const values = mattering.map(([name, part]) => [name, part.read()]).filter(([, value]) => value !== undefined);
    return Object.fromEntries(values);
  };
  // "x-when" names the value of another field that makes a field matter
  const showMattering = () => {
    for (const [name, part] of controls) {
      const conditions = Object.entries(schema.properties[name]["x-when"] ?? {});
      part.element.hidden = !conditions.every(([other, value]) => controls.get(other).read() === value);
    }
  };
  const write = (value) => {
    controls.forEach((part, name) => part.write(value?.[name] ?? (suggested ? undefined : schema.properties[name].default)));
    showMattering();
  };
  const element = el("div", { class: "fields" }, ...[...controls.values()].map((part) => part.element));
  element.addEventListener("change", showMattering);
  showMattering();
  return { element, controls, read, write };
}

/** One of several kinds, told apart by ``type``: radio buttons at the top, a select inside a list or where one is the default.
 * ``suggested`` holds values by kind; with it only fields that were filled in are read, and the default kind is not named. */
export function choice(schema, defs, pointer, suggested) {
  const kinds = schema.oneOf.map((kind) => resolve(kind, defs));
  const usual = schema["x-default-type"];
  const nested = pointer.split("/").length > 2 || usual !== undefined;
  // kinds that contain further kinds come last, and are not offered within one another
  const [simple, containing] = [false, true].map((wanted) => kinds.filter((kind) => containsKinds(kind) === wanted));
  const offered = nested ? simple : [...simple, ...containing];
  const details = el("div", { class: "choice-details" });
  const asSelect = nested || schema.optional;
  const picker = asSelect ? selectPicker(offered, pointer, schema.optional) : radioPicker(offered, schema, pointer);
  let current;
  const nothing = () => {
    current = null;
    details.replaceChildren();
  };
  const show = (type) => {
    const kind = offered.find((candidate) => candidate.properties.type.default === type);
    current = { type, ...group(kind, defs, pointer, suggested && (suggested[type] ?? {})) };
    details.replaceChildren(el("p", { class: "summary", textContent: plain(kind.description) }), current.element);
    details.dispatchEvent(new Event("choose", { bubbles: true }));
  };
  picker.onPick((type) => (type ? show(type) : nothing()));
  const write = (value) => {
    const type = value?.type ?? usual ?? "";
    picker.pick(type);
    if (!value && !usual) return nothing();
    show(type);
    current.write(value);
  };
  const first = offered.find((kind) => kind.properties.type.default === (usual ?? "super_resolution")) ?? offered[0];
  write(schema.optional ? undefined : { type: first.properties.type.default });
  const element = el("fieldset", { class: nested ? "choice nested" : "choice" }, ...picker.elements, details);
  const read = () => {
    if (!current) return undefined;
    const chosen = current.read();
    const asUsual = suggested && current.type === usual && !Object.keys(chosen).length;
    return { ...(asUsual ? {} : { type: current.type }), ...chosen };
  };
  return { element, read, write };
}

const containsKinds = (kind) => Object.values(kind.properties).some((property) => property.type === "array");

function radioPicker(kinds, schema, pointer) {
  const name = nextId();
  const radios = kinds.map((kind) => el("input", { type: "radio", name, value: kind.properties.type.default, class: "visually-hidden" }));
  const chips = radios.map((radio, index) => el("label", { class: "chip" }, radio, el("span", { textContent: nameOf(kinds[index]) })));
  const elements = [el("legend", { textContent: labelOf(pointer) }), el("div", { class: "chips" }, ...chips)];
  return {
    elements,
    pick: (type) => radios.forEach((radio) => (radio.checked = radio.value === type)),
    onPick: (listener) => radios.forEach((radio) => radio.addEventListener("change", () => listener(radio.value))),
  };
}

function selectPicker(kinds, pointer, optional) {
  const options = kinds.map((kind) => el("option", { value: kind.properties.type.default, textContent: nameOf(kind) }));
  const none = optional ? [el("option", { value: "", textContent: t.leftOut })] : [];
  const inputElement = el("select", { "aria-label": labelOf(optional ? pointer : `${pointer}/type`) }, ...none, ...options);
  return {
    elements: optional ? [el("legend", { textContent: labelOf(pointer) }), inputElement] : [inputElement],
    pick: (type) => (inputElement.value = type),
    onPick: (listener) => inputElement.addEventListener("change", () => listener(inputElement.value)),
  };
}

/** A list of controls that can grow and shrink within the schema's bounds. */
function list(schema, defs, pointer) {
  const least = schema.minItems ?? 0;
  const most = schema.maxItems ?? 16;
  const parts = [];
  const items = el("ol", { class: "items" });
  const words = t.lists[pointer.split("/").at(-1)] ?? t.lists.steps;
  const addButton = el("button", { type: "button", class: "small", textContent: words.add });
  const redraw = () => {
    items.replaceChildren(
      ...parts.map((part, index) => {
        const removeButton = el("button", { type: "button", class: "small quiet", textContent: t.removeStep(index + 1), hidden: parts.length <= least });
        removeButton.addEventListener("click", () => {
          write(parts.map((part) => part.read()).filter((_, other) => other !== index)); // anew, for pointers that count on
          addButton.focus();
        });
        return el("li", { "aria-label": words.title(index + 1) }, part.element, removeButton);
      }),
    );
    addButton.hidden = parts.length >= most;
  };
  const add = (value) => {
    const part = control(schema.items, defs, `${pointer}/${parts.length}`);
    if (value) part.write(value);
    parts.push(part);
  };
  addButton.addEventListener("click", () => {
    add();
    redraw();
    addButton.dispatchEvent(new Event("choose", { bubbles: true }));
  });
  const write = (values) => {
    parts.length = 0;
    for (const value of values ?? Array(least).fill(undefined)) add(value);
    redraw();
  };
  write();
  return { element: el("div", {}, items, addButton), read: () => parts.map((part) => part.read()), write };
}

/** Shows ``values`` in the empty fields of the group at ``pointer`` that have them. */
export function suggest(root, pointer, values) {
  for (const [name, value] of Object.entries(values)) {
    const inputElement = root.querySelector(`input[type="number"][data-pointer="${pointer}/${name}"]`);
    if (inputElement) inputElement.placeholder = value ?? t.noDefault.toLowerCase();
  }
}

const refused = (root) => [...root.querySelectorAll("input, select, textarea")].filter((candidate) => !candidate.validity.valid && !candidate.closest("[hidden]"));

/** Whether every control's own range admits its value; texts that are still empty count as valid. */
export const isValid = (root) => refused(root).every(({ validity }) => validity.valueMissing);

/** Marks every control that its own range refuses; true when there is none. */
export function validate(root) {
  const wrong = refused(root);
  for (const candidate of wrong) mark(candidate, candidate.validationMessage);
  reveal(wrong[0]);
  return wrong.length === 0;
}

/** Puts a problem's field errors at the fields they name. */
export function markErrors(root, errors) {
  const marked = errors.map(({ pointer, detail }) => {
    const target = root.querySelector(`[data-pointer="${CSS.escape(pointer)}"]`);
    if (target) mark(target, detail);
    return target;
  });
  reveal(marked.find(Boolean));
}

function reveal(inputElement) {
  const folded = inputElement?.closest("details");
  if (folded) folded.open = true;
  inputElement?.focus();
}
