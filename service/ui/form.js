// A JSON Schema becomes a form: one control a property; objects, lists and choices contain further ones.
//
// Every control is { element, read(), write(value) }; read() gives undefined where the field is left to
// its default. Elements carry their JSON pointer in data-pointer, by which a problem finds its field.

import { el } from "./dom.js";
import { check, input, labelOf, nextId, select } from "./fields.js";
import { humanise, plain, t } from "./strings.js";

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
  // "x-when" names the value of another field, or several, that makes a field matter
  const showMattering = () => {
    for (const [name, part] of controls) {
      const conditions = Object.entries(schema.properties[name]["x-when"] ?? {});
      part.element.hidden = !conditions.every(([other, value]) => [value].flat().includes(controls.get(other).read()));
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
  const usual = schema["x-default-type"];
  const nested = pointer.split("/").length > 2 || usual !== undefined;
  const offered = schema.oneOf.map((kind) => resolve(kind, defs)).sort((a, b) => rank(a) - rank(b));
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
  const first = offered.find((kind) => kind.properties.type.default === (usual ?? (nested ? "super_resolution" : "auto"))) ?? offered[0];
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

const RANKS = Object.keys(t.names);
const rank = ({ properties }) => (RANKS.indexOf(properties.type.default) + 1 || RANKS.length + 1);

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
