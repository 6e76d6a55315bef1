// Holds every number that stands in a page's tables to the rows of `pmbpf report --json` that it is of: what is read is what people see,
// and a cell agrees if the row's number rounds to its digits. A table that nothing here knows is a failure.

const TIMES = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9 };
const SIZES = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };
// What moves, reorders or hides text is shown as an escape.
function visible(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\u2028\u2029\ufe00-\ufe0f]/gu, (one) => {
    const code = one.codePointAt(0).toString(16);
    return one < "\x80" ? "\\x" + code.padStart(2, "0") : `\\u{${code}}`;
  });
}

const SUFFIX = { "": 1, M: 1e6, G: 1e9 };

// A number as it is written, in the unit of its row: its value, and how far its last digit reaches. `said` is the unit that was said before.
function parsed(text, unit, said) {
  const found = /^(-?\d+(?:\.(\d+))?)([MG]?)(?: (.+))?$/.exec(text.trim());
  if (!found) return null;
  const [, digits, decimals = "", suffix, own = said] = found;
  const scales = unit === "ns" ? TIMES : unit === "B" ? SIZES : null;
  if (scales && own && !(own in scales)) return null;
  const scale = SUFFIX[suffix] * (scales && own ? scales[own] : 1);
  return { value: Number(digits) * scale, reach: 0.5000001 * 10 ** -decimals.length * scale, unit: own };
}

const rounds = (number, actual) => number !== null && Math.abs(number.value - actual) <= number.reach + 1e-9 * Math.abs(actual);

// Does a cell say this number and its interval? Where it has no interval, there is none that is worth its room.
function agrees(text, known, unit) {
  const [, head, spread, low, high] = /^(.*?)(?: ±(.+)| \[(.+) – (.*)\])?$/s.exec(text.trim());
  const number = parsed(head, unit);
  if (!rounds(number, known.value)) return false;
  if (spread !== undefined) return rounds(parsed(spread, unit, number.unit), (known.high - known.low) / 2);
  if (low !== undefined) return rounds(parsed(low, unit, number.unit), known.low) && (high === "" ? known.high === null : rounds(parsed(high, unit, number.unit), known.high));
  return known.low === undefined || known.high - known.low <= 0.010001 * Math.abs(known.value);
}

function ownerLabel(owner) {
  if (!owner) return "host";
  if (owner.kind === "target") return "all";
  if (owner.path !== undefined) return owner.path;
  const id = owner.tid ?? owner.pid ?? owner.host_pid;
  return id !== undefined ? `${owner.name} ${id}` : owner.processes ? `${owner.name} × ${owner.processes}` : owner.name;
}

function subjectLabel(subject) {
  const parts = [subject.at ? subject.kind : null, subject.name, subject.path, subject.address, subject.port, subject.operation, subject.direction, subject.at];
  return parts.filter((part) => part).join(" ") || subject.kind;
}

// A frame without a name.
function codeName(frame) {
  if (frame.offset !== undefined) return "+0x" + frame.offset.toString(16);
  if (frame.rest) return "rare code together";
  return /^\d+$/.test(frame.address) ? "0x" + BigInt(frame.address).toString(16) : frame.address;
}

const label = (row) => (!row.subject ? ownerLabel(row.owner) : row.owner ? subjectLabel(row.subject) + ", " + ownerLabel(row.owner) : subjectLabel(row.subject));
const metricName = (row, byScript) => (byScript && row.metric === "rate" && row.parent ? row.parent + " rate" : row.metric);

// What is known of a row as one number: of a distribution its 99th percentile.
function known(row) {
  if (row.quantiles) return row.quantiles.p99;
  return row.value === null || row.value === undefined ? null : row;
}

export class Numbers {
  constructor(text) {
    this.rows = text.split("\n").filter((line) => line).map((line) => JSON.parse(line.replace(/"address":(\d+)/g, '"address":"$1"')));
    this.of = (kind) => this.rows.filter((row) => row.kind === kind);
    this.summary = this.of("summary")[0];
    this.numbers = this.rows.filter((row) => /^(program_)?(metric|histogram)$/.test(row.kind));
    this.compared = 0;
    this.wrong = [];
  }

  // One of these rows' numbers; a dash if none of them is known.
  cell(where, text, rows, unit = null) {
    const found = rows.map((row) => [known(row), unit ?? row.unit]).filter(([number]) => number !== null);
    const is = text === "–" ? found.length === 0 : found.some(([number, of]) => agrees(text, number, of));
    this.compared += text === "–" ? 0 : 1;
    if (!is) this.wrong.push(`${where}: “${text}” is none of ${JSON.stringify(found.map(([{ value, low, high }, of]) => [value, low, high, of])).slice(0, 300)}`);
  }

