// The input and the result, one over the other with a movable edge; both zoom and pan together.

import { check } from "./api.js";
import { button, el } from "./dom.js";
import { COARSE_PIXELS } from "./slot.js";
import { t } from "./strings.js";

const MAX_ZOOM = 16;
const GRIP_PIXELS = 28;

/** ``size`` is the result's; ``before`` is { url, place, coarse }, or null where nothing was sent. */
export function viewer(size, words, before) {
  const [width, height] = size;
  const beforeImage = el("img", { class: "before", alt: before ? t.pictureAlt.before : "", hidden: !before });
  const after = el("img", { class: "after", alt: "", hidden: true });
  const tokens = el("canvas", { class: "tokens", hidden: true, "aria-hidden": "true" });
  const tag = el("span", { class: "tag" });
  const split = el("input", { type: "range", min: 0, max: 100, step: 1, value: 50, class: "split", "aria-label": t.compare, hidden: true });
  const stage = el(
    "div",
    { class: "stage", tabIndex: 0, role: "group", "aria-label": t.stage },
    el("div", { class: "plane" }, beforeImage),
    el("div", { class: "cut" }, el("div", { class: "plane" }, after, tokens)),
    before && el("span", { class: "tag tag-before", textContent: words.before }),
    el("span", { class: "tag-place" }, tag),
    el("span", { class: "divider", "aria-hidden": "true" }),
    split,
  );
  stage.style.setProperty("--ratio", `${width} / ${height}`);
  if (before) {
    beforeImage.src = before.url;
    beforeImage.classList.toggle("coarse", before.coarse < COARSE_PIXELS);
    for (const [side, share] of Object.entries(before.place)) beforeImage.style[side] = `${100 * share}%`;
  }

  const view = { zoom: 1, x: 0, y: 0 }; // x and y: the plane's shift in shares of the stage
  const zoomText = el("span", { class: "help zoom-text", role: "status", textContent: t.zoomText(1) });
  const show = () => {
    const least = 1 - view.zoom;
    view.x = Math.min(0, Math.max(least, view.x));
    view.y = Math.min(0, Math.max(least, view.y));
    for (const [name, value] of Object.entries({ zoom: view.zoom, x: `${100 * view.x}%`, y: `${100 * view.y}%` })) stage.style.setProperty(`--${name}`, value);
    stage.classList.toggle("zoomed", view.zoom > 1);
    zoomText.textContent = t.zoomText(view.zoom);
  };
  /** Zooms so that the point (px, py), in shares of the stage, stays where it is. */
  const zoomTo = (zoom, px = 0.5, py = 0.5) => {
    const next = Math.min(MAX_ZOOM, Math.max(1, zoom));
    view.x = px - ((px - view.x) * next) / view.zoom;
    view.y = py - ((py - view.y) * next) / view.zoom;
    view.zoom = next;
    show();
  };
  const move = () => {
    stage.style.setProperty("--split", `${split.value}%`);
    split.setAttribute("aria-valuetext", t.compareValue(100 - split.value));
  };
  split.addEventListener("input", move);
  followPointers(stage, { view, zoomTo, show, split, move });
  stage.addEventListener("keydown", (event) => {
    if (event.target !== stage) return; // the split has keys of its own
    const step = 0.1;
    const pan = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[event.key];
    if (event.key === "+" || event.key === "=") zoomTo(view.zoom * 1.5);
    else if (event.key === "-") zoomTo(view.zoom / 1.5);
    else if (event.key === "0") zoomTo(1);
    else if (pan && view.zoom > 1) {
      view.x += pan[0];
      view.y += pan[1];
      show();
    } else return;
    event.preventDefault();
  });
  const bar = el(
    "div",
    { class: "zoom-bar" },
    button("−", () => zoomTo(view.zoom / 1.5), { class: "icon", "aria-label": t.zoomOut }),
    zoomText,
    button("+", () => zoomTo(view.zoom * 1.5), { class: "icon", "aria-label": t.zoomIn }),
    button(t.zoomFit, () => zoomTo(1), { class: "small" }),
  );
  const element = el("div", { class: "viewer" }, stage);

  let wanted = ""; // address of the picture to show
  /** Shows a picture and does ``then`` once it has arrived; the one before stays until then. */
  const set = async (url, alt, label, then) => {
    wanted = url;
    const probe = new Image();
    probe.src = url;
    try {
      await probe.decode();
    } catch {
      document.addEventListener("connection", () => wanted === url && set(url, alt, label, then), { once: true });
      check();
      return;
    }
    if (wanted !== url) return;
    if (after.getAttribute("src") !== url) after.src = url;
    after.alt = alt;
    after.hidden = false;
    tag.textContent = label;
    then();
  };
  return {
    element,
    bar,
    tokens,
    /** An estimate on the way, in full. */
    estimate(url, label) {
      set(url, t.previewAlt, label, () => stage.classList.toggle("live", split.hidden));
    },
    /** A result, to be compared. */
    result(url, alt, label) {
      set(url, alt, label, () => {
        stage.classList.remove("live");
        if (!before) return;
        stage.classList.add("ready");
        split.hidden = false;
        move();
      });
    },
    /** Width and height of the picture that is shown. */
    shownSize: () => (after.naturalWidth ? [after.naturalWidth, after.naturalHeight] : size),
    onShown: (listener) => after.addEventListener("load", listener),
  };
}

/** Pans when zoomed in, else moves the edge; two fingers and ctrl + wheel zoom. */
function followPointers(stage, { view, zoomTo, show, split, move }) {
  const pointers = new Map();
  let action = null;
  const share = (event) => {
    const box = stage.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  const near = (x) => !split.hidden && Math.abs(x - split.value / 100) * stage.clientWidth < GRIP_PIXELS;
  const spread = () => {
    const [a, b] = [...pointers.values()];
    return Math.hypot(a[0] - b[0], a[1] - b[1]);
  };
  stage.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    stage.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, share(event));
    const [x] = share(event);
    action = pointers.size > 1 ? "pinch" : view.zoom > 1 && !near(x) ? "pan" : split.hidden ? null : "split";
    if (action === "split") slide(x);
  });
  stage.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return;
    const [oldX, oldY] = pointers.get(event.pointerId);
    const before = action === "pinch" && pointers.size === 2 ? spread() : 0;
    const [x, y] = share(event);
    pointers.set(event.pointerId, [x, y]);
    if (action === "split") slide(x);
    else if (action === "pan") {
      view.x += x - oldX;
      view.y += y - oldY;
      show();
    } else if (before) zoomTo((view.zoom * spread()) / before, x, y);
  });
  for (const kind of ["pointerup", "pointercancel"]) stage.addEventListener(kind, (event) => pointers.delete(event.pointerId));
  stage.addEventListener("dblclick", (event) => zoomTo(view.zoom > 1 ? 1 : 3, ...share(event)));
  stage.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && view.zoom === 1) return; // the page scrolls
      event.preventDefault();
      zoomTo(view.zoom * Math.exp(-event.deltaY / 300), ...share(event));
    },
    { passive: false },
  );
  function slide(x) {
    split.value = Math.round(100 * Math.min(1, Math.max(0, x)));
    move();
  }
}
