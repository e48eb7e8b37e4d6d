// All text shown on the page.

const plural = (n, one, many) => `${n} ${n === 1 ? one : many}`;
const short = (n) => (n < 10 ? Math.round(10 * n) / 10 : Math.round(n));
/** The same words as ``aps_core.runtime.durations.in_words``. */
export function duration(s) {
  if (s < 90) return plural(Math.max(1, Math.round(s)), "second", "seconds");
  if (s < 5400) return `${Math.round(s / 60)} minutes`;
  return s < 129600 ? `${short(s / 3600)} hours` : `${short(s / 86400)} days`;
}
export const dateTime = (time) => new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
const pixels = ([width, height]) => `${width} × ${height} pixels`;
const megabytes = (n) => `${Math.round(n / 1e6)} MB`;

export const t = {
  brand: "APS Studio",
  skip: "Skip to the content",
  tasksLabel: "Tasks",
  apiLink: "API",
  dismiss: "Dismiss",
  theme: { light: "Switch to the light theme", dark: "Switch to the dark theme" },
  workers: (n) => (n ? `${plural(n, "worker", "workers")} ready` : "No worker running"),
  noConnection: "No connection",
  statusTitle: "This service",
  devices: { cpu: "CPU", cuda: "GPU" },
  device: (name, count) => (count > 1 ? `${name} × ${count}` : name),
  holds: (priors, pixels) => `${priors.join(", ")}; pictures up to ${(pixels / 1e6).toPrecision(2)} megapixels`,
  queueTitle: "Queue",
  queueText: (queued, running) => `${queued} waiting, ${running} running`,
  key: {
    title: "An API key is needed",
    lede: "This service requires an API key. Enter it once; this page does not store it.",
    label: "API key",
    help: "The service's administrator creates keys with: aps keys create NAME",
    send: "Continue",
    later: "Not now",
    malformed: "A key has the form aps_, 12 digits or letters, _, and 43 more characters.",
    unknown: "This key is unknown to the service or has been revoked.",
    whose: (principal) => `Signed in as ${principal}.`,
    forget: "Sign out",
  },
  notice: "The result is a plausible sample, not evidence of what was there.",

  tasks: {
    restore: {
      name: "Restore", title: "Restore a picture", submit: "Restore", running: "Restoring", succeeded: "Restored", image: "Degraded picture", samples: "Or start from a degraded sample",
      lede: "Choose a picture: this page says what seems to be wrong with it, and undoes that. A discrete diffusion prior finds a natural picture that is consistent with yours.",
      mask: "Paint over the missing parts.", before: "Measured", after: "Restored", curve: "Data misfit", curveHelp: "Distance between the measurement and the estimate after the same degradation. The true picture would be at the noise floor.",
    },
    stylize: {
      name: "Stylize", title: "Stylize a picture", submit: "Stylize", running: "Stylizing", succeeded: "Stylized", image: "Content picture", samples: "Or start from a sample pattern",
      lede: "Describe a picture and choose a style picture. Its style guides which tokens the prior selects; nothing is trained.",
      before: "Content", after: "Stylized", curve: "Style distance", curveHelp: "Distance between the style of the estimate and that of the style picture.",
    },
    edit: {
      name: "Edit", title: "Regenerate part of a picture", submit: "Edit", running: "Editing", succeeded: "Edited", image: "Picture", samples: "Or start from a sample",
      lede: "Paint over the part to change and describe the whole picture. All other pixels stay unchanged.",
      mask: "Paint over the part to regenerate.", before: "Original", after: "Edited", curve: "Data misfit", curveHelp: "Distance to the pixels that are kept.",
    },
    guide: {
      name: "Guide text", title: "Guide an answer", submit: "Answer", running: "Answering", succeeded: "Answered", samples: "Or start from a question",
      lede: "A masked language model writes an answer in any order while a reward model guides which words it selects.",
      notice: "Fluent text is not necessarily true.", curve: "Reward", curveHelp: "Reward of the expected answer before each guided step. Higher is better.",
    },
    generate: {
      name: "Generate", title: "Generate a picture", submit: "Generate", running: "Generating", succeeded: "Generated", samples: "Or start from a prompt",
      lede: "The prior generates a picture from a prompt, without a measurement. This shows what the other tasks guide.", after: "Generated", curve: "",
    },
  },
  otherTask: { samples: "Or start from a sample", running: "Running", succeeded: "Done", mask: "Paint over the region.", before: "Before", after: "After", curve: "Misfit", curveHelp: "" },

  diagnosis: {
    title: "Diagnosis",
    looking: "Looking at the picture…",
    restore: "Restore what was found",
    correct: "Correct it first",
    documents: "A page or screen: the prior trained on documents is chosen.",
    text: "This seems to be a page or screen. Restored letters and digits may be guesses, even where they are sharp.",
  },
  found: {
    title: "What was undone",
    correct: "Not right? Correct it",
    blur: "The blur: what it made of a point of light.",
    blurAlt: "The blur, as the picture of a point of light",
  },
  nothingToRestore: "Left as it is",
  /** The service's finding; its advice, which is meant for callers of the API, in this page's words. */
  untouched: (detail) => detail.replace(/ To restore it anyway,.*$/, " To restore it anyway, choose what happened to it, for example “Noise only”.").replace(/ 'auto' knows.*$/, " Nothing can be found out that undoes this; choose what happened to it."),
  several: {
    title: "Several pictures",
    help: "What happened to each is found out, unless you choose it in the settings, which apply to all. Pages and screens get the prior trained on them.",
    count: (n) => plural(n, "picture", "pictures"),
    start: (n) => `Restore ${plural(n, "picture", "pictures")}`,
    leave: "Cancel",
    sending: (n, total) => `Sending ${n} of ${total}…`,
    tooMany: (most) => `At most ${most} pictures at once.`,
    tooLarge: (name) => `“${name}” is too large.`,
    unreadable: (name) => `“${name}” cannot be read as a ZIP file.`,
    none: "There is no PNG, JPEG or WebP picture among these files.",
    notSent: "not sent",
    noMask: "This degradation needs a mask or kernel for every picture; send the pictures one by one.",
    number: (n) => `Picture ${n}`,
    progress: "Progress of all pictures",
    status: (done, total, left, failed) => [`${done} of ${total} finished`, left && `${left} left as ${left === 1 ? "it is" : "they are"}`, failed && `${failed} failed`].filter(Boolean).join(", "),
    fits: { agrees: "Restored", undecided: "Agreement undecided", disagrees: "Does not agree" },
    cancelAll: "Cancel all",
    download: (n) => `Download ${plural(n, "result", "results")} (ZIP)`,
  },
  pictures: { image: "Picture", style: "Style picture", mask: "Mask", kernel: "Blur kernel" },
  optional: "optional",
  choose: "Drop, paste or choose a picture",
  chooseSeveral: "Drop, paste or choose pictures",
  draftKept: "Your unsent form is back.",
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
  loadMaskHelp: "white is kept, black is masked",
  maskCanvas: "Mask. Arrow keys move the cursor; Space paints. In box mode, the first press sets one corner and the second sets the opposite corner.",
  masked: (share) => (share ? `${share < 0.01 ? "Under 1" : Math.round(share * 100)} % painted.` : "Nothing painted yet."),

  crop: {
    open: "Crop instead",
    frame: "Part of the picture to use. Arrow keys move it; with Shift they change its size.",
    size: (width, height, fits) => `${width} × ${height} pixels${fits ? ", used as they are" : "; this part is reduced, too"}`,
    use: "Use this part",
    cancel: "Cancel",
    whole: "Whole picture",
    name: (name) => `Part of ${name}`,
  },
  forecast: {
    waiting: "Choose a picture to see the result's size and duration.",
    picture: (size, s) => `Result ${pixels(size)}, about ${duration(s)}.`,
    text: (s) => `About ${duration(s)}.`,
    reduced: (from, to) => `Your picture of ${pixels(from)} is first reduced to ${pixels(to)}: detail smaller than ${short(from[0] / to[0])} pixels is lost.`,
    drawn: (size) => `The new part is drawn at ${pixels(size)} and enlarged; the rest keeps its detail.`,
    whole: (s) => `Keep full size (about ${duration(s)})`,
    tiles: (s) => `Keep full size, in tiles (about ${duration(s)})`,
  },
  presets: { legend: "How thorough?", fast: "Fast", balanced: "Balanced", best: "Best", about: (s) => `about ${duration(s)}` },
  settingsTitle: "Settings",
  submitting: "Sending…",
  more: "More settings",
  thenWord: ", then ",
  pixels: (width, height) => `${width}×${height} px`,
  chosenOption: "By what the picture shows",
  defaultOption: (value) => `Default (${value})`,
  noDefault: "None",
  leftOut: "Recommended",
  values: { true: "Yes", false: "No", em: "Restorations by the prior", free_kernel: "Any shape (slow)" },
  priors: { embedded: "Any picture, with prompts", embedded_denoiser: "Photographs, noise removed", embedded_photographs: "Photographs", embedded_documents: "Pages and screens", embedded_text: "Text", mmada_8b: "MMaDA 8B", mmada_8b_mixcot: "MMaDA 8B MixCoT", dream_7b: "Dream 7B", llada_8b: "LLaDA 8B", vq_diffusion: "VQ-Diffusion" },
  removeStep: (n) => `Remove ${n}`,
  lists: {
    steps: { add: "Add a degradation", title: (n) => `Degradation ${n}` },
    more_prompts: { add: "Add a prompt", title: (n) => `Prompt ${n + 1}` },
    stop: { add: "Add a stop text", title: (n) => `Stop text ${n}` },
  },
  noPrior: (kind) => `No running worker has a prior for ${kind}. Jobs are refused until one starts.`,
  kinds: { picture: "pictures", text: "text" },
  labels: {
    operator: "How was it degraded?", type: "Degradation", sigma: "Noise level", noise: "Noise type", peak: "Photons per white pixel", num_samples: "Number of samples", working_size: "Longest side of the result", tile: "Tile size, for large pictures", sampler: "Sampler", loss: "Loss",
    compare_unguided: "Also answer without guidance", measure: "Style measure", reward: "Reward",
  },
  fieldLabels: {
    "/seed": "Seed of the result", "/operator/seed": "Seed of the degradation",
    "/sampler/steps": "Rounds (reverse steps)", "/sampler/inner_steps": "Corrections per round (inner steps)", "/sampler/learning_rate": "Size of a correction (learning rate)",
    "/sampler/guidance_scale": "Weight of the description (guidance)", "/sampler/inner": "When a round ends (inner loop)", "/sampler/prior_weight": "Pull towards the prior (prior term)",
    "/sampler/entropy_weight": "Push towards clear choices (entropy term)", "/sampler/remasking": "What is decided first (remasking)", "/sampler/anchor_score": "Measure of certainty (anchor score)",
    "/sampler/anchor_temperature": "Randomness of the order (anchor noise)", "/sampler/temperature": "Randomness (temperature)", "/sampler/state_update": "How many are decided (state update)",
    "/sampler/start": "Weight of a first estimate (start)", "/sampler/correction": "Final correction", "/sampler/smoothness": "Smoothness of the result (total variation)",
    "/sampler/curvature": "Slopes through gaps (curvature)", "/sampler/denoising": "Smoothness where only noise is wrong",
    "/loss/norm": "What counts as a deviation (norm)", "/loss/perceptual_weight": "Weight of visual features (perceptual term)", "/loss/perceptual": "What computes visual features",
    "/sampler/order_temperature": "Randomness of the order (order temperature)",
    "/operator/sigma": "Blur width", "/operator/mask": "Which pixels are missing?", "/reward/type": "Reward type", "/sampler/type": "Sampler type", "/loss/type": "Loss type", "/measure/type": "Measure" },
  names: { // in the order in which they are offered
    auto: "Find out", super_resolution: "Low resolution", defocus_blur: "Out of focus", gaussian_blur: "Gaussian blur", motion_blur: "Shaken camera", linear_motion_blur: "Straight motion", denoise: "Noise only", jpeg: "JPEG", inpainting: "Missing pixels", hdr: "Clipped highlights", colorize: "Black and white",
    blind_blur: "Unknown blur", blind: "Unknown blur, reduction, JPEG", kernel_blur: "Own blur kernel", saturating_blur: "Saturating blur", nonlinear_blur: "Nonlinear blur", compose: "Several",
    entrgi: "EntRGi", aps: "APS", aps_i: "APS-I", aps_ii: "APS-II", g2d2: "G2D2", sgdd: "SGDD", svdd: "SVDD", prior_only: "Prior alone",
    gram: "Gram statistics", csd: "CSD",
  },

  demo: {
    legend: "What kind of picture is it?",
    real: "My picture is degraded",
    demo: "Demo: degrade a clean picture",
    clean: "Clean picture",
    samples: "Or start from a clean sample",
    measured: "Simulated measurement",
    about: (width, height, sigma) => `${width} × ${height} pixels, computed on this page. Only this picture is sent; the clean picture stays here for comparison.${sigma === undefined ? " Noise is added; the restoration estimates its level." : ""}`,
    cannot: (name) => `“${name}” cannot be simulated on this page. Use aps degrade on the command line.`,
    tooSmall: "The blur is wider than the picture. Reduce the blur or use a larger picture.",
    paint: "Paint over the pixels to remove.",
  },
  truth: "Known truth",
  compareWith: "Compare with",
  truthTitle: "Against the known truth",
  truthHelp: "Demonstration: this page degraded a clean picture, so the true picture is known. Each row shows measurement → result.",
  psnr: "PSNR",
  ssim: "SSIM",
  decibels: (value) => `${value.toFixed(1)} dB`,
  fromTo: (from, to) => `${from} → ${to}`,

  needPicture: (label) => `Choose a picture first: ${label.toLowerCase()}.`,
  needMask: (paint) => paint.replace(/\.$/, " first."),
  fixFields: "Some settings are out of range; see the marked fields.",
  notConnected: "Not connected",
  unreachable: "The service cannot be reached. Check the connection and try again.",
  unreadable: (status) => `The service answered with status ${status}.`,
  notAPicture: (name) => `“${name}” cannot be shown as a picture.`,
  maskSize: (name, width, height) => `The mask “${name}” must have the picture's size, ${width} × ${height} pixels.`,
  lost: (id) => `Job ${id} does not exist or has been deleted.`,
  tryAgain: "Try again",

  states: { queued: "Waiting", running: "Running", succeeded: "Done", failed: "Failed", canceled: "Canceled" },
  percent: (share) => `${Math.floor(100 * share)} %`,
  inRound: (n, total, inner, inners) => `Step ${n} of ${total}, ${inner} of ${inners} inner`,
  phases: { waiting: "Waiting for a worker", preempted: "Interrupted; continues on another worker", loading: "Getting ready", sampling: "Sampling", storing: "Storing the result", canceling: "Canceling…" },
  next: "Next in line.",
  ahead: (n) => `${plural(n, "job", "jobs")} ahead.`,
  estimate: (s) => `Estimated computing time: ${duration(s)}.`,
  remaining: (s) => (s < 1 ? "almost done" : `about ${duration(s)} left`),
  step: (n, total) => `Step ${n} of ${total}`,
  settled: (share) => `${Math.round(share * 100)} % of the tokens are decided.`,
  settledCount: (n) => `${plural(n, "token is", "tokens are")} decided.`,
  resumed: (step) => `Continued from step ${step} after an interruption.`,
  reconnecting: "Connection lost; trying again…",
  done: "Move the handle to compare, and the slider to see each step.",
  doneAlone: "Move the slider to see each step.",
  fits: { undecided: "Finished: agreement undecided", disagrees: "Does not agree with your picture" },
  doneText: "Move the slider to see the order in which the tokens were written.",
  canceledText: "The job was stopped before it finished.",
  expired: "Its files have expired.",

  previewWithin: (n) => `Estimate within step ${n}`,
  preview: (n) => `Estimate after step ${n}`,
  pictureAlt: { before: "The picture that was sent", result: "The result", mean: "Mean of the samples", spread: "Uncertainty: bright where the samples disagree or may all be wrong" },
  previewAlt: "Current estimate of the picture",
  stage: "Picture. Plus and minus zoom, 0 fits, arrow keys pan.",
  compare: "Comparison: share of the result shown",
  compareValue: (value) => `${value} % of the result`,
  zoomIn: "Zoom in",
  zoomOut: "Zoom out",
  zoomFit: "Fit",
  zoomText: (zoom) => `${Math.round(zoom * 100)} %`,

  scrub: "Step",
  scrubValue: (n, total, count) => `Step ${n} of ${total}, ${plural(count, "token", "tokens")} decided`,
  play: "Play the steps",
  pause: "Pause",
  overlay: "Tokens",
  overlays: { off: "Hidden", settled: "Decided so far", heat: "Heat by step", confidence: "Heat by confidence" },
  overlayHelp: { settled: "Green: decided in this step. Dark: still masked.", heat: "When each token was decided.", confidence: "The sampler's confidence in each token when it was decided." },
  overlayKnown: " White: kept from the original picture.",
  rampEnds: { heat: ["first", "last"], confidence: ["least", "most"] },

  strip: "Samples",
  draw: (n) => `Sample ${n}`,
  mean: "Mean",
  spread: "Spread",
  spreadHelp: "The mean is smoother and, on average, closer to the truth. The spread shows where the samples disagree, or where the prior expects that all of them may be wrong. Neither is evidence.",

  guided: "Guided",
  unguided: "Without guidance",
  order: { off: "As text", heat: "Order in which they were decided" },
  decidedIn: (step) => `Decided in step ${step}`,
  ofPrompt: (name, n) => `${name}, prompt ${n}`,
  candidate: (run, n) => `${run}, answer ${n}`,
  bestReward: (value) => `Best reward ${value.toFixed(3)}`,
  rewardOf: (value) => `Reward ${value.toFixed(3)}`,
  notStarted: "Generated after the guided answer, with the same seed.",

  innerTitle: (n) => `Inner loop, step ${n}`,
  chartLabel: (name, n, value, floor) => `${name} after step ${n}: ${value.toPrecision(3)}${floor ? `; noise floor: ${floor.toPrecision(3)}` : ""}`,
  floor: "noise floor",
  stepAxis: "step",

  factsTitle: "How it was made",
  facts: { operator: "Degradation", sigma: "Noise level", seed: "Seed", prompt: "Prompt", prior: "Prior", size: "Size", sampler: "Sampler", misfit: "Misfit / noise floor", reward: "Reward", seconds: "Computing time", waited: "Waiting time" },
  samplerText: (steps, inner) => `${plural(steps, "step", "steps")}${inner === undefined ? "" : `, ${inner} inner`}`,
  size: (width, height) => `${width} × ${height} pixels`,
  seconds: (s) => (s < 10 ? `${s.toFixed(1)} seconds` : duration(s)),
  download: "Download PNG",
  downloadText: "Download text",
  sidecar: "Settings as JSON",
  contact: "Contact strip",
  share: {
    button: "Share",
    title: "Share this result",
    label: "Link",
    who: (when) => `Whoever has this link sees the result, its settings and what you sent, without an API key, ${when}. The address is shown only now.`,
    active: (when) => `Shared by link ${when}.`,
    here: "This address works on this computer only.",
    end: "End all links",
    ended: "All links to this result have ended.",
  },
  until: (time) => `until ${dateTime(time)} (${duration((new Date(time) - Date.now()) / 1000)})`,
  shared: {
    title: "A shared result",
    lede: (when) => `Shared with you by link, ${when}.`,
    broken: "This address is incomplete; ask for the whole link.",
  },
  cancel: "Cancel",
  again: "Edit and run again",
  fresh: "Start another",
  code: "Use it in code",
  copy: "Copy",
  copied: "Copied",
  codeKinds: { curl: "curl", python: "Python", cli: "Command line" },

  historyTitle: "History",
  historyLede: "Submitted jobs, newest first.",
  filterTask: "Task",
  filterState: "State",
  search: "Prompt or id",
  all: "All",
  older: "Show older jobs",
  nothing: "Nothing here yet.",
  nothingMatches: "No job matches.",
  deleteJob: "Delete",
  deleteSure: "Delete permanently?",
  deleted: "Deleted.",
  openJob: (name, when) => `${name}, ${when}`,
  thumbExpired: "expired",
};

/** Schema text without the backticks that docstrings put around code. */
export const plain = (text = "") => text.replaceAll("`", "");

/** A readable label for an identifier of the schema. */
export const humanise = (name) => name.replaceAll("_", " ").replace(/^./, (c) => c.toUpperCase());

/** The name of one of a field's values. */
export const valueName = (value) => t.values[value] ?? t.priors[value] ?? humanise(String(value));

/** The texts of a task; general ones for a task without texts of its own. */
export function wordsOf(task, summary = "") {
  const name = humanise(task);
  return { name, title: name, submit: name, lede: plain(summary), notice: t.notice, ...t.otherTask, ...t.tasks[task] };
}

/** Label of a task's picture. */
export const pictureLabel = (task, name) => (name === "image" ? wordsOf(task).image : undefined) ?? t.pictures[name] ?? humanise(name);

/** Sets the text of every element that names it in ``data-t`` or ``data-label``. */
export function fillPage() {
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t[element.dataset.t];
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", t[element.dataset.label]);
}

/** A prompt, or the messages of a chat, as plain text. */
export const promptText = (prompt) => (Array.isArray(prompt) ? prompt.map(({ content }) => content).join("\n\n") : (prompt ?? ""));
