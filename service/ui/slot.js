// A place for a picture: dropped, pasted, chosen, photographed, or taken from a sample.

import { cropFrame } from "./crop.js";
import { button, el } from "./dom.js";
import { areSeveral, dropped } from "./several.js";
import { t } from "./strings.js";

/** Pictures smaller than this are shown without smoothing. */
export const COARSE_PIXELS = 100;
const ACCEPT = "image/png,image/jpeg,image/webp";

let serial = 0;

/**
 * ``onChange`` is called with the picture's element once it shows, and with null when it is gone. ``onSeveral`` gets
 * several files, or a ZIP file; without it only one picture can be chosen.
 */
export function pictureSlot({ label, required, limits, onProblem, onChange, onSeveral }) {
  const id = `picture${++serial}`;
  let file = null;
  let whole = null; // the picture that was cropped to ``file``
  let cropping = null;
  const input = chooser(id, onSeveral ? { multiple: "", accept: `${ACCEPT},.zip` } : {});
  const shown = el("img");
  const name = el("span");
  const info = el("p", { class: "help", id: `${id}-info`, textContent: t.imageHint(limits.max_upload_bytes) });
  const empty = el("label", { class: "drop-empty", htmlFor: id }, el("strong", { textContent: onSeveral ? t.chooseSeveral : t.choose }));
  const canvasHolder = el("div", { class: "drop-shown", hidden: true }, shown);
  const camera = chooser(`${id}-camera`, { capture: "environment" });
  camera.classList.add("only-touch");
  const change = el("label", { class: "button small", htmlFor: id, textContent: t.change, hidden: true });
  const removal = button(t.removePicture, () => clear(), { class: "small quiet", hidden: true });
  const uncrop = button(t.crop.whole, () => take(whole), { class: "small", hidden: true });
  const cameraLabel = el("label", { class: "button small only-touch", htmlFor: camera.id, textContent: t.camera });
  const drop = el("div", { class: "drop" }, empty, canvasHolder);
  const title = el("h2", { class: "slot-title" }, name, !required && el("span", { class: "optional", textContent: t.optional }));
  const element = el("div", { class: "slot" }, input, camera, title, drop, el("div", { class: "slot-bar" }, info, uncrop, change, cameraLabel, removal));
  input.setAttribute("aria-describedby", info.id);

  function rename(words) {
    name.textContent = words;
    shown.alt = t.imageAlt(words);
    input.setAttribute("aria-label", words);
    camera.setAttribute("aria-label", `${words}: ${t.camera}`);
  }
  rename(label);

  function filled(is) {
    drop.classList.toggle("filled", is);
    empty.hidden = is;
    canvasHolder.hidden = change.hidden = !is;
    removal.hidden = !is || required;
    uncrop.hidden = !is || !whole;
  }

  function clear() {
    cropping?.end();
    file = whole = null;
    filled(false);
    info.textContent = t.imageHint(limits.max_upload_bytes);
    onChange(null);
  }

  /** Shows ``chosen``; ``from`` is the whole picture it is a part of, if it is one. */
  async function take(chosen, name = chosen.name, from = null) {
    cropping?.end();
    const url = URL.createObjectURL(chosen);
    const probe = new Image();
    probe.src = url;
    try {
      await probe.decode();
    } catch {
      URL.revokeObjectURL(url);
      clear();
      onProblem({ message: t.notAPicture(name) });
      return;
    }
    URL.revokeObjectURL(shown.src);
    shown.src = url;
    await shown.decode();
    file = chosen;
    whole = from;
    canvasHolder.style.setProperty("--fit", shown.naturalWidth / shown.naturalHeight);
    filled(true);
    shown.classList.toggle("coarse", Math.max(shown.naturalWidth, shown.naturalHeight) < COARSE_PIXELS);
    info.textContent = t.imageInfo(name, shown.naturalWidth, shown.naturalHeight);
    onProblem(null);
    onChange(shown);
  }

  /** One picture is shown, several are handed on. */
  function receive(files) {
    if (onSeveral && areSeveral(files)) onSeveral(files);
    else if (files[0]) take(files[0]);
  }

  /** Lets the user choose a part; ``longest`` is the longest side that is not reduced. */
  function crop(longest) {
    cropping?.end();
    const original = whole ?? file;
    const named = whole ? file.name : t.crop.name(file.name);
    cropping = cropFrame(canvasHolder, shown, longest, {
      onUse: (blob) => take(new File([blob], named, { type: "image/png" }), named, original),
      onEnd: () => (cropping = null),
    });
    drop.after(cropping.tools);
    element.scrollIntoView({ block: "nearest" });
  }

  for (const source of [input, camera]) {
    source.addEventListener("change", () => {
      receive([...source.files]);
      source.value = ""; // so that the same file can be chosen again
    });
  }
  for (const kind of ["dragenter", "dragover"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    dropped(event.dataTransfer).then(receive);
  });
  return { element, holder: canvasHolder, take, receive, clear, crop, rename, whole: () => whole, picture: () => (file ? shown : null), file: () => file, focus: () => input.focus() };
}

function chooser(id, properties) {
  const input = el("input", { type: "file", accept: ACCEPT, class: "visually-hidden", id });
  for (const [name, value] of Object.entries(properties)) input.setAttribute(name, value);
  return input;
}
