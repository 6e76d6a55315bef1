// Reads exports with what others wrote (speedscope's importer, Datadog's pprof-format) and holds their sums against rows of JSON.
//
// Run by `cargo xtask exports`: read.mjs FOLDER MODULES. FOLDER has for each recording NAME.json (`pmbpf report --json`), NAME.folded,
// NAME.speedscope and NAME.pprof; MODULES is where npm put what is read with.
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createContext, runInContext } from "node:vm";
import { gunzipSync } from "node:zlib";

const [folder, modules] = process.argv.slice(2);
const { Profile } = createRequire(join(modules, "package.json"))("pprof-format");

// The importer of speedscope's release, which is made for browsers: its modules without the one that draws.
function importer(release) {
  const script = (begin) => {
    const name = readdirSync(release).find((name) => name.startsWith(begin) && name.endsWith(".js"));
    return readFileSync(join(release, name), "utf8");
  };
  const quiet = { log() {}, warn: console.warn, error: console.error };
  const context = createContext({ console: quiet, TextDecoder, TextEncoder, setTimeout, performance });
  context.window = context.self = context;
  runInContext(script("speedscope.").replace(/,\[[^\]]*\], null\)\s*\/\/# sourceMappingURL=\S+\s*$/, ",[], null)"), context);
  runInContext(script("import."), context);
  const all = context.parcelRequire.modules;
  const is = (id) => String(all[id][0]).includes("exports.importProfileGroupFromText");
  return context.parcelRequire(Object.keys(all).find(is));
}
const speedscope = importer(join(modules, "node_modules/speedscope/dist/release"));

// Samples with a stack of each event, in the order of the events; behind them the time of tasks that block, if their stacks were taken.
function reported(text) {
  const rows = text.trimEnd().split("\n").map((row) => JSON.parse(row));
  const header = rows.find((row) => row.kind === "header");
  const events = header.sampling_events ?? [header.sampling];
  const sums = events.map(() => 0);
  for (const row of rows.filter((row) => row.kind === "stack")) {
    (row.samples_by_event ?? [row.samples]).forEach((samples, event) => (sums[event] += samples));
  }
  const blocked = rows.filter((row) => row.kind === "off_cpu_stack");
  return blocked.length ? [...sums, blocked.reduce((sum, row) => sum + row.time_ns.value, 0)] : sums;
}

function pprof(bytes) {
  const profile = Profile.decode(gunzipSync(bytes));
  const of = (event) => profile.sample.reduce((sum, one) => sum + Number(one.value[event]), 0);
  return profile.sampleType.map((_, event) => of(event));
}

const weights = (group) => group.profiles.map((profile) => profile.getTotalWeight());

let failures = 0;
function hold(what, found, wanted) {
  const same = wanted.every((sum) => sum > 0) && JSON.stringify(found) === JSON.stringify(wanted);
  failures += same ? 0 : 1;
  console.log(`${what}: ${JSON.stringify(found)}${same ? "" : `, not ${JSON.stringify(wanted)}`}`);
}

for (const file of readdirSync(folder).filter((name) => name.endsWith(".pprof"))) {
  const name = file.slice(0, -".pprof".length);
  const at = (kind) => join(folder, `${name}.${kind}`);
  const text = (kind) => readFileSync(at(kind), "utf8");
  const wanted = reported(text("json"));
  const bytes = readFileSync(at("pprof"));
  hold(`${name}: pprof-format`, pprof(bytes), wanted);
  const group = await speedscope.importProfilesFromArrayBuffer(file, new Uint8Array(gunzipSync(bytes)).buffer);
  // It shows the default type of samples: the first event.
  hold(`${name}: speedscope, pprof`, weights(group), wanted.slice(0, 1));
  hold(`${name}: speedscope, folded`, weights(await speedscope.importProfileGroupFromText(name, text("folded"))), wanted.slice(0, 1));
  hold(`${name}: speedscope, its own`, weights(await speedscope.importProfileGroupFromText(name, text("speedscope"))), wanted);
}
process.exit(failures ? 1 : 0);
