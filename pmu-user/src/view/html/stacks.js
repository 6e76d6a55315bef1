// Stacks as an icicle: callers above callees, as wide as their samples, or as their time off the CPU. It has
// search, zoom, and navigation by keys.

const ROW = 18;
const DEPTH_MAX = 400;
const SIZE_MIN = 0.6;

function frameLabel(frame) {
  if (frame.function) return frame.function;
  const module = frame.module ? frame.module.replace(/^.*\//, "") : "";
  if (frame.offset !== undefined) return module + "+0x" + frame.offset.toString(16);
  if (frame.rest) return "rare code together";
  if (frame.cut) return frame.cut === "deep" ? `cut at ${frame.frames} frames` : frame.cut === "broken" ? "callers not known" : "a caller may be missing";
  return /^\d+$/.test(frame.address) ? "0x" + BigInt(frame.address).toString(16) : String(frame.address ?? "?");
}

// Returns a tree of frames from stacks, each with its weight, and with its weight by `beside`. With `upside`,
// callees are above their callers.
function stackTree(stacks, weigh, beside, upside) {
  const node = (name, module, parent) => ({ name, module, total: 0, own: 0, beside: 0, depth: parent ? parent.depth + 1 : 0, parent, children: new Map() });
  const root = node("all", null, null);
  for (const stack of stacks) {
    const [weight, other] = [weigh(stack), beside(stack)];
    if (!weight && !other) continue;
    const frames = upside ? stack.frames : [...stack.frames].reverse();
    let at = root;
    const add = () => { at.total += weight; at.beside += other; };
    add();
    for (const frame of frames.slice(0, DEPTH_MAX)) {
      const name = frameLabel(frame);
      const key = name + "\u0001" + (frame.module || "");
      let child = at.children.get(key);
      if (!child) at.children.set(key, child = node(name, frame.module, at));
      at = child;
      add();
    }
    at.own += weight;
  }
  return root;
}

// Returns an icicle of a tree, with its controls. `paint` returns the colour and the opacity of a frame,
// `says` its numbers in words.
function icicle(label, paint, says) {
  const state = { search: "", root: null, zoom: null, focus: null, boxes: [] };
  const canvas = el("canvas", { tabindex: 0, role: "application", "aria-label": label + " Arrow keys move between frames, enter zooms, escape zooms out; the line below names the frame." });
  const said = el("p", { class: "frame", "aria-live": "polite" }, "\u00a0");
  const hits = el("span", { class: "quiet" });
  const view = { canvas, said, hits, state, paint, says };
  const search = el("input", { type: "search", placeholder: "function or module", input: () => { state.search = search.value.toLowerCase(); drawStacks(view); } });
  const controls = [el("label", { class: "choice" }, el("span", {}, "Search"), search), hits,
    el("button", { type: "button", click: () => { state.zoom = state.focus = state.root; drawStacks(view); } }, "Reset zoom")];
  stackInput(view);
  addEventListener("resize", () => drawStacks(view));
  return { controls, picture: [el("div", { class: "icicle" }, canvas), said], redraw: () => drawStacks(view),
    show: (tree) => { state.root = state.zoom = state.focus = tree; drawStacks(view); } };
}

const eventNames = () => (D.header.sampling_events || [D.header.sampling].filter(Boolean)).map((event) => event.event);

// Width of stacks that is not an event.
const OFF_CPU = "off_cpu";

// Minimum samples of a frame for a statement about a metric.
const SAMPLES_TOLD = 10;

function stacksView() {
  const body = $("#stacks .body");
  const all = [...D.stacks, ...D.blocked];
  if (!all.length) return;
  const events = eventNames();
  const owners = [["", "all owners"], ...ownerOptions(D.programs), ...ownerOptions(all)];
  const state = { owner: "", event: D.stacks.length ? 0 : OFF_CPU, colour: null, upside: false };
  const of = (stack, event) => (event === OFF_CPU ? stack.time_ns?.value : stack.time_ns ? 0 : stack.samples_by_event ? stack.samples_by_event[event] : event ? 0 : stack.samples) || 0;
  const share = (samples, root) => percent(samples / Math.max(1, root.total));
  // Returns the ratio of a frame's samples of the other event to those expected from all frames.
  const times = (node, root) => {
    const expected = node.total * root.beside / Math.max(1, root.total);
    return Math.max(node.beside, expected) < SAMPLES_TOLD ? null : node.beside / expected;
  };
  const paint = (node, root) => {
    if (state.colour === null) return [tone(node), 1];
    const ratio = times(node, root);
    return ratio === null ? [colour("--frame-root"), 1] : against(Math.log2(Math.max(ratio, 1 / 8)) / 2);
  };
  const says = (node, root) => {
    const ratio = state.colour === null ? undefined : times(node, root);
    const beside = ratio === undefined ? "" : `; ${node.beside} samples of ${events[state.colour]}, ` + (ratio === null ? "too few to say how that compares" : `${three(ratio)} times what is usual here`);
    const total = state.event === OFF_CPU ? duration(node.total) + " off the CPU" : node.total + " samples";
    return `: ${total}, ${share(node.total, root)}; itself ${share(node.own, root)}` + beside;
  };
  const view = icicle("Icicle of stacks; the table below has the hottest functions.", paint, says);
  const rebuild = () => {
    const own = state.owner ? all.filter((stack) => isOf(stack.owner, state.owner)) : all;
    view.show(stackTree(own, (stack) => of(stack, state.event), (stack) => (state.colour === null ? 0 : of(stack, state.colour)), state.upside));
  };
  const owner = choice("Owner", owners, "", (key) => { state.owner = key; rebuild(); });
  const named = D.stacks.length ? events.map((name, index) => [index, name]) : [];
  const widths = [...named, ...(D.blocked.length ? [[OFF_CPU, "time off the CPU"]] : [])];
  body.replaceChildren(el("p", { class: "lead" }, "Samples of the whole run. Width is the share of samples; kernel code is grey, each module has a tone of its own. " +
    (D.blocked.length ? "Time off the CPU has the stacks with which tasks blocked, as wide as the time for which they did. " : "") +
    (named.length > 1 ? "By another event, a frame that had more of it than is usual is warm, one that had less is cold." : "")),
  el("div", { class: "controls" }, owner,
    widths.length > 1 ? choice("Event", widths, state.event, (index) => { state.event = index; rebuild(); }) : null,
    named.length > 1 ? choice("Colour by", [[null, "module"], ...named], null, (index) => { state.colour = index; rebuild(); }) : null,
    toggle("Callees first", false, (on) => { state.upside = on; rebuild(); }), view.controls), ...view.picture);
  rebuild();
  whenChanged(() => {
    if (S.owner === state.follows) return view.redraw();
    state.follows = S.owner;
    state.owner = owners.some(([key]) => key === S.owner) ? S.owner : "";
    owner.choose(state.owner);
    rebuild();
  });
}

// Returns a colour for more (1) and less (-1) than usual.
const against = (degree) => [colour(degree > 0 ? "--more" : "--less"), 0.08 + 0.72 * Math.min(1, Math.abs(degree))];

// Returns the boxes of the zoomed part: frames above it over the whole width, frames below it by their share.
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

// Returns a tone by module, the same in every page.
function tone(node) {
  if (node.depth === 0) return colour("--frame-root");
  if (!node.module) return colour("--frame-kernel");
  let hash = 0;
  for (let index = 0; index < node.module.length; index++) hash = (hash * 31 + node.module.charCodeAt(index)) >>> 0;
  return `hsl(${hash % 360} ${colour("--frame-tone")})`;
}

const isHit = (node, search) => search && (node.name.toLowerCase().includes(search) || (node.module || "").toLowerCase().includes(search));

function drawStacks({ canvas, said, hits, state, paint, says }) {
  const width = Math.max(200, canvas.parentElement.clientWidth);
  state.boxes = laidOut(state, width);
  const depth = state.boxes.reduce((most, box) => Math.max(most, box.node.depth), 0);
  const { pen } = prepared(canvas, (depth + 1) * ROW + 2);
  for (const box of state.boxes) {
    const { node, x, w } = box;
    const y = node.depth * ROW;
    const [fill, fullness] = isHit(node, state.search) ? [colour("--hit"), 1] : paint(node, state.root);
    pen.globalAlpha = fullness * (state.search && !isHit(node, state.search) ? 0.3 : 1);
    pen.fillStyle = fill;
    pen.fillRect(x, y, Math.max(0.5, w - 0.7), ROW - 1);
    pen.globalAlpha = state.search && !isHit(node, state.search) ? 0.3 : 1;
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
  say(said, state, state.focus, says);
  hits.textContent = state.search ? percent(matched(state.root, state.search) / Math.max(1, state.root.total)) + " of samples" : "";
}

// Returns the samples in frames that match, each counted once.
function matched(node, search) {
  if (isHit(node, search)) return node.total;
  let sum = 0;
  for (const child of node.children.values()) sum += matched(child, search);
  return sum;
}

function say(said, state, node, says) {
  said.replaceChildren(el("code", {}, node.name), node.module ? " in " + node.module.replace(/^.*\//, "") : "", says(node, state.root));
}

function stackInput(view) {
  const { canvas, said, state, says } = view;
  const at = (event) => state.boxes.findLast((box) => box.node.depth === Math.floor(event.offsetY / ROW) && event.offsetX >= box.x && event.offsetX < box.x + box.w)?.node;
  const zoom = (node) => { state.zoom = state.focus = node; drawStacks(view); };
  canvas.addEventListener("pointermove", (event) => { const node = at(event); canvas.style.cursor = node ? "pointer" : ""; say(said, state, node || state.focus, says); });
  canvas.addEventListener("pointerleave", () => say(said, state, state.focus, says));
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
