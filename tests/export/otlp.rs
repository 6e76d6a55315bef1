//! OTLP profiles, read by their field numbers (opentelemetry-proto 1.10, profiles/v1development).

use std::collections::{BTreeMap, BTreeSet};

use super::{OFF_CPU, STACKS, events, export, name_of, protobuf::Message, reported, rows};

/// Request, and the tables that its profiles share.
struct Request {
    resources: Vec<Message>,
    dictionary: Message,
    texts: Vec<String>,
}

impl Request {
    fn of(name: &str) -> Self {
        let request = Message::read(&export(name, &["otlp"]));
        let dictionary = request.messages(2).remove(0);
        let texts = dictionary.texts(5);
        Self { resources: request.messages(1), dictionary, texts }
    }

    fn text(&self, place: u64) -> &str {
        &self.texts[usize::try_from(place).unwrap()]
    }

    /// Returns type and unit of a value type.
    fn kind(&self, of: &Message) -> (&str, &str) {
        (self.text(of.number(1)), self.text(of.number(2)))
    }
}

/// Returns the attributes that are texts.
fn attributes(resource: &Message) -> BTreeMap<String, String> {
    let pair = |pair: Message| {
        let value = pair.messages(2).remove(0).texts(1).into_iter().next()?;
        Some((pair.texts(1).remove(0), value))
    };
    resource.messages(1).into_iter().filter_map(pair).collect()
}

/// Returns the index of a profile's event.
fn event(request: &Request, profile: &Message, called: &[String]) -> usize {
    let sample = &profile.messages(1)[0];
    let period = profile.messages(5).remove(0);
    assert!(profile.number(6) > 0);
    match (request.kind(sample), request.kind(&period)) {
        ((OFF_CPU, "nanoseconds"), (OFF_CPU, "nanoseconds")) => called.len() - 1,
        (("samples", "count"), ("cpu", "nanoseconds")) => {
            called.iter().position(|name| name.ends_with("clock")).unwrap()
        }
        (("samples", "count"), (name, "count")) => called.iter().position(|event| event == name).unwrap(),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn otlp_has_the_samples_of_the_report_and_every_row_it_refers_to() {
    for name in STACKS {
        let (request, called) = (Request::of(name), events(name));
        let summary = &rows(name, "summary")[0];
        let [mappings, locations, functions, texts, attributes_, stacks] =
            [1, 2, 3, 5, 6, 7].map(|table| match table {
                5 => request.texts.len() as u64,
                _ => request.dictionary.messages(table).len() as u64,
            });
        assert_eq!(request.texts[0], "");
        assert_eq!(request.texts.iter().collect::<BTreeSet<_>>().len(), request.texts.len());
        assert!(request.dictionary.messages(3).iter().all(|function| function.number(1) < texts));
        for location in request.dictionary.messages(2) {
            assert!(location.number(1) < mappings);
            assert!(location.messages(3).iter().all(|line| (1..functions).contains(&line.number(1))));
            assert!(location.numbers(4).iter().all(|at| (1..attributes_).contains(at)));
        }
        for stack in request.dictionary.messages(7) {
            assert!(stack.numbers(1).iter().all(|at| (1..locations).contains(at)));
        }
        let (mut sums, mut ids) = (BTreeMap::new(), BTreeSet::new());
        for of_resource in &request.resources {
            let resource = attributes(&of_resource.messages(1)[0]);
            assert!(!resource["host.name"].is_empty());
            for profile in of_resource.messages(2)[0].messages(2) {
                assert_eq!(profile.number(4), summary["duration_ns"].as_u64().unwrap());
                assert!(profile.number(3) > 1_700_000_000_000_000_000);
                assert!(ids.insert(profile.one(7)), "a profile's id is its own");
                let event = event(&request, &profile, &called);
                for sample in profile.messages(2) {
                    assert!((1..stacks).contains(&sample.number(1)));
                    let values = sample.numbers(4);
                    assert_eq!(values.len(), 1);
                    *sums.entry((event, name_of(&resource["service.name"]))).or_default() += values[0];
                }
            }
        }
        assert_eq!(sums, reported(name), "{name}");
    }
}

#[test]
fn otlp_has_the_frames_of_the_report_in_its_order() {
    let request = Request::of("masked");
    let row = rows("masked", "stack").into_iter().find(|row| row["owner"]["name"] != "other").unwrap();
    let wanted: Vec<&str> =
        row["frames"].as_array().unwrap().iter().filter_map(|frame| frame["function"].as_str()).collect();
    let (locations, functions) = (request.dictionary.messages(2), request.dictionary.messages(3));
    let frames = |stack: &Message| -> Vec<&str> {
        let lines =
            stack.numbers(1).into_iter().flat_map(|at| locations[usize::try_from(at).unwrap()].messages(3));
        lines
            .map(|line| request.text(functions[usize::try_from(line.number(1)).unwrap()].number(1)))
            .collect()
    };
    assert!(request.dictionary.messages(7).iter().any(|stack| frames(stack) == wanted), "{wanted:?}");
    // Each frame type states whether it is the kernel's.
    let kinds: BTreeSet<String> = request
        .dictionary
        .messages(6)
        .iter()
        .flat_map(|of| {
            let is_kind = request.text(of.number(1)) == "profile.frame.type";
            is_kind.then(|| of.messages(2).remove(0).texts(1).remove(0))
        })
        .collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["kernel", "native"]);
}
