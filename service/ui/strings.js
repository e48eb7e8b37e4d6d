// Every word the page says, in one place.

const plural = (n, one, many) => `${n} ${n === 1 ? one : many}`;
const duration = (s) => (s < 90 ? plural(Math.max(1, Math.round(s)), "second", "seconds") : plural(Math.round(s / 60), "minute", "minutes"));
const megabytes = (n) => `${Math.round(n / 1e6)} MB`;

export const t = {
  brand: "APS Studio",
  skip: "Skip to the content",
  tasksLabel: "Tasks",
  apiLink: "API",
  dismiss: "Dismiss",
  theme: { light: "Switch to the light theme", dark: "Switch to the dark theme" },
  workers: (n) => (n ? `${plural(n, "worker", "workers")} ready` : "No worker running"),
  statusTitle: "This service",
  devices: { cpu: "CPU", cuda: "GPU" },
  device: (name, count) => (count > 1 ? `${name} × ${count}` : name),
  holds: (priors, pixels) => `${priors.join(", ")}; pictures up to ${(pixels / 1e6).toPrecision(2)} megapixels`,
  queueTitle: "Queue",
  queueText: (queued, running) => `${queued} waiting, ${running} running`,
  key: {
    title: "An API key is needed",
    lede: "This service works for those who have a key. It is asked for once, and this page keeps no copy of it.",
    label: "API key",
    help: "The service's operator makes keys with: aps keys create NAME",
    send: "Continue",
    later: "Not now",
    malformed: "A key reads aps_, twelve digits or letters, _, and 43 characters.",
    unknown: "This key is not known here, or has been revoked.",
    whose: (principal) => `Signed in with a key of ${principal}.`,
    forget: "Forget the key",
  },
  notice: "The result is a plausible sample, not evidence of what was there.",

  tasks: {
    restore: {
      name: "Restore", title: "Restore a picture", submit: "Restore", running: "Restoring", succeeded: "Restored", image: "Degraded picture", samples: "Or start from a degraded sample",
      lede: "Say how a picture was degraded. A discrete diffusion prior finds a natural picture that agrees with what was measured.",
      mask: "Paint over what is missing.", before: "Measured", after: "Restored", curve: "Data misfit", curveHelp: "Distance between the estimate, degraded again, and the measurement. The truth would lie at the noise floor.",
    },
    stylize: {
      name: "Stylize", title: "Borrow a style", submit: "Stylize", running: "Stylizing", succeeded: "Stylized", image: "Content picture", samples: "Or start from a drawn pattern",
      lede: "Describe a picture and show a style. The style steers which tokens the prior decides for, without any training.",
      before: "Content", after: "Stylized", curve: "Style distance", curveHelp: "How far the estimate's style is from the reference picture's.",
    },
    edit: {
      name: "Edit", title: "Draw a part anew", submit: "Edit", running: "Drawing", succeeded: "Edited", image: "Picture", samples: "Or start from a sample",
      lede: "Paint over what should change and say what the picture shows. Every other pixel stays as it is.",
      mask: "Paint over what should be drawn anew.", before: "Original", after: "Edited", curve: "Data misfit", curveHelp: "Distance to the pixels that stay.",
    },
    guide: {
      name: "Guide text", title: "Guide an answer", submit: "Answer", running: "Answering", succeeded: "Answered", samples: "Or start from a question",
      lede: "A masked language model writes an answer in any order while a reward steers which words it decides for.",
      notice: "Fluent text is not evidence that it is true.", curve: "Reward", curveHelp: "What the reward model thinks of the answer that is expected, before each guided step. Higher is better.",
    },
    generate: {
      name: "Generate", title: "Draw from a prompt", submit: "Generate", running: "Drawing", succeeded: "Drawn", samples: "Or start from a prompt",
      lede: "What the prior draws by itself, without a measurement: a look at what the other tasks steer.", after: "Drawn", curve: "Misfit", curveHelp: "",
    },
  },
  otherTask: { samples: "Or start from a sample", running: "Running", succeeded: "Done", mask: "Paint over the region.", before: "Before", after: "After", curve: "Misfit", curveHelp: "" },

  pictures: { image: "Picture", style: "Style picture", mask: "Mask" },
  optional: "optional",
  choose: "Drop, paste or choose a picture",
  change: "Replace",
  camera: "Take a photo",
  removePicture: "Remove",
  imageHint: (bytes) => `PNG, JPEG or WebP, up to ${megabytes(bytes)}`,
  imageInfo: (name, width, height) => `${name}, ${width} × ${height} pixels`,
  imageAlt: (label) => `${label}, as chosen`,
  pasted: "Pasted picture",
  samples: {
    "raccoon-demo": "Raccoon, to reduce ×4", "coffee-demo": "Cup of coffee, to compress", coffee: "Coffee, reduced ×4", chelsea: "Cat, out of focus", rocket: "Rocket, clipped", astronaut: "Astronaut, 60 % missing", "raccoon-edit": "Raccoon", "coffee-edit": "Cup of coffee",
    ember: "Embers", tiles: "Raccoon in tiles", lantern: "What is a lantern?", hobby: "Describe your favorite book.", flower: "A red flower", sky: "Sunset over the sea",
  },

  maskTools: "Mask tools",
  tools: { brush: "Brush", box: "Box", eraser: "Eraser" },
  brushSize: "Brush size",
  undo: "Undo",
  clear: "Clear",
  loadMask: "Use a mask file",
  loadMaskHelp: "white stays, black is painted",
  maskCanvas: "Mask. Arrow keys move the cursor, Space paints; in box mode the first press sets a corner and the second the opposite one.",
  masked: (share) => (share ? `${share < 0.01 ? "Under 1" : Math.round(share * 100)} % painted.` : "Nothing painted yet."),

  settingsTitle: "Settings",
  submitting: "Sending…",
  more: "More settings",
  thenWord: ", then ",
  defaultOption: (value) => `Default (${value})`,
  noDefault: "None",
  leftOut: "As recommended",
  values: { true: "Yes", false: "No" },
  addStep: "Add a degradation",
  removeStep: (n) => `Remove ${n}`,
  stepTitle: (n) => `Degradation ${n}`,
  noPrior: (kind) => `No worker here holds a prior for ${kind}; a job would be refused until one starts.`,
  kinds: { picture: "pictures", text: "text" },
  labels: {
    operator: "How was it degraded?", type: "Degradation", sigma: "Noise level", noise: "Kind of noise", peak: "Photons of white", num_samples: "Number of samples", working_size: "Longest side of the result", sampler: "Sampler", loss: "Loss",
    compare_unguided: "Also answer without guidance", gram_weight: "Gram style weight", csd_weight: "CSD style weight", reward: "Reward",
  },
  fieldLabels: { "/operator/sigma": "Blur width", "/operator/mask": "Which pixels are missing?", "/reward/type": "Kind of reward", "/sampler/type": "Kind of sampler", "/loss/type": "Kind of loss" },
  names: {
    jpeg: "JPEG", hdr: "Clipped highlights", super_resolution: "Low resolution", gaussian_blur: "Out of focus", motion_blur: "Motion blur", inpainting: "Missing pixels", denoise: "Noise only", compose: "Several",
    aps: "APS", aps_i: "APS-I", aps_ii: "APS-II", g2d2: "G2D2", sgdd: "SGDD", svdd: "SVDD", prior_only: "Prior alone",
  },

  demo: {
    legend: "What kind of picture is it?",
    real: "My picture is degraded",
    demo: "Demo: degrade a clean picture",
    clean: "Clean picture",
    samples: "Or start from a clean sample",
    measured: "Simulated measurement",
    about: (width, height, sigma) => `${width} × ${height} pixels, made here. This is all that the restoration gets; the clean picture stays on this page, to be compared with.${sigma === undefined ? " Noise is added, and the restoration estimates how much." : ""}`,
    cannot: (name) => `“${name}” cannot be simulated on this page. On the command line, aps degrade can.`,
    tooSmall: "The blur reaches further than the picture is large; use less of it or a larger picture.",
    paint: "Paint over what shall be missing.",
  },
  truth: "Known truth",
  compareWith: "Compare with",
  truthTitle: "Against the known truth",
  truthHelp: "A demonstration: this page degraded a clean picture, so the answer is known. From the measurement to the result.",
  psnr: "PSNR",
  ssim: "SSIM",
  decibels: (value) => `${value.toFixed(1)} dB`,
  fromTo: (from, to) => `${from} → ${to}`,

  needPicture: (label) => `Choose a picture first: ${label.toLowerCase()}.`,
  needMask: "Paint over the part to draw anew first.",
  fixFields: "Some settings are out of range; see the marked fields.",
  unreachable: "The service cannot be reached. Check the connection and try again.",
  unreadable: (status) => `The service answered with status ${status}.`,
  notAPicture: (name) => `“${name}” cannot be shown as a picture.`,
  maskSize: (name, width, height) => `The mask “${name}” must have the picture's size, ${width} × ${height} pixels.`,
  lost: (id) => `Job ${id} is not known here any more.`,
  tryAgain: "Try again",

  states: { queued: "Waiting", running: "Running", succeeded: "Done", failed: "Failed", canceled: "Canceled" },
  phases: { waiting: "Waiting for a worker", preempted: "Interrupted; it will continue on another worker", loading: "Getting ready", sampling: "Sampling", storing: "Storing the result", canceling: "Canceling after this step" },
  next: "Next in line.",
  ahead: (n) => `${plural(n, "job comes", "jobs come")} first.`,
  estimate: (s) => `About ${duration(s)} of computing.`,
  remaining: (s) => `about ${duration(s)} left`,
  step: (n, total) => `Step ${n} of ${total}`,
  settled: (share) => `${Math.round(share * 100)} % of the tokens are settled.`,
  settledCount: (n) => `${plural(n, "token is", "tokens are")} settled.`,
  resumed: (step) => `Continued from step ${step} after an interruption.`,
  reconnecting: "Connection lost; trying again…",
  done: "Move the handle to compare, or the slider below to see how it came about.",
  doneAlone: "Move the slider below to see how it came about.",
  doneText: "Move the slider to see in which order it was written.",
  canceledText: "The job was stopped before it was finished.",
  expired: "Its files have expired.",

  preview: (n) => `Estimate after step ${n}`,
  pictureAlt: { before: "The picture that was sent", result: "The result", mean: "Mean of the samples", spread: "Spread of the samples: bright where the measurement leaves the picture open" },
  previewAlt: "Current estimate of the picture",
  stage: "Picture. Plus and minus zoom, 0 fits, arrow keys pan.",
  compare: "Comparison: share of the result that is shown",
  compareValue: (value) => `${value} % of the result`,
  zoomIn: "Zoom in",
  zoomOut: "Zoom out",
  zoomFit: "Fit",
  zoomText: (zoom) => `${Math.round(zoom * 100)} %`,

  scrub: "Step",
  scrubValue: (n, total, count) => `Step ${n} of ${total}, ${plural(count, "token", "tokens")} decided here`,
  play: "Play the steps",
  pause: "Pause",
  overlay: "Tokens",
  overlays: { off: "Hidden", settled: "Settled so far", heat: "Heat by step", confidence: "Heat by confidence" },
  overlayHelp: { off: "", settled: "Green: decided in this step. Dark: still open.", heat: "When each token was decided.", confidence: "How sure the sampler was of each token when it decided." },
  overlayKnown: " White: kept, known from the start.",
  rampEnds: { heat: ["first", "last"], confidence: ["least", "most"] },

  strip: "Samples",
  draw: (n) => `Sample ${n}`,
  mean: "Mean",
  spread: "Spread",
  spreadHelp: "The mean is smoother and closer to the truth on average; the spread shows where the samples disagree. Neither is evidence.",

  guided: "Guided",
  unguided: "Without guidance",
  rewardOf: (value) => `Reward ${value.toFixed(3)}`,
  notStarted: "Written after the guided answer, from the same seed.",

  innerTitle: (n) => `Inner loop, step ${n}`,
  chartLabel: (name, n, value, floor) => `${name} after step ${n}: ${value.toPrecision(3)}${floor ? `; noise floor: ${floor.toPrecision(3)}` : ""}`,
  floor: "noise floor",
  stepAxis: "step",

  factsTitle: "How it was made",
  facts: { operator: "Degradation", sigma: "Noise level", seed: "Seed", prompt: "Prompt", prior: "Prior", size: "Size", sampler: "Sampler", misfit: "Misfit / noise floor", reward: "Reward", seconds: "Computed in", waited: "Waited" },
  samplerText: (steps, inner) => `${plural(steps, "step", "steps")}${inner === undefined ? "" : `, ${inner} inner`}`,
  size: (width, height) => `${width} × ${height} pixels`,
  seconds: (s) => `${s < 10 ? s.toFixed(1) : Math.round(s)} s`,
  download: "Download PNG",
  downloadText: "Download text",
  sidecar: "Settings as JSON",
  contact: "Contact strip",
  cancel: "Cancel",
  again: "Run again with…",
  fresh: "Start another",
  code: "Use it in code",
  copy: "Copy",
  copied: "Copied",
  codeKinds: { curl: "curl", python: "Python", cli: "Command line" },

  historyTitle: "History",
  historyLede: "What was asked of this service, newest first.",
  filterTask: "Task",
  filterState: "State",
  search: "Prompt or id",
  all: "All",
  older: "Show older jobs",
  nothing: "Nothing here yet.",
  nothingMatches: "No job matches.",
  deleteJob: "Delete",
  deleteSure: "Delete for good?",
  deleted: "Deleted.",
  openJob: (name, when) => `${name}, ${when}`,
  thumbExpired: "expired",
};

/** Text of the schema, whose docstrings mark code with backticks. */
export const plain = (text = "") => text.replaceAll("`", "");

/** A readable label for an identifier of the schema. */
export const humanise = (name) => name.replaceAll("_", " ").replace(/^./, (c) => c.toUpperCase());

/** What is said about a task; for one the page has never heard of, in general words. */
export function wordsOf(task, summary = "") {
  const name = humanise(task);
  return { name, title: name, submit: name, lede: plain(summary), notice: t.notice, ...t.otherTask, ...t.tasks[task] };
}

/** The name of a task's picture. */
export const pictureLabel = (task, name) => (name === "image" ? wordsOf(task).image : undefined) ?? t.pictures[name] ?? humanise(name);

/** Fills every element that names its text in ``data-t`` or ``data-label``. */
export function fillPage() {
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t[element.dataset.t];
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", t[element.dataset.label]);
}
