// Start of the scripts of the page.

function whatIsKept() {
  const left = Object.entries(D.about.left_out).map(([kind, rows]) => `${rows} rows of kind ${kind}`);
  const spans = D.spans.length;
  const size = (document.documentElement.outerHTML.length / 1e6).toFixed(1);
  $("#kept").textContent = `This page has the rows of the whole run and ${spans} interval${spans === 1 ? "" : "s"}` +
    (D.about.ticks > 1 ? ` of ${D.about.ticks} ticks each` : "") + `, ${size} MB in all.` + (left.length ? ` To limit its size it leaves out ${left.join(", ")}.` : "");
}

async function main() {
  $("#tools").append(themeButton());
  await load();
  $("#tools").append(downloadButton("report.ndjson"));
  spanBar();
  for (const section of [ownersGrid, subjectGrids, waits, topdown, timeline, latency, platform, levels, stacksView, blind]) section();
  counts();
  document.querySelectorAll("#hot table").forEach((table) => sortable(table));
  whatIsKept();
  performance.mark("ready");
  document.body.dataset.ready = "1";
}

main().catch((error) => {
  $("#findings").prepend(el("p", { class: "alarm" }, "The data of this page cannot be read (" + error.message + "); the tables below are complete."));
  console.error(error);
});
