// What views draw with: the same calls paint a canvas on the screen and write an SVG.

const SVG = "http://www.w3.org/2000/svg";
const FONT = "system-ui, sans-serif";
const MAX_LABEL = 24; // characters

// One hue, by luminance: colours at weights 0, 1/2 and 1.
const SCALES = {
  light: [[255, 255, 255], [107, 174, 214], [8, 48, 107]],
  dark: [[18, 24, 32], [43, 108, 176], [232, 244, 255]],
};
const INKS = {
  light: { text: "#1a1a1a", faint: "#767676", paper: "#ffffff", mark: "#c2410c" },
  dark: { text: "#f0f0f0", faint: "#9a9a9a", paper: "#121820", mark: "#fb923c" },
};
const theme = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const ink = () => INKS[theme()];

// The colour of a weight from 0 to 1, as [red, green, blue].
function colour(weight) {
  const stops = SCALES[theme()], at = Math.min(Math.max(weight, 0), 1) * 2;
  const low = stops[Math.min(Math.floor(at), 1)], high = stops[Math.min(Math.floor(at), 1) + 1];
  const share = at - Math.min(Math.floor(at), 1);
  return low.map((x, i) => Math.round(x + share * (high[i] - x)));
}

// The colour of a value from -1 to 1: that of a weight, or the ink of marks below 0.
function signedColour(value) {
  if (value >= 0) return colour(value);
  const mark = [1, 3, 5].map((i) => parseInt(ink().mark.slice(i, i + 2), 16));
  return colour(0).map((x, i) => Math.round(x + Math.min(-value, 1) * (mark[i] - x)));
}
const css = (rgb) => `rgb(${rgb.join(",")})`;

function shorten(text, limit = MAX_LABEL) {
  const points = Array.from(text.slice(0, 4 * limit));
  return points.length > limit ? points.slice(0, limit - 1).join("") + "…" : points.join("");
}

class CanvasPainter {
  constructor(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    [canvas.width, canvas.height] = [Math.ceil(width * ratio), Math.ceil(height * ratio)];
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    this.context = canvas.getContext("2d");
    this.context.scale(ratio, ratio);
    this.context.imageSmoothingEnabled = false;
  }

  #with(opacity, draw) {
    this.context.globalAlpha = opacity;
    draw(this.context);
    this.context.globalAlpha = 1;
  }

  rect(x, y, width, height, fill, opacity = 1) {
    this.#with(opacity, (c) => {
      c.fillStyle = fill;
      c.fillRect(x, y, width, height);
    });
  }

  // dash: the length of dashes and gaps; 0 for none.
  frame(x, y, width, height, stroke, thickness = 2, dash = 0) {
    this.context.strokeStyle = stroke;
    this.context.lineWidth = thickness;
    this.context.setLineDash(dash ? [dash] : []);
    this.context.strokeRect(x, y, width, height);
    this.context.setLineDash([]);
  }

  line(points, stroke, thickness = 1, opacity = 1) {
    this.#with(opacity, (c) => {
      c.strokeStyle = stroke;
      c.lineWidth = thickness;
      c.beginPath();
      points.forEach(([x, y], i) => (i ? c.lineTo(x, y) : c.moveTo(x, y)));
      c.stroke();
    });
  }

  circle(x, y, radius, fill, opacity = 1) {
    this.#with(opacity, (c) => {
      c.fillStyle = fill;
      c.beginPath();
      c.arc(x, y, radius, 0, 2 * Math.PI);
      c.fill();
    });
  }

  // anchor: "start", "middle" or "end"; turned: read from bottom to top.
  text(x, y, text, { fill = ink().text, anchor = "start", turned = false, size = 12, limit = MAX_LABEL } = {}) {
    const c = this.context;
    c.save();
    c.translate(x, y);
    if (turned) c.rotate(-Math.PI / 2);
    c.direction = "ltr";
    c.font = `${size}px ${FONT}`;
    c.fillStyle = fill;
    c.textAlign = anchor === "middle" ? "center" : anchor;
    c.textBaseline = "middle";
    c.fillText(shorten(text, limit), 0, 0);
    c.restore();
  }

  image(source, x, y, width, height, opacity = 1) {
    this.#with(opacity, (c) => c.drawImage(source, x, y, width, height));
  }
}

class SvgPainter {
  constructor(width, height) {
    this.root = document.createElementNS(SVG, "svg");
    this.#set(this.root, { width, height, viewBox: `0 0 ${width} ${height}` });
  }

  #set(element, attributes) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  #add(tag, attributes) {
    return this.root.appendChild(this.#set(document.createElementNS(SVG, tag), attributes));
  }

  rect(x, y, width, height, fill, opacity = 1) {
    this.#add("rect", { x, y, width, height, fill, "fill-opacity": opacity });
  }

  frame(x, y, width, height, stroke, thickness = 2, dash = 0) {
    const dashes = dash ? { "stroke-dasharray": dash } : {};
    this.#add("rect", { x, y, width, height, fill: "none", stroke, "stroke-width": thickness, ...dashes });
  }

  line(points, stroke, thickness = 1, opacity = 1) {
    const attributes = { fill: "none", stroke, "stroke-width": thickness };
    const list = points.map((point) => point.join(",")).join(" ");
    this.#add("polyline", { points: list, ...attributes, "stroke-opacity": opacity });
  }

  circle(x, y, radius, fill, opacity = 1) {
    this.#add("circle", { cx: x, cy: y, r: radius, fill, "fill-opacity": opacity });
  }

  text(x, y, text, { fill = ink().text, anchor = "start", turned = false, size = 12, limit = MAX_LABEL } = {}) {
    const element = this.#add("text", {
      x, y, fill, "text-anchor": anchor, "font-size": size, "font-family": FONT,
      "dominant-baseline": "central", direction: "ltr",
    });
    if (turned) element.setAttribute("transform", `rotate(-90 ${x} ${y})`);
    // Characters that XML does not allow.
    element.textContent = shorten(text, limit).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "�");
  }

  image(source, x, y, width, height, opacity = 1) {
    const href = source.toDataURL("image/png");
    const attributes = { x, y, width, height, href, opacity };
    this.#add("image", { ...attributes, style: "image-rendering: pixelated" });
  }

  toString() {
    return new XMLSerializer().serializeToString(this.root);
  }
}
