// Tables of numbers that sort and filter: owners by metric, or metrics by owner if the owners are few.

const COLUMNS_MAX = 18;
const ROWS_SHOWN = 60;
const BESIDE_MAX = 3;

function numberCell(row) {
  const known = knownOf(row);
  if (!known) return el("td", { class: "n none", title: row?.reason }, "–");
  const wide = interval(known, row.unit);
  return el("td", { class: isWeak(known) ? "n weak" : "n" }, show(known.value, row.unit), wide ? [" ", el("small", {}, wide)] : null);
}

// Returns rows by label, and the metrics that have a known number in any row.
function pivot(rows) {
  const metrics = new Map(), all = new Map();
  for (const row of rows) {
    const metric = row.metric === "rate" && row.parent ? row.parent + " rate" : row.metric;
    metrics.set(metric, metrics.get(metric) || knownOf(row) !== null);
    const key = ownerKey(row.owner) + "\u0002" + subjectKey(row.subject);
    if (!all.has(key)) all.set(key, { key, label: rowLabel(row), owner: row.owner, cells: new Map() });
    all.get(key).cells.set(metric, row);
  }
  return { metrics: [...metrics].filter(([, known]) => known).map(([name]) => name), all: [...all.values()] };
}

function sortHead(title, state, key, redraw, numeric) {
  const direction = state.by === key ? (state.down ? "descending" : "ascending") : null;
  return el("th", { scope: "col", class: numeric ? "n" : null, "aria-sort": direction },
    el("button", { type: "button", click: () => {
      if (state.by === key) state.down = !state.down;
      else Object.assign(state, { by: key, down: numeric });
      redraw();
    } }, broken(title)));
}

function sorted(all, state) {
  if (!state.by) return all;
  const sign = state.down ? -1 : 1;
  // A missing value is neither small nor large, so it comes last.
  const value = (line) => state.by === "label" ? line.label : state.of?.[state.by]?.(line) ?? knownOf(line.cells.get(state.by))?.value ?? null;
  // The row of the whole target stays on top.
  const first = (line) => line.owner?.kind === "target" && !state.group;
  return [...all].sort((left, right) => {
    if (first(left) !== first(right)) return first(left) ? -1 : 1;
    const [a, b] = [value(left), value(right)];
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (a < b ? -1 : a > b ? 1 : 0);
  });
}

const scrolled = (label, table) => el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label }, table);

// Returns a table. `extra` holds additional columns: a title, and a function from a line to its cell.
function grid({ caption, what, rows, state, redraw, extra = [], head = rowHead, group }) {
  const { metrics, all } = pivot(rows);
  if (!metrics.length) return el("p", { class: "quiet" }, caption + ": nothing is known here.");
  if (!extra.length && all.length <= BESIDE_MAX && metrics.length > all.length) return transposed(caption, metrics, all, state);
  const columns = metrics.slice(0, COLUMNS_MAX);
  const wanted = (state.filter || "").toLowerCase();
  const lines = sorted(all.filter((line) => line.label.toLowerCase().includes(wanted)), state);
  const headings = [sortHead(what, state, "label", redraw, false), ...extra.map((one) => sortHead(one.title, state, one.title, redraw, true)),
    ...columns.map((metric) => sortHead(metric, state, metric, redraw, true))];
  const line = (one, name = head(one)) => el("tr", { class: one.owner && ownerKey(one.owner) === S.owner ? "chosen" : null }, name,
    extra.map((column) => column.cell(one)), columns.map((metric) => numberCell(one.cells.get(metric))));
  const most = state.all ? lines.length : ROWS_SHOWN;
  const bodies = group ? grouped(lines, group, state, redraw, line) : [el("tbody", {}, lines.slice(0, most).map((one) => line(one)))];
  const left = group ? 0 : lines.length - most;
  const more = left > 0 ? el("button", { type: "button", click: () => { state.all = true; redraw(); } }, `Show ${left} more rows`) : null;
  return el("div", {}, scrolled(caption, el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, headings)), bodies)), more);
}

