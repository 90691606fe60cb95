// The data of the page: unpacked once, read as typed arrays.
//
// The element #data holds base64 of zlib of: the length of a header (4 bytes, little
// endian), the header (JSON in UTF-8) and arrays. `explorer/page.py` writes it.

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream();
  const plain = stream.pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(plain).arrayBuffer();
  const size = new DataView(buffer).getUint32(0, true);
  const header = new TextDecoder().decode(new Uint8Array(buffer, 4, size));
  return { ...JSON.parse(header), arrays: buffer.slice(4 + size) };
}

// An array of the page, or null. `at` is [offset in bytes, number of values].
function array(page, type, at) {
  if (!at) return null;
  const [offset, count] = at;
  const end = offset + count * type.BYTES_PER_ELEMENT;
  return new type(page.arrays.slice(offset, end));
}

// The details of an attention, with `shape` of each array, or null.
function detailsOf(page, packed) {
  if (!packed) return null;
  const unpacked = Object.entries(packed).map(([name, value]) => {
    if (!value?.shape) return [name, value];
    return [name, Object.assign(array(page, Float32Array, value.values), { shape: value.shape })];
  });
  return Object.fromEntries(unpacked);
}

// The attention of one layer: weights [H, Q, K] of 8 bits for colours; the entropy of
// each row and its largest weights exactly.
class Attention {
  constructor(page, map) {
    Object.assign(this, map);
    this.page = page;
    [this.heads, this.rows, this.columns] = map.shape;
    this.weights = array(page, Uint8Array, map.weights);
    this.entropies = array(page, Float32Array, map.entropy);
    this.topKeys = array(page, Uint16Array, map.top_keys);
    this.topWeights = array(page, Float32Array, map.top_weights);
    this.position = array(page, Float32Array, map.position);
    this.places = array(page, Float32Array, map.places);
    this.queryPlaces = array(page, Float32Array, map.query_places);
    this.truth = array(page, Float32Array, map.truth);
    this.chosen = array(page, Int32Array, map.chosen);
    this.tops = this.topKeys.length / (this.heads * this.rows);
    this.details = detailsOf(page, map.details);
    this.queryNames = namesOf(map.queries);
    this.keyNames = namesOf(map.keys, map.titles[1]);
    this.mixed = new Map();
  }

  // Whether each step has all its weight on a box of an image; see `Places`.
  get isPath() {
    return Boolean(this.chosen && this.image);
  }

  // Weights [Q, K] from 0 to 1 of a head, their "mean" or "max" over heads, or the mean
  // of some heads, such as "0+2".
  mix(head) {
    const key = this.heads === 1 ? 0 : head;
    if (!this.mixed.has(key)) this.mixed.set(key, this.#mix(key));
    return this.mixed.get(key);
  }

  #mix(head) {
    const size = this.rows * this.columns, out = new Float32Array(size);
    if (typeof head === "number") {
      const part = this.weights.subarray(head * size, (head + 1) * size);
      return out.map((_, i) => part[i] / 255);
    }
    const heads = this.headsOf(head);
    for (const h of heads) {
      for (let i = 0; i < size; i++) {
        const weight = this.weights[h * size + i] / 255;
        if (head === "max") out[i] = Math.max(out[i], weight);
        else out[i] += weight / heads.length;
      }
    }
    return out;
  }

  // The numbers of the heads that a choice is made of.
  headsOf(head) {
    if (typeof head === "number") return [head];
    if (/\d/.test(head)) return head.split("+").map(Number);
    return Array.from({ length: this.heads }, (_, h) => h);
  }

  // True for one head, whose entropies and largest weights are stored.
  isSingle(head) {
    return this.heads === 1 || typeof head === "number";
  }

  // "≈ " if the numbers of a head are rounded.
  prefix(head) {
    return this.isSingle(head) && !this.rounded ? "" : "≈ ";
  }

  // The largest weights of a row: [[key, weight], ...], exact if the head is.
  top(head, row) {
    if (this.isSingle(head)) {
      const at = ((this.heads === 1 ? 0 : head) * this.rows + row) * this.tops;
      const range = Array.from({ length: this.tops }, (_, i) => at + i);
      return range.map((i) => [this.topKeys[i], this.topWeights[i]]);
    }
    const start = row * this.columns, weights = this.mix(head);
    const pairs = Array.from({ length: this.columns }, (_, k) => [k, weights[start + k]]);
    return pairs.sort((a, b) => b[1] - a[1]).slice(0, this.tops);
  }

  // The same, with the weights as text.
  topTexts(head, row, digits) {
    return this.top(head, row).map(([key, weight]) => [key, this.prefix(head) + weight.toFixed(digits)]);
  }

  // The key with the largest weight of a row; 0 without keys.
  best(head, row) {
    return this.top(head, row)[0]?.[0] ?? 0;
  }

  // Entropy of a row in nats; of a mixture of heads, that of the rounded weights.
  entropyOf(head, row) {
    if (this.isSingle(head)) return this.entropies[(this.heads === 1 ? 0 : head) * this.rows + row];
    const weights = this.mix(head).subarray(row * this.columns, (row + 1) * this.columns);
    return -weights.reduce((sum, w) => sum + (w ? w * Math.log(w) : 0), 0);
  }

  // The first row with a weight above 0.
  get firstRow() {
    const row = this.queries.findIndex((_, q) => this.top("max", q)[0]?.[1]);
    return Math.max(row, 0);
  }

  // Predicted position of a query, or null.
  place(head, row) {
    if (!this.position || !this.isSingle(head)) return null;
    return this.position[(this.heads === 1 ? 0 : head) * this.rows + row];
  }

  // Weight of a cell, exact if it is among the largest of its row, and else "≈ ".
  cell(head, row, column, largest = new Map(this.top(head, row))) {
    if (largest.has(column)) return [largest.get(column), this.prefix(head)];
    return [this.mix(head)[row * this.columns + column], "≈ "];
  }

  // Weights of a row as texts.
  texts(head, row, columns) {
    const largest = new Map(this.top(head, row));
    return columns.map((k) => {
      const [weight, mark] = this.cell(head, row, k, largest);
      return mark + weight.toFixed(3);
    });
  }

  text(head, row, column) {
    return this.texts(head, row, [column])[0];
  }

  // The image that the keys lie on, drawn; null without one.
  get canvas() {
    if (!this.image) return null;
    if (!this.drawn) {
      const [height, width] = this.image.shape;
      const rgb = array(this.page, Uint8Array, this.image.values);
      const pixels = new ImageData(width, height);
      for (let i = 0; i < width * height; i++) {
        pixels.data.set([rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2], 255], 4 * i);
      }
      this.drawn = offscreen(pixels);
    }
    return this.drawn;
  }
}

// Labels as they stand in sentences and tables: longer than on an axis, numbers with the
// title of the axis, and with their place if there are several of a name.
function namesOf(labels, title = "") {
  const counts = new Map();
  for (const label of labels) counts.set(label, 1 + (counts.get(label) ?? 0));
  return labels.map((label, i) => (
    (title && /^-?[\d.]+$/.test(label) ? `${title} ` : "") + shorten(label, 80) + (counts.get(label) > 1 ? ` [${i + 1}]` : "")));
}

function offscreen(image) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
