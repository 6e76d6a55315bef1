// Metrics over time, one below the other on one axis, with a common cursor, and a brush that selects a span.

const CHART_HEIGHT = 76;
const AXIS_HEIGHT = 18;
const LEFT = 64;
const LINES_MAX = 5;
const FIRST = ["cpu_time", "runqueue_latency", "Backend_Bound", "Frontend_Bound", "Retiring", "blind_time", "context_switches", "block.bandwidth", "block.latency",
  "pcie.inbound_write_bw", "pcie.inbound_read_bw", "dram.bw", "net.bandwidth"];

const T = { charts: [], cursor: null, redraw: [] };

const lineColour = (index) => colour("--line-" + (index % LINES_MAX + 1));

// Returns the conversions between time and pixels.
function scale(width) {
  const [first, last] = [D.spans[0].t, D.spans[D.spans.length - 1].end];
  const inner = width - LEFT - 4;
  return { x: (t) => LEFT + (t - first) / (last - first) * inner, t: (x) => first + (x - LEFT) / inner * (last - first) };
}

// Returns the value of a row in a chart. A number that adds up becomes a rate, so that intervals of different
// lengths compare.
function level(row, field = "value") {
  if (row.quantiles) return row.quantiles.p99[field] ?? row.quantiles.p99.value;
  if (!addsUp(row)) return row[field];
  const ticks = field === "least" || field === "most" ? D.about.ticks : 1;
  const rate = row[field] * ticks / (row.dt / 1e9);
  return row.unit === "ns" ? rate / 1e9 * 100 : rate;
}

function levelUnit(row) {
  if (row.kind === "histogram" || !addsUp(row)) return row.unit;
  return row.unit === "ns" ? "% of a CPU" : row.unit + "/s";
}

const showLevel = (value, unit) => (unit === "% of a CPU" ? three(value) + " %" : unit.endsWith("/s") && COUNTED.has(unit.slice(0, -2)) ? count(value) + "/s" : show(value, unit));

// Returns the owners that are drawn, in the same colours everywhere: the selected one, the target, then those
// that ran longest.
function drawnOwners() {
  const ran = D.numbers.filter((row) => row.metric === "cpu_time" && D.series.has(row.key))
    .sort((left, right) => (knownOf(right)?.value ?? -1) - (knownOf(left)?.value ?? -1));
  const first = (row) => (ownerKey(row.owner) === S.owner ? 2 : row.owner?.kind === "target" ? 1 : 0);
  return ran.sort((left, right) => first(right) - first(left)).map((row) => ownerKey(row.owner)).slice(0, LINES_MAX);
}

// Returns the lines of a metric, each with its colour. Numbers that are not of tasks usually have no owner:
// the largest ones are drawn then.
function linesOf(metric) {
  const found = D.numbers.filter((row) => row.metric === metric && D.series.has(row.key));
  const owners = drawnOwners();
  const own = found.filter((row) => !row.subject && owners.includes(ownerKey(row.owner)))
    .map((row) => ({ row, colour: owners.indexOf(ownerKey(row.owner)) })).sort((left, right) => left.colour - right.colour);
  if (own.length) return own;
  const weight = (row) => (row.owner && ownerKey(row.owner) === S.owner ? 2e30 : row.owner ? 0 : 1e30) + (knownOf(row)?.value ?? -1);
  const rest = found.sort((left, right) => weight(right) - weight(left));
  const ofHost = rest.filter((row) => !row.owner || ownerKey(row.owner) === S.owner);
  return (ofHost.length ? ofHost : rest).slice(0, LINES_MAX).map((row, colour) => ({ row, colour }));
}

function chart(metric, body) {
  const readout = el("span", { class: "readout" });
  const canvas = el("canvas", { tabindex: 0, role: "img" });
  const figure = el("figure", { class: "chart" }, el("figcaption", {}, el("code", {}, metric), " ", readout), canvas);
  body.append(figure);
  const draw = () => {
    const lines = linesOf(metric);
    if (!lines.length) return;
    const unit = levelUnit(lines[0].row);
    canvas.setAttribute("aria-label", `${metric} over time, ${lines.map(({ row }) => rowLabel(row)).join(", ")}. Left and right move the cursor, with shift they select a span, escape ends it.`);
    const at = prepared(canvas, CHART_HEIGHT);
    drawChart(at, lines, unit);
    readout.replaceChildren(...lines.map((line) => legend(line, unit)));
  };
  brushed(canvas);
  T.redraw.push(draw);
  return draw;
}

