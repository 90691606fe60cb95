// The memory of a Neural Turing Machine, step by step; see `MemoryDetails` in
// base/records.py. The contents are computed from the writes.

const hasMemory = (attention) => attention.details?.type === "MemoryDetails";

// The memory [N, M] before each step and after the last one: Graves et al. (2014), eqs. 3
// and 4; and the vectors that the read heads read from it.
function memories({ details: d }) {
  if (d.memories) return d.memories;
  const [heads, steps, slots] = d.weights.shape, [writers, , width] = d.erase.shape;
  const readers = heads - writers, contents = [d.start], reads = [];
  for (let t = 0; t < steps; t++) {
    const before = contents[t], after = Float32Array.from(before);
    reads.push(Array.from({ length: readers }, (_, h) => {
      const weights = part(d.weights, h, t), read = new Float32Array(width);
      for (let n = 0; n < slots; n++) for (let m = 0; m < width; m++) read[m] += weights[n] * before[n * width + m];
      return read;
    }));
    for (const change of [(m, w, e) => m * (1 - w * e), (m, w, e, a) => m + w * a]) {
      for (let h = 0; h < writers; h++) {
        const weights = part(d.weights, readers + h, t), erase = part(d.erase, h, t), add = part(d.add, h, t);
        for (let i = 0; i < after.length; i++) {
          after[i] = change(after[i], weights[Math.floor(i / width)], erase[i % width], add[i % width]);
        }
      }
    }
    contents.push(after);
  }
  let limit = 1e-12;
  for (const each of contents) for (const x of each) limit = Math.max(limit, Math.abs(x));
  d.memories = { contents, reads, limit, readers, writers, heads, steps, slots, width };
  return d.memories;
}

// Values as an image, a pixel for each: `value(i, j)` of row i and column j, from -1 to 1.
function signedImage(rows, columns, value) {
  const image = new ImageData(columns, rows);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) image.data.set([...signedColour(value(i, j)), 255], 4 * (i * columns + j));
  }
  return offscreen(image);
}

const player = {
  LEFT: 120, VECTOR: 44, HEAD: 34, GAP: 26,

  // Where the parts are: time runs to the right above, slots below.
  layout({ attention: a, width }) {
    const m = memories(a), vectors = Math.max(m.readers, 2 * m.writers);
    const room = Math.min(width, 1100) - this.LEFT - this.VECTOR * vectors - 20;
    const bits = Math.min(8, 120 / Math.max(a.details.inputs.shape[1], a.details.outputs.shape[1]));
    const heights = [a.details.inputs, a.details.outputs].map((x) => x.shape[1] * bits);
    const row = Math.min(10, 200 / m.width), memory = m.width * row;
    const input = 24, output = input + heights[0] + 6;
    const read = output + heights[1] + this.GAP + 14, before = read + m.readers * this.HEAD;
    const write = before + memory + this.GAP, after = write + m.writers * this.HEAD;
    return {
      ...m, vectors, heights, row, memory, input, output, read, before, write, after,
      time: Math.min(room / m.steps, 16), slot: Math.min(room / m.slots, 24),
    };
  },

  size(look) {
    const { after, memory, slots, slot, steps, time, vectors } = this.layout(look);
    const room = Math.max(slots * slot + 14 + this.VECTOR * vectors, steps * time, 300);
    return [this.LEFT + room + 4, after + memory + 22];
  },

  paint(p, look) {
    const l = this.layout(look), { details: d } = look.attention, t = look.query, left = this.LEFT;
    const label = (y, text) => p.text(left - 8, y, text, { anchor: "end" });
    const sigmoid = (x) => 1 / (1 + Math.exp(-x));
    p.text(left, 10, `step ${t + 1} of ${l.steps}`);
    [["vector in", d.inputs, l.input, (x) => x], ["vector out", d.outputs, l.output, sigmoid]].forEach(([name, x, y, f], i) => {
      const [steps, bits] = x.shape, across = steps * l.time;
      p.image(signedImage(bits, steps, (bit, step) => f(x[step * bits + bit])), left, y, across, l.heights[i]);
      p.frame(left, y, across, l.heights[i], ink().faint, 1);
      label(y + l.heights[i] / 2, name);
    });
    p.frame(left + t * l.time, l.input - 2, l.time, l.output + l.heights[1] + 4 - l.input, ink().mark, 2);
    const across = l.slots * l.slot;
    for (let h = 0; h < l.heads; h++) {
      const isRead = h < l.readers, number = isRead ? h : h - l.readers, weights = part(d.weights, h, t);
      const y = (isRead ? l.read : l.write) + number * this.HEAD, high = this.HEAD - 8;
      weights.forEach((w, n) => w > 1e-3 && p.rect(left + n * l.slot, y + high * (1 - w), Math.max(l.slot - (l.slot > 3), 1), high * w, css(colour(0.6))));
      p.line([[left, y + high], [left + across, y + high]], ink().faint);
      const many = (isRead ? l.readers : l.writers) > 1 ? ` ${number + 1}` : "";
      label(y + high / 2, `${isRead ? "read" : "write"} weights${many}`);
      const vectors = isRead ? [["read", l.reads[t][number], l.limit]]
        : [["erase", part(d.erase, number, t), 1], ["add", part(d.add, number, t), 1]];
      vectors.forEach(([name, vector, limit], i) => {
        const x = left + across + 14 + (vectors.length * number + i) * this.VECTOR, top = isRead ? l.before : l.after;
        p.image(signedImage(l.width, 1, (m) => vector[m] / limit), x, top, 18, l.memory);
        p.frame(x, top, 18, l.memory, ink().faint, 1);
        p.text(x + 9, top - 8, name + many, { anchor: "middle", size: 11 });
      });
    }
    for (const [name, number, y] of [["memory before", t, l.before], ["memory after", t + 1, l.after]]) {
      const content = l.contents[number];
      p.image(signedImage(l.width, l.slots, (m, n) => content[n * l.width + m] / l.limit), left, y, across, l.memory);
      p.frame(left, y, across, l.memory, ink().faint, 1);
      label(y + l.memory / 2, name);
    }
    p.text(left, l.after + l.memory + 12, `slots 0 to ${l.slots - 1}; blue above 0, orange below`, { fill: ink().faint, limit: 80 });
  },

  at(look, x, y) {
    const l = this.layout(look), isTime = y < l.read - this.GAP / 2, step = isTime ? l.time : l.slot;
    const i = Math.floor((x - this.LEFT) / step);
    if (i < 0 || i >= (isTime ? l.steps : l.slots)) return null;
    return isTime ? [i, look.key] : [look.query, i];
  },
};
VIEWS.memory = player;
