// What will happen: size and duration of the result beside the button, and of every preset.

import * as api from "./api.js";
import { button, el } from "./dom.js";
import { t } from "./strings.js";

const PAUSE_MILLISECONDS = 250;
/** Side in pixels of the tiles of a large picture. */
const TILE = 256;

let serial = 0;

/** The task's presets as buttons that name their duration; null for a task without presets. */
export function presetChooser(schema) {
  if (!schema) return null;
  const name = `preset${++serial}`;
  const durations = new Map();
  const chips = schema.enum.map((value) => {
    const radio = el("input", { type: "radio", name, value, class: "visually-hidden", checked: value === schema.default });
    const seconds = el("small");
    durations.set(value, seconds);
    return el("label", { class: "chip" }, radio, el("span", {}, t.presets[value] ?? value, seconds));
  });
  const radios = chips.map((chip) => chip.querySelector("input"));
  return {
    element: el("fieldset", { class: "choice presets" }, el("legend", { textContent: t.presets.legend }), el("div", { class: "chips" }, ...chips)),
    read: () => radios.find((radio) => radio.checked)?.value,
    write: (value) => radios.forEach((radio) => (radio.checked = radio.value === (value ?? schema.default))),
    show: (seconds) => durations.forEach((element, value) => (element.textContent = value in seconds ? t.presets.about(seconds[value]) : "")),
  };
}

/**
 * Size and duration of the result, and what is lost if the picture is reduced. ``sizeOf()`` gives the width and
 * height of the picture that would be sent, or null; ``onCrop`` gets the longest side that is not reduced.
 */
export function forecast(task, { settings, sizeOf, onCrop, valid }) {
  const line = el("p", { class: "forecast-line", role: "status" });
  const lost = el("p", { class: "help" });
  const crop = button(t.crop.open, () => onCrop(longest), { class: "small" });
  const whole = button("", () => settings.write(offered), { class: "small" });
  const ways = el("div", { class: "chips" }, crop, whole);
  const details = el("div", { class: "forecast-details", hidden: true }, lost, ways);
  let longest = 0;
  let offered = {}; // settings that keep the whole picture
  let timer = 0;
  let asked = 0;
  let known = ""; // settings and size that were asked about last

  /** ``text`` beside the button; ``more`` above it: what a reduction loses, or why the job is ``refused``. */
  const show = (text, { more = null, presets = null, refused = false } = {}) => {
    line.textContent = text;
    line.classList.toggle("known", Boolean(presets));
    line.classList.toggle("refused", refused);
    lost.textContent = more ?? "";
    details.hidden = !more;
    whole.hidden = true;
    settings.preset?.show(presets ?? {});
  };

  const estimate = (spec, size) => api.estimate(task.type, { spec: filled(spec, task.schema), image_size: size });

  /** Offers to keep the whole picture at full size, if the service would take it as it is or in tiles. */
  async function offerWhole(spec, size, number) {
    const ways = [{ working_size: null, label: t.forecast.whole }];
    if ("tile" in task.schema.properties) ways.push({ working_size: null, tile: TILE, label: t.forecast.tiles });
    for (const { label, ...way } of ways) {
      const full = await estimate({ ...spec, ...way }, size);
      if (number !== asked) return;
      if (full.refusal) continue;
      offered = way;
      whole.textContent = label(full.seconds);
      whole.hidden = whole.disabled = false;
      return;
    }
  }

  async function update() {
    const number = ++asked;
    const size = sizeOf();
    if (task.pictures.image && !size) return show(t.forecast.waiting);
    if (!valid()) return show("");
    const spec = settings.read();
    try {
      const found = await estimate(spec, size);
      if (number !== asked) return; // a later change has been asked about
      const { output_size: output, reduced_size: reduced, seconds, seconds_by_preset: presets, refusal } = found;
      const keeps = reduced && task.type === "edit";
      const loss = reduced && (keeps ? t.forecast.drawn(reduced) : t.forecast.reduced(size, reduced));
      const text = refusal ? `${refusal.title}.` : output ? t.forecast.picture(output, seconds) : t.forecast.text(seconds);
      show(text, { more: refusal?.detail ?? loss, presets, refused: Boolean(refusal) });
      longest = reduced ? Math.max(...reduced) : 0;
      crop.hidden = !reduced || !onCrop;
      crop.disabled = false;
      if ((reduced || refusal) && "working_size" in task.schema.properties) await offerWhole(spec, size, number);
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      known = ""; // asked again at the next event
      if (number === asked) show(""); // a submission names the problem at its field
    }
  }

  const later = () => {
    const now = JSON.stringify([settings.read(), sizeOf()]);
    if (now === known) return; // a click on an offer ends the typing in a field, which is no change
    known = now;
    asked++; // an answer on its way, and these offers, belong to the settings before this change
    crop.disabled = whole.disabled = true;
    clearTimeout(timer);
    timer = setTimeout(update, PAUSE_MILLISECONDS);
  };
  for (const kind of ["input", "change", "choose"]) settings.element.addEventListener(kind, later);
  later();
  return { line, details, later };
}

/** The spec with something in place of required texts that are still empty: they do not change the duration. */
function filled(spec, schema) {
  const isText = (property) => (property.anyOf ?? [property]).some(({ type }) => type === "string");
  const empty = (schema.required ?? []).filter((name) => spec[name] === undefined && isText(schema.properties[name]));
  return { ...spec, ...Object.fromEntries(empty.map((name) => [name, "…"])) };
}
