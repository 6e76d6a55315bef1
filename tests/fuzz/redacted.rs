//! Recordings with a secret in each of their strings: `--redact` shows none of them, and the same numbers.

use std::{collections::BTreeSet, fs, io::Read as _, path::Path, process::Command};

use flate2::read::MultiGzDecoder;
use pmbpf::{command::Naming, view::Format};
use serde_json::Value;

use crate::{
    corpus::{FORMATS, Frames, report, report_of},
    schema,
    strings::{places, put},
};

/// Word that no report contains by itself.
const SECRET: &str = "qzSecretWord";

/// Paths of strings that are text but not names: versions, models, tables, events. They are shown unchanged,
/// and so are the kernel's functions.
const PUBLIC: [&str; 35] = [
    ".version",
    ".attach",
    ".machine.kernel",
    ".machine.cpu.model",
    ".machine.pmus[].name",
    ".machine.cgroups.v1[]",
    ".places[].code.Ok.function",
    ".plan.asked[].name",
    ".plan.groups[].events[].name",
    ".plan.groups[].events[].unit",
    ".plan.groups[].events[].instances[].pmu",
    ".parts[].readings[].event",
    ".parts[].uncounted[].pmu",
    ".plan.sampling.event",
    ".plan.sampling[].event",
    ".plan.sampling[].modes",
    ".plan.sampling[].precision.why",
    ".plan.lost[].row",
    ".plan.missing[].row",
    ".plan.profile",
    ".plan.table",
    ".plan.apart[]",
    ".plan.kinds[].name",
    ".plan.kinds[].boxes[].pmu",
    ".plan.kinds[].groups[].sums[][][]",
    ".plan.metrics.formulas",
    ".plan.metrics.source",
    ".plan.turns[].pmu",
    ".platform.devices[].driver",
    ".platform.disks[].model",
    ".platform.boxes[].kind",
    ".programs[].name",
    ".losses[][]",
    ".traffic.losses[][]",
    ".traffic.missed[][]",
];

/// Paths of our sentences. They may quote names that stand elsewhere, and nothing else.
const SENTENCES: [&str; 10] = [
    ".what",
    ".why",
    ".unnamed",
    ".no_metrics",
    ".nobody",
    ".unknown",
    ".missing",
    ".Err",
    ".above",
    ".left_out",
];

fn is_sentence(place: &str) -> bool {
    SENTENCES.iter().any(|end| place.ends_with(end)) && !place.ends_with("platform.devices[].above")
}

/// Returns the recording with a secret wherever a report accepts text, and their number.
fn with_secrets(original: &Frames) -> (Frames, usize) {
    let mut all = BTreeSet::new();
    original.0.iter().for_each(|(_, value)| places(value, "", &mut all));
    let (mut together, mut count) = (original.clone(), 0);
    // A frame of several sources has each of them in a field.
    let of_source = |place: &str| place.strip_prefix(".counts").unwrap_or(place).to_owned();
    for place in all.iter().filter(|place| !PUBLIC.contains(&of_source(place).as_str())) {
        // The secret is also the host's name. A sentence may quote it, and the report must not show it.
        let text = if is_sentence(place) { format!("cannot ask `{SECRET}`: no") } else { SECRET.to_owned() };
        let mut frames = together.clone();
        frames.0.iter_mut().for_each(|(_, value)| put(value, "", place, &text));
        if FORMATS.iter().all(|format| report(frames.bytes(|_, _| {}), *format).1.is_empty()) {
            (together, count) = (frames, count + 1);
        }
    }
    together.0.iter_mut().for_each(|(_, value)| name_functions(value));
    (together, count)
}

/// Puts the secret into the names of functions that are not the kernel's.
fn name_functions(drain: &mut Value) {
    let places = drain.get_mut("places").and_then(Value::as_array_mut).into_iter().flatten();
    for place in places.filter(|place| place["tgid"] != 0) {
        if let Some(function) = place.pointer_mut("/code/Ok/function") {
            *function = format!("{SECRET}::run").into();
        }
    }
}

