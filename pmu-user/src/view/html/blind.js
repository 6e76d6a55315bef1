// Gaps: the time and the CPU of late timers, and the longest of them.

const GAPS_SHOWN = 100;
const CODES_SHOWN = 25;

function blind() {
  const body = $("#blind .body");
  if (!D.gaps.length) {
    body.replaceChildren(el("p", { class: "quiet" }, D.summary.blind ? "No gap was long enough to be listed." : "Blind time was not measured."));
    return;
  }
  const canvas = el("canvas", { role: "img", "aria-label": "Gaps over time, a row a CPU; the table below lists them." });
  const table = el("div", {});
  const cpus = [...new Set(D.gaps.map((gap) => gap.cpu))].sort((a, b) => a - b);
  const draw = () => {
    const [from, to] = spanTimes();
    const gaps = D.gaps.filter((gap) => gap.t >= from && gap.t - gap.late_ns <= to);
    drawGaps(canvas, cpus, from, to, gaps);
    table.replaceChildren(gapSums("CPU", "Listed gaps by CPU", cpus.map(String), (gap) => String(gap.cpu), gaps),
      gapSums("interrupts came back on in", "Listed gaps by code", codesOf(gaps), codeOf, gaps), gapTable(gaps));
  };
  const left = D.summary.blind?.gaps_left_out;
  body.replaceChildren(el("figure", {}, el("figcaption", {}, "Gaps by CPU; a mark’s height is how late the timer was"), canvas), table,
    left ? el("p", { class: "quiet" }, `${left} shorter late timers are not listed.`) : "");
  draw();
  whenChanged(draw);
  addEventListener("resize", draw);
}

function drawGaps(canvas, cpus, from, to, gaps) {
  const row = 26;
  const { pen, width } = prepared(canvas, cpus.length * row + AXIS_HEIGHT);
  const x = (t) => LEFT + (t - from) / Math.max(1, to - from) * (width - LEFT - 4);
  const most = gaps.reduce((longest, gap) => Math.max(longest, gap.late_ns), 1);
  cpus.forEach((cpu, index) => {
    pen.fillStyle = colour("--quiet");
    pen.textAlign = "right";
    pen.fillText("CPU " + cpu, LEFT - 6, index * row + 20);
    pen.fillStyle = colour("--rule");
    pen.fillRect(LEFT, index * row + row - 2, width - LEFT - 4, 1);
  });
  for (const gap of gaps) {
    const height = 3 + (row - 6) * gap.late_ns / most;
    const [left, right] = [x(Math.max(from, gap.t - gap.late_ns)), x(Math.min(to, gap.t))];
    pen.fillStyle = colour(gap.class === "masked" ? "--alarm" : "--quiet");
    pen.fillRect(left, cpus.indexOf(gap.cpu) * row + row - 2 - height, Math.max(1.5, right - left), height);
  }
  pen.fillStyle = colour("--quiet");
  pen.textAlign = "left";
  pen.fillText((from / 1e9).toFixed(2) + " s", LEFT, cpus.length * row + 13);
  pen.textAlign = "right";
  pen.fillText((to / 1e9).toFixed(2) + " s", width - 4, cpus.length * row + 13);
}

// Returns the sums of gaps, by CPU or by the code in which interrupts came back on.
function gapSums(by, title, names, of, gaps) {
  const classes = [...new Set(gaps.map((gap) => gap.class))];
  const late = (its) => its.map((gap) => gap.late_ns);
  const line = (name) => {
    const its = gaps.filter((gap) => of(gap) === name);
    return el("tr", {}, el("th", { scope: "row" }, name), classes.map((one) => el("td", { class: "n" }, duration(late(its.filter((gap) => gap.class === one)).reduce((sum, ns) => sum + ns, 0)))),
      el("td", { class: "n" }, duration(late(its).reduce((most, ns) => Math.max(most, ns), 0))), el("td", { class: "n" }, String(its.length)));
  };
  return scrolled(title, el("table", {}, el("caption", {}, title + ", " + spanText()),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, by), [...classes, "longest", "gaps"].map((name) => el("th", { scope: "col", class: "n" }, name)))),
    el("tbody", {}, names.map(line))));
}

const codeOf = (gap) => gap.stack?.[0] ?? "not known";

// Returns the code locations with most blind time, in descending order.
function codesOf(gaps) {
  const sums = new Map();
  for (const gap of gaps) sums.set(codeOf(gap), (sums.get(codeOf(gap)) || 0) + gap.late_ns);
  return [...sums].sort((left, right) => right[1] - left[1]).slice(0, CODES_SHOWN).map(([code]) => code);
}

function gapTable(gaps) {
  const shown = [...gaps].sort((left, right) => right.late_ns - left.late_ns).slice(0, GAPS_SHOWN);
  const titles = [["late", "n"], ["at", "n"], ["CPU", "n"], ["class", null], ["ran", null], ["interrupts came back on in", null]];
  const table = el("table", {}, el("caption", {}, `The longest gaps, ${shown.length} of ${gaps.length}`),
    el("thead", {}, el("tr", {}, titles.map(([title, kind]) => el("th", { scope: "col", class: kind }, title)))),
    el("tbody", {}, shown.map((gap) => el("tr", {}, el("td", { class: "n" }, duration(gap.late_ns)), el("td", { class: "n" }, (gap.t / 1e9).toFixed(3) + " s"),
      el("td", { class: "n" }, String(gap.cpu)), el("td", {}, gap.handler ?? gap.class), el("th", { scope: "row", class: "who" }, [gap.comm, gap.tid].filter((part) => part !== null && part !== undefined).join(" ")),
      el("td", { class: "stack" }, (gap.stack || []).join(" ‹ "))))));
  return scrolled("Gaps", table);
}
