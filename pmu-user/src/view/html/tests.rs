//! Tests of the page: it contains no foreign markup, its policy names its content, and it stays small.

use std::io::{Read as _, Write as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::ZlibDecoder;
use sha2::{Digest as _, Sha256};

use super::{Differences, Extremes, Intervals, Whole, page};

const HEADER: &str = r#"{"kind":"header","command":"run","target":"</title><script>alert(1)</script>","host":"h","version":"0"}"#;
const SUMMARY: &str = r#"{"kind":"summary","complete":true,"stopped":"duration","duration_ns":1000000000,"losses":{},"missing":[{"what":"a\"b","why":"<i>why</i>"}]}"#;

/// Returns the rows of an owner of this name.
fn rows(name: &str) -> String {
    let owner = serde_json::json!({"kind": "process", "name": name, "pid": 7});
    let number = format!(
        r#"{{"schema":"pmbpf/2","kind":"metric","t":0,"dt":1000000000,"owner":{owner},"metric":"cpu_time","unit":"ns","value":5000000,"low":4000000,"high":6000000,"coverage":1.0,"how":"counted","status":"ok"}}"#
    );
    let frame = serde_json::json!({"function": name, "module": name});
    let hot = serde_json::json!({"kind": "function", "owners": [{"owner": owner, "samples": 3}], "owners_in_all": 1, "mode": "user", "frame": frame, "samples": 3, "share": 0.5, "low": 0.4, "high": 0.6});
    let finding = serde_json::json!({"kind": "finding", "rank": 1, "says": name, "metric": name, "unit": name, "value": 1.0, "next": [name]});
    let culprit = |whose: serde_json::Value, wait_ns: u64| serde_json::json!({"kind": "culprit", "owner": owner, "culprit": whose, "wait_ns": wait_ns, "share": wait_ns as f64 / 4e6, "of_ns": 4_000_000});
    let culprits = [
        culprit(owner.clone(), 3_000_000),
        culprit(serde_json::json!({"kind": "idle", "name": "idle"}), 1_000_000),
    ];
    let levels = serde_json::json!({"kind": "levels", "subject": {"kind": "socket", "at": name}, "metric": name, "unit": "GB/s", "maximum": 60, "basis": "given",
        "observed_max": 50, "limits": [20, 40], "slice_s": 0.1, "low_s": 1.5, "medium_s": 2.5, "high_s": 0.25, "bins": [[0, 1, 1.5]]});
    let formula = serde_json::json!({"kind": "formula", "metric": name, "unit": name, "formula": format!("{name} / CLOCKS < 1")});
    let rows = [
        number,
        finding.to_string(),
        hot.to_string(),
        culprits[0].to_string(),
        culprits[1].to_string(),
        levels.to_string(),
        formula.to_string(),
    ];
    format!("{HEADER}\n{}\n{SUMMARY}\n", rows.join("\n"))
}

fn made(rows: &str) -> String {
    let (mut whole, extremes) = (Whole::new(), Extremes::default());
    // In pieces, as a buffer may write them.
    rows.as_bytes().chunks(100).for_each(|piece| whole.write_all(piece).unwrap());
    let mut intervals = Intervals::new(1, 1, &extremes);
    intervals.write_all(rows.as_bytes()).unwrap();
    String::from_utf8(page(whole, intervals.packed()).unwrap()).unwrap()
}

fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = page.split_once(from).unwrap();
    rest.split_once(to).unwrap().0
}

