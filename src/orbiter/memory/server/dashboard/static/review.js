// Proposals by keyboard: a accepts and d discards the one that has the focus; the next one gets it.
"use strict";
{
  let wentAt = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const goes = Date.now() - wentAt < 1000; // `g d` goes to another page
    wentAt = event.key === "g" ? Date.now() : 0;
    if (goes || event.target.closest("input, textarea, select")) return;
    const draft = document.activeElement?.closest("[data-draft]");
    const name = { a: "accept", d: "discard" }[event.key];
    if (!draft || !name) return;
    const button = draft.querySelector(`[data-${name}]`);
    if (!button) return;
    event.preventDefault();
    button.click();
  });

  // One that is decided leaves a row with the way back; whoever goes on by keys is at the next one.
  document.addEventListener("htmx:afterSettle", () => {
    const done = document.activeElement?.closest("[data-decided]");
    if (!done) return;
    let next = done.nextElementSibling;
    while (next && !next.matches("[data-draft]")) next = next.nextElementSibling;
    next ??= done.parentElement.querySelector("[data-draft]");
    if (!next) return;
    for (const each of document.querySelectorAll("[data-draft]")) each.classList.toggle("is-selected", each === next);
    next.querySelector(".memory-text").focus();
  });
}
