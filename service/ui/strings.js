// Every word the page says, in one place.

const plural = (n, one, many) => `${n} ${n === 1 ? one : many}`;
const duration = (s) => (s < 90 ? plural(Math.max(1, Math.round(s)), "second", "seconds") : plural(Math.round(s / 60), "minute", "minutes"));
const megabytes = (n) => `${Math.round(n / 1e6)} MB`;

export const t = {
  brand: "Anchored posterior sampling",
  apiLink: "API",
  workers: (n) => (n ? `${plural(n, "worker", "workers")} ready` : "No worker running"),
  title: "Restore a picture",
  lede: "Say how a picture was degraded. A discrete diffusion prior finds a natural picture that agrees with what was measured.",
  notice: "The result is a plausible sample, not evidence of what was there.",

  pictureTitle: "Picture",
  choose: "Drop, paste or choose a picture",
  change: "Choose another picture",
  imageHint: (bytes) => `PNG, JPEG or WebP, up to ${megabytes(bytes)}`,
  imageInfo: (name, width, height) => `${name}, ${width} × ${height} pixels`,
  imageAlt: "The picture to restore",
  pasted: "Pasted picture",
  mask: "Mask",
  maskHelp: "A picture of the same size: white where pixels are known, black where they are missing. Not needed if the picture has transparent pixels.",
  samplesTitle: "Or start from a degraded sample",
  samples: { coffee: "Coffee, reduced ×4", chelsea: "Cat, out of focus", rocket: "Rocket, clipped", astronaut: "Astronaut, 60 % missing" },

  settingsTitle: "Settings",
  submit: "Restore",
  submitting: "Sending…",
  more: "More settings",
  thenWord: ", then ",
  defaultOption: (value) => `Default (${value})`,
  noDefault: "None",
  values: { true: "Yes", false: "No" },
  auto: "auto",
  addStep: "Add a degradation",
  removeStep: (n) => `Remove ${n}`,
  stepTitle: (n) => `Degradation ${n}`,
  labels: {
    operator: "How was it degraded?",
    type: "Degradation",
    sigma: "Noise",
    num_samples: "Number of samples",
    working_size: "Longest side of the result",
    sampler: "Sampler",
  },
  fieldLabels: { "/operator/sigma": "Blur width", "/operator/mask": "Which pixels are missing?" },
  names: { jpeg: "JPEG", hdr: "Clipped highlights", super_resolution: "Low resolution", gaussian_blur: "Out of focus", motion_blur: "Motion blur", inpainting: "Missing pixels", denoise: "Noise only", compose: "Several" },

  needImage: "Choose a picture first.",
  fixFields: "Some settings are out of range; see the marked fields.",
  unreachable: "The service cannot be reached. Check the connection and try again.",
  unreadable: (status) => `The service answered with status ${status}.`,
  notAPicture: (name) => `“${name}” cannot be shown as a picture.`,
  lost: (id) => `Job ${id} is not known here any more.`,
  tryAgain: "Try again",

  states: { queued: "Waiting", running: "Restoring", succeeded: "Restored", failed: "Could not be restored", canceled: "Canceled" },
  phases: { waiting: "Waiting for a worker", preempted: "Interrupted; it will continue on another worker", loading: "Getting ready", sampling: "Sampling", storing: "Storing the result", canceling: "Canceling after this step" },
  next: "Next in line.",
  ahead: (n) => `${plural(n, "job comes", "jobs come")} first.`,
  estimate: (s) => `About ${duration(s)} of computing.`,
  remaining: (s) => `about ${duration(s)} left`,
  step: (n, total) => `Step ${n} of ${total}`,
  anchored: (share) => `${Math.round(share * 100)} % of the tokens are settled.`,
  resumed: (step) => `Continued from step ${step} after an interruption.`,
  done: "Move the handle to compare. Arrow keys work, too.",
  canceledText: "The job was stopped before it was finished.",
  expired: "Its files have expired.",

  before: "Measured",
  after: "Restored",
  preview: "Estimate so far",
  beforeAlt: "The measured picture",
  afterAlt: "The restored picture",
  previewAlt: "Current estimate of the picture",
  compare: "Comparison: share of the restored picture that is shown",
  compareValue: (value) => `${value} % restored`,
  draw: (n) => `Sample ${n}`,

  chartTitle: "Data misfit",
  chartHelp: "Distance between the estimate, degraded again, and the measurement. The truth would lie at the noise floor.",
  chartLabel: (n, misfit, floor) => `Data misfit after step ${n}: ${misfit.toPrecision(3)}; noise floor: ${floor.toPrecision(3)}`,
  floor: "noise floor",
  stepAxis: "step",

  factsTitle: "How it was made",
  facts: { operator: "Degradation", sigma: "Noise", seed: "Seed", prompt: "Prompt", prior: "Prior", size: "Size", misfit: "Misfit / noise floor", seconds: "Computed in" },
  size: (width, height) => `${width} × ${height} pixels`,
  seconds: (s) => `${s < 10 ? s.toFixed(1) : Math.round(s)} s`,
  download: "Download PNG",
  sidecar: "Settings as JSON",
  cancel: "Cancel",
  again: "Restore another",
};

/** Text of the schema, whose docstrings mark code with backticks. */
export const plain = (text = "") => text.replaceAll("`", "");

/** A readable label for an identifier of the schema. */
export const humanise = (name) => name.replaceAll("_", " ").replace(/^./, (c) => c.toUpperCase());

/** Fills every element that names its text in ``data-t``. */
export function fillPage() {
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t[element.dataset.t];
  document.title = `${t.title} · ${t.brand}`;
}
