// Short forms of the DOM calls used to build the page.

export const byId = (id) => document.getElementById(id);

/** An element with properties (``class``, ``role``, ``data-*`` and ``aria-*`` as attributes) and children. */
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name === "class" || name === "role" || name.includes("-")) element.setAttribute(name, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element[name] = value;
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A button that does ``action``. */
export const button = (text, action, properties = {}) => el("button", { type: "button", textContent: text, onclick: action, ...properties });

/** A picture of 20 x 20 units drawn as one stroked path, for buttons that have a name of their own. */
export const icon = (path) => svg("svg", { viewBox: "0 0 20 20", width: 20, height: 20, "aria-hidden": "true", class: "glyph" }, svg("path", { d: path }));

/** Resolves once what was changed shows. */
export const painted = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
