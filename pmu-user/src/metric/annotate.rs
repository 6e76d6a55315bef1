//! Samples of single functions by source line and by instruction, each with its share of the function's
//! samples of every event.

use std::collections::BTreeMap;

use super::{
    filter::{Pattern, Unmet},
    hot::{Placed, of_event, share},
    value::Known,
};
use crate::{
    drain::Owner,
    model::{HotKey, Interval, Ledger, WeightedSamples, is_kernel},
    suggest::{did_you_mean, glob, nearest},
    untrusted::Untrusted,
};

/// Maximum number of functions of one name in the report, those with most samples.
const FUNCTIONS_MAX: usize = 8;
/// Number of functions that an error lists where no name is near.
const NAMES_LISTED: usize = 5;

/// Function that samples hit.
#[derive(Clone, Debug)]
pub struct Annotated {
    /// Name of the function.
    pub name: Untrusted,
    /// File that contains it; `None` for the kernel.
    pub module: Option<Untrusted>,
    /// Build id of that file.
    pub build_id: Option<String>,
    /// Whether it is a kernel function.
    pub kernel: bool,
    /// Samples by event, with their share of the event's samples that hit the target.
    pub events: Vec<EventShare>,
    /// Source lines, most samples of the first event first.
    pub lines: Vec<AnnotatedLine>,
    /// Instructions in the order of their offsets: those that samples hit, or all if the file was available.
    pub instructions: Vec<Instruction>,
    /// Reason for listing only instructions that samples hit, if so.
    pub no_code: Option<String>,
}

/// Source line of a function, or of one that is inlined in it.
#[derive(Clone, Debug)]
pub struct AnnotatedLine {
    /// Source line and its function.
    pub place: Placed,
    /// Samples by event.
    pub events: Vec<EventShare>,
}

/// Samples of one event in a part of a function.
#[derive(Clone, Copy, Debug)]
pub struct EventShare {
    /// Number of samples.
    pub samples: u64,
    /// Share of the function's samples (0 to 1).
    pub share: Known,
}

/// Instruction of a function.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Offset in the file, or an address in the kernel.
    pub offset: u64,
    /// Text of the instruction, if known.
    pub text: Option<Untrusted>,
    /// Source line of the instruction, if samples hit it and the line is known.
    pub place: Option<Placed>,
    /// Samples by event; empty if no sample hit it.
    pub events: Vec<EventShare>,
}

/// Key that two samples of one function share: name, module, build id, whether it is the kernel's.
type Key = (Untrusted, Option<Untrusted>, Option<String>, bool);

/// Samples of a function while they are added up, by event.
#[derive(Default)]
struct Sum {
    all: Vec<WeightedSamples>,
    lines: BTreeMap<Placed, Vec<WeightedSamples>>,
    offsets: BTreeMap<u64, (Option<Placed>, Vec<WeightedSamples>)>,
}

/// Returns the functions of this name, or that match it with `*` and `?`, most samples first. If `owners` is
/// not empty, only their samples count. Where a function of the name is inlined, its samples there are
/// included.
///
/// # Errors
///
/// If no sample hit such a function; the error lists the nearest names.
pub fn annotate(
    ledger: &Ledger,
    interval: &Interval,
    wanted: &str,
    owners: &[Pattern],
) -> Result<Vec<Annotated>, Unmet> {
    let of_owners = |owner: &Owner| owners.is_empty() || owners.iter().any(|pattern| pattern.matches(owner));
    let mut hot: Vec<(&HotKey, &WeightedSamples)> =
        interval.hot.iter().filter(|(key, _)| of_owners(ledger.owner(key.owner))).collect();
    // In order, because sums of weights depend on it in their last digits.
    hot.sort_unstable_by_key(|(key, _)| (key.at, key.owner, key.event));
    let mut totals: Vec<WeightedSamples> = Vec::new();
    let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
    let mut others: BTreeMap<&Untrusted, u64> = BTreeMap::new();
    for (key, tally) in hot {
        of_event(&mut totals, key.event).merge(tally);
        let named = ledger.code(key.at);
        let Ok(code) = named.code else { continue };
        let Some((name, _)) = code.parts().find(|(name, _)| is_called(name, wanted)) else {
            let samples = others.entry(&code.function).or_default();
            *samples = samples.saturating_add(tally.samples);
            continue;
        };
        let function =
            (name.clone(), named.path.cloned(), named.build_id.map(str::to_owned), is_kernel(key.at));
        let sum = sums.entry(function).or_default();
        of_event(&mut sum.all, key.event).merge(tally);
        let place = Placed::of(code);
        if let Some(place) = &place {
            of_event(sum.lines.entry(place.clone()).or_default(), key.event).merge(tally);
        }
        let (_, at) = sum.offsets.entry(key.at.address()).or_insert_with(|| (place, Vec::new()));
        of_event(at, key.event).merge(tally);
    }
    if sums.is_empty() {
        return Err(none(wanted, &others));
    }
    let mut functions: Vec<Annotated> =
        sums.into_iter().map(|(key, sum)| function(key, sum, &totals)).collect();
    functions.sort_by(|one, other| by_weight(&other.events, &one.events));
    functions.truncate(FUNCTIONS_MAX);
    Ok(functions)
}

