// A job as one row of pictures for sharing: the input, some steps, the result.

import * as api from "./api.js";
import { t } from "./strings.js";

const STEPS = 4;
const TALLEST = 256;
const GAP = 16;
const LINE = 26;
const INK = "#1b1a17";
const MUTED = "#615e56";
const FONT = "15px system-ui, sans-serif";

const WHOLE = { left: 0, top: 0, width: 1, height: 1 };

/** ``events`` are those of the steps; ``before`` and ``after`` are { url, label, place }, ``before`` may be null. The strip as a PNG. */
export async function contactStrip({ before, events, after, size: [width, height], notice }) {
  const tiles = [before, ...spread(events).map(({ step, total, preview_url: url }) => ({ url, label: t.step(step, total) })), after].filter(Boolean);
  const pictures = await Promise.all(tiles.map(async ({ url }) => createImageBitmap(await api.blob(url))));
  const scale = TALLEST / Math.max(width, height);
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  const sheet = new OffscreenCanvas(GAP + tiles.length * (w + GAP), 2 * GAP + h + 2 * LINE);
  const pen = sheet.getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, sheet.width, sheet.height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  pen.fillStyle = INK;
  for (const [index, picture] of pictures.entries()) {
    const left = GAP + index * (w + GAP);
    pen.imageSmoothingEnabled = picture.width * 2 > w; // show the pixels of coarse pictures, as on the page
    pen.imageSmoothingQuality = "high";
    const { place = WHOLE } = tiles[index];
    pen.drawImage(picture, left + place.left * w, GAP + place.top * h, place.width * w, place.height * h);
    pen.fillText(tiles[index].label, left, GAP + h + LINE / 2 + 4, w);
  }
  pen.fillStyle = MUTED;
  pen.fillText(notice, GAP, GAP + h + LINE + LINE / 2 + 4, sheet.width - 2 * GAP);
  return sheet.convertToBlob({ type: "image/png" });
}

/** Some evenly spaced steps, without the last one, which is the result. */
function spread(events) {
  const seen = events.filter(({ step, total, preview_url: url }) => url && step < total);
  const count = Math.min(STEPS, seen.length);
  return Array.from({ length: count }, (_, index) => seen[Math.floor(((index + 0.5) * seen.length) / count)]);
}
