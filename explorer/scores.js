// What the weight of a cell is computed from: the terms of its score, one for each unit,
// the scores of the row, and their softmax; see `ScoreDetails` in base/records.py.

const MAX_TERMS = 5; // in the table
const hasScores = (attention) => attention.details?.type === "ScoreDetails";

// The part of an array of details at the first indices.
function part(x, ...at) {
  const size = x.shape.slice(at.length).reduce((a, b) => a * b, 1);
  const start = at.reduce((sum, i, axis) => sum * x.shape[axis] + i, 0);
  return x.subarray(start * size, (start + 1) * size);
}

// The first indices of the details of a row: its head and number or, of a query with keys
// of its own, its number and 0.
const placeOf = ({ details: d }, head, row) => (d.own_keys ? [row, 0] : [head, row]);

// The units of a cell: query, key, location, what an additive score has inside (`hidden`)
// and its v, and the terms, which add up to `sum`.
function unitsOf(a, head, row, column) {
  const { details: d } = a, [h, q] = placeOf(a, head, row);
  const query = part(d.query, h, q), key = part(d.key, h, column);
  const location = d.location && part(d.location, h, q, column);
  const v = d.v && part(d.v, h);
  const f = d.activation === "relu" ? (x) => Math.max(x, 0) : Math.tanh;
  const hidden = v && query.map((x, i) => f(x + key[i] + (location ? location[i] : 0)));
  const terms = query.map((x, i) => (v ? v[i] * hidden[i] : x * key[i]));
  return { query, key, location, hidden, v, terms, sum: terms.reduce((a, b) => a + b, 0) };
}

// The sums, biases, scores and softmax of a row; -Infinity at a masked key.
function scoresOf(a, head, row) {
  const d = a.details, id = [head, row].join();
  if (d.last?.id === id) return d.last;
  const [h, q] = placeOf(a, head, row), biases = part(d.bias, Math.min(h, d.bias.shape[0] - 1), q);
  const columns = Array.from(biases.keys()), scale = d.scale[h];
  const sums = columns.map((k) => unitsOf(a, head, row, k).sum);
  const scores = sums.map((sum, k) => scale * sum + biases[k]);
  d.last = { id, scale, sums, biases, scores, softmax: softmaxOf(scores) };
  return d.last;
}

// The softmax of scores; 0 where all are -Infinity.
function softmaxOf(scores) {
  const largest = Math.max(...scores), isEmpty = largest === -Infinity;
  const exps = scores.map((score) => (isEmpty ? 0 : Math.exp(score - largest)));
  const total = exps.reduce((x, y) => x + y, 0) || 1;
  return exps.map((x) => x / total);
}

// Bars up and down from 0; `fill(i)` is the colour of bar i.
function bars(p, values, x, y, step, height, limit, fill) {
  const isSigned = values.some((value) => value < 0 && Number.isFinite(value));
  const unit = (height / (isSigned ? 2 : 1)) / limit, zero = isSigned ? y + height / 2 : y + height;
  values.forEach((value, i) => {
    if (!Number.isFinite(value)) return;
    const bar = value * unit;
    p.rect(x + i * step, Math.min(zero, zero - bar), Math.max(step - (step > 3), 0.5), Math.abs(bar), fill(i));
  });
  p.line([[x, zero], [x + values.length * step, zero]], ink().faint);
}

// The head of a cell: the chosen one or, of a mixture, that with the largest weight.
function headOf({ attention: a, head, query, key }) {
  const weight = (h) => a.weights[(h * a.rows + query) * a.columns + key];
  return a.headsOf(head).reduce((best, h) => (weight(h) > weight(best) ? h : best));
}

