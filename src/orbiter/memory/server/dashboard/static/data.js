// Sends a file to be imported, and shows how far it is and what became of it.
"use strict";
{
  const form = document.querySelector("#import");
  const find = (name) => document.querySelector(`[data-${name}]`);
  const countAgain = () =>
    htmx.ajax("GET", location.pathname + location.search, { target: "#stored", select: "#stored", swap: "outerHTML" });
  document.addEventListener("htmx:load", ({ detail: { elt } }) => elt.matches("[data-changed]") && countAgain());

  if (form) {
    const drop = form.querySelector(".drop");
    let file = null;
    const choose = (chosen) => {
      file = chosen || null;
      form.querySelector("button").disabled = !file;
      find("chosen").textContent = file ? file.name : "No file selected.";
      drop.classList.toggle("has-file", Boolean(file));
    };
    form.elements.file.addEventListener("change", (event) => choose(event.target.files[0]));
    for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
      drop.addEventListener(kind, (event) => {
        event.preventDefault();
        drop.classList.toggle("is-over", kind.startsWith("drage") || kind === "dragover");
        if (kind === "drop") choose(event.dataTransfer.files[0]);
      });
    }
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!file || form.ariaBusy === "true") return;
      form.ariaBusy = "true";
      find("report").hidden = true;
      const { most, mostSaid } = form.dataset;
      const isLarge = file.size > Number(most);
      let answer = isLarge ? { status: 413, wrong: `This server takes files up to ${mostSaid}.` } : await send(file);
      if (window.orbiter.isStale(answer.status, answer.wrong) && (await window.orbiter.renew())) answer = await send(file);
      find("progress").hidden = true;
      form.ariaBusy = null;
      if (answer.report) succeed(answer.report);
      else fail(answer);
    });
  }

  function address(file) {
    const url = new URLSearchParams();
    const asked = new URLSearchParams(location.search);
    for (const name of ["agent_id", "session_id", "task_id"]) if (asked.get(name)) url.set(name, asked.get(name));
    for (const name of ["user_id", "owner"]) {
      const value = form.elements[name]?.value.trim();
      if (value) url.set(name, value);
    }
    if (form.elements.user_id && ![...url.keys()].some((name) => name.endsWith("_id"))) url.set("everyone", "true");
    url.set("format", form.elements.format.value);
    url.set("name", file.name);
    return `/v1/import?${url}`;
  }

  // The answer is lines of JSON: how far it is, and at last a report or an error. Only a request of
  // the old kind says how much of a file is sent.
  function send(file) {
    return new Promise((done) => {
      const request = new XMLHttpRequest();
      request.open("POST", address(file));
      request.setRequestHeader("X-Orbiter-Token", window.orbiter.token());
      request.setRequestHeader("Content-Type", "application/octet-stream");
      request.upload.addEventListener("progress", (event) => show("Sending", event.loaded / event.total));
      const last = () => JSON.parse(request.responseText.split("\n").at(-2) || "{}");
      request.addEventListener("progress", () => {
        if (request.status === 200 && last().of) show("Storing", last().read / last().of);
      });
      request.addEventListener("loadend", () => {
        const status = request.status;
        if (status === 200) {
          const { report, error } = last();
          return done({ status, report, wrong: error?.detail ?? "The connection was lost before the report arrived." });
        }
        let wrong = status ? `The server answered ${status}.` : "The server cannot be reached.";
        try {
          wrong = JSON.parse(request.responseText).detail;
        } catch {
          // It is no problem document.
        }
        done({ status, wrong });
      });
      request.send(file);
    });
  }

  function show(step, share) {
    find("progress").hidden = false;
    find("step").textContent = step;
    find("share").textContent = `${Math.round(100 * share)} %`;
    form.querySelector("progress").value = 100 * share;
  }

  function shown(head, isDone) {
    const report = find("report");
    report.hidden = false;
    report.querySelector("dl").hidden = find("look").parentElement.hidden = !isDone;
    find("problems").replaceChildren();
    find("head").textContent = head;
    find("head").focus();
  }

  function problem(text, kind = "") {
    const line = document.createElement("li");
    line.className = `notice ${kind}`;
    const words = document.createElement("span");
    window.orbiter.tell(words, text);
    line.append(words);
    find("problems").append(line);
  }

  // It says first whether anything is stored: before the answer begins, nothing is.
  function fail({ status, wrong }) {
    shown(status >= 400 && status < 500 ? "Nothing was stored" : "The import was interrupted", false);
    problem(wrong.replace(/\b(line \d+): this is not a valid record.*/, "$1 is damaged: it is not a valid record"), "bad");
    if (status === 200) problem("Everything before is stored; importing it again stores nothing twice.");
    if (status === 403 && form.elements.user_id?.value.trim()) {
      problem("The file names its users itself. Leave the field User empty to import it as it is, or fill in Owner in the file to copy it for this user.");
    }
  }

  function succeed(report) {
    shown(report.stored || report.updated ? `Imported as ${report.format}` : `Nothing new: ${report.format || "an empty file"}`, true);
    for (const place of document.querySelectorAll("[data-count]")) {
      place.textContent = (report[place.dataset.count] || 0).toLocaleString();
    }
    for (const each of report.notes) problem(each, "warn");
    for (const each of report.problems.slice(0, 20)) problem(`${each.place}: ${each.why}`, "warn");
    const user = form.elements.user_id?.value.trim();
    if (user) find("look").href = `/memories?${new URLSearchParams({ user_id: user })}`;
    countAgain();
  }
}
