// The views of an attention. Each has `size` and `paint` for a `Look`, and says which
// query and key are under the pointer: `at(look, x, y)` is [query, key], null for none.

const WIDTH = 860, MAX_CELL = 24, MIN_ROW = 18, LABELS = 12; // pixels; labels need cells of 12
const MANY = 4096; // cells that an SVG has as rectangles; above, an image

// What is looked at: an attention, with the choices of the reader.
class Look {
  constructor(attention, { head, query, key, scale, threshold, hide, opacity, width }) {
    Object.assign(this, { attention, head, query, key, scale, threshold, opacity });
    this.width = width || WIDTH;
    const visible = (labels) =>
      labels.map((_, i) => i).filter((i) => !hide || !NO_OP.has(labels[i]));
    this.rows = visible(attention.queries);
    this.columns = visible(attention.keys);
    if (!this.rows.length || !this.columns.length) {
      this.rows = attention.queries.map((_, i) => i);
      this.columns = attention.keys.map((_, i) => i);
    }
    this.weights = attention.mix(head);
  }

  weight(row, column) {
    const weight = this.weights[row * this.attention.columns + column];
    return weight < this.threshold ? 0 : weight;
  }

  // The weight as it is painted, from 0 to 1.
  shade(row, column) {
    const weight = this.weight(row, column);
    if (this.scale === "root") return Math.sqrt(weight);
    if (this.scale === "row") return weight / (this.maximum(row) || 1);
    return weight;
  }

  maximum(row) {
    let largest = 0;
    for (const column of this.columns) largest = Math.max(largest, this.weight(row, column));
    return largest;
  }
}

const NO_OP = new Set(["<s>", "</s>", "<pad>", ".", "·."]);

const labelSpace = (labels, limit) =>
  Math.min(limit, 14 + 7 * Math.max(1, ...labels.map((x) => Math.min(Array.from(x.slice(0, 100)).length, MAX_LABEL))));

