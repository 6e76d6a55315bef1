//! Tables that all profiles of a request share.

use std::sync::Arc;

use super::{
    super::{Instruction, Lined, LinedFrame, once::Once, words},
    message::{Attribute, Dictionary, Function, Line, Link, Location, Mapping, Stack, ValueType},
};
use crate::{
    drain::{self, Cut},
    metric::Frame,
    view::otlp::AnyValue,
};

/// A text or a number of an attribute.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Told {
    Text(String),
    Number(i64),
}

/// Tables under construction. Each begins with an empty row, which means none.
pub(super) struct Tables {
    texts: Once<String, String>,
    mappings: Once<(i32, String), Mapping>,
    functions: Once<(i32, i32), Function>,
    locations: Once<Instruction, Location>,
    attributes: Once<(i32, Told), Attribute>,
    stacks: Once<Vec<i32>, Stack>,
}

/// Returns an index as a place in a table. No table has as many rows as `i32` holds: each row belongs to a
/// stack, and the number of stacks is bounded.
fn place(index: usize) -> i32 {
    i32::try_from(index).unwrap_or(0)
}

impl Tables {
    pub(super) fn new() -> Self {
        let mut tables = Self {
            texts: Once::new(),
            mappings: Once::new(),
            functions: Once::new(),
            locations: Once::new(),
            attributes: Once::new(),
            stacks: Once::new(),
        };
        tables.texts.add(String::new(), String::new());
        tables.mappings.list.push(Mapping::default());
        tables.functions.list.push(Function::default());
        tables.locations.list.push(Location::default());
        tables.attributes.list.push(Attribute::default());
        tables.stacks.add(Vec::new(), Stack::default());
        tables
    }

    /// Returns the dictionary of a request.
    pub(super) fn finish(self) -> Dictionary {
        Dictionary {
            mappings: self.mappings.list,
            locations: self.locations.list,
            functions: self.functions.list,
            links: vec![Link {}],
            texts: self.texts.list,
            attributes: self.attributes.list,
            stacks: self.stacks.list,
        }
    }

    fn text(&mut self, text: &str) -> i32 {
        let text = words::text(text);
        place(self.texts.place(text.clone(), || text))
    }

