//! Which part of a stack counts which port, from traffic alone: what moves together belongs together.
//!
//! Pure. The bytes of a port are those of its disks and interfaces, which the kernel counts; the bytes of a part are the
//! hardware's. A table that says who belongs to whom can be wrong, traffic cannot, but two ports may be busy in step: then
//! nothing is inferred.

/// Intervals that it takes at least.
pub const INTERVALS_MIN: usize = 20;
/// Correlation that it takes at least.
pub const CORRELATION_MIN: f64 = 0.95;
/// Share of a port's bytes that its part must have counted at least: hardware sees all of them, and more (descriptors,
/// headers), but not quite in the same intervals.
const SHARE_MIN: f64 = 0.8;
/// Quantile of the normal distribution that leaves 2.5 % on each side.
const Z: f64 = 1.96;

/// Bytes that something moved, interval by interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Series<K> {
    /// What moved them.
    pub key: K,
    /// Bytes of each interval, in both directions.
    pub bytes: Vec<f64>,
}

/// What traffic says about a port.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict<P> {
    /// This part counts it.
    Inferred {
        /// The part.
        part: P,
        /// Correlation, [`CORRELATION_MIN`] to 1.
        r: f64,
    },
    /// Nothing; the reason.
    Unknown(String),
}

/// Finds the part of each port. Both sides are of the same intervals.
#[must_use]
pub fn infer<Q: Clone, P: Clone>(ports: &[Series<Q>], parts: &[Series<P>]) -> Vec<(Q, Verdict<P>)> {
    let chosen: Vec<Result<(usize, f64), String>> = ports.iter().map(|port| best(port, parts)).collect();
    let verdict = |(index, port): (usize, &Series<Q>)| {
        let verdict = match &chosen[index] {
            Err(why) => Verdict::Unknown(why.clone()),
            // A part has one port, whatever the figures say.
            Ok((part, _)) if rivals(&chosen, *part) > 1 => {
                Verdict::Unknown("another port moves data in step with it".to_owned())
            }
            Ok((part, r)) => Verdict::Inferred { part: parts[*part].key.clone(), r: *r },
        };
        (port.key.clone(), verdict)
    };
    ports.iter().enumerate().map(verdict).collect()
}

fn rivals(chosen: &[Result<(usize, f64), String>], part: usize) -> usize {
    chosen.iter().filter(|choice| matches!(choice, Ok((other, _)) if *other == part)).count()
}

/// The part that moves like `port`, and how well.
fn best<Q, P>(port: &Series<Q>, parts: &[Series<P>]) -> Result<(usize, f64), String> {
    let length = port.bytes.len();
    if length < INTERVALS_MIN {
        return Err(format!("{length} intervals are too few to compare, {INTERVALS_MIN} are enough"));
    }
    if correlation(&port.bytes, &port.bytes).is_none() {
        return Err("its traffic does not change, so nothing can move with it".to_owned());
    }
    let candidates = parts.iter().enumerate().filter(|(_, part)| part.bytes.len() == length);
    let mut ranked: Vec<(usize, f64)> = candidates
        .filter_map(|(index, part)| Some((index, correlation(&port.bytes, &part.bytes)?)))
        .collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    let enough = |r: &f64| *r >= CORRELATION_MIN;
    let Some(&(part, r)) = ranked.first().filter(|(_, r)| enough(r)) else {
        return Err("no part moves data in step with it".to_owned());
    };
    if ranked.get(1).is_some_and(|(_, next)| !is_above(r, *next, length)) {
        return Err("several parts move data in step with it".to_owned());
    }
    let sum = |bytes: &[f64]| bytes.iter().sum::<f64>();
    if sum(&parts[part].bytes) < SHARE_MIN * sum(&port.bytes) {
        return Err("the part that moves in step with it moves less data".to_owned());
    }
    Ok((part, r))
}

/// Is `r` above `next` by more than chance, at 95 %? By Fisher's transformation, whose standard error is 1/√(n−3) for each.
fn is_above(r: f64, next: f64, intervals: usize) -> bool {
    // 1 exactly would be infinitely far from anything.
    let z = |r: f64| r.clamp(-0.999_999, 0.999_999).atanh();
    z(r) - z(next) > Z * (2.0 / (intervals as f64 - 3.0)).sqrt()
}

