// Several pictures at once: gathered from files, folders and ZIP files, then sent as one job each.

import * as api from "./api.js";
import { isArchive, picturesIn, pictureType } from "./archive.js";
import { button, el } from "./dom.js";
import { t } from "./strings.js";
import { isValid } from "./validity.js";

const MOST = 100;
const STORE = "studio-several";
/** Refusals after which further pictures would be refused too: too many requests, full queue, no worker. */
const FULL = [401, 403, 429, 503];

/** The dropped files; folders are searched. To be called while the event is handled. */
export function dropped({ items, files }) {
  const entries = [...items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  return entries.some((entry) => entry.isDirectory) ? Promise.all(entries.map(filesIn)).then((found) => found.flat()) : Promise.resolve([...files]);
}

async function filesIn(entry) {
  if (entry.isFile) return [await new Promise((done, failed) => entry.file(done, failed))];
  const reader = entry.createReader();
  const found = [];
  // a reader gives a part of the folder each time, and at last nothing
  for (let some = [null]; some.length && found.length <= MOST; ) {
    some = await new Promise((done, failed) => reader.readEntries(done, failed));
    found.push(...(await Promise.all(some.map(filesIn))).flat());
  }
  return found;
}

/** Whether ``files`` are more than one picture. */
export const areSeveral = (files) => files.length > 1 || files.some(isArchive);

async function gathered(files, limits) {
  const pictures = [];
  for (const file of files) {
    if (isArchive(file)) pictures.push(...(await picturesIn(file, { most: MOST, bytes: limits.max_upload_bytes })));
    else if (pictureType(file.name)) pictures.push(file);
  }
  if (pictures.length > MOST) throw new Error(t.several.tooMany(MOST));
  if (!pictures.length) throw new Error(t.several.none);
  return pictures;
}

/**
 * The panel that lists gathered pictures and sends them, all with the same settings; ``take`` fills it. What happened
 * to each is found out, unless a degradation is chosen afterwards.
 */
export function severalPanel({ task, limits, settings, onProblem }) {
  let pictures = [];
  let stopped = false;
  const title = el("h2", { tabIndex: -1 });
  const names = el("ul", { class: "help names" });
  const status = el("p", { role: "status", class: "help" });
  const start = button("", () => submitAll(), { class: "primary" });
  const leave = button(t.several.leave, () => (start.disabled ? (stopped = true) : show([])), { class: "quiet" });
  const element = el("section", { class: "diagnosis several", hidden: true, "aria-label": t.several.title }, title, el("p", { class: "help", textContent: t.several.help }), names, status, el("div", { class: "actions" }, start, leave));

  function show(found) {
    pictures = found;
    element.hidden = !found.length;
    title.textContent = t.several.count(found.length);
    start.textContent = t.several.start(found.length);
    names.replaceChildren(...found.map(({ name }) => el("li", { textContent: name })));
    status.textContent = "";
    if (!found.length) return;
    settings.write({ operator: { type: "auto" } });
    settings.usePrior();
  }

  async function take(files) {
    try {
      show(await gathered(files, limits));
      title.focus();
      onProblem(null);
    } catch (error) {
      onProblem({ message: error.message });
    }
  }

  async function submitAll() {
    const shared = ["mask", "kernel"].some(settings.needs);
    const problem = shared ? t.several.noMask : isValid(settings.element) ? null : t.fixFields;
    onProblem(problem && { message: problem });
    if (problem) return;
    start.disabled = true;
    stopped = false;
    const jobs = [];
    const refused = [];
    for (const [index, file] of pictures.entries()) {
      if (stopped) break;
      status.textContent = t.several.sending(index + 1, pictures.length);
      try {
        jobs.push({ id: (await api.submit(task.type, { image: file }, settings.read())).id, name: file.name });
      } catch (error) {
        if (!(error instanceof api.Problem)) throw error;
        refused.push({ name: file.name, reason: error.message });
        if (!FULL.includes(error.status)) continue;
        refused.push(...pictures.slice(index + 1).map(({ name }) => ({ name, reason: t.several.notSent })));
        break;
      }
    }
    start.disabled = false;
    status.textContent = "";
    if (!jobs.length) return onProblem({ message: refused[0]?.reason ?? t.several.none });
    show([]);
    const place = `jobs=${jobs.map(({ id }) => id).join(",")}`;
    sessionStorage.setItem(STORE, JSON.stringify({ place, jobs, refused }));
    location.hash = place;
  }
  return { element, take };
}

/** Names and refusals of the pictures that were sent last; without them, as on another device, jobs have no names. */
export function sent(place) {
  const kept = JSON.parse(sessionStorage.getItem(STORE) ?? "null");
  return kept?.place === place ? kept : { jobs: [], refused: [] };
}
