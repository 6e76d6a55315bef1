//! Assignment of ports to the parts of a stack that count them, from traffic alone: a port and a part belong
//! together if their traffic correlates.
//!
//! The module is pure. The bytes of a port are those of its disks and interfaces, which the kernel counts.
//! The bytes of a part are the hardware's. A table of assignments can be wrong, traffic cannot. Two ports may
//! be busy in step: then nothing is inferred.

use std::collections::BTreeMap;

/// Least number of intervals.
pub const INTERVALS_MIN: u64 = 20;
/// Least correlation of an assignment.
pub const CORRELATION_MIN: f64 = 0.95;
/// Least share of a port's bytes that its part must have counted. Hardware counts all of them, and more
/// (descriptors, headers), but not quite in the same intervals.
const SHARE_MIN: f64 = 0.8;
/// Bytes of the largest unit of stack counters.
const UNIT_MAX: f64 = 64.0;
/// Quantile of the normal distribution that leaves 2.5 % on each side.
const Z: f64 = 1.96;

/// Comparison of the traffic of ports and the counts of parts. It stores sums, not intervals: it is as large
/// after a day as after a minute.
#[derive(Clone, Debug)]
pub struct Comparison<Q, P> {
    ports: BTreeMap<Q, OfPort<P>>,
}

impl<Q, P> Default for Comparison<Q, P> {
    fn default() -> Self {
        Self { ports: BTreeMap::new() }
    }
}

/// Unit of the counts of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartNumbers {
    /// Counts are bytes.
    Bytes,
    /// Counts are units of up to 64 bytes, the exact size of which is unknown.
    Units,
}

impl PartNumbers {
    /// Returns the share of a port's bytes below which a part's count is too small.
    const fn share_min(self) -> f64 {
        match self {
            Self::Bytes => SHARE_MIN,
            // The rest distinguishes the traffic from the messages that accompany it.
            Self::Units => SHARE_MIN / UNIT_MAX,
        }
    }
}

/// Result for a port, from traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict<P> {
    /// The port is counted by this part.
    Inferred {
        /// Part that counts the port.
        part: P,
        /// Correlation, [`CORRELATION_MIN`] to 1.
        r: f64,
    },
    /// Nothing can be inferred, for this reason.
    Unknown(String),
}

impl<Q: Clone + Ord, P: Clone + Ord> Comparison<Q, P> {
    /// Adds an interval: the bytes of each port and the counts of each part, of the same directions. A part
    /// that was not counted in the interval is not among `parts`.
    pub fn add(&mut self, ports: &[(Q, f64)], parts: &[(P, f64)]) {
        for (port, moved) in ports {
            let of_port = self
                .ports
                .entry(port.clone())
                .or_insert_with(|| OfPort { alone: Sums::default(), with: BTreeMap::new() });
            of_port.alone.add(*moved, *moved);
            for (part, counted) in parts {
                of_port.with.entry(part.clone()).or_default().add(*moved, *counted);
            }
        }
    }

    /// Infers the part of each port. `counted` is the unit of the counts.
    pub fn infer(&self, counted: PartNumbers) -> Vec<(Q, Verdict<P>)> {
        let chosen: Vec<(&Q, Best<'_, P>)> =
            self.ports.iter().map(|(port, of_port)| (port, of_port.best(counted))).collect();
        let rivals = |part: &P| {
            let is_same = |best: &Best<'_, P>| matches!(best, Ok((other, _)) if *other == part);
            chosen.iter().filter(|(_, best)| is_same(best)).count()
        };
        let verdict = |best: &Best<'_, P>| match best {
            Err(why) => Verdict::Unknown(why.clone()),
            // A part has one port, whatever the figures.
            Ok((part, _)) if rivals(part) > 1 => {
                Verdict::Unknown("another port moves data in step with it".to_owned())
            }
            Ok((part, r)) => Verdict::Inferred { part: (*part).clone(), r: *r },
        };
        chosen.iter().map(|(port, best)| ((*port).clone(), verdict(best))).collect()
    }
}

/// Part with the highest correlation to a port, and that correlation, or the reason why there is none.
type Best<'a, P> = Result<(&'a P, f64), String>;

/// Sums of a port alone, and with each part in the intervals in which the part was counted.
#[derive(Clone, Debug)]
struct OfPort<P> {
    alone: Sums,
    with: BTreeMap<P, Sums>,
}

