// Light or dark theme: the system's, unless the user has chosen.

import { icon } from "./dom.js";
import { t } from "./strings.js";

const KEY = "studio-theme";
const GLYPHS = {
  light: "M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M10 1.5v2M10 16.5v2M1.5 10h2M16.5 10h2M4 4l1.4 1.4M14.6 14.6L16 16M16 4l-1.4 1.4M5.4 14.6L4 16",
  dark: "M16.5 12A7 7 0 0 1 8 3.5a7 7 0 1 0 8.5 8.5z",
};

/** Makes ``element`` switch between light and dark. */
export function themeButton(element) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const current = () => localStorage.getItem(KEY) ?? (system.matches ? "dark" : "light");
  const show = () => {
    const next = current() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = current();
    element.replaceChildren(icon(GLYPHS[next]));
    element.setAttribute("aria-label", t.theme[next]);
    element.title = t.theme[next];
  };
  element.addEventListener("click", () => {
    localStorage.setItem(KEY, current() === "dark" ? "light" : "dark");
    show();
  });
  system.addEventListener("change", show);
  show();
}
