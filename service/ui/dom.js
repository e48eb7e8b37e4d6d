// Short spelling of the DOM calls the page is built from.

export const byId = (id) => document.getElementById(id);

/** An element with properties (``class``, ``data-*`` and ``aria-*`` as attributes) and children. */
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
    if (name === "class" || name.includes("-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}
