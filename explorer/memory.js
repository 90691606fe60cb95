// The memory of a Neural Turing Machine, step by step; see `MemoryDetails` in
// base/records.py. The contents are computed from the writes, and the weights of a step
// by the stages of their addressing.

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

const player = {
  LEFT: 120, VECTOR: 44, HEAD: 34, GAP: 26,

  // Where the parts are: time runs to the right above, slots below.
  layout({ attention: a, width }) {
    const m = memories(a), vectors = Math.max(m.readers, 2 * m.writers);
    const right = Math.max(this.VECTOR * vectors + 20, addressing.NOTE);
    const room = Math.min(width, 1100) - this.LEFT - right;
    const bits = Math.min(8, 120 / Math.max(a.details.inputs.shape[1], a.details.outputs.shape[1]));
    const heights = [a.details.inputs, a.details.outputs].map((x) => x.shape[1] * bits);
    const row = Math.min(10, 200 / m.width), memory = m.width * row;
    const input = 24, output = input + heights[0] + 6;
    const read = output + heights[1] + this.GAP + 14, before = read + m.readers * this.HEAD;
    const write = before + memory + this.GAP, after = write + m.writers * this.HEAD;
    return {
      ...m, vectors, heights, row, memory, input, output, read, before, write, after,
      time: Math.max(2, Math.min(room / m.steps, 16)), slot: Math.max(2, Math.min(room / m.slots, 24)),
    };
  },

  size(look) {
    const { after, memory, slots, slot, steps, time, vectors } = this.layout(look);
    const room = Math.max(slots * slot + 14 + this.VECTOR * vectors, steps * time, 340);
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
    p.text(8, l.after + l.memory + 12, `slots 0 to ${l.slots - 1}; blue above 0, orange below`, { fill: ink().faint, limit: 80 });
  },

  at(look, x, y) {
    const l = this.layout(look), isTime = y < l.read - this.GAP / 2, step = isTime ? l.time : l.slot;
    const i = Math.floor((x - this.LEFT) / step);
    if (i < 0 || i >= (isTime ? l.steps : l.slots)) return null;
    return isTime ? [i, look.key] : [look.query, i];
  },
};
VIEWS.memory = player;

// The stages of the addressing of a head at a step, [name, values of the slots, their
// parameter]: Graves et al. (2014), eqs. 5 to 9.
function stagesOf(a, head, step) {
  const { contents, slots, width } = memories(a), { details: d } = a;
  const key = part(d.key, head, step), at = (x) => part(x, head)[step];
  const strength = at(d.strength), gate = at(d.gate), sharpening = at(d.sharpening);
  const shifts = part(d.shifts, head, step), reach = (shifts.length - 1) / 2;
  const previous = step ? part(d.weights, head, step - 1) : part(d.focus, head);
  const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  const norm = (x) => (dot(x, x) > 1e-24 ? Math.sqrt(dot(x, x)) : Infinity); // the cosine with 0 is 0
  const scores = Array.from({ length: slots }, (_, n) => {
    const slot = contents[step].subarray(n * width, (n + 1) * width);
    return (strength * dot(key, slot)) / (norm(key) * norm(slot));
  });
  const content = softmaxOf(scores);
  const gated = content.map((w, n) => gate * w + (1 - gate) * previous[n]);
  const shifted = gated.map((_, n) => shifts.reduce(
    (sum, share, j) => sum + share * gated[(n - j + reach + slots) % slots], 0));
  const sharpened = softmaxOf(shifted.map((w) => sharpening * Math.log(w)));
  const list = Array.from(shifts, (x) => x.toFixed(2)).join(" ");
  return [
    ["β × cosine", scores, `β ${strength.toFixed(2)}`], ["content", content, ""],
    ["interpolated", gated, `g ${gate.toFixed(2)}`], ["shifted", shifted, `s ${list}`],
    ["sharpened", sharpened, `γ ${sharpening.toFixed(2)}`],
  ];
}

// "read" or "write", with a number if there are several.
function headName({ readers, writers }, head) {
  const [name, count, number] = head < readers ? ["read", readers, head] : ["write", writers, head - readers];
  return count > 1 ? `${name} ${number + 1}` : name;
}

const addressing = {
  ROW: 30, GAP: 24, NOTE: 170,
  label: "the stages of the addressing of each head; the table has the numbers",

  size(look) {
    const { heads, slots, slot } = player.layout(look);
    return [player.LEFT + slots * slot + this.NOTE, heads * (5 * this.ROW + this.GAP)];
  },

  paint(p, look) {
    const l = player.layout(look), left = player.LEFT, high = this.ROW - 8;
    for (let head = 0, y = 0; head < l.heads; head++) {
      p.text(left, y + 10, `${headName(l, head)} head, step ${look.query + 1}`);
      y += this.GAP;
      stagesOf(look.attention, head, look.query).forEach(([name, values, note], stage) => {
        const limit = stage ? 1 : Math.max(1e-12, ...values.map(Math.abs));
        p.text(left - 8, y + high / 2, name, { anchor: "end" });
        bars(p, values, left, y, l.slot, high, limit, (n) => (n === look.key ? ink().mark : css(colour(0.6))));
        p.text(left + l.slots * l.slot + 8, y + high / 2, note, { fill: ink().faint, limit: 40 });
        y += this.ROW;
      });
    }
  },

  // The stages at the chosen slot, a column for each head.
  table(look) {
    const m = memories(look.attention), heads = Array.from({ length: m.heads }, (_, head) => head);
    const row = (tag, ...cells) => element("tr", {}, ...cells.map((textContent) => element(tag, { textContent })));
    const stages = heads.map((head) => stagesOf(look.attention, head, look.query));
    const lines = stages[0].map(([name], i) => row("td", name, ...stages.map((each) => number(each[i][1][look.key]))));
    const caption = element("caption", { textContent: `Slot ${look.attention.keys[look.key]}` });
    return element("table", {}, caption, element("thead", {}, row("th", "stage", ...heads.map((h) => headName(m, h)))), element("tbody", {}, ...lines));
  },
};

// What shows how the weights of an attention are computed; null without details.
function workingsOf(attention) {
  if (hasScores(attention)) return cellScore;
  return hasMemory(attention) ? addressing : null;
}
