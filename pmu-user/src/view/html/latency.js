// Distributions: their percentiles as a curve, and their buckets over time.

const CURVE_HEIGHT = 220;
const CELLS_A_DOUBLING = 2;

function latency() {
  const body = $("#latency .body");
  const rows = D.numbers.filter((row) => row.kind === "histogram" && row.buckets);
  if (!rows.length) {
    body.replaceChildren(el("p", { class: "quiet" }, "No latencies in this recording; the last section says why."));
    return;
  }
  const name = (row) => row.metric + ": " + rowLabel(row);
  const state = { key: rows[0].key };
  const curve = el("canvas", { role: "img" }), heat = el("canvas", { role: "img" });
  const table = el("div", {});
  const said = el("p", { class: "quiet", "aria-live": "polite" });
  const drawAll = () => {
    const all = numbers();
    const main = all.find((row) => row.key === state.key);
    const target = all.find((row) => row.kind === "histogram" && row.metric === main.metric && row.owner?.kind === "target" && row.key !== main.key);
    const lines = [main, target].filter((row) => row?.buckets);
    table.replaceChildren(quantileTable(lines, name));
    curve.setAttribute("aria-label", "Percentiles of " + lines.map(name).map(visible).join(" and ") + "; the table beside has the values.");
    heat.setAttribute("aria-label", "How many waits of which length in each interval, of " + visible(name(main)));
    drawCurve(prepared(curve, CURVE_HEIGHT), lines, name);
    if (D.spans.length > 1) drawHeat(prepared(heat, CURVE_HEIGHT), main.key);
  };
  const select = choice("Distribution", rows.map((row) => [row.key, name(row)]), state.key, (key) => { state.key = key; drawAll(); });
  heat.addEventListener("pointermove", (event) => { said.textContent = heatSays(event, state.key); });
  body.replaceChildren(el("div", { class: "controls" }, select),
    el("div", { class: "beside" }, el("figure", {}, el("figcaption", {}, "Percentiles"), curve), table),
    D.spans.length > 1 ? el("figure", { class: "heat" }, el("figcaption", {}, "Over time: stronger is more often; length and colour are both on logarithmic scales"), heat, said) : "");
  drawAll();
  whenChanged(() => {
    const own = rows.find((row) => row.owner && ownerKey(row.owner) === S.owner);
    if (own && S.owner !== state.follows) {
      state.follows = S.owner;
      state.key = own.key;
      select.choose(own.key);
    }
    drawAll();
  });
  addEventListener("resize", drawAll);
}

function quantileTable(lines, name) {
  const names = ["p50", "p90", "p99", "p99.9", "max"];
  const cell = (row, quantile) => {
    const { value, low, high } = row.quantiles[quantile];
    return el("td", { class: "n" }, duration(value), " ", el("small", {}, "[" + duration(low) + " – " + (high === null ? "" : duration(high)) + "]"));
  };
  return scrolled("Percentiles", el("table", {}, el("caption", {}, "Percentiles, " + spanText()),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "percentile"), lines.map((row) => el("th", { scope: "col", class: "n" }, name(row))))),
    el("tbody", {}, names.map((quantile) => el("tr", {}, el("th", { scope: "row" }, quantile), lines.map((row) => cell(row, quantile)))),
      el("tr", {}, el("th", { scope: "row" }, "values"), lines.map((row) => el("td", { class: "n" }, count(row.count)))),
      el("tr", {}, el("th", { scope: "row" }, "mean"), lines.map((row) => el("td", { class: "n" }, duration(row.sum / Math.max(1, row.count))))))));
}

const logs = (rows) => {
  const buckets = rows.flatMap((row) => row.buckets);
  const lows = buckets.map(([low]) => Math.max(1, low)), highs = buckets.map(([low, high]) => high ?? low * 2);
  return [Math.log2(lows.reduce((a, b) => Math.min(a, b), Infinity)), Math.log2(highs.reduce((a, b) => Math.max(a, b), 2))];
};

// Draws the axis of lengths, at powers of ten.
function lengths({ pen, width, height }, [low, high], y) {
  pen.fillStyle = colour("--quiet");
  pen.strokeStyle = colour("--rule");
  pen.textAlign = "right";
  for (let power = Math.ceil(low / Math.log2(10)); power * Math.log2(10) <= high; power++) {
    const place = Math.round(y(power * Math.log2(10))) + 0.5;
    pen.beginPath(); pen.moveTo(LEFT, place); pen.lineTo(width - 4, place); pen.stroke();
    pen.fillText(duration(10 ** power).replace(".00", "").replace(".0", ""), LEFT - 6, place + 4);
  }
}

