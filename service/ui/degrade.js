// Degrades a clean picture in the browser with the service's operators, for demonstrations: y = A(x) + noise.
//
// Only operators without weights and without a random path; a test compares each with the library's.

import { filtered, gaussian, mapped, mirror } from "./pixels.js";

const LUMA = [0.299, 0.587, 0.114];
const SATURATING_LEVELS = 4;
/** Noise added by default, as in ``aps degrade``. */
const SIGMA = 0.05;

const OPERATORS = { denoise: (x) => x, hdr, colorize, super_resolution: reduce, gaussian_blur: blur, saturating_blur: saturate, inpainting: hide, jpeg, compose };

/** Whether an operator, and every one inside it, can be simulated here. */
export const canSimulate = (operator) => Boolean(OPERATORS[operator.type]) && (operator.stages ?? []).every(canSimulate);

/** Sides of a picture must be multiples of this. */
export const factorOf = (operator) => (operator.stages ?? []).reduce((product, stage) => product * factorOf(stage), operator.factor ?? 1);

/** How far from the edge pixels are read; a picture must be larger. */
export const reachOf = (operator) => Math.max(operator.sigma ? reach(operator.sigma) : 0, ...(operator.stages ?? []).map(reachOf));

/** Pixels of ``inpainting`` that are known, 1 or 0, by its box or at random; null where the user paints them. */
export function knownPixels({ mask, top, left, height: h, width: w, fraction, seed }, width, height) {
  if (mask === "box") {
    const [y, x] = [Math.floor(top * height), Math.floor(left * width)];
    const [bottom, right] = [y + Math.max(1, Math.round(h * height)), x + Math.max(1, Math.round(w * width))];
    return Uint8Array.from({ length: width * height }, (_, at) => Number(!(at >= y * width && at < bottom * width && at % width >= x && at % width < right)));
  }
  if (mask !== "random") return null;
  const draw = random(seed);
  const order = Array.from({ length: width * height }, () => draw());
  const limit = [...order].sort((a, b) => a - b)[Math.floor(width * height * fraction)];
  return Uint8Array.from(order, (value) => Number(value >= limit));
}

/** The measurement of ``x``; ``known`` is read by inpainting. */
export const apply = (x, operator, known) => OPERATORS[operator.type](x, operator, known);

/** ``y`` as it is measured: counted in photons with poisson noise, plus Gaussian noise. */
export function noisy(y, { sigma, noise, peak = 100, seed }, coloured = true) {
  const draw = random(seed);
  const counted = (value) => (noise === "poisson" ? (poisson(((Math.max(-1, value) + 1) * peak) / 2, draw) * 2) / peak - 1 : value);
  const width = sigma ?? (noise === "poisson" ? 0 : SIGMA);
  const disturbed = (plane) => plane.map((value) => counted(value) + width * normal(draw));
  if (coloured) return mapped(y, disturbed);
  const grey = disturbed(y.planes[0]); // a grey measurement has grey noise
  return mapped(y, () => grey);
}

function hdr(x, { scale }) {
  return mapped(x, (plane) => plane.map((value) => Math.max(-1, Math.min(1, scale * value))));
}

function colorize(x) {
  const [red, green, blue] = x.planes;
  const grey = red.map((value, at) => LUMA[0] * value + LUMA[1] * green[at] + LUMA[2] * blue[at]);
  return mapped(x, () => grey);
}

/** Antialiased bicubic reduction. */
function reduce(x, { factor }) {
  const taps = Array.from({ length: 4 * factor }, (_, at) => cubic((at + 0.5) / factor - 2) / factor);
  const sum = taps.reduce((a, b) => a + b);
  const weights = taps.map((tap) => tap / sum);
  // output i is centred at (i + 1/2) * factor
  const first = factor / 2 - 2 * factor;
  const planes = x.planes.map((plane) => filtered(plane, x.width, x.height, weights, { stride: factor, first, border: mirror }));
  return { width: x.width / factor, height: x.height / factor, planes };
}

function cubic(distance) {
  const d = Math.abs(distance);
  if (d < 1) return 1.5 * d ** 3 - 2.5 * d ** 2 + 1;
  return d < 2 ? -0.5 * d ** 3 + 2.5 * d ** 2 - 4 * d + 2 : 0;
}

const reach = (sigma) => Math.floor(4 * sigma + 0.5);

function blur(x, { sigma }) {
  return mapped(x, (plane) => filtered(plane, x.width, x.height, gaussian(sigma, reach(sigma))));
}

