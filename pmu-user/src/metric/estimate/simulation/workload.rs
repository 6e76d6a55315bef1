//! Random programs: phases with their own rates, in one order or another, with noise and idle time.
//!
//! The workloads do not depend on how the estimate is made. Every number is drawn from a range that is stated
//! where it is drawn. Ranges of lengths, rates and noise are even in orders of magnitude.

use crate::metric::testing::Random;

/// Events that always count: cycles, instructions, reference cycles, slots, and the four places where slots
/// went.
pub(super) const ALWAYS: usize = 8;
/// Events in each group that is multiplexed.
pub(super) const EVENTS: usize = 2;
/// Time for which the kernel leaves a group on the counters, in ms: a tick at 250 Hz (kernel/events/core.c,
/// `PERF_CPU_HRTIMER`).
pub(super) const KERNEL_TURN_MS: f64 = 4.0;
/// Resolution, in ms: no turn of a group is shorter. Phases and their borders have none.
pub(super) const STEP_MS: f64 = KERNEL_TURN_MS;

/// Class of workloads, by what distinguishes their phases and by their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Phases differ in what always counts, each at random; 8 to 100 rounds of turns.
    Plain,
    /// Phases differ only in multiplexed events.
    Hidden,
    /// 3 to 8 rounds.
    Short,
}

/// Order in which phases follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    /// Any after any, for 2 ms to 1 s on average.
    Random,
    /// One after the other and again, 1 ms to 400 ms each.
    Periodic,
    /// The first for 20 ms to 500 ms on average, between bursts of 1 ms to 20 ms.
    Bursts,
    /// Periodic, in step with the kernel's rotation: half of its period, or one, two or three.
    Locked,
    /// Each phase once.
    Once,
}

pub(super) struct Workload {
    pub(super) groups: usize,
    pub(super) length_ms: f64,
    pub(super) slice_ms: f64,
    pub(super) order: Order,
    /// Counts per ms, for each phase and event.
    phases: Vec<Vec<f64>>,
    /// Lengths of the phases, in ms.
    lengths: Vec<f64>,
    /// Standard deviation per step of the noise of each event alone, as a share.
    event_noise: Vec<f64>,
    /// Standard deviation of the noise that instructions and events share. It lasts for some 10 ms.
    activity_noise: f64,
    /// Mean length of running and of sleeping, in ms.
    sleeps: Option<(f64, f64)>,
}

impl Workload {
    pub(super) fn new(random: &mut Random, class: Class) -> Self {
        let groups = 2 + random.below(15);
        let slice_ms = STEP_MS * (random.magnitude(10.0, 50.0) / STEP_MS).floor();
        let round_ms = slice_ms * groups as f64;
        let length_ms = match class {
            Class::Short => round_ms * random.between(3.0, 8.0),
            // Limited to 10 s, because the test has to end.
            _ => (round_ms * random.magnitude(8.0, 100.0)).min(f64::max(10_000.0, 8.0 * round_ms)),
        };
        let order =
            [Order::Random, Order::Periodic, Order::Bursts, Order::Locked, Order::Once][random.below(5)];
        let phases = phases(random, class, groups);
        let lengths = lengths(random, order, phases.len(), length_ms, KERNEL_TURN_MS * groups as f64);
        Self {
            groups,
            length_ms,
            slice_ms,
            order,
            lengths,
            event_noise: (0..groups * EVENTS).map(|_| random.magnitude(0.005, 0.1)).collect(),
            activity_noise: random.magnitude(0.02, 0.2),
            sleeps: (random.uniform() < 0.3)
                .then(|| (random.magnitude(5.0, 300.0), random.magnitude(5.0, 300.0))),
            phases,
        }
    }

    /// Calls `each` with every step in which the owner ran: its start, in ms, and its counts.
    pub(super) fn play(&self, random: &mut Random, mut each: impl FnMut(f64, &[f64])) {
        let mut counts = vec![0.0; self.phases[0].len()];
        let (mut phase, mut left_ms) = (0, self.lengths[0] * random.uniform());
        let (mut asleep, mut turn_ms) =
            (false, self.sleeps.map_or(f64::INFINITY, |(on, _)| random.exponential(on)));
        let (mut activity, mut now_ms) = (0.0, 0.0);
        while now_ms < self.length_ms {
            counts.fill(0.0);
            let mut rest_ms = STEP_MS;
            while rest_ms > 0.0 {
                let part_ms = rest_ms.min(left_ms);
                for (count, rate) in counts.iter_mut().zip(&self.phases[phase]) {
                    *count += part_ms * rate;
                }
                rest_ms -= part_ms;
                left_ms -= part_ms;
                if left_ms <= 0.0 {
                    phase = self.next(random, phase);
                    left_ms = self.stay_ms(random, phase);
                }
            }
            if turn_ms <= 0.0 {
                asleep = !asleep;
                let (on, off) = self.sleeps.unwrap_or((f64::INFINITY, 0.0));
                turn_ms = random.exponential(if asleep { off } else { on });
            }
            turn_ms -= STEP_MS;
            activity = 0.66 * activity + 0.75 * random.noise();
            if !asleep {
                self.blur(random, (1.0 + self.activity_noise * activity).max(0.1), &mut counts);
                each(now_ms, &counts);
            }
            now_ms += STEP_MS;
        }
    }

