// The controls of single values: text, number, switch or selection, each with label, help and range.

import { el } from "./dom.js";
import { humanise, plain, t, valueName } from "./strings.js";
import { mark } from "./validity.js";

/** Texts that may be as long get several lines. */
const LONG = 200;

let serial = 0;
export const nextId = () => `f${++serial}`;

/** A field's label; fields of a degradation inside another are labelled like those of one alone. */
export const labelOf = (pointer) => t.fieldLabels[pointer.replace(/\/stages\/\d+/g, "")] ?? t.labels[pointer.split("/").at(-1)] ?? humanise(pointer.split("/").at(-1));

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

/** Text, a number, or a list typed as JSON. */
export function input(schema, pointer, suggested) {
  const kinds = schema.anyOf ?? [schema];
  const number = kinds.find((kind) => kind.type === "number" || kind.type === "integer");
  const word = kinds.find((kind) => kind.const !== undefined)?.const;
  const json = kinds.some((kind) => kind.type === "array"); // a word or a list, which is typed as JSON
  const free = kinds.some((kind) => kind.type === "string" && kind.const === undefined); // any text, or a list
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
    if (json && (!free || text.startsWith("["))) return listOf(text);
    if (!number) return text || undefined;
    if (text === "") return optional ? undefined : fallback;
    return Number(text);
  };
  const asSuggested = (value) => suggested !== undefined && value === suggested;
  const write = (value) => (inputElement.value = value === undefined || value === null || value === word || asSuggested(value) ? "" : json && !(free && typeof value === "string") ? JSON.stringify(value) : value);
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

/** True or false; with ``suggested``, read only where it differs from what would be used anyway. */
export function check(schema, pointer, suggested) {
  const inputElement = el("input", { type: "checkbox", checked: suggested ?? schema.default ?? false });
  const element = field(pointer, inputElement, schema);
  element.classList.add("check");
  if (suggested !== undefined) inputElement.dataset.suggested = suggested === true;
  const usual = () => (suggested === undefined ? schema.default : inputElement.dataset.suggested === "true");
  const read = () => (suggested !== undefined && inputElement.checked === usual() ? undefined : inputElement.checked);
  return { element, read, write: (value) => (inputElement.checked = value ?? usual() ?? false) };
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

/** One of the values that the schema lists. Where the service chooses one that is left out, unless it is given one of the fields
 * in "x-chosen-unless", leaving it out is offered first. */
export function select(schema, pointer, suggested) {
  const chosen = schema["x-chosen-unless"];
  const fallback = chosen ? undefined : (suggested ?? schema.default);
  const optional = chosen || suggested !== undefined;
  const inputElement = el("select", {}, ...(optional ? [el("option", { value: "", textContent: chosen ? t.chosenOption : t.defaultOption(fallback) })] : []));
  for (const [index, value] of schema.enum.entries()) inputElement.append(el("option", { value: index, textContent: valueName(value) }));
  const write = (value) => {
    const place = schema.enum.indexOf(value);
    inputElement.value = optional && (value === fallback || place < 0) ? "" : place;
  };
  if (!optional) write(fallback);
  const read = () => (inputElement.value === "" ? undefined : schema.enum[Number(inputElement.value)]);
  return { element: field(pointer, inputElement, schema), read, write };
}

/** Shows ``values`` in the fields of the group at ``pointer`` that have them and were not filled in. */
export function suggest(root, pointer, values) {
  for (const [name, value] of Object.entries(values)) {
    const inputElement = root.querySelector(`input[data-pointer="${pointer}/${name}"]`);
    if (inputElement?.type === "number") inputElement.placeholder = value ?? t.noDefault.toLowerCase();
    if (inputElement?.type !== "checkbox") continue;
    if (String(inputElement.checked) === inputElement.dataset.suggested) inputElement.checked = value === true;
    inputElement.dataset.suggested = value === true;
  }
}
