// The map of memories: points on a canvas, drawn in one pass, found again by a grid.
"use strict";

(() => {
  const root = document.querySelector("[data-map]");
  if (!root) return;
  const canvas = root.querySelector("canvas");
  const ink = canvas.getContext("2d");
  const plane = root.querySelector(".map-plane");
  const state = root.querySelector(".map-state");
  const card = root.querySelector(".map-card");
  const legend = root.querySelector(".map-legend");
  const facetBox = root.querySelector("#map-facet");
  const findBox = root.querySelector("#map-find");
  const says = root.querySelector("[data-map-says]");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  const NEAR = 14; // pixels from a point within which it is meant
  const CELLS = 64;
  const MAX_ZOOM = 60;
  const MANY = 1500; // points from which on a picture of them is moved, rather than each of them
  const RESTS = 140; // milliseconds after which what was moved is painted again

  let told = null; // what the server said, once it is there
  let rawX, rawY, x, y, tint, shown, found; // one number per point
  let wide = 1; // how much the plane is wider than high, and the map is stretched with it
  let high = 1;
  let cells; // which points stand in each cell of the plane
  let facet = "type";
  let hidden = new Set();
  let colours = {};
  let font = "sans-serif";
  let sprites = {};
  let view = { scale: 1, x: 0, y: 0 }; // pixels per unit, and the middle of what is seen
  let size = { width: 0, height: 0, dpr: 1 };
  let at = -1; // the point that is meant
  let frame = 0;
  let moving = null;
  let inTint; // the points of each value of the facet
  let resting = 0; // waits until nothing has moved for a moment
  let isMoved = false;
  const kept = document.createElement("canvas"); // the points as they were painted last
  let keptView = null;

  // Data

  fetch(root.dataset.points, { headers: { Accept: "application/json" } })
    .then((answer) => {
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      return answer.json();
    })
    .then(take)
    .catch((error) => {
      state.hidden = false;
      state.textContent = `The map could not be drawn: ${error.message}.`;
    });

  function take(data) {
    if (!data.count) {
      state.textContent = data.waiting
        ? "These memories have no vectors yet; they appear once they are embedded."
        : "There is nothing to map.";
      return;
    }
    told = data;
    rawX = Float32Array.from(data.x, (each) => each / 1000);
    rawY = Float32Array.from(data.y, (each) => each / 1000);
    x = rawX.slice();
    y = rawY.slice();
    shown = new Uint8Array(data.count).fill(1);
    found = new Uint8Array(data.count).fill(1);
    cells = new Map();
    for (let i = 0; i < data.count; i++) {
      const cell = cellOf(rawX[i], rawY[i]);
      if (cells.has(cell)) cells.get(cell).push(i);
      else cells.set(cell, [i]);
    }
    state.hidden = true;
    tellAbout();
    const most = Object.keys(data.facets).find((name) => data.facets[name].values.length > 1);
    const asked = new URLSearchParams(location.search);
    facet = data.facets.type.values.length > 1 ? "type" : most || "type";
    if (Object.hasOwn(data.facets, asked.get("by") ?? "")) facet = asked.get("by");
    facetBox.value = facet;
    findBox.value = asked.get("find") ?? "";
    readColours();
    colourBy(facet);
    find();
    resize();
    lookAt(asked.get("at"));
    root.dataset.ready = "true";
  }

  // The address says what is seen: by which colours, what is looked for, and where.

  function lookAt(told) {
    const [px, py, times] = (told ?? "").split("_").map(Number);
    if (times > 0 && Number.isFinite(px + py)) go({ scale: fitScale() * times, x: px * wide, y: py * high }, false);
    else fit(false);
  }

  function tellAddress() {
    const address = new URL(location.href);
    const set = (name, value) => (value ? address.searchParams.set(name, value) : address.searchParams.delete(name));
    const times = view.scale / fitScale();
    const isWhole = Math.abs(times - 1) < 0.01 && Math.hypot(view.x, view.y) < 0.01;
    set("by", facet);
    set("find", findBox.value.trim());
    set("at", isWhole ? "" : [view.x / wide, view.y / high, times].map((each) => each.toFixed(3)).join("_"));
    if (address.href !== location.href) history.replaceState(history.state, "", address);
  }

  function cellOf(px, py) {
    const column = Math.min(CELLS - 1, Math.max(0, Math.floor(((px + 1) / 2) * CELLS)));
    const row = Math.min(CELLS - 1, Math.max(0, Math.floor(((py + 1) / 2) * CELLS)));
    return row * CELLS + column;
  }

  function tellAbout() {
    const about = document.querySelector("[data-map-about]");
    const number = (value) => value.toLocaleString("en");
    const parts = [];
    if (told.total > told.count + told.waiting) {
      parts.push(`The newest ${number(told.count)} of ${number(told.total)} memories.`);
    } else {
      parts.push(`${number(told.count)} ${told.count === 1 ? "memory" : "memories"}.`);
    }
    if (told.by === "words") {
      parts.push("Laid out by words, because there are no embeddings.");
    }
    if (told.waiting) parts.push(`${number(told.waiting)} more without a vector: they have no text, or wait for one.`);
    about.textContent = `${parts.join(" ")} `;
  }

  // Colours

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    colours = { ink: read("--ink"), quiet: read("--line"), paper: read("--surface"), text: read("--ink-2") };
    for (let i = 0; i < 8; i++) colours[`c${i}`] = read(`--c${i}`);
    // Ages fade from the accent to what is barely there.
    const young = rgb(read("--accent"));
    const old = rgb(read("--line-strong"));
    font = getComputedStyle(canvas).fontFamily;
    for (let i = 0; i < 6; i++) {
      const mixed = young.map((each, n) => Math.round(each + ((old[n] - each) * i) / 5));
      colours[`a${i}`] = `rgb(${mixed.join(" ")})`;
    }
    sprites = {};
  }

  function rgb(hex) {
    return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
  }

  function colourBy(name) {
    facet = name;
    hidden = new Set();
    tint = Uint8Array.from(told.facets[name].of);
    inTint = told.facets[name].values.map(() => []);
    for (let i = 0; i < told.count; i++) inTint[tint[i]].push(i);
    shown.fill(1);
    writeLegend();
    drawAnew();
  }

  function writeLegend() {
    const { values, counts, tints } = told.facets[facet];
    legend.replaceChildren(
      ...values.map((value, i) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "chip map-value";
        button.setAttribute("aria-pressed", "true");
        button.style.setProperty("--tint", colours[tints[i]]);
        const name = document.createElement("span");
        name.className = "map-value-name";
        name.dir = "auto";
        name.textContent = value;
        const count = document.createElement("span");
        count.className = "number map-value-count";
        count.textContent = counts[i].toLocaleString("en");
        button.append(name, count);
        button.addEventListener("click", () => toggle(i, button));
        return button;
      }),
    );
  }

  function toggle(value, button) {
    if (hidden.has(value)) hidden.delete(value);
    else hidden.add(value);
    button.setAttribute("aria-pressed", String(!hidden.has(value)));
    for (let i = 0; i < told.count; i++) shown[i] = hidden.has(tint[i]) ? 0 : 1;
    if (at >= 0 && !shown[at]) mean(-1);
    drawAnew();
  }

  facetBox.addEventListener("change", () => {
    if (!told) return;
    colourBy(facetBox.value);
    tellAddress();
  });
  findBox.addEventListener("input", () => {
    if (!told) return;
    find();
    rest();
  });

  function find() {
    const wanted = findBox.value.trim().toLowerCase();
    let count = 0;
    for (let i = 0; i < told.count; i++) {
      found[i] = !wanted || told.text[i].toLowerCase().includes(wanted) ? 1 : 0;
      count += found[i];
    }
    says.textContent = wanted ? `${count} found on the map` : "";
    drawAnew();
  }

  // Drawing

  function sprite(colour, radius) {
    const key = `${colour} ${radius}`;
    if (!sprites[key]) {
      const edge = Math.ceil(radius * 2 + 2);
      const made = document.createElement("canvas");
      made.width = made.height = edge;
      const pen = made.getContext("2d");
      pen.fillStyle = colours[colour];
      pen.beginPath();
      pen.arc(edge / 2, edge / 2, radius, 0, Math.PI * 2);
      pen.fill();
      sprites[key] = made;
    }
    return sprites[key];
  }

  function radiusOf() {
    const base = told.count > 4000 ? 1.7 : told.count > 800 ? 2.4 : 3.4;
    const zoom = view.scale / fitScale();
    return Math.round(Math.min(8, base * Math.sqrt(zoom)) * size.dpr * 4) / 4;
  }

  function draw() {
    if (!frame) frame = requestAnimationFrame(paint);
  }

  function drawAnew() {
    keptView = null;
    draw();
  }

  // Many points are not painted in each frame of a movement: a picture of them is, and when it
  // rests, they are.
  function rest() {
    clearTimeout(resting);
    resting = setTimeout(() => {
      isMoved = false;
      draw();
      tellAddress();
    }, RESTS);
  }

  function paint() {
    frame = 0;
    if (!told || !size.width) return;
    const { width, height, dpr } = size;
    const w = width * dpr;
    const h = height * dpr;
    const scale = view.scale * dpr;
    const left = w / 2 - view.x * scale;
    const top = h / 2 - view.y * scale;
    ink.clearRect(0, 0, w, h);
    const radius = radiusOf();
    const isSame = keptView && keptView.scale === view.scale && keptView.x === view.x && keptView.y === view.y;
    if (isSame) ink.drawImage(kept, 0, 0);
    else if (keptView && isMoved && told.count > MANY && isNear()) paintKept(w, h, dpr);
    else paintPoints(left, top, scale, radius);
    nameGroups(left, top, scale, dpr);
    if (at >= 0) ring(left + x[at] * scale, top + y[at] * scale, radius, dpr);
  }

  // A picture that was moved too far leaves a gap, and one that has grown too much is blurred.
  function isNear() {
    const grown = view.scale / keptView.scale;
    const dx = Math.abs(keptView.x - view.x) * view.scale;
    const dy = Math.abs(keptView.y - view.y) * view.scale;
    return grown > 0.6 && grown < 2 && dx < size.width / 3 && dy < size.height / 3;
  }

  function paintKept(w, h, dpr) {
    const grown = view.scale / keptView.scale;
    const px = w / 2 + (keptView.x - view.x) * view.scale * dpr - (w / 2) * grown;
    const py = h / 2 + (keptView.y - view.y) * view.scale * dpr - (h / 2) * grown;
    ink.drawImage(kept, px, py, w * grown, h * grown);
  }

  function paintPoints(left, top, scale, radius) {
    const { width: w, height: h } = canvas;
    const tints = told.facets[facet].tints;
    const isTiny = radius < 2.5; // then nobody sees that a point is a square, which is much quicker
    const edge = isTiny ? Math.max(2, Math.round(radius * 1.8)) : 0;
    for (let pass = 0; pass < 2; pass++) {
      // What is not found lies below what is.
      ink.globalAlpha = pass ? 0.86 : 0.7;
      inTint.forEach((points, value) => {
        const colour = pass ? tints[value] : "quiet";
        const image = isTiny ? null : sprite(colour, radius);
        const off = isTiny ? edge / 2 : image.width / 2;
        ink.fillStyle = colours[colour];
        for (const i of points) {
          if (found[i] !== pass || !shown[i]) continue;
          const px = left + x[i] * scale - off;
          const py = top + y[i] * scale - off;
          if (px < -2 * off || py < -2 * off || px > w || py > h) continue;
          if (isTiny) ink.fillRect(Math.round(px), Math.round(py), edge, edge);
          else ink.drawImage(image, px, py);
        }
      });
    }
    ink.globalAlpha = 1;
    if (kept.width !== w || kept.height !== h) [kept.width, kept.height] = [w, h];
    const pen = kept.getContext("2d");
    pen.clearRect(0, 0, w, h);
    pen.drawImage(canvas, 0, 0);
    keptView = { ...view };
  }

  function nameGroups(left, top, scale, dpr) {
    ink.font = `600 ${12 * dpr}px ${font}`;
    ink.textAlign = "center";
    ink.textBaseline = "middle";
    ink.lineJoin = "round";
    ink.lineWidth = 4 * dpr;
    ink.strokeStyle = colours.paper;
    ink.fillStyle = colours.ink;
    const taken = [];
    for (const [name, gx, gy] of told.groups) {
      const half = ink.measureText(name).width / 2 + 6 * dpr;
      let px = left + (gx / 1000) * wide * scale;
      const py = top + (gy / 1000) * high * scale;
      if (px < 0 || py < 0 || px > size.width * dpr || py > size.height * dpr) continue;
      px = Math.max(half, Math.min(size.width * dpr - half, px));
      const box = [px - half, py - 9 * dpr, px + half, py + 9 * dpr];
      // A name that would lie upon another is left out; zooming in makes room for it.
      if (taken.some((each) => box[0] < each[2] && each[0] < box[2] && box[1] < each[3] && each[1] < box[3])) continue;
      taken.push(box);
      ink.strokeText(name, px, py);
      ink.fillText(name, px, py);
    }
  }

  function ring(px, py, radius, dpr) {
    ink.lineWidth = 2 * dpr;
    ink.strokeStyle = colours.ink;
    ink.beginPath();
    ink.arc(px, py, radius + 3 * dpr, 0, Math.PI * 2);
    ink.stroke();
  }

  // Looking around

  function fitScale() {
    return Math.min(size.width / wide, size.height / high) / 2.16;
  }

  function fit(softly = true) {
    go({ scale: fitScale(), x: 0, y: 0 }, softly);
  }

  function go(next, softly = true) {
    cancelAnimationFrame(moving);
    isMoved = true;
    rest();
    const scale = Math.min(fitScale() * MAX_ZOOM, Math.max(fitScale() * 0.6, next.scale));
    const goal = { scale, x: within(next.x, wide * 1.1), y: within(next.y, high * 1.1) };
    if (!softly || calm.matches) {
      view = goal;
      place();
      draw();
      return;
    }
    const from = { ...view };
    const begun = performance.now();
    const step = (now) => {
      // A frame may be dated before the event that asked for it.
      const part = Math.min(1, Math.max(0, (now - begun) / 180));
      const eased = 1 - (1 - part) ** 3;
      for (const name of ["scale", "x", "y"]) view[name] = from[name] + (goal[name] - from[name]) * eased;
      place();
      draw();
      rest();
      if (part < 1) moving = requestAnimationFrame(step);
    };
    moving = requestAnimationFrame(step);
  }

  function within(value, most) {
    return Math.min(most, Math.max(-most, value));
  }

  function zoom(factor, px = size.width / 2, py = size.height / 2, softly = true) {
    const [wx, wy] = world(px, py);
    const scale = Math.min(fitScale() * MAX_ZOOM, Math.max(fitScale() * 0.6, view.scale * factor));
    // What is under the pointer stays under it.
    go({ scale, x: wx - (px - size.width / 2) / scale, y: wy - (py - size.height / 2) / scale }, softly);
  }

  function world(px, py) {
    return [view.x + (px - size.width / 2) / view.scale, view.y + (py - size.height / 2) / view.scale];
  }

  function nearest(px, py) {
    const [wx, wy] = world(px, py);
    const reach = NEAR / view.scale;
    const span = Math.ceil((reach / 2) * CELLS);
    const column = Math.floor(((wx / wide + 1) / 2) * CELLS);
    const row = Math.floor(((wy / high + 1) / 2) * CELLS);
    let best = -1;
    let least = reach * reach;
    for (let r = row - span; r <= row + span; r++) {
      for (let c = column - span; c <= column + span; c++) {
        if (r < 0 || c < 0 || r >= CELLS || c >= CELLS) continue;
        for (const i of cells.get(r * CELLS + c) || []) {
          if (!shown[i]) continue;
          const far = (x[i] - wx) ** 2 + (y[i] - wy) ** 2;
          if (far < least) [least, best] = [far, i];
        }
      }
    }
    return best;
  }

  // Meaning a point

  function mean(point, aloud = false) {
    if (point === at) return;
    at = point;
    card.hidden = at < 0;
    canvas.classList.toggle("is-on-point", at >= 0);
    if (at >= 0) {
      const value = (name) => told.facets[name].named[told.facets[name].is[at]];
      card.querySelector(".map-text").textContent = told.text[at];
      const about = [value("type"), value("user"), dayOf(told.at[at])].join(" · ");
      card.querySelector(".map-meta").textContent = about;
      place();
      if (aloud) says.textContent = `${told.text[at]} ${about}`;
    }
    draw();
  }

  function dayOf(seconds) {
    const day = new Date(seconds * 1000);
    const two = (number) => String(number).padStart(2, "0");
    return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}`;
  }

  function place() {
    if (at < 0) return;
    const px = (x[at] - view.x) * view.scale + size.width / 2;
    const py = (y[at] - view.y) * view.scale + size.height / 2;
    const { offsetWidth: width, offsetHeight: height } = card;
    // Beside the point, or below or above it where there is no room beside.
    const isNarrow = size.width < width * 2 + 48;
    const leftOf = isNarrow ? px - width / 2 : px + 16 + width > size.width ? px - 16 - width : px + 16;
    const topOf = isNarrow ? (py + 16 + height > size.height ? py - 16 - height : py + 16) : py - height / 2;
    card.style.left = `${Math.max(8, Math.min(size.width - width - 8, leftOf))}px`;
    card.style.top = `${Math.max(8, Math.min(size.height - height - 8, topOf))}px`;
  }

  function open(point) {
    const address = new URL("/memory", location.origin);
    for (const [name, value] of new URLSearchParams(location.search)) {
      if (name.endsWith("_id")) address.searchParams.set(name, value);
    }
    address.searchParams.set("id", told.id[point]);
    location.assign(address);
  }

  // The nearest point in a direction; a little aside counts as far, so that rows are kept.
  function towards(dx, dy) {
    const [ox, oy] = at >= 0 ? [x[at], y[at]] : [view.x, view.y];
    let best = -1;
    let least = Infinity;
    for (let i = 0; i < told.count; i++) {
      if (i === at || !shown[i] || !found[i]) continue;
      const ahead = (x[i] - ox) * dx + (y[i] - oy) * dy;
      const aside = Math.abs((x[i] - ox) * dy - (y[i] - oy) * dx);
      if (at >= 0 && ahead <= 0) continue;
      const far = at >= 0 ? ahead + 3 * aside : (x[i] - ox) ** 2 + (y[i] - oy) ** 2;
      if (far < least) [least, best] = [far, i];
    }
    return best;
  }

  canvas.addEventListener("keydown", (event) => {
    if (!told || event.ctrlKey || event.metaKey || event.altKey) return;
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const way = ways[event.key];
    if (way && event.shiftKey) {
      go({ ...view, x: view.x + (way[0] * 60) / view.scale, y: view.y + (way[1] * 60) / view.scale });
    } else if (way) {
      const next = towards(...way);
      if (next >= 0) {
        mean(next, true);
        intoView(next);
      }
    } else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "0") fit();
    else if (event.key === "Enter" && at >= 0) open(at);
    else if (event.key === "Escape") mean(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  function intoView(point) {
    const px = (x[point] - view.x) * view.scale;
    const py = (y[point] - view.y) * view.scale;
    if (Math.abs(px) > size.width * 0.45 || Math.abs(py) > size.height * 0.45) go({ ...view, x: x[point], y: y[point] });
  }

  // Pointers: one drags, two pinch, none that moved opens.

  const pointers = new Map();
  let dragged = 0;
  let spread = 0;
  const where = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (!told || event.button) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, where(event));
    dragged = pointers.size > 1 ? Infinity : 0;
    spread = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!told) return;
    const now = where(event);
    const before = pointers.get(event.pointerId);
    if (!before) {
      mean(nearest(...now));
      return;
    }
    pointers.set(event.pointerId, now);
    if (pointers.size > 1) {
      const [one, other] = [...pointers.values()];
      const apart = Math.hypot(one[0] - other[0], one[1] - other[1]);
      if (spread) zoom(apart / spread, (one[0] + other[0]) / 2, (one[1] + other[1]) / 2, false);
      spread = apart;
      return;
    }
    dragged += Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (dragged > 4) {
      canvas.classList.add("is-dragged");
      go({ ...view, x: view.x - (now[0] - before[0]) / view.scale, y: view.y - (now[1] - before[1]) / view.scale }, false);
    }
  });
  const release = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    canvas.classList.remove("is-dragged");
    if (event.type === "pointercancel" || dragged > 4) return;
    const point = nearest(...where(event));
    // A finger cannot hover: the first touch shows, the second opens.
    if (point >= 0 && (event.pointerType === "mouse" || point === at)) open(point);
    else mean(point);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => !pointers.size && mean(-1));
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!told) return;
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      zoom(Math.exp((-event.deltaY * lines) / 300), ...where(event), false);
    },
    { passive: false },
  );
  root.addEventListener("click", (event) => {
    const way = event.target.closest("[data-zoom]")?.dataset.zoom;
    if (!way || !told) return;
    if (way === "fit") fit();
    else zoom(way === "in" ? 1.6 : 1 / 1.6);
  });

  // The window and the lights

  function resize() {
    if (!plane.clientWidth || !plane.clientHeight) return; // it is not to be seen, and has no scale
    const before = size.width ? view.scale / fitScale() : 1;
    size = { width: plane.clientWidth, height: plane.clientHeight, dpr: Math.min(2, devicePixelRatio || 1) };
    wide = Math.min(1.9, Math.max(1, size.width / size.height));
    high = Math.min(1.5, Math.max(1, size.height / size.width));
    if (told) {
      for (let i = 0; i < told.count; i++) {
        x[i] = rawX[i] * wide;
        y[i] = rawY[i] * high;
      }
    }
    canvas.width = Math.round(size.width * size.dpr);
    canvas.height = Math.round(size.height * size.dpr);
    view.scale = before * fitScale();
    keptView = null;
    if (told) {
      place();
      paint();
    }
  }
  new ResizeObserver(resize).observe(plane);

  function relight() {
    if (!told) return;
    readColours();
    writeLegendTints();
    drawAnew();
  }
  function writeLegendTints() {
    const { tints } = told.facets[facet];
    [...legend.children].forEach((each, i) => each.style.setProperty("--tint", colours[tints[i]]));
  }
  document.addEventListener("orbiter:theme", relight);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", relight);
})();
