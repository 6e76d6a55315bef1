//! Series of what the kernel accounts to the cgroups of targets. A cgroup's numbers include all that is below
//! it. So `_other` has no such series, nor has a target to whose cgroup nothing is accounted.

use std::sync::Arc;

use super::{
    families::Families,
    family::{Family, Kind},
    target::Labels,
    value::{FamilyId, Point, Values},
};
use crate::{
    machine::{
        accounting::{Figure, Figures},
        pressure::Stall,
    },
    untrusted::Untrusted,
};

/// Target for which the kernel may account figures.
#[derive(Clone, Debug)]
pub struct Accountable {
    /// Name of the target.
    pub target: Arc<str>,
    /// Labels that describe the target.
    pub info: Arc<Labels>,
    /// Paths of its cgroups, without those below them.
    pub paths: Vec<Untrusted>,
    /// Set once readers have seen its series at 0. Before that, growth is not added to them.
    pub is_counted: bool,
}

/// Figures that the kernel accounts to a target.
#[derive(Clone, Debug)]
pub struct Account {
    /// Name of the target.
    pub target: Arc<str>,
    /// Labels that describe the target.
    pub info: Arc<Labels>,
    /// Figures since they were last added to the series: the growth, or else the current state.
    pub figures: Figures,
    /// Figures since the last reading: the growth, or else the current state.
    pub of_interval: Figures,
}

