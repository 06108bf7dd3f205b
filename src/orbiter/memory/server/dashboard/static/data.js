// Sends a file to be imported, and draws how far it is and what became of it.
"use strict";
{
  const form = document.querySelector("#import");
  const find = (name, root = document) => root.querySelector(`[data-${name}]`);
  const report = find("report");
  const countAgain = () =>
    htmx.ajax("GET", location.pathname + location.search, { target: "#stored", select: "#stored", swap: "outerHTML" });
  document.addEventListener("htmx:load", ({ detail: { elt } }) => elt.matches("[data-changed]") && countAgain());

  if (form) {
    const drop = form.querySelector(".drop");
    const input = form.elements.file;
    const button = form.querySelector("button");
    let file = null;

    const choose = (chosen) => {
      file = chosen || null;
      button.disabled = !file;
      find("chosen").textContent = file ? `${file.name}, ${size(file.size)}` : "No file selected.";
      drop.classList.toggle("has-file", Boolean(file));
    };
    input.addEventListener("change", () => choose(input.files[0]));
    for (const name of ["dragenter", "dragover"]) {
      drop.addEventListener(name, (event) => {
        event.preventDefault();
        drop.classList.add("is-over");
      });
    }
    drop.addEventListener("dragleave", () => drop.classList.remove("is-over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("is-over");
      choose(event.dataTransfer.files[0]);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!file) return;
      if (file.size > Number(form.dataset.most)) {
        window.orbiter.say(`This server takes files up to ${size(Number(form.dataset.most))}.`, "bad");
        return;
      }
      if (form.ariaBusy === "true") return;
      form.ariaBusy = "true";
      send(file).finally(() => (form.ariaBusy = null));
    });
  }

  function address(file) {
    const asked = new URLSearchParams(location.search);
    const url = new URLSearchParams();
    for (const name of ["agent_id", "session_id", "task_id"]) if (asked.get(name)) url.set(name, asked.get(name));
    const user = form.elements.user_id ? form.elements.user_id.value.trim() : "";
    if (user) url.set("user_id", user);
    if (form.elements.user_id && !url.size) url.set("everyone", "true");
    const owner = form.elements.owner.value.trim();
    if (owner) url.set("owner", owner);
    url.set("format", form.elements.format.value);
    url.set("name", file.name);
    return `${form.dataset.url}?${url}`;
  }

  // A request of the old kind: only it tells how much of a file is sent.
  function send(file, { isAgain = false } = {}) {
    show("Sending", 0);
    report.hidden = true;
    return new Promise((done) => {
      const request = new XMLHttpRequest();
      let read = 0;
      let last = null;
      request.open("POST", address(file));
      request.setRequestHeader("X-Orbiter-Token", window.orbiter.token());
      request.setRequestHeader("Content-Type", "application/octet-stream");
      request.upload.addEventListener("progress", (event) => show("Sending", event.loaded / event.total));
      request.upload.addEventListener("load", () => show("Reading", 0));
      const lines = () => {
        if (request.status !== 200) return;
        const until = request.responseText.lastIndexOf("\n");
        if (until < read) return;
        for (const line of request.responseText.slice(read, until).split("\n")) {
          if (!line) continue;
          last = JSON.parse(line);
          if (last.of) show("Storing", last.read / last.of);
        }
        read = until + 1;
      };
      request.addEventListener("progress", lines);
      request.addEventListener("loadend", async () => {
        lines();
        find("progress").hidden = true;
        let wrong = last?.report ? "" : why(request, last);
        if (window.orbiter.isStale(request.status, wrong)) {
          if (!isAgain && (await window.orbiter.renew())) return send(file, { isAgain: true }).then(done);
          wrong = window.orbiter.RESTARTED;
        }
        if (wrong) failed(request, wrong);
        else told(last.report);
        done();
      });
      request.send(file);
    });
  }

  function why(request, last) {
    if (last?.error) return last.error.detail;
    if (request.status === 200) return "The connection was lost before the report arrived; import it again, nothing is stored twice.";
    try {
      return JSON.parse(request.responseText).detail;
    } catch {
      return request.status ? `The server answered ${request.status}.` : "The server cannot be reached.";
    }
  }

  function show(step, share) {
    find("progress").hidden = false;
    find("step").textContent = step;
    find("share").textContent = `${Math.round(100 * share)} %`;
    form.querySelector("progress").value = 100 * share;
  }

  // It says first whether anything is stored: before the answer begins, nothing is.
  function failed(request, text) {
    const isRefused = request.status >= 400 && request.status < 500;
    const rest = request.status === 200 ? "Everything before is stored; importing it again stores nothing twice." : "";
    shown(isRefused ? "Nothing was stored" : "The import was interrupted", false);
    problem(text.replace(/\b(line \d+): this is not a valid record.*/, "$1 is damaged: it is not a valid record"), "bad");
    if (rest) problem(rest, "");
    if (request.status === 403 && form.elements.user_id?.value.trim()) {
      problem("The file names its users itself. Leave the field User empty to import it as it is, or fill in Owner in the file to copy it for this user.", "");
    }
  }

  function shown(head, isDone) {
    report.hidden = false;
    report.querySelector("dl").hidden = !isDone;
    find("look").parentElement.hidden = !isDone;
    find("problems").replaceChildren();
    find("head").textContent = head;
    find("head").focus();
  }

  function problem(text, kind) {
    const line = document.createElement("li");
    line.className = `notice ${kind}`;
    const words = document.createElement("span");
    window.orbiter.tell(words, text);
    line.append(words);
    find("problems").append(line);
  }

  function told(result) {
    shown(result.stored || result.updated ? `Imported as ${result.format}` : `Nothing new: ${result.format || "an empty file"}`, true);
    for (const place of report.querySelectorAll("[data-count]")) {
      place.textContent = (result[place.dataset.count] || 0).toLocaleString();
    }
    for (const each of result.notes) problem(each, "warn");
    for (const each of result.problems.slice(0, 20)) problem(`${each.place}: ${each.why}`, "warn");
    const user = form.elements.user_id?.value.trim();
    if (user) find("look").href = `/memories?${new URLSearchParams({ user_id: user })}`;
    countAgain();
  }

  function size(bytes) {
    const units = ["B", "KB", "MB", "GB"];
    let at = 0;
    while (bytes >= 1000 && at < units.length - 1) {
      bytes /= 1000;
      at += 1;
    }
    return `${bytes < 10 && at ? bytes.toFixed(1) : Math.round(bytes)} ${units[at]}`;
  }
}
