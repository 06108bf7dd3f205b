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

  const isAtOrAfter = (one, other) =>
    other && (one === other || Boolean(other.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING));

  // One that is decided is gone from the list; after the last one, the page has others or says so.
  const list = document.querySelector("#drafts");
  new MutationObserver((changes) => {
    const gone = changes.find((each) => each.removedNodes.length);
    if (!gone) return;
    const left = [...list.querySelectorAll("[data-draft]")];
    if (!left.length) {
      location.reload();
      return;
    }
    const next = left.find((each) => isAtOrAfter(each, gone.nextSibling)) || left.at(-1);
    for (const each of left) each.classList.toggle("is-selected", each === next);
    next.querySelector(".memory-text").focus();
  }).observe(list || document.createElement("ul"), { childList: true });
}