// Draws the percentiles. Each further nine of a percentile takes the same room.
function drawCurve(at, lines) {
  if (!lines.length) return;
  const { pen, width, height } = at;
  const most = Math.max(...lines.map((row) => row.count), 10);
  const nines = Math.max(2, Math.log10(most));
  const range = logs(lines);
  const x = (share) => LEFT + Math.min(nines, -Math.log10(Math.max(1e-12, 1 - share))) / nines * (width - LEFT - 12);
  const y = (log) => height - 20 - (log - range[0]) / Math.max(0.1, range[1] - range[0]) * (height - 34);
  lengths(at, range, y);
  pen.fillStyle = colour("--quiet");
  pen.textAlign = "center";
  [[0.5, "p50"], [0.9, "p90"], [0.99, "p99"], [0.999, "p99.9"], [0.9999, "p99.99"], [0.99999, "p99.999"]].filter(([share]) => 1 - share >= 1 / most / 2)
    .forEach(([share, label]) => {
      pen.fillText(label, Math.min(width - 18, x(share)), height - 5);
      pen.beginPath(); pen.moveTo(x(share), 8); pen.lineTo(x(share), height - 20); pen.stroke();
    });
  lines.forEach((row, index) => {
    pen.strokeStyle = lineColour(index);
    pen.lineWidth = index ? 1.2 : 2;
    pen.beginPath();
    let seen = 0;
    row.buckets.forEach(([low, high, times], place) => {
      const level = y(Math.log2(Math.max(1, ((high ?? low) + low) / 2)));
      if (!place) pen.moveTo(x(0), level); else pen.lineTo(x(seen / row.count), level);
      seen += times;
      pen.lineTo(x(seen / row.count), level);
    });
    pen.stroke();
    pen.lineWidth = 1;
  });
}

// Returns the counts by interval and by half a doubling.
function cellsOf(key) {
  const series = D.series.get(key) || [];
  const columns = series.map((row) => {
    const cells = new Map();
    for (const [low, high, times] of row?.buckets || []) {
      const cell = Math.floor(Math.log2(Math.max(1, (low + (high ?? low)) / 2)) * CELLS_A_DOUBLING);
      cells.set(cell, (cells.get(cell) || 0) + times);
    }
    return cells;
  });
  const all = columns.flatMap((cells) => [...cells.keys()]);
  return { columns, low: Math.min(...all), high: Math.max(...all) + 1, most: Math.max(...columns.flatMap((cells) => [...cells.values()]), 1) };
}

function drawHeat(at, key) {
  const { pen, width, height } = at;
  const { columns, low, high, most } = cellsOf(key);
  if (!Number.isFinite(low)) return;
  const { x } = scale(width);
  const y = (cell) => height - 4 - (cell - low) / (high - low) * (height - 10);
  lengths(at, [low / CELLS_A_DOUBLING, high / CELLS_A_DOUBLING], (log) => y(log * CELLS_A_DOUBLING));
  pen.fillStyle = lineColour(0);
  columns.forEach((cells, index) => {
    const span = D.spans[index];
    const [left, right] = [x(span.t), x(span.end)];
    for (const [cell, times] of cells) {
      pen.globalAlpha = 0.12 + 0.88 * Math.log1p(times) / Math.log1p(most);
      pen.fillRect(left, y(cell + 1), Math.max(1, right - left - 0.5), y(cell) - y(cell + 1) - 0.5);
    }
  });
  pen.globalAlpha = 1;
  if (S.from !== null) {
    pen.strokeStyle = colour("--text");
    pen.strokeRect(x(D.spans[S.from].t), 1, x(D.spans[S.to].end) - x(D.spans[S.from].t), height - 3);
  }
}

function heatSays(event, key) {
  const { columns, low, high } = cellsOf(key);
  const canvas = event.target;
  const index = spanAt(scale(canvas.clientWidth).t(event.offsetX));
  const cell = Math.floor(low + (CURVE_HEIGHT - 4 - event.offsetY) / (CURVE_HEIGHT - 10) * (high - low));
  const length = (at) => duration(2 ** (at / CELLS_A_DOUBLING));
  return `${(D.spans[index].t / 1e9).toFixed(2)} s: ${columns[index]?.get(cell) || 0} of ${length(cell)} – ${length(cell + 1)}`;
}