fn inflated(page: &str, id: &str) -> String {
    let packed = between(page, &format!("id=\"{id}\">"), "</script>");
    let mut text = String::new();
    ZlibDecoder::new(&*STANDARD.decode(packed).unwrap()).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn no_name_is_markup_and_none_is_lost() {
    for name in [
        "</script><img src=x onerror=alert(1)>",
        "\" onload=\"x",
        "<!--{script}-->",
        "a\u{202e}b\x1b[31m",
        "&lt;b&gt;",
    ] {
        let rows = rows(name);
        let page = made(&rows);
        let markup = page.split_once("<script type=\"application/json\"").unwrap().0;
        assert!(markup.contains(" / CLOCKS &#60; 1</code>"), "the formula is there");
        assert!(
            !markup.contains("<img") && !markup.contains("alert(1)<") && !markup.contains("<i>why"),
            "{name}"
        );
        assert!(
            !markup.contains("\" onload=\"x") && !markup.contains('\u{202e}') && !markup.contains('\x1b'),
            "{name}"
        );
        assert_eq!(markup.matches("<script").count(), 0, "{name}");
        assert_eq!(page.matches("</script>").count(), 4, "{name}: ours and no other");
        assert_eq!(inflated(&page, "whole"), rows, "{name}");
        let interval = inflated(&page, "intervals");
        assert_eq!(interval.lines().collect::<Vec<_>>(), [rows.lines().nth(1).unwrap()], "{name}");
    }
}

#[test]
fn the_policy_names_what_is_in_the_page() {
    let page = made(&rows("web"));
    let policy = between(&page, "Content-Security-Policy\" content=\"", "\">");
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    for (source, from, to) in [("script-src", "<script>", "</script>"), ("style-src", "<style>", "</style>")]
    {
        let hash = STANDARD.encode(Sha256::digest(between(&page, from, to)));
        assert!(policy.contains(&format!("{source} 'sha256-{hash}'")), "{source}: {policy}");
    }
    assert_eq!(page.matches("<script>").count(), 1);
    assert_eq!(page.matches("<style>").count(), 1);
}

#[test]
fn the_page_needs_nothing_else() {
    let page = made(&rows("web"));
    for outside in [
        "http:",
        "https:",
        "//cdn",
        " src=",
        "@import",
        "url(",
        " style=",
        "eval(",
        "innerHTML",
        "import(",
        "fetch(",
        "XMLHttp",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    for reference in page.split("href=\"").skip(1) {
        assert!(reference.starts_with('#') || reference.starts_with("data:,\""), "{}", &reference[..20]);
    }
}

#[test]
fn every_section_is_readable_without_scripts() {
    let page = made(&rows("web"));
    let markup = page.split_once("<script type").unwrap().0;
    for text in [
        "web 7",
        "5.00 ms",
        "±1.00</small>",
        "<li><p class=\"says\">web</p>",
        "50.0 % <small>±10.0</small>",
        "&#60;i&#62;why",
        "a&#34;b",
        // Culprits: of 4 ms three quarters, then a quarter.
        "<td class=\"n\">4.00 ms</td><td class=\"n heat6\">3.00 ms <small>75.0 %</small></td><td class=\"n heat2\">1.00 ms <small>25.0 %</small></td>",
        // Time at bandwidth.
        "<td class=\"n\">60.0 GB/s</td><td>given</td><td class=\"n\">20.0 GB/s</td><td class=\"n\">40.0 GB/s</td>",
        "<td class=\"n\">1.50 s</td><td class=\"n\">2.50 s</td><td class=\"n\">250 ms</td>",
    ] {
        assert!(markup.contains(text), "{text}");
    }
    assert!(!markup.contains("<!--{"), "every place is filled");
}

#[test]
fn what_is_too_much_is_left_out_and_counted() {
    let mut whole = Whole::new();
    whole.write_all(format!("{HEADER}\n").as_bytes()).unwrap();
    let stacks = 60_000_u64;
    for number in 0..stacks {
        // Digits that do not compress.
        let frames: Vec<String> =
            (0..8).map(|depth| format!("{:x}", Sha256::digest(format!("{number}.{depth}")))).collect();
        writeln!(whole, r#"{{"kind":"stack","samples":1,"frames":{frames:?}}}"#).unwrap();
    }
    whole.write_all(format!("{SUMMARY}\n").as_bytes()).unwrap();
    let extremes = Extremes::default();
    let page = String::from_utf8(page(whole, Intervals::new(1, 0, &extremes).packed()).unwrap()).unwrap();
    assert!(page.len() < 2_500_000, "{}", page.len());
    let about: serde_json::Value =
        serde_json::from_str(between(&page, "id=\"about\">", "</script>")).unwrap();
    let kept = inflated(&page, "whole");
    assert_eq!(kept.lines().count() as u64 - 2 + about["left_out"]["stack"].as_u64().unwrap(), stacks);
    assert!(kept.ends_with(&format!("{SUMMARY}\n")));
}

#[test]
fn an_interval_of_several_ticks_has_their_extremes() {
    let row = |t: u64, dt: u64, value: u64| {
        format!(
            "{{\"schema\":\"pmbpf/2\",\"kind\":\"metric\",\"t\":{t},\"dt\":{dt},\"owner\":null,\"metric\":\"m\",\"unit\":\"1\",\"value\":{value},\"status\":\"ok\"}}\n"
        )
    };
    let mut extremes = Extremes::default();
    assert!(extremes.is_empty());
    // The last tick was cut short: it is ignored.
    for (t, dt, value) in [(0, 10, 5), (10, 10, 1), (20, 10, 9), (30, 10, 4), (40, 2, 0)] {
        extremes.write_all(row(t, dt, value).as_bytes()).unwrap();
    }
    let mut intervals = Intervals::new(2, 0, &extremes);
    for (t, dt, value) in [(0, 20, 6), (20, 22, 13)] {
        intervals.write_all(row(t, dt, value).as_bytes()).unwrap();
    }
    let page = String::from_utf8(page(Whole::new(), intervals.packed()).unwrap()).unwrap();
    let rows: Vec<serde_json::Value> =
        inflated(&page, "intervals").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let extremes: Vec<_> = rows
        .iter()
        .map(|row| [&row["value"], &row["least"], &row["most"]].map(|value| value.as_f64().unwrap()))
        .collect();
    assert_eq!(extremes, [[6.0, 1.0, 5.0], [13.0, 4.0, 9.0]]);
}

/// Returns the page of a comparison in which everything has this name.
fn compared(name: &str) -> (String, String) {
    let owner = serde_json::json!({"kind": "cgroup", "name": name, "path": name});
    let ends = |value: f64| serde_json::json!({"value": value, "low": value - 0.1, "high": value + 0.1});
    let side = serde_json::json!({"side": name, "recordings": [{"name": name, "host": name, "kernel": name, "target": name, "duration_ns": 2e9}]});
    let condition = serde_json::json!({"what": name, "a": name, "b": name, "limits": name});
    let row = |part: serde_json::Value| {
        let mut row = serde_json::json!({"kind": "difference", "owner": owner, "metric": name, "unit": "1", "basis": "level", "a": ends(2.0), "b": ends(3.0),
            "significant": true, "status": "tested", "difference": ends(1.0), "relative": ends(0.5), "p": 0.001, "p_adjusted": 0.002, "freedom": 9});
        row.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        row.to_string()
    };
    let frame = serde_json::json!({"function": name, "module": name});
    let rows = [
        serde_json::json!({"kind": "diff_header", "sides": [side, side], "conditions": [condition]}).to_string(),
        row(serde_json::json!({})),
        row(serde_json::json!({"frame": frame, "mode": "user", "relative": null})),
        row(serde_json::json!({"frames": [frame, frame, frame]})),
        row(serde_json::json!({"significant": false, "status": "untested", "reason": name, "difference": null, "p_adjusted": null, "a": null})),
        serde_json::json!({"kind": "only", "side": "a", "owner": owner, "metrics": [name], "cpu_time_ns": null}).to_string(),
        serde_json::json!({"kind": "diff_summary", "compared": 3, "significant": 3, "uncorrected": 3, "untested": 1}).to_string(),
    ]
    .join("\n") + "\n";
    let mut differences = Differences::new();
    rows.as_bytes().chunks(100).for_each(|piece| differences.write_all(piece).unwrap());
    (String::from_utf8(differences.page().unwrap()).unwrap(), rows)
}

#[test]
fn no_name_is_markup_in_a_comparison() {
    for name in
        ["</script><img src=x onerror=alert(1)>", "\" onload=\"x", "<!--{script}-->", "a\u{202e}b\x1b[31m"]
    {
        let (page, rows) = compared(name);
        let markup = page.split_once("<script type=\"application/octet-stream\"").unwrap().0;
        for part in ["<img", "\" onload=\"x", "\u{202e}", "\x1b", "<script"] {
            assert!(!markup.contains(part), "{name}: {part}");
        }
        assert_eq!(page.matches("</script>").count(), 2, "{name}: ours and no other");
        assert_eq!(inflated(&page, "whole"), rows, "{name}");
    }
}

#[test]
fn a_comparison_is_readable_without_scripts() {
    let (page, _) = compared("web");
    for text in [
        "3 of 3 numbers that were compared differ by more than chance",
        "<td class=\"n\">2.00</td><td class=\"n\">3.00</td><td class=\"n\">+50.0 % <small>[+40.0 – +60.0]</small></td>",
        "<td class=\"n\">+1.00 <small>±0.100</small></td>",
        "web ‹ web ‹ 1 more",
        "<td class=\"n\">0.0020</td>",
        "<td class=\"n none\">–</td>",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.split_once("<script").unwrap().0.contains("<!--{"), "every place is filled");
}
