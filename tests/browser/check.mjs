// Opens pages in a headless browser and fails if one asks for anything, says anything on its console, breaks its own policy, is not
// accessible, is wider than its window, or does not sort, filter, brush and search by real input.
//
//   npm install --no-package-lock --prefix tests/browser && node tests/browser/check.mjs page.html… [--shots FOLDER]
//
// The browser comes with the packages of package.json; CHROMIUM names another one.
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);
const shotsAt = process.argv.indexOf("--shots");
const shots = shotsAt < 0 ? null : process.argv[shotsAt + 1];
const pages = process.argv.slice(2).filter((_, index) => shotsAt < 0 || (index + 2 !== shotsAt && index + 2 !== shotsAt + 1));
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const executablePath = process.env.CHROMIUM || await (await import("@sparticuz/chromium")).default.executablePath();
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--headless=new", "--host-resolver-rules=MAP * ~NOTFOUND"] });
const failures = [];

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
  if (!shots) return;
  const height = Math.min(12000, await page.evaluate(() => document.documentElement.scrollHeight));
  await page.evaluate(() => scrollTo(0, 0));
  await page.screenshot({ path: path.join(shots, name + ".png"), fullPage: true, clip: { x: 0, y: 0, width, height } });
}

const text = (page, selector) => page.locator(selector).first().innerText();

// Sorts, filters, chooses an owner, brushes, zooms and searches, as far as the page has what it takes.
async function use(name, page) {
  const rows = () => page.locator("#grid tbody tr").count();
  if (await page.locator("#grid input[type=search]").count()) {
    const all = await rows();
    const owner = await page.locator("#grid tbody th").first().innerText();
    await page.locator("#grid thead button").first().click();
    expect(name, await page.locator("#grid th[aria-sort]").count() === 1, "a click on a title sorts");
    await page.locator("#grid input[type=search]").fill("\u0001 nobody");
    expect(name, await rows() === 0, "a filter that nobody meets leaves nobody");
    await page.locator("#grid input[type=search]").fill(owner);
    expect(name, await rows() >= 1 && await rows() <= all, "a filter leaves whom it names");
    await page.locator("#grid input[type=search]").fill("");
    expect(name, await rows() === all, "without a filter all are there");
    await page.locator("#grid .pick").first().press("Enter");
    expect(name, await page.locator("#grid .pick[aria-pressed=true]").count() === 1, "a key chooses an owner");
  }
  const chart = page.locator(".chart canvas").first();
  if (await chart.count()) {
    const before = await page.locator("#owners").innerText();
    await chart.scrollIntoViewIfNeeded();
    const box = await chart.boundingBox();
    await page.mouse.move(box.x + 70, box.y + 30);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.3, box.y + 30, { steps: 4 });
    await page.mouse.up();
    expect(name, await page.locator("#span").isVisible(), "a drag selects a span");
    expect(name, await page.locator("#owners").innerText() !== before, "a span changes the owners' numbers");
    await chart.press("Escape");
    expect(name, await page.locator("#span").isHidden(), "escape ends the span");
    expect(name, await page.locator("#owners").innerText() === before, "and the numbers are what they were");
    await chart.press("ArrowRight");
    await chart.press("Shift+ArrowRight");
    expect(name, await page.locator("#span").isVisible(), "keys select a span");
    await page.locator("#span button").click();
    await page.mouse.move(0, 0);
  }
  const icicle = page.locator(".icicle canvas");
  if (await icicle.count()) {
    await icicle.press("ArrowDown");
    const frame = await text(page, "p.frame code");
    expect(name, frame !== "all", "an arrow moves into the stacks");
    await icicle.press("Enter");
    await page.locator("#stacks input[type=search]").fill(frame.slice(0, 6));
    expect(name, /%/.test(await text(page, "#stacks .controls .quiet")), "a search says its share");
    await page.locator("#stacks input[type=search]").fill("");
    await icicle.press("Escape");
  }
}

for (const file of pages) {
  const base = path.basename(file, ".html");
  for (const [colorScheme, width] of [["light", 1280], ["dark", 1280], ["light", 360], ["dark", 360], ["light", 1920], ["dark", 1920]]) {
    const name = `${base} ${colorScheme} ${width}`;
    const { context, page, seen } = await open(file, { colorScheme, viewport: { width, height: 900 } });
    if (width === 1280) await use(name, page);
    expect(name, !await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), "is wider than its window");
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }));
    violations.forEach((one) => fail(name, `${one.id}: ${one.nodes.length} × ${one.nodes[0].html.slice(0, 160)} ${one.nodes[0].failureSummary.slice(0, 200)}`));
    seen.requests.forEach((url) => fail(name, "asks for " + url));
    seen.console.forEach((said) => fail(name, "console: " + said));
    (await page.evaluate(() => window.reports)).forEach((report) => fail(name, "policy: " + report));
    await shoot(page, `${base}-${width}-${colorScheme}`, width);
    await context.close();
  }
  const { context, page } = await open(file, { javaScriptEnabled: false, viewport: { width: 1280, height: 900 } });
  expect(base, (await page.locator("main").innerText()).length > 800, "says little without scripts");
  await shoot(page, `${base}-noscript`, 1280);
  await context.close();
}
await browser.close();
failures.forEach((failure) => console.error(failure));
console.log(`${pages.length} pages, ${failures.length} failures`);
process.exitCode = failures.length ? 1 : 0;
