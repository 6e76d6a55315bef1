// Diagram of the platform: memory, sockets, links between them, I/O stacks, ports and what is behind them.
// Higher utilization is darker.

const BOX = { width: 1120, line: 15, pad: 6, gap: 8 };
// Columns from the left: memory, the socket, its stacks, their ports.
const COLUMN = { memory: [0, 215], socket: [255, 190], stack: [485, 225], port: [750, 370] };
const CHARACTER = 6.3;
const NAMES_SHOWN = 3;

function platform() {
  const place = $("#platform");
  if (!place || !D.platform) return;
  const body = el("div", {});
  const redraw = () => body.replaceChildren(scrolled("Platform", diagram(numbers().filter((row) => row.subject && !row.owner))));
  place.replaceChildren(el("figure", {}, el("figcaption", {}, "Platform: numbers with their 95 % intervals; a fuller colour is a higher utilization, none is one that is not known"), body));
  whenChanged(redraw);
  redraw();
}

// Returns the number of a subject in words, or null if it is missing.
function said(rows, metric, isIts, name = "") {
  const row = rows.find((one) => one.metric === metric && isIts(one.subject));
  const known = knownOf(row);
  return known ? { words: (name + " " + show(known.value, row.unit) + " " + interval(known, row.unit)).trim(), value: known.value, weak: isWeak(known) } : null;
}

// Returns the parts of a socket: devices by stack and port, and scopes that are counted.
function stacksOf(socket, rows) {
  const stacks = new Map();
  const stack = (key, bus) => stacks.get(key) || stacks.set(key, { bus, at: null, ports: new Map() }).get(key);
  for (const device of D.devices.filter((one) => (one.socket ?? null) === socket)) {
    const unit = /_(\d+)$/.exec(device.stack?.value?.pmu || "")?.[1];
    const its = stack(unit === undefined ? device.root_bus : "at" + unit, device.root_bus);
    if (unit !== undefined) its.at = `${socket}/${unit}`;
    if (!its.ports.has(device.port)) its.ports.set(device.port, []);
    its.ports.get(device.port).push(device);
  }
  for (const { subject } of rows) {
    const [die, unit] = subject.kind === "stack" ? subject.at.split("/") : [];
    if (die !== String(socket)) continue;
    stack("at" + unit, null).at = subject.at;
  }
  return [...stacks.values()];
}

function diagram(rows) {
  // A socket may have several dies with separate counters.
  const dies = rows.filter(({ subject }) => subject.kind === "socket").map(({ subject }) => Number(subject.at));
  const sockets = [...Array(Math.max(D.platform.sockets || 1, ...dies.map((die) => die + 1))).keys()];
  if (D.devices.some((device) => device.socket === null || device.socket === undefined)) sockets.push(null);
  const svg = drawn("svg", { class: "platform", role: "img", "aria-label": "Sockets, memory, I/O stacks, ports and devices of " + D.platform.processor + "; the tables of devices, memory and links have every number." });
  let y = 4;
  let above = null;
  for (const socket of sockets) {
    const parts = socket === null ? [] : [memoryBox(socket, rows, y), socketBox(socket, rows, y)];
    if (socket !== null && above !== null) svg.append(drawn("path", { class: "wire", d: `M${COLUMN.socket[0] + 95} ${above}V${y}` }));
    const [stacks, bottom] = stackBoxes(socket, rows, y);
    svg.append(...parts.map((part) => part.drawn), ...stacks);
    if (parts.length) svg.append(drawn("path", { class: "wire", d: `M${COLUMN.memory[0] + COLUMN.memory[1]} ${y + 14}H${COLUMN.socket[0]}` }));
    above = parts[1] ? y + parts[1].height : null;
    y = Math.max(bottom, ...parts.map((part) => y + part.height)) + 26;
  }
  svg.setAttribute("viewBox", `0 0 ${BOX.width} ${y - 18}`);
  return svg;
}

// Returns a box with lines of text, as dark as its utilization. A line that is too long is cut, and shown in
// full under the pointer.
function box([x, width], y, lines, utilization) {
  const known = lines.filter((line) => line);
  const height = known.length * BOX.line + BOX.pad * 2 - 2;
  const share = utilization ? Math.min(1, Math.max(0, utilization.value / 100)) : 0;
  const room = Math.floor((width - 2 * BOX.pad) / CHARACTER);
  const cut = (text) => (visible(text).length > room ? visible(text).slice(0, room - 1) + "…" : visible(text));
  return { height, drawn: drawn("g", {},
    drawn("title", {}, known.map((line) => line.words ?? line).join("\n")),
    drawn("rect", { class: "box", x, y, width, height, rx: 2 }),
    utilization ? drawn("rect", { class: "load", x, y, width, height, rx: 2, "fill-opacity": (0.1 + 0.9 * share).toFixed(3) }) : null,
    known.map((line, index) => drawn("text", { class: index ? (line.weak ? "unsure" : null) : "name", x: x + BOX.pad, y: y + BOX.pad + 9 + index * BOX.line }, cut(line.words ?? line)))) };
}