// Returns a row per group with the sums of its members. The members are below it while it is open.
function grouped(lines, group, state, redraw, line) {
  const groups = new Map();
  for (const one of lines) {
    const name = group(one) || "–";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(one);
  }
  state.open ??= new Set();
  const sums = [...groups].map(([name, members]) => ({ ...members[0], ...summed(members), label: name, members, owner: null }));
  return sorted(sums, state.by === "label" || !state.by ? { ...state, by: state.by || "cpu_time", down: state.by ? state.down : true } : state).map((sum) => {
    const isOpen = state.open.has(sum.label);
    const flip = () => { if (isOpen) state.open.delete(sum.label); else state.open.add(sum.label); redraw(); };
    const name = el("th", { scope: "row", class: "who" }, el("button", { type: "button", class: "fold", "aria-expanded": String(isOpen), click: flip }, `${sum.label} × ${sum.members.length}`));
    return el("tbody", {}, line(sum, name), isOpen ? sum.members.slice(0, ROWS_SHOWN).map((one) => line(one)) : []);
  });
}

function summed(members) {
  const cells = new Map();
  for (const metric of new Set(members.flatMap((one) => [...one.cells.keys()]))) {
    const rows = members.map((one) => one.cells.get(metric)).filter((row) => row && (row.buckets || knownOf(row)));
    if (!rows.length) continue;
    if (rows[0].kind === "histogram") cells.set(metric, merged(rows[0], rows, Math.min(...rows.map((row) => row.coverage ?? 1))));
    else if (addsUp(rows[0])) {
      const sum = (field) => rows.reduce((all, row) => all + row[field], 0);
      cells.set(metric, { ...rows[0], value: sum("value"), low: sum("low"), high: sum("high"), coverage: Math.min(...rows.map((row) => row.coverage ?? 1)) });
    }
  }
  return { cells };
}

const rowHead = (line) => el("th", { scope: "row", class: "who" }, line.label);

function transposed(caption, metrics, all, state) {
  const wanted = (state.filter || "").toLowerCase();
  const rows = metrics.filter((metric) => metric.toLowerCase().includes(wanted));
  return scrolled(caption, el("table", {}, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "metric"), all.map((line) => el("th", { scope: "col", class: "n" }, line.label)))),
    el("tbody", {}, rows.map((metric) => el("tr", {}, el("th", { scope: "row" }, el("code", {}, metric)), all.map((line) => numberCell(line.cells.get(metric))))))));
}

// Makes a table of the page sortable by its columns. `exact` returns the number behind a cell whose text is
// unsuitable for sorting.
function sortable(table, exact = () => null) {
  const body = table.tBodies[0];
  const lines = [...body.rows];
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    if (!cell.textContent) return;
    const title = cell.textContent;
    const button = el("button", { type: "button", click: () => {
      const down = cell.getAttribute("aria-sort") === "ascending" || (cell.className === "n" && !cell.hasAttribute("aria-sort"));
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (line) => exact(line, column) ?? (cell.className === "n" ? parseFloat(line.cells[column].textContent) || 0 : line.cells[column].textContent);
      lines.sort((left, right) => (value(left) < value(right) ? -1 : value(left) > value(right) ? 1 : 0) * (down ? -1 : 1));
      body.append(...lines);
    } }, broken(title));
    cell.replaceChildren(button);
  });
}

function filterBox(label, state, redraw) {
  const input = el("input", { type: "search", placeholder: "name", input: () => { state.filter = input.value; redraw(); } });
  return el("label", { class: "choice" }, el("span", {}, label), input);
}

// Returns the owners that have numbers, the target first, as options of a choice.
function ownerOptions(rows) {
  const owners = new Map();
  for (const row of rows) if (row.owner) owners.set(ownerKey(row.owner), ownerLabel(row.owner));
  return [...owners];
}
