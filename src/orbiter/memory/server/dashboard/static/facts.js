// A slider along the axis of facts: it chooses the moment at which they are looked at.
"use strict";
{
  const DAY = 86_400_000;
  const limits = (slider) => [slider.dataset.start, slider.dataset.end].map((each) => Date.parse(each));

  // Whole hours, days and months: what a step is called is where it ends up.
  const moment = (slider) => {
    const { unit, seconds } = slider.dataset;
    const [start] = limits(slider);
    const at = new Date(start + slider.value * seconds * 1000);
    if (unit === "hour") at.setUTCMinutes(0, 0, 0);
    else at.setUTCHours(0, 0, 0, 0);
    if (unit === "month") {
      at.setTime(at.getTime() + 15 * DAY);
      at.setUTCDate(1);
    }
    return at;
  };

  const ready = (root) => {
    for (const slider of root.querySelectorAll("[data-scrub]")) slider.hidden = false;
  };
  ready(document);
  document.addEventListener("htmx:load", (event) => ready(event.detail.elt));

  document.addEventListener("input", (event) => {
    const slider = event.target.closest("[data-scrub]");
    if (!slider) return;
    const [start, end] = limits(slider);
    const at = moment(slider);
    const place = `${100 * Math.min(1, Math.max(0, (at - start) / (end - start)))}%`;
    for (const line of document.querySelectorAll(".as-of-line")) {
      line.setAttribute("x1", place);
      line.setAttribute("x2", place);
      line.removeAttribute("visibility");
    }
    const told = at.toISOString().slice(0, 16);
    slider.setAttribute("aria-valuetext", told.replace("T", " "));
    document.querySelector("#f-as-of").value = told;
  });
  document.addEventListener("keydown", (event) => {
    const slider = event.target.closest("[data-scrub]");
    const way = { PageUp: 1, PageDown: -1 }[event.key];
    if (!slider || !way) return;
    event.preventDefault();
    slider.value = Number(slider.value) + way * slider.dataset.page;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful && event.target.matches("[data-reset]")) event.target.reset();
  });
}