/// Returns whether a function has this name, with or without its parameters.
fn is_called(function: &Untrusted, wanted: &str) -> bool {
    let name = function.as_bytes();
    let plain =
        name.iter().position(|&byte| byte == b'(').filter(|&at| at > 0).map_or(name, |at| &name[..at]);
    glob(wanted.as_bytes(), name) || glob(wanted.as_bytes(), plain)
}

fn none(wanted: &str, others: &BTreeMap<&Untrusted, u64>) -> Unmet {
    let names = || others.keys().map(|name| name.terminal().into_owned());
    let near = nearest(wanted, names(), |name| name);
    let mut hottest: Vec<(u64, String)> = others.values().copied().zip(names()).collect();
    hottest.sort_by(|one, other| other.cmp(one));
    let hottest: Vec<String> = hottest.into_iter().take(NAMES_LISTED).map(|(_, name)| name).collect();
    let listed = match (near.as_slice(), hottest.as_slice()) {
        ([], []) => ": no sample hit a function with a name".to_owned(),
        ([], hottest) => format!("; the hottest are {}", hottest.join(", ")),
        (near, _) => did_you_mean(near),
    };
    Unmet(format!("no sample hit a function called {wanted}{listed}"))
}

fn by_weight(one: &[EventShare], other: &[EventShare]) -> std::cmp::Ordering {
    let weight = |events: &[EventShare]| events.first().map_or(0.0, |event| event.share.estimate);
    weight(one).total_cmp(&weight(other))
}

/// Returns the shares of `parts` in `all`, by event.
fn shares(parts: &[WeightedSamples], all: &[WeightedSamples]) -> Vec<EventShare> {
    let of = |event: usize| parts.get(event).copied().unwrap_or_default();
    let share = |(event, all)| EventShare { samples: of(event).samples, share: share(&of(event), all) };
    all.iter().enumerate().map(share).collect()
}

fn function((name, module, build_id, kernel): Key, sum: Sum, totals: &[WeightedSamples]) -> Annotated {
    let mut all = sum.all;
    all.resize(totals.len(), WeightedSamples::default());
    let line = |(place, parts): (Placed, Vec<WeightedSamples>)| AnnotatedLine {
        place,
        events: shares(&parts, &all),
    };
    let mut lines: Vec<AnnotatedLine> = sum.lines.into_iter().map(line).collect();
    lines.sort_by(|one, other| by_weight(&other.events, &one.events));
    let instruction = |(offset, (place, parts)): (u64, (Option<Placed>, Vec<WeightedSamples>))| Instruction {
        offset,
        text: None,
        place,
        events: shares(&parts, &all),
    };
    Annotated {
        instructions: sum.offsets.into_iter().map(instruction).collect(),
        events: shares(&all, totals),
        lines,
        name,
        module,
        build_id,
        kernel,
        no_code: None,
    }
}

