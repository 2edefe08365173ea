// Names that the theme gives to some of its controls hide their visible text
// from assistive technology (axe: label-content-name-mismatch, region).
document.addEventListener("DOMContentLoaded", () => {
  for (const el of document.querySelectorAll(".search-button-field, details > summary[aria-label]")) el.removeAttribute("aria-label");
  const logo = document.querySelector(".sidebar-primary-items__start > .sidebar-primary-item:first-child");
  if (logo) { logo.setAttribute("role", "navigation"); logo.setAttribute("aria-label", "Book"); }
});

// What scrolls sideways must be reachable by keyboard.
function reachable() {
  // A formula in a line that is wider than its paragraph scrolls by itself.
  for (const el of document.querySelectorAll("mjx-container:not([display])")) {
    const box = el.closest("p, li, td, th, dd, figcaption, h1, h2, h3") || el.parentElement;
    el.classList.remove("wide");
    if (el.getBoundingClientRect().width > box.clientWidth) el.classList.add("wide");
  }
  for (const el of document.querySelectorAll("div.highlight pre, .cell_output .output, .pst-scrollable-table-container, div.math, mjx-container")) {
    if (el.scrollWidth > el.clientWidth + 1 && getComputedStyle(el).overflowX === "auto") el.tabIndex = 0;
  }
}
addEventListener("load", () => {
  reachable();
  if (window.MathJax && MathJax.startup) MathJax.startup.promise.then(reachable);
});
addEventListener("resize", reachable);
document.addEventListener("toggle", reachable, true); // what was folded had no width until now
