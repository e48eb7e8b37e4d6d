// The jobs of this key, newest first.

import * as api from "./api.js";
import { button, el } from "./dom.js";
import { guarded } from "./api.js";
import { operatorName } from "./result.js";
import { expired } from "./stage.js";
import { dateTime, humanise, promptText, t, wordsOf } from "./strings.js";

const POLL_MILLISECONDS = 3000;
const STATES = ["queued", "running", "succeeded", "failed", "canceled"];

const active = (job) => job.state === "queued" || job.state === "running";

/** The list with its filters; ``close()`` stops polling. */
export function historyView(described, { onProblem }) {
  const jobs = new Map();
  const cards = new Map();
  let next = null;
  let timer = 0;

  const field = (name, label, input) => {
    input.id = `filter-${name}`;
    return el("div", { class: "field" }, el("label", { htmlFor: input.id, textContent: label }), input);
  };
  const select = (name, label, options) => {
    const input = el("select", {}, el("option", { value: "", textContent: t.all }), ...options.map(([value, text]) => el("option", { value, textContent: text })));
    input.addEventListener("change", guarded(onProblem, filter));
    return [field(name, label, input), input];
  };
  const [taskField, task] = select("task", t.filterTask, described.tasks.map(({ type }) => [type, wordsOf(type).name]));
  const [stateField, state] = select("state", t.filterState, STATES.map((name) => [name, t.states[name]]));
  const search = el("input", { type: "search", autocomplete: "off", oninput: () => show() });
  const list = el("ul", { class: "jobs" });
  const empty = el("p", { class: "note", role: "status", hidden: true });
  const older = button(t.older, guarded(onProblem, () => load(next)), { hidden: true });

  const matches = (job) => {
    const wanted = search.value.trim().toLowerCase();
    const words = `${job.id} ${promptText(job.spec.prompt)} ${job.spec.operator?.type ?? ""}`.toLowerCase();
    return (!task.value || job.task === task.value) && (!state.value || job.state === state.value) && words.includes(wanted);
  };

  function show() {
    const shown = [...jobs.values()].filter(matches).sort((a, b) => b.created_at.localeCompare(a.created_at));
    for (const job of shown) if (cards.get(job.id)?.version !== job.version) cards.set(job.id, { version: job.version, element: card(job, forget, onProblem) });
    const elements = shown.map((job) => cards.get(job.id).element);
    if (elements.length !== list.children.length || elements.some((element, index) => list.children[index] !== element)) list.replaceChildren(...elements);
    empty.hidden = shown.length > 0;
    empty.textContent = jobs.size ? t.nothingMatches : t.nothing;
    older.hidden = !next;
  }

  function forget(job) {
    jobs.delete(job.id);
    show();
    search.focus();
  }

  /** Adds a page of jobs; "Show older jobs" continues after it. */
  async function load(url) {
    const page = await api.page(url);
    next = page.next;
    add(page);
  }

  function add(page) {
    for (const job of page.jobs) jobs.set(job.id, job);
    show();
    clearTimeout(timer);
    timer = setTimeout(guarded(onProblem, watch), POLL_MILLISECONDS);
  }

  /** Shows what is known at once, then asks the service for the newest jobs that match. */
  async function filter() {
    show();
    const asked = Object.entries({ task: task.value, state: state.value }).filter(([, value]) => value);
    await load(`${api.FIRST_PAGE}&${new URLSearchParams(asked)}`);
  }

  /** Looks again while something is under way; of all states, as they change. */
  async function watch() {
    if ([...jobs.values()].some(active)) add(await api.page(api.FIRST_PAGE));
  }

  const element = el(
    "div",
    { class: "history" },
    el("div", { class: "intro" }, el("h1", { tabIndex: -1, textContent: t.historyTitle }), el("p", { textContent: t.historyLede })),
    el("div", { class: "filters" }, taskField, stateField, field("words", t.search, search)),
    list,
    empty,
    older,
  );
  guarded(onProblem, () => load(api.FIRST_PAGE))();
  return { element, title: t.historyTitle, close: () => clearTimeout(timer) };
}

function card(job, forget, onProblem) {
  const words = wordsOf(job.task);
  const when = dateTime(job.created_at);
  const title = promptText(job.spec.prompt) || (job.spec.operator ? operatorName(job.spec.operator) : words.name);
  const link = el("a", { href: `#${job.id}`, class: "job-link" }, title);
  const state = el("span", { class: `badge ${job.state}`, textContent: active(job) && job.progress ? t.step(job.progress.step, job.progress.total) : t.states[job.state] });
  const about = el("p", { class: "help" }, `${words.name} · ${when}`);
  return el("li", { class: "job-card" }, thumb(job), el("div", { class: "job-words" }, link, about, el("div", { class: "job-foot" }, state, deletion(job, forget, onProblem))));
}

function thumb(job) {
  const artifact = ["result.png", "partial.jpg", "measurement.png", "style.png"].map((name) => job.artifacts.find((each) => each.name === name)).find(Boolean);
  if (expired(job)) return el("span", { class: "thumb help", textContent: t.thumbExpired });
  if (artifact) return el("img", { class: "thumb", src: artifact.url, alt: "", loading: "lazy", width: 88, height: 88 });
  return el("span", { class: "thumb text", "aria-hidden": "true", textContent: job.progress?.text?.trim() || humanise(job.task) });
}

/** Cancels an active job; deletes a finished one when pressed twice. */
function deletion(job, forget, onProblem) {
  if (active(job)) return button(t.cancel, guarded(onProblem, () => api.cancel(job)), { class: "small" });
  let sure = false;
  const made = button(t.deleteJob, guarded(onProblem, async () => {
    if (sure) {
      await api.remove(job);
      return forget(job);
    }
    sure = true;
    made.textContent = t.deleteSure;
  }), { class: "small quiet" });
  made.addEventListener("blur", () => {
    sure = false;
    made.textContent = t.deleteJob;
  });
  return made;
}
