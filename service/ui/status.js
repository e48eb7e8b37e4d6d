// Status of the service: workers, devices, queue, and the owner of the key.

import * as api from "./api.js";
import { button, el } from "./dom.js";
import { dropAll } from "./drafts.js";
import { forgetKey } from "./key.js";
import { t, valueName } from "./strings.js";

const RETRY_MILLISECONDS = 2000;

/** Shows the status on ``opener``, which opens ``panel`` with the details; they are fetched each time. */
export function statusPanel(opener, panel, described) {
  const show = ({ workers, queue, principal }) => {
    opener.replaceChildren(el("span", { textContent: t.workers(processes(workers).length) }));
    opener.classList.toggle("ok", workers.length > 0);
    const rows = kinds(workers).map(({ device, text, count }) => el("div", {}, el("dt", { textContent: t.device(device, count) }), el("dd", { textContent: text })));
    const load = el("div", {}, el("dt", { textContent: t.queueTitle }), el("dd", { textContent: t.queueText(queue.queued, queue.running) }));
    const forget = button(t.key.forget, async () => {
      if (await forgetKey()) {
        await dropAll();
        location.reload();
      }
      else panel.append(el("p", { class: "field-error", role: "alert", textContent: t.unreachable }));
    }, { class: "small" });
    const key = principal ? el("div", { class: "actions" }, el("p", { class: "help", textContent: t.key.whose(principal) }), forget) : null;
    panel.replaceChildren(el("h2", { textContent: t.statusTitle }), el("dl", {}, ...rows, load), ...(key ? [key] : []));
  };
  show(described);
  let asking = false;
  /** Asks until the service answers. */
  const ask = async () => {
    if (asking) return;
    asking = true;
    while (asking) {
      try {
        show(await api.capabilities());
        asking = false;
      } catch (error) {
        if (!(error instanceof api.Problem)) throw error;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MILLISECONDS));
      }
    }
  };
  window.addEventListener("offline", ask);
  document.addEventListener("connection", () => {
    if (api.connected()) return;
    opener.replaceChildren(el("span", { textContent: t.noConnection }));
    opener.classList.remove("ok");
    ask();
  });
  panel.addEventListener("toggle", async (event) => {
    if (event.newState !== "open") return;
    try {
      show(await api.capabilities());
    } catch (error) {
      if (!(error instanceof api.Problem)) throw error;
      panel.replaceChildren(el("p", { class: "help", textContent: error.message }));
    }
  });
}

/** Workers' processes: each is listed once for every prior it holds, under its own name and the prior's. */
const processes = (workers) => [...Map.groupBy(workers, ({ name, prior }) => name.slice(0, -prior.length - 1)).values()];

/** Processes alike in device and priors, as [label, what they hold, how many]. */
function kinds(workers) {
  const labelled = processes(workers).map((held) => {
    const pixels = Math.max(...held.map((worker) => worker.max_pixels));
    return { device: t.devices[held[0].device] ?? held[0].device, text: t.holds(held.map(({ prior }) => valueName(prior)).sort(), pixels) };
  });
  return [...Map.groupBy(labelled, ({ device, text }) => `${device} ${text}`).values()].map((alike) => ({ ...alike[0], count: alike.length }));
}