function saturate(x, { sigma, focus_x: fx, focus_y: fy, highlights }) {
  const [cx, cy] = [fx * (x.width - 1), fy * (x.height - 1)];
  const distance = Float32Array.from({ length: x.width * x.height }, (_, at) => Math.hypot((at % x.width) - cx, Math.floor(at / x.width) - cy));
  const farthest = Math.max(1, distance.reduce((a, b) => Math.max(a, b)));
  const light = mapped(x, (plane) => plane.map((value) => ((value + 1) / 2) + (highlights - 1) * ((value + 1) / 2) ** 4));
  const top = SATURATING_LEVELS - 1;
  const levels = Array.from({ length: SATURATING_LEVELS }, (_, level) => (level ? blur(light, { sigma: (sigma * level) / top }) : light));
  const share = (at, level) => Math.max(0, 1 - Math.abs((distance[at] / farthest) * top - level));
  const spread = (channel, at) => levels.reduce((sum, { planes }, level) => sum + planes[channel][at] * share(at, level), 0);
  return { ...x, planes: x.planes.map((plane, channel) => plane.map((_, at) => 2 * Math.max(0, Math.min(1, spread(channel, at))) - 1)) };
}

function hide(x, operator, known) {
  const mask = knownPixels(operator, x.width, x.height) ?? known;
  return mapped(x, (plane) => plane.map((value, at) => value * mask[at]));
}

function compose(x, { stages }, known) {
  return stages.reduce((value, stage) => apply(value, stage, known), x);
}

// Quantisation tables of the JPEG standard, annex K, rows of the 8x8 block.
const LUMINANCE = [
  16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
  18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
];
const CHROMINANCE = [17, 18, 24, 47, 18, 21, 26, 66, 24, 26, 56, 99, 47, 66, 99, 99];
const TO_YCC = [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]];
const TO_RGB = [[1, 0, 1.402], [1, -0.344136, -0.714136], [1, 1.772, 0]];
const DCT = Array.from({ length: 64 }, (_, at) => (Math.cos(((2 * (at % 8) + 1) * (at >> 3) * Math.PI) / 16) / 2) * (at < 8 ? Math.SQRT1_2 : 1));

/** Colour transform, block DCT, quantisation and back, without chroma subsampling. */
function jpeg(x, { quality }) {
  const scale = quality < 50 ? Math.floor(5000 / quality) : 200 - 2 * quality;
  const base = (channel, at) => (channel ? (at >> 3 < 4 && at % 8 < 4 ? CHROMINANCE[(at >> 3) * 4 + (at % 8)] : 99) : LUMINANCE[at]);
  const tables = x.planes.map((_, channel) => Float32Array.from({ length: 64 }, (_, at) => Math.max(1, Math.min(255, Math.floor((base(channel, at) * scale + 50) / 100)))));
  const levels = x.planes.map((plane) => plane.map((value) => Math.max(0, Math.min(255, (value + 1) * 127.5)) - 128));
  const mixed = (planes, matrix) => matrix.map((row) => planes[0].map((value, at) => row[0] * value + row[1] * planes[1][at] + row[2] * planes[2][at]));
  const coded = mixed(levels, TO_YCC).map((plane, channel) => quantised(plane, x.width, x.height, tables[channel]));
  return { ...x, planes: mixed(coded, TO_RGB).map((plane) => plane.map((value) => Math.max(0, Math.min(255, value + 128)) / 127.5 - 1)) };
}

function quantised(plane, width, height, table) {
  const out = new Float32Array(plane.length);
  for (let top = 0; top < height; top += 8) {
    for (let left = 0; left < width; left += 8) {
      const at = (y, x) => Math.min(height - 1, top + y) * width + Math.min(width - 1, left + x);
      const block = Float32Array.from({ length: 64 }, (_, place) => plane[at(place >> 3, place % 8)]);
      const coefficients = product(product(DCT, block), transposed(DCT)).map((value, place) => Math.round(value / table[place]) * table[place]);
      const restored = product(product(transposed(DCT), coefficients), DCT);
      for (let place = 0; place < 64; place++) if (top + (place >> 3) < height && left + (place % 8) < width) out[at(place >> 3, place % 8)] = restored[place];
    }
  }
  return out;
}

const transposed = (a) => a.map((_, at) => a[(at % 8) * 8 + (at >> 3)]);
const product = (a, b) => Float64Array.from({ length: 64 }, (_, at) => [0, 1, 2, 3, 4, 5, 6, 7].reduce((sum, k) => sum + a[(at >> 3) * 8 + k] * b[k * 8 + (at % 8)], 0));

/** Numbers in (0, 1), the same for a seed (mulberry32). */
function random(seed = 0) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return (((mixed ^ (mixed >>> 14)) >>> 0) + 0.5) / 4294967296;
  };
}

const normal = (draw) => Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw());

/** A Poisson draw with this mean; for large means, the normal approximation. */
function poisson(mean, draw) {
  if (mean > 60) return Math.max(0, Math.round(mean + Math.sqrt(mean) * normal(draw)));
  let [count, product] = [-1, 1];
  for (const limit = Math.exp(-mean); product > limit; count++) product *= draw();
  return count;
}
