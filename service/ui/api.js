// The service's HTTP interface. Every failure is a Problem (RFC 9457) with a readable message.

import { askForKey } from "./key.js";
import { t } from "./strings.js";

/** Results that were shared by link; an API key does not open them. */
const SHARED = "/v1/shared/";

export class Problem extends Error {
  constructor({ title = "", detail = "", status = 0, errors = [] }) {
    super(detail || title);
    Object.assign(this, { title, status, errors });
  }
}

/** Runs ``action``; a problem is shown rather than thrown. */
export function guarded(onProblem, action) {
  return async () => {
    try {
      await action();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      onProblem(error);
    }
  };
}

let answering = true;
/** Whether the service answered last. The document gets a "connection" event when that changes. */
export const connected = () => answering;

function tell(answered) {
  if (answered === answering) return;
  answering = answered;
  document.dispatchEvent(new Event("connection"));
}

async function request(url, options = {}) {
  let answer;
  try {
    answer = await fetch(url, options);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    tell(false);
    throw new Problem({ detail: t.unreachable });
  }
  if (answer.status === 401 && !url.startsWith(SHARED) && (await askForKey())) return request(url, options);
  const json = /json/.test(answer.headers.get("content-type") ?? "");
  tell(json || answer.status <= 500); // otherwise a proxy answers in the service's place
  if (!answer.ok) throw new Problem(json ? await answer.json() : { detail: t.unreadable(answer.status), status: answer.status });
  return answer;
}

const json = async (url, options) => (await request(url, options)).json();

export const capabilities = () => json("/v1/capabilities");
/** Finds out whether the service answers. */
export async function check() {
  try {
    await capabilities();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
  }
}
export const samples = () => json("samples/index.json");
export const getJob = (id) => json(`/v1/jobs/${encodeURIComponent(id)}`);
export const FIRST_PAGE = "/v1/jobs?limit=24";
export const page = (url) => json(url);
export const cancel = (job) => json(job.urls.cancel, { method: "POST" });
export const remove = (job) => request(job.urls.self, { method: "DELETE" });
/** Makes a link to a job's result: { url, expires_at }. */
export const share = (job) => json(job.urls.share, { method: "POST" });
/** Ends all links to a job's result. */
export const unshare = (job) => request(job.urls.share, { method: "DELETE" });
/** The estimate within the step that is being computed; null if there is none at present. */
export async function currentPreview(url) {
  const answer = await request(url);
  return answer.status === 200 ? answer.blob() : null;
}
export const text = async (url) => (await request(url)).text();
export const blob = async (url) => (await request(url)).blob();

/** What seems to have happened to a picture. */
export const diagnose = (file) => json("/v1/diagnose", { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file });
/** Size and duration of a job that is not submitted; ``asked`` is { spec, image_size }. */
export const estimate = (task, asked) => json(`/v1/${task}/estimate`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked) });

/** Submits a job; ``pictures`` are files by the names the task declares. */
export function submit(task, pictures, spec) {
  if (!Object.keys(pictures).length) {
    return json(`/v1/${task}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(spec) });
  }
  const body = new FormData();
  for (const [name, file] of Object.entries(pictures)) body.append(name, file);
  body.append("spec", JSON.stringify(spec));
  return json(`/v1/${task}`, { method: "POST", body });
}

/**
 * Follows a job's events from the first one; the browser reconnects by itself, from the last event it saw.
 * ``onClosed`` is called when the server refuses the stream permanently.
 */
export function follow(job, { onStatus, onProgress, onInner, onDone, onClosed }) {
  const source = new EventSource(job.urls.events);
  source.addEventListener("status", (event) => onStatus(JSON.parse(event.data)));
  source.addEventListener("progress", (event) => onProgress(JSON.parse(event.data)));
  source.addEventListener("inner", (event) => onInner(JSON.parse(event.data)));
  source.addEventListener("done", (event) => {
    source.close();
    onDone(JSON.parse(event.data).job);
  });
  source.addEventListener("error", () => (source.readyState === EventSource.CLOSED ? onClosed() : check()));
  return { stop: () => source.close() };
}

/** The result that a link leads to. Its token becomes a cookie, with which the browser loads the pictures. */
export async function openShared(id, token) {
  await request(`${SHARED}${id}/session`, { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  return json(`${SHARED}${id}`);
}
/** The events of a shared result's steps. */
export const sharedSteps = (job) => json(job.urls.steps);

/** The name under which a job keeps the picture sent as ``name``. */
export const inputName = (name) => (name === "image" ? "measurement.png" : `${name}.png`);
