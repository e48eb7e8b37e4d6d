// Chooses a part of a picture with a frame that moves and grows, by pointer or keys.

import { button, el } from "./dom.js";
import { t } from "./strings.js";

const SMALLEST = 16;
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * Lays a frame over ``image`` inside ``holder``, at first a square of ``longest`` pixels, the longest side that is not
 * reduced. ``onUse`` gets the part as a PNG blob; ``onEnd`` is called in any case. ``tools`` go below the picture.
 */
export function cropFrame(holder, image, longest, { onUse, onEnd }) {
  const [width, height] = [image.naturalWidth, image.naturalHeight];
  const side = Math.max(SMALLEST, Math.min(longest, width, height));
  const part = { x: Math.floor((width - side) / 2), y: Math.floor((height - side) / 2), w: side, h: side };
  const handle = el("span", { class: "crop-handle", "aria-hidden": "true" });
  const frame = el("div", { class: "crop-frame", tabIndex: 0, role: "group", "aria-label": t.crop.frame }, handle);
  const shade = el("div", { class: "crop-shade" }, frame);
  const text = el("p", { class: "help", role: "status" });

  function show() {
    part.w = Math.round(Math.min(Math.max(part.w, SMALLEST), width));
    part.h = Math.round(Math.min(Math.max(part.h, SMALLEST), height));
    part.x = Math.round(Math.min(Math.max(part.x, 0), width - part.w));
    part.y = Math.round(Math.min(Math.max(part.y, 0), height - part.h));
    const shares = { left: part.x / width, top: part.y / height, width: part.w / width, height: part.h / height };
    for (const [name, share] of Object.entries(shares)) frame.style[name] = `${100 * share}%`;
    text.textContent = t.crop.size(part.w, part.h, Math.max(part.w, part.h) <= longest);
  }

  const change = (resizing, dx, dy) => {
    part[resizing ? "w" : "x"] += dx;
    part[resizing ? "h" : "y"] += dy;
    show();
  };
  let action = null; // { resizing, at }: what a pointer is doing, and where it was
  frame.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    frame.focus();
    frame.setPointerCapture(event.pointerId);
    action = { resizing: event.target === handle, at: [event.clientX, event.clientY], from: { ...part } };
  });
  frame.addEventListener("pointermove", (event) => {
    if (!action) return;
    const scale = width / shade.clientWidth;
    const [dx, dy] = [(event.clientX - action.at[0]) * scale, (event.clientY - action.at[1]) * scale];
    Object.assign(part, action.from);
    change(action.resizing, dx, dy);
  });
  for (const kind of ["pointerup", "pointercancel"]) frame.addEventListener(kind, () => (action = null));
  frame.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    const by = Math.max(1, Math.round(Math.max(width, height) / 50));
    change(event.shiftKey, move[0] * by, move[1] * by);
  });

  const end = () => {
    shade.remove();
    tools.remove();
    onEnd();
  };
  const use = async () => {
    const sheet = new OffscreenCanvas(part.w, part.h);
    sheet.getContext("2d").drawImage(image, part.x, part.y, part.w, part.h, 0, 0, part.w, part.h);
    const blob = await sheet.convertToBlob({ type: "image/png" });
    end();
    onUse(blob);
  };
  const tools = el("div", { class: "crop-tools" }, text, el("div", { class: "chips" }, button(t.crop.use, use, { class: "small primary" }), button(t.crop.cancel, end, { class: "small" })));
  holder.append(shade);
  show();
  frame.focus({ preventScroll: true });
  return { tools, end };
}
