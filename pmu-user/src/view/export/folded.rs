//! Folded stacks: `owner;outermost;…;innermost value`, one stack per line, as flamegraph.pl, inferno and
//! others read them.

use std::io::{self, Write};

use super::{Export, Stacks, words};
use crate::{metric::Frame, view::stage::Stage};

/// Suffixes by which viewers colour kernel code and inlined code.
const KERNEL: &str = "_[k]";
const INLINED: &str = "_[i]";

/// Export of the samples of one event, or of time off the CPU in ns.
pub(super) struct Folded {
    /// Index of the event in the plan. The index behind the last one is time off the CPU.
    pub(super) event: usize,
}

impl Export for Folded {
    fn stage(&mut self, into: &mut dyn Write, stage: Stage<'_>) -> io::Result<()> {
        let Stage::Whole { header, report, .. } = stage else { return Ok(()) };
        for (stack, values) in Stacks::some(header, report)?.rows {
            let Some(value) = values.get(self.event).filter(|value| **value > 0) else { continue };
            let mut line = word(&stack.owner.in_words());
            for (frame, is_kernel) in words::outermost_first(stack) {
                line.push(';');
                line.push_str(&word(&words::code(frame)));
                let is_inlined = matches!(frame, Frame::Function { inlined: true, .. });
                line.push_str(if is_kernel {
                    KERNEL
                } else if is_inlined {
                    INLINED
                } else {
                    ""
                });
            }
            writeln!(into, "{line} {value}")?;
        }
        Ok(())
    }
}

/// Returns a name that stands between two semicolons. Readers look for counts at the end of a line, and take
/// two of them for the counts of two profiles. A name must therefore not end as a count does.
fn word(name: &str) -> String {
    let mut word = name.replace(';', ":");
    let last = word.rsplit(' ').next().unwrap_or_default();
    let is_count = !last.is_empty() && last.chars().all(|digit| digit.is_ascii_digit() || digit == '.');
    if is_count && last.len() < word.len() {
        let space = word.len() - last.len() - 1;
        word.replace_range(space..=space, "_");
    }
    word
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn a_name_is_neither_two_frames_nor_a_count() {
        assert_eq!(word("a;b"), "a:b");
        assert_eq!(word("worker 12"), "worker_12");
        assert_eq!(word("worker 1.5"), "worker_1.5");
        assert_eq!(word("12"), "12");
        assert_eq!(word("operator new(unsigned long)"), "operator new(unsigned long)");
        assert_eq!(word("sh (4711)"), "sh (4711)");
    }
}
