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
    for (const each of document.querySelectorAll("[data-theme-toggle]")) each.setAttribute("aria-pressed", isDark);
  }
  tell();
  document.addEventListener("orbiter:theme", tell);
  system.addEventListener("change", tell);
})();
