// One job: its state, its steps as they arrive, and its result.

import * as api from "./api.js";
import { guarded } from "./api.js";
import { blankChart, chart } from "./chart.js";
import { button, el } from "./dom.js";
import { progressPanel } from "./progress.js";
import { resultView } from "./result.js";
import { stageFor } from "./stage.js";
import { t, wordsOf } from "./strings.js";
import { timeline } from "./timeline.js";

const POLL_MILLISECONDS = 2000;

const over = (job) => !["queued", "running"].includes(job.state);

/** Shows a job and follows it to its end; ``close()`` stops following it. Without ``onAgain``, a shared result, which is read-only. */
export function jobView(first, task, described, { onProblem, onAgain }) {
  const words = wordsOf(first.task, task.summary);
  const stage = stageFor(first, task, words);
  const status = progressPanel(words);
  const curves = curvePanel(words, first.output_size === null);
  const points = new Map();
  const track = timeline({ onStep: showStep, countOf: (step) => points.get(step)?.[first.output_size ? "anchors" : "decided"].length ?? 0 });
  const result = resultView(first, task, described, words, stage, { onAgain, onProblem, events: () => [...points.values()].sort((a, b) => a.step - b.step) });
  const cancelButton = button(t.cancel, guarded(onProblem, cancel));
  let job = first;
  let timer = 0;
  let ended = false;
  let stream = null;
  let refining = false;

  const heading = el("h1", { tabIndex: -1 });
  const text = el("p", { role: "status" });
  let told = ""; // what is said while the service answers
  const say = (words = told) => {
    told = words;
    const lost = !ended && !api.connected();
    text.textContent = lost ? t.reconnecting : told;
    text.classList.toggle("lost", lost);
    text.classList.toggle("warn", job.state === "failed" && !untouched(job));
    status.hold(lost);
  };
  const onConnection = () => say();
  document.addEventListener("connection", onConnection);
  const element = el(
    "div",
    { class: over(first) ? "job" : "job followed" },
    el("div", { class: "intro" }, heading, text, el("div", { class: "running-line" }, status.element, cancelButton)),
    el(
      "div",
      { class: first.output_size ? "columns job-columns" : "columns job-columns text-job" },
      el("div", { class: "stage-column" }, stage.element, track.element, stage.tools, result.warning, result.told, result.strip, result.code),
      el("div", { class: "panel" }, el("p", { class: "note", textContent: words.notice }), result.actions, result.share, curves.element, result.facts),
    ),
  );

  if (first.output_size) element.style.setProperty("--fit", first.output_size[0] / first.output_size[1]);

  function update(changed) {
    if (ended) return; // a late answer to an earlier question
    job = changed;
    heading.textContent = titleOf(job, words);
    element.classList.toggle("over", over(job));
    status.show(job);
    element.classList.toggle("untouched", untouched(job));
    ended = over(job);
    say(!points.size || ended ? stateText(job) : told);
    cancelButton.hidden = over(job);
    cancelButton.disabled = job.cancel_requested;
    if (!ended) return;
    clearTimeout(timer);
    result.show(job);
  }

  /** Shows at once that the job is being canceled; the service confirms it a moment later. */
  async function cancel() {
    update({ ...job, cancel_requested: true, phase: "canceling" });
    try {
      update(await api.cancel(job));
    } catch (error) {
      cancelButton.disabled = false;
      throw error;
    }
  }

  function poll() {
    clearTimeout(timer);
    // events do not contain the queue position, and a refused stream sends none
    if (!ended && (job.state === "queued" || stream === null)) timer = setTimeout(refresh, POLL_MILLISECONDS);
  }

  async function refresh() {
    try {
      update(await api.getJob(job.id));
      if (stream === null) follow();
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      if (error.status === 404 || error.status === 401) return onProblem(error);
      if (api.connected()) say(error.message);
    }
    poll();
  }

  function showStep(step) {
    const event = points.get(step);
    if (!event) return;
    curves.show(points, step);
    settle();
    if (job.state === "succeeded" && step === event.total) return result.choose();
    stage.show(event);
  }

  /** What is below the curves shows once their height is known: nothing moves. */
  function settle() {
    if (!points.size) curves.element.hidden = true;
    result.facts.classList.remove("later");
  }

  function onProgress(event) {
    points.set(event.step, event);
    stage.add(event);
    track.reach(event.step, event.total, job.state === "succeeded" && event.step < event.total);
    if (over(job)) return; // history of a finished job
    status.step(event);
    say(stage.settled());
  }

  function onInner(event) {
    if (over(job)) return;
    status.inner(event);
    if (event.current_preview_url && track.following()) refine(event);
  }

  /** Shows the estimate within a step, unless the step has ended meanwhile. */
  async function refine({ step, current_preview_url: url }) {
    if (refining) return;
    refining = true;
    try {
      const jpeg = await api.currentPreview(url);
      if (jpeg && !ended && !points.has(step) && track.following()) stage.refine(jpeg, step);
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error; // the next one comes in a second; the stream tells of lost connections
    } finally {
      refining = false;
    }
  }

  async function replay() {
    try {
      for (const event of await api.sharedSteps(first)) onProgress(event);
    } finally {
      settle();
    }
  }

  function follow() {
    if (first.urls.steps) return guarded(onProblem, replay)();
    const onClosed = () => {
      stream = null;
      if (ended) settle();
      poll();
    };
    const onDone = (done) => {
      update(done);
      settle();
    };
    stream = api.follow(job, { onStatus: refresh, onProgress, onInner, onDone, onClosed });
  }

  update(job);
  follow(); // also for a finished job: its event history contains the curve
  poll();
  return {
    element,
    get title() {
      return titleOf(job, words);
    },
    close() {
      ended = true;
      document.removeEventListener("connection", onConnection);
      clearTimeout(timer);
      status.stop();
      track.stop();
      stream?.stop();
    },
  };
}

