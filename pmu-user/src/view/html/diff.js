// Comparison of two recordings: the differences, their size, and their certainty.

const C = { rows: [], only: [] };
const KINDS = { all: () => true, numbers: (row) => !row.frame && !row.frames, functions: (row) => row.frame, stacks: (row) => row.frames };

// Returns a number of a side in a fitting unit.
function sideNumber(row, value) {
  if (row.basis === "share") return percent(value);
  if (row.unit === "ns/s" && row.culprit) return duration(value) + "/s";
  if (row.unit === "ns/s") return three(value / 1e9) + " CPU";
  if (row.unit === "ns") return duration(value);
  if (row.unit === "%") return three(value) + " %";
  const number = Math.abs(value) < 1000 ? three(value) : count(value);
  if (row.basis === "per_second") return number + " /s";
  return row.basis === "total" || row.unit === "1" ? number : number + " " + row.unit;
}

function whatOf(row) {
  if (row.frames) return row.frames.slice(0, 2).map(frameLabel).join(" ‹ ") + (row.frames.length > 2 ? ` ‹ ${row.frames.length - 2} more` : "");
  if (row.frame) return frameLabel(row.frame);
  if (row.subject) return row.metric + " " + subjectLabel(row.subject);
  return row.culprit ? row.metric + " " + ownerLabel(row.culprit) : row.metric;
}

const signed = (number) => (number < 0 ? "−" : "+");

// Returns the change, as a share of the first side where that is known.
function changeOf(row) {
  const share = (value) => (value < 0 ? "" : "+") + (Math.abs(value) < 0.9995 ? (value * 100).toFixed(1) : (value * 100).toFixed(0));
  if (row.relative) return [share(row.relative.value) + " %", `[${share(row.relative.low)} – ${share(row.relative.high)}]`];
  const { value, high } = row.difference;
  return [signed(value) + sideNumber(row, Math.abs(value)), "±" + sideNumber(row, high - value)];
}

const chanceOf = (p) => (p < 0.0001 ? "<0.0001" : p.toFixed(4));

