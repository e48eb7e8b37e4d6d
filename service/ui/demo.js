// The demonstration: degrades a clean picture, shows the measurement and sends it to be restored.
//
// Separate from restoring a picture that is already degraded: a switch above the picture selects one of the two.

import { el } from "./dom.js";
import { apply, canSimulate, factorOf, knownPixels, noisy, reachOf } from "./degrade.js";
import { cropped, imageData, pixelsOf, pngOf } from "./pixels.js";
import { operatorName } from "./result.js";
import { COARSE_PIXELS } from "./slot.js";
import { t } from "./strings.js";

const MAX_SIDE = 512;
const PAUSE_MILLISECONDS = 60;

let serial = 0;

/** ``picture()`` gives the clean picture's element or null, ``mask()`` what was painted over it; ``onSwitch`` receives true when the demonstration is on. */
export function demo({ picture, mask, settings, onSwitch }) {
  const name = `demo${++serial}`;
  const radios = ["real", "demo"].map((value) => el("input", { type: "radio", name, value, class: "visually-hidden", checked: value === "real" }));
  const chips = radios.map((radio) => el("label", { class: "chip" }, radio, el("span", { textContent: t.demo[radio.value] })));
  const canvas = el("canvas", { role: "img", "aria-label": t.demo.measured });
  const words = el("p", { class: "help", role: "status" });
  const frame = el("div", { class: "demo-frame" }, canvas);
  const shown = el("section", { class: "demo", hidden: true }, el("h2", { textContent: t.demo.measured }), frame, words);
  let made = null; // { clean, measured, known }
  let timer = 0;
  const on = () => radios[1].checked;

  async function simulate() {
    made = null;
    shown.hidden = !on() || !picture();
    if (shown.hidden) return;
    await measure();
    shown.dispatchEvent(new Event("simulated"));
  }

  async function measure() {
    const spec = settings.read();
    const problem = await attempt(spec);
    frame.hidden = Boolean(problem);
    words.textContent = problem ?? t.demo.about(made.measured.width, made.measured.height, spec.sigma);
    if (problem) return;
    const { width, height } = made.measured;
    Object.assign(canvas, { width, height });
    canvas.getContext("2d").putImageData(imageData(made.measured), 0, 0);
    canvas.classList.toggle("coarse", Math.max(width, height) < COARSE_PIXELS);
  }

  /** Degrades the picture; says why where that cannot be done. */
  async function attempt({ operator, working_size: size, sigma, noise, peak, seed }) {
    if (!canSimulate(operator)) return t.demo.cannot(operatorName(operator));
    const clean = reduced(picture(), Math.min(size ?? MAX_SIDE, MAX_SIDE), factorOf(operator));
    if (Math.min(clean.width, clean.height) <= reachOf(operator)) return t.demo.tooSmall;
    const { width, height } = clean;
    const hiding = [operator, ...(operator.stages ?? [])].find(({ type }) => type === "inpainting");
    let known = null;
    if (hiding) {
      const measured = [width, height].map((side) => side / factorOf(operator)); // what is missing is missing last
      known = knownPixels(hiding, ...measured) ?? (await painted(mask, ...measured));
      if (!known) return t.demo.paint;
    }
    const coloured = !JSON.stringify(operator).includes('"colorize"');
    made = { clean, known, measured: noisy(apply(clean, operator, known), { sigma, noise, peak, seed }, coloured) };
    return null;
  }

  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(simulate, PAUSE_MILLISECONDS);
  };
  for (const kind of ["input", "change", "choose"]) settings.element.addEventListener(kind, later);
  const turn = () => {
    onSwitch(on());
    simulate();
  };
  for (const radio of radios) radio.addEventListener("change", turn);
  const choose = (index) => {
    radios[index].checked = true;
    turn();
  };

  return {
    choice: el("fieldset", { class: "choice" }, el("legend", { class: "visually-hidden", textContent: t.demo.legend }), el("div", { class: "chips" }, ...chips)),
    shown,
    on,
    later,
    /** What is wrong with the demo as it stands; null when it can be sent. */
    async problem() {
      await simulate();
      return made ? null : words.textContent;
    },
    /** Files and settings to send. A mask drawn here goes along, as the service's own random one is another. */
    async request(spec) {
      const files = { image: await pngOf(made.measured, "measured.png") };
      if (!made.known) return { files, spec };
      const band = Float32Array.from(made.known, (value) => 2 * value - 1);
      const { width, height } = made.measured;
      files.mask = await pngOf({ width, height, planes: [band, band, band] }, "mask.png");
      return { files, spec: { ...spec, operator: uploaded(spec.operator) } };
    },
    made: () => made,
    /** Width and height of the measurement; null before there is one. */
    size: () => made && [made.measured.width, made.measured.height],
    turnOn: () => choose(1),
    off: () => choose(0),
  };
}

/** The picture with its longer side at most ``longest``, and sides that are multiples of ``factor``. */
function reduced(picture, longest, factor) {
  const [w, h] = [picture.naturalWidth, picture.naturalHeight];
  const scale = Math.min(1, longest / Math.max(w, h));
  const [width, height] = [w, h].map((side) => Math.max(factor, Math.round(side * scale)));
  return cropped(pixelsOf(picture, width, height), width - (width % factor), height - (height % factor));
}

/** Pixels that stay known under what was painted, at another size; null where nothing was. */
async function painted(mask, width, height) {
  const file = await mask();
  if (!file) return null;
  const { planes } = pixelsOf(await createImageBitmap(file), width, height);
  return Uint8Array.from(planes[0], (value) => Number(value > 0.99));
}

/** The operator with its missing pixels read from an upload. */
function uploaded(operator) {
  if (operator.stages) return { ...operator, stages: operator.stages.map(uploaded) };
  return operator.type === "inpainting" ? { type: "inpainting", mask: "upload" } : operator;
}