    pub(super) fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { kind: self.text(kind), unit: self.text(unit) }
    }

    pub(super) fn attribute(&mut self, key: &str, told: Told) -> i32 {
        let key = self.text(key);
        let told = match told {
            Told::Text(text) => Told::Text(words::text(&text)),
            number @ Told::Number(_) => number,
        };
        let value = match told.clone() {
            Told::Text(text) => AnyValue { text: Some(text), number: None },
            Told::Number(number) => AnyValue { text: None, number: Some(number) },
        };
        place(self.attributes.place((key, told), || Attribute { key, value: Some(value) }))
    }

    pub(super) fn stack(&mut self, lined: &Lined<'_>) -> i32 {
        let broken = Frame::Cut(Cut::Broken);
        let mut locations = Vec::new();
        let mut calls = false;
        for (frames, is_kernel) in lined.instructions() {
            // An address outside all known mappings is meaningless to a reader. As a caller it is mostly
            // wrong, and so are the callers behind it.
            if calls && matches!(frames.last(), Some((Frame::Address(_), _))) {
                locations.push(self.location(&[(&broken, None)], is_kernel));
                break;
            }
            calls |= !is_kernel;
            locations.push(self.location(&frames, is_kernel));
        }
        place(self.stacks.place(locations.clone(), || Stack { locations }))
    }

    /// Returns an instruction: a function, preceded by the functions inlined there, innermost first.
    fn location(&mut self, frames: &[LinedFrame<'_>], is_kernel: bool) -> i32 {
        let key = frames.iter().map(|&(frame, line)| (frame.clone(), line.cloned())).collect();
        let key = (is_kernel, key);
        if let Some(found) = self.locations.find(&key) {
            return place(found);
        }
        let Some(&(frame, _)) = frames.last() else { return 0 };
        let mapping = self.mapping(frame, is_kernel);
        // A location with a name has no address: it belongs to the function, wherever samples hit it.
        let (address, is_named) = match frame {
            Frame::Function { .. } | Frame::Rest | Frame::Cut(_) => (0, true),
            Frame::Offset { offset: address, .. } | Frame::Address(address) => (*address, false),
        };
        let lines = frames.iter().filter(|_| is_named);
        let lines = lines.map(|&(frame, line)| Line {
            function: self.function(frame, line),
            line: line.map_or(0, |line| line.line.into()),
        });
        let lines = lines.collect();
        let mode = if is_kernel { "kernel" } else { "native" };
        let mode = self.attribute("profile.frame.type", Told::Text(mode.to_owned()));
        place(self.locations.add(key, Location { mapping, address, lines, attributes: vec![mode] }))
    }

    /// Returns the file that holds a frame's code, or 0 if it is not known. Addresses in it are offsets.
    fn mapping(&mut self, frame: &Frame, is_kernel: bool) -> i32 {
        let filename = self.file(frame, is_kernel);
        if filename == 0 {
            return 0;
        }
        let build_id = match frame {
            Frame::Function { build_id, .. } | Frame::Offset { build_id, .. } => build_id.clone(),
            Frame::Address(_) | Frame::Rest | Frame::Cut(_) => None,
        };
        let key = (filename, build_id.unwrap_or_default());
        if let Some(found) = self.mappings.find(&key) {
            return place(found);
        }
        let is_known = !key.1.is_empty();
        let build_id =
            is_known.then(|| self.attribute("process.executable.build_id.gnu", Told::Text(key.1.clone())));
        place(self.mappings.add(key, Mapping { filename, attributes: build_id.into_iter().collect() }))
    }

    fn file(&mut self, frame: &Frame, is_kernel: bool) -> i32 {
        match words::file(frame) {
            Some(path) => self.text(&path.terminal()),
            None if is_kernel => self.text(words::KERNEL),
            None => 0,
        }
    }

    /// Returns a function in a source file, if that is known. The program that it is part of is in the
    /// mapping.
    fn function(&mut self, frame: &Frame, line: Option<&Arc<drain::Line>>) -> i32 {
        let filename = words::source(line).map_or(0, |file| self.text(&file));
        let name = self.text(&words::code(frame));
        place(self.functions.place((name, filename), || Function { name, system_name: name, filename }))
    }
}

#[cfg(test)]
mod tests {
    use super::Tables;
    use crate::{
        drain::{Cut, Owner},
        metric::{
            Frame, HotStack,
            value::{How, Known},
        },
        view::export::{Lined, words},
    };

    /// Returns the addresses and names of a stack's locations.
    fn locations(frames: Vec<Frame>, kernel: usize) -> Vec<(u64, String)> {
        let share = Known { estimate: 1.0, low: 1.0, high: 1.0, coverage: 1.0, how: How::Counted };
        let (samples, tallies, by_line) = (vec![1], Vec::new(), Vec::new());
        let stack = HotStack { owner: Owner::Other, frames, kernel, samples, tallies, share, by_line };
        let mut tables = Tables::new();
        let at = tables.stack(&Lined { stack: &stack, lines: &[], values: vec![1] });
        let made = tables.finish();
        let of_text = |at: i32| made.texts[at as usize].clone();
        let name = |line: &super::Line| of_text(made.functions[line.function as usize].name);
        let location = |&at: &i32| {
            let location = &made.locations[at as usize];
            (location.address, location.lines.first().map(name).unwrap_or_default())
        };
        made.stacks[at as usize].locations.iter().map(location).collect()
    }

    #[test]
    fn a_stack_ends_at_a_caller_in_no_known_mapping_and_says_so() {
        let broken = (0, words::code(&Frame::Cut(Cut::Broken)));
        let address = |address| (address, String::new());
        let garbage = vec![Frame::Address(0x40_1000), Frame::Address(1), Frame::Address(0x3733_99f0)];
        assert_eq!(locations(garbage.clone(), 0), [address(0x40_1000), broken.clone()]);
        let mut in_kernel = vec![Frame::Address(u64::MAX - 9)];
        in_kernel.extend(garbage);
        let expected = [address(u64::MAX - 9), address(0x40_1000), broken];
        assert_eq!(locations(in_kernel, 1), expected, "behind the kernel's frames the first is where it was");
    }
}
