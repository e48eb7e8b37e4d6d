// Painting a mask over a picture: brush, box, eraser, undo, clear; by pointer or by keyboard.
//
// The painted area is what the task may change. The service's masks are the inverse: white is known.

import { button, el } from "./dom.js";
import { t } from "./strings.js";

const TOOLS = ["brush", "box", "eraser"];
const PAINT = "#e5486d";

let serial = 0;

/** The editor of a mask; ``surface`` lies over the picture, ``toolbar`` belongs beneath it. */
export function maskEditor(onProblem) {
  const canvas = el("canvas", { class: "mask-canvas", tabIndex: 0, role: "application", "aria-label": t.maskCanvas });
  const cursor = el("span", { class: "mask-cursor", hidden: true, "aria-hidden": "true" });
  const surface = el("div", { class: "mask-surface" }, canvas, cursor);
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const size = el("input", { type: "range", min: 1, max: 100, value: 30, "aria-label": t.brushSize });
  const status = el("span", { class: "help", role: "status" });
  const name = `tool${++serial}`;
  const radios = TOOLS.map((tool) => el("input", { type: "radio", name, value: tool, class: "visually-hidden", checked: tool === "brush" }));
  const chips = radios.map((radio) => el("label", { class: "chip" }, radio, el("span", { textContent: t.tools[radio.value] })));
  const file = el("input", { type: "file", accept: "image/png,image/jpeg,image/webp", class: "visually-hidden", id: `${name}-file`, "aria-label": t.loadMask });
  const loader = el("label", { class: "button small", htmlFor: file.id, textContent: t.loadMask, title: t.loadMaskHelp });
  const undoButton = button(t.undo, () => undo(), { class: "small" });
  const clearButton = button(t.clear, () => change(() => (strokes = [])), { class: "small" });
  const toolbar = el(
    "div",
    { class: "mask-tools", role: "group", "aria-label": t.maskTools },
    el("div", { class: "chips" }, ...chips, el("label", { class: "brush-size" }, el("span", { textContent: t.brushSize }), size)),
    el("div", { class: "chips" }, undoButton, clearButton, file, loader, status),
  );

  let strokes = [];
  let current = null;
  let place = null; // of the keyboard's cursor
  const tool = () => radios.find((radio) => radio.checked).value;
  const width = () => Math.max(1, (size.value / 200) * Math.max(canvas.width, canvas.height));

  function change(action) {
    action();
    redraw();
    const covered = share();
    status.textContent = t.masked(covered);
    undoButton.disabled = clearButton.disabled = strokes.length === 0;
    canvas.dispatchEvent(new Event("painted", { bubbles: true }));
  }

  function undo() {
    change(() => strokes.pop());
  }

  function redraw() {
    pen.clearRect(0, 0, canvas.width, canvas.height);
    for (const stroke of current ? [...strokes, current] : strokes) drawStroke(pen, stroke);
  }

  function share() {
    if (!strokes.length) return 0;
    const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
    let painted = 0;
    for (let index = 3; index < data.length; index += 4) painted += data[index] >= 128;
    return painted / (data.length / 4);
  }

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * canvas.width, ((event.clientY - box.top) / box.height) * canvas.height];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.preventDefault();
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    current = { tool: tool(), width: width(), points: [at(event)] };
    redraw();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!current || !canvas.hasPointerCapture(event.pointerId)) return;
    if (current.tool === "box") current.points[1] = at(event);
    else for (const part of event.getCoalescedEvents?.() ?? [event]) current.points.push(at(part));
    redraw();
  });
  const finish = () => {
    if (!current) return;
    const done = current;
    current = null;
    change(() => strokes.push(done));
  };
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, finish);

  canvas.addEventListener("keydown", (event) => {
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if (event.key === "z" && (event.ctrlKey || event.metaKey)) undo();
    else if (event.key === " " || event.key === "Enter") press();
    else if (event.key === "Escape" && current) {
      current = null;
      redraw();
    } else if (dx || dy) move(dx, dy, event.shiftKey ? 1 : Math.max(1, width() / 2));
    else return;
    event.preventDefault();
  });
  canvas.addEventListener("blur", () => (cursor.hidden = true));

  function move(dx, dy, by) {
    const [x, y] = place ?? [canvas.width / 2, canvas.height / 2];
    place = [Math.min(canvas.width, Math.max(0, x + dx * by)), Math.min(canvas.height, Math.max(0, y + dy * by))];
    cursor.hidden = false;
    cursor.style.left = `${(100 * place[0]) / canvas.width}%`;
    cursor.style.top = `${(100 * place[1]) / canvas.height}%`;
    if (current) current.points[1] = place;
    redraw();
  }

  function press() {
    if (!place) move(0, 0, 0);
    if (current) return finish();
    current = { tool: tool(), width: width(), points: [place] };
    if (current.tool !== "box") finish();
  }

  /** Starts afresh for a picture of this size. */
  function reset(imageWidth, imageHeight) {
    canvas.width = imageWidth;
    canvas.height = imageHeight;
    place = current = null;
    change(() => (strokes = []));
  }

  /** Takes a mask from a file: what is dark in it is painted. */
  async function load(mask) {
    const picture = await createImageBitmap(mask).catch(() => null);
    if (!picture) return onProblem({ message: t.notAPicture(mask.name) });
    if (picture.width !== canvas.width || picture.height !== canvas.height) return onProblem({ message: t.maskSize(mask.name, canvas.width, canvas.height) });
    onProblem(null);
    change(() => (strokes = [{ tool: "picture", picture: darkened(picture) }]));
  }
  file.addEventListener("change", () => {
    if (file.files[0]) load(file.files[0]);
    file.value = "";
  });

  /** The mask as the service reads it, a PNG, be it by its alpha or by its brightness; null while nothing is painted. */
  async function blob() {
    if (!share()) return null;
    const { width: w, height: h } = canvas;
    const { data } = pen.getImageData(0, 0, w, h);
    for (let index = 0; index < data.length; index += 4) {
      data.fill(data[index + 3] >= 128 ? 0 : 255, index, index + 4); // black and transparent, or white and opaque
    }
    const sheet = new OffscreenCanvas(w, h);
    sheet.getContext("2d").putImageData(new ImageData(data, w, h), 0, 0);
    return new File([await sheet.convertToBlob({ type: "image/png" })], "mask.png", { type: "image/png" });
  }

  reset(1, 1);
  return { surface, toolbar, reset, load, blob, focus: () => canvas.focus() };
}

