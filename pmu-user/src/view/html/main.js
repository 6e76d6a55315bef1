// Brings the page to life.

function themeButton() {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const label = () => (isDark() ? "Light" : "Dark");
  const button = el("button", { type: "button", click: () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    button.textContent = label();
    changed();
  } }, label());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { button.textContent = label(); changed(); });
  return button;
}

// The whole run's rows as a file, as `pmbpf report --json` writes them.
function downloadButton() {
  return el("button", { type: "button", click: () => {
    const link = el("a", { download: "report.ndjson", href: URL.createObjectURL(new Blob([D.text], { type: "application/x-ndjson" })) });
    link.click();
    URL.revokeObjectURL(link.href);
  } }, "Save NDJSON");
}

function whatIsKept() {
  const left = Object.entries(D.about.left_out).map(([kind, rows]) => `${rows} rows of kind ${kind}`);
  const spans = D.spans.length;
  const size = (document.documentElement.outerHTML.length / 1e6).toFixed(1);
  $("#kept").textContent = `This page has the rows of the whole run and ${spans} interval${spans === 1 ? "" : "s"}` +
    (D.about.ticks > 1 ? ` of ${D.about.ticks} ticks each` : "") + `, ${size} MB in all.` + (left.length ? ` For want of room it leaves out ${left.join(", ")}.` : "");
}

async function main() {
  $("#tools").append(themeButton());
  await load();
  $("#tools").append(downloadButton());
  spanBar();
  for (const section of [ownersGrid, subjectGrids, topdown, timeline, latency, stacksView, blind]) section();
  document.querySelectorAll("#counts table, #hot table").forEach(sortable);
  whatIsKept();
  document.body.dataset.ready = "1";
}

main().catch((error) => {
  $("#findings").prepend(el("p", { class: "alarm" }, "The data of this page cannot be read (" + error.message + "); the tables below are complete."));
  console.error(error);
});
