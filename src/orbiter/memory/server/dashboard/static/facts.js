// A slider along the axis of facts: it chooses the moment at which they are looked at.
"use strict";
{
  const moment = (slider) => {
    const [start, end] = [slider.dataset.start, slider.dataset.end].map((each) => Date.parse(each));
    return new Date(start + ((end - start) * slider.value) / slider.max).toISOString().slice(0, 16);
  };

  const ready = (root) => {
    for (const slider of root.querySelectorAll("[data-scrub]")) slider.hidden = false;
  };
  ready(document);
  document.addEventListener("htmx:load", (event) => ready(event.detail.elt));

  document.addEventListener("input", (event) => {
    const slider = event.target.closest("[data-scrub]");
    if (!slider) return;
    const place = `${(100 * slider.value) / slider.max}%`;
    for (const line of document.querySelectorAll(".as-of-line")) {
      line.setAttribute("x1", place);
      line.setAttribute("x2", place);
      line.removeAttribute("visibility");
    }
    slider.setAttribute("aria-valuetext", moment(slider).replace("T", " "));
    document.querySelector("#f-as-of").value = moment(slider);
  });
  document.addEventListener("change", (event) => {
    if (event.target.closest("[data-scrub]")) document.querySelector("#f-as-of").form.requestSubmit();
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful && event.target.matches("[data-reset]")) event.target.reset();
  });
}
