//! Simulation, tick by tick, of a virtual machine with a hypervisor that withholds its CPUs without reporting
//! stolen time. It yields what ticks find, as the programs count it, and whether the interval contains the
//! masked time.

use pmu_common::gap::{self, LATENESS_NS, tick_instants};

use super::{Floor, InKernel, Instants, Late, above};
use crate::metric::testing::Random;

const PERIOD_NS: f64 = 4e6;
const LEAST_NS: u64 = 50_000;
const RUN_NS: f64 = 5e9;
/// Share of the unmasked ticks that find the kernel, and share of these where it enables interrupts.
const IN_KERNEL: f64 = 0.3;
const AT_ENABLE: f64 = 0.05;

/// Parameters of a run: mean distances of events in ns of the CPU's own time, and their durations.
#[derive(Clone, Copy, Debug)]
struct Scene {
    /// Mean time between masked spans of the kernel, on the first of two CPUs.
    masks_every_ns: f64,
    masks_ns: (f64, f64),
    /// Share of the time in which the hypervisor runs something else, and mean length of such a span.
    withheld: f64,
    withheld_ns: f64,
}

/// Code that a tick finds.
#[derive(Clone, Copy, PartialEq)]
enum Found {
    User,
    Elsewhere,
    AtEnable,
}

#[derive(Default)]
struct Ticks {
    floor: Floor,
    kernel: InKernel,
    masked_ns: f64,
}

fn count(late: &mut Late, late_ns: u64) {
    late.ticks += 1;
    late.instants += tick_instants(late_ns, LEAST_NS, PERIOD_NS as u64);
    let lateness = f64::from(gap::lateness(late_ns, LEAST_NS, PERIOD_NS as u64));
    late.lateness += lateness * LATENESS_NS as f64 / PERIOD_NS;
}

impl Ticks {
    fn take(&mut self, found: Found, late_ns: u64) {
        let is_late = late_ns >= LEAST_NS;
        if found == Found::User {
            self.floor.user_ticks += 1;
            if is_late {
                self.floor.late_ticks += 1;
                self.floor.instants += tick_instants(late_ns, LEAST_NS, PERIOD_NS as u64);
            }
            return;
        }
        self.kernel.ticks += 1;
        match (found, is_late) {
            (Found::AtEnable, true) => {
                count(&mut self.kernel.late, late_ns);
                count(&mut self.kernel.sure, late_ns);
            }
            (_, true) => count(&mut self.kernel.late, late_ns),
            (Found::AtEnable, false) => self.kernel.sure_on_time += 1,
            (_, false) => self.floor.elsewhere_on_time += 1,
        }
    }

    /// Returns the result of the report for them, in instants.
    fn masked(mut self) -> Instants {
        let (late, sure) = (self.kernel.late, self.kernel.sure);
        self.floor.elsewhere_late = late.ticks - sure.ticks;
        self.floor.elsewhere_instants = late.instants - sure.instants;
        self.floor.enable_on_time = self.kernel.sure_on_time.max(1);
        above(Some(&self.floor), true, &self.kernel).unwrap()
    }
}

/// State of one CPU, at `now_ns`.
struct Cpu<'r> {
    random: &'r mut Random,
    now_ns: f64,
    tick_ns: f64,
    /// Remaining own time until the hypervisor runs something else.
    withheld_in_ns: f64,
}