function drawStroke(pen, { tool, width, points, picture }) {
  if (tool === "picture") return pen.drawImage(picture, 0, 0);
  pen.globalCompositeOperation = tool === "eraser" ? "destination-out" : "source-over";
  pen.fillStyle = pen.strokeStyle = PAINT;
  if (tool === "box") {
    const [[x0, y0], [x1, y1] = points[0]] = points;
    pen.fillRect(Math.round(Math.min(x0, x1)), Math.round(Math.min(y0, y1)), Math.round(Math.abs(x1 - x0)), Math.round(Math.abs(y1 - y0)));
  } else {
    pen.lineWidth = width;
    pen.lineCap = pen.lineJoin = "round";
    pen.beginPath();
    pen.moveTo(...points[0]);
    if (points.length === 1) pen.lineTo(points[0][0] + 0.01, points[0][1]); // a line of no length is not drawn
    for (const point of points.slice(1)) pen.lineTo(...point);
    pen.stroke();
  }
  pen.globalCompositeOperation = "source-over";
}

/** A mask picture's dark (or transparent) pixels in the paint's colour. */
function darkened(picture) {
  const sheet = new OffscreenCanvas(picture.width, picture.height);
  const pen = sheet.getContext("2d");
  pen.drawImage(picture, 0, 0);
  const image = pen.getImageData(0, 0, picture.width, picture.height);
  const { data } = image;
  for (let index = 0; index < data.length; index += 4) {
    const light = (data[index] + data[index + 1] + data[index + 2]) / 3;
    const known = light >= 128 && data[index + 3] >= 128;
    data.set([0xe5, 0x48, 0x6d, known ? 0 : 255], index);
  }
  pen.putImageData(image, 0, 0);
  return sheet;
}