impl<P> OfPort<P> {
    fn best(&self, counted: PartNumbers) -> Best<'_, P> {
        let most = self.with.values().map(|sums| sums.intervals).max().unwrap_or(self.alone.intervals);
        if most < INTERVALS_MIN {
            return Err(format!("{most} intervals are too few to compare, {INTERVALS_MIN} are enough"));
        }
        if self.with.is_empty() {
            return Err("no part was counted".to_owned());
        }
        if self.alone.correlation().is_none() {
            return Err("its traffic does not change, so nothing can move with it".to_owned());
        }
        let candidates = self.with.iter().filter(|(_, sums)| sums.intervals >= INTERVALS_MIN);
        let mut ranked: Vec<(f64, &P, &Sums)> =
            candidates.filter_map(|(part, sums)| Some((sums.correlation()?, part, sums))).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        let Some(&(r, part, sums)) = ranked.first().filter(|(r, ..)| *r >= CORRELATION_MIN) else {
            return Err("no part moves data in step with it".to_owned());
        };
        let intervals = |sums: &Sums| sums.intervals as f64;
        let is_tie = |(next, _, of_next): &(f64, &P, &Sums)| {
            !is_above((r, intervals(sums)), (*next, intervals(of_next)))
        };
        if ranked.get(1).is_some_and(is_tie) {
            return Err("several parts move data in step with it".to_owned());
        }
        if sums.means[1] < counted.share_min() * sums.means[0] {
            return Err("the part that moves in step with it moves less data".to_owned());
        }
        Ok((part, r))
    }
}

/// Returns whether a correlation exceeds the next by more than chance, at 95 %. Each has its number of
/// intervals. Uses Fisher's transformation, whose variance is 1/(n−3) for each.
fn is_above((r, n): (f64, f64), (next, of_next): (f64, f64)) -> bool {
    // A correlation of exactly 1 would be infinitely far from any other.
    let z = |r: f64| r.clamp(-0.999_999, 0.999_999).atanh();
    z(r) - z(next) > Z * (1.0 / (n - 3.0) + 1.0 / (of_next - 3.0)).sqrt()
}

/// Sums for a correlation of two series, updated as they grow. A difference of large sums of squares would be
/// noise (Welford, Technometrics 4, 1962).
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    intervals: u64,
    means: [f64; 2],
    /// Squared distances from the means.
    squares: [f64; 2],
    products: f64,
}

impl Sums {
    fn add(&mut self, a: f64, b: f64) {
        self.intervals += 1;
        let n = self.intervals as f64;
        let before = [a - self.means[0], b - self.means[1]];
        self.means = [self.means[0] + before[0] / n, self.means[1] + before[1] / n];
        let after = [a - self.means[0], b - self.means[1]];
        self.squares = [self.squares[0] + before[0] * after[0], self.squares[1] + before[1] * after[1]];
        self.products += before[0] * after[1];
    }