const cellScore = {
  LEFT: 110, RIGHT: 90, STRIP: 22, BARS: 64,
  label: "the terms of the score, the scores of the row and their softmax; the table has the numbers",

  // The head, its numbers, and the rows of the drawing: [label, values, height, how values
  // are drawn].
  cell(look) {
    const { attention: a, query, key, columns } = look, head = headOf(look);
    const id = [head, query, key].join();
    if (look.cell?.id === id) return look.cell;
    const units = unitsOf(a, head, query, key), row = scoresOf(a, head, query);
    const lines = [["query", units.query], ["key", units.key]];
    if (units.location) lines.push(["location", units.location]);
    const f = a.details.activation;
    if (units.v) lines.push([`${f}(sum)`, units.hidden], ["v", units.v]);
    const made = lines.map(([label, values]) => [label, values, this.STRIP, "strip"]);
    made.push([units.v ? `v × ${f}` : "query × key", units.terms, this.BARS, "terms"]);
    for (const name of ["scores", "softmax"]) {
      made.push([name, columns.map((k) => row[name][k]), this.BARS, "keys"]);
    }
    look.cell = { id, head, lines: made, units, row };
    return look.cell;
  },

  size(look) {
    const { lines } = this.cell(look);
    const labels = labelSpace(look.columns.map((k) => look.attention.keys[k]), 150);
    const height = lines.reduce((sum, [, , height]) => sum + height + 8, 30 + labels + 24);
    return [Math.min(look.width, 760), height];
  },

  paint(p, look) {
    const { head, lines, units, row } = this.cell(look);
    const { attention: a, query, key, columns } = look, [width, bottom] = this.size(look);
    const room = width - this.LEFT - this.RIGHT, left = this.LEFT;
    const title = `${shorten(a.queries[query])} → ${shorten(a.keys[key])}` + (a.heads > 1 ? `, head ${head + 1}` : "");
    p.text(left, 10, title, { limit: 80 });
    let y = 26;
    for (const [label, values, height, kind] of lines) {
      const step = room / values.length, finite = Array.from(values).filter(Number.isFinite);
      const limit = Math.max(1e-12, ...finite.map(Math.abs));
      p.text(left - 8, y + height / 2, label, { anchor: "end" });
      if (kind === "strip") {
        values.forEach((x, i) => p.rect(left + i * step, y, step, height, css(signedColour(x / limit))));
      } else {
        bars(p, values, left, y, step, height, limit,
          (i) => (kind === "keys" && columns[i] === key ? ink().mark : css(colour(0.6))));
      }
      p.frame(left, y, room, height, ink().faint, 1);
      const note = { strip: `± ${limit.toFixed(2)}`, terms: `sum ${units.sum.toFixed(3)}` }[kind];
      p.text(left + room + 8, y + height / 2, note ?? number(row[label][key]));
      y += height + 8;
    }
    const step = room / columns.length;
    if (step >= LABELS) columns.forEach((k, i) => p.text(left + (i + 0.5) * step, y, a.keys[k],
      { turned: true, anchor: "end", fill: k === key ? ink().mark : ink().text }));
    p.text(left, bottom - 12, this.equation(row, key), { limit: 120 });
  },

  equation({ scale, sums, biases, scores, softmax }, key) {
    const scaled = scale === 1 ? "" : ` × ${number(scale)}`;
    const bias = biases[key] && Number.isFinite(biases[key]) ? ` + ${number(biases[key])}` : "";
    const parts = [number(sums[key]), scaled, bias].join("");
    const score = scaled || bias ? `${parts} = ${number(scores[key])}` : parts;
    return `score ${score}; softmax ${softmax[key].toFixed(4)}`;
  },

  // The same in numbers.
  table(look) {
    const { attention: a, query, key } = look, { head, units, row } = this.cell(look);
    const line = (...cells) => element("tr", {}, ...cells.map((textContent) => element("td", { textContent })));
    const bias = row.biases[key], weight = a.text(head, query, key);
    const lines = [line("sum of the terms", number(units.sum))];
    if (row.scale !== 1) lines.push(line("scale", `× ${number(row.scale)}`));
    if (bias) lines.push(line(bias === -Infinity ? "mask" : "bias", bias === -Infinity ? "masked" : `+ ${number(bias)}`));
    lines.push(line("score", number(row.scores[key])), line("softmax", row.softmax[key].toFixed(4)), line("weight", weight));
    const order = Array.from(units.terms.keys()).sort((i, j) => Math.abs(units.terms[j]) - Math.abs(units.terms[i]));
    const [first, second] = units.v ? [units.v, units.hidden] : [units.query, units.key];
    for (const i of order.slice(0, MAX_TERMS)) {
      lines.push(line(`unit ${i + 1}`, `${number(first[i])} × ${number(second[i])} = ${number(units.terms[i])}`));
    }
    const isPlain = Math.abs(parseFloat(weight.replace("≈ ", "")) - row.softmax[key]) < 0.01;
    const caption = element("caption", { textContent: isPlain ? "The score and its largest terms" : "The score; its alignment is not a plain softmax" });
    return element("table", {}, caption, element("tbody", {}, ...lines));
  },
};

const number = (x) => (Number.isFinite(x) ? x.toFixed(3) : "masked");
