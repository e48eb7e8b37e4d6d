// A curve over steps as an SVG, optionally with a floor.

import { svg } from "./dom.js";
import { t } from "./strings.js";

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 2 });
/** A tick's label, short enough for the space beside the axis. */
const tickText = (value) => (value && Math.abs(value) < 0.001 ? value.toExponential(1).replace(".0e", "e") : compact.format(value));
const WIDTH = 360;
const HEIGHT = 140;
const LEFT = 50;
const BOTTOM = 22;
const TOP = 10;
const RIGHT = 8;

const grid = (y) => svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y, class: "grid" });

/** The frame of a chart, as long as no value is known. */
export const blankChart = () => svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" }, ...[TOP, (TOP + HEIGHT - BOTTOM) / 2, HEIGHT - BOTTOM].map(grid));

/**
 * ``values`` of steps 1, 2, ... of ``total``; NaN where one is not known. ``marked`` is the step to point at, and
 * ``floor`` a value the curve should reach, or 0. Curves without negative values start at zero.
 */
export function chart({ name, values, total, floor = 0, marked = values.length, axis = t.stepAxis }) {
  const known = values.filter(Number.isFinite);
  const lowest = Math.min(0, ...known);
  const [bottom, top] = lowest < 0 ? widened(lowest, Math.max(...known)) : [0, Math.max(floor, ...known) * 1.08 || 1];
  const x = (step) => LEFT + ((WIDTH - LEFT - RIGHT) * (total > 1 ? (step - 1) / (total - 1) : 0.5));
  const y = (value) => HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * ((value - bottom) / (top - bottom));
  const points = values.map((value, index) => [index + 1, value]).filter(([, value]) => Number.isFinite(value));
  const path = points.map(([step, value], index) => `${index ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const label = (px, py, anchor, text, kind = "tick") => svg("text", { x: px, y: py, "text-anchor": anchor, class: kind }, text);
  const [step, value] = points.findLast(([each]) => each <= marked) ?? points[0];
  const ticks = [bottom, (bottom + top) / 2, top];
  // on the side of the line away from the curve's end, unless the axis is there
  const above = points.at(-1)[1] < floor || HEIGHT - BOTTOM - y(floor) < 18;
  const floorLine = floor
    ? [svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(floor), y2: y(floor), class: "floor" }), label(WIDTH - RIGHT, y(floor) + (above ? -5 : 13), "end", t.floor, "floor-label")]
    : [];
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": t.chartLabel(name, step, value, floor) },
    ...ticks.map((tick) => grid(y(tick))),
    ...ticks.map((tick) => label(LEFT - 8, y(tick) + 3.5, "end", tickText(tick))),
    label(LEFT, HEIGHT - 6, "start", "1"),
    label(WIDTH - RIGHT, HEIGHT - 6, "end", `${axis} ${total}`),
    ...floorLine,
    svg("path", { d: path, class: "curve" }),
    svg("circle", { cx: x(step), cy: y(value), r: 3.5, class: "point" }),
  );
}

function widened(low, high) {
  const margin = (high - low || 1) * 0.08;
  return [low - margin, high + margin];
}