impl Cpu<'_> {
    /// Delivers a tick if it is due: every instant until now is over, and the first is the late tick's.
    fn tick(&mut self, ticks: &mut Ticks, unmasked: Option<Found>) {
        if self.tick_ns > self.now_ns {
            return;
        }
        let found = unmasked.unwrap_or_else(|| match self.random.uniform() < IN_KERNEL {
            false => Found::User,
            true if self.random.uniform() < AT_ENABLE => Found::AtEnable,
            true => Found::Elsewhere,
        });
        ticks.take(found, (self.now_ns - self.tick_ns) as u64);
        self.tick_ns += ((self.now_ns - self.tick_ns) / PERIOD_NS).floor() * PERIOD_NS + PERIOD_NS;
    }

    fn next_withheld(&mut self, scene: &Scene) {
        let own_ns = scene.withheld_ns * (1.0 - scene.withheld) / scene.withheld;
        self.withheld_in_ns =
            if scene.withheld > 0.0 { self.random.exponential(own_ns) } else { f64::INFINITY };
    }

    fn withhold(&mut self, scene: &Scene) {
        self.now_ns += self.random.exponential(scene.withheld_ns);
        self.next_withheld(scene);
    }

    /// Masks interrupts until a random time is over, including time that the hypervisor took.
    fn mask(&mut self, scene: &Scene, ticks: &mut Ticks) {
        let began_ns = self.now_ns;
        let end_ns = began_ns + self.random.between(scene.masks_ns.0, scene.masks_ns.1);
        while self.now_ns < end_ns {
            let left_ns = end_ns - self.now_ns;
            if self.withheld_in_ns < left_ns {
                self.now_ns += self.withheld_in_ns;
                self.withhold(scene);
            } else {
                self.withheld_in_ns -= left_ns;
                self.now_ns = end_ns;
            }
        }
        ticks.masked_ns += self.now_ns - began_ns;
        self.tick(ticks, Some(Found::AtEnable));
    }

    fn run(&mut self, scene: &Scene, masks_every_ns: f64, ticks: &mut Ticks) {
        self.next_withheld(scene);
        let mut mask_in_ns = self.random.exponential(masks_every_ns);
        while self.now_ns < RUN_NS {
            let step_ns = mask_in_ns.min(self.withheld_in_ns).min(self.tick_ns - self.now_ns);
            self.now_ns += step_ns;
            mask_in_ns -= step_ns;
            self.withheld_in_ns -= step_ns;
            if mask_in_ns <= 0.0 {
                self.mask(scene, ticks);
                mask_in_ns = self.random.exponential(masks_every_ns);
            } else if self.withheld_in_ns <= 0.0 {
                self.withhold(scene);
                self.tick(ticks, None);
            } else {
                self.now_ns = self.now_ns.max(self.tick_ns);
                self.tick(ticks, None);
            }
        }
    }
}

fn run(random: &mut Random, scene: &Scene) -> Ticks {
    let mut ticks = Ticks::default();
    for masks_every_ns in [scene.masks_every_ns, f64::INFINITY] {
        let tick_ns = random.uniform() * PERIOD_NS;
        let mut cpu = Cpu { random: &mut *random, now_ns: 0.0, tick_ns, withheld_in_ns: 0.0 };
        cpu.run(scene, masks_every_ns, &mut ticks);
    }
    ticks
}

#[test]
fn a_hypervisor_that_withholds_its_cpus_is_told_from_what_is_masked() {
    let mut random = Random(43);
    let (mut all, mut all_held) = (0, 0);
    for withheld in [0.0, 0.06, 0.16, 0.3, 0.45] {
        for withheld_ns in [1e6, 3e6, 9e6] {
            for (masks_every_ns, masks_ns) in [(50e6, (0.1e6, 8e6)), (5e6, (0.1e6, 8e6)), (500e6, (1e6, 3e6))]
            {
                let scene = Scene { masks_every_ns, masks_ns, withheld, withheld_ns };
                let runs = 300;
                let (mut held, mut error_ns, mut floor) = (0, 0.0, 0.0);
                for _ in 0..runs {
                    let ticks = run(&mut random, &scene);
                    let truth = ticks.masked_ns / PERIOD_NS;
                    floor += ticks.floor.share() / f64::from(runs);
                    let Instants { estimate, low, high } = ticks.masked();
                    held += u32::from((low..=high).contains(&truth));
                    error_ns += (estimate - truth) * PERIOD_NS / f64::from(runs);
                    let width = high - low;
                    assert!(
                        (low - width..=high + width).contains(&truth),
                        "{scene:?}: {truth} is not in {low}..{high}"
                    );
                }
                println!(
                    "floor {floor:.2}: {held} of {runs} hold, {:+.1} ms on average: {scene:?}",
                    error_ns / 1e6
                );
                assert!(f64::from(held) >= 0.91 * f64::from(runs), "{held} of {runs}: {scene:?}");
                (all, all_held) = (all + runs, all_held + held);
            }
        }
    }
    println!("{all_held} of {all} hold");
    assert!(f64::from(all_held) >= 0.945 * f64::from(all), "{all_held} of {all}");
}
