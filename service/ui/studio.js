// The page: shows a task's form, the history, or the job whose id is in the address.

import { alertUser, failure } from "./alert.js";
import * as api from "./api.js";
import { batchView, PREFIX as SEVERAL } from "./batch.js";
import { composer } from "./compose.js";
import { button, byId, el } from "./dom.js";
import { historyView } from "./history.js";
import { jobView } from "./live.js";
import { statusPanel } from "./status.js";
import { fillPage, t, wordsOf } from "./strings.js";
import { themeButton } from "./theme.js";

const HISTORY = "history";
const ORDER = ["restore", "stylize", "edit", "guide", "generate"];

fillPage();
for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault()); // a picture dropped beside its place would replace the page
themeButton(byId("theme"));
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names what is shown
  byId("view").focus();
});

async function start() {
  alertUser(null);
  let described;
  let samples;
  try {
    [described, samples] = await Promise.all([api.capabilities(), api.samples()]);
  } catch (error) {
    if (!(error instanceof api.Problem)) throw error;
    byId("view").replaceChildren(failure(t.notConnected, error), button(t.tryAgain, start, { class: "primary" }));
    return;
  }
  described.tasks.sort((a, b) => rank(a.type) - rank(b.type));
  statusPanel(byId("service-state"), byId("service"), described);
  byId("tasks").replaceChildren(...described.tasks.map(({ type }) => el("a", { href: `#${type}`, textContent: wordsOf(type).name })));
  new Router(described, samples).listen();
}

const rank = (type) => (ORDER.indexOf(type) + 1 || ORDER.length + 1);

/** Scrolls the row of links, which on a phone is wider than the screen. (`scrollIntoView` would let the Tab key begin there.) */
function centre(link) {
  const [shown, row] = [link, link.parentElement].map((element) => element.getBoundingClientRect());
  link.parentElement.scrollLeft += shown.left + shown.width / 2 - row.left - row.width / 2;
}

/** Shows the view named in the URL's hash. */
class Router {
  constructor(described, samples) {
    this.described = described;
    this.samples = samples;
    this.forms = new Map();
    this.shown = null;
  }

  listen() {
    window.addEventListener("hashchange", async () => {
      await this.show();
      document.querySelector("#view h1")?.focus({ preventScroll: true });
    });
    this.show();
  }

  async show() {
    this.shown?.close?.();
    this.shown = null;
    alertUser(null);
    const place = decodeURIComponent(location.hash.slice(1));
    const task = this.described.tasks.find(({ type }) => type === place) ?? (place ? null : this.described.tasks[0]);
    if (task) this.mount(this.form(task), task.type);
    else if (place === HISTORY) this.mount(historyView(this.described, { onProblem: alertUser }), HISTORY);
    else if (place.startsWith(SEVERAL)) this.mount(batchView(place, { onProblem: alertUser }), HISTORY);
    else await this.showJob(place);
    window.scrollTo(0, 0);
  }

  mount(view, place) {
    this.shown = view;
    byId("view").replaceChildren(view.element);
    for (const link of document.querySelectorAll(".bar a[href^='#']")) {
      if (link.hash === `#${place}`) {
        link.setAttribute("aria-current", "page");
        centre(link);
      } else link.removeAttribute("aria-current");
    }
    document.title = `${view.title} · ${t.brand}`;
    view.opened?.();
  }

  /** The task's form, as it was left. */
  form(task) {
    if (!this.forms.has(task.type)) {
      const made = composer(task, this.described, this.samples, { onJob: (job) => (location.hash = job.id), onProblem: alertUser });
      this.forms.set(task.type, made);
    }
    return this.forms.get(task.type);
  }

  async showJob(id) {
    try {
      const job = await api.getJob(id);
      if (decodeURIComponent(location.hash.slice(1)) !== id) return; // the address changed meanwhile
      const task = this.described.tasks.find(({ type }) => type === job.task) ?? { type: job.task, pictures: {}, schema: { properties: {} } };
      this.mount(jobView(job, task, this.described, { onProblem: alertUser, onAgain: (past) => this.again(past, task) }), job.task);
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      history.replaceState(null, "", location.pathname);
      await this.show();
      alertUser(error.status === 404 ? new api.Problem({ detail: t.lost(id) }) : error);
    }
  }

  /** The form of a job's task, filled in as the job was. */
  async again(job, task) {
    try {
      await this.form(task).fill(job);
      location.hash = task.type;
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      alertUser(error);
    }
  }
}

start();