/// Pearson's correlation; `None` if either side does not change, or a number is none.
fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a - mean_a, b - mean_b);
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    // What rounding leaves of a series that does not change.
    let is_still = |squares: f64, mean: f64| squares <= (mean * 1e-9).powi(2) * n;
    if is_still(aa, mean_a) || is_still(bb, mean_b) {
        return None;
    }
    Some(ab / (aa * bb).sqrt()).filter(|r| r.is_finite()).map(|r| r.clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, proptest};

    use super::{INTERVALS_MIN, Series, Verdict, correlation, infer};

    /// Bytes that look random and are the same on every run (splitmix64).
    fn load(seed: u64, intervals: usize) -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            ((mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 40) as f64 * 100.0
        };
        (0..intervals).map(|_| next()).collect()
    }

    /// What the hardware counts for it: a little more, and some of it later.
    fn counted(bytes: &[f64], noise: u64) -> Vec<f64> {
        let noise = load(noise, bytes.len());
        bytes.iter().zip(noise).map(|(bytes, noise)| bytes * 1.05 + noise * 0.1).collect()
    }

    fn series<K: Copy>(list: &[(K, Vec<f64>)]) -> Vec<Series<K>> {
        list.iter().map(|(key, bytes)| Series { key: *key, bytes: bytes.clone() }).collect()
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
        let ports = series(&[("disk", disk.clone()), ("net", net.clone())]);
        let parts =
            series(&[(0, counted(&net, 5)), (1, load(9, 40)), (2, counted(&disk, 6)), (3, vec![0.0; 40])]);
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
        let bytes = load(1, INTERVALS_MIN - 1);
        let found = infer(&series(&[("disk", bytes.clone())]), &series(&[(0, bytes)]));
        assert_eq!(why(&found[0].1), "19 intervals are too few to compare, 20 are enough");
        let bytes = load(1, INTERVALS_MIN);
        let found = infer(&series(&[("disk", bytes.clone())]), &series(&[(0, bytes)]));
        assert!(matches!(found[0].1, Verdict::Inferred { part: 0, .. }), "{found:?}");
    }

    #[test]
    fn traffic_that_does_not_change_tells_nothing() {
        for still in [0.0, 0.1, 1e9 / 3.0] {
            let found = infer(
                &series(&[("disk", vec![still; 30])]),
                &series(&[(0, load(1, 30)), (1, vec![still; 30])]),
            );
            assert!(why(&found[0].1).contains("does not change"), "{still}");
        }
    }

    #[test]
    fn parts_in_step_are_a_tie() {
        let bytes = load(1, 40);
        let parts = series(&[(0, counted(&bytes, 5)), (1, counted(&bytes, 6))]);
        assert!(why(&infer(&series(&[("disk", bytes)]), &parts)[0].1).contains("several parts"));
    }

    #[test]
    fn ports_in_step_are_a_tie() {
        let bytes = load(1, 40);
        let ports = series(&[("disk", bytes.clone()), ("net", counted(&bytes, 5))]);
        let found = infer(&ports, &series(&[(0, counted(&bytes, 6))]));
        assert!(found.iter().all(|(_, verdict)| why(verdict).contains("another port")), "{found:?}");
    }

    #[test]
    fn an_echo_of_the_traffic_is_not_the_traffic() {
        let bytes = load(1, 40);
        let echo: Vec<f64> = bytes.iter().map(|bytes| bytes * 0.02).collect();
        assert!(why(&infer(&series(&[("net", bytes)]), &series(&[(0, echo)]))[0].1).contains("less data"));
    }

    #[test]
    fn traffic_that_no_part_sees_is_not_found() {
        let ports = series(&[("net", load(1, 40))]);
        assert!(why(&infer(&ports, &series(&[(0, load(3, 40))]))[0].1).contains("no part"));
        assert!(why(&infer::<_, u32>(&ports, &[])[0].1).contains("no part"));
        assert!(
            why(&infer(&ports, &series(&[(0, load(1, 39))]))[0].1).contains("no part"),
            "of other intervals"
        );
        assert!(why(&infer(&ports, &series(&[(0, vec![f64::NAN; 40])]))[0].1).contains("no part"));
    }

    proptest! {
        #[test]
        fn a_correlation_is_between_minus_1_and_1(seed: u64, other: u64, intervals in 2_usize..60) {
            let (a, b) = (load(seed, intervals), load(other, intervals));
            if let Some(r) = correlation(&a, &b) {
                prop_assert!((-1.0..=1.0).contains(&r), "{r}");
            }
        }

        #[test]
        fn independent_traffic_is_seldom_taken_for_the_same(seed: u64) {
            let found = infer(&series(&[("net", load(seed, 20))]), &series(&[(0, load(!seed, 20))]));
            prop_assert!(matches!(found[0].1, Verdict::Unknown(_)));
        }
    }
}
