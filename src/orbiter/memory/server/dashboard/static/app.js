// What pages share: the token of writes, keys, copying, themes, messages. No page needs it to be read.
"use strict";

let token = document.querySelector('meta[name="orbiter-token"]').content;

document.addEventListener("htmx:configRequest", (event) => {
  event.detail.headers["X-Orbiter-Token"] = token;
});

// A field that was left blank is not sent: the server refuses an empty name of a scope.
document.addEventListener("formdata", ({ formData }) => {
  for (const name of ["user_id", "session_id", "task_id", "agent_id"]) {
    if (formData.getAll(name).every((value) => !value.trim())) formData.delete(name);
  }
});

// A server that was restarted takes other tokens; its page has one. True if that is another.
async function renew() {
  try {
    const page = await (await fetch(location.href, { headers: { Accept: "text/html" } })).text();
    const found = new DOMParser().parseFromString(page, "text/html").querySelector('meta[name="orbiter-token"]');
    if (!found || found.content === token) return false;
    token = found.content;
    return true;
  } catch {
    return false;
  }
}
const isStale = (status, told) => status === 403 && told.includes("X-Orbiter-Token");
const RESTARTED = "The server was restarted. Reload the page, and retry.";

const tried = new WeakSet(); // asked a second time already, and confirmed the first time
document.addEventListener("htmx:confirm", (event) => {
  if (!tried.has(event.detail.elt)) return;
  event.preventDefault();
  event.detail.issueRequest(true);
});

// An error is told where it was made, and stays until the next try; the page stays as it is.
document.addEventListener("htmx:responseError", async ({ detail: { xhr, elt, requestConfig } }) => {
  let told = `The server answered ${xhr.status}.`;
  try {
    told = JSON.parse(xhr.responseText).detail || told;
  } catch {
    // It is no problem document.
  }
  if (isStale(xhr.status, told)) {
    if (!tried.has(elt) && (await renew())) {
      tried.add(elt);
      await htmx.ajax(requestConfig.verb, requestConfig.path, { source: elt });
      tried.delete(elt);
      return;
    }
    told = RESTARTED;
  }
  complain(elt, told);
});
document.addEventListener("htmx:sendError", (event) => complain(event.detail.elt, "The server cannot be reached."));
document.addEventListener("orbiter:say", (event) => say(event.detail.value, "", event.detail));

function complain(elt, text) {
  const form = elt.closest("form");
  if (!form) return say(text, "bad");
  const notice = document.createElement("p");
  notice.className = "notice bad";
  notice.role = "alert";
  notice.dataset.wrong = "";
  const line = document.createElement("span");
  forgive(form);
  tell(line, text, form);
  notice.append(line);
  if (form.classList.contains("row")) form.after(notice);
  else form.append(notice);
  const field = form.querySelector("[aria-invalid]");
  if (field) field.focus();
}

