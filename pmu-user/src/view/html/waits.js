// Victim × culprit: owners that waited for a CPU, by the owners that had it during the wait.

const CULPRITS_SHOWN = 12;
const SHADES = 8;

// Returns a line for each victim with the sum of its waits, and a cell for each culprit.
function victims() {
  const lines = new Map();
  for (const row of D.chargesOfPrograms.length ? D.chargesOfPrograms : D.charges) {
    const key = ownerKey(row.owner);
    if (!lines.has(key)) lines.set(key, { key, label: ownerLabel(row.owner), owner: row.owner, of: row.of_ns, cells: new Map() });
    lines.get(key).cells.set(ownerKey(row.culprit), { value: row.wait_ns, share: row.share, culprit: row.culprit });
  }
  return [...lines.values()];
}

function waits() {
  const place = $("#matrix");
  if (!place) return;
  const all = victims();
  const state = { by: null, down: true, filter: "", of: { "in all": (line) => line.of } };
  const body = el("div", {});
  const redraw = () => {
    const wanted = state.filter.toLowerCase();
    const lines = sorted(all.filter((line) => line.label.toLowerCase().includes(wanted)), state);
    const shown = lines.slice(0, state.all ? lines.length : ROWS_SHOWN);
    // For a selection of victims, the culprits that had most of their waits. Otherwise, those that had most
    // of all waits.
    const had = new Map();
    for (const line of wanted || S.owner ? shown.filter((line) => wanted || line.key === S.owner) : all) {
      for (const [key, { value, culprit }] of line.cells) had.set(key, { key, culprit, value: (had.get(key)?.value || 0) + value });
    }
    const culprits = [...had.values()].sort((left, right) => right.value - left.value);
    const columns = culprits.slice(0, CULPRITS_SHOWN);
    const heads = [sortHead("waited", state, "label", redraw, false), sortHead("in all", state, "in all", redraw, true),
      columns.map(({ key, culprit }) => sortHead(ownerLabel(culprit), state, key, redraw, true))];
    const cell = (one) => one ? el("td", { class: "n heat" + Math.ceil(one.share * SHADES) }, duration(one.value), " ", el("small", {}, percent(one.share))) : el("td", { class: "n none" }, "–");
    const rows = shown.map((line) => el("tr", { class: line.key === S.owner ? "chosen" : null }, ownerHead(line), el("td", { class: "n" }, duration(line.of)),
      columns.map(({ key }) => cell(line.cells.get(key)))));
    const caption = "Waiting owners, by owners that had the CPU";
    const left = lines.length - shown.length;
    body.replaceChildren(scrolled(caption, el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads.flat())), el("tbody", {}, rows))),
      left > 0 ? el("button", { type: "button", click: () => { state.all = true; redraw(); } }, `Show ${left} more rows`) : "",
      culprits.length > columns.length ? el("p", { class: "quiet" }, `${culprits.length - columns.length} more had a CPU; choose or filter waiting owners to see theirs.`) : "");
  };
  place.replaceChildren(el("div", { class: "controls" }, filterBox("Filter waiting owners", state, redraw)), body);
  whenChanged(redraw);
  redraw();
}