/// Family of a figure: the figure, its name, its unit, the factor to that unit, and the help text.
type OfFigure = (Figure, &'static str, Option<&'static str>, f64, &'static str);

/// Families of all figures.
const FAMILIES: [OfFigure; 17] = [
    times(
        Figure::Periods,
        "cpu_periods",
        "Periods of its limit of CPU time in which it had something to run.",
    ),
    times(
        Figure::ThrottledPeriods,
        "cpu_throttled_periods",
        "Periods in which its limit of CPU time was used up.",
    ),
    (
        Figure::ThrottledTime,
        "cpu_throttled_seconds",
        SECONDS,
        1e-9,
        "Time that its tasks could not run for its limit of CPU time, of all CPUs together.",
    ),
    stall(Stall::CpuSome, "pressure_cpu_some_seconds", "Time that some of its tasks waited for a CPU."),
    stall(Stall::CpuFull, "pressure_cpu_full_seconds", "Time that all of its tasks waited for a CPU."),
    stall(
        Stall::MemorySome,
        "pressure_memory_some_seconds",
        "Time that some of its tasks waited for memory.",
    ),
    stall(Stall::MemoryFull, "pressure_memory_full_seconds", "Time that all of its tasks waited for memory."),
    stall(Stall::IoSome, "pressure_io_some_seconds", "Time that some of its tasks waited for I/O."),
    stall(Stall::IoFull, "pressure_io_full_seconds", "Time that all of its tasks waited for I/O."),
    stall(
        Stall::IrqFull,
        "pressure_irq_full_seconds",
        "Time that interrupts kept all of its tasks from a CPU.",
    ),
    bytes(Figure::Memory, "memory_bytes", "Memory that is charged to it, page cache included."),
    bytes(Figure::MemoryPeak, "memory_peak_bytes", "The most memory that was ever charged to it."),
    bytes(Figure::MemoryLimit, "memory_limit_bytes", "The most memory that may be charged to it."),
    times(
        Figure::MemoryHigh,
        "memory_high_events",
        "Times that it was slowed down to reclaim memory, above memory.high.",
    ),
    times(Figure::MemoryMax, "memory_max_events", "Times that it had as much memory as its limit allows."),
    times(
        Figure::MemoryOom,
        "memory_oom_events",
        "Times that it was at its limit and no memory could be taken from it.",
    ),
    times(
        Figure::MemoryOomKill,
        "memory_oom_kill_events",
        "Processes of it that were killed for lack of memory.",
    ),
];

const SECONDS: Option<&str> = Some("seconds");

const fn times(figure: Figure, name: &'static str, says: &'static str) -> OfFigure {
    (figure, name, None, 1.0, says)
}

const fn bytes(figure: Figure, name: &'static str, says: &'static str) -> OfFigure {
    (figure, name, Some("bytes"), 1.0, says)
}

const fn stall(stall: Stall, name: &'static str, says: &'static str) -> OfFigure {
    (Figure::Stalled(stall), name, SECONDS, 1e-6, says)
}

/// Registers the families of these figures, so that there is room for them.
pub(super) fn meet(figures: &[Figure], families: &mut Families) {
    figures.iter().for_each(|&figure| {
        family(families, figure);
    });
}

/// Adds to a figure that grows, or sets another, in the unit of its family.
pub(super) fn add(values: &mut Values, families: &mut Families, figure: Figure, value: u64) {
    let (family, value) = in_base_unit(families, figure, value);
    if figure.grows() {
        values.add(family, value);
        return;
    }
    // The states of several cgroups of one target are added up.
    match values.0.get_mut(&family) {
        Some(point) => point.merge(&Point::Number(value)),
        None => drop(values.0.insert(family, Point::Number(value))),
    }
}

/// Returns a figure's family, and its value in the unit of the family.
pub(super) fn in_base_unit(families: &mut Families, figure: Figure, value: u64) -> (FamilyId, f64) {
    let (family, factor) = family(families, figure);
    (family, value as f64 * factor)
}

fn family(families: &mut Families, figure: Figure) -> (FamilyId, f64) {
    let (_, name, unit, factor, says) =
        FAMILIES.iter().find(|(of, ..)| *of == figure).expect("every figure has a family, as a test says");
    let kind = if figure.grows() { Kind::Counter } else { Kind::Gauge };
    let family = Family::own(&format!("pmbpf_cgroup_{name}"), kind, *unit, says);
    (families.of_some(family), *factor)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::{Account, FAMILIES};
    use crate::{
        machine::{accounting::Figure, pressure::Stall},
        metric::exposed::{
            Bounds, Exposed, Growth, Point, Seen, Whose,
            testing::{World, cgroup, did},
        },
    };

    const SECOND: u64 = 1_000_000_000;
    const BOUNDS: Bounds = Bounds { targets: 10, series: 10_000, linger_ns: 300 * SECOND };

    fn account(target: &str, figures: &[(Figure, u64)]) -> Account {
        let of_interval = figures.to_vec();
        Account { target: target.into(), info: Arc::default(), figures: figures.to_vec(), of_interval }
    }

    /// Returns the values of a family by target.
    fn values(exposed: &mut Exposed, name: &str) -> BTreeMap<String, f64> {
        let snapshot = exposed.snapshot();
        let found = snapshot.families().find(|(family, _)| family.name == name);
        let all = found.into_iter().flat_map(|(_, series)| series);
        let number = |point: &Point| if let Point::Number(number) = point { *number } else { panic!() };
        all.map(|series| (series.target.unwrap().to_owned(), number(&series.point))).collect()
    }

    #[test]
    fn what_is_accounted_to_a_cgroup_is_a_series_and_what_is_not_is_none() {
        let mut world = World::new();
        let mut exposed = world.exposed(BOUNDS);
        exposed.expect_accounts(&[Figure::ThrottledTime, Figure::Memory]);
        let all = [did(cgroup(1, "/web"), SECOND), did(cgroup(2, "/db"), SECOND / 2)];
        let throttled = "pmbpf_cgroup_cpu_throttled_seconds";
        for _ in 0..2 {
            exposed.add(&world.interval(&all), Seen::default());
            let figures = [(Figure::ThrottledTime, SECOND / 4), (Figure::Memory, 4096), (Figure::Memory, 1)];
            exposed.account(&[account("path:/web", &figures), account("path:/nobody", &figures)], 0);
        }
        assert_eq!(values(&mut exposed, throttled), [("path:/web".to_owned(), 0.5)].into());
        assert_eq!(
            values(&mut exposed, "pmbpf_cgroup_memory_bytes"),
            [("path:/web".to_owned(), 4097.0)].into(),
            "now, of both cgroups, and neither of the interval before nor of others"
        );
        exposed.add(&world.interval(&all), Seen::default());
        exposed.account(&[], 3);
        assert_eq!(values(&mut exposed, throttled)["path:/web"], 0.5, "what grew stays");
        assert!(values(&mut exposed, "pmbpf_cgroup_memory_bytes").is_empty(), "what is not known is none");
    }

    #[test]
    fn series_of_accounts_count_for_how_many_targets_there_is_room() {
        let mut world = World::new();
        let bounds = Bounds { targets: 100, series: 500, ..BOUNDS };
        let owners: Vec<_> = (1..60).map(|id| did(cgroup(id, &format!("/c{id}")), SECOND)).collect();
        let report = world.interval(&owners);
        let room = |figures: &[Figure]| {
            let mut exposed = world.exposed(bounds);
            exposed.expect_accounts(figures);
            exposed.add(&report, Seen::default());
            exposed.accountable().len()
        };
        let all: Vec<Figure> = FAMILIES.iter().map(|(figure, ..)| *figure).collect();
        assert!(room(&all) < room(&[]), "{} {}", room(&all), room(&[]));
    }

    #[test]
    fn a_period_has_the_growth_and_the_mean_of_each_target_and_nothing_of_others() {
        let mut world = World::new();
        let mut growth = Growth::new(&world.header(), 1, 60 * SECOND);
        let all = [did(cgroup(1, "/web"), SECOND), did(cgroup(2, "/db"), SECOND / 2)];
        for bytes in [1000, 3000] {
            assert!(growth.add(&world.interval(&all), 3600 * SECOND).is_none());
            let figures = [(Figure::ThrottledTime, SECOND / 4), (Figure::Memory, bytes)];
            growth.account(&[account("path:/web", &figures), account("path:/db", &figures)]);
        }
        let period = growth.end().unwrap();
        let of = |name: &str| -> Vec<(String, Point)> {
            let rows = period.rows.iter().filter(|row| period.family(row).name == name);
            let whose = |whose: &Whose| match whose {
                Whose::Target(name, _) => name.to_string(),
                Whose::Host(_) => panic!(),
            };
            rows.map(|row| (whose(&row.whose), row.point.clone())).collect()
        };
        let web = |value| vec![("path:/web".to_owned(), Point::Number(value))];
        assert_eq!(of("pmbpf_cgroup_cpu_throttled_seconds"), web(0.5));
        assert_eq!(of("pmbpf_cgroup_memory_bytes"), web(2000.0));
    }

    #[test]
    fn every_figure_has_one_family_whose_name_ends_in_its_unit() {
        let mut figures = vec![
            Figure::Periods,
            Figure::ThrottledPeriods,
            Figure::ThrottledTime,
            Figure::Memory,
            Figure::MemoryPeak,
            Figure::MemoryLimit,
            Figure::MemoryHigh,
            Figure::MemoryMax,
            Figure::MemoryOom,
            Figure::MemoryOomKill,
        ];
        figures.extend(Stall::ALL.map(Figure::Stalled));
        for figure in &figures {
            let all: Vec<_> = FAMILIES.iter().filter(|(of, ..)| of == figure).collect();
            assert!(matches!(all[..], [(_, name, unit, ..)] if unit.is_none_or(|unit| name.ends_with(unit))));
        }
        assert_eq!(FAMILIES.len(), figures.len());
    }
}
