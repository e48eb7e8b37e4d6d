// One job while it runs: where it stands, its latest preview, its misfit.

import * as api from "./api.js";
import { chart } from "./chart.js";
import { comparison } from "./compare.js";
import { byId } from "./dom.js";
import { showResult } from "./result.js";
import { t } from "./strings.js";

const POLL_MILLISECONDS = 2000;

const over = (job) => !["queued", "running"].includes(job.state);

/** Shows a job and follows it to its end; ``close()`` lets go of it. */
export function jobView(first, { onProblem, onAgain }) {
  const viewer = comparison(first);
  const points = new Map();
  let job = first;
  let timer = 0;
  let ended = false;
  let stream = null;

  const update = (changed) => {
    if (ended) return; // a late answer to an earlier question
    job = changed;
    showState(job);
    if (!over(job)) return;
    ended = true;
    clearTimeout(timer);
    if (job.state === "succeeded") showResult(job, viewer);
    else if (job.error) onProblem({ title: job.error.title, message: job.error.detail });
  };

  const poll = () => {
    clearTimeout(timer);
    // events do not tell how many jobs come first; and a refused stream tells nothing
    if (!ended && (job.state === "queued" || stream === null)) timer = setTimeout(refresh, POLL_MILLISECONDS);
  };

  const refresh = guarded(onProblem, async () => {
    update(await api.getJob(job.id));
    poll();
  });

  const onProgress = (event) => {
    points.set(event.step, event);
    const known = [...points.values()].sort((a, b) => a.step - b.step);
    showChart(known.filter((point) => Number.isFinite(point.misfit) && Number.isFinite(point.noise_floor)));
    if (over(job)) return; // history of a finished job
    viewer.estimate(event.preview_url);
    showProgress(event);
    const settled = known.reduce((sum, point) => sum + point.anchors.length, 0) / (event.grid[0] * event.grid[1]);
    byId("job-text").textContent = t.anchored(Math.min(1, settled));
  };

  byId("job").hidden = false;
  byId("chart-box").hidden = byId("facts-box").hidden = true;
  byId("cancel").disabled = false;
  byId("cancel").onclick = guarded(onProblem, async () => update(await api.cancel(job)));
  byId("again").onclick = onAgain;
  update(job);
  const onClosed = () => {
    stream = null;
    refresh();
  };
  // a finished job is followed, too: its history holds the curve
  stream = api.follow(job, { onStatus: refresh, onProgress, onDone: update, onClosed });
  poll();
  return {
    close() {
      ended = true;
      clearTimeout(timer);
      stream?.stop();
    },
  };
}

/** Runs ``action``; a problem is shown rather than thrown. */
function guarded(onProblem, action) {
  return async () => {
    try {
      await action();
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      onProblem(error);
    }
  };
}

function showState(job) {
  byId("job-title").textContent = t.states[job.state];
  byId("job-text").textContent = stateText(job);
  byId("running").hidden = over(job);
  byId("cancel").hidden = over(job);
  byId("cancel").disabled = job.cancel_requested;
  byId("again").hidden = !over(job);
  byId("download").hidden = byId("sidecar").hidden = job.state !== "succeeded";
  if (job.progress) return showProgress(job.progress);
  byId("steps").removeAttribute("value"); // not started: how long that takes is not known
  byId("steps-text").textContent = t.phases[job.phase] ?? "";
  byId("time-text").textContent = "";
}

function stateText(job) {
  if (job.state === "succeeded") return t.done;
  if (job.state === "canceled") return t.canceledText;
  if (job.state === "failed") return "";
  const estimate = job.estimated_seconds === null ? "" : t.estimate(job.estimated_seconds);
  if (job.state === "running") return job.resumed_from_step === null ? estimate : t.resumed(job.resumed_from_step);
  const ahead = job.queue_position === null ? "" : job.queue_position ? t.ahead(job.queue_position) : t.next;
  return `${ahead} ${estimate}`;
}

function showProgress({ step, total, seconds }) {
  byId("steps").max = total;
  byId("steps").value = step;
  byId("steps-text").textContent = t.step(step, total);
  byId("time-text").textContent = step < total ? t.remaining(seconds * (total - step)) : "";
}

function showChart(points) {
  if (!points.length) return;
  byId("chart-box").hidden = false;
  byId("chart").replaceChildren(chart(points));
}
