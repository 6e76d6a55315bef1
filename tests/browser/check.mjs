// Opens pages in a headless browser and fails if one asks for anything, says anything on its console, breaks its own policy, is not
// accessible, is wider than its window, says a number that is not in its rows, or does not do what it should by real input.
//
//   node tests/browser/check.mjs page.html… [--shots FOLDER] [--elements MAX] [--all | --first]
//
// Each width is looked at, and each theme; with --all each width in both themes, with --first one of each.
// README.md says what it needs. CHROMIUM names a browser that is not on the path.
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import { Numbers } from "./numbers.mjs";
import { saved, use, useComparison } from "./use.mjs";

const require = createRequire(import.meta.url);
const { values: asked, positionals: pages } = parseArgs({ allowPositionals: true, options: { shots: { type: "string" }, elements: { type: "string" }, all: { type: "boolean" }, first: { type: "boolean" } } });
const LOOKS = [["light", 1280], ["dark", 360], ["light", 1920]];
const OTHER_LOOKS = [["dark", 1280], ["light", 360], ["dark", 1920]];
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const installed = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"].flatMap((name) => process.env.PATH.split(":").map((folder) => path.join(folder, name)));
const executablePath = process.env.CHROMIUM || installed.find((file) => fs.existsSync(file));
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--headless=new", "--host-resolver-rules=MAP * ~NOTFOUND"] });
const failures = [];
let compared = 0;

const fail = (page, what) => failures.push(`${page}: ${what}`);
const expect = (page, is, what) => { if (!is) fail(page, what); };

async function open(file, options) {
  const context = await browser.newContext({ bypassCSP: false, ...options });
  const page = await context.newPage();
  const seen = { requests: [], console: [] };
  page.on("request", (request) => { if (!request.url().startsWith("file:") && !request.url().startsWith("data:") && !request.url().startsWith("blob:")) seen.requests.push(request.url()); });
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) seen.console.push(message.text()); });
  page.on("pageerror", (error) => seen.console.push(String(error)));
  page.on("dialog", (dialog) => { seen.console.push("a dialog: " + dialog.message()); dialog.dismiss(); });
  await page.addInitScript(() => { window.reports = []; addEventListener("securitypolicyviolation", (event) => window.reports.push(event.violatedDirective + " " + event.blockedURI)); });
  await page.goto("file://" + path.resolve(file));
  if (options.javaScriptEnabled !== false) await page.waitForSelector("body[data-ready='1']", { timeout: 20000 });
  return { context, page, seen };
}

// A picture of the page, as much of it as a browser can hold in one.
async function shoot(page, name, width) {
  if (!asked.shots) return;
  const height = Math.min(12000, await page.evaluate(() => document.documentElement.scrollHeight));
  await page.evaluate(() => scrollTo(0, 0));
  await page.screenshot({ path: path.join(asked.shots, name + ".png"), fullPage: true, clip: { x: 0, y: 0, width, height } });
}

// How long it took until everything was drawn, and how many elements there are then.
async function opened(name, page) {
  const [ready, elements] = await page.evaluate(() => [performance.getEntriesByName("ready")[0].startTime, document.querySelectorAll("*").length]);
  console.log(`${name}: ready after ${ready.toFixed(0)} ms, ${elements} elements`);
  if (asked.elements) expect(name, elements <= Number(asked.elements), `${elements} elements, not ${asked.elements} at most`);
}

// The tables, findings and facts of a page, as they are read.
const read = (page) => page.evaluate(() => {
  const texts = (all) => [...all].map((one) => one.textContent.trim());
  const table = (one) => ({ caption: texts([one.caption])[0], head: texts(one.tHead.rows[0].cells), rows: [...one.tBodies].flatMap((body) => [...body.rows]).map((row) => texts(row.cells)) });
  return { tables: [...document.querySelectorAll("main table")].map(table), findings: texts(document.querySelectorAll("#findings .evidence")),
    diagram: texts(document.querySelectorAll("svg.platform title")), facts: texts(document.querySelectorAll("#quality dd, #cost dd")) };
});

// Holds what a page says to its rows.
async function compare(name, page, rows, byScript) {
  const numbers = new Numbers(rows);
  const { tables, findings, diagram, facts } = await read(page);
  tables.forEach((table) => numbers.table(table, byScript));
  numbers.diagram(diagram);
  numbers.findings(findings);
  numbers.facts(facts);
  numbers.wrong.slice(0, 20).forEach((what) => fail(name, what));
  if (numbers.wrong.length > 20) fail(name, `${numbers.wrong.length} numbers are wrong`);
  compared += numbers.compared;
  expect(name, numbers.compared >= 5, `only ${numbers.compared} numbers were compared`);
}

async function accessible(name, page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }));
  violations.forEach((one) => fail(name, `${one.id}: ${one.nodes.length} × ${one.nodes[0].html.slice(0, 160)} ${one.nodes[0].failureSummary.slice(0, 200)}`));
}

// Without scripts the tables are there as they are.
async function withoutScripts(file, rows) {
  const base = path.basename(file, ".html");
  const { context, page } = await open(file, { javaScriptEnabled: false, viewport: { width: 1280, height: 900 } });
  expect(base, (await page.locator("main").innerText()).length > 800, "says little without scripts");
  await compare(base + " without scripts", page, rows, false);
  await shoot(page, `${base}-noscript`, 1280);
  await context.close();
}

for (const file of pages) {
  const base = path.basename(file, ".html");
  for (const [colorScheme, width] of asked.first ? LOOKS.slice(0, 1) : asked.all ? [...LOOKS, ...OTHER_LOOKS] : LOOKS) {
    const name = `${base} ${colorScheme} ${width}`;
    const { context, page, seen } = await open(file, { colorScheme, viewport: { width, height: 900 } });
    if (width === 1280) {
      await opened(name, page);
      const rows = await saved(page);
      await compare(name, page, rows, true);
      const uses = await page.locator("#differences").count() ? useComparison : use;
      await uses(page, (is, what) => expect(name, is, what));
      if (colorScheme === "light") await withoutScripts(file, rows);
    }
    expect(name, !await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), "is wider than its window");
    // What a wide window shows, the middle one has.
    if (width < 1920) await accessible(name, page);
    seen.requests.forEach((url) => fail(name, "asks for " + url));
    seen.console.forEach((said) => fail(name, "console: " + said));
    (await page.evaluate(() => window.reports)).forEach((report) => fail(name, "policy: " + report));
    await shoot(page, `${base}-${width}-${colorScheme}`, width);
    await context.close();
  }
}
await browser.close();
failures.forEach((failure) => console.error(failure));
console.log(`${pages.length} pages, ${compared} numbers compared, ${failures.length} failures`);
process.exitCode = failures.length ? 1 : 0;