    /// Returns Pearson's correlation. Returns `None` if either series is constant, or a number is not finite.
    fn correlation(&self) -> Option<f64> {
        // The rounding error of a constant series.
        let is_still =
            |side: usize| self.squares[side] <= (self.means[side] * 1e-9).powi(2) * self.intervals as f64;
        if is_still(0) || is_still(1) {
            return None;
        }
        let r = self.products / (self.squares[0].sqrt() * self.squares[1].sqrt());
        Some(r).filter(|r| r.is_finite()).map(|r| r.clamp(-1.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, proptest};

    use super::{Comparison, INTERVALS_MIN, PartNumbers, Sums, Verdict};

    /// Returns bytes that look random and are the same on every run (splitmix64).
    fn load(seed: u64, intervals: usize) -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            ((mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 40) as f64 * 100.0
        };
        (0..intervals).map(|_| next()).collect()
    }

    /// Returns the hardware's counts for the load: a little more, and some of it later.
    fn counted(bytes: &[f64], noise: u64) -> Vec<f64> {
        let noise = load(noise, bytes.len());
        bytes.iter().zip(noise).map(|(bytes, noise)| bytes * 1.05 + noise * 0.1).collect()
    }

    /// Compares series of bytes, interval by interval. NaN means that the interval was not counted.
    fn infer<Q: Copy + Ord, P: Copy + Ord>(
        ports: &[(Q, Vec<f64>)],
        parts: &[(P, Vec<f64>)],
    ) -> Vec<(Q, Verdict<P>)> {
        compared(ports, parts).infer(PartNumbers::Bytes)
    }

    fn compared<Q: Copy + Ord, P: Copy + Ord>(
        ports: &[(Q, Vec<f64>)],
        parts: &[(P, Vec<f64>)],
    ) -> Comparison<Q, P> {
        let mut comparison = Comparison::default();
        for interval in 0..ports[0].1.len() {
            let ports: Vec<(Q, f64)> = ports.iter().map(|(port, bytes)| (*port, bytes[interval])).collect();
            let parts = parts.iter().map(|(part, bytes)| (*part, bytes[interval]));
            comparison.add(&ports, &parts.filter(|(_, bytes)| !bytes.is_nan()).collect::<Vec<_>>());
        }
        comparison
    }

    fn sums(a: &[f64], b: &[f64]) -> Sums {
        let mut sums = Sums::default();
        a.iter().zip(b).for_each(|(a, b)| sums.add(*a, *b));
        sums
    }

    /// Returns Pearson's correlation by its definition.
    fn of_series(a: &[f64], b: &[f64]) -> f64 {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (mean_a, mean_b) = (mean(a), mean(b));
        let each = a.iter().zip(b).map(|(a, b)| (a - mean_a, b - mean_b));
        let (ab, aa, bb) =
            each.fold((0.0, 0.0, 0.0), |(ab, aa, bb), (a, b)| (ab + a * b, aa + a * a, bb + b * b));
        ab / (aa * bb).sqrt()
    }

    fn why<P: std::fmt::Debug>(verdict: &Verdict<P>) -> &str {
        match verdict {
            Verdict::Unknown(why) => why,
            Verdict::Inferred { .. } => panic!("{verdict:?}"),
        }
    }

    #[test]
    fn busy_ports_find_their_parts() {
        let (disk, net) = (load(1, 40), load(2, 40));
        let ports = [("disk", disk.clone()), ("net", net.clone())];
        let parts = [(0, counted(&net, 5)), (1, load(9, 40)), (2, counted(&disk, 6)), (3, vec![0.0; 40])];
        let found = infer(&ports, &parts);
        let parts: Vec<_> = found
            .iter()
            .map(|(port, verdict)| match verdict {
                Verdict::Inferred { part, r } => (*port, *part, *r > 0.95 && *r <= 1.0),
                Verdict::Unknown(why) => panic!("{port}: {why}"),
            })
            .collect();
        assert_eq!(parts, [("disk", 2, true), ("net", 0, true)]);
    }

    #[test]
    fn too_few_intervals_tell_nothing() {
        let bytes = load(1, INTERVALS_MIN as usize - 1);
        let found = infer(&[("disk", bytes.clone())], &[(0, bytes)]);
        assert_eq!(why(&found[0].1), "19 intervals are too few to compare, 20 are enough");
        let bytes = load(1, INTERVALS_MIN as usize);
        let found = infer(&[("disk", bytes.clone())], &[(0, bytes)]);
        assert!(matches!(found[0].1, Verdict::Inferred { part: 0, .. }), "{found:?}");
    }

    #[test]
    fn traffic_that_does_not_change_tells_nothing() {
        for still in [0.0, 0.1, 1e9 / 3.0] {
            let found = infer(&[("disk", vec![still; 30])], &[(0, load(1, 30)), (1, vec![still; 30])]);
            assert!(why(&found[0].1).contains("does not change"), "{still}");
        }
    }

    #[test]
    fn parts_in_step_are_a_tie() {
        let bytes = load(1, 40);
        let parts = [(0, counted(&bytes, 5)), (1, counted(&bytes, 6))];
        assert!(why(&infer(&[("disk", bytes)], &parts)[0].1).contains("several parts"));
    }

    #[test]
    fn ports_in_step_are_a_tie() {
        let bytes = load(1, 40);
        let ports = [("disk", bytes.clone()), ("net", counted(&bytes, 5))];
        let found = infer(&ports, &[(0, counted(&bytes, 6))]);
        assert!(found.iter().all(|(_, verdict)| why(verdict).contains("another port")), "{found:?}");
    }

    #[test]
    fn an_echo_of_the_traffic_is_not_the_traffic() {
        let bytes = load(1, 40);
        let echo: Vec<f64> = bytes.iter().map(|bytes| bytes * 0.02).collect();
        assert!(why(&infer(&[("net", bytes)], &[(0, echo)])[0].1).contains("less data"));
    }

    #[test]
    fn units_tell_the_traffic_from_an_entry_of_16_bytes_a_page() {
        let bytes = load(1, 40);
        let verdict = |share: f64, counted: PartNumbers| {
            let part: Vec<f64> = bytes.iter().map(|bytes| bytes * share).collect();
            compared(&[("disk", bytes.clone())], &[(0, part)]).infer(counted).remove(0).1
        };
        for unit in [1.0, 4.0, 32.0, 64.0] {
            assert!(
                matches!(verdict(1.0 / unit, PartNumbers::Units), Verdict::Inferred { part: 0, .. }),
                "{unit}"
            );
        }
        assert!(why(&verdict(1.0 / 4.0, PartNumbers::Bytes)).contains("less data"));
        assert!(why(&verdict(16.0 / 4096.0, PartNumbers::Units)).contains("less data"));
    }

    #[test]
    fn traffic_that_no_part_sees_is_not_found() {
        let ports = [("net", load(1, 40))];
        assert!(why(&infer(&ports, &[(0, load(3, 40))])[0].1).contains("no part"));
        assert!(why(&infer::<_, u32>(&ports, &[])[0].1).contains("no part"));
        assert!(why(&infer(&ports, &[(0, vec![f64::INFINITY; 40])])[0].1).contains("no part"));
    }

    #[test]
    fn intervals_in_which_a_part_was_not_counted_are_left_out_of_both_sides() {
        let bytes = load(1, 60);
        let sometimes = |step: usize, else_bytes: f64| -> Vec<f64> {
            let counted = counted(&bytes, 5).into_iter().enumerate();
            counted.map(|(at, bytes)| if at % step == 0 { bytes } else { else_bytes }).collect()
        };
        let ports = [("disk", bytes.clone())];
        let found = infer(&ports, &[(0, sometimes(2, f64::NAN)), (1, load(9, 60))]);
        assert!(matches!(found[0].1, Verdict::Inferred { part: 0, .. }), "{found:?}");
        let zeros = infer(&ports, &[(0, sometimes(2, 0.0)), (1, load(9, 60))]);
        assert!(why(&zeros[0].1).contains("no part"), "0 bytes are something else: {zeros:?}");
        let found = infer(&ports, &[(0, sometimes(4, f64::NAN))]);
        assert_eq!(why(&found[0].1), "15 intervals are too few to compare, 20 are enough");
    }

    #[test]
    fn a_long_run_takes_no_more_room_and_forgets_nothing() {
        let (disk, net) = (load(1, 20_000), load(2, 20_000));
        let (ports, parts) = ([("disk", disk.clone())], [(0, counted(&disk, 5)), (1, net)]);
        let mut comparison = Comparison::default();
        let mut room = Vec::new();
        for interval in 0..disk.len() {
            let of = |bytes: &[f64]| bytes[interval];
            comparison
                .add(&[("disk", of(&ports[0].1))], &parts.each_ref().map(|(part, bytes)| (*part, of(bytes))));
            room.push(comparison.ports.values().map(|of_port| of_port.with.len()).sum::<usize>());
        }
        assert!(room.iter().all(|sums| *sums == 2), "one for each part");
        let found = comparison.infer(PartNumbers::Bytes);
        assert!(matches!(found[0].1, Verdict::Inferred { part: 0, .. }), "{found:?}");
    }

    proptest! {
        #[test]
        fn a_correlation_is_between_minus_1_and_1(seed: u64, other: u64, intervals in 2_usize..60) {
            if let Some(r) = sums(&load(seed, intervals), &load(other, intervals)).correlation() {
                prop_assert!((-1.0..=1.0).contains(&r), "{r}");
            }
        }

        #[test]
        fn sums_say_what_the_series_would(seed: u64, intervals in 3_usize..60, above in 0_u32..40) {
            // Far from 0 and with little change, as the bytes of a busy port are.
            let far: Vec<f64> = load(seed, intervals).iter().map(|bytes| bytes + f64::from(above) * 1e9).collect();
            let near = counted(&load(seed, intervals), !seed);
            let (found, expected) = (sums(&far, &near).correlation().unwrap(), of_series(&far, &near));
            prop_assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }

        #[test]
        fn independent_traffic_is_seldom_taken_for_the_same(seed: u64) {
            let found = infer(&[("net", load(seed, 20))], &[(0, load(!seed, 20))]);
            prop_assert!(matches!(found[0].1, Verdict::Unknown(_)));
        }
    }
}
