// The pictures of a task: a slot for each, and the mask that is painted over one of them.

import * as api from "./api.js";
import { el } from "./dom.js";
import { maskEditor } from "./mask.js";
import { pictureSlot } from "./slot.js";
import { pictureLabel, t, wordsOf } from "./strings.js";

/** A slot for each of the task's pictures; its mask is painted over the picture. */
export function pictureInputs(task, limits, settings, onProblem, onSeveral) {
  const names = Object.keys(task.pictures).sort((a, b) => task.pictures[b] - task.pictures[a]);
  const masked = names.includes("mask") && names.includes("image");
  const mask = masked ? maskEditor(onProblem) : null;
  const slots = new Map();
  const thumb = el("img", { class: "thumb-small", alt: "", width: 48, height: 48, hidden: true }); // keeps the picture in sight on a phone
  const tools = masked ? el("div", { class: "mask-box", hidden: true }, el("p", { class: "help", textContent: wordsOf(task.type).mask }), mask.toolbar) : null;
  let hasImage = false;
  const showMask = () => {
    if (!masked) return;
    tools.hidden = mask.surface.hidden = !hasImage || !settings.needs("mask");
  };
  const showKernel = () => {
    if (slots.has("kernel")) slots.get("kernel").element.hidden = !settings.needs("kernel");
  };
  // the mask is painted; the whole picture is kept by the slot of its part
  for (const name of names.filter((candidate) => !(masked && candidate === "mask") && candidate !== "whole")) {
    const onChange = (shown) => {
      if (name === "image" && masked) {
        hasImage = Boolean(shown);
        if (shown) mask.reset(shown.naturalWidth, shown.naturalHeight);
        showMask();
      }
      if (name === names[0]) {
        thumb.hidden = !shown;
        if (shown) thumb.src = shown.src;
      }
      slot.element.dispatchEvent(new Event("shown", { bubbles: true }));
    };
    const slot = pictureSlot({ label: pictureLabel(task.type, name), required: task.pictures[name], limits, onProblem, onChange, onSeveral: name === "image" ? onSeveral : undefined });
    slots.set(name, slot);
    if (name !== "image" || !masked) continue;
    slot.holder.append(mask.surface);
    slot.element.append(tools);
  }
  for (const show of [showMask, showKernel]) {
    settings.element.addEventListener("change", show);
    settings.element.addEventListener("choose", show);
    show();
  }

  const files = async () => {
    const found = [...slots].filter(([, slot]) => !slot.element.hidden).map(([name, slot]) => [name, slot.file()]);
    if (masked && hasImage && settings.needs("mask")) found.push(["mask", await mask.blob()]);
    if (names.includes("whole")) found.push(["whole", slots.get("image").whole()]);
    return Object.fromEntries(found.filter(([, file]) => file));
  };
  const missing = () => {
    const [name, slot] = [...slots].find(([candidate, each]) => task.pictures[candidate] && !each.file()) ?? [];
    slot?.focus();
    return name ? t.needPicture(pictureLabel(task.type, name)) : null;
  };
  /** What to do first where a mask is needed and nothing is painted; null if nothing is missing. */
  const unpainted = async () => {
    const { left, top, right, bottom } = settings.read(); // what is added to a picture needs no mask
    if (!masked || !settings.needs("mask") || left || top || right || bottom) return null;
    if ((await mask.blob()) || isTransparent(slots.get("image").picture())) return null;
    mask.focus();
    return t.needMask(wordsOf(task.type).mask);
  };
  const fetched = async (artifact) => new File([await api.blob(artifact.url)], artifact.name, { type: artifact.media_type });
  const fill = async (job) => {
    const sent = (name) => job.artifacts.find((candidate) => candidate.name === api.inputName(name));
    const whole = sent("whole");
    for (const name of names.filter((candidate) => candidate !== "whole")) {
      const artifact = sent(name);
      if (!artifact) slots.get(name)?.clear();
      else if (slots.has(name)) await slots.get(name).take(await fetched(artifact), undefined, name === "image" && whole ? await fetched(whole) : null);
      else await mask.load(await fetched(artifact));
    }
  };
  /** A picture that was pasted, or dropped beside the slots. */
  const give = (file, name) => ([...slots.values()].find((slot) => !slot.element.hidden && !slot.file()) ?? slots.values().next().value)?.take(file, name);
  const size = () => {
    const shown = slots.get("image")?.picture();
    return shown ? [shown.naturalWidth, shown.naturalHeight] : null;
  };
  /** Everything chosen so far; ``restore`` brings it back. */
  const state = async () => ({ slots: [...slots].filter(([, slot]) => slot.file()).map(([name, slot]) => ({ name, file: slot.file(), whole: slot.whole() })), mask: (hasImage && (await mask?.blob())) || null });
  const restore = async (kept) => {
    for (const { name, file, whole } of kept.slots) await slots.get(name)?.take(file, file.name, whole);
    if (kept.mask) await mask?.load(kept.mask);
  };
  return { elements: [...slots.values()].map((slot) => slot.element), any: slots.size > 0, thumb, slots, files, missing, unpainted, fill, give, size, state, restore, mask: () => mask?.blob() };
}

/** Whether a part of a picture is transparent: that is what is missing then. */
function isTransparent(image) {
  const { naturalWidth: width, naturalHeight: height } = image;
  const pen = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  pen.drawImage(image, 0, 0);
  return pen.getImageData(0, 0, width, height).data.some((value, index) => index % 4 === 3 && value < 255);
}
