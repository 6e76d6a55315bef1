//! Numbers as rows: `metric` for a value, `histogram` for a distribution, and the same for programs. Fields
//! that a number lacks are left out.

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::json;

use super::{
    Number as Cell, SCHEMA,
    who::{SubjectCell, owner},
};
use crate::{
    metric::{
        io::Label,
        number::{Attribution, Content, Number},
        stat,
        topdown::Shape,
        value::{Distribution, How, Known, Value},
    },
    model::histogram::Histogram,
};

/// Kinds of the rows of numbers: of a value, and of a distribution.
pub(super) type Kinds = (&'static str, &'static str);

/// Kinds for an owner, the target or the host.
pub(super) const OF_OWNERS: Kinds = ("metric", "histogram");
/// Kinds for the processes of one program combined. Each process has a separate row as well.
pub(super) const OF_PROGRAMS: Kinds = ("program_metric", "program_histogram");

/// Writes the numbers of an interval that begins `from_ns` after counting starts and is `length_ns` long.
pub(super) fn numbers<'a>(
    into: &mut dyn Write,
    (value, distribution): Kinds,
    (from_ns, length_ns): (u64, u64),
    numbers: impl Iterator<Item = Number<'a>>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    // A dozen consecutive rows have the same owner.
    let mut last: Option<(Attribution<'a>, Vec<u8>)> = None;
    for number in numbers {
        let owner = match last.take().filter(|(whose, _)| is_same(*whose, number.whose)) {
            Some((_, owner)) => owner,
            None => serde_json::to_vec(&owner(number.whose))?,
        };
        bytes.clear();
        let mut row = Fields::new(&mut bytes);
        row.word("schema", SCHEMA);
        row.word("kind", if matches!(number.content, Content::Value(_)) { value } else { distribution });
        row.value("t", &from_ns)?;
        row.value("dt", &length_ns)?;
        row.raw("owner", &owner);
        fields(row, &number)?;
        bytes.push(b'\n');
        into.write_all(&bytes)?;
        last = Some((number.whose, owner));
    }
    Ok(())
}

fn is_same(left: Attribution<'_>, right: Attribution<'_>) -> bool {
    match (left, right) {
        (Attribution::Host, Attribution::Host) | (Attribution::Target, Attribution::Target) => true,
        (Attribution::Owner(left), Attribution::Owner(right)) => std::ptr::eq(left, right),
        _ => false,
    }
}

/// Writes the fields of a row that follow its owner.
fn fields(mut row: Fields<'_>, number: &Number<'_>) -> io::Result<()> {
    row.if_any("subject", number.subject.map(SubjectCell))?;
    let place = number.details.place.map(|place| json!({"kind": place.kind(), "name": place.to_string()}));
    row.if_any("place", place)?;
    row.value("metric", &number.metric)?;
    row.if_any("parent", number.parent.as_ref())?;
    row.value("unit", number.unit)?;
    match &number.content {
        Content::Value(value) => known(&mut row, value)?,
        Content::Distribution(found) => distribution(&mut row, found.ok())?,
    }
    row.word("status", number.status());
    row.if_any("reason", number.reason())?;
    let details = &number.details;
    label(&mut row, details.label)?;
    row.if_any("note", details.note)?;
    row.if_any("samples", details.samples)?;
    row.if_any("pmu", details.pmu)?;
    if let Some((shape, flagged)) = details.node {
        node(&mut row, shape, flagged)?;
    }
    if let Some(of) = details.counters {
        counters(&mut row, of)?;
    }
    row.end();
    Ok(())
}

fn known(row: &mut Fields<'_>, value: &Value) -> io::Result<()> {
    let known = value.known();
    row.value("value", &known.map(|known| Cell(known.estimate)))?;
    let Some(known) = known else { return Ok(()) };
    row.value("low", &Cell(known.low))?;
    row.value("high", &Cell(known.high))?;
    row.value("coverage", &known.coverage)?;
    row.word("how", known.how.name());
    Ok(())
}

