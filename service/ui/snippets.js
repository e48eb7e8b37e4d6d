// A job as code: curl, Python, command line.

import { inputName } from "./api.js";
import { button, el } from "./dom.js";
import { recommendedFor, usualType } from "./recommended.js";
import { t } from "./strings.js";

const KINDS = { curl, python, cli };

/** Operator fields whose plain name another option of the command line already has. */
const RENAMED = { mask: "mask-source", sigma: "blur-sigma", seed: "operator-seed" };

let serial = 0;

/** A folded box with the three snippets. */
export function codeBox(job, task, described) {
  const name = `code${++serial}`;
  const request = { task: job.task, spec: asked(job, task, described), files: filesOf(job, task), origin: location.origin, makesText: !job.output_size, withKey: Boolean(described.principal) };
  const code = el("code");
  const radios = Object.keys(KINDS).map((kind) => el("input", { type: "radio", name, value: kind, class: "visually-hidden", checked: kind === "curl" }));
  const chips = radios.map((radio) => el("label", { class: "chip" }, radio, el("span", { textContent: t.codeKinds[radio.value] })));
  const show = (kind) => (code.textContent = KINDS[kind](request));
  for (const radio of radios) radio.addEventListener("change", () => show(radio.value));
  const status = el("span", { class: "help", role: "status" });
  const copy = button(t.copy, async () => {
    await navigator.clipboard.writeText(code.textContent);
    status.textContent = t.copied;
  }, { class: "small" });
  show("curl");
  const pre = el("pre", { tabIndex: 0, "aria-label": t.code }, code);
  return el("details", { class: "folded code" }, el("summary", { textContent: t.code }), el("div", { class: "chips", role: "group", "aria-label": t.code }, ...chips), pre, el("div", { class: "chips" }, copy, status));
}

/** The job's spec without default values. */
function asked(job, task, described) {
  const prior = described.priors.find(({ name }) => name === job.spec.prior);
  const { properties = {}, $defs = {} } = task.schema;
  return Object.fromEntries(
    Object.entries(job.spec)
      .map(([name, value]) => {
        const usual = properties[name]?.["x-default-type"];
        const kinds = properties[name]?.$ref || usual ? [properties[name], ...(properties[name].oneOf ?? [])].map(({ $ref }) => $defs[$ref?.split("/").at(-1)]?.properties).filter(Boolean) : [];
        const inner = kinds.find((kind) => !usual || kind.type.default === value.type);
        if (!inner) return [name, value];
        const usualValues = recommendedFor(prior, name, inner.type?.default, job.spec.preset);
        const unusual = Object.entries(value).filter(([field, set]) => field !== "type" && set !== null && set !== (usualValues[field] ?? inner[field]?.default));
        const named = usual && (unusual.length || value.type !== usualType(properties[name], prior, name, job.task)) ? { type: value.type } : {};
        return [name, { ...named, ...Object.fromEntries(unusual) }];
      })
      .filter(([name, value]) => name !== "type" && value !== null && value !== properties[name]?.default && !(isEmpty(value))),
  );
}

const isEmpty = (value) => typeof value === "object" && Object.keys(value).length === 0;

/** The job's pictures by name, as example file names. */
function filesOf(job, task) {
  const names = Object.keys(task.pictures).filter((name) => job.artifacts.some((artifact) => artifact.name === inputName(name)));
  return Object.fromEntries(names.map((name) => [name, `${name}.png`]));
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl({ task, spec, files, origin, withKey }) {
  const lines = [`curl -sS ${origin}/v1/${task} -H 'Prefer: wait=60'`];
  if (withKey) lines.push('-H "Authorization: Bearer $APS_API_KEY"'); // the client and the command line read the variable themselves
  const names = Object.entries(files);
  for (const [name, file] of names) lines.push(`-F ${name}=@${file}`);
  lines.push(names.length ? `-F ${quoted(`spec=${JSON.stringify(spec)}`)}` : `--json ${quoted(JSON.stringify(spec))}`);
  return lines.join(" \\\n  ");
}

function python({ task, spec, files, origin, makesText }) {
  const settings = Object.entries(spec).map(([name, value]) => `        ${name}=${literal(value)},\n`);
  const pictures = isEmpty(files) ? "" : `        ${literal(files)},\n`;
  const use = makesText ? "print(result.text)" : 'result.save("result.png")';
  return `import aps_client\n\nwith aps_client.Client(${literal(origin)}) as client:\n    result = client.run(\n        ${literal(task)},\n${pictures}${settings.join("")}    )\n${use}\n`;
}

/** A JSON value in Python's spelling. */
function literal(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}

function cli({ task, spec, files, origin }) {
  const { prompt, operator, sampler, loss, ...rest } = spec;
  const [first, ...others] = Object.entries(files);
  const words = [`aps ${task}`, first?.[1], prompt && first && !operator ? quoted(prompt) : undefined, !first && prompt ? quoted(prompt) : undefined];
  const flag = (name, value) => (value === true ? `--${dashed(name)}` : `--${dashed(name)} ${shell(value)}`);
  const flags = others.map(([name, file]) => `--${name} ${file}`);
  if (operator) {
    const { type, ...fields } = operator;
    flags.push(`--operator ${type}`, ...Object.entries(fields).map(([name, value]) => flag(RENAMED[name] ?? name, value)));
    if (prompt) flags.push(flag("prompt", prompt));
  }
  const { type: samplerName, ...samplerFields } = sampler ?? {};
  const { type: lossName, ...lossFields } = loss ?? {};
  const chosen = { ...(samplerName && { sampler: samplerName }), ...(lossName && { loss: lossName }) };
  for (const [name, value] of Object.entries({ ...rest, ...chosen, ...samplerFields, ...lossFields })) flags.push(flag(name, value));
  return [words.filter(Boolean).join(" "), ...flags, `--server ${origin}`].join(" \\\n  ");
}

const dashed = (name) => name.replaceAll("_", "-");
const shell = (value) => (typeof value === "number" ? String(value) : quoted(typeof value === "string" ? value : JSON.stringify(value)));
