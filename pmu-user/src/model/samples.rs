//! Samples that stand for different numbers of counts. Samples from a time when an event shared its counter
//! weigh more.

use foldhash::{HashMap, HashMapExt as _};

use crate::{drain::reading::SamplingReading, machine::cpu::Cpu};

/// Number of samples, and their weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WeightedSamples {
    /// Number of samples that came.
    pub samples: u64,
    /// Estimated samples if the event had had a counter all the time.
    pub weighted: f64,
    /// Sum of the samples' squared weights, from which the random error follows.
    pub squares: f64,
}

impl WeightedSamples {
    /// Returns this many samples of one weight.
    pub fn new(samples: u64, weight: f64) -> Self {
        let count = samples as f64;
        Self { samples, weighted: count * weight, squares: count * weight * weight }
    }

    /// Adds other samples.
    pub fn merge(&mut self, other: &Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weighted += other.weighted;
        self.squares += other.squares;
    }
}

/// Counts of an event's counter on one CPU between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Occurrences since the counter was opened, at the first of the two.
    pub began: u64,
    /// Occurrences while the counter ran, whatever caused them.
    pub value: u64,
    /// Time for which the event was enabled, in ns.
    pub enabled_ns: u64,
    /// Time for which the event was running on a counter, in ns.
    pub running_ns: u64,
}

impl Ran {
    /// Adds the same CPU in the interval that follows. `began` has no meaning for several CPUs.
    pub const fn merge(&mut self, other: &Self) {
        if self.enabled_ns == 0 && self.value == 0 {
            self.began = other.began;
        }
        self.value = self.value.saturating_add(other.value);
        self.enabled_ns = self.enabled_ns.saturating_add(other.enabled_ns);
        self.running_ns = self.running_ns.saturating_add(other.running_ns);
    }

    /// Returns the number of overflows at this period. The first period began when the counter was opened.
    pub fn overflows(&self, period: u64) -> u64 {
        let ended = self.began.saturating_add(self.value).checked_div(period).unwrap_or(0);
        ended.saturating_sub(self.began.checked_div(period).unwrap_or(0))
    }

    const fn since(now: &SamplingReading, before: &SamplingReading) -> Self {
        Self {
            began: before.value,
            value: now.value.wrapping_sub(before.value),
            enabled_ns: now.enabled_ns.saturating_sub(before.enabled_ns),
            running_ns: now.running_ns.saturating_sub(before.running_ns),
        }
    }
}

/// Current weight of a sample of each event, by CPU.
#[derive(Debug, Default)]
pub(super) struct Weights {
    before: HashMap<(u32, Cpu), SamplingReading>,
    /// Enabled time in which the event never ran: the next samples stand for it, too.
    waiting_ns: HashMap<(u32, Cpu), u64>,
    weights: HashMap<(u32, Cpu), f64>,
    /// Weights over all CPUs together, for samples without a known CPU.
    overall: HashMap<u32, f64>,
}

impl Weights {
    /// Takes the readings of a drain. Returns the counts of each counter since the previous drain, which are
    /// zero in the first.
    pub(super) fn advance(&mut self, readings: &[SamplingReading]) -> Vec<(u32, Cpu, Ran)> {
        let mut did = Vec::with_capacity(readings.len());
        let mut overall: HashMap<u32, (u64, u64)> = HashMap::new();
        for reading in readings {
            let key = (reading.event, reading.cpu);
            let opened = SamplingReading { value: 0, enabled_ns: 0, running_ns: 0, ..*reading };
            let before = self.before.insert(key, *reading);
            let ran = Ran::since(reading, &before.unwrap_or(opened));
            let waiting_ns = self.waiting_ns.entry(key).or_default();
            *waiting_ns = waiting_ns.saturating_add(ran.enabled_ns);
            let sum = overall.entry(reading.event).or_default();
            sum.1 = sum.1.saturating_add(ran.running_ns);
            if ran.running_ns > 0 {
                self.weights.insert(key, (*waiting_ns as f64 / ran.running_ns as f64).max(1.0));
                sum.0 = sum.0.saturating_add(std::mem::take(waiting_ns));
            }
            did.push((
                reading.event,
                reading.cpu,
                before.map_or(Ran { began: reading.value, ..Ran::default() }, |_| ran),
            ));
        }
        for (event, (enabled_ns, running_ns)) in overall {
            if running_ns > 0 {
                self.overall.insert(event, (enabled_ns as f64 / running_ns as f64).max(1.0));
            }
        }
        did
    }

    /// Returns the weight of a sample of the event on that CPU; 1 if no counter was read, since a clock runs
    /// all the time.
    pub(super) fn of(&self, event: u32, cpu: Option<Cpu>) -> f64 {
        let weight = match cpu {
            Some(cpu) => self.weights.get(&(event, cpu)),
            None => self.overall.get(&event),
        };
        weight.copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ran, WeightedSamples, Weights};
    use crate::{drain::reading::SamplingReading, machine::cpu::Cpu};

    fn reading(cpu: u32, value: u64, enabled_ns: u64, running_ns: u64) -> SamplingReading {
        SamplingReading { event: 0, cpu: Cpu(cpu), value, enabled_ns, running_ns }
    }

    #[test]
    fn a_sample_weighs_what_its_event_missed_on_its_cpu() {
        let mut weights = Weights::default();
        weights.advance(&[reading(0, 0, 0, 0), reading(1, 0, 0, 0)]);
        let did = weights.advance(&[reading(0, 70, 400, 100), reading(1, 90, 400, 400)]);
        assert_eq!(did[0].2, Ran { began: 0, value: 70, enabled_ns: 400, running_ns: 100 });
        assert_eq!((weights.of(0, Some(Cpu(0))), weights.of(0, Some(Cpu(1)))), (4.0, 1.0));
        assert_eq!(weights.of(0, None), 1.6);
        assert_eq!(weights.of(7, Some(Cpu(0))), 1.0);
    }

    #[test]
    fn time_in_which_it_never_ran_weighs_on_the_samples_that_follow() {
        let mut weights = Weights::default();
        weights.advance(&[reading(0, 0, 0, 0)]);
        weights.advance(&[reading(0, 0, 300, 0)]);
        weights.advance(&[reading(0, 5, 400, 100)]);
        assert_eq!(weights.of(0, Some(Cpu(0))), 4.0);
        weights.advance(&[reading(0, 9, 500, 200)]);
        assert_eq!(weights.of(0, Some(Cpu(0))), 1.0);
    }

    #[test]
    fn a_counter_overflows_where_its_periods_end_however_it_is_read() {
        let mut weights = Weights::default();
        let mut all = Ran::default();
        for value in [13, 19, 20, 47] {
            all.merge(&weights.advance(&[reading(0, value, 10 * value, 10 * value)])[0].2);
        }
        // Overflows at 20, 30 and 40. The one at 10 was before the first reading.
        assert_eq!((all.began, all.value, all.overflows(10)), (13, 34, 3));
        assert_eq!((all.overflows(0), Ran { began: u64::MAX, ..all }.overflows(1)), (0, 0));
    }

    #[test]
    fn tallies_of_different_weights_add_up() {
        let mut tally = WeightedSamples::new(10, 1.0);
        tally.merge(&WeightedSamples::new(5, 4.0));
        assert_eq!(tally, WeightedSamples { samples: 15, weighted: 30.0, squares: 90.0 });
    }
}
