// The page: choices of the reader, the panels, keyboard, player, export, address.

const $ = (id) => document.getElementById(id);
const CHOICES = {
  example: 0, step: -1, kind: "", layer: 0, head: "mean", view: "", query: -1, key: -1,
  scale: "linear", threshold: 0, hide: false, opacity: 0.8, difference: false, table: "",
};
const OF_WEIGHTS = ["key", "scale", "threshold", "hide", "difference", "table"]; // not of a path
const CONTROLS = Object.keys(CHOICES).filter((name) => name !== "query" && name !== "key");
const MS_PER_STEP = 700, MAX_BUTTONS = 256, MAX_CELLS = 16_384; // of a table
// Parts of a result that some moments of a training lack.
const PARTS = {
  memory: ({ maps }) => maps.some(hasMemory),
  search: ({ tree }) => Boolean(tree),
  scores: ({ maps }) => maps.some(hasScores),
};

class App {
  constructor(page) {
    this.page = page;
    this.attentions = new Map();
    this.choices = { ...CHOICES, ...this.#fromAddress() };
    this.isLocked = false;
    this.#fill();
    this.#listen();
    this.update();
  }

  // --- what is chosen ---

  #fromAddress() {
    const given = {};
    for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
      if (name in CHOICES) given[name] = choiceOf(name, text);
    }
    return given;
  }

  #toAddress() {
    const changed = Object.entries(this.choices).filter(([name, value]) => value !== CHOICES[name]);
    if (location.protocol === "about:") return;  // a notebook's frame has no address
    history.replaceState(null, "", `#${new URLSearchParams(changed)}`);
  }

  get example() {
    return this.page.examples[this.choices.example];
  }

  // The result of each run for the example, at the chosen moment of the training.
  get results() {
    const { step } = this.choices;
    return this.example.results.map((moments) => moments.at(step) ?? moments.at(-1));
  }

  // All layers of the chosen kind of attention of a result.
  layers(result) {
    const maps = result.maps.filter((map) => map.name === this.choices.kind);
    return (maps.length ? maps : result.maps.slice(0, 1)).map((map) => this.#attention(map));
  }

  #attention(map) {
    if (!this.attentions.has(map)) this.attentions.set(map, new Attention(this.page, map));
    return this.attentions.get(map);
  }

  look(result) {
    const all = this.layers(result), choices = { ...this.choices, width: this.width };
    const layer = inside(choices.layer, all.length);
    const attention = all[layer];
    if (!attention) return null;
    choices.query = choices.query < 0 ? attention.firstRow : inside(choices.query, attention.rows);
    if (typeof choices.head === "number") choices.head = inside(choices.head, attention.heads);
    else if (choices.head !== "max") choices.head = mixture(choices.head.split("+"), attention.heads);
    const { head, query, key } = choices; // by default, the key with the largest weight
    choices.key = key < 0 ? attention.best(head, query) : inside(key, attention.columns);
    return Object.assign(new Look(attention, choices), { all, layer, tree: result.tree, choices: { ...choices, layer } });
  }

  get width() {
    const room = $("panels").clientWidth || WIDTH;
    return Math.max(280, room / (room > 900 ? this.page.runs.length : 1) - 40);
  }

  get looks() {
    return this.results.map((result) => this.look(result)).filter(Boolean);
  }

  // True if every run shows a path of boxes, not weights.
  get isPath() {
    const { looks } = this;
    return looks.length > 0 && looks.every(({ attention }) => attention.isPath);
  }

  // Constrains the choices to what the example has.
  #settle() {
    const { choices, page } = this;
    choices.example = inside(choices.example, page.examples.length);
    const moments = page.steps.length;
    choices.step = choices.step < 0 || choices.step >= moments ? moments - 1 : choices.step;
    const kinds = this.kinds;
    if (!kinds.includes(choices.kind)) choices.kind = kinds.includes("cross") ? "cross" : kinds[0] ?? "";
    if (this.isPath) for (const name of OF_WEIGHTS) choices[name] = CHOICES[name];
    const [look] = this.looks;
    if (!look) return;
    const { layer, query, key, head } = look.choices;
    Object.assign(choices, { layer, query, key, head });
    const { views } = this; // the choice stays, for moments that have it
    this.view = views.includes(choices.view) ? choices.view : views[0];
  }

  get kinds() {
    return [...new Set(this.results.flatMap((result) => result.maps.map((map) => map.name)))];
  }

  // The views that the attention has; the first is the default.
  get views() {
    const { looks } = this;
    if (!looks.length) return ["map"];
    if (this.isPath) return ["image"];
    const views = ["map", "ribbons"];
    if (looks.every(({ attention }) => attention.places)) views.unshift("image");
    if (looks.every(({ attention }) => hasMemory(attention))) views.unshift("memory");
    if (looks.every(({ tree }) => tree)) views.push("search");
    if (looks.some(({ all }) => all.length * all[0].heads > 1)) views.push("heads");
    return views;
  }

  // --- the controls ---

  #fill() {
    const { page } = this;
    document.title = page.title;
    $("title").textContent = page.title;
    options($("example"), page.examples.map((each, i) => [i, `${i + 1}. ${shorten(each.title, 70)}`]));
    $("step-row").hidden = page.steps.length < 2;
    $("step").max = page.steps.length - 1;
    $("difference-row").hidden = page.runs.length !== 2;
  }

  #listen() {
    const set = (name, read) => ({ target }) => {
      this.choices[name] = read(target);
      this.update();
    };
    const mixed = () => [...$("mixture").querySelectorAll(":checked")].map((e) => e.value).join("+");
    for (const name of CONTROLS) {
      $(name).addEventListener("input", set(name, (e) => choiceOf(name, `${e.type === "checkbox" ? e.checked : e.value}`)));
    }
    $("mixture").addEventListener("input", set("head", mixed));
    $("play").addEventListener("click", () => this.#play());
    $("svg").addEventListener("click", () => this.export("svg"));
    $("png").addEventListener("click", () => this.export("png"));
    $("copy").addEventListener("click", () => this.#copy());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.update());
    let width = innerWidth; // a frame that grows, or a bar of a phone, changes the height alone
    addEventListener("resize", () => {
      if (innerWidth === width) return;
      width = innerWidth;
      this.update();
    });
    addEventListener("hashchange", () => {
      this.choices = { ...CHOICES, ...this.#fromAddress() };
      this.update();
    });
  }

  #showControls() {
    const { choices, looks } = this, [look] = looks;
    const heads = look ? look.attention.heads : 1, layers = look ? look.all : [];
    options($("kind"), this.kinds.map((kind) => [kind, kind]));
    options($("layer"), layers.map((each, i) => [i, each.layer + 1]));
    const names = heads > 1 ? [["mean", "mean"], ["max", "maximum"]] : [["mean", "the only one"]];
    const numbers = Array.from({ length: heads > 1 ? heads : 0 }, (_, i) => [i, i + 1]);
    const chosen = /\+/.test(choices.head) ? choices.head.split("+") : [];
    const some = heads > 2 ? [[chosen.join("+") || "0+1", "mean of some"]] : [];
    options($("head"), [...names, ...some, ...numbers]);
    this.#showMixture(chosen, heads);
    const titles = { map: "map", ribbons: "ribbons", image: "image", heads: "all heads", memory: "memory", search: "search" };
    options($("view"), this.views.map((view) => [view, titles[view]]));
    for (const name of CONTROLS) {
      if (typeof choices[name] === "boolean") $(name).checked = choices[name];
      else $(name).value = choices[name];
    }
    $("view").value = this.view;
    document.body.classList.toggle("path", this.isPath);
    $("opacity-row").hidden = this.view !== "image" || !look?.attention.image;
    for (const name of heatMap.controls) {
      $(name).closest("label").hidden = !VIEWS[this.view]?.controls?.includes(name);
    }
    const labels = looks.flatMap(({ attention: a }) => [...a.queries, ...a.keys]);
    if (!labels.some((label) => NO_OP.has(label))) $("hide").closest("label").hidden = true;
    $("play").hidden = matchMedia("(prefers-reduced-motion: reduce)").matches || !look || look.attention.rows < 2;
    $("step-text").textContent = this.page.steps[choices.step];
    $("step").setAttribute("aria-valuetext", this.page.steps[choices.step]);
    $("threshold-text").textContent = choices.threshold.toFixed(2);
    $("command").textContent = this.example.command;
    $("how").hidden = !this.example.command;
  }

  // The heads of a mixture as boxes to check.
  #showMixture(chosen, heads) {
    const box = (h) => element("label", {}, element("input", { type: "checkbox", value: h }), `${h + 1}`);
    if ($("mixture").childElementCount !== heads) {
      $("mixture").replaceChildren(...Array.from({ length: heads }, (_, h) => box(h)));
    }
    for (const each of $("mixture").querySelectorAll("input")) each.checked = chosen.includes(each.value);
    $("mixture").hidden = !chosen.length;
  }

  // --- the panels ---

  update() {
    this.#settle();
    this.#showControls();
    const panels = this.results.map((result, run) => this.#panel(result, this.page.runs[run], this.example.results[run]));
    if (this.choices.difference) panels.push(this.#difference());
    const canvases = () => [...$("panels").querySelectorAll("canvas[tabindex]")];
    const focused = canvases().indexOf(document.activeElement);
    $("panels").replaceChildren(...panels);
    canvases()[focused]?.focus({ preventScroll: true });
    this.choose(this.choices.query, this.choices.key);
  }

  #panel(result, run, moments) {
    const look = this.look(result), figure = element("figure", { className: "panel" });
    figure.style.maxWidth = `${this.width + 20}px`;
    figure.append(element("figcaption", {}, element("strong", { textContent: run.name })));
    figure.append(element("p", { className: "answer", textContent: shorten(result.text, 400), dir: "auto" }));
    if (result.caption && result.caption !== result.text) figure.append(element("p", { className: "note", textContent: result.caption }));
    const missing = Object.keys(PARTS).filter((name) => !PARTS[name](result) && moments.some(PARTS[name]));
    if (missing.length) figure.append(element("p", { className: "note", textContent: `${missing.join(", ")}: not stored for this step` }));
    if (!look) {
      figure.append(element("p", { textContent: "This model has no attention." }));
      return figure;
    }
    const drawn = this.#drawn(figure, look, VIEWS[this.view], run.name);
    if (!look.attention.isPath) drawn.after(element("div", { className: "row" }));
    const marked = this.view === "map" && look.attention.isSingle(look.head) && marksNote(look.attention);
    // Below the drawing, so that the drawings of two runs stand at one height.
    for (const textContent of [look.attention.note, marked].filter(Boolean)) {
      figure.append(element("p", { className: "note", textContent }));
    }
    if (this.view === "image" && !look.attention.queryPlaces) figure.append(this.#steps(look));
    if (workingsOf(look.attention) && !["heads", "search"].includes(this.view)) {
      const scores = element("canvas", { className: "scores" });
      scores.setAttribute("role", "img");
      const drawn = element("div", { className: "view" }, scores);
      figure.append(element("div", { className: "beside" }, drawn, element("div", { className: "terms" })));
    }
    if (this.choices.table) figure.append(...tableOf(look, run.name, this.choices.table === "all"));
    return figure;
  }

  // Adds the drawing of a look to a figure, with marks above it; returns its element.
  #drawn(figure, look, view, name) {
    const canvas = element("canvas", { tabIndex: 0 }), marks = element("canvas", { className: "marks" });
    canvas.setAttribute("role", "img");
    const drawn = element("div", { className: "view" }, canvas, marks);
    figure.append(element("div", { className: "beside" }, drawn));
    Object.assign(figure, { look, view, canvas, marks, name });
    this.#paint(figure);
    this.#follow(figure);
    return drawn;
  }

  // The queries as buttons, for a view that has no rows.
  #steps(look) {
    const button = (q) => {
      const made = element("button", { type: "button", textContent: shorten(look.attention.queries[q]).trim() || "␣" });
      made.dataset.query = q;
      made.addEventListener("click", () => this.#toStep(look, q));
      return made;
    };
    return element("div", { className: "steps" }, ...look.rows.slice(0, MAX_BUTTONS).map(button));
  }

  #paint({ look, view, canvas }) {
    view.paint(new CanvasPainter(canvas, ...view.size(look)), look);
    const { attention: a } = look;
    const size = a.isPath ? `${a.titles[0]} ${look.query + 1} of ${a.rows}` : `${a.rows} ${a.titles[0]} by ${a.columns} ${a.titles[1]}`;
    canvas.setAttribute("aria-label", `${a.name} attention, ${size}; arrow keys move`);
  }

  #follow(figure) {
    const { canvas, view } = figure;
    const point = (event) => [event.offsetX, event.offsetY];
    canvas.addEventListener("pointermove", (event) => {
      const at = !this.isLocked && view.at?.(figure.look, ...point(event));
      if (at) this.choose(...at);
    });
    canvas.addEventListener("click", (event) => {
      const picked = view.pick?.(figure.look, ...point(event));
      if (picked) {
        Object.assign(this.choices, picked, { view: "map" });
        this.update();
        return;
      }
      const at = view.at?.(figure.look, ...point(event));
      this.isLocked = at ? !this.isLocked : false;
      if (at) this.choose(...at);
    });
    canvas.addEventListener("keydown", (event) => this.#key(event, figure));
  }

  #key(event, { look, view }) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key], toggles = event.key === "Enter" || event.key === " ";
    if (!move && !toggles && event.key !== "Escape") return;
    event.preventDefault();
    if (!move) {
      this.isLocked = toggles && !this.isLocked;
      this.choose(look.query, look.key);
      return;
    }
    const next = (list, at, by) => list[Math.min(Math.max(list.indexOf(at) + by, 0), list.length - 1)];
    if (look.attention.isPath || view.isLine) return this.#toStep(look, next(look.rows, look.query, move[0] + move[1]));
    this.choose(next(look.rows, look.query, move[0]), next(look.columns, look.key, move[1]));
  }

  // Moves to a query and the key of its largest weight.
  #toStep({ attention, head }, query) {
    this.choose(query, attention.best(head, query));
  }

  // Moves to a query and a key, in all panels; the panels themselves stay.
  choose(query, key) {
    const isNew = query !== this.choices.query;
    Object.assign(this.choices, { query, key });
    for (const figure of $("panels").children) {
      if (!figure.look) continue;
      const { attention: a } = figure.look;
      figure.look.query = Math.min(query, a.rows - 1);
      figure.look.key = Math.min(key, a.columns - 1);
      const { look, view, marks } = figure;
      if (isNew && !view.showsAllQueries) this.#paint(figure);
      const above = new CanvasPainter(marks, ...view.size(look));
      view.mark?.(above, look);
      if (view.edges) showWithin(marks.parentElement, ...view.edges(look));
      for (const each of figure.querySelectorAll("[data-query]")) {
        const isPressed = Number(each.dataset.query) === figure.look.query;
        each.setAttribute("aria-pressed", isPressed);
        if (isPressed) showButton(each);
      }
      figure.querySelector(".row")?.replaceChildren((view.table ?? rowTable)(look));
      this.#score(figure);
    }
    const first = [...$("panels").children].find((figure) => figure.look);
    if (first) $("live").textContent = `${this.#sentence(first)}${this.isLocked ? " Held: click or press Esc to release." : ""}`;
    this.#toAddress();
  }

  // What is chosen, in words; with a difference, also the second run's weight.
  #sentence({ look, view }) {
    const words = view.sentence?.(look) ?? sentence(look);
    const notes = [...$("panels").children].map((figure) => figure.view?.note?.(figure.look));
    return words + notes.filter(Boolean).join("");
  }

  // What the weight of the cell, or the weights of the step, are computed from.
  #score(figure) {
    const canvas = figure.querySelector(".scores"), { look } = figure;
    if (!canvas) return;
    const workings = workingsOf(look.attention);
    workings.paint(new CanvasPainter(canvas, ...workings.size(look)), look);
    canvas.setAttribute("aria-label", workings.label);
    figure.querySelector(".terms").replaceChildren(workings.table(look));
  }

  // The weights of the second run less those of the first.
  #difference() {
    const figure = element("figure", { className: "panel" });
    figure.append(element("figcaption", {}, element("strong", { textContent: "difference: second minus first" })));
    const [one, other] = this.results.map((result) => this.look(result));
    const look = one && other && differenceOf(one, other);
    if (!look) {
      figure.append(element("p", { textContent: "The two answers have no queries or no keys in common, so their weights cannot be compared." }));
      return figure;
    }
    this.#drawn(figure, look, differenceMap, "difference");
    const left = look.isPart ? "; rows and columns that only one of the two has are left out" : "";
    figure.append(element("p", { className: "note", textContent: `blue: the second attends more; orange: less${left}` }));
    return figure;
  }

  // --- player, export ---

  #play() {
    if (this.timer) return this.#stop();
    $("play").textContent = "Pause";
    const first = () => [...$("panels").children].find((figure) => figure.look)?.look, look = first();
    if (look && look.query === look.rows.at(-1)) this.#toStep(look, look.rows[0]); // from the beginning
    this.timer = setInterval(() => {
      const look = first(), next = look?.rows[look.rows.indexOf(look.query) + 1];
      if (next === undefined) return this.#stop();
      this.#toStep(look, next);
    }, MS_PER_STEP);
  }

  #stop() {
    clearInterval(this.timer);
    this.timer = null;
    $("play").textContent = "Play";
  }

  // The drawings of the panels with their marks, a file each.
  async export(format) {
    const figures = [...$("panels").children].filter((figure) => figure.look);
    const drawings = figures.flatMap((figure) => {
      const { look, view } = figure, { steps } = this.page, { example, step } = this.choices;
      const parts = [figure.name, example + 1, look.attention.name];
      if (this.view !== "map") parts.push(this.view);
      if (steps.length > 1) parts.push(`step ${steps[step].replace(/\W/g, "")}`);
      const name = parts.join("_");
      const scores = figure.querySelector(".scores") && workingsOf(look.attention);
      return [{ name, look, view }, ...(scores ? [{ name: `${name}_score`, look, view: scores }] : [])];
    });
    for (const { name, look, view } of drawings) {
      const size = view.size(look), canvas = element("canvas"), isSvg = format === "svg";
      const painter = isSvg ? new SvgPainter(...size) : new CanvasPainter(canvas, ...size);
      painter.rect(0, 0, ...size, ink().paper);
      view.paint(painter, look);
      view.mark?.(painter, look);
      const blob = isSvg ? new Blob([painter.toString()], { type: "image/svg+xml" })
        : await new Promise((done) => canvas.toBlob(done, "image/png"));
      const link = element("a", { href: URL.createObjectURL(blob), download: `${name.replace(/[^\w.-]+/g, "_")}.${format}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }
  }

  async #copy() {
    try {
      await navigator.clipboard.writeText(this.example.command);
      $("live").textContent = "copied";
    } catch {
      getSelection().selectAllChildren($("command"));
    }
  }
}

// --- tables and texts ---

// A choice of the reader as text, in the type of its default; a head may be a number.
function choiceOf(name, text) {
  if (typeof CHOICES[name] === "number") return Number(text) || 0;
  if (typeof CHOICES[name] === "boolean") return text === "true";
  return name === "head" && /^\d+$/.test(text) ? Number(text) : text;
}

// The heads of a mixture that exist, as a choice: "0+2", a number, or "mean".
function mixture(heads, count) {
  const chosen = heads.filter((h) => /^\d+$/.test(h) && h < count);
  return chosen.length === 1 ? Number(chosen[0]) : chosen.join("+") || "mean";
}

// The whole number from 0 to below `count` that is nearest.
function inside(x, count) {
  return Math.min(Math.max(Math.trunc(x), 0), Math.max(count - 1, 0));
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function options(select, pairs) {
  const text = JSON.stringify(pairs);
  if (select.dataset.pairs === text) return;
  select.dataset.pairs = text;
  select.replaceChildren(...pairs.map(([value, label]) => element("option", { value, textContent: label })));
  select.closest("label").hidden = pairs.length < 2;
}

// A query in sentences and captions: its number and its label; the only one, its label.
function nameOf({ titles: [title], queries, rows }, query) {
  const label = shorten(queries[query], 80), at = `${title} ${query + 1}`;
  if (rows === 1) return namesOf([label], title)[0];
  return !title ? label : label === at || label === `${query + 1}` ? at : `${at}, ${label}`;
}

// The largest weights of the row as a sentence; of a path, the step.
function sentence({ attention: a, head, query, key }) {
  if (a.isPath) return `${a.titles[0]} ${query + 1} of ${a.rows}: ${shorten(a.queries[query], 80)}`;
  const parts = a.topTexts(head, query, 2).filter(([, text]) => !text.endsWith("0.00"));
  const list = parts.map(([k, text]) => `${a.keyNames[k]} (${text})`).join(", ") || "nothing";
  const name = nameOf(a, query), row = name.includes(", ") ? `${name},` : name;
  return `${row} attends to ${list}. At ${a.keyNames[key]}: ${a.text(head, query, key)}.`;
}

// Scrolls the box around a button so that it shows the button; the page stays.
function showButton(button) {
  const box = button.parentElement, inner = button.getBoundingClientRect(), outer = box.getBoundingClientRect();
  if (inner.top >= outer.top && inner.bottom <= outer.bottom) return;
  box.scrollTop += (inner.top + inner.bottom - outer.top - outer.bottom) / 2;
}

// Scrolls an element sideways so that it shows what is from `left` to `right`.
function showWithin(box, left, right) {
  if (left < box.scrollLeft || right > box.scrollLeft + box.clientWidth) {
    box.scrollLeft = (left + right - box.clientWidth) / 2;
  }
}

function rowTable(look) {
  const { attention: a, head, query, key } = look, entropy = a.entropyOf(head, query);
  const row = (...cells) => element("tr", {}, ...cells.map((textContent) => element("td", { textContent })));
  const caption = element("caption", {}, element("bdi", { textContent: nameOf(a, query) }));
  const mark = a.prefix(head), near = mark.replace(" ", "\u00a0"), isEmpty = !a.top(head, query)[0]?.[1];
  caption.append(isEmpty ? ": no weight" : `: entropy ${near}${entropy.toFixed(2)} nats, perplexity ${near}${Math.exp(entropy).toFixed(1)}`);
  const lines = a.topTexts(head, query, mark ? 3 : 4).map(([k, text]) => row(a.keyNames[k], text));
  const here = row(`here: ${a.keyNames[key]}`, a.text(head, query, key));
  return element("table", {}, caption, element("tbody", {}, ...lines, here));
}

// All rows, with their largest weights or with all, and a note if those are too many.
function tableOf(look, name, wantsAll) {
  const { attention: a, head } = look, isWhole = wantsAll && look.rows.length * look.columns.length <= MAX_CELLS;
  const cell = (tag, textContent) => element(tag, { textContent });
  const titles = isWhole ? look.columns.map((k) => a.keyNames[k])
    : ["largest", "2nd", "3rd", "4th", "5th"].slice(0, a.tops);
  const texts = (q) => (isWhole ? a.texts(head, q, look.columns)
    : a.topTexts(head, q, 3).map(([k, text]) => `${a.keyNames[k]} (${text})`));
  const head_ = element("tr", {}, ...[a.titles[0], ...titles].map((x) => cell("th", x)));
  const lines = look.rows.map((q) => element("tr", {}, cell("th", a.queryNames[q]), ...texts(q).map((text) => cell("td", text))));
  const made = element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: `all rows of ${name}` }, element("table", { className: isWhole ? "numbers" : "" }, element("thead", {}, head_), element("tbody", {}, ...lines)));
  if (isWhole || !wantsAll) return [made];
  const textContent = `only the largest weights: a table of all has at most ${MAX_CELLS} cells`;
  return [element("p", { className: "note", textContent }), made];
}

unpack($("data").textContent.trim()).then(
  (page) => {
    window.explorer = new App(page);
    document.body.dataset.ready = "true";
    if (parent === window) return;  // a frame tells the page around it its height
    const tell = () => parent.postMessage({ explorer: document.documentElement.offsetHeight }, "*");
    new ResizeObserver(tell).observe(document.documentElement);
  },
  (error) => { $("live").textContent = `The data of this page cannot be read: ${error.message}`; },
);