function forgive(form) {
  for (const each of [...form.querySelectorAll("[data-wrong]"), form.nextElementSibling]) {
    if (each?.matches("[data-wrong]")) each.remove();
  }
  for (const each of form.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
}

// What the server writes between backticks is a name: of a field here, which has a label, or of something else.
function tell(place, text, form) {
  const plain = text.replace(/(\d{4}-\d\d-\d\d)T(\d\d:\d\d)[\d:.]*\+00:00/g, "$1 $2");
  const told = `${plain[0]?.toUpperCase() ?? ""}${plain.slice(1)}${/[.!?]$/.test(plain) ? "" : "."}`;
  told.split("`").forEach((piece, index) => {
    if (index % 2 === 0) return place.append(piece);
    const field = form?.elements.namedItem(piece);
    const label = field?.labels?.[0]?.textContent.replace(/, UTC$/, "");
    const name = document.createElement(label ? "strong" : "code");
    name.textContent = label || piece;
    if (label) field.setAttribute("aria-invalid", "true");
    place.append(name);
  });
}

function say(text, kind = "", { undo = "", target = "" } = {}) {
  for (const each of document.querySelectorAll(".toast")) if (each.dataset.said === text) each.remove();
  const toast = document.createElement("div");
  toast.className = `toast ${kind}`;
  toast.dataset.said = text;
  if (kind === "bad") {
    toast.role = "alert";
    tell(toast, text);
    const close = document.createElement("button");
    close.className = "toast-close";
    close.textContent = "Close";
    close.addEventListener("click", () => toast.remove());
    toast.append(" ", close);
  } else {
    toast.role = "status";
    toast.textContent = text;
    if (undo) {
      const button = document.createElement("button");
      button.className = "toast-close";
      button.textContent = "Undo";
      button.addEventListener("click", () => {
        toast.remove();
        htmx.ajax("POST", undo, target);
      });
      toast.append(" ", button);
    }
    // Who is about to press it must not lose it.
    const leave = () => (toast.matches(":hover, :focus-within") ? setTimeout(leave, 1000) : toast.remove());
    setTimeout(leave, undo ? 10000 : 4500);
  }
  // What went wrong in a dialog is told in it, as it stands above the rest of the page.
  const dialog = kind === "bad" ? document.querySelector("dialog[open]") : null;
  (dialog ?? document.querySelector(".toasts")).append(toast);
}
window.orbiter = { say, tell, renew, isStale, RESTARTED, token: () => token };

// While something is asked for, its place is busy; and whoever asked for it by keyboard is not lost.
const asking = new WeakMap();
document.addEventListener("htmx:beforeRequest", ({ detail: { xhr, elt, target } }) => {
  const form = elt.closest("form");
  if (form) forgive(form);
  for (const each of document.querySelectorAll(".toast.bad")) each.remove();
  target?.setAttribute("aria-busy", "true");
  const at = document.activeElement;
  asking.set(xhr, { at: at !== document.body && elt.contains(at) ? at : null });
});
document.addEventListener("htmx:beforeSwap", ({ detail: { xhr, target } }) => {
  const asked = asking.get(xhr);
  if (!asked || !target) return;
  const at = document.activeElement;
  if (at !== document.body && target.contains(at)) asked.at = at;
  asked.parent = target.parentElement;
  asked.before = target.previousElementSibling;
});
document.addEventListener("htmx:afterRequest", ({ detail: { xhr, target, successful } }) => {
  target?.removeAttribute("aria-busy");
  const asked = asking.get(xhr);
  if (!successful && asked?.at?.isConnected && document.activeElement === document.body) asked.at.focus();
});

// A slow part streams comments about its progress, `<!-- 30/120 -->`, until it is there.
document.addEventListener("htmx:beforeRequest", ({ detail: { xhr, target } }) => {
  const panel = document.createElement("div");
  panel.className = "panel stack tight";
  panel.dataset.bar = "";
  panel.innerHTML = '<p class="row spread"><span>Working</span><span class="meta number"></span></p><progress aria-label="Progress"></progress>';
  xhr.addEventListener("progress", () => {
    const [done, total] = xhr.responseText.match(/<!-- \d+\/\d+ -->/g)?.at(-1).match(/\d+/g).map(Number) ?? [];
    if (done === undefined || !target) return;
    if (!panel.isConnected) target.prepend(panel);
    panel.querySelector(".meta").textContent = total ? `${Math.round((100 * done) / total)} %` : done ? `${done} so far` : "";
    if (total) Object.assign(panel.querySelector("progress"), { max: total, value: done });
  });
  xhr.addEventListener("loadend", () => panel.remove());
});
const LANDING = "[data-focus], h2, h3, .notice, .memory-text, .panel";
document.addEventListener("htmx:afterSettle", ({ detail: { xhr, target } }) => {
  const asked = asking.get(xhr);
  if (!asked?.at || document.activeElement !== document.body) return;
  const made = asked.before ? asked.before.nextElementSibling : asked.parent?.firstElementChild;
  const root = target.isConnected ? target : made;
  if (!root) return;
  const place = root.querySelector("[data-focus]") ?? (root.matches(LANDING) ? root : root.querySelector(LANDING)) ?? root;
  if (place.tabIndex < 0) place.tabIndex = -1;
  place.focus();
});
// What was counted for other words than those of the form by now is no answer any more.
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-clears]");
  if (form) document.querySelector(form.dataset.clears).replaceChildren();
});
// A whole page that is asked for takes a moment, too.
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (event.defaultPrevented || !button || event.target.method !== "get" || event.target.closest("[hx-get]")) return;
  const was = [...button.childNodes];
  button.textContent = button.dataset.busy || "One moment…";
  button.setAttribute("aria-busy", "true");
  setTimeout(() => (button.disabled = true));
  addEventListener("pageshow", () => {
    button.replaceChildren(...was);
    button.removeAttribute("aria-busy");
    button.disabled = false;
  }, { once: true });
});