impl Annotated {
    /// Adds the function's instructions at these offsets of its file to those that samples hit.
    pub fn add_code(&mut self, code: impl IntoIterator<Item = (u64, Untrusted)>) {
        let mut all: BTreeMap<u64, Instruction> =
            std::mem::take(&mut self.instructions).into_iter().map(|one| (one.offset, one)).collect();
        for (offset, text) in code {
            let without = || Instruction { offset, text: None, place: None, events: Vec::new() };
            all.entry(offset).or_insert_with(without).text = Some(text);
        }
        self.instructions = all.into_values().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::{Annotated, AnnotatedLine, annotate, is_called};
    use crate::{
        drain::{At, Code, CodeRow, Line, Located, Name, Names, SlotId, SourceRow},
        model::Ledger,
        untrusted::Untrusted,
    };

    const SOURCE: u32 = 1;

    fn line(number: u32) -> Line {
        Line { file: "serve.c".into(), line: number }
    }

    /// Annotates samples of `serve` at two offsets of one line and one of another, and of `idle` at one. The
    /// second event hit one of them.
    fn hit(wanted: &str) -> Result<Vec<Annotated>, String> {
        let row = |offset, count, event| CodeRow {
            slot: SlotId::default(),
            at: At { source: SOURCE, offset },
            count,
            event,
            cpu: None,
        };
        let name = |offset, function: &str, number| {
            let code = Code { function: function.into(), line: Some(line(number)), ..Code::default() };
            Name::new(At { source: SOURCE, offset }, Ok(code))
        };
        let source = SourceRow {
            source: SOURCE,
            build_id: Some("ab".to_owned()),
            unnamed: String::new(),
            ..SourceRow::default()
        };
        let located = Located {
            sources: vec![source],
            code: vec![row(16, 60, 0), row(20, 20, 0), row(24, 20, 0), row(20, 7, 1), row(99, 100, 0)],
            ..Located::default()
        };
        let names =
            vec![name(16, "serve", 3), name(20, "serve", 4), name(24, "serve", 3), name(99, "idle", 1)];
        let mut ledger = Ledger::new();
        let interval = ledger.name(&Names { names, located, ..Names::default() });
        annotate(&ledger, &interval, wanted, &[]).map_err(|unmet| unmet.to_string())
    }

    #[test]
    fn lines_and_instructions_have_shares_of_the_function_by_event() {
        let functions = hit("serve").unwrap();
        assert_eq!(functions.len(), 1);
        let serve = &functions[0];
        let percent = |share: f64| (share * 100.0).round() as u64;
        assert_eq!((serve.events[0].samples, percent(serve.events[0].share.estimate)), (100, 50));
        let lines: Vec<_> = serve
            .lines
            .iter()
            .map(|AnnotatedLine { place, events }| {
                (
                    place.line.line,
                    events.iter().map(|event| percent(event.share.estimate)).collect::<Vec<_>>(),
                )
            })
            .collect();
        assert_eq!(lines, [(3, vec![80, 0]), (4, vec![20, 100])]);
        let offsets: Vec<_> =
            serve.instructions.iter().map(|one| (one.offset, one.events[0].samples)).collect();
        assert_eq!(offsets, [(16, 60), (20, 20), (24, 20)]);
    }

    #[test]
    fn code_of_the_file_stands_between_what_was_hit() {
        let mut serve = hit("serve").unwrap().remove(0);
        serve.add_code([(12, "push".into()), (16, "div".into()), (18, "mov".into())]);
        let shown: Vec<_> = serve
            .instructions
            .iter()
            .map(|one| {
                let text = one.text.as_ref().map(Untrusted::as_bytes);
                (one.offset, text, one.events.first().map(|event| event.samples))
            })
            .collect();
        let expected = [
            (12, Some(&b"push"[..]), None),
            (16, Some(b"div"), Some(60)),
            (18, Some(b"mov"), None),
            (20, None, Some(20)),
            (24, None, Some(20)),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_name_without_parameters_is_enough_and_one_that_nobody_has_is_told_with_those_near() {
        assert!(is_called(&"web::serve(int, char)".into(), "web::serve"));
        assert!(is_called(&"web::serve(int)".into(), "*serve*") && !is_called(&"observe".into(), "serve"));
        assert!(is_called(&"(anonymous)".into(), "(anonymous)"));
        let near = hit("serv").unwrap_err();
        assert_eq!(near, "no sample hit a function called serv; did you mean serve?");
        let far = hit("something_else_entirely").unwrap_err();
        assert!(
            far.ends_with("; the hottest are serve, idle") || far.ends_with("; the hottest are idle, serve"),
            "{far}"
        );
    }
}
