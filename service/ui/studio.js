// The page: shows the form, or the job whose id is in the address.

import * as api from "./api.js";
import { compose } from "./compose.js";
import { byId, el } from "./dom.js";
import { jobView } from "./live.js";
import { fillPage, t } from "./strings.js";

fillPage();

/** Shows a problem above the page's content, or takes it away. */
function alertUser(problem) {
  const box = byId("alert");
  const title = problem?.title ? el("strong", { textContent: problem.title }) : null;
  box.replaceChildren(...(problem ? [title, el("span", { textContent: problem.message })].filter(Boolean) : []));
  box.hidden = !problem;
}

async function start() {
  alertUser(null);
  let form;
  let described;
  try {
    described = await api.capabilities();
    form = compose(described, await api.samples(), { onJob: (job) => (location.hash = job.id), onProblem: alertUser });
  } catch (error) {
    if (!(error instanceof api.Problem)) throw error;
    alertUser(error);
    const retry = el("button", { type: "button", class: "small", textContent: t.tryAgain });
    retry.addEventListener("click", start);
    byId("alert").append(retry);
    return;
  }
  showWorkers(described.workers);
  let shown = null;
  const route = async () => {
    shown?.close();
    shown = null;
    alertUser(null);
    const id = decodeURIComponent(location.hash.slice(1));
    byId("compose").hidden = Boolean(id);
    byId("job").hidden = true;
    if (!id) return;
    try {
      const job = await api.getJob(id);
      if (decodeURIComponent(location.hash.slice(1)) !== id) return; // the address changed meanwhile
      shown = jobView(job, { onProblem: alertUser, onAgain: () => (location.hash = "") });
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      history.replaceState(null, "", location.pathname);
      byId("compose").hidden = false;
      alertUser(error.status === 404 ? new api.Problem({ detail: t.lost(id) }) : error);
    }
    window.scrollTo(0, 0);
  };
  window.addEventListener("hashchange", async () => {
    await route();
    (location.hash ? byId("job-title") : byId(form.focusId)).focus({ preventScroll: true });
  });
  await route();
}

function showWorkers(workers) {
  const state = byId("service-state");
  state.textContent = t.workers(workers.length);
  state.classList.toggle("ok", workers.length > 0);
}

start();