// Returns a bar of the interval of a change between −100 % and +100 %, with 0 in the middle.
function changeBar(row) {
  const { value, low, high } = row.relative;
  const at = (share) => 50 + 50 * Math.min(1, Math.max(-1, share));
  return drawn("svg", { class: "bar change", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    drawn("rect", { class: !row.significant ? "same" : value > 0 ? "more" : "less", x: at(low), width: Math.max(0.8, at(high) - at(low)), y: 2, height: 6 }),
    drawn("rect", { class: "whisker", x: at(value) - 0.4, width: 0.8, y: 0, height: 10 }), drawn("rect", { class: "zero", x: 49.8, width: 0.4, y: 0, height: 10 }));
}

function differenceLine({ row, label, who }) {
  const side = (name) => (row[name] ? el("td", { class: "n" }, sideNumber(row, row[name].value)) : el("td", { class: "n none" }, "–"));
  const head = el("th", { scope: "row", class: "who", title: row.frames ? row.frames.map(frameLabel).join("\n") : null }, label);
  if (!row.difference) return el("tr", {}, head, el("td", {}, who), side("a"), side("b"), el("td", { class: "prose", colspan: 3 }, el("small", {}, row.reason || "")));
  const [change, spread] = changeOf(row);
  return el("tr", { class: row.significant ? "flagged" : null }, head, el("td", {}, who), side("a"), side("b"),
    el("td", { class: row.significant ? "n" : "n weak" }, change, " ", el("small", {}, spread)), el("td", { class: "bars" }, row.relative ? changeBar(row) : null),
    el("td", { class: "n" }, chanceOf(row.p_adjusted)));
}

function differencesTable() {
  const place = $("#differences");
  const lines = C.rows.map((row) => ({ row, label: whatOf(row), who: ownerLabel(row.owner), cells: new Map() }));
  const change = ({ row }) => row.relative?.value ?? row.difference?.value ?? null;
  const state = { by: null, down: true, filter: "", kind: "all", only: false,
    of: { owner: (line) => line.who, a: ({ row }) => row.a?.value ?? null, b: ({ row }) => row.b?.value ?? null, change, p: ({ row }) => row.p_adjusted ?? null } };
  const body = el("div", {});
  const redraw = () => {
    const wanted = state.filter.toLowerCase();
    const found = sorted(lines.filter((line) => KINDS[state.kind](line.row) && (!state.only || line.row.significant) && (line.label + " " + line.who).toLowerCase().includes(wanted)), state);
    const shown = found.slice(0, state.all ? found.length : ROWS_SHOWN);
    const heads = [["what", "label", false], ["owner", "owner", false], ["a", "a", true], ["b", "b", true], ["change", "change", true]].map(([title, key, numeric]) => sortHead(title, state, key, redraw, numeric));
    const caption = `Differences, b against a: ${found.length} of ${lines.length}; bars are from −100 % to +100 %`;
    body.replaceChildren(scrolled("Differences", el("table", {}, el("caption", {}, caption),
      el("thead", {}, el("tr", {}, heads, el("td", {}), sortHead("p", state, "p", redraw, true))), el("tbody", {}, shown.map(differenceLine)))),
    found.length > shown.length ? el("button", { type: "button", click: () => { state.all = true; redraw(); } }, `Show ${found.length - shown.length} more rows`) : "");
  };
  place.replaceChildren(el("div", { class: "controls" }, filterBox("Filter", state, redraw),
    choice("Of", Object.keys(KINDS).filter((kind) => C.rows.some(KINDS[kind])).map((kind) => [kind, kind]), "all", (kind) => { state.kind = kind; redraw(); }),
    toggle("Only what is more than chance", false, (on) => { state.only = on; redraw(); })), body);
  redraw();
}

// Draws an icicle as wide as the mean of both sides, red where the second has more, blue where it has less.
function differentialIcicle() {
  const stacks = C.rows.filter(KINDS.stacks);
  if (!stacks.length) return;
  const share = (row, side) => row[side]?.value ?? 0;
  let most = 0;
  const paint = (node) => (node.depth ? against(signedRoot(node.beside / most)) : [colour("--frame-root"), 1]);
  const signedRoot = (degree) => Math.sign(degree) * Math.sqrt(Math.abs(degree));
  const says = (node) => {
    const [a, b] = [node.total - node.beside / 2, node.total + node.beside / 2];
    return `: a ${percent(a)}, b ${percent(b)} of the samples, ${signed(b - a)}${percent(Math.abs(b - a))}`;
  };
  const view = icicle("Icicle of the stacks that were compared.", paint, says);
  const tree = stackTree(stacks, (row) => (share(row, "a") + share(row, "b")) / 2, (row) => share(row, "b") - share(row, "a"), false);
  const largest = (node) => [...node.children.values()].reduce((found, child) => Math.max(found, Math.abs(child.beside), largest(child)), 0);
  most = largest(tree) || 1;
  $("#stacks .body").replaceChildren(el("div", { class: "controls" }, view.controls), ...view.picture);
  view.show(tree);
  whenChanged(view.redraw);
}

async function comparison() {
  $("#tools").append(themeButton());
  D.text = await inflated("whole");
  for (const row of rowsOf(D.text)) {
    if (row.kind === "difference") C.rows.push(row);
    else if (row.kind === "only") C.only.push(row);
  }
  $("#tools").append(downloadButton("diff.ndjson"));
  differencesTable();
  differentialIcicle();
  performance.mark("ready");
  document.body.dataset.ready = "1";
}

comparison().catch((error) => {
  $("#significant").prepend(el("p", { class: "alarm" }, "The data of this page cannot be read (" + error.message + "); the tables below are complete."));
  console.error(error);
});