// `controls` are the controls that change the drawing.
const heatMap = {
  controls: ["scale", "threshold", "hide"],
  showsAllQueries: true, // and is painted once

  layout(look) {
    const { attention: a, rows, columns } = look;
    const left = labelSpace([...a.queries, a.titles[0]], 182);
    const width = Math.min(MAX_CELL, (look.width - left) / columns.length);
    const top = (width >= LABELS ? labelSpace(a.keys, 182) : 14) + 18;
    const height = Math.min(MAX_CELL, Math.max(width, rows.length > 40 ? 2 : MIN_ROW), 1400 / rows.length);
    return { left, top, width, height };
  },

  size(look) {
    const { left, top, width, height } = this.layout(look);
    const across = Math.max(width * look.columns.length, labelSpace([look.attention.titles[1]], 182));
    return [left + across + 2, top + height * look.rows.length + 2];
  },

  paint(p, look) {
    this.cells(p, look, (q, k) => look.shade(q, k));
    this.alignments(p, look);
  },

  // The labels, and the cells in the colours of values from -1 to 1.
  cells(p, look, valueOf) {
    const { left, top, width, height } = this.layout(look);
    const { attention: a, rows, columns } = look, [w] = this.size(look);
    p.text(left + (w - left) / 2, 9, a.titles[1], { anchor: "middle", fill: ink().faint });
    p.text(left - 6, top - 9, a.titles[0], { anchor: "end", fill: ink().faint });
    if (width >= LABELS) {
      columns.forEach((k, i) => p.text(left + (i + 0.5) * width, top - 6, a.keys[k], { turned: true }));
    }
    if (height >= LABELS) {
      rows.forEach((q, i) => p.text(left - 6, top + (i + 0.5) * height, a.queries[q], { anchor: "end" }));
    }
    if (rows.length * columns.length <= MANY) {
      rows.forEach((q, i) => columns.forEach((k, j) => p.rect(
        left + j * width, top + i * height, width, height, css(signedColour(valueOf(q, k))))));
    } else {
      p.image(shaded(look, valueOf), left, top, width * columns.length, height * rows.length);
    }
    p.frame(left, top, width * columns.length, height * rows.length, ink().faint, 1);
  },

  // The predicted positions with their windows, and the keys of a hard alignment.
  alignments(p, look) {
    const { left, top, width, height } = this.layout(look), { attention: a, rows, columns } = look;
    const middle = (position) => left + (columns.indexOf(Math.round(position)) + 0.5) * width;
    rows.forEach((q, i) => {
      const position = a.place(look.head, q);
      if (position === null || !columns.includes(Math.round(position))) return;
      p.line([[middle(position), top + i * height], [middle(position), top + (i + 1) * height]], ink().mark, 2);
    });
    rows.forEach((q, i) => {
      for (const j of windowEdges(look, q)) {
        p.line([[left + j * width, top + i * height], [left + j * width, top + (i + 1) * height]], ink().faint, 1);
      }
      const j = a.hard && a.isSingle(look.head) ? columns.indexOf(a.best(look.head, q)) : -1;
      if (j < 0 || !a.top(look.head, q)[0][1]) return;  // a key that is hidden, or none
      p.circle(left + (j + 0.5) * width, top + (i + 0.5) * height, Math.min(width, height) / 6, ink().mark);
    });
  },

  mark(p, look) {
    const { left, top, width, height } = this.layout(look);
    const i = look.rows.indexOf(look.query), j = look.columns.indexOf(look.key);
    const across = width * look.columns.length, down = height * look.rows.length;
    if (i >= 0) p.frame(left, top + i * height, across, Math.max(height, 2), ink().mark, 1);
    if (j >= 0) p.frame(left + j * width, top, Math.max(width, 2), down, ink().mark, 1);
    if (i >= 0 && j >= 0) p.frame(left + j * width, top + i * height, width, height, ink().mark, 2);
  },

  at(look, x, y) {
    const { left, top, width, height } = this.layout(look);
    const row = look.rows[Math.floor((y - top) / height)];
    const column = look.columns[Math.floor((x - left) / width)];
    return row === undefined || column === undefined ? null : [row, column];
  },
};

// Columns at which the window begins and ends, without those at the edge of the map.
function windowEdges({ attention: a, columns, head }, row) {
  const position = a.place(head, row);
  if (position === null || a.window == null) return [];
  const begin = columns.findIndex((k) => k >= position - a.window);
  const end = columns.findLastIndex((k) => k <= position + a.window) + 1;
  return [begin, end].filter((j) => j > 0 && j < columns.length);
}

// Values as an image, a pixel for each: `value(i, j)` of row i and column j, from -1 to 1.
function signedImage(rows, columns, value) {
  const image = new ImageData(columns, rows);
  const colours = Array.from({ length: 511 }, (_, i) => [...signedColour(i / 255 - 1), 255]);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const clipped = Math.min(Math.max(value(i, j), -1), 1) || 0;
      image.data.set(colours[Math.round(255 * clipped) + 255], 4 * (i * columns + j));
    }
  }
  return offscreen(image);
}

// The cells as an image.
const shaded = ({ rows, columns }, valueOf) =>
  signedImage(rows.length, columns.length, (i, j) => valueOf(rows[i], columns[j]));

// The weights of `look.other` less those of the look, for the queries and keys that
// both have: `look.queries` and `look.keys` map numbers of the look to those of the other.
const differenceMap = {
  ...heatMap,

  paint(p, look) {
    const { other, queries, keys } = look;
    this.cells(p, look, (q, k) => other.weight(queries.get(q), keys.get(k)) - look.weight(q, k));
  },

  // The weight of the other and the difference at the chosen cell, in words.
  note({ attention: a, head, other, queries, keys, query, key }) {
    if (!queries.has(query) || !keys.has(key)) return "";
    const [weight, mark] = a.cell(head, query, key);
    const [second, secondMark] = other.attention.cell(other.head, queries.get(query), keys.get(key));
    const difference = second - weight, sign = difference < 0 ? "−" : "+";
    return ` Second: ${secondMark}${second.toFixed(3)}, difference ${mark || secondMark}${sign}${Math.abs(difference).toFixed(3)}.`;
  },
};