    fn next(&self, random: &mut Random, phase: usize) -> usize {
        let count = self.phases.len();
        match self.order {
            Order::Random => random.below(count),
            Order::Bursts if phase == 0 && count > 1 => 1 + random.below(count - 1),
            Order::Bursts => 0,
            Order::Periodic | Order::Locked | Order::Once => (phase + 1) % count,
        }
    }

    fn stay_ms(&self, random: &mut Random, phase: usize) -> f64 {
        let stay_ms = match self.order {
            Order::Random => random.exponential(self.lengths[phase]),
            Order::Bursts if phase == 0 => random.exponential(self.lengths[phase]),
            _ => self.lengths[phase],
        };
        stay_ms.max(0.05)
    }

    /// Adds noise. Cycles and slots vary by 1 %. Instructions, events and where slots went vary with the
    /// activity as well, and events also by their own noise and by chance.
    fn blur(&self, random: &mut Random, activity: f64, counts: &mut [f64]) {
        for (at, count) in counts.iter_mut().enumerate() {
            match at {
                0 | 3 => *count *= 1.0 + 0.01 * random.noise(),
                2 => *count *= 1.0 + 0.001 * random.noise(),
                _ if at < ALWAYS => *count *= activity * (1.0 + 0.01 * random.noise()),
                _ => {
                    let mean = *count * activity;
                    let own = self.event_noise[at - ALWAYS] * mean;
                    *count = (mean + (own * own + mean).sqrt() * random.noise()).max(0.0);
                }
            }
        }
    }
}

/// Returns one to six phases (at least two if they are hidden). An event's rate differs between phases by up
/// to a factor, which is 1 to 100.
fn phases(random: &mut Random, class: Class, groups: usize) -> Vec<Vec<f64>> {
    let count = if class == Class::Hidden { 2 + random.below(5) } else { 1 + random.below(6) };
    let events: Vec<(f64, f64)> =
        (0..groups * EVENTS).map(|_| (random.magnitude(1e-5, 0.1), random.between(0.0, 2.0))).collect();
    let mut phases: Vec<Vec<f64>> = Vec::new();
    for _ in 0..count {
        let mut rates = match phases.first() {
            Some(first) if class == Class::Hidden => first[..ALWAYS].to_vec(),
            _ => signature(random),
        };
        for (per_cycle, decades) in &events {
            rates.push(2.5e6 * per_cycle * 10.0_f64.powf(decades * random.between(-0.5, 0.5)));
        }
        phases.push(rates);
    }
    phases
}

/// Returns rates of 1.75 GHz to 3 GHz, six slots a cycle that go to four places at random, and 0.7 to 1.1
/// instructions a slot that retired.
fn signature(random: &mut Random) -> Vec<f64> {
    let cycles = 2.5e6 * random.between(0.7, 1.2);
    let places: Vec<f64> = (0..4).map(|_| random.exponential(1.0)).collect();
    let sum: f64 = places.iter().sum();
    let slots = 6.0 * cycles;
    let mut rates = vec![cycles, slots * places[0] / sum * random.between(0.7, 1.1), 2.1e6, slots];
    rates.extend(places.iter().map(|place| slots * place / sum));
    rates
}

/// Returns the lengths of the phases, in ms.
fn lengths(random: &mut Random, order: Order, count: usize, length_ms: f64, rotation_ms: f64) -> Vec<f64> {
    let mut lengths: Vec<f64> = (0..count)
        .map(|phase| match order {
            Order::Random => random.magnitude(2.0, 1000.0),
            Order::Periodic => random.magnitude(1.0, 400.0),
            Order::Bursts if phase == 0 => random.magnitude(20.0, 500.0),
            Order::Bursts => random.between(1.0, 20.0),
            Order::Locked | Order::Once => random.between(0.2, 1.0),
        })
        .collect();
    let all_ms = match order {
        Order::Locked => rotation_ms * [0.5, 1.0, 2.0, 3.0][random.below(4)],
        Order::Once => length_ms,
        _ => return lengths,
    };
    let sum: f64 = lengths.iter().sum();
    lengths.iter_mut().for_each(|length| *length *= all_ms / sum);
    lengths
}
