// plots.js: small line plots in SVG. Points come in for as long as the stream runs; what is drawn is thinned to what can be seen.

const NS = "http://www.w3.org/2000/svg";
const W = 288;

export class Plot {
  // lines: ["a", "b"]: their classes. rule: a horizontal line at this value.
  constructor(svg, lines, { height = 92, rule = null, unit = "", floor = 0, least = 1 } = {}) {
    Object.assign(this, { svg, lines, height, rule, unit, floor, least });
    svg.setAttribute("viewBox", `0 0 ${W} ${height}`);
    svg.setAttribute("preserveAspectRatio", "none");
    this.clear();
  }
  clear() {
    this.x = [];
    this.y = this.lines.map(() => []);
    this.marks = [];
    this.draw();
  }
  add(x, values) {
    if (this.x.length && x <= this.x[this.x.length - 1]) return; // told again after a reconnect
    this.x.push(x);
    values.forEach((v, i) => this.y[i].push(v));
    if (this.x.length > 4000) { // every second point is enough for the past
      const keep = (_, i) => i % 2 === 0 || i > 2000;
      this.x = this.x.filter(keep);
      this.y = this.y.map((l) => l.filter(keep));
    }
    this.dirty = true;
  }
  mark(x) { this.marks.push(x); this.dirty = true; }
  draw() {
    this.dirty = false;
    const last = this.x.length ? this.x[this.x.length - 1] : 1, first = this.x[0] || 0, span = Math.max(last - first, 4);
    let top = this.least, low = this.floor;
    for (const line of this.y) for (const v of line) { if (v > top) top = v; if (v < low) low = v; }
    if (this.rule !== null && this.rule > top) top = this.rule;
    const pad = 12, h = this.height - pad;
    const px = (x) => ((x - first) / span) * W, py = (v) => h - ((v - low) / (top - low || 1)) * (h - 4) + 4;
    const parts = [];
    const add = (name, attributes, text) => {
      const e = document.createElementNS(NS, name);
      for (const k in attributes) e.setAttribute(k, attributes[k]);
      if (text !== undefined) e.textContent = text;
      parts.push(e);
    };
    const level = this.rule !== null ? this.rule : 0;
    add("line", { class: "rule", x1: 0, x2: W, y1: py(level), y2: py(level) });
    for (const m of this.marks) if (m >= first) add("line", { class: "mark", x1: px(m), x2: px(m), y1: 0, y2: h + 4 });
    this.y.forEach((line, k) => {
      const step = Math.max(1, Math.floor(line.length / 500));
      let d = "";
      for (let i = 0; i < line.length; i += step) d += (d ? "L" : "M") + px(this.x[i]).toFixed(1) + " " + py(line[i]).toFixed(1);
      if (d) add("path", { class: this.lines[k], d });
    });
    this.svg.replaceChildren(...parts);
    // as HTML: words inside the drawing would be stretched with it
    this.svg.parentElement.dataset.top = this.x.length ? "to " + top.toFixed(top < 3 ? 2 : 0) + this.unit : "";
  }
}