// The look for `differenceMap`; null if the two have no query or no key in common.
function differenceOf(look, other) {
  const { attention: a } = look, { attention: b } = other;
  const queries = common(a.queries, b.queries), keys = common(a.keys, b.keys);
  const rows = look.rows.filter((q) => queries.has(q)), columns = look.columns.filter((k) => keys.has(k));
  if (!rows.length || !columns.length) return null;
  const isPart = queries.size < Math.max(a.rows, b.rows) || keys.size < Math.max(a.columns, b.columns);
  return Object.assign(look, { other, queries, keys, rows, columns, isPart });
}

// A longest common subsequence of two lists, as a map from places in `a` to places in `b`.
function common(a, b) {
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i][j] = a[i] === b[j] ? 1 + lengths[i + 1][j + 1] : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const pairs = new Map();
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) pairs.set(i++, j++);
    else if (lengths[i + 1][j] >= lengths[i][j + 1]) i++;
    else j++;
  }
  return pairs;
}

// Keys on the left, queries on the right, a line for each weight.
const ribbons = {
  controls: heatMap.controls,

  layout(look) {
    const { attention: a, rows, columns } = look, [title, other] = a.titles;
    const left = labelSpace([...a.keys, other], 220) + 8, right = labelSpace([...a.queries, title], 220) + 8;
    const step = Math.max(3, Math.min(20, 1200 / Math.max(rows.length, columns.length)));
    return { left, right, step, middle: Math.min(300, look.width - left - right) };
  },

  size(look) {
    const { left, right, step, middle } = this.layout(look);
    return [left + middle + right, 26 + step * Math.max(look.rows.length, look.columns.length)];
  },

  paint(p, look) {
    const { left, step, middle } = this.layout(look), { attention: a, rows, columns } = look;
    const y = (i) => 26 + (i + 0.5) * step, right = left + middle;
    p.text(left - 8, 9, a.titles[1], { anchor: "end", fill: ink().faint });
    p.text(right + 8, 9, a.titles[0], { fill: ink().faint });
    const line = css(colour(0.7));
    rows.forEach((q, i) => {
      const chosen = q === look.query;
      for (const [j] of covering(look, q)) {
        const points = [[left, y(j)], [right, y(i)]], shade = look.shade(q, columns[j]);
        p.line(points, chosen ? ink().mark : line, 1 + 4 * shade, shade * (chosen ? 1 : 0.45));
      }
    });
    if (step < LABELS) return;
    columns.forEach((k, j) => p.text(left - 8, y(j), a.keys[k], { anchor: "end" }));
    rows.forEach((q, i) => p.text(right + 8, y(i), a.queries[q],
      { fill: q === look.query ? ink().mark : ink().text }));
  },

  at(look, x, y) {
    const { left, step, middle } = this.layout(look);
    const row = look.rows[Math.floor((y - 26) / step)];
    return row === undefined || x < left + middle / 2 ? null : [row, look.key];
  },
};

// The smallest set of weights that covers 95 % of a row: [[column number, weight], ...].
function covering(look, row) {
  const pairs = look.columns.map((k, j) => [j, look.weight(row, k)]).filter(([, w]) => w > 0);
  pairs.sort((a, b) => b[1] - a[1]);
  const total = pairs.reduce((sum, [, w]) => sum + w, 0);
  let sum = 0, count = 0;
  while (count < pairs.length && sum < 0.95 * total) sum += pairs[count++][1];
  return pairs.slice(0, count);
}

