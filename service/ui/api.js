// The service's HTTP interface. Every failure is a Problem (RFC 9457) with words for people.

import { t } from "./strings.js";

export class Problem extends Error {
  constructor({ title = "", detail = "", status = 0, errors = [] }) {
    super(detail || title);
    Object.assign(this, { title, status, errors });
  }
}

async function request(url, options = {}) {
  let answer;
  try {
    answer = await fetch(url, options);
  } catch (error) {
    if (error instanceof TypeError) throw new Problem({ detail: t.unreachable });
    throw error;
  }
  const json = /json/.test(answer.headers.get("content-type") ?? "");
  if (!answer.ok) throw new Problem(json ? await answer.json() : { detail: t.unreadable(answer.status), status: answer.status });
  return answer.json();
}

export const capabilities = () => request("/v1/capabilities");
export const samples = () => request("samples/index.json");
export const getJob = (id) => request(`/v1/jobs/${encodeURIComponent(id)}`);
export const cancel = (job) => request(job.urls.cancel, { method: "POST" });

/** Submits a restoration; ``mask`` may be null. */
export function restore(image, mask, spec) {
  const body = new FormData();
  body.append("image", image);
  if (mask) body.append("mask", mask);
  body.append("spec", JSON.stringify(spec));
  return request("/v1/restore", { method: "POST", body });
}

/**
 * Follows a job's events from the first one; reconnects by itself until ``done`` or ``stop()``.
 * ``onClosed`` is called when the server refuses the stream for good.
 */
export function follow(job, { onStatus, onProgress, onDone, onClosed }) {
  const source = new EventSource(job.urls.events);
  source.addEventListener("status", (event) => onStatus(JSON.parse(event.data)));
  source.addEventListener("progress", (event) => onProgress(JSON.parse(event.data)));
  source.addEventListener("done", (event) => {
    source.close();
    onDone(JSON.parse(event.data).job);
  });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) onClosed();
  });
  return { stop: () => source.close() };
}