function legend({ row, colour: index }, unit) {
  const at = T.cursor === null ? null : D.series.get(row.key)[T.cursor];
  const swatch = el("i", { class: "swatch" });
  swatch.style.background = lineColour(index);
  const name = row.kind === "histogram" ? rowLabel(row) + " p99" : rowLabel(row);
  return el("span", { class: "entry" }, swatch, el("span", { class: "name" }, name), at ? el("b", {}, showLevel(level(at), unit)) : T.cursor === null ? "" : el("b", {}, "–"));
}

function drawChart({ pen, width, height }, lines, unit) {
  const { x } = scale(width);
  const series = lines.map(({ row }) => D.series.get(row.key));
  const of = (list, field) => list.flatMap((row) => (row && row[field] !== undefined ? [level(row, field)] : []));
  const highest = (values) => values.reduce((most, value) => Math.max(most, value), 0);
  const reached = Math.max(highest(series.flatMap((list) => list.flatMap((row) => (row ? [level(row)] : [])))), highest(of(series[0], "most")));
  // A wide interval may be cut off, so that the line remains visible.
  const most = Math.max(reached, Math.min(highest(of(series[0], "high")), 1.6 * reached)) || 1;
  const y = (value) => height - 4 - Math.min(1.05, Math.max(0, value) / most) * (height - 14);
  shade(pen, x, height);
  pen.strokeStyle = colour("--rule");
  pen.fillStyle = colour("--quiet");
  pen.textAlign = "right";
  for (const share of [0, 1]) {
    const place = Math.round(y(most * share)) + 0.5;
    pen.beginPath(); pen.moveTo(LEFT, place); pen.lineTo(width - 4, place); pen.stroke();
    if (share) pen.fillText(showLevel(most * share, unit), LEFT - 6, place + 8);
  }
  for (let index = lines.length - 1; index >= 0; index--) drawLine(pen, series[index], x, y, lineColour(lines[index].colour), index === 0);
  cursorLine(pen, x, height);
}

// Draws a step per interval, and nothing where no value is known. A band around the first line shows the
// extremes of its ticks, or its 95 % interval.
function drawLine(pen, series, x, y, stroke, isFirst) {
  if (isFirst) {
    pen.fillStyle = stroke;
    pen.globalAlpha = 0.18;
    for (const row of series) {
      if (!row) continue;
      const [low, high] = row.least === undefined ? [level(row, "low"), level(row, "high")] : [level(row, "least"), level(row, "most")];
      const [left, right] = [x(row.t), x(row.t + row.dt)];
      pen.fillRect(left, y(high), Math.max(0.5, right - left), Math.max(0, y(low) - y(high)));
    }
    pen.globalAlpha = 1;
  }
  pen.strokeStyle = stroke;
  pen.lineWidth = isFirst ? 2 : 1.2;
  pen.beginPath();
  let last = null;
  for (const row of series) {
    if (!row) { last = null; continue; }
    const place = y(level(row));
    if (last === null) pen.moveTo(x(row.t), place); else pen.lineTo(x(row.t), place);
    pen.lineTo(x(row.t + row.dt), place);
    last = place;
  }
  pen.stroke();
  pen.lineWidth = 1;
}

function shade(pen, x, height) {
  if (S.from === null) return;
  pen.fillStyle = colour("--span");
  pen.fillRect(x(D.spans[S.from].t), 0, x(D.spans[S.to].end) - x(D.spans[S.from].t), height);
}

function cursorLine(pen, x, height) {
  if (T.cursor === null) return;
  const span = D.spans[T.cursor];
  pen.strokeStyle = colour("--text");
  pen.beginPath(); pen.moveTo(x(span.t + span.dt / 2), 0); pen.lineTo(x(span.t + span.dt / 2), height); pen.stroke();
}

function redrawCharts() {
  T.redraw.forEach((draw) => draw());
}

function moveCursor(index) {
  T.cursor = index === null ? null : Math.min(D.spans.length - 1, Math.max(0, index));
  redrawCharts();
}