/// Returns the numbers of a report, without addresses.
fn numbers(json: &[u8]) -> Vec<f64> {
    fn walk(value: &Value, found: &mut Vec<f64>) {
        match value {
            Value::Number(number) => found.extend(number.as_f64()),
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            Value::Object(fields) => {
                let kept = fields.iter().filter(|(key, _)| !["address", "offset"].contains(&key.as_str()));
                kept.for_each(|(_, field)| walk(field, found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    schema::rows(std::str::from_utf8(json).unwrap()).iter().for_each(|row| walk(row, &mut found));
    found.sort_by(f64::total_cmp);
    found
}

#[test]
fn no_name_of_a_recording_is_in_a_redacted_report() {
    let mut accepted = 0;
    for original in Frames::all() {
        let (frames, count) = with_secrets(&original);
        accepted += count;
        for format in FORMATS {
            let (plain, _) = report(frames.bytes(|_, _| {}), format);
            let (redacted, said) = report_of(frames.bytes(|_, _| {}), Naming::Redacted, format);
            assert_eq!(said, "", "a redacted report fails as seldom as another");
            let shows = |bytes: &[u8]| {
                let text = std::str::from_utf8(bytes).unwrap().to_ascii_lowercase();
                let line = text.lines().find(|line| line.contains(&SECRET.to_ascii_lowercase()));
                line.map(str::to_owned)
            };
            assert!(shows(&plain).is_some(), "the secret is in what names show");
            assert_eq!(shows(&redacted), None);
        }
    }
    assert!(accepted > 30, "only {accepted} places take a secret");
}

/// Returns an export without its compression, or its error messages.
fn exported(file: &Path, format: &str, more: &[&str]) -> Result<Vec<u8>, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmbpf"));
    command.arg("export").arg(file).args(["--to", format]).args(more);
    let output = command.output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8(output.stderr).unwrap());
    }
    let mut bytes = output.stdout;
    if format == "pprof" {
        let zipped = std::mem::take(&mut bytes);
        MultiGzDecoder::new(&zipped[..]).read_to_end(&mut bytes).unwrap();
    }
    #[cfg(feature = "parquet")]
    if format == "parquet" {
        // The file's text is compressed, except for the part in the footer.
        bytes.extend(rows_of_parquet(bytes.clone()));
    }
    Ok(bytes)
}

#[cfg(feature = "parquet")]
fn rows_of_parquet(bytes: Vec<u8>) -> Vec<u8> {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    let file = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    file.get_row_iter(None).unwrap().flat_map(|row| format!("{}\n", row.unwrap()).into_bytes()).collect()
}

#[test]
fn no_name_of_a_recording_is_in_a_redacted_export() {
    const FORMATS: [&str; 6] = ["folded", "pprof", "speedscope", "firefox", "perfetto", "parquet"];
    let file = std::env::temp_dir().join(format!("pmbpf-redacted-{}.pmbpf", std::process::id()));
    let shows = |bytes: &[u8]| {
        let text = bytes.escape_ascii().to_string().to_ascii_lowercase();
        let at = text.find(&SECRET.to_ascii_lowercase());
        at.map(|at| text[at..].chars().take(80).collect::<String>())
    };
    let mut seen = BTreeSet::new();
    for original in Frames::all() {
        let (frames, _) = with_secrets(&original);
        fs::write(&file, frames.bytes(|_, _| {})).unwrap();
        for format in FORMATS {
            let (plain, redacted) = (exported(&file, format, &[]), exported(&file, format, &["--redact"]));
            assert_eq!(plain.is_ok(), redacted.is_ok(), "{format}: {plain:?} {redacted:?}");
            let (Ok(plain), Ok(redacted)) = (plain, redacted) else { continue };
            assert_eq!(shows(&redacted), None, "{format}");
            if shows(&plain).is_some() {
                seen.insert(format);
            }
        }
    }
    fs::remove_file(&file).unwrap();
    let has_parquet = cfg!(feature = "parquet");
    assert_eq!(seen.len(), if has_parquet { 6 } else { 5 }, "the secret is in what names show: {seen:?}");
}

#[test]
fn a_redacted_report_has_the_numbers_of_the_plain_one() {
    for original in Frames::all() {
        let [plain, redacted] = [Naming::Plain, Naming::Redacted]
            .map(|naming| numbers(&report_of(original.bytes(|_, _| {}), naming, Format::Json).0));
        assert_eq!(plain.len(), redacted.len());
        // Sums are added in another order.
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * a.abs();
        let differ = plain.iter().zip(&redacted).find(|(a, b)| !close((a, b)));
        assert_eq!(differ, None);
        assert!(plain.len() > 100);
    }
}
