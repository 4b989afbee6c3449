"use strict";
// Legend: a click hides and shows a case in all plots.
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", shown);
    for (const line of document.querySelectorAll(".plot .s" + button.dataset.case)) line.style.display = shown ? "" : "none";
  });
}
// Pointer: the values of all lines at its place.
const labels = [...document.querySelectorAll(".legend button")].map((b) => b.textContent);
const value = (axis, share) => {
  const [scale, low, high] = [axis[0], Number(axis[1]), Number(axis[2])];
  return scale === "log" ? low * (high / low) ** share : low + (high - low) * share;
};
const digits = (v) => (v === 0 ? "0" : Number(v.toPrecision(3)).toString());
for (const svg of document.querySelectorAll("svg.plot")) {
  const [left, top, width, height] = svg.dataset.frame.split(" ").map(Number);
  const [x, y] = [svg.dataset.x.split(" "), svg.dataset.y.split(" ")];
  const lines = [...svg.querySelectorAll("polyline.series")].map((line) => ({
    line,
    number: Number(/\bs(\d+)/.exec(line.getAttribute("class"))[1]),
    points: line.getAttribute("points").split(" ").map((p) => p.split(",").map(Number)),
  }));
  const tip = svg.parentElement.appendChild(document.createElement("div"));
  tip.className = "tip";
  const cursor = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "line"));
  cursor.setAttribute("class", "cursor");
  cursor.setAttribute("y1", top);
  cursor.setAttribute("y2", top + height);
  const hide = () => { tip.style.display = cursor.style.display = "none"; };
  hide();
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    if (at < left || at > left + width) return hide();
    tip.textContent = "";
    tip.append(svg.dataset.xlabel + ": " + digits(value(x, (at - left) / width)));
    for (const { line, number, points } of lines) {
      if (line.style.display === "none" || points.length < 2) continue;
      const near = points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a));
      const row = tip.appendChild(document.createElement("div"));
      row.className = "s" + number;
      const dashed = line.classList.contains("dashed") ? " (dashed)" : "";
      row.textContent = labels[number] + dashed + ": " + digits(value(y, 1 - (near[1] - top) / height));
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
