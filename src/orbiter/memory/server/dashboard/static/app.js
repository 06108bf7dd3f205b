// What pages share: the token of writes, keys, copying, themes, messages. No page needs it to be read.
"use strict";

const token = document.querySelector('meta[name="orbiter-token"]').content;

document.addEventListener("htmx:configRequest", (event) => {
  event.detail.headers["X-Orbiter-Token"] = token;
});

// An error is a message; what the page shows stays as it is.
document.addEventListener("htmx:responseError", async (event) => {
  const { xhr } = event.detail;
  let told = `The server answered ${xhr.status}.`;
  try {
    told = JSON.parse(xhr.responseText).detail || told;
  } catch {
    // It is no problem document.
  }
  say(told, "bad");
});
document.addEventListener("htmx:sendError", () => say("The server cannot be reached.", "bad"));
document.addEventListener("orbiter:say", (event) => say(event.detail.value));

function say(text, kind = "") {
  const toast = document.createElement("div");
  toast.className = `toast ${kind}`;
  toast.role = kind === "bad" ? "alert" : "status";
  toast.textContent = text;
  // What went wrong in a dialog is told in it, as it stands above the rest of the page.
  const dialog = kind === "bad" ? document.querySelector("dialog[open]") : null;
  (dialog ?? document.querySelector(".toasts")).append(toast);
  setTimeout(() => toast.remove(), kind === "bad" ? 9000 : 4500);
}
window.orbiter = { say, token };

// Buttons: data-copy="#id" copies a text, data-theme-toggle turns the lights, data-open opens a dialog.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-theme-toggle], [data-open], [data-close]");
  if (!button) return;
  if (button.dataset.copy) {
    const text = document.querySelector(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
      const was = button.textContent;
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = was), 1500);
    } catch {
      say("The browser does not let us copy; select the text by hand.", "bad");
    }
  } else if (button.dataset.open) {
    document.querySelector(button.dataset.open).showModal();
  } else if ("close" in button.dataset) {
    button.closest("dialog").close();
  } else {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.dispatchEvent(new CustomEvent("orbiter:theme"));
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // It holds for this page only.
    }
  }
});

// Keys: / searches, j and k walk through memories, Enter opens, g and a letter goes to a page.
let wentBefore = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  const goes = Date.now() - wentBefore < 1000;
  wentBefore = 0;
  if (goes) {
    const link = document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
  } else if (event.key === "g") {
    wentBefore = Date.now();
  } else if (event.key === "/") {
    const box = document.querySelector("[data-search]");
    if (!box) return;
    event.preventDefault();
    box.focus();
    box.select();
  } else if (event.key === "?") {
    document.querySelector("#keys").showModal();
  } else if (event.key === "j" || event.key === "k") {
    walk(event.key === "j" ? 1 : -1);
  } else if (event.key === "Enter" && event.target === document.body) {
    document.querySelector(".memory.is-selected .memory-text")?.click();
  }
});

function walk(step) {
  const all = [...document.querySelectorAll(".memory")];
  if (!all.length) return;
  const at = all.findIndex((each) => each.classList.contains("is-selected"));
  const next = all[Math.min(all.length - 1, Math.max(0, at + step))];
  all[at]?.classList.remove("is-selected");
  next.classList.add("is-selected");
  next.querySelector(".memory-text")?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

// A form with data-closes is emptied, and its dialog closed, once the server has taken it.
document.addEventListener("htmx:afterRequest", (event) => {
  const form = event.target.closest("form[data-closes]");
  if (!form || !event.detail.successful) return;
  form.reset();
  form.closest("dialog")?.close();
});

// Times are told as they are for the reader; the page itself has them in UTC.
function tellTimes(root = document) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (!Number.isNaN(at.valueOf())) time.title = at.toLocaleString();
  }
}
tellTimes();
document.addEventListener("htmx:load", (event) => tellTimes(event.detail.elt));
