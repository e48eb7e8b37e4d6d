// Several jobs that were sent together: the progress of all, their results, one download.

import * as api from "./api.js";
import { packed } from "./archive.js";
import { button, el } from "./dom.js";
import { guarded } from "./api.js";
import { save } from "./result.js";
import { sent } from "./several.js";
import { expired } from "./stage.js";
import { t } from "./strings.js";

const POLL_MILLISECONDS = 2000;
const PAGE = "/v1/jobs?limit=100";
const MOST = 100;
export const PREFIX = "jobs=";

const over = (job) => !["queued", "running"].includes(job.state);
const untouched = (job) => job.error?.code === "nothing_to_restore";
const shareOf = (job) => (over(job) ? 1 : job.progress ? job.progress.step / job.progress.total : 0);
const stateOf = (job) => (untouched(job) ? t.nothingToRestore : (job.state === "succeeded" && t.several.fits[job.metrics.fit?.verdict]) || t.states[job.state]);

/** The view of the jobs named in ``place``; ``close()`` stops polling. */
export function batchView(place, { onProblem }) {
  const ids = [...new Set(place.slice(PREFIX.length).split(","))].slice(0, MOST);
  const { jobs: named, refused } = sent(place);
  const nameOf = (id) => named.find((job) => job.id === id)?.name ?? t.several.number(ids.indexOf(id) + 1);
  const jobs = new Map();
  let timer = 0;
  let closed = false;

  const heading = el("h1", { tabIndex: -1, textContent: t.several.count(ids.length) });
  const status = el("p", { role: "status" });
  const bar = el("progress", { max: 1, value: 0, "aria-label": t.several.progress });
  const download = button("", guarded(onProblem, fetchAll), { class: "primary", hidden: true });
  const cancel = button(t.several.cancelAll, guarded(onProblem, cancelAll));
  const list = el("ul", { class: "jobs" });
  const refusals = el("ul", { class: "note warn refusals", hidden: !refused.length }, ...refused.map(({ name, reason }) => el("li", { textContent: `${name}: ${reason}` })));
  const element = el("div", { class: "history batch" }, el("div", { class: "intro" }, heading, status, bar), refusals, el("div", { class: "actions" }, download, cancel), list);

  const done = () => [...jobs.values()].filter((job) => job.state === "succeeded" && !expired(job));

  function show() {
    const known = [...jobs.values()];
    const finished = known.filter(over).length;
    bar.value = known.reduce((sum, job) => sum + shareOf(job), 0) / ids.length;
    status.textContent = t.several.status(finished, ids.length, known.filter(untouched).length, known.filter((job) => job.state === "failed" && !untouched(job)).length);
    bar.hidden = cancel.hidden = finished === ids.length;
    download.hidden = !done().length;
    download.textContent = t.several.download(done().length);
    list.replaceChildren(...ids.filter((id) => jobs.has(id)).map((id) => card(jobs.get(id), nameOf(id))));
  }

  /** One request finds the newest jobs; older ones are asked for one by one, until they are over. */
  async function look() {
    const { jobs: newest } = await api.page(PAGE);
    for (const job of newest) if (ids.includes(job.id)) jobs.set(job.id, job);
    const missing = ids.filter((id) => !newest.some((job) => job.id === id) && !(jobs.has(id) && over(jobs.get(id))));
    for (const id of missing) jobs.set(id, await api.getJob(id));
    if (closed) return;
    show();
    if (![...jobs.values()].every(over)) timer = setTimeout(guarded(onProblem, look), POLL_MILLISECONDS);
  }

  async function cancelAll() {
    cancel.disabled = true;
    try {
      for (const job of [...jobs.values()].filter((each) => !over(each))) jobs.set(job.id, await api.cancel(job));
    } finally {
      cancel.disabled = false;
    }
    show();
  }

  async function fetchAll() {
    download.disabled = true;
    try {
      const files = [];
      for (const [index, job] of done().entries()) {
        const stem = nameOf(job.id).replace(/\.[^.]*$/, "");
        for (const [artifact, suffix] of [["result.png", "png"], ["result.json", "json"]]) {
          const { url } = job.artifacts.find(({ name }) => name === artifact);
          const taken = files.some(({ name }) => name === `${stem}.restored.${suffix}`);
          files.push({ name: `${stem}${taken ? `-${index + 1}` : ""}.restored.${suffix}`, blob: await api.blob(url) });
        }
      }
      save(await packed(files), "restored.zip");
    } finally {
      download.disabled = false;
    }
  }

  guarded(onProblem, look)();
  return {
    element,
    title: t.several.title,
    close() {
      closed = true;
      clearTimeout(timer);
    },
  };
}

function card(job, name) {
  const artifact = ["result.png", "partial.jpg", "measurement.png"].map((wanted) => job.artifacts.find((each) => each.name === wanted)).find(Boolean);
  const thumb = artifact && !expired(job) ? el("img", { class: "thumb", src: artifact.url, alt: "", loading: "lazy", width: 88, height: 88 }) : el("span", { class: "thumb help", textContent: expired(job) ? t.thumbExpired : "" });
  const badge = el("span", { class: `badge ${untouched(job) ? "" : job.state}`, textContent: job.progress && !over(job) ? t.step(job.progress.step, job.progress.total) : stateOf(job) });
  const words = job.metrics.found?.operator ? job.metrics.found.text : (job.error?.detail ?? "");
  return el("li", { class: "job-card" }, thumb, el("div", { class: "job-words" }, el("a", { href: `#${job.id}`, class: "job-link", textContent: name }), el("p", { class: "help", textContent: words }), el("div", { class: "job-foot" }, badge)));
}
