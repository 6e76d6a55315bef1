// Top-Down trees: that of the selected owner, with small parts left out.

const SMALL = 1;

function topdown() {
  const place = $("#trees");
  const nodes = D.numbers.filter((row) => row.level);
  if (!place || !nodes.length) return;
  const options = ownerOptions(nodes);
  const state = { owner: options[0][0], all: false, closed: new Set() };
  const redraw = () => {
    if (options.some(([key]) => key === S.owner)) state.owner = S.owner;
    const own = numbers().filter((row) => row.level && ownerKey(row.owner) === state.owner);
    const bottlenecks = D.bottlenecks.filter((row) => ownerKey(row.owner) === state.owner && row.path.length);
    place.replaceChildren(
      el("div", { class: "controls" }, choice("Owner", options, state.owner, (key) => { state.owner = key; S.owner = key; changed(); }),
        toggle("Small and unknown ones, too", state.all, (on) => { state.all = on; redraw(); })),
      ...(S.from === null ? bottlenecks.map(hint) : []), tree(own, state, redraw));
  };
  whenChanged(redraw);
  redraw();
}

function hint(row) {
  return el("div", { class: "hint" }, el("p", { class: "says" }, row.pmu ? `on ${row.pmu}: ` : "", el("strong", {}, row.path.join(" › ")), row.says ? ": " + row.says : ""),
    (row.try || []).map((next) => el("p", { class: "next" }, next)),
    [...(row.mismeasured || []), ...(row.notes || [])].map((note) => el("p", { class: "quiet" }, note)));
}

function isShown(row, state) {
  if (state.all || row.level === 1 || row.flagged) return true;
  const known = knownOf(row);
  return known !== null && (row.unit !== "%" || Math.abs(known.high) >= SMALL);
}

// Returns a threshold without the repeated condition that the metrics above exceed theirs.
function shortened(threshold) {
  const [first, ...rest] = (threshold || "").split(" & ");
  const [, condition] = /^@\S+ ([<>] .*)$/.exec(first) || [];
  if (!condition || threshold.includes("|")) return (threshold || "").replaceAll("@", "");
  return rest.length ? condition + ", and those above" : condition;
}

function tree(rows, state, redraw) {
  const shown = rows.filter((row) => isShown(row, state));
  const names = new Set(shown.map((row) => row.metric));
  const parents = new Map(rows.map((row) => [row.metric, row.parent]));
  const isHidden = (row) => {
    for (let above = row.parent; above; above = parents.get(above)) if (state.closed.has(above)) return true;
    return false;
  };
  const withChildren = new Set(shown.map((row) => row.parent).filter((name) => names.has(name)));
  const line = (row) => {
    const known = knownOf(row);
    const open = !state.closed.has(row.metric);
    const name = withChildren.has(row.metric)
      ? el("button", { type: "button", class: "fold", "aria-expanded": String(open), click: () => {
        if (open) state.closed.add(row.metric); else state.closed.delete(row.metric);
        redraw();
      } }, broken(row.metric)) : el("span", { class: "leaf" }, broken(row.metric));
    const head = el("th", { scope: "row", class: "l" + Math.min(8, row.level) }, name);
    const limit = el("td", { class: "prose" }, row.flagged ? el("span", { class: "flag" }, "over") : null, row.flagged ? " " : null, el("small", {}, shortened(row.threshold)));
    if (!known) return el("tr", {}, head, el("td", { class: "n none" }, "–"), el("td", { class: "prose", colspan: 2 }, el("small", {}, row.reason || "")), limit);
    return el("tr", { class: row.flagged ? "flagged" : null }, head, numberCell(row),
      el("td", { class: "bars" }, row.unit === "%" ? bar(known, 100) : null), el("td", { class: "n" }, Math.round(known.coverage * 100) + " %"), limit);
  };
  const titles = [["metric", ""], ["share", "n"], ["", "bars"], ["rests on", "n"], ["threshold", ""]];
  const label = "Top-Down of " + (rows.length ? ownerLabel(rows[0].owner) : "no owner") + ", " + spanText();
  return scrolled(label, el("table", { class: "tree" }, el("caption", {}, label),
    el("thead", {}, el("tr", {}, titles.map(([title, kind]) => (title ? el("th", { scope: "col", class: kind || null }, title) : el("td", {}))))),
    el("tbody", {}, shown.filter((row) => !isHidden(row)).map(line))));
}
