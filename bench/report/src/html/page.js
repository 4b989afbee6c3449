"use strict";
// Axes: ends and divisions at round numbers.
// 1, 2 or 5 times a power of ten, at least `v`.
const nice = (v) => {
  const power = 10 ** Math.floor(Math.log10(v));
  const times = v / power;
  return power * [1, 2, 5, 10].find((n) => times <= n * 1.000001);
};
// The greatest such number up to `v`.
const niceBelow = (v) => [1, 0.5, 0.4, 0.2, 0.1].map((f) => f * nice(v)).find((low) => low <= v * 1.000001);
const range = (values, scale) => {
  const log = scale === "log";
  const usable = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
  const [low, high] = usable.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  if (low > high) return { log, low: log ? 1 : 0, high: 10 };
  if (!log) {
    const step = nice((high || 1) / 8);
    return { log, low: 0, high: high > 0 ? Math.ceil(high / step - 1e-9) * step : 1 };
  }
  const ends = { log, low: niceBelow(low), high: nice(high) };
  return ends.high > ends.low ? ends : { ...ends, high: ends.low * 10 };
};
const share = ({ log, low, high }, v) => (log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low));
const value = ({ log, low, high }, part) => (log ? low * (high / low) ** part : low + (high - low) * part);
const ticks = ({ log, low, high }) => {
  const all = [];
  if (log) {
    const within = Math.log10(high / low) > 2 ? [1] : [1, 2, 5];
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    for (let e = first; e <= last; e++) all.push(...within.map((m) => Number(m + "e" + e)));
  } else {
    const step = nice(high / 8);
    for (let i = 0; i <= 20; i++) all.push(i * step);
  }
  return all.filter((v) => v >= low * 0.999999 && v <= high * 1.000001);
};
const digits = (v) => (v === 0 ? "0" : Number(v.toPrecision(3)).toString());
// 15000 is 15k; down to a hundredth a plain decimal reads better.
const short = (v) => {
  if (v === 0 || (v >= 0.01 && v < 10000)) return Number(v.toPrecision(6)).toString();
  const unit = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"]].find(([u]) => v >= u * 0.999999);
  return unit ? Number((v / unit[0]).toPrecision(6)) + unit[1] : v.toExponential();
};

