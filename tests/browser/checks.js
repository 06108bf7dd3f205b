// What must be true of any page, as far as a script can tell: names, order, contrast, width.
() => {
  const wrong = [];
  const seen = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);
  const said = (element) => element.outerHTML.replace(/\s+/g, " ").slice(0, 120);

  // The frame
  if (!document.title.trim()) wrong.push("has no title");
  if (!document.documentElement.lang) wrong.push("has no language");
  const heads = all("h1");
  if (heads.length !== 1 || !heads[0].textContent.trim()) wrong.push(`has ${heads.length} h1`);
  if (document.querySelectorAll("main").length !== 1) wrong.push("has not one main");
  let level = 1;
  for (const head of all("main h1, main h2, main h3, main h4, main h5")) {
    const own = Number(head.tagName[1]);
    if (own > level + 1) wrong.push(`goes from h${level} to ${said(head)}`);
    level = own;
  }
  const ids = new Map();
  for (const each of document.querySelectorAll("[id]")) ids.set(each.id, (ids.get(each.id) || 0) + 1);
  for (const [id, count] of ids) if (count > 1) wrong.push(`has ${count} elements of the id ${id}`);

  // Names
  for (const field of all("input:not([type=hidden]), select, textarea")) {
    const label = [...(field.labels || [])].map((each) => each.textContent).join("").trim();
    if (!label && !field.getAttribute("aria-label") && !field.getAttribute("aria-labelledby")) {
      wrong.push(`has a field without a label: ${said(field)}`);
    }
  }
  for (const each of all("a[href], button, summary, [role=button], [role=tab]")) {
    const name = each.getAttribute("aria-label") || each.getAttribute("aria-labelledby") || each.textContent.trim();
    if (!name) wrong.push(`has something to press without a name: ${said(each)}`);
  }
  for (const each of all("img:not([alt]), svg[role=img]:not([aria-label]):not([aria-labelledby])")) {
    wrong.push(`has a picture without words: ${said(each)}`);
  }

  // Width
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) {
    const wide = all("main *").filter((each) => each.getBoundingClientRect().right > page.clientWidth + 1);
    wrong.push(`is ${page.scrollWidth} wide in ${page.clientWidth}: ${wide.slice(0, 2).map(said).join(" ")}`);
  }

  // Contrast
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const numbers = (colour) => {
    if (!known.has(colour)) {
      paint.clearRect(0, 0, 1, 1);
      paint.fillStyle = colour;
      paint.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = paint.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = (top, below) => [0, 1, 2].map((n) => top[n] * top[3] + below[n] * (1 - top[3])).concat(1);
  const ground = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const colour = numbers(getComputedStyle(each).backgroundColor);
      if (colour[3]) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((each) => each / 255).map((each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const told = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    // One of each kind is enough: the same classes inside the same classes have the same colours.
    const what = [element, element.parentElement, element.parentElement?.parentElement]
      .map((each) => each && `${each.tagName}.${each.getAttribute("class")}${each.ariaCurrent || ""}`).join(" in ");
    if (told.has(what)) continue;
    if (!walker.currentNode.data.trim() || !seen(element) || element.closest("svg, option, [disabled], .hidden-text, .skip, dialog:not([open])")) continue;
    told.add(what);
    const style = getComputedStyle(element);
    const below = ground(element);
    const [a, b] = [light(over(numbers(style.color), below)), light(below)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (ratio < least) wrong.push(`is hard to read, ${ratio.toFixed(2)}: ${said(element)}`);
  }
  return JSON.stringify(wrong);
}