// The keys at their places: boxes on an image, or points with the path through them.
const overImage = {
  SIDE: 420, controls: ["threshold", "hide"],

  size(look) {
    const image = look.attention.canvas;
    const [height, width] = image ? [image.height, image.width] : [1, 1];
    const scale = Math.min(this.SIDE, look.width - 32) / Math.max(height, width);
    return [width * scale + 32, height * scale + 32];
  },

  // Left, top, width and height of a place.
  box(look, k, places = look.attention.places) {
    const [w, h] = this.size(look), width = w - 32, height = h - 32;
    const [top, left, bottom, right] = places.subarray(4 * k, 4 * k + 4);
    // Whole pixels, so that no gap shows between neighbours.
    const [x, y, x1, y1] = [left * width, top * height, right * width, bottom * height].map(Math.round);
    return [16 + x, 16 + y, x1 - x, y1 - y];
  },

  paint(p, look) {
    const { attention: a, query } = look, [w, h] = this.size(look);
    const width = w - 32, height = h - 32, largest = look.maximum(query) || 1;
    const box = (k, places) => this.box(look, k, places);
    const centre = (k) => {
      const [x, y, across, down] = box(k);
      return [x + across / 2, y + down / 2];
    };
    const isPoints = !a.image;
    if (a.image) p.image(a.canvas, 16, 16, width, height);
    else p.rect(16, 16, width, height, ink().paper);
    p.frame(16, 16, width, height, ink().faint, 1);
    if (a.isPath) {
      const path = [...a.chosen.subarray(0, query + 1)], last = path.at(-1);
      const cut = (x, size) => Math.min(Math.max(x, 16), 16 + size);
      const clipped = (k) => {
        const [x, y, across, down] = box(k), left = cut(x, width), top = cut(y, height);
        return [left, top, cut(x + across, width) - left, cut(y + down, height) - top];
      };
      for (const k of path) p.frame(...clipped(k), ink().faint, 1);
      if (path.length > 1) p.line(path.map(centre), ink().mark, 2, 0.8);
      p.frame(...clipped(last), ink().paper, 5);
      p.frame(...clipped(last), ink().mark, 3);
      p.text(16, 7, a.queries[query]);
      return;
    }
    for (const k of look.columns) {
      const share = look.weight(query, k) / largest;
      if (isPoints) {
        if (Number.isNaN(a.places[4 * k])) continue;
        p.circle(...centre(k), 3, ink().text);
        if (share > 0.01) p.circle(...centre(k), 3 + 11 * Math.sqrt(look.weight(query, k)), css(colour(0.6)), 0.6);
      } else p.rect(...box(k), "#000", look.opacity * (1 - share));
    }
    for (let i = 0; a.truth && 4 * i < a.truth.length; i++) {
      const [x, y, across, down] = box(i, a.truth), inner = [x + 0.5, y + 0.5, across - 1, down - 1];
      p.frame(...inner, "#000", 1); // seen on any image
      p.frame(...inner, "#fff", 1, 4);
    }
    if (isPoints && a.chosen) {
      const path = [...a.chosen.subarray(0, query + 1)], size = a.polygon || path.length;
      for (let i = 0; i < path.length; i += size) {
        const keys = path.slice(i, i + size), part = keys.filter((k) => !Number.isNaN(a.places[4 * k]));
        const isClosed = a.polygon && keys.length === size && part.length;
        p.line((isClosed ? [...part, part[0]] : part).map(centre), ink().mark, 2);
      }
      // Labels away from the middle of the points: most lines of the path are inside.
      const points = look.columns.filter((k) => !Number.isNaN(a.places[4 * k]));
      const middle = [0, 1].map((axis) => points.reduce((sum, k) => sum + centre(k)[axis], 0) / points.length);
      for (const k of points) {
        const [x, y] = centre(k), [right, down] = [x - middle[0], y - middle[1]];
        const scale = 16 / (Math.hypot(right, down) || 1), within = (at, size) => Math.min(Math.max(at, 8), size - 8);
        const at = [within(x + scale * right, w), within(y + scale * down, h)], room = 7 * a.keys[k].length + 2;
        p.rect(at[0] - room / 2, at[1] - 7, room, 13, ink().paper); // no line crosses a label
        p.text(...at, a.keys[k], { anchor: "middle", size: 11 });
      }
    }
    if (a.queryPlaces) p.frame(...box(query, a.queryPlaces), ink().mark, 3);
  },

  // A frame around the chosen key.
  mark(p, look) {
    const { image, isPath } = look.attention;
    if (!image || isPath) return;
    const box = this.box(look, look.key);
    p.frame(...box, ink().paper, 4);
    p.frame(...box, css(colour(0.6)), 2);
  },

  // A query that has a place, with the key of its largest weight; elsewhere a key.
  at(look, x, y) {
    const { attention: a } = look, [w, h] = this.size(look);
    if (a.isPath) return null;
    const point = [(y - 16) / (h - 32), (x - 16) / (w - 32)];
    const query = a.queryPlaces ? placeAt(a.queryPlaces, point, 0) : -1;
    if (query >= 0) return [query, a.best(look.head, query)];
    const key = placeAt(a.places, point, a.image ? 0 : 0.02);
    return key < 0 ? null : [look.query, key];
  },
};

