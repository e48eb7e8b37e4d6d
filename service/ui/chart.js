// The data misfit after each step, against the noise floor, as an SVG.

import { svg } from "./dom.js";
import { t } from "./strings.js";

const WIDTH = 360;
const HEIGHT = 150;
const LEFT = 44;
const BOTTOM = 24;
const TOP = 10;
const RIGHT = 8;

/** ``points``: progress events in order of step, each with step, total, misfit and noise_floor. */
export function chart(points) {
  const { total, noise_floor: floor } = points[0];
  const top = Math.max(floor, ...points.map((point) => point.misfit)) * 1.08 || 1;
  const x = (step) => LEFT + ((WIDTH - LEFT - RIGHT) * (total > 1 ? (step - 1) / (total - 1) : 0.5));
  const y = (value) => HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value / top);
  const last = points.at(-1);
  const path = points.map((point, index) => `${index ? "L" : "M"}${x(point.step).toFixed(1)} ${y(point.misfit).toFixed(1)}`).join("");
  const label = (px, py, anchor, text, kind = "tick") => svg("text", { x: px, y: py, "text-anchor": anchor, class: kind }, text);
  // on the side of the line where the curve does not end, unless the axis is there
  const above = last.misfit < floor || HEIGHT - BOTTOM - y(floor) < 18;
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": t.chartLabel(last.step, last.misfit, floor) },
    ...[0, top / 2, top].map((value) => svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" })),
    ...[0, top / 2, top].map((value) => label(LEFT - 8, y(value) + 3.5, "end", value ? value.toPrecision(2) : "0")),
    label(LEFT, HEIGHT - 7, "start", "1"),
    label(WIDTH - RIGHT, HEIGHT - 7, "end", `${t.stepAxis} ${total}`),
    svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(floor), y2: y(floor), class: "floor" }),
    label(WIDTH - RIGHT, y(floor) + (above ? -5 : 13), "end", t.floor, "floor-label"),
    svg("path", { d: path, class: "curve" }),
    svg("circle", { cx: x(last.step), cy: y(last.misfit), r: 3.5, class: "point" }),
  );
}
