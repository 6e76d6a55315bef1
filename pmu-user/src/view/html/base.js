// Elements, names chosen by others, and numbers as text.

const $ = (selector, root = document) => root.querySelector(selector);

// Characters that move, reorder or hide text, which pmbpf's other outputs escape as well.
const UNSAFE = new RegExp(
  "[\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u08e2\\u180e\\u200b-\\u200f\\u2028-\\u202e" +
  "\\u2060-\\u206f\\ufe00-\\ufe0f\\ufeff\\ufff9-\\ufffb\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]", "gu");

function visible(text) {
  return String(text).replace(UNSAFE, (character) => {
    const code = character.codePointAt(0);
    return code < 0x80 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u{" + code.toString(16) + "}";
  });
}

// Namespace of pictures, taken from the one in the page.
const SVG = $("svg").namespaceURI;

// Returns an element. All text in it stays text: nothing here turns a string into markup.
function make(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : visible(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : visible(child));
  }
  return node;
}

const el = (tag, attributes, ...children) => make(document.createElement(tag), attributes, children);
const drawn = (tag, attributes, ...children) => make(document.createElementNS(SVG, tag), attributes, children);

// Returns a choice of one of several options, which are pairs of a key and a label. Its `choose` selects
// another option.
function choice(label, options, value, pick) {
  const select = el("select", { change: () => pick(options[select.selectedIndex][0]) }, options.map(([, text]) => el("option", {}, text)));
  const all = el("label", { class: "choice" }, el("span", {}, label), select);
  all.choose = (key) => { select.selectedIndex = Math.max(0, options.findIndex(([one]) => one === key)); };
  all.choose(value);
  return all;
}

// Returns a name that may break between its words.
const broken = (name) => visible(name).split(/(?<=[_.])/).flatMap((part, index) => (index ? [el("wbr"), part] : [part]));

// Returns a button that is on or off.
function toggle(label, on, flip) {
  const button = el("button", { type: "button", "aria-pressed": String(on), click: () => {
    on = !on;
    button.setAttribute("aria-pressed", String(on));
    flip(on);
  } }, label);
  return button;
}

function three(value) {
  const size = Math.abs(value);
  if (size >= 99.95) return value.toFixed(0);
  if (size >= 9.995) return value.toFixed(1);
  return value.toFixed(size >= 0.9995 || size === 0 ? 2 : 3);
}

function duration(ns) {
  const size = Math.abs(ns);
  if (ns === 0) return "0";
  if (size < 1e3) return ns.toFixed(0) + " ns";
  if (size < 1e6) return three(ns / 1e3) + " µs";
  return size < 1e9 ? three(ns / 1e6) + " ms" : three(ns / 1e9) + " s";
}

function count(value) {
  const size = Math.abs(value);
  if (size < 1e6) return Number.isInteger(value) || size >= 1000 ? value.toFixed(0) : three(value);
  return size < 1e9 ? three(value / 1e6) + "M" : three(value / 1e9) + "G";
}

function bytes(value) {
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (Math.abs(value) >= size) return three(value / size) + " " + unit;
  }
  return value.toFixed(0) + " B";
}

const COUNTED = new Set(["switches", "migrations", "faults", "samples", "requests", "counts"]);

function show(value, unit) {
  if (unit === "ns") return duration(value);
  if (unit === "%") return three(value) + " %";
  if (unit === "1" || unit === "") return three(value);
  if (unit === "B") return bytes(value);
  if (COUNTED.has(unit)) return count(value);
  return (Math.abs(value) >= 1e6 ? count(value) : three(value)) + " " + unit;
}

const percent = (share) => (share !== 0 && Math.abs(share) < 0.001 ? (share * 100).toFixed(3) : (share * 100).toFixed(1)) + " %";

// Returns the interval behind a number: half its width, its ends where it is lopsided, nothing where it is
// narrow.
function interval(known, unit) {
  const { value, low, high } = known;
  if (low === null || low === undefined || high - low <= 0.01 * Math.abs(value)) return "";
  // The unit is written once.
  const [, said = ""] = / (\S+)$/.exec(show(value, unit)) || [];
  const bare = (number) => (said && show(number, unit).endsWith(" " + said) ? show(number, unit).slice(0, -said.length - 1) : show(number, unit));
  if (high === null) return "[" + bare(low) + " – ]";
  const [down, up] = [value - low, high - value];
  if (Math.max(down, up) > 1.2 * Math.min(down, up)) return "[" + bare(low) + " – " + bare(high) + "]";
  return "±" + bare((high - low) / 2);
}

// Returns whether a number is weak: its coverage is below one half, or its interval is wider than the number
// itself.
const isWeak = (known) => known.coverage < 0.5 || known.high - known.low > Math.abs(known.value);

// Returns a bar from 0 to `full` with a line from one end of the interval to the other.
function bar(known, full) {
  const at = (value) => Math.min(100, Math.max(0, value / full * 100));
  const [low, high] = [at(known.low), at(known.high)];
  const parts = [drawn("rect", { class: "fill", y: 1, height: 8, width: at(known.value) })];
  if (high - low >= 0.5) parts.push(drawn("rect", { class: "whisker", x: low, y: 4, width: high - low, height: 2 }));
  return drawn("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, parts);
}

// Returns a colour of the styles, which differs by theme.
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Prepares a canvas in device pixels. Drawing uses CSS pixels.
function prepared(canvas, height) {
  const width = Math.max(200, canvas.parentElement.clientWidth);
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  return { pen, width, height };
}
