// Stacks as an icicle: callers above callees, as wide as their samples. Search, zoom, and a way through it by keys.

const ROW = 18;
const DEPTH_MAX = 400;
const SIZE_MIN = 0.6;

function frameLabel(frame) {
  if (frame.function) return frame.function;
  const module = frame.module ? frame.module.replace(/^.*\//, "") : "";
  if (frame.offset !== undefined) return module + "+0x" + frame.offset.toString(16);
  if (frame.rest) return "rare code together";
  return typeof frame.address === "number" ? "0x" + frame.address.toString(16) : String(frame.address ?? "?");
}

// A tree of frames out of stacks; with `upside`, callees above their callers.
function stackTree(stacks, weigh, upside) {
  const root = { name: "all", module: null, total: 0, own: 0, depth: 0, parent: null, children: new Map() };
  for (const stack of stacks) {
    const weight = weigh(stack);
    if (!weight) continue;
    const frames = upside ? stack.frames : [...stack.frames].reverse();
    let node = root;
    root.total += weight;
    for (const frame of frames.slice(0, DEPTH_MAX)) {
      const name = frameLabel(frame);
      const key = name + "\u0001" + (frame.module || "");
      let child = node.children.get(key);
      if (!child) {
        child = { name, module: frame.module, total: 0, own: 0, depth: node.depth + 1, parent: node, children: new Map() };
        node.children.set(key, child);
      }
      child.total += weight;
      node = child;
    }
    node.own += weight;
  }
  return root;
}

const eventNames = () => (D.header.sampling_events || []).map((event) => event.event);

function stacksView() {
  const body = $("#stacks .body");
  if (!D.stacks.length) return;
  const events = eventNames();
  const options = [["", "everybody"], ...ownerOptions(D.stacks)];
  const state = { owner: "", event: 0, upside: false, search: "", zoom: null, focus: null, boxes: [] };
  const canvas = el("canvas", { tabindex: 0, role: "application", "aria-label": "Icicle of stacks. Arrow keys move between frames, enter zooms, escape zooms out; the line below names the frame, the table below has the hottest functions." });
  const said = el("p", { class: "frame", "aria-live": "polite" }, "\u00a0");
  const hits = el("span", { class: "quiet" });
  const view = { canvas, said, hits, state };
  const rebuild = () => {
    const own = state.owner ? D.stacks.filter((stack) => ownerKey(stack.owner) === state.owner) : D.stacks;
    const weigh = (stack) => (stack.samples_by_event ? stack.samples_by_event[state.event] : stack.samples) || 0;
    state.root = state.zoom = state.focus = stackTree(own, weigh, state.upside);
    drawStacks(view);
  };
  const search = el("input", { type: "search", placeholder: "function or module", input: () => { state.search = search.value.toLowerCase(); drawStacks(view); } });
  const owner = choice("Owner", options, "", (key) => { state.owner = key; rebuild(); });
  body.replaceChildren(el("p", { class: "lead" }, "Samples of the whole run. Width is the share of samples; kernel code is grey, each module has a tone of its own."),
    el("div", { class: "controls" }, owner,
      events.length > 1 ? choice("Event", events.map((name, index) => [index, name]), 0, (index) => { state.event = index; rebuild(); }) : null,
      el("label", { class: "choice" }, el("span", {}, "Search"), search), hits,
      toggle("Callees first", false, (on) => { state.upside = on; rebuild(); }),
      el("button", { type: "button", click: () => { state.zoom = state.focus = state.root; drawStacks(view); } }, "Reset zoom")),
    el("div", { class: "icicle" }, canvas), said);
  stackInput(view);
  rebuild();
  whenChanged(() => {
    if (S.owner === state.follows) return;
    state.follows = S.owner;
    state.owner = options.some(([key]) => key === S.owner) ? S.owner : "";
    owner.choose(state.owner);
    rebuild();
  });
  addEventListener("resize", () => drawStacks(view));
}

// Places the frames of the zoomed part: those above it over the whole width, those below by their share.
function laidOut(state, width) {
  const boxes = [];
  const path = [];
  for (let node = state.zoom; node; node = node.parent) path.unshift(node);
  path.forEach((node) => boxes.push({ node, x: 0, w: width }));
  const todo = [{ node: state.zoom, x: 0 }];
  while (todo.length) {
    const { node, x } = todo.pop();
    let left = x;
    for (const child of [...node.children.values()].sort((a, b) => b.total - a.total)) {
      const w = child.total / state.zoom.total * width;
      if (w >= SIZE_MIN) {
        boxes.push({ node: child, x: left, w });
        todo.push({ node: child, x: left });
      }
      left += w;
    }
  }
  return boxes;
}

// A tone by module, the same in every page.
function tone(node) {
  if (node.depth === 0) return colour("--frame-root");
  if (!node.module) return colour("--frame-kernel");
  let hash = 0;
  for (let index = 0; index < node.module.length; index++) hash = (hash * 31 + node.module.charCodeAt(index)) >>> 0;
  return `hsl(${hash % 360} ${colour("--frame-tone")})`;
}

const isHit = (node, search) => search && (node.name.toLowerCase().includes(search) || (node.module || "").toLowerCase().includes(search));

function drawStacks({ canvas, said, hits, state }) {
  const width = Math.max(200, canvas.parentElement.clientWidth);
  state.boxes = laidOut(state, width);
  const depth = state.boxes.reduce((most, box) => Math.max(most, box.node.depth), 0);
  const { pen } = prepared(canvas, (depth + 1) * ROW + 2);
  for (const box of state.boxes) {
    const { node, x, w } = box;
    const y = node.depth * ROW;
    pen.globalAlpha = state.search && !isHit(node, state.search) ? 0.3 : 1;
    pen.fillStyle = isHit(node, state.search) ? colour("--hit") : tone(node);
    pen.fillRect(x, y, Math.max(0.5, w - 0.7), ROW - 1);
    if (w > 34) {
      pen.fillStyle = colour(isHit(node, state.search) ? "--hit-text" : "--frame-text");
      pen.save();
      pen.beginPath(); pen.rect(x, y, w - 4, ROW); pen.clip();
      pen.fillText(visible(node.name), x + 4, y + 13);
      pen.restore();
    }
  }
  pen.globalAlpha = 1;
  const focus = state.boxes.find((box) => box.node === state.focus);
  if (focus) {
    pen.strokeStyle = colour("--text");
    pen.lineWidth = 2;
    pen.strokeRect(focus.x + 1, focus.node.depth * ROW + 1, Math.max(2, focus.w - 2.5), ROW - 3);
  }
  say(said, state, state.focus);
  hits.textContent = state.search ? percent(matched(state.root, state.search) / Math.max(1, state.root.total)) + " of samples" : "";
}

// Samples in frames that match, each counted once.
function matched(node, search) {
  if (isHit(node, search)) return node.total;
  let sum = 0;
  for (const child of node.children.values()) sum += matched(child, search);
  return sum;
}

function say(said, state, node) {
  const of = (samples) => percent(samples / Math.max(1, state.root.total));
  said.replaceChildren(el("code", {}, node.name), node.module ? " in " + node.module.replace(/^.*\//, "") : "",
    `: ${node.total} samples, ${of(node.total)}; itself ${of(node.own)}`);
}

function stackInput(view) {
  const { canvas, said, state } = view;
  const at = (event) => state.boxes.findLast((box) => box.node.depth === Math.floor(event.offsetY / ROW) && event.offsetX >= box.x && event.offsetX < box.x + box.w)?.node;
  const zoom = (node) => { state.zoom = state.focus = node; drawStacks(view); };
  canvas.addEventListener("pointermove", (event) => { const node = at(event); canvas.style.cursor = node ? "pointer" : ""; say(said, state, node || state.focus); });
  canvas.addEventListener("pointerleave", () => say(said, state, state.focus));
  canvas.addEventListener("click", (event) => { const node = at(event); if (node) zoom(node); });
  canvas.addEventListener("keydown", (event) => {
    const node = state.focus;
    const shown = (list) => list.filter((one) => state.boxes.some((box) => box.node === one));
    const siblings = node.parent ? shown([...node.parent.children.values()].sort((a, b) => b.total - a.total)) : [node];
    const place = siblings.indexOf(node);
    const next = {
      ArrowDown: () => shown([...node.children.values()].sort((a, b) => b.total - a.total))[0],
      ArrowUp: () => node.parent,
      ArrowRight: () => siblings[place + 1],
      ArrowLeft: () => siblings[place - 1],
    }[event.key];
    if (event.key === "Enter") return zoom(node);
    if (event.key === "Escape") return zoom(state.zoom.parent || state.root);
    if (!next) return;
    event.preventDefault();
    state.focus = next() || node;
    drawStacks(view);
  });
}
