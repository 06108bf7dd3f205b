// The labs: the same memory lights up wherever it was found, and a talk begins at its end.
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

// A conversation that scrolls begins at its end: there is the newest message.
function toTheEnd(root = document) {
  for (const each of root.querySelectorAll("[data-end]")) each.scrollTop = each.scrollHeight;
}
toTheEnd();
document.addEventListener("htmx:afterSettle", (event) => toTheEnd(event.detail.target));
