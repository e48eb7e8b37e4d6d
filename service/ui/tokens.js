// The token grid over the picture: which tokens were decided, when, and with what confidence. One canvas pixel a token.

/** From dark to light (after viridis): first to last step, least to most confident. */
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const OPEN = [12, 14, 12, 125];
const FRESH = [46, 224, 178, 170];
const GIVEN = [255, 255, 255, 85];
const CLEAR = [0, 0, 0, 0];
const HEAT_ALPHA = 190;
/** "Step" of a token that was decided before the first one: it lies in the part of the picture that is kept. */
const KNOWN = 0xffff;

export const rampCss = `linear-gradient(90deg, ${RAMP.map((colour) => `rgb(${colour})`).join(", ")})`;

/** Paints into ``canvas``. */
export function tokenGrid(canvas) {
  const pen = canvas.getContext("2d");
  let steps = null; // of each token: the step that decided it, 0 while none has
  let scores = null; // of each token: the score it was chosen by
  let ranks = null; // of each token: the share of tokens with lower scores; made when needed
  let image = null;
  let ofTiles = false;

  return {
    /** Takes in a step's event. Of a picture restored in tiles, each entry of the grid is a tile. */
    add({ step, grid: [rows, columns], anchors, confidence, known, tiled }) {
      if (!steps) {
        ofTiles = Boolean(tiled);
        steps = new Uint16Array(rows * columns);
        scores = new Float32Array(rows * columns);
        canvas.width = columns;
        canvas.height = rows;
        image = pen.createImageData(columns, rows);
      }
      for (const token of known ?? []) steps[token] = KNOWN;
      for (const [index, token] of anchors.entries()) {
        steps[token] = step;
        scores[token] = confidence?.[index] ?? 0;
      }
      ranks = null;
    },
    /** Shows the grid as it was after ``step``; ``mode`` is "off", "settled", "heat" (by step) or "confidence". */
    paint(step, total, mode) {
      canvas.hidden = mode === "off" || !steps;
      if (canvas.hidden) return;
      if (mode === "confidence") ranks ??= ranked(scores, steps);
      const pixels = new Uint32Array(image.data.buffer);
      for (let token = 0; token < steps.length; token++) {
        pixels[token] = packed(colourOf(steps[token], step, total, mode, ranks?.[token]));
      }
      pen.putImageData(image, 0, 0);
    },
    /** Lays the canvas over a picture of this size; a grid of tokens may reach beyond it, up to whole tokens. */
    fit([width, height]) {
      if (!steps) return;
      const stride = 2 ** Math.ceil(Math.log2(Math.max(width / canvas.width, height / canvas.height)));
      const share = (count, length) => `${ofTiles ? 100 : (100 * count * stride) / length}%`;
      canvas.style.width = share(canvas.width, width);
      canvas.style.height = share(canvas.height, height);
      canvas.style.setProperty("--columns", canvas.width);
      canvas.style.setProperty("--rows", canvas.height);
    },
    /** Tokens the run decides: all but those that were known. */
    count: () => steps?.reduce((sum, step) => sum + (step !== KNOWN), 0) ?? 0,
    all: () => steps?.length ?? 0,
    settled: () => steps?.reduce((sum, step) => sum + (step > 0 && step !== KNOWN), 0) ?? 0,
  };
}

function colourOf(decided, step, total, mode, rank) {
  if (decided === KNOWN) return GIVEN;
  if (decided === 0 || decided > step) return OPEN;
  if (mode === "heat") return rampAt(total > 1 ? (decided - 1) / (total - 1) : 1);
  if (mode === "confidence") return rampAt(rank);
  return decided === step ? FRESH : CLEAR;
}

/** Ranks rather than scores: their range differs between priors and grows with the inner steps. */
function ranked(scores, steps) {
  const order = [...scores.keys()].filter((token) => steps[token] && steps[token] !== KNOWN).sort((a, b) => scores[a] - scores[b]);
  const ranks = new Float32Array(scores.length);
  for (const [place, token] of order.entries()) ranks[token] = order.length > 1 ? place / (order.length - 1) : 1;
  return ranks;
}

export function rampAt(share) {
  const place = share * (RAMP.length - 1);
  const low = Math.min(RAMP.length - 2, Math.floor(place));
  return [...RAMP[low].map((value, channel) => Math.round(value + (RAMP[low + 1][channel] - value) * (place - low))), HEAT_ALPHA];
}

/** RGBA as one little-endian word. */
const packed = ([red, green, blue, alpha]) => (red | (green << 8) | (blue << 16) | (alpha << 24)) >>> 0;
