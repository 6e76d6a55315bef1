//! `--when`: rules that make a dump, as `METRIC[.PART] OP VALUE[UNIT] [for TIME] [of OWNER]`.

use crate::{
    command::parse,
    machine::duration_ns,
    metric::{
        condition::{Condition, Limit, Measure, Side, Whose},
        filter::Pattern,
    },
    table::{metric::Family, unit::Unit},
};

/// Form of a rule, for messages.
const SHAPE: &str = "METRIC>VALUE [for TIME] [of OWNER], e.g. 'runqueue_latency.p99>20ms for 10s'";

/// Operators, the longer ones first.
const OPERATORS: [(&str, Side); 4] =
    [(">=", Side::AtLeast), ("<=", Side::AtMost), (">", Side::Above), ("<", Side::Below)];

/// Sources that are counted, which decide whether rules can be met.
#[derive(Clone, Copy, Debug)]
pub(in crate::command::serve) struct Measured {
    pub(in crate::command::serve) off_cpu: bool,
    pub(in crate::command::serve) interrupts: bool,
    pub(in crate::command::serve) samples: bool,
    pub(in crate::command::serve) io: bool,
    /// Whether there is a flight recorder.
    pub(in crate::command::serve) flight: bool,
}

impl Measured {
    /// Returns why metrics of a family are not counted, if they are not.
    fn lacks(self, family: Family) -> Option<&'static str> {
        match family {
            Family::OffCpu if !self.off_cpu => Some("serve counts that with --off-cpu"),
            Family::Interrupts if !self.interrupts => Some("serve counts that with --interrupts"),
            Family::Samples if !self.samples => Some("leave out --flight-stacks 0"),
            _ if Family::IO.contains(&family) && !self.io => Some("leave out --no-io"),
            _ => None,
        }
    }

    /// Refuses a rule that cannot be met.
    pub(in crate::command::serve) fn expect(self, rule: &Condition) -> Result<(), String> {
        let lacks = self.lacks(rule.measure.family());
        lacks.map_or(Ok(()), |why| Err(format!("--when '{}' can never be met: {why}", rule.text)))
    }
}

/// Parses the text of a rule into its condition.
pub(in crate::command::serve) fn rule(text: &str) -> Result<Condition, String> {
    let wrong = || format!("`{text}` is not a rule: write {SHAPE}");
    let at = text.find(['<', '>']).ok_or_else(wrong)?;
    let (name, rest) = text.split_at(at);
    let operator = OPERATORS.iter().find_map(|(operator, side)| Some((rest.strip_prefix(operator)?, *side)));
    let (rest, side) = operator.ok_or_else(wrong)?;
    let measure = Measure::named(name.trim())?;
    let mut words = rest.split_whitespace().peekable();
    let mut value = String::new();
    while let Some(word) = words.next_if(|word| !matches!(*word, "for" | "of")) {
        value.push_str(word);
    }
    let limit = limit(&value, &measure)?;
    let (mut lasting_ns, mut whose) = (0, Whose::Everybodys);
    while let Some(word) = words.next() {
        match (word, words.next()) {
            ("for", Some(time)) => lasting_ns = duration_ns(parse::duration(time)?),
            ("of", Some("total")) => whose = Whose::Targets,
            ("of", Some(owner)) => whose = Whose::Owners(Pattern::new(owner)),
            _ => return Err(wrong()),
        }
    }
    Ok(Condition { text: text.to_owned(), measure, side, limit, lasting_ns, whose })
}

/// Parses a number with a unit that fits the measure's.
fn limit(text: &str, measure: &Measure) -> Result<Limit, String> {
    let end = text.find(|character: char| !(character.is_ascii_digit() || matches!(character, '.' | '-')));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let number = number
        .parse::<f64>()
        .map_err(|_| format!("`{text}` is not a number to compare {} with: write {SHAPE}", measure.name()))?;
    if unit == "%" && measure.is_time() {
        return Ok(Limit::ShareOfTime(number / 100.0));
    }
    let units = units(measure.unit());
    if let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) {
        return Ok(Limit::Of(number * factor));
    }
    let named = units.iter().map(|(name, _)| *name).filter(|name| !name.is_empty());
    let named: Vec<&str> = named.chain(measure.is_time().then_some("%")).collect();
    let known = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
    Err(format!("`{text}`: the units of {} are {known}", measure.name()))
}

/// Returns the units in which a number of this unit can be written, each with its factor.
fn units(unit: Unit) -> Vec<(&'static str, f64)> {
    match unit {
        Unit::Ns => [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 6e10)].into(),
        Unit::Percent => [("%", 1.0)].into(),
        Unit::Bytes => [("B", 1.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9)].into(),
        Unit::Megabytes => [("MB", 1.0), ("GB", 1e3)].into(),
        Unit::MegabytesPerSecond => [("MB/s", 1.0), ("GB/s", 1e3)].into(),
        Unit::GigabytesPerSecond => [("GB/s", 1.0), ("MB/s", 1e-3)].into(),
        other => [("", 1.0), (other.name(), 1.0)].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::rule;
    use crate::metric::{
        condition::{Limit, Side, Whose},
        filter::Pattern,
    };

    #[test]
    fn a_rule_is_a_metric_a_limit_and_for_how_long_and_of_whom_it_holds() {
        let one = rule("runqueue_latency.p99>20ms for 10s").unwrap();
        assert_eq!((one.measure.name().as_str(), one.side), ("runqueue_latency.p99", Side::Above));
        assert_eq!((one.limit, one.lasting_ns), (Limit::Of(20e6), 10_000_000_000));
        assert_eq!(one.whose, Whose::Everybodys);
        let other = rule(" memory.oom_kills >= 1 of k8s:shop/* for 1m").unwrap();
        assert_eq!((other.side, other.limit), (Side::AtLeast, Limit::Of(1.0)));
        assert_eq!(
            (other.lasting_ns, other.whose),
            (60_000_000_000, Whose::Owners(Pattern::new("k8s:shop/*")))
        );
        assert_eq!(rule("blind_time>5%").unwrap().limit, Limit::ShareOfTime(0.05));
        assert_eq!(rule("pressure.io.full > 20 %").unwrap().limit, Limit::Of(20.0));
        assert_eq!(rule("block.read_bw>1GB/s of total").unwrap().limit, Limit::Of(1000.0));
        assert_eq!(rule("runqueue_latency.count<5").unwrap().limit, Limit::Of(5.0));
        assert_eq!(rule("block.latency.p999>=0.5s").unwrap().measure.name(), "block.latency.p99.9");
    }

    #[test]
    fn what_is_no_rule_is_told_how_to_be_one() {
        for (wrong, says) in [
            ("runqueue_latency.p99", "is not a rule"),
            ("runqueue_latncy.p99>20ms", "did you mean runqueue_latency.p99"),
            ("runqueue_latency>20ms", "say which part of it"),
            ("runqueue_latency.p98>20ms", "there are count, sum, mean, p50"),
            ("cpu_time.p99>20ms", "there is no metric"),
            ("runqueue_latency.p99>20", "the units of runqueue_latency.p99 are ns, us, µs, ms, s, m"),
            ("runqueue_latency.p99>20%", "the units of"),
            ("cpu_time>5kg", "ns, us, µs, ms, s, m, %"),
            ("cpu_time>", "is not a number"),
            ("cpu_time>ms", "is not a number"),
            ("cpu_time>5s for", "is not a rule"),
            ("cpu_time>5s for ever", "is not a duration"),
            ("cpu_time=5s", "is not a rule"),
        ] {
            let error = rule(wrong).unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }
}