fn distribution(row: &mut Fields<'_>, found: Option<&Distribution>) -> io::Result<()> {
    row.value("count", &found.map(Distribution::count))?;
    let Some(found) = found else { return Ok(()) };
    row.value("sum", &found.sum)?;
    row.value("quantiles", &Quantiles(found))?;
    row.value("buckets", &Buckets(&found.histogram))?;
    row.value("coverage", &found.coverage)?;
    row.word("how", How::Counted.name());
    Ok(())
}

fn label(row: &mut Fields<'_>, label: Option<Label>) -> io::Result<()> {
    let Some(label) = label else { return Ok(()) };
    row.word("label", label.name());
    if let Label::Apportioned { share, coverage } = label {
        row.value("share", &share)?;
        row.value("told_apart", &coverage)?;
    }
    Ok(())
}

fn node(row: &mut Fields<'_>, shape: &Shape, flagged: Option<bool>) -> io::Result<()> {
    row.value("level", &shape.level)?;
    row.value("domain", &shape.domain)?;
    row.if_any("threshold", shape.threshold.as_ref())?;
    row.if_any("flagged", flagged)
}

fn counters(row: &mut Fields<'_>, of: &stat::Row) -> io::Result<()> {
    row.if_any("pmu", Some(&of.pmu).filter(|pmu| !pmu.is_empty()))?;
    row.value("enabled_ns", &of.enabled_ns)?;
    row.value("running_ns", &of.running_ns)?;
    let runs = (of.of_runs.len() > 1).then(|| {
        of.of_runs.iter().map(|run| run.known().map(|known| Cell(known.estimate))).collect::<Vec<_>>()
    });
    row.if_any("of_runs", runs)?;
    row.if_any("uncounted", Some(&of.uncounted).filter(|places| !places.is_empty()))
}

/// Percentiles by name, and the maximum.
struct Quantiles<'a>(&'a Distribution);

impl Serialize for Quantiles<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.quantiles().map(|(name, known)| (name, Bounds::from(&known))))
    }
}

#[derive(Serialize)]
struct Bounds {
    value: Cell,
    low: Cell,
    high: Cell,
}

impl From<&Known> for Bounds {
    fn from(known: &Known) -> Self {
        Self { value: Cell(known.estimate), low: Cell(known.low), high: Cell(known.high) }
    }
}

/// Bounds in ns and count of each bucket. The last bucket has no upper bound.
struct Buckets<'a>(&'a Histogram);

impl Serialize for Buckets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let upper = |high: u64| (high != u64::MAX).then_some(high);
        serializer.collect_seq(self.0.iter().map(|(bucket, count)| (bucket.low, upper(bucket.high), count)))
    }
}

/// Object that is written field by field. Large machines produce thousands of rows a second. A serializer
/// would search every name and every constant word for characters to escape.
struct Fields<'a> {
    into: &'a mut Vec<u8>,
    /// Byte before the next field.
    before: u8,
}

impl<'a> Fields<'a> {
    const fn new(into: &'a mut Vec<u8>) -> Self {
        Self { into, before: b'{' }
    }

    fn name(&mut self, name: &'static str) {
        self.into.push(std::mem::replace(&mut self.before, b','));
        self.into.push(b'"');
        self.into.extend_from_slice(name.as_bytes());
        self.into.extend_from_slice(b"\":");
    }

    /// Writes a field of any value.
    fn value(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
        self.name(name);
        Ok(serde_json::to_writer(&mut *self.into, value)?)
    }

    /// Writes a field that is left out if it has no value.
    fn if_any(&mut self, name: &'static str, value: Option<impl Serialize>) -> io::Result<()> {
        value.map_or(Ok(()), |value| self.value(name, &value))
    }

    /// Writes a word that needs no escaping.
    fn word(&mut self, name: &'static str, word: &'static str) {
        self.name(name);
        self.into.push(b'"');
        self.into.extend_from_slice(word.as_bytes());
        self.into.push(b'"');
    }

    /// Writes a field that is JSON already.
    fn raw(&mut self, name: &'static str, json: &[u8]) {
        self.name(name);
        self.into.extend_from_slice(json);
    }

    /// Ends the object, which has at least one field.
    fn end(self) {
        self.into.push(b'}');
    }
}
