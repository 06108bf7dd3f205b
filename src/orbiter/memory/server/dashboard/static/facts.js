// A slider along the axis of facts: it chooses the moment at which they are looked at.
"use strict";
{
  const ready = (root) => {
    for (const slider of root.querySelectorAll("[data-scrub]")) slider.hidden = false;
  };
  ready(document);
  document.addEventListener("htmx:load", (event) => ready(event.detail.elt));

  document.addEventListener("input", (event) => {
    const slider = event.target.closest("[data-scrub]");
    if (!slider) return;
    const [start, end] = [slider.dataset.start, slider.dataset.end].map(Date.parse);
    const step = 1000 * slider.dataset.step;
    const at = Math.floor((start + slider.value * step) / step) * step; // a whole hour or day, in UTC
    const place = `${100 * Math.min(1, Math.max(0, (at - start) / (end - start)))}%`;
    for (const line of document.querySelectorAll(".as-of-line")) {
      line.setAttribute("x1", place);
      line.setAttribute("x2", place);
      line.removeAttribute("visibility");
    }
    const text = new Date(at).toISOString().slice(0, 16);
    slider.setAttribute("aria-valuetext", text.replace("T", " "));
    document.querySelector("#f-as-of").value = text;
  });
}
