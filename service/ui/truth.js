// Known truths: clean pictures that this page degraded itself, by the job that is to restore them. Gone with the page.

import * as api from "./api.js";
import { el } from "./dom.js";
import { pixelsOf, pngOf, psnr, ssim } from "./pixels.js";
import { t } from "./strings.js";

const truths = new Map();

/** Remembers that the job restores ``measured``, which was made from ``clean``. */
export async function remember(job, { clean, measured }) {
  truths.set(job.id, { clean, measured, url: URL.createObjectURL(await pngOf(clean, "truth.png")) });
}

/** The truth of a job as one more picture to look at; null where none is known. */
export function truthOf(job) {
  const known = truths.get(job.id);
  return known ? { artifact: { name: "truth.png", url: known.url }, url: known.url, label: t.truth, alt: t.truth } : null;
}

/** Distance of the result from the truth; empty if the truth is unknown. */
export async function truthFacts(job, artifact) {
  const known = truths.get(job.id);
  if (!known || !artifact) return [];
  const bitmap = await createImageBitmap(await api.blob(artifact.url));
  const { clean, measured } = known;
  if (bitmap.width !== clean.width || bitmap.height !== clean.height) return [];
  const result = pixelsOf(bitmap, clean.width, clean.height);
  const before = measured.width === clean.width && measured.height === clean.height;
  const row = (name, measure, text) =>
    el("div", {}, el("dt", { textContent: name }), el("dd", { textContent: before ? t.fromTo(text(measure(measured, clean)), text(measure(result, clean))) : text(measure(result, clean)) }));
  const list = el("dl", {}, row(t.psnr, psnr, t.decibels), row(t.ssim, ssim, (value) => value.toFixed(3)));
  return [el("section", { class: "truth" }, el("h2", { textContent: t.truthTitle }), list, el("p", { class: "help", textContent: t.truthHelp }))];
}