/** Whether the job found nothing to undo. */
const untouched = (job) => job.error?.code === "nothing_to_restore";

/** The heading; a result that does not agree with the picture is not called restored. */
function titleOf(job, words) {
  if (job.state === "succeeded") return t.fits[job.metrics.fit?.verdict] ?? words.succeeded;
  if (untouched(job)) return t.nothingToRestore;
  return job.state === "running" ? words.running : t.states[job.state];
}

function stateText(job) {
  if (job.state === "succeeded") return job.metrics.fit?.text ?? (job.output_size ? "" : t.doneText);
  if (job.state === "canceled") return t.canceledText;
  if (job.state === "failed") return untouched(job) ? t.untouched(job.error.detail) : (job.error?.detail ?? "");
  const estimate = job.estimated_seconds === null ? "" : t.estimate(job.estimated_seconds);
  if (job.state === "running") return job.resumed_from_step === null ? estimate : t.resumed(job.resumed_from_step);
  const ahead = job.queue_position === null ? "" : job.queue_position ? t.ahead(job.queue_position) : t.next;
  return `${ahead} ${estimate}`;
}

/** The curve over the steps, and the inner loop of the step that is shown; both have their place before values are known. */
function curvePanel(words, isText) {
  const main = el("div", {}, blankChart());
  const inner = el("div", {}, blankChart());
  const innerTitle = el("figcaption", { textContent: t.innerTitle(1) });
  const innerBox = el("figure", { class: "chart inner" }, innerTitle, inner);
  const title = el("figcaption", { textContent: words.curve });
  const box = el("figure", { class: "chart" }, title, main, words.curveHelp && el("p", { class: "help", textContent: words.curveHelp }));
  const element = el("div", { class: "curves", hidden: !words.curve }, box, innerBox);
  const valueOf = (event) => (isText ? event.reward_curve[0] : event.misfit) ?? NaN;
  const loopOf = (event) => (isText ? event.reward_curve : event.loss_curve) ?? [];
  const show = (points, step) => {
    const events = Array.from({ length: Math.max(...points.keys()) }, (_, index) => points.get(index + 1));
    const guided = isText ? events.filter((event) => event?.guided) : events;
    const values = guided.map((event) => (event ? valueOf(event) : NaN));
    element.hidden = !values.some((value) => Number.isFinite(value) && value !== 0);
    if (element.hidden) return;
    const { total, noise_floor: floor = 0 } = points.get(step);
    const steps = isText && events.some((event) => event && !event.guided) ? guided.length : total;
    main.replaceChildren(chart({ name: words.curve, values, total: steps, floor, marked: step }));
    const loop = loopOf(points.get(step));
    innerBox.hidden = loop.length < 2;
    if (innerBox.hidden) return;
    innerTitle.textContent = t.innerTitle(step);
    inner.replaceChildren(chart({ name: t.innerTitle(step), values: loop, total: loop.length, axis: "" }));
  };
  return { element, show };
}
