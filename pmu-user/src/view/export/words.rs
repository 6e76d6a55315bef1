//! What code and owners are called in formats of other tools.

use std::sync::Arc;

use crate::{
    drain::{Header, Line},
    metric::{Frame, HotStack},
    untrusted::Untrusted,
    view::words::started_at,
};

/// What the kernel is called as a file.
pub(super) const KERNEL: &str = "[kernel.kallsyms]";

/// Code of a stack: a function, or where it would be.
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

/// File that a frame's code is in; `None` for the kernel's own, and where it is not known.
pub(super) const fn file(frame: &Frame) -> Option<&Untrusted> {
    match frame {
        Frame::Function { module, .. } => module.as_ref(),
        Frame::Offset { module, .. } => Some(module),
        Frame::Address(_) | Frame::Rest | Frame::Cut(_) => None,
    }
}

/// The path of the file that a line is in.
pub(super) fn source(line: Option<&Arc<Line>>) -> Option<String> {
    line.map(|line| line.file.terminal().into_owned())
}

/// Frames of a stack, outermost first, each with whether it is the kernel's.
pub(super) fn outermost_first(stack: &HotStack) -> impl Iterator<Item = (&Frame, bool)> {
    stack.frames.iter().enumerate().rev().map(|(at, frame)| (frame, at < stack.kernel))
}

/// Text that a recording brings, as it may be shown.
pub(super) fn text(text: &str) -> String {
    Untrusted::from(text).terminal().into_owned()
}

/// What made an export.
pub(super) fn exporter(header: &Header) -> String {
    format!("pmbpf {}", text(&header.version))
}

/// A run: its host, and when it started.
pub(super) fn run(header: &Header) -> String {
    format!("{} {}", header.machine.host.terminal(), started_at(header.started_unix_ns))
}
