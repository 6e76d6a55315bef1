// Activity of owners: owners by metric, and everything for which I/O is measured.

const GROUPS = {
  "": null,
  kind: (line) => line.owner?.kind,
  name: (line) => line.owner?.name,
  folder: (line) => line.owner?.path?.replace(/\/[^/]*$/, "") || "/",
};

// Returns the button that selects the owner that the sections below are about.
function ownerHead(line) {
  const key = ownerKey(line.owner);
  const button = el("button", { type: "button", class: "pick", "aria-pressed": String(key === S.owner), click: () => selectOwner(key === S.owner ? null : key) }, line.label);
  return el("th", { scope: "row", class: "who" }, button);
}

// Returns the column of CPU time as a share of one CPU over the span. For the whole run of a command, the
// share is over the command's time.
function ofCpu() {
  const title = "of a CPU";
  const span = spanTimes();
  const ran = S.from === null && D.summary.workload?.elapsed_ns;
  const [from, to] = ran ? [0, Math.min(ran, span[1])] : span;
  const share = (line) => {
    const known = knownOf(line.cells.get("cpu_time"));
    return known && to > from ? { ...known, value: known.value / (to - from) * 100, low: known.low / (to - from) * 100, high: known.high / (to - from) * 100 } : null;
  };
  const cell = (line, most) => {
    const known = share(line);
    return known ? el("td", { class: "n load" }, show(known.value, "%"), bar(known, most)) : el("td", { class: "n none" }, "–");
  };
  return { title, share, cell };
}

// The root cgroup includes everything. If it has the same numbers as the target, it has no separate row.
function withoutRoot(rows) {
  const root = (row) => row.owner?.path === "/";
  const target = (row) => row.owner?.kind === "target";
  const of = (is, metric) => rows.find((row) => is(row) && row.metric === metric && !row.subject)?.value ?? null;
  const alike = ["cpu_time", "context_switches", "samples"].every((metric) => of(root, metric) === of(target, metric));
  return alike && rows.some(root) ? rows.filter((row) => !root(row) || row.subject) : rows;
}

function ownersGrid() {
  const place = $("#grid");
  if (!place) return;
  const state = { by: null, down: true, filter: "", group: "" };
  const body = el("div", {});
  const redraw = () => {
    const rows = withoutRoot(state.each ? numbers() : numbersByProgram()).filter((row) => !row.subject && !row.level && !(state.group && row.owner?.kind === "target") && !/\.(user|kernel)$/.test(row.metric));
    const column = ofCpu();
    const group = GROUPS[state.group];
    const shares = new Map();
    for (const line of pivot(rows.filter((row) => row.metric === "cpu_time")).all) {
      const name = group ? group(line) : line.key;
      shares.set(name, (shares.get(name) || 0) + (column.share(line)?.value ?? 0));
    }
    const most = Math.max(0.001, ...shares.values());
    state.of = { [column.title]: (line) => column.share(line)?.value ?? null };
    body.replaceChildren(grid({ caption: "Owners; of run-queue latency the 99th percentile", what: "owner", rows, state, redraw, head: ownerHead,
      extra: rows.some((row) => row.metric === "cpu_time") ? [{ title: column.title, cell: (line) => column.cell(line, most) }] : [], group }));
  };
  const kinds = new Set(D.numbers.map((row) => row.owner?.kind));
  const groups = [["", "no groups"], ["kind", "kind"], ["name", "name"]].concat(kinds.has("cgroup") ? [["folder", "cgroup above"]] : []);
  place.replaceChildren(el("div", { class: "controls" }, filterBox("Filter owners", state, redraw), choice("Group by", groups, "", (value) => { state.group = value; redraw(); }),
    D.programs.length ? choice("Processes", [["", "one row for a program"], ["each", "one by one"]], "", (value) => { state.each = value === "each"; redraw(); }) : null), body);
  whenChanged(redraw);
  redraw();
}

function subjectGrids() {
  const place = $("#subjects");
  if (!place) return;
  const kinds = [...new Set(D.numbers.filter((row) => row.subject).map((row) => row.subject.kind))];
  if (!kinds.length) return;
  const state = { filter: "" };
  const states = new Map(kinds.map((kind) => [kind, { by: null, down: true }]));
  const body = el("div", {});
  const redraw = () => {
    body.replaceChildren(...kinds.map((kind) => {
      const rows = numbers().filter((row) => row.subject?.kind === kind);
      const own = Object.assign(states.get(kind), { filter: state.filter });
      return grid({ caption: kind[0].toUpperCase() + kind.slice(1), what: kind, rows, state: own, redraw });
    }));
  };
  place.replaceChildren(el("h3", {}, "Devices, memory and links"), el("div", { class: "controls" }, filterBox("Filter", state, redraw)), body);
  whenChanged(redraw);
  redraw();
}

// Updates the counts without owners' metrics, one number per row: the table of the page, for the span.
function counts() {
  const table = $("#counts table");
  if (!table) return;
  const lines = [...table.tBodies[0].rows];
  const COUNT = 3;
  sortable(table, (line, column) => (column === COUNT ? knownOf(numbers()[lines.indexOf(line)])?.value ?? -1 : null));
  whenChanged(() => numbers().slice(0, lines.length).forEach((row, index) => {
    const [known, { cells }] = [knownOf(row), lines[index]];
    cells[COUNT].replaceWith(numberCell(row));
    cells[COUNT + 1].replaceWith(el("td", { class: known ? "n" : "n none" }, known ? Math.round((known.coverage ?? 1) * 100) + " %" : "–"));
    cells[COUNT + 2].replaceWith(el("td", { class: known ? null : "prose" }, (known ? row.how : row.reason) || ""));
  }));
}
