// The same memory lights up wherever it was found.
"use strict";

for (const lanes of document.querySelectorAll("[data-same]")) {
  const all = [...lanes.querySelectorAll("[data-id]")];
  const light = (event) => {
    const id = event.target.closest("[data-id]")?.dataset.id;
    const same = all.filter((each) => id !== undefined && each.dataset.id === id);
    for (const each of all) each.classList.toggle("is-same", same.length > 1 && same.includes(each));
  };
  lanes.addEventListener("mouseover", light);
  lanes.addEventListener("focusin", light);
  lanes.addEventListener("mouseleave", light);
}
