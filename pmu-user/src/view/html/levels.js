// Time for which a bandwidth was low, medium and high, with adjustable limits.

const LEVELS = ["low", "medium", "high"];
const PLOT_HEIGHT = 40;
const STEPS = 1000;

// Returns the seconds at each level, as in the report: the middle of a bin determines its level.
function atLevels(bins, [low, high]) {
  const seconds = [0, 0, 0];
  for (const [from, to, time] of bins) seconds[((from + to) / 2 >= low) + ((from + to) / 2 >= high)] += time;
  return seconds;
}

function levels() {
  const place = $("#levels");
  if (place) place.replaceChildren(...D.levels.map(levelFigure));
}

function levelFigure(row) {
  const top = Math.max(row.maximum, row.observed_max) || 1;
  const name = row.metric + " of " + subjectLabel(row.subject);
  const plot = drawn("svg", { class: "levels", viewBox: `0 0 ${STEPS} ${PLOT_HEIGHT}`, preserveAspectRatio: "none", role: "img",
    "aria-label": "Seconds by " + name + "; the table below has the sums, the two sliders move the limits." });
  const table = el("div", {});
  const most = row.bins.reduce((longest, [, , seconds]) => Math.max(longest, seconds), 0) || 1;
  const x = (value) => Math.min(STEPS, value / top * STEPS);
  let limits = [...row.limits];
  const sliders = ["Medium from", "High from"].map((label, which) => {
    const input = el("input", { type: "range", min: 0, max: STEPS, step: 1, "aria-label": `${label}, ${name}`, input: () => move(which, input.valueAsNumber / STEPS * top) });
    return { label, input, said: el("output", {}) };
  });
  // Moving one limit past the other moves both.
  const move = (which, value) => {
    limits[which] = Math.min(top, Math.max(0, value));
    limits[1 - which] = which ? Math.min(limits[0], limits[1]) : Math.max(limits[0], limits[1]);
    redraw();
  };
  const redraw = () => {
    plot.replaceChildren(...row.bins.map(([from, to, seconds]) => drawn("rect", { class: LEVELS[((from + to) / 2 >= limits[0]) + ((from + to) / 2 >= limits[1])],
      x: x(from), width: Math.max(2, x(to) - x(from)), y: PLOT_HEIGHT * (1 - seconds / most), height: PLOT_HEIGHT * seconds / most })),
    ...limits.map((limit) => drawn("rect", { class: "limit", x: x(limit) - 1, width: 2, y: 0, height: PLOT_HEIGHT })));
    sliders.forEach(({ input, said }, which) => {
      input.value = String(Math.round(limits[which] / top * STEPS));
      input.setAttribute("aria-valuetext", show(limits[which], row.unit));
      said.textContent = show(limits[which], row.unit);
    });
    table.replaceChildren(levelTable(row, name, limits));
  };
  let held = null;
  const at = (event) => event.offsetX / plot.clientWidth * top;
  plot.addEventListener("pointerdown", (event) => {
    held = Math.abs(at(event) - limits[0]) < Math.abs(at(event) - limits[1]) ? 0 : 1;
    plot.setPointerCapture(event.pointerId);
    move(held, at(event));
  });
  plot.addEventListener("pointermove", (event) => { if (held !== null) move(held, at(event)); });
  plot.addEventListener("pointerup", () => { held = null; });
  redraw();
  return el("figure", { class: "level" }, el("figcaption", {}, el("code", {}, row.metric), ` ${subjectLabel(row.subject)}: the most is ${show(row.maximum, row.unit)} (${row.basis}), ` +
    `the highest seen ${show(row.observed_max, row.unit)}, in slices of ${duration(row.slice_s * 1e9)}`),
  el("div", { class: "beside" },
    el("div", {}, plot, el("div", { class: "limits" }, sliders.map(({ label, input, said }) => el("label", {}, el("span", {}, label + " ", said), input)))),
    el("div", {}, table, el("button", { type: "button", click: () => { limits = [...row.limits]; redraw(); } }, "As reported"))));
}

function levelTable(row, name, limits) {
  const seconds = atLevels(row.bins, limits);
  const all = seconds.reduce((sum, one) => sum + one, 0) || 1;
  const [low, high] = limits.map((limit) => show(limit, row.unit));
  const ranges = ["below " + low, low + " – " + high, "from " + high];
  const caption = "Time at " + name;
  return scrolled(caption, el("table", {}, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, [["level", null], ["range", null], ["time", "n"], ["share", "n"]].map(([title, kind]) => el("th", { scope: "col", class: kind }, title)))),
    el("tbody", {}, LEVELS.map((level, index) => el("tr", {}, el("th", { scope: "row" }, level), el("td", {}, ranges[index]),
      el("td", { class: "n" }, duration(seconds[index] * 1e9)), el("td", { class: "n" }, percent(seconds[index] / all)))))));
}
