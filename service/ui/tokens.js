// The token grid over the picture: which tokens were decided, and when. One canvas pixel a token.

/** Colours of the first and the last step and those between, from dark to light (after viridis). */
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const OPEN = [12, 14, 12, 125];
const FRESH = [46, 224, 178, 170];
const HEAT_ALPHA = 190;

export const rampCss = `linear-gradient(90deg, ${RAMP.map((colour) => `rgb(${colour})`).join(", ")})`;

/** Paints into ``canvas``; ``partlyKnown`` tells that tokens may have been decided before the first step. */
export function tokenGrid(canvas, partlyKnown) {
  const pen = canvas.getContext("2d");
  let steps = null; // of each token: the step that decided it, 0 while none has
  let image = null;

  return {
    /** Takes in a step's event. */
    add({ step, grid: [rows, columns], anchors }) {
      if (!steps) {
        steps = new Uint16Array(rows * columns);
        canvas.width = columns;
        canvas.height = rows;
        image = pen.createImageData(columns, rows);
      }
      for (const anchor of anchors) steps[anchor] = step;
    },
    /** Shows the grid as it was after ``step``; ``mode`` is "off", "settled" or "heat". */
    paint(step, total, mode) {
      canvas.hidden = mode === "off" || !steps;
      if (canvas.hidden) return;
      const { data } = image;
      for (let token = 0; token < steps.length; token++) {
        data.set(colourOf(steps[token], step, total, mode, partlyKnown), 4 * token);
      }
      pen.putImageData(image, 0, 0);
    },
    /** Lays the canvas over a picture of this size; the grid may reach beyond it, up to whole tokens. */
    fit([width, height]) {
      if (!steps) return;
      const stride = 2 ** Math.ceil(Math.log2(Math.max(width / canvas.width, height / canvas.height)));
      canvas.style.width = `${(100 * canvas.width * stride) / width}%`;
      canvas.style.height = `${(100 * canvas.height * stride) / height}%`;
      canvas.style.setProperty("--columns", canvas.width);
      canvas.style.setProperty("--rows", canvas.height);
    },
    settled: () => steps?.reduce((sum, step) => sum + (step > 0), 0) ?? 0,
    count: () => steps?.length ?? 0,
  };
}

function colourOf(decided, step, total, mode, partlyKnown) {
  if (decided === 0 || decided > step) return partlyKnown && decided === 0 ? [0, 0, 0, 0] : OPEN;
  if (mode === "heat") return [...rampAt(total > 1 ? (decided - 1) / (total - 1) : 1), HEAT_ALPHA];
  return decided === step ? FRESH : [0, 0, 0, 0];
}

function rampAt(share) {
  const place = share * (RAMP.length - 1);
  const low = Math.min(RAMP.length - 2, Math.floor(place));
  return RAMP[low].map((value, channel) => Math.round(value + (RAMP[low + 1][channel] - value) * (place - low)));
}
