//! `--time`: a span of a recording. It is cut between drains: whatever was read between two of them belongs to one side.

use crate::{drain::Drain, machine::duration_ns, view::text::duration};

use super::super::parse;

/// Seconds of a recording, as they were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) struct Span {
    from_ns: u64,
    to_ns: Option<u64>,
}

impl Span {
    /// `10s..20s`, `10..`, `..500ms`: a number has seconds if it has no unit.
    pub(in crate::command) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a span of time; write it as 10s..20s, 10s.. or ..500ms");
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let time = |text: &str| match text.trim() {
            "" => Ok(None),
            zero if zero.trim_end_matches(|unit: char| unit.is_ascii_alphabetic()).parse() == Ok(0.0) => {
                Ok(Some(0))
            }
            text => parse::duration(text).map(|time| Some(duration_ns(time))),
        };
        let (from, to) = (time(from)?, time(to)?);
        match (from, to) {
            (None, None) => Err(wrong()),
            (from, Some(to)) if to <= from.unwrap_or(0) => Err(format!("`{text}` ends before it begins")),
            (from, to) => Ok(Self { from_ns: from.unwrap_or(0), to_ns: to }),
        }
    }
}

/// Where a drain lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Before the span: what it read is where the span's counts begin.
    Before,
    /// What was read since the drain before it is the span's.
    Within,
    /// After the span.
    After,
}

/// A span while drains come, and what it really is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    span: Span,
    /// When the drain before was read.
    last_ns: u64,
    really: Option<(u64, u64)>,
    /// Has a drain been seen? The first one of tasks and I/O says what there was before: with it counts begin.
    is_begun: bool,
    /// Has something been counted before the span?
    cuts_front: bool,
    is_over: bool,
}

impl Cut {
    pub(super) const fn new(span: Span) -> Self {
        Self { span, last_ns: 0, really: None, is_begun: false, cuts_front: false, is_over: false }
    }

    /// Where a drain lies: where the middle of the time is that it ends. So two spans that touch have no drain in common, and none lies
    /// between them. What is known only of a whole run is taken from a drain of a part.
    pub(super) fn place(&mut self, drain: &mut Drain) -> Place {
        let (from_ns, at_ns) = (self.last_ns, drain.at_ns().max(self.last_ns));
        self.last_ns = at_ns;
        let counts = std::mem::replace(&mut self.is_begun, true) || drain.counts.is_some();
        let middle_ns = from_ns + (at_ns - from_ns) / 2;
        self.is_over |= self.span.to_ns.is_some_and(|to_ns| middle_ns >= to_ns);
        if self.is_over {
            return Place::After;
        }
        if middle_ns < self.span.from_ns {
            self.cuts_front |= counts;
            return Place::Before;
        }
        if counts {
            let begin_ns = self.really.map_or(from_ns, |(begin_ns, _)| begin_ns);
            self.really = Some((begin_ns, at_ns));
        }
        if let Some(tasks) = drain.tasks.as_mut().filter(|_| self.cuts_front) {
            tasks.times.clear();
            tasks.throttling.clear();
            tasks.limits.clear();
        }
        Place::Within
    }

    /// Has the recording gone on after the span?
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// From when to when it really is, in ns since counting started.
    pub(super) const fn really(&self) -> Option<(u64, u64)> {
        self.really
    }

    /// Why there is nothing in the span.
    pub(super) fn nothing(&self) -> String {
        let length = duration(self.last_ns as f64);
        format!(
            "--time leaves nothing: no drain of the recording lies there; it is {length} long, and what was read between two drains \
             is not taken apart"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Cut, Place, Span};
    use crate::drain::{Drain, TasksDrain};

    fn drain(at_ms: u64) -> Drain {
        TasksDrain { at_ns: at_ms * 1_000_000, ..TasksDrain::default() }.into()
    }

    #[test]
    fn a_span_is_in_seconds_unless_it_has_a_unit_and_either_end_may_be_left_out() {
        let span = |from_ns, to_ns| Ok(Span { from_ns, to_ns });
        assert_eq!(Span::parse("10s..20s"), span(10_000_000_000, Some(20_000_000_000)));
        assert_eq!(Span::parse("1.5.."), span(1_500_000_000, None));
        assert_eq!(Span::parse("..250ms"), span(0, Some(250_000_000)));
        assert_eq!(Span::parse("0..2"), span(0, Some(2_000_000_000)));
        assert_eq!(Span::parse("0s..0.5ms"), span(0, Some(500_000)));
        for wrong in ["..", "5", "5..5", "6s..5s", "0..0", "a..b", "-1..2", "1..2..3", "1..2 parsecs"] {
            assert!(Span::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans_that_touch_share_no_drain_and_leave_none_out() {
        for cut_ms in [0, 1, 450, 500, 1049, 1050, 1999, 5000] {
            let text = |ms: u64| format!("{ms}ms");
            let mut first =
                (cut_ms > 0).then(|| Cut::new(Span::parse(&format!("..{}", text(cut_ms))).unwrap()));
            let mut second = Cut::new(Span::parse(&format!("{}..", text(cut_ms))).unwrap());
            for at_ms in [0, 500, 1000, 1100, 2000] {
                let in_first =
                    first.as_mut().is_some_and(|cut| cut.place(&mut drain(at_ms)) == Place::Within);
                let in_second = second.place(&mut drain(at_ms)) == Place::Within;
                assert!(in_first != in_second, "{at_ms} of {cut_ms}");
            }
        }
    }

    #[test]
    fn it_says_from_which_drain_to_which_it_is() {
        let mut cut = Cut::new(Span::parse("600ms..1.2s").unwrap());
        let places = [0, 500, 1000, 1500, 2000].map(|at_ms| cut.place(&mut drain(at_ms)));
        use Place::{After, Before, Within};
        assert_eq!(places, [Before, Before, Within, After, After]);
        assert_eq!(cut.really(), Some((500_000_000, 1_000_000_000)));
        assert!(cut.is_over());
    }
}
