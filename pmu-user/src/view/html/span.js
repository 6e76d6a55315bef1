// Selected span of time and selected owner, and the numbers of a span.

const S = { from: null, to: null, owner: null, listeners: [] };

const whenChanged = (listener) => S.listeners.push(listener);
const changed = () => S.listeners.forEach((listener) => listener());

function selectSpan(from, to) {
  [S.from, S.to] = from === null ? [null, null] : [Math.min(from, to), Math.max(from, to)];
  changed();
}

function selectOwner(key) {
  S.owner = key;
  changed();
}

// Returns the start and the end of the span in ns.
function spanTimes() {
  if (S.from !== null) return [D.spans[S.from].t, D.spans[S.to].end];
  const length = D.summary.duration_ns || (D.spans.length ? D.spans[D.spans.length - 1].end : 0);
  return [0, length];
}

function spanText() {
  const [from, to] = spanTimes();
  const seconds = (ns) => (ns / 1e9).toFixed(to - from < 1e10 ? 2 : 1);
  return seconds(from) + "–" + seconds(to) + " s";
}

let numbersFor = null;

// Returns the numbers of the span: those of the whole run, or those combined from its intervals.
function numbers() {
  if (S.from === null) return D.numbers;
  const id = S.from + " " + S.to;
  if (numbersFor?.id !== id) numbersFor = { id, rows: D.numbers.map(together) };
  return numbersFor.rows;
}

// Returns the program of a process, where several of the program's processes ran.
const programOf = (owner) => (owner && (owner.kind === "process" || owner.kind === "ended") ? D.programs.find((row) => row.owner.name === owner.name)?.owner ?? null : null);

// Returns whether an owner is the selected one, or a process of the selected program.
const isOf = (owner, key) => ownerKey(owner) === key || (key?.startsWith("program\u0001") ? ownerKey(programOf(owner)) === key : false);

let programsFor = null;

// Returns the numbers of the span with processes of one program combined.
function numbersByProgram() {
  const all = numbers();
  if (!D.programs.length) return all;
  const names = new Set(D.programs.map((row) => row.owner.name));
  const id = S.from + " " + S.to;
  if (programsFor?.id !== id) programsFor = { id, rows: S.from === null ? D.programs : D.programs.map(together) };
  const isMember = (row) => (row.owner?.kind === "process" || row.owner?.kind === "ended") && !row.subject && !row.level && names.has(row.owner.name);
  const left = new Map(), groups = new Map();
  for (const row of programsFor.rows) left.set(row.owner.name, (left.get(row.owner.name) || []).concat(row));
  const time = (rows) => (rows[0].owner?.kind === "target" ? Infinity : rows.find((row) => row.metric === "cpu_time" && !row.subject)?.value ?? 0);
  // A program takes the place of its first process, or the place of its CPU time if the rows are in that
  // order.
  for (const row of all) {
    const key = isMember(row) ? row.owner.name : ownerKey(row.owner);
    if (!groups.has(key)) groups.set(key, isMember(row) ? left.get(row.owner.name) : []);
    if (!isMember(row)) groups.get(key).push(row);
  }
  const times = D.numbers.filter((row) => row.metric === "cpu_time" && !row.subject && row.owner?.kind !== "target").map((row) => row.value ?? 0);
  const isByTime = times.every((one, index) => !index || times[index - 1] >= one);
  const ordered = [...groups.values()];
  if (isByTime) ordered.sort((one, other) => (time(one) === time(other) ? 0 : time(other) - time(one)));
  return ordered.flat();
}

const without = (row, reason) => ({ ...row, value: null, low: null, high: null, quantiles: undefined, buckets: undefined, count: null, reason });

