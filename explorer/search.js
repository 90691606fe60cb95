// The tree of a beam search: the hypotheses in the beam at each step, from left to right;
// see `SearchTree` in base/records.py. A hypothesis that no finished one continues is
// faded.

// The nodes: [{ step, row, token, score, parent, ended }], steps from 1, after the root.
function nodesOf(tree) {
  if (tree.nodes) return tree.nodes;
  const root = { step: 0, row: 0, token: "<s>", score: 0, parent: null };
  const nodes = [root], rows = tree.tokens[0].length;
  let beam = Array.from({ length: rows }, (_, row) => (row ? null : root));
  tree.tokens.forEach((tokens, t) => {
    const next = tokens.map((token, row) => {
      const score = tree.log_probs[t][row], parent = beam[tree.parents[t][row]];
      return score === null || !parent ? null : { step: t + 1, row, token, score, parent };
    });
    const ends = tree.ended[t].flatMap((score, row) => (
      score === null || !beam[row] ? [] : [{ step: t + 1, token: "</s>", score, parent: beam[row], ended: true }]));
    ends.forEach((end, i) => { end.row = rows + i; });
    nodes.push(...next.filter(Boolean), ...ends);
    beam = next;
  });
  const ends = nodes.filter((node) => node.ended);
  const best = ends.reduce((one, other) => (one && one.score >= other.score ? one : other), null);
  for (const end of ends) for (let node = end; node; node = node.parent) node.isAlive = true;
  for (let node = best; node; node = node.parent) node.isBest = true;
  tree.nodes = nodes;
  return nodes;
}

const searchTree = {
  STEP: 84, ROW: 40, LEFT: 8, TOP: 30, isLine: true,

  size({ tree }) {
    const nodes = nodesOf(tree), most = (name) => Math.max(...nodes.map((node) => node[name])) + 1;
    return [2 * this.LEFT + most("step") * this.STEP, this.TOP + most("row") * this.ROW + 24];
  },

  paint(p, look) {
    const width = this.STEP - 26, height = this.ROW - 8, nodes = nodesOf(look.tree);
    const at = ({ step, row }) => [this.LEFT + step * this.STEP, this.TOP + row * this.ROW];
    for (const node of nodes) {
      if (!node.parent) continue;
      const [x, y] = at(node), [x0, y0] = at(node.parent);
      p.line([[x0 + width, y0 + height / 2], [x, y + height / 2]], node.isBest ? ink().mark : ink().faint, node.isBest ? 3 : 1, node.isAlive ? 1 : 0.4);
    }
    for (const node of nodes) {
      const [x, y] = at(node), fill = node.isAlive ? ink().text : ink().faint;
      p.rect(x, y, width, height, ink().paper);
      p.frame(x, y, width, height, node.isBest ? ink().mark : ink().faint, node.isBest ? 2 : node.isAlive ? 1 : 0.4);
      p.text(x + width / 2, y + 10, node.token, { anchor: "middle", limit: 8, fill });
      p.text(x + width / 2, y + 23, node.score.toFixed(2), { anchor: "middle", size: 10, fill });
    }
    const [w, h] = this.size(look), [x] = at({ step: look.query + 1, row: 0 });
    p.text(Math.min(x, w - 60), 12, `step ${look.query + 1}`, { fill: ink().mark });
    p.text(this.LEFT, h - 10, "log-probabilities; at </s> divided by the length penalty", { fill: ink().faint, limit: 80 });
  },

  // Where the chosen step begins and ends.
  edges(look) {
    const left = this.LEFT + (look.query + 1) * this.STEP;
    return [left, left + this.STEP];
  },

  at(look, x) {
    const step = Math.floor((x - this.LEFT) / this.STEP) - 1;
    return step >= 0 && step < look.attention.rows ? [step, look.key] : null;
  },

  // The first hypothesis of the chosen step as a sentence.
  sentence({ tree, query }) {
    const nodes = nodesOf(tree).filter(({ step }) => step === query + 1);
    if (!nodes.length) return `step ${query + 1}: the search has ended`;
    const best = nodes.find(({ isBest }) => isBest) ?? nodes[0];
    return `step ${query + 1}, ${best.isBest ? "on the way to the answer" : "first"}: ${wordsOf(best)} (${best.score.toFixed(2)}), one of ${nodes.length}`;
  },

  // The hypotheses of a step in numbers.
  table({ tree, query }) {
    const nodes = nodesOf(tree).filter(({ step }) => step === query + 1);
    const line = (node) => element("tr", {}, ...[node.score.toFixed(3), wordsOf(node)].map((textContent) => element("td", { textContent })));
    const caption = element("caption", { textContent: `The beam at step ${query + 1}` });
    return element("table", { className: "beam" }, caption, element("tbody", {}, ...nodes.map(line)));
  },
};
VIEWS.search = searchTree;

// The words of a hypothesis.
function wordsOf(node) {
  return node.parent ? `${wordsOf(node.parent)} ${shorten(node.token)}`.trim() : "";
}
