// Home: says whether the live strip hears the server, and keeps what is typed when facets are chosen.
"use strict";

const live = document.querySelector("[data-live]");
const dot = live.querySelector("[data-dot]");
const told = live.querySelector("[data-dot-text]");

function hears(yes) {
  dot.classList.toggle("on", yes);
  told.textContent = yes ? "connected" : "waiting for the server";
}
live.addEventListener("htmx:sseOpen", () => hears(true));
live.addEventListener("htmx:sseError", () => hears(false));
live.addEventListener("htmx:sseClose", () => hears(false));

// Facets are links of the page as it was loaded; the box may say something else by now.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-keeps-query]");
  if (!link) return;
  const address = new URL(link.href);
  const typed = document.querySelector("#q").value;
  if (typed) address.searchParams.set("q", typed);
  else address.searchParams.delete("q");
  link.href = address.href;
});

// The strip may stand still for long; its ages must not.
setInterval(() => {
  for (const time of live.querySelectorAll("time[datetime]")) {
    const seconds = (Date.now() - new Date(time.dateTime)) / 1000;
    if (seconds < 5 || Number.isNaN(seconds)) continue;
    const [size, unit] = seconds < 60 ? [1, "s"] : seconds < 3600 ? [60, " min"] : [3600, " h"];
    time.textContent = `${Math.floor(seconds / size)}${unit} ago`;
  }
}, 5000);

// What came since the list was read is told above it, and shown when somebody asks for it.
const fresh = document.querySelector("[data-fresh]");
const unseen = new Set();
const MAX_NEW = 100; // as many as one message of the strip tells

function isListed(id) {
  return document.querySelector(`#results [data-id="${CSS.escape(id)}"]`) !== null;
}
function tellFresh() {
  for (const id of unseen) if (isListed(id)) unseen.delete(id);
  // While nothing is there, the list looks for itself.
  fresh.hidden = !unseen.size || !document.querySelector("#results .memories");
  const count = unseen.size < MAX_NEW ? unseen.size : `${MAX_NEW} or more`;
  fresh.textContent = fresh.hidden ? "" : `Show ${count} new`;
}
live.addEventListener("htmx:sseMessage", () => {
  const told = live.querySelector("[data-new]")?.dataset.new ?? "";
  for (const id of told.split(" ")) if (id && unseen.size < MAX_NEW) unseen.add(id);
  tellFresh();
});
fresh.addEventListener("click", (event) => {
  event.preventDefault();
  htmx.ajax("GET", `/ui/memories${location.search}`, "#results").then(() => {
    unseen.clear();
    tellFresh();
    const first = document.querySelector("#results .memory-text");
    first?.focus();
  });
});
document.addEventListener("htmx:afterSettle", tellFresh);
