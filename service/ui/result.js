// A finished job: its pictures, its downloads, and how it was made.

import { byId, el } from "./dom.js";
import { humanise, t } from "./strings.js";

/** Shows the pictures of a job that succeeded in ``viewer``, and everything about them. */
export function showResult(job, viewer) {
  const artifact = (name) => job.artifacts.find((candidate) => candidate.name === name);
  const best = artifact("result.png");
  const pictures = job.artifacts.filter(({ name }) => name.startsWith("sample-")); // of several, each one; the best is among them
  const choose = (picture) => {
    viewer.result(picture.url);
    link("download", picture, job);
    for (const button of byId("draws").querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.value === picture.name));
  };
  byId("draws").replaceChildren(...pictures.map((picture, index) => draw(picture, index, choose)));
  byId("draws").hidden = pictures.length < 2;
  choose(pictures.find(({ sha256 }) => sha256 === best.sha256) ?? best);
  link("sidecar", artifact("result.json"), job);
  showFacts(job);
  if (job.expires_at && new Date(job.expires_at) < new Date()) byId("job-text").textContent = t.expired;
}

function link(id, artifact, job) {
  byId(id).href = artifact.url;
  byId(id).download = `${job.id}-${artifact.name}`;
}

function draw(picture, index, choose) {
  const image = el("img", { src: picture.url, alt: "", width: 64, height: 64 });
  const button = el("button", { type: "button", class: "sample", value: picture.name, "aria-label": t.draw(index + 1), "aria-pressed": "false" }, image);
  button.addEventListener("click", () => choose(picture));
  return el("li", {}, button);
}

function showFacts(job) {
  const { spec, metrics } = job;
  const facts = {
    operator: operatorText(spec.operator),
    sigma: number(metrics.sigma ?? spec.sigma),
    seed: spec.seed,
    prompt: spec.prompt,
    prior: spec.prior,
    size: t.size(...job.output_size),
    misfit: metrics.misfit && `${metrics.misfit.map(number).join(", ")} / ${number(metrics.noise_floor)}`,
    seconds: metrics.sampling_seconds && t.seconds(metrics.sampling_seconds),
  };
  const rows = Object.entries(facts).filter(([, value]) => value !== undefined && value !== "" && value !== null);
  byId("facts").replaceChildren(...rows.map(([name, value]) => el("div", {}, el("dt", { textContent: t.facts[name] }), el("dd", { textContent: value }))));
  byId("notes").replaceChildren(...(metrics.notes ?? []).map((note) => el("li", { textContent: note })));
  byId("facts-box").hidden = false;
}

const number = (value) => (typeof value === "number" ? Number(value.toPrecision(3)).toString() : value);

/** An operator and its settings in one line. */
function operatorText({ type, ...settings }) {
  const stages = Object.values(settings).find(Array.isArray);
  if (stages) return stages.map(operatorText).join(t.thenWord);
  const values = Object.entries(settings).map(([name, value]) => `${humanise(name).toLowerCase()} ${value}`);
  return [t.names[type] ?? humanise(type), ...values].join(", ");
}