// Handles pointer and keys: the cursor follows, and a drag selects.
function brushed(canvas) {
  let begun = null, anchor = null;
  const at = (event) => spanAt(scale(canvas.clientWidth).t(event.offsetX));
  canvas.addEventListener("pointerdown", (event) => { begun = { x: event.offsetX, index: at(event) }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    const index = at(event);
    if (begun && Math.abs(event.offsetX - begun.x) > 4) [S.from, S.to] = [Math.min(begun.index, index), Math.max(begun.index, index)];
    moveCursor(index);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (begun && Math.abs(event.offsetX - begun.x) > 4) selectSpan(begun.index, at(event));
    else if (begun) selectSpan(null);
    begun = null;
  });
  canvas.addEventListener("pointerleave", () => { if (!begun) moveCursor(null); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") { anchor = null; selectSpan(null); return; }
    if (!step) return;
    event.preventDefault();
    const index = T.cursor === null ? (step > 0 ? 0 : D.spans.length - 1) : T.cursor + step;
    if (event.shiftKey) anchor = anchor ?? T.cursor ?? index; else anchor = null;
    moveCursor(index);
    if (anchor !== null) selectSpan(anchor, T.cursor);
  });
}

function axis(body) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  body.append(el("div", { class: "axis" }, canvas));
  T.redraw.push(() => {
    const { pen, width } = prepared(canvas, AXIS_HEIGHT);
    const { x, t } = scale(width);
    const [from, to] = [t(LEFT), t(width - 4)];
    const step = [1, 2, 5].flatMap((one) => [-3, -2, -1, 0, 1, 2, 3, 4].map((power) => one * 10 ** power)).sort((a, b) => a - b)
      .find((seconds) => (to - from) / 1e9 / seconds <= Math.max(3, width / 110)) || 1;
    pen.fillStyle = colour("--quiet");
    pen.textAlign = "center";
    for (let mark = Math.ceil(from / 1e9 / step) * step; mark <= to / 1e9; mark += step) {
      const place = Math.min(width - 16, x(mark * 1e9));
      pen.fillText((step < 1 ? mark.toFixed(3).replace(/0+$/, "").replace(/\.$/, "") : Math.round(mark)) + " s", place, 12);
    }
  });
}

function timeline() {
  const body = $("#timeline .body");
  const metrics = [...new Set(D.numbers.filter((row) => D.series.has(row.key)).map((row) => row.metric))];
  if (D.spans.length < 2 || !metrics.length) {
    body.replaceChildren(el("p", { class: "quiet" }, "The recording has one interval only, so there is nothing to draw over time."));
    return;
  }
  const shown = new Set(FIRST.filter((metric) => metrics.includes(metric)).slice(0, 6));
  if (!shown.size) metrics.slice(0, 5).forEach((metric) => shown.add(metric));
  const charts = el("div", { class: "charts" });
  const rebuild = () => {
    T.redraw = [];
    charts.replaceChildren();
    metrics.filter((metric) => shown.has(metric)).forEach((metric) => chart(metric, charts));
    axis(charts);
    redrawCharts();
  };
  const boxes = metrics.map((metric) => el("label", {}, el("input", { type: "checkbox", checked: shown.has(metric), change: (event) => {
    if (event.target.checked) shown.add(metric); else shown.delete(metric);
    rebuild();
  } }), " ", el("code", {}, metric)));
  body.replaceChildren(el("p", { class: "lead" }, ...timelineLead()), charts, el("details", { class: "pick-metrics" }, el("summary", {}, `Metrics (${metrics.length})`), el("div", { class: "boxes" }, boxes)));
  rebuild();
  whenChanged(redrawCharts);
  addEventListener("resize", redrawCharts);
}

function timelineLead() {
  const kept = D.about.owners;
  const all = new Set(D.numbers.filter((row) => row.owner).map((row) => ownerKey(row.owner))).size;
  const drag = "Drag across a chart to narrow everything down to a span of time; click to end it.";
  const ticks = D.about.ticks > 1 ? ` Each step is ${D.about.ticks} ticks of the recording together (sums stay exact); the band shows the least and the most of its ticks.` : " The band is the 95 % interval.";
  const owners = all > kept + 1 ? ` Intervals are kept of the ${kept} owners with most CPU time; of the others only the whole run.` : "";
  return [drag + ticks + owners];
}