function together(whole) {
  const series = D.series.get(whole.key);
  if (!series) return without(whole, whole.reason || "its intervals are not in the page");
  const rows = series.slice(S.from, S.to + 1).filter((row) => row);
  if (!rows.length) return without(whole, whole.reason || "nothing is known in this span");
  const all = D.spans.slice(S.from, S.to + 1).reduce((sum, span) => sum + span.dt, 0);
  const known = rows.reduce((sum, row) => sum + row.dt, 0);
  const share = Math.min(1, known / all);
  const coverage = share * rows.reduce((sum, row) => sum + (row.coverage ?? 1) * row.dt, 0) / known;
  if (whole.kind === "histogram" || whole.kind === "program_histogram") return merged(whole, rows, coverage);
  const weights = addsUp(whole) ? rows.map(() => 1) : weightsOf(rows);
  const weight = addsUp(whole) ? 1 : weights.reduce((sum, one) => sum + one, 0) || 1;
  const sum = (field) => rows.reduce((total, row, index) => total + row[field] * weights[index], 0) / weight;
  return { ...whole, value: sum("value"), low: sum("low"), high: sum("high"), coverage, how: addsUp(whole) ? whole.how : "mean", flagged: undefined };
}

// Returns the weights of rows. A share of an owner's activity weighs as much as the owner ran. Any other
// number, and a share of the time, weighs as long as its interval was.
function weightsOf(rows) {
  return rows.map((row) => {
    if (row.subject || !row.owner || row.metric.startsWith("pressure.")) return row.dt;
    const key = [ownerKey(row.owner), "", "", "cpu_time"].join("\u0002");
    return D.series.get(key)?.[spanAt(row.t + row.dt / 2)]?.value ?? row.dt;
  });
}

// Returns the sum of distributions, which add up exactly, bucket by bucket.
function merged(whole, rows, coverage) {
  const buckets = new Map();
  for (const row of rows) {
    for (const [low, high, count] of row.buckets) {
      const bucket = buckets.get(low);
      if (bucket) bucket[2] += count;
      else buckets.set(low, [low, high, count]);
    }
  }
  const sorted = [...buckets.values()].sort((left, right) => left[0] - right[0]);
  const total = sorted.reduce((sum, bucket) => sum + bucket[2], 0);
  const quantiles = {};
  for (const [name, share] of [["p50", 0.5], ["p90", 0.9], ["p99", 0.99], ["p99.9", 0.999], ["max", 1]]) {
    quantiles[name] = quantile(sorted, total, share);
  }
  return { ...whole, buckets: sorted, count: total, sum: rows.reduce((sum, row) => sum + row.sum, 0), quantiles, coverage };
}

function quantile(buckets, total, share) {
  const rank = Math.max(1, Math.ceil(share * total));
  let seen = 0;
  for (const [low, high, count] of buckets) {
    seen += count;
    if (seen >= rank) return { value: high === null ? low : Math.floor((low + high) / 2), low, high };
  }
  return { value: 0, low: 0, high: 0 };
}

// Returns the known value of a row as one number, for a distribution its 99th percentile.
function knownOf(row) {
  if (!row) return null;
  if (row.quantiles) return { ...row.quantiles.p99, coverage: row.coverage ?? 1 };
  return row.value === null || row.value === undefined ? null : row;
}

// Shows the span that the page is limited to, and how to leave it.
function spanBar() {
  const place = $("#span");
  whenChanged(() => {
    place.hidden = S.from === null;
    if (place.hidden) return;
    const note = D.about.ticks > 1 ? ", in steps of " + duration(D.spans[0].dt) : "";
    place.replaceChildren(el("strong", {}, spanText()), " of the run" + note + ": tables and latencies are of this span; findings, who had the CPU, time at bandwidth, stacks, quality and cost are of all of it. ",
      el("button", { type: "button", click: () => selectSpan(null) }, "Whole run"));
  });
}

// Returns the button that switches to the other theme and draws again.
function themeButton() {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const label = () => (isDark() ? "Light" : "Dark");
  const button = el("button", { type: "button", click: () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    button.textContent = label();
    changed();
  } }, label());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { button.textContent = label(); changed(); });
  return button;
}