  // A plain number without an interval.
  plain(where, text, values, unit) {
    const found = values.filter((value) => value !== null && value !== undefined);
    this.compared += text === "–" ? 0 : 1;
    if (!(text === "–" ? found.length === 0 : found.some((value) => rounds(parsed(text, unit), value)))) this.wrong.push(`${where}: “${text}” is none of ${found}`);
  }

  table(table, byScript) {
    const title = table.caption;
    const find = [
      [/^Owners; /, () => this.wide(table, this.numbers.filter((row) => !row.subject && (byScript ? !row.level : row.level === undefined)), byScript)],
      [/^Counts$/, () => this.counts(table)],
      [/^Waiting owners/, () => this.matrix(table)],
      [/^Top-Down of /, () => this.tree(table, title.replace(/^Top-Down of /, "").replace(/, [\d.]+–[\d.]+ s$/, ""))],
      [/^Percentiles, /, () => this.percentiles(table)],
      [/^Time at bandwidth$/, () => this.levels(table)],
      [/^Time at (.+)$/, () => this.level(table, /^Time at (.+)$/.exec(title)[1])],
      [/^Hot functions$/, () => this.hot(table)],
      [/^Listed gaps by CPU/, () => this.gapsBy(table, (gap) => String(gap.cpu))],
      [/^Listed gaps by code/, () => this.gapsBy(table, (gap) => visible(gap.stack?.[0] ?? "not known"))],
      [/^The longest gaps/, () => this.gaps(table)],
      [/^Where the CPUs' time went$/, () => this.books(table)],
      [/^Programs$/, () => this.programs(table)],
      [/^(Differences|More than chance), b against a/, () => this.differences(table)],
      [/^What is compared$/, () => this.recordings(table)],
      [/^What only one side has$/, () => this.only(table)],
      [/^Formulas$/, () => this.formulas(table)],
      [/^(Metrics of owners|Not measured, by reason|Not alike|Events by group)$/, () => {}],
      [/./, () => {
        const kind = title.toLowerCase();
        const rows = this.numbers.filter((row) => row.subject?.kind === kind);
        if (rows.length) this.wide(table, rows, byScript);
        else this.wrong.push(`nothing is known of the table “${title}”`);
      }],
    ].find(([pattern]) => pattern.test(title));
    find[1]();
  }

  // Who by metric, or metric by whom.
  wide({ caption, head, rows }, numbers, byScript) {
    const by = new Map();
    for (const row of numbers) {
      const key = visible(label(row)) + "\u0002" + visible(metricName(row, byScript));
      by.set(key, [...(by.get(key) || []), row]);
    }
    // CPU time of a command is a share of its own time.
    const length = Math.min(this.summary.workload?.elapsed_ns || Infinity, this.summary.duration_ns);
    for (const [name, ...cells] of rows) {
      cells.forEach((text, index) => {
        const column = head[index + 1];
        const [who, metric] = head[0] === "metric" ? [column, name] : [name, column];
        const where = `${caption}, ${who}, ${metric}`;
        if (metric === "of a CPU") {
          const shares = (by.get(who + "\u0002cpu_time") || []).filter((row) => known(row)).map((row) => row.value / length * 100);
          this.plain(where, text, shares, "%");
        } else this.cell(where, text, by.get(who + "\u0002" + metric) || []);
      });
    }
  }

  counts({ rows }) {
    for (const [whose, event, pmu, count, counted] of rows) {
      const found = this.numbers.filter((row) => visible(label(row)) === whose && visible((row.parent ? row.parent + ": " : "") + row.metric) === event && (row.pmu ?? "") === pmu);
      this.cell(`Counts, ${whose}, ${event}`, count, found);
      this.plain(`Counts, ${whose}, ${event}, counted`, counted.replace(/ %$/, ""), found.filter((row) => known(row)).map((row) => (row.coverage ?? 1) * 100), "%");
    }
  }

  matrix({ head, rows }) {
    for (const [who, all, ...cells] of rows) {
      const charges = this.of("program_culprit");
      const own = (charges.length ? charges : this.of("culprit")).filter((row) => visible(ownerLabel(row.owner)) === who);
      this.plain(`waits of ${who}`, all, own.map((row) => row.of_ns), "ns");
      cells.forEach((text, index) => {
        const culprit = head[index + 2];
        const its = own.filter((row) => visible(ownerLabel(row.culprit)) === culprit);
        const [, time = text, share] = /^(.+?) ([\d.]+) %$/.exec(text) || [];
        this.plain(`waits of ${who} for ${culprit}`, time, its.map((row) => row.wait_ns), "ns");
        if (share !== undefined) this.plain(`share of ${culprit} in the waits of ${who}`, share, its.map((row) => row.share * 100), "%");
      });
    }
  }

  tree({ rows }, who) {
    for (const [metric, share, , coverage] of rows) {
      const found = this.numbers.filter((row) => row.level && visible(ownerLabel(row.owner)) === who && visible(row.metric) === metric);
      const missing = share.startsWith("–");
      this.cell(`Top-Down of ${who}, ${metric}`, missing ? "–" : share, found);
      if (!missing) this.plain(`Top-Down of ${who}, ${metric}, rests on`, coverage.replace(/ %$/, ""), found.map((row) => (row.coverage ?? 1) * 100), "%");
    }
  }

  percentiles({ head, rows }) {
    head.slice(1).forEach((name, index) => {
      const found = this.numbers.filter((row) => row.quantiles && visible(row.metric + ": " + label(row)) === name);
      for (const [quantile, ...cells] of rows) {
        const where = `${quantile} of ${name}`;
        if (quantile === "values") this.plain(where, cells[index], found.map((row) => row.count), "1");
        else if (quantile === "mean") this.plain(where, cells[index], found.map((row) => row.sum / Math.max(1, row.count)), "ns");
        else {
          const [, value, low, high] = /^(.*) \[(.*) – (.*)\]$/.exec(cells[index]);
          const bounds = found.map((row) => row.quantiles[quantile]);
          this.plain(where, value, bounds.map((one) => one.value), "ns");
          this.plain(where + ", low", low, bounds.map((one) => one.low), "ns");
          if (high) this.plain(where + ", high", high, bounds.map((one) => one.high), "ns");
        }
      }
    });
  }

  levels({ rows }) {
    for (const [metric, of, most, , medium, high, ...times] of rows) {
      const found = this.of("levels").filter((row) => row.metric === metric && visible(subjectLabel(row.subject)) === of);
      const where = `${metric} of ${of}`;
      this.plain(where, most, found.map((row) => row.maximum), found[0]?.unit);
      this.plain(where, medium, found.map((row) => row.limits[0]), found[0]?.unit);
      this.plain(where, high, found.map((row) => row.limits[1]), found[0]?.unit);
      ["low_s", "medium_s", "high_s"].forEach((name, index) => this.plain(`${where}, ${name}`, times[index], found.map((row) => row[name] * 1e9), "ns"));
    }
  }

  level({ rows }, name) {
    const found = this.of("levels").filter((row) => visible(row.metric + " of " + subjectLabel(row.subject)) === name);
    const time = (row) => [row.low_s, row.medium_s, row.high_s];
    rows.forEach(([level, , seconds, share], index) => {
      this.plain(`${level} of ${name}`, seconds, found.map((row) => time(row)[index] * 1e9), "ns");
      this.plain(`share of ${level} of ${name}`, share.replace(/ %$/, ""), found.map((row) => time(row)[index] / time(row).reduce((sum, one) => sum + one, 0) * 100), "%");
    });
  }

  hot({ rows }) {
    const name = ({ frame }) => frame.function ?? codeName(frame);
    for (const [code, , owner, mode, samples, share] of rows) {
      const whose = (row) => visible(ownerLabel(row.owners[0].owner)) + (row.owners_in_all > 1 ? ` and ${row.owners_in_all - 1} more` : "");
      const found = this.of("function").filter((row) => visible(name(row)) === code && whose(row) === owner && row.mode === mode);
      this.plain(`samples in ${code}`, samples, found.map((row) => row.samples), "1");
      this.cell(`share of ${code}`, share, found.map((row) => ({ value: row.share * 100, low: row.low * 100, high: row.high * 100, unit: "%" })));
    }
  }

  gapsBy({ caption, head, rows }, of) {
    for (const [name, ...cells] of rows) {
      const its = this.of("gap").filter((gap) => of(gap) === name);
      cells.forEach((text, index) => {
        const column = head[index + 1];
        const late = its.filter((gap) => column === "longest" || column === "all" || gap.class === column).map((gap) => gap.late_ns);
        const value = column === "longest" ? Math.max(0, ...late) : column === "gaps" ? its.length : late.reduce((sum, one) => sum + one, 0);
        this.plain(`${caption}, ${name}, ${column}`, text, [value], column === "gaps" ? "1" : "ns");
      });
    }
  }

  gaps({ rows }) {
    for (const [late, at, cpu] of rows) {
      const found = this.of("gap").filter((gap) => String(gap.cpu) === cpu && rounds(parsed(at, "ns"), gap.t));
      this.plain(`gap at ${at} on ${cpu}`, late, found.map((gap) => gap.late_ns), "ns");
    }
  }

  books({ rows }) {
    const { books } = this.summary.quality;
    const fields = { owners: "owners_ns", idle: "idle_ns", "scheduler, between two tasks": "scheduler_ns", "running, not accounted yet": "pending_ns", interrupts: "interrupts_ns", "stolen by the hypervisor": "stolen_ns", "CPUs offline": "uncovered_ns", "not attributed": "rest_ns" };
    for (const [who, time, share] of rows) {
      this.plain(`time of ${who}`, time, [books[fields[who]]], "ns");
      this.plain(`share of ${who}`, share, [books[fields[who]] / books.capacity_ns * 100], "%");
    }
  }

  formulas({ rows }) {
    const told = this.of("formula").map(({ metric, unit, formula }) => [metric, unit, formula].join("\u0002"));
    if (rows.length !== told.length) this.wrong.push(`${rows.length} formulas of ${told.length}`);
    for (const cells of rows) {
      this.compared += 1;
      if (!told.includes(cells.join("\u0002"))) this.wrong.push(`no such formula: ${cells.join(" ").slice(0, 200)}`);
    }
  }

  programs({ rows }) {
    for (const [name, run, runs, together] of rows) {
      const program = this.summary.self.programs.find((one) => one.name === name);
      [["ns_per_run", run, "ns"], ["runs", runs, "1"], ["total_ns", together, "ns"]].forEach(([field, text, unit]) => this.plain(`${field} of ${name}`, text, [program[field]?.value], unit));
    }
  }

  // Of a comparison: each side's number, the change with its interval, and how sure it is.
  differences({ caption, rows }) {
    const code = (frame) => (frame.function ?? (frame.offset !== undefined ? frame.module.replace(/^.*\//, "") : "") + codeName(frame));
    const what = (row) => {
      if (row.culprit) return `${row.metric} ${ownerLabel(row.culprit)}`;
      if (!row.frames) return row.frame ? code(row.frame) : row.metric + (row.subject ? " " + subjectLabel(row.subject) : "");
      return row.frames.slice(0, 2).map(code).join(" ‹ ") + (row.frames.length > 2 ? ` ‹ ${row.frames.length - 2} more` : "");
    };
    const by = new Map();
    for (const row of this.of("difference")) {
      const key = visible(what(row)) + "\u0002" + visible(ownerLabel(row.owner));
      by.set(key, [...(by.get(key) || []), row]);
    }
    for (const [name, owner, a, b, change, , p] of rows) {
      const found = by.get(name + "\u0002" + owner) || [];
      const where = `${caption}, ${name} of ${owner}`;
      [["a", a], ["b", b]].forEach(([side, text]) => this.side(`${where}, ${side}`, text, found, (row) => row[side]?.value));
      if (p === undefined) continue;
      const tested = found.filter((row) => row.difference);
      const [, value, low, high, half] = /^(.+?)(?: \[(.+) – (.+)\]| ±(.+))$/.exec(change);
      if (low !== undefined) {
        [["value", value.replace(/ %$/, "")], ["low", low], ["high", high]].forEach(([end, text]) => this.plain(`${where}, ${end} of the change`, text.replace("+", ""), tested.map((row) => row.relative?.[end] * 100), "%"));
      } else {
        this.side(`${where}, change`, value.replace("+", "").replace("−", "-"), tested, (row) => row.difference.value);
        this.side(`${where}, half the interval of the change`, half, tested, (row) => row.difference.high - row.difference.value);
      }
      if (p === "<0.0001") this.compared += tested.some((row) => row.p_adjusted < 0.0001) ? 1 : this.wrong.push(`${where}: p is not ${p}`);
      else this.plain(`${where}, p`, p, tested.map((row) => row.p_adjusted), "1");
    }
  }

  // A side's number in the unit of what is compared.
  side(where, text, rows, of) {
    const [{ basis, unit, culprit } = {}] = rows;
    const values = rows.map(of).filter((value) => value !== null && value !== undefined);
    if (basis === "share") this.plain(where, text.replace(/ %$/, ""), values.map((value) => value * 100), "%");
    else if (unit === "ns/s" && culprit) this.plain(where, text.replace(/\/s$/, ""), values, "ns");
    else if (unit === "ns/s") this.plain(where, text.replace(/ CPU$/, ""), values.map((value) => value / 1e9), "1");
    else this.plain(where, unit === "ns" ? text : text.replace(/ [^ ]+$/, ""), values, unit === "ns" ? "ns" : "1");
  }

  recordings({ rows }) {
    const all = this.of("diff_header")[0].sides.flatMap((side) => side.recordings);
    rows.forEach(([, , , , , lasted], index) => this.plain(`recording ${index + 1}`, lasted, [all[index].duration_ns], "ns"));
  }

  only({ rows }) {
    this.of("only").forEach((row, index) => { if (rows[index]) this.plain(`only one side has ${rows[index][1]}`, rows[index][2], [row.cpu_time_ns], "ns"); });
  }

  // Boxes of the platform: their names, then a line a number.
  diagram(boxes) {
    const metrics = { "": "dram.bw", used: "dram.utilization", read: "dram.read_bw", write: "dram.write_bw", channel: "dram.bw", UPI: "upi.utilization",
      "DDIO write miss": "ddio.write_l3_miss", "DDIO read miss": "ddio.read_l3_miss", "in, read": "pcie.inbound_read_bw", "in, write": "pcie.inbound_write_bw",
      "IOTLB miss": "vtd.iotlb_miss", link: "link.utilization" };
    for (const line of boxes.flatMap((box) => box.split("\n").slice(1))) {
      if (/^\d+ cores$|^[\da-f]{4}:[\da-f]{2}:/.test(line)) continue;
      const [, name = "", unit, number] = /^(?:(used|read|write|channel|UPI|DDIO write miss|DDIO read miss|in, read|in, write|IOTLB miss|link)(?: (\d+)(?= \d))? )?(\d.*)$/.exec(line) || [];
      const isIts = ({ subject }) => subject && (unit === undefined || subject.at?.split("/")[1] === unit);
      if (number === undefined) this.wrong.push(`the platform says “${line}”`);
      else this.cell("the platform, " + line, number, this.numbers.filter((row) => row.metric === metrics[name] && !row.owner && isIts(row)));
    }
  }

  // Findings: each says the number that it rests on.
  findings(items) {
    this.of("finding").forEach((finding, index) => {
      const text = items[index] ?? "";
      const [, value, low, high] = new RegExp(`^${finding.metric.replaceAll(".", "\\.")} (.+?)(?: \\[(.+) – (.+)\\])?(?:, threshold .*)?$`).exec(text) || [];
      if (finding.value === null || finding.value === undefined) return;
      this.plain(`finding ${index + 1}`, value ?? text, [finding.value], finding.unit);
      if (low !== undefined) {
        this.plain(`finding ${index + 1}, low`, low, [finding.low], finding.unit);
        this.plain(`finding ${index + 1}, high`, high, [finding.high], finding.unit);
      }
    });
  }

  // Every number among the facts is one of the summary or the header, or the share of one in another.
  facts(texts) {
    const values = [];
    const collect = (value) => {
      if (typeof value === "number") values.push(value);
      else if (value && typeof value === "object") Object.values(value).forEach(collect);
      // What is missing is what was expected and not seen.
      if (value?.expected > value?.seen) values.push(value.expected - value.seen);
    };
    collect(this.summary);
    collect(this.of("header")[0]);
    const cost = this.summary?.self;
    if (cost) values.push((cost.programs_ns?.value ?? 0) / cost.capacity_ns, cost.counting_cpu_ns / cost.capacity_ns);
    const is = (text) => ["1", "ns", "B"].some((unit) => values.some((value) => rounds(parsed(text, unit), value))) ||
      (text.endsWith(" %") && values.some((value) => rounds(parsed(text, "%"), value * 100)));
    for (const text of texts) {
      for (const [, number] of text.matchAll(/(?<![\w.:-])(\d+(?:\.\d+)?[MG]?(?: (?:ns|µs|ms|s|%|B|KiB|MiB|GiB)(?![\w]))?)(?![\w:.-])/g)) {
        this.compared += 1;
        if (!is(number)) this.wrong.push(`a fact: ${number} in “${text}” is in no row`);
      }
    }
  }
}