function memoryBox(socket, rows, y) {
  const isIts = (subject) => subject.kind === "socket" && subject.at === String(socket);
  const utilization = said(rows, "dram.utilization", isIts, "used");
  const channels = [...new Set(rows.filter((row) => row.subject.kind === "channel" && row.subject.at.startsWith(socket + "/")).map((row) => row.subject.at))];
  const bytesOf = (D.platform.nodes || []).filter((node) => node.socket === socket).reduce((sum, node) => sum + (node.bytes || 0), 0);
  return box(COLUMN.memory, y, ["Memory" + (bytesOf ? " " + bytes(bytesOf) : ""), said(rows, "dram.bw", isIts), utilization, said(rows, "dram.read_bw", isIts, "read"), said(rows, "dram.write_bw", isIts, "write"),
    ...channels.map((at) => said(rows, "dram.bw", (subject) => subject.kind === "channel" && subject.at === at, "channel " + at.split("/")[1]))], utilization);
}

function socketBox(socket, rows, y) {
  const links = [...new Set(rows.filter((row) => row.subject.kind === "link" && row.subject.at.startsWith(socket + "/")).map((row) => row.subject.at))];
  const used = links.map((at) => said(rows, "upi.utilization", (subject) => subject.kind === "link" && subject.at === at, "UPI " + at.split("/")[1])).filter((one) => one);
  const most = used.reduce((found, one) => (found === null || one.value > found.value ? one : found), null);
  const isIts = (subject) => subject.kind === "socket" && subject.at === String(socket);
  return box(COLUMN.socket, y, ["Socket " + socket, D.platform.cores_per_socket ? D.platform.cores_per_socket + " cores" : null, ...used,
    said(rows, "ddio.write_l3_miss", isIts, "DDIO write miss"), said(rows, "ddio.read_l3_miss", isIts, "DDIO read miss")], most);
}

// Returns the stacks of a socket, a wire to each, and the ports next to them.
function stackBoxes(socket, rows, top) {
  const all = [];
  let y = top;
  for (const stack of stacksOf(socket, rows)) {
    const isIts = (subject) => subject.kind === "stack" && subject.at === stack.at;
    const own = box(COLUMN.stack, y, [stack.at ? `Stack ${stack.at}${stack.bus ? ", bus " + stack.bus : ""}` : "Bus " + stack.bus, said(rows, "pcie.inbound_read_bw", isIts, "in, read"), said(rows, "pcie.inbound_write_bw", isIts, "in, write"),
      said(rows, "vtd.iotlb_miss", isIts, "IOTLB miss")], null);
    all.push(own.drawn);
    if (socket !== null) all.push(drawn("path", { class: "wire", d: `M${COLUMN.socket[0] + COLUMN.socket[1]} ${top + 14}H${COLUMN.stack[0] - 20}V${y + 14}H${COLUMN.stack[0]}` }));
    let below = y;
    for (const [port, devices] of stack.ports) {
      const behind = portBox(port, devices, rows, below);
      all.push(behind.drawn, drawn("path", { class: "wire", d: `M${COLUMN.stack[0] + COLUMN.stack[1]} ${y + 14}H${COLUMN.port[0] - 20}V${below + 14}H${COLUMN.port[0]}` }));
      below += behind.height + BOX.gap;
    }
    y = Math.max(y + own.height + BOX.gap, below);
  }
  return [all, y];
}

function portBox(port, devices, rows, y) {
  const isIts = (subject) => subject.kind === "device" && subject.port === port;
  const utilization = said(rows, "link.utilization", isIts, "link");
  const names = devices.flatMap((device) => (device.names.length ? device.names : [device.model || device.what]));
  const rest = names.length - NAMES_SHOWN;
  const { current } = devices[0].link || {};
  const link = current?.width ? `, ×${current.width} at ${current.gt_per_s} GT/s` : "";
  return box(COLUMN.port, y, [names.slice(0, NAMES_SHOWN).join(", ") + (rest > 0 ? ` and ${rest} more` : ""), port + link, utilization,
    said(rows, "pcie.inbound_read_bw", isIts, "in, read"), said(rows, "pcie.inbound_write_bw", isIts, "in, write")], utilization);
}