// Plots: lines are made once, and placed again when a case is hidden or shown.
const [WIDTH, HEIGHT] = [520, 320];
// Where lines are: left, top, width, height.
const [x0, y0, width, height] = [72, 12, 428, 262];
const element = (parent, name, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return parent.appendChild(made);
};
// Lines of so few points have marks there; others have this many, so that they are told apart without colour.
const MARKED = 40;
const SPARSE = 5;
const MARKS = JSON.parse(document.getElementById("marks").textContent);
const marks = [...document.querySelectorAll(".legend button")].map((b) => MARKS[b.dataset.mark]);
const hidden = new Set();
const labels = [...document.querySelectorAll(".legend button")].map((b) => b.textContent);
const plots = JSON.parse(document.getElementById("plots").textContent).map((plot) => {
  const svg = document.getElementById(plot.id);
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  const grid = element(svg, "g", {});
  element(svg, "path", { class: "axis", d: `M${x0} ${y0}v${height}h${width}` });
  element(svg, "text", { class: "label", x: x0 + width / 2, y: HEIGHT - 8, "text-anchor": "middle" }, plot.x.label);
  const middle = y0 + height / 2;
  const turned = { class: "label", x: 17, y: middle, "text-anchor": "middle", transform: `rotate(-90 17 ${middle})` };
  element(svg, "text", turned, plot.y.label);
  const lines = plot.lines.map((line) => {
    const usable = ([x, y]) => (plot.x.scale !== "log" || x > 0) && (plot.y.scale !== "log" || y > 0);
    const points = line.points.filter(usable);
    const style = { class: `series s${line.case}${line.dashed ? " dashed" : ""}` };
    const drawn = element(svg, "polyline", style);
    // Where points are few, nobody is to take what is between them for measured.
    const each = points.length <= MARKED;
    const places = each ? points : Array(SPARSE).fill();
    const shape = { ...style, class: style.class + (each ? " mark" : " mark sparse"), d: marks[line.case] };
    const drawnMarks = places.map(() => element(svg, "path", shape));
    // A plot that has spreads has one at each point.
    const spread = (line.spread || []).filter((_, n) => usable(line.points[n]));
    const bars = spread.map(() => element(svg, "path", { ...style, class: style.class + " spread" }));
    return { ...line, points, drawn, each, marks: drawnMarks, spread, bars };
  });
  const marked = lines.every((line) => line.points.length <= MARKED);
  const events = (plot.events || []).map(({ at, text }) => {
    const line = element(svg, "line", { class: "event", y1: y0, y2: y0 + height });
    element(line, "title", {}, text);
    return { at, line, text, said: element(svg, "text", { class: "event" }) };
  });
  const tip = svg.parentElement.appendChild(document.createElement("div"));
  tip.className = "tip";
  const cursor = element(svg, "line", { class: "cursor", y1: y0, y2: y0 + height });
  return { ...plot, svg, grid, lines, marked, events, tip, cursor };
});
// Letters of an event need so much room to the next one's, numbers of an axis so much between them.
const ROOM = 17;
const GAP = 6;
// Cuts off what does not fit into `room`.
const fit = (text, said, room) => {
  text.textContent = said;
  for (let n = said.length - 1; n > 0 && text.getComputedTextLength() > room; n--) text.textContent = said.slice(0, n) + "…";
};
const nearest = (places, at) => places.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a));
const draw = (plot) => {
  const shown = plot.lines.filter((line) => !hidden.has(line.case));
  // Axes fit what is shown; of nothing, what was.
  if (shown.length > 0 || plot.ranges === undefined) {
    const points = shown.flatMap((line) => line.points);
    const spread = shown.flatMap((line) => line.spread.flat());
    plot.ranges = [range(points.map((p) => p[0]), plot.x.scale), range(points.map((p) => p[1]).concat(spread), plot.y.scale)];
  }
  const [x, y] = plot.ranges;
  const px = (v) => (x0 + share(x, v) * width).toFixed(1);
  const py = (v) => (y0 + (1 - share(y, v)) * height).toFixed(1);
  plot.grid.replaceChildren();
  let right = -Infinity;
  for (const v of ticks(x)) {
    element(plot.grid, "line", { class: "grid", x1: px(v), y1: y0, x2: px(v), y2: y0 + height });
    const text = element(plot.grid, "text", { x: px(v), y: y0 + height + 16, "text-anchor": "middle" }, short(v));
    const half = text.getComputedTextLength() / 2;
    // Many powers of ten stand close together.
    if (Number(px(v)) - half < right + GAP) text.remove();
    else right = Number(px(v)) + half;
  }
  for (const v of ticks(y)) {
    element(plot.grid, "line", { class: "grid", x1: x0, y1: py(v), x2: x0 + width, y2: py(v) });
    element(plot.grid, "text", { x: x0 - 6, y: Number(py(v)) + 4, "text-anchor": "end" }, short(v));
  }
  for (const line of plot.lines) {
    for (const part of [line.drawn, ...line.marks, ...line.bars]) part.style.display = hidden.has(line.case) ? "none" : "";
    if (hidden.has(line.case)) continue;
    line.places = line.points.map(([a, b]) => [Number(px(a)), Number(py(b)), b]);
    line.drawn.setAttribute("points", line.places.map(([a, b]) => a + "," + b).join(" "));
    line.marks.forEach((mark, n) => {
      // Those of different lines are at different places.
      const aim = x0 + (width * (n + ((line.case * 0.37) % 1))) / SPARSE;
      const [a, b] = line.each ? line.places[n] : nearest(line.places, aim);
      mark.setAttribute("transform", `translate(${a} ${b})`);
      // A short line needs no five marks at its end.
      if (!line.each && Math.abs(a - aim) > width / SPARSE / 2) mark.style.display = "none";
    });
    line.bars.forEach((bar, n) => {
      const [low, high] = line.spread[n];
      bar.setAttribute("d", `M${line.places[n][0] - 4} ${py(high)}h8m-4 0V${py(low)}m-4 0h8`);
    });
  }
  let last = -Infinity;
  for (const { at, line, text, said } of plot.events) {
    const place = Number(px(at));
    const inside = place >= x0 - 0.5 && place <= x0 + width + 0.5;
    line.setAttribute("x1", place);
    line.setAttribute("x2", place);
    line.style.display = inside ? "" : "none";
    const fits = inside && place - last >= ROOM && place - x0 >= ROOM;
    said.style.display = fits ? "" : "none";
    if (!fits) continue;
    last = place;
    fit(said, text, height - 2 * GAP);
    said.setAttribute("transform", `translate(${place - 3} ${y0 + 3}) rotate(-90)`);
    said.setAttribute("text-anchor", "end");
  }
};
plots.forEach(draw);
// Letters have another size on a narrow page.
addEventListener("resize", () => plots.forEach(draw));

// Legend: a click hides and shows a case in all plots.
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const number = Number(button.dataset.case);
    if (!hidden.delete(number)) hidden.add(number);
    button.setAttribute("aria-pressed", !hidden.has(number));
    plots.forEach(draw);
  });
}

// Pointer: the values of all lines at its place.
for (const plot of plots) {
  const { svg, lines, tip, cursor, x } = plot;
  const hide = () => { tip.style.display = cursor.style.display = "none"; };
  hide();
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    let at = ((event.clientX - box.left) / box.width) * WIDTH;
    if (at < x0 || at > x0 + width) return hide();
    const shown = lines.filter((line) => !hidden.has(line.case) && line.points.length > 0);
    // Between marks there is nothing to be told.
    if (plot.marked && shown.length > 0) at = nearest(shown.flatMap((line) => line.places), at)[0];
    tip.textContent = "";
    tip.append(x.label + ": " + digits(value(plot.ranges[0], (at - x0) / width)));
    for (const line of shown) {
      const near = nearest(line.places, at);
      if (plot.marked && Math.abs(near[0] - at) > 1) continue;
      const row = tip.appendChild(document.createElement("div"));
      row.className = "s" + line.case;
      const between = line.spread[line.places.indexOf(near)];
      const ends = between ? " (" + between.map(digits).join(" to ") + ")" : "";
      row.textContent = labels[line.case] + (line.dashed ? " (dashed)" : "") + ": " + digits(near[2]) + ends;
    }
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    tip.style.display = cursor.style.display = "block";
    const inside = event.clientX - svg.parentElement.getBoundingClientRect().left;
    const most = svg.parentElement.clientWidth - tip.offsetWidth - 4;
    tip.style.left = Math.max(4, Math.min(inside + 14, most)) + "px";
    tip.style.top = "64px";
  });
}
