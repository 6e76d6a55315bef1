//! Names of code and owners in formats of other tools.

use std::sync::Arc;

use crate::{
    drain::{Header, Line},
    metric::{Frame, HotStack},
    untrusted::Untrusted,
    view::words::started_at,
};

/// File name of the kernel.
pub(super) const KERNEL: &str = "[kernel.kallsyms]";

/// Returns the code of a frame: a function, or its location.
pub(super) fn code(frame: &Frame) -> String {
    match frame {
        Frame::Function { name, .. } => name.terminal().into_owned(),
        Frame::Offset { module, offset, .. } => {
            let file = module.terminal();
            format!("{}+{offset:#x}", file.rsplit('/').next().unwrap_or(&file))
        }
        Frame::Address(address) => format!("{address:#x}"),
        Frame::Rest => "(the rest)".to_owned(),
        Frame::Cut(cut) => cut.in_words(),
    }
}

/// Returns the file that holds a frame's code, or `None` for the kernel's own code and where it is not known.
pub(super) const fn file(frame: &Frame) -> Option<&Untrusted> {
    match frame {
        Frame::Function { module, .. } => module.as_ref(),
        Frame::Offset { module, .. } => Some(module),
        Frame::Address(_) | Frame::Rest | Frame::Cut(_) => None,
    }
}

/// Returns the path of the file that a line is in.
pub(super) fn source(line: Option<&Arc<Line>>) -> Option<String> {
    line.map(|line| line.file.terminal().into_owned())
}

/// Returns the frames of a stack, outermost first, each with whether it is the kernel's.
pub(super) fn outermost_first(stack: &HotStack) -> impl Iterator<Item = (&Frame, bool)> {
    stack.frames.iter().enumerate().rev().map(|(at, frame)| (frame, at < stack.kernel))
}

/// Returns text from a recording in a form that is safe to show.
pub(super) fn text(text: &str) -> String {
    Untrusted::from(text).terminal().into_owned()
}

/// Returns the name and version of the exporter.
pub(super) fn exporter(header: &Header) -> String {
    format!("pmbpf {}", text(&header.version))
}

/// Returns the name of a run: its host and start time.
pub(super) fn run(header: &Header) -> String {
    format!("{} {}", header.machine.host.terminal(), started_at(header.started_unix_ns))
}
