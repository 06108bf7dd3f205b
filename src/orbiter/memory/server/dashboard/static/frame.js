// The frame of every page: the menu of a phone, what is folded there, and the buttons of the theme.
"use strict";

(() => {
  // What stands around the content is out of the way on a phone until it is wanted.
  if (matchMedia("(max-width: 56rem)").matches) {
    for (const folded of document.querySelectorAll("[data-folds]")) folded.open = false;
  }

  const menu = document.querySelector("[data-menu]");
  document.addEventListener("click", (event) => {
    if (menu.open && (!menu.contains(event.target) || event.target.closest("[data-open]"))) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });

  const system = matchMedia("(prefers-color-scheme: dark)");
  function tell() {
    const chosen = document.documentElement.dataset.theme;
    const isDark = chosen ? chosen === "dark" : system.matches;
    const next = isDark ? "Light theme" : "Dark theme"; // what a press does
    for (const each of document.querySelectorAll("[data-theme-toggle]")) {
      const name = each.querySelector("[data-theme-name]");
      if (name) name.textContent = next;
      else each.setAttribute("aria-label", next);
      each.title = `Switch to the ${next.toLowerCase()}`;
    }
  }
  tell();
  document.addEventListener("orbiter:theme", tell);
  system.addEventListener("change", tell);
})();
