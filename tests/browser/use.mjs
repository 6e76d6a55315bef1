// Uses a page as people do: sorts, filters, chooses an owner, brushes, moves thresholds, zooms and searches, as far as it has what it takes.

const text = (page, selector) => page.locator(selector).first().innerText();

export async function use(page, expect) {
  await owners(page, expect);
  await waits(page, expect);
  await brush(page, expect);
  await thresholds(page, expect);
  await stacks(page, expect);
  await theme(page, expect);
}

// The page of a comparison.
export async function useComparison(page, expect) {
  const rows = () => page.locator("#differences tbody th").allInnerTexts();
  const [first] = await rows();
  await page.locator("#differences thead button").first().click();
  const names = await rows();
  expect(names.join() === [...names].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0)).join(), "a click on a title sorts by it");
  await filtered(page, expect, "#differences", first);
  await page.getByRole("button", { name: "Only what is more than chance" }).click();
  expect((await rows()).length === await page.locator("#significant tbody tr").count(), "what is more than chance is what stands above");
  await stacks(page, expect);
  await theme(page, expect);
}

async function filtered(page, expect, place, name) {
  const rows = () => page.locator(`${place} tbody tr`).count();
  const box = page.locator(`${place} input[type=search]`);
  const all = await rows();
  await box.fill("\u0001 nobody");
  expect(await rows() === 0, "a filter that nobody meets leaves nobody");
  await box.fill(name);
  expect(await rows() >= 1 && await rows() <= all, "a filter leaves whom it names");
  await box.fill("");
  expect(await rows() === all, "without a filter all are there");
}

async function owners(page, expect) {
  if (!await page.locator("#grid input[type=search]").count()) return;
  const first = await text(page, "#grid tbody th");
  await page.locator("#grid thead button").first().click();
  expect(await page.locator("#grid th[aria-sort]").count() === 1, "a click on a title sorts");
  await filtered(page, expect, "#grid", first);
  if (await page.locator("#grid .pick").count()) {
    await page.locator("#grid .pick").first().press("Enter");
    expect(await page.locator("#grid .pick[aria-pressed=true]").count() === 1, "a key chooses an owner");
  }
}

async function waits(page, expect) {
  if (!await page.locator("#matrix input[type=search]").count()) return;
  const victims = () => page.locator("#matrix tbody th").allInnerTexts();
  await page.locator("#matrix thead button").nth(1).click();
  expect(await page.locator("#matrix th[aria-sort=descending]").count() === 1, "a click sorts who waited");
  const [all, ...rest] = await victims();
  await page.locator("#matrix thead button").nth(1).click();
  // Of more rows than are shown it turns others up.
  const hidden = await page.locator("#matrix button", { hasText: "more rows" }).count();
  if (!hidden) expect((await victims()).join() === [all, ...rest.reverse()].join(), "another click turns them round, below everything together");
  await filtered(page, expect, "#matrix", all);
}

async function brush(page, expect) {
  const chart = page.locator(".chart canvas").first();
  if (!await chart.count()) return;
  const before = await page.locator("#owners").innerText();
  await chart.scrollIntoViewIfNeeded();
  const box = await chart.boundingBox();
  await page.mouse.move(box.x + 70, box.y + 30);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.3, box.y + 30, { steps: 4 });
  await page.mouse.up();
  expect(await page.locator("#span").isVisible(), "a drag selects a span");
  expect(await page.locator("#owners").innerText() !== before, "a span changes the owners' numbers");
  await chart.press("Escape");
  expect(await page.locator("#span").isHidden(), "escape ends the span");
  expect(await page.locator("#owners").innerText() === before, "and the numbers are what they were");
  await chart.press("ArrowRight");
  await chart.press("Shift+ArrowRight");
  expect(await page.locator("#span").isVisible(), "keys select a span");
  await page.locator("#span button").click();
  await page.mouse.move(0, 0);
}

// Limits at the ends put all of the time where it belongs; a drag across the bars moves the nearer one.
async function thresholds(page, expect) {
  const figure = page.locator(".level").first();
  if (!await figure.count()) return;
  const times = () => figure.locator("tbody tr td:nth-child(4)").allInnerTexts();
  const before = await times();
  const [medium, high] = [figure.locator("input").first(), figure.locator("input").last()];
  await medium.press("End");
  expect((await times()).join() === "100.0 %,0.0 %,0.0 %", `with limits at the top all is low, not ${await times()}`);
  expect(await high.inputValue() === "1000", "a limit takes the other one along");
  await high.press("Home");
  expect((await times()).join() === "0.0 %,0.0 %,100.0 %", `with limits at 0 all is high, not ${await times()}`);
  await figure.locator("button").click();
  expect((await times()).join() === before.join(), "the limits of the report come back");
  const plot = figure.locator("svg");
  await plot.scrollIntoViewIfNeeded();
  const box = await plot.boundingBox();
  const of = () => high.inputValue().then(Number);
  await page.mouse.move(box.x + box.width * 0.66, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.9, box.y + 20, { steps: 4 });
  await page.mouse.up();
  expect(Math.abs(await of() - 900) <= 15, `a drag moves a limit to where it ends: ${await of()}`);
  await figure.locator("button").click();
}

async function stacks(page, expect) {
  const icicle = page.locator(".icicle canvas");
  if (!await icicle.count()) return;
  await icicle.press("ArrowDown");
  const frame = await text(page, "p.frame code");
  expect(frame !== "all", "an arrow moves into the stacks");
  await icicle.press("Enter");
  await page.locator("#stacks input[type=search]").fill(frame.slice(0, 6));
  expect(/%/.test(await text(page, "#stacks .controls .quiet")), "a search says its share");
  await page.locator("#stacks input[type=search]").fill("");
  await icicle.press("Escape");
  const event = page.locator("#stacks select").filter({ hasText: "time off the CPU" });
  expect(await event.count() === (/off_cpu_stacks/.test(page.url()) ? 1 : 0), "stacks of tasks that block can be chosen where there are some");
  if (!await event.count()) return;
  await event.selectOption({ label: "time off the CPU" });
  await icicle.press("ArrowDown");
  expect(/ off the CPU, \d/.test(await text(page, "p.frame")), "stacks of tasks that block are as wide as their time");
}

async function theme(page, expect) {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await background();
  const button = page.locator("#tools button").first();
  await button.click();
  expect(await background() !== before, "the other theme looks different");
  await button.click();
  expect(await background() === before, "and back");
}

// The rows that the page saves, as they are in its file.
export async function saved(page) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save NDJSON" }).click()]);
  const chunks = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