// Buttons: data-copy="#id" copies a text, data-save="#id" makes a file of it, data-theme-toggle turns the
// lights, data-open opens a dialog.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-save], [data-theme-toggle], [data-open], [data-close]");
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
  } else if (button.dataset.save) {
    const text = document.querySelector(button.dataset.save).textContent;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = button.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
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
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.form?.querySelector("textarea")) {
    event.preventDefault();
    event.target.form.requestSubmit();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") {
      // A browser would empty the search box, and with it the results.
      if (event.target.matches("[data-search]")) event.preventDefault();
      event.target.blur();
    }
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
  const all = [...document.querySelectorAll(".memory")].filter((each) => each.checkVisibility());
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

// A field with data-suggest offers what there is, as far as the reader may see it.
const SCOPE = ["user_id", "agent_id"];
async function offer(field) {
  const asked = new URLSearchParams({ field: field.dataset.suggest, q: field.value.trim() });
  const here = new URLSearchParams(location.search);
  for (const name of field.dataset.suggest === "user_id" ? [] : SCOPE.filter((each) => each !== field.dataset.suggest)) {
    const other = field.form?.elements.namedItem(name);
    const value = other ? other.value.trim() : here.get(name);
    if (value) asked.set(name, value);
  }
  try {
    const answer = await fetch(`/ui/suggest?${asked}`);
    if (!answer.ok) return;
    const { values } = await answer.json();
    let list = document.getElementById(`${field.id}-offers`);
    if (!list) {
      list = document.createElement("datalist");
      list.id = `${field.id}-offers`;
      field.after(list);
      field.setAttribute("list", list.id);
    }
    list.replaceChildren(...values.map((value) => Object.assign(document.createElement("option"), { value })));
  } catch {
    // A field without offers is a field.
  }
}
let offering = 0;
for (const kind of ["focusin", "input"]) {
  document.addEventListener(kind, (event) => {
    const field = event.target.closest?.("input[data-suggest]");
    if (!field) return;
    clearTimeout(offering);
    offering = setTimeout(() => offer(field), kind === "input" ? 200 : 0);
  });
}
// A form with data-reset-on-success is empty once the server has taken it; one with a long text keeps the rest.
document.addEventListener("htmx:afterRequest", ({ target, detail: { successful } }) => {
  if (!successful || !target.matches("form[data-reset-on-success]")) return;
  const text = target.querySelector("textarea");
  if (text) text.value = "";
  else target.reset();
});

// Times are told as they are for the reader, with the zone; the page itself has them in UTC.
const CLOCK = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
function tellTimes(root = document) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    const told = at.toLocaleString(undefined, CLOCK);
    if ("clock" in time.dataset) time.textContent = told;
    else time.title = told;
  }
}
tellTimes();
document.addEventListener("htmx:load", (event) => tellTimes(event.detail.elt));
const zone = Intl.DateTimeFormat(undefined, { timeZoneName: "longOffset" }).formatToParts(new Date());
const offset = zone.find((each) => each.type === "timeZoneName")?.value.replace("GMT", "UTC") ?? "UTC";
for (const each of document.querySelectorAll("[data-zone]")) {
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  each.textContent = name === "UTC" ? "Times are in UTC" : `Times are in ${name}, ${offset}`;
}
