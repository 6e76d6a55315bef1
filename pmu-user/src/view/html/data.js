// Rows of the page: those of `pmbpf report --json` for the whole run, and those of its intervals.

const D = { header: {}, summary: {}, about: {}, numbers: [], programs: [], hot: [], stacks: [], blocked: [], gaps: [], levels: [], charges: [], chargesOfPrograms: [], platform: null, devices: [], bottlenecks: [],
  spans: [], series: new Map(), text: "" };

async function inflated(id) {
  const packed = Uint8Array.from(atob($("#" + id).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

// An address has more digits than a number keeps, so it stays text.
const rowsOf = (text) => JSON.parse("[" + text.trimEnd().replaceAll("\n", ",").replace(/"address":(\d+)/g, '"address":"$1"') + "]");

// An owner has one text as its key, and so does the subject of a number.
const ownerKey = (owner) => owner
  ? [owner.kind, owner.path ?? owner.name, owner.id, owner.pid ?? owner.host_pid, owner.tid].join("\u0001") : "";
const subjectKey = (subject) => subject
  ? [subject.kind, subject.name, subject.path, subject.port, subject.address, subject.operation, subject.direction, subject.at].join("\u0001") : "";
const keyOf = (row) => [ownerKey(row.owner), subjectKey(row.subject), row.parent && row.metric === "rate" ? row.parent : "", row.metric].join("\u0002");

// Sets the keys of the rows of one interval, or of the whole run. A key may occur twice, such as an event
// that two PMUs count. The order distinguishes such rows.
function withKeys(rows) {
  const seen = new Map();
  for (const row of rows) {
    const key = keyOf(row), times = seen.get(key) || 0;
    seen.set(key, times + 1);
    row.key = times ? key + "\u0002" + times : key;
  }
}

function ownerLabel(owner) {
  if (!owner) return "host";
  if (owner.kind === "target") return "all";
  if (owner.path !== undefined) return (owner.called ?? owner.path) + (owner.generation > 1 ? " #" + owner.generation : "");
  const id = owner.tid ?? owner.pid ?? owner.host_pid;
  if (id !== undefined) return owner.name + " " + id;
  return owner.processes ? owner.name + " × " + owner.processes : owner.name;
}

function subjectLabel(subject) {
  // A place is a number, which says little without its kind.
  const parts = [subject.at ? "kind" : "", "name", "path", "address", "port", "operation", "direction", "at"].map((name) => subject[name]).filter((part) => part);
  return parts.length ? parts.join(" ") : subject.kind;
}

function rowLabel(row) {
  if (!row.subject) return ownerLabel(row.owner);
  return row.owner ? subjectLabel(row.subject) + ", " + ownerLabel(row.owner) : subjectLabel(row.subject);
}

const SUMS = new Set(["switches", "migrations", "faults", "samples", "requests", "counts", "B", "MB", "MiB"]);

// Returns whether the number of two intervals is the sum of both. Shares, rates and latencies are not sums.
function addsUp(row) {
  if (row.unit === "ns") return /(^|\.|_)(cpu_time|blind_time|wait_time|user_time|system_time|elapsed)$/.test(row.metric);
  return SUMS.has(row.unit) || row.metric.startsWith("event.");
}

async function load() {
  D.about = JSON.parse($("#about").textContent);
  D.text = await inflated("whole");
  const into = { metric: D.numbers, histogram: D.numbers, program_metric: D.programs, program_histogram: D.programs, program_culprit: D.chargesOfPrograms, hot: D.hot, stack: D.stacks, off_cpu_stack: D.blocked, gap: D.gaps, culprit: D.charges, device: D.devices, levels: D.levels, bottleneck: D.bottlenecks };
  for (const row of rowsOf(D.text)) {
    if (row.kind === "header") D.header = row;
    else if (row.kind === "summary") D.summary = row;
    else if (row.kind === "platform") D.platform = row;
    else into[row.kind]?.push(row);
  }
  withKeys(D.numbers);
  withKeys(D.programs);
  place(rowsOf(await inflated("intervals")));
}

// Places the rows of intervals. Tasks and I/O are read one after the other, so their intervals begin slightly
// apart.
function place(rows) {
  const ofTasks = rows.filter((row) => !row.subject);
  const times = new Map((ofTasks.length ? ofTasks : rows).map((row) => [row.t, row.dt]));
  D.spans = [...times].sort((left, right) => left[0] - right[0]).map(([t, dt]) => ({ t, dt, end: t + dt }));
  const byTime = new Map();
  for (const row of rows) {
    if (!byTime.has(row.t)) byTime.set(row.t, []);
    byTime.get(row.t).push(row);
  }
  byTime.forEach(withKeys);
  for (const row of rows) {
    const index = spanAt(row.t + row.dt / 2);
    let series = D.series.get(row.key);
    if (!series) D.series.set(row.key, series = new Array(D.spans.length).fill(null));
    series[index] = row;
  }
}

// Returns the interval that a time is in, or the nearest one.
function spanAt(t) {
  let [low, high] = [0, D.spans.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (D.spans[middle].end < t) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Returns a button that saves the rows of the page as a file, as `--json` writes them.
function downloadButton(name) {
  return el("button", { type: "button", click: () => {
    const link = el("a", { download: name, href: URL.createObjectURL(new Blob([D.text], { type: "application/x-ndjson" })) });
    link.click();
    URL.revokeObjectURL(link.href);
  } }, "Save NDJSON");
}
