// Pictures as numbers in [-1, 1]: { width, height, planes: [red, green, blue] }, each plane row by row.

const CHANNELS = [0, 1, 2];

/** Pixels of something a canvas can draw, at this size. */
export function pixelsOf(source, width, height) {
  const pen = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  pen.imageSmoothingQuality = "high";
  pen.drawImage(source, 0, 0, width, height);
  const { data } = pen.getImageData(0, 0, width, height);
  return { width, height, planes: CHANNELS.map((channel) => Float32Array.from({ length: width * height }, (_, at) => data[4 * at + channel] / 127.5 - 1)) };
}

/** As 8-bit pixels for a canvas; values outside are clipped. */
export function imageData({ width, height, planes }) {
  const image = new ImageData(width, height);
  for (let at = 0; at < width * height; at++) {
    for (const channel of CHANNELS) image.data[4 * at + channel] = Math.round((planes[channel][at] + 1) * 127.5);
    image.data[4 * at + 3] = 255;
  }
  return image;
}

/** As a PNG file. */
export async function pngOf(picture, name) {
  const sheet = new OffscreenCanvas(picture.width, picture.height);
  sheet.getContext("2d").putImageData(imageData(picture), 0, 0);
  return new File([await sheet.convertToBlob({ type: "image/png" })], name, { type: "image/png" });
}

/** The part at the top left of this size. */
export function cropped({ width: old, planes }, width, height) {
  return { width, height, planes: planes.map((plane) => Float32Array.from({ length: width * height }, (_, at) => plane[Math.floor(at / width) * old + (at % width)])) };
}

/** Every plane by ``change``. */
export const mapped = (picture, change) => ({ ...picture, planes: picture.planes.map(change) });

/**
 * One plane filtered along rows and columns by the same ``taps``, read from ``stride`` * output + ``first`` on;
 * ``border`` says which pixel stands for one beyond the edge.
 */
export function filtered(plane, width, height, taps, { stride = 1, first = -(taps.length >> 1), border = reflect } = {}) {
  const along = (source, length, lines, step, jump) => {
    const count = length / stride;
    const out = new Float32Array(count * lines);
    const index = Int32Array.from({ length: count * taps.length }, (_, at) => border(Math.floor(at / taps.length) * stride + first + (at % taps.length), length) * step);
    for (let line = 0; line < lines; line++) {
      for (let at = 0; at < count; at++) {
        let sum = 0;
        for (let tap = 0; tap < taps.length; tap++) sum += taps[tap] * source[line * jump + index[at * taps.length + tap]];
        out[line * count + at] = sum;
      }
    }
    return out; // line by line
  };
  const rows = along(plane, width, height, 1, width);
  const columns = along(rows, height, width / stride, width / stride, 1); // transposed
  const [w, h] = [width / stride, height / stride];
  return Float32Array.from({ length: w * h }, (_, at) => columns[(at % w) * h + Math.floor(at / w)]);
}

/** Mirrors without repeating the edge. */
export function reflect(at, length) {
  const period = 2 * (length - 1) || 1;
  const place = ((at % period) + period) % period;
  return Math.min(place, period - place);
}

/** Mirrors with the edge repeated. */
export function mirror(at, length) {
  const place = ((at % (2 * length)) + 2 * length) % (2 * length);
  return Math.min(place, 2 * length - 1 - place);
}

/** A Gaussian's taps up to ``reach``, of sum 1. */
export function gaussian(sigma, reach) {
  const taps = Array.from({ length: 2 * reach + 1 }, (_, at) => Math.exp(-((at - reach) ** 2) / (2 * sigma ** 2)));
  const sum = taps.reduce((a, b) => a + b);
  return taps.map((tap) => tap / sum);
}

const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

/** Peak signal-to-noise ratio in dB. */
export function psnr(x, truth) {
  const error = mean(CHANNELS.map((channel) => mean(x.planes[channel].map((value, at) => (value - truth.planes[channel][at]) ** 2))));
  return 10 * Math.log10(4 / error);
}

/** Structural similarity (Wang et al. 2004): Gaussian window of 11 pixels and sigma 1.5, mean over the colours. */
export function ssim(x, truth) {
  const taps = gaussian(1.5, 5);
  const blur = (plane) => filtered(plane, x.width, x.height, taps);
  const [c1, c2] = [0.02 ** 2, 0.06 ** 2];
  return mean(
    CHANNELS.map((channel) => {
      const [a, b] = [x.planes[channel], truth.planes[channel]];
      const [ma, mb, aa, bb, ab] = [a, b, a.map((value) => value * value), b.map((value) => value * value), a.map((value, at) => value * b[at])].map(blur);
      return mean(ma.map((m, at) => {
        const luminance = (2 * m * mb[at] + c1) / (m * m + mb[at] * mb[at] + c1);
        return luminance * ((2 * (ab[at] - m * mb[at]) + c2) / (aa[at] - m * m + (bb[at] - mb[at] * mb[at]) + c2));
      }));
    }),
  );
}
