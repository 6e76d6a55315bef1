//! `--time`: a span of a recording. It is cut between drains: everything read between two of them belongs to
//! one side.

use crate::{drain::Drain, machine::duration_ns, view::text::duration};

use super::super::parse;

/// Requested span of a recording, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) struct Span {
    from_ns: u64,
    to_ns: Option<u64>,
}

impl Span {
    /// Parses `10s..20s`, `10..`, `..500ms`; a number without a unit is in seconds.
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

/// Place of a drain relative to the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Before the span: its readings are where the span's counts begin.
    Before,
    /// Within the span, with everything read since the drain before it.
    Within,
    /// After the span.
    After,
}

/// Span while drains come, and its actual bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    span: Span,
    /// Time at which the drain before was read.
    last_ns: u64,
    really: Option<(u64, u64)>,
    /// Whether a drain has been seen. The first one of tasks and I/O has what there was before: counts begin
    /// with it.
    is_begun: bool,
    /// Whether something was counted before the span.
    cuts_front: bool,
    is_over: bool,
}

impl Cut {
    pub(super) const fn new(span: Span) -> Self {
        Self { span, last_ns: 0, really: None, is_begun: false, cuts_front: false, is_over: false }
    }

    /// Returns the place of a drain, by the middle of the time that it ends. So two adjacent spans share no
    /// drain, and no drain is lost between them. A drain of a part loses what is known only of a whole run.
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

    /// Returns whether the recording went on after the span.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the actual bounds, in ns since counting started.
    pub(super) const fn really(&self) -> Option<(u64, u64)> {
        self.really
    }

    /// Returns the reason for an empty span.
    pub(super) fn nothing(&self) -> String {
        let length = duration(self.last_ns as f64);
        format!(
            "--time selects nothing: no drain of the recording lies there; it is {length} long, and data between two drains \
             is not split"
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