// The number of the box around a point, with some slack; -1 for none.
function placeAt(places, [y, x], slack) {
  for (let i = 0; 4 * i < places.length; i++) {
    const [top, left, bottom, right] = places.subarray(4 * i, 4 * i + 4);
    const isInside = top - slack <= y && y < bottom + slack && left - slack <= x && x < right + slack;
    if (isInside) return i;
  }
  return -1;
}

// Every layer and head of one kind of attention, small.
const everyHead = {
  SIDE: 112, controls: heatMap.controls,

  columns: ({ all }) => Math.max(...all.map((a) => a.heads)),

  // Narrower in a narrow window, but not too small to see.
  side(look) {
    const room = (look.width - 60) / this.columns(look) - 14;
    return Math.min(this.SIDE, Math.max(room, 48));
  },

  size(look) {
    const step = this.side(look) + 14;
    return [60 + this.columns(look) * step, 24 + look.all.length * step];
  },

  paint(p, look) {
    const side = this.side(look), step = side + 14;
    for (let head = 0; head < this.columns(look); head++) {
      p.text(60 + head * step + side / 2, 10, `head ${head + 1}`, { anchor: "middle", fill: ink().faint });
    }
    look.all.forEach((a, layer) => {
      const y = 24 + layer * step;
      p.text(52, y + side / 2, `layer ${a.layer + 1}`, { anchor: "end", fill: ink().faint, size: 11 });
      for (let head = 0; head < a.heads; head++) {
        const x = 60 + head * step, small = new Look(a, { ...look.choices, head });
        const scale = side / Math.max(small.rows.length, small.columns.length);
        const [across, down] = [small.columns.length * scale, small.rows.length * scale];
        p.image(shaded(small, (q, k) => small.shade(q, k)), x, y, across, down);
        const chosen = layer === look.layer && (head === look.head || a.heads === 1);
        p.frame(x, y, across, down, chosen ? ink().mark : ink().faint, chosen ? 3 : 1);
      }
    });
  },

  pick(look, x, y) {
    const step = this.side(look) + 14;
    const layer = Math.floor((y - 24) / step), head = Math.floor((x - 60) / step);
    const a = look.all[layer];
    return a && head >= 0 && head < a.heads ? { layer, head } : null;
  },
};

// What the marks on a heat map mean; "" without any.
function marksNote(a) {
  const names = [
    a.position && "line: predicted position", a.window != null && "thin lines: its window",
    a.hard && "dot: the key that is attended to",
  ];
  return names.filter(Boolean).join("; ");
}

const VIEWS = { map: heatMap, ribbons, image: overImage, heads: everyHead };
