//! Comparison of docs/cpus.md with `pmbpf list cpus`. `SNAPSHOTS=overwrite cargo test --test docs cpus`
//! rewrites it.

use std::{fmt::Write as _, fs};

use serde_json::Value;

use crate::{pmbpf, root};

/// Text above the table.
const HEAD: &str = "# CPUs

Which CPUs have tables of events and formulas, as `pmbpf list cpus` lists them; this page is made of its JSON. A table is found by what
the CPU identifies itself as; `--cpu-model NAME` takes one that is near enough, `--perfmon-dir DIR` one of a directory in
perfmon's format. What a CPU without a table has, and what limits those that have one, stands in [limits](limits.md).

`levels` is the depth of the Top-Down tree, `of owners` how many of the metrics hold for a task or a cgroup where cores run two threads;
the others are those of whole cores, sockets and hosts, and an owner's row says why it has none. `checked`:

- `formulas`: every metric, of made counts, equals that of its source (perfmon's files; the kernel's for AMD, Arm's own for Neoverse).
- `simulated`: a simulated PMU with its events returned the shares that were programmed (tests in guests).
- `counts`: of counts of real machines it says what tools on those machines said.

| model | CPUs | identifies itself as | levels | metrics | of owners | events | checked | formulas |
|---|---|---|---|---|---|---|---|---|
";

fn page() -> String {
    let output = pmbpf().args(["list", "cpus", "--json"]).output().unwrap();
    assert!(output.status.success());
    let rows = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let rows = rows.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    let mut page = HEAD.to_owned();
    for row in rows.filter(|row| row["kind"] == "listed_cpu") {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let several = |name: &str, between: &str| {
            let all = row[name].as_array().unwrap().iter().map(|one| one.as_str().unwrap());
            all.collect::<Vec<_>>().join(between)
        };
        let (cpus, checked) = (several("cpus", "` `"), several("checked", ", "));
        writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |",
            text("model"),
            text("product"),
            if cpus.is_empty() { "any other".to_owned() } else { format!("`{cpus}`") },
            row["levels"],
            row["metrics"],
            row["metrics_of_owners"],
            row["events"],
            if checked.is_empty() { "not at all".to_owned() } else { checked },
            text("formulas"),
        )
        .unwrap();
    }
    page
}

#[test]
fn the_page_of_cpus_is_what_the_tables_say() {
    let path = root().join("docs/cpus.md");
    let page = page();
    assert!(page.lines().count() > 30, "{page}");
    if std::env::var_os("SNAPSHOTS").is_some_and(|action| action == "overwrite") {
        fs::write(&path, &page).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), page, "SNAPSHOTS=overwrite writes it anew");
}
