//! Findings: what stands out in a run. A rule compares one number with a threshold, and a finding is a number whose whole interval is
//! above it; a number that may be below by chance is none. Pure, like all of `metric`.

mod explained;
mod faults;
mod forks;
mod io;
mod io_limit;
mod kernel;
mod locks;
#[cfg(test)]
mod quiet;
mod rules;
mod tasks;
mod waits;

pub use self::rules::{Cause, RULES, Rule};
use std::collections::{BTreeMap, BTreeSet};

use super::{
    OwnerOrTarget, OwnerReport, Report, TasksReport,
    io::Subject,
    value::{How, Known},
};
use crate::{
    drain::{Header, Owner},
    machine::cgroup::ancestors,
    table::{metric, unit::Unit},
    untrusted::Untrusted,
};

/// Findings of one rule: of many owners that it holds for, those of which there is most are told of.
const MOST_OF_A_RULE: usize = 3;

/// A number that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Why it does.
    pub rule: &'static Rule,
    /// Whose it is; `None` of the host's.
    pub whose: Option<OwnerOrTarget>,
    /// What it is about, beside CPUs.
    pub subject: Option<Subject>,
    /// Name of the number.
    pub metric: String,
    /// The number, in the rule's unit.
    pub value: Known,
    /// Names that say where: a function and its file, the code of a gap, the nodes of a path, processes.
    pub names: Vec<Untrusted>,
    /// What a share is a share of, where it is not in the name: `slots`.
    pub domain: Option<String>,
    /// Numbers that it rests on.
    pub evidence: Vec<Evidence>,
    /// What to try, the best first.
    pub next: Vec<&'static str>,
    /// What follows from it, and would be a finding of its own without it.
    pub symptoms: Vec<Finding>,
    /// How much there is of it, for the order of findings by one rule: the first number that it rests on, unless that misleads.
    weight: Option<f64>,
    /// Of a wait for a CPU, which part of it the owner's own tasks had that CPU for.
    own_part: f64,
    /// Is it about code of the kernel?
    of_kernel: bool,
}

/// A number that a finding rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Name.
    pub metric: String,
    /// Unit.
    pub unit: Unit,
    /// The number.
    pub value: Known,
    /// Whose it is, if it is not whose the finding is.
    pub whose: Option<OwnerOrTarget>,
}

impl Finding {
    /// What `value` says by the rule of `cause`; `None` if its interval reaches below the threshold, or if it cannot be: a share of
    /// more than all.
    fn of(cause: Cause, value: Known) -> Option<Self> {
        Self::by(cause.rule(), value)
    }

    /// The same by this rule.
    fn by(rule: &'static Rule, value: Known) -> Option<Self> {
        let finding = Self {
            rule,
            whose: None,
            subject: None,
            metric: rule.metric.to_owned(),
            value,
            names: Vec::new(),
            domain: None,
            evidence: Vec::new(),
            next: vec![rule.next],
            symptoms: Vec::new(),
            weight: None,
            own_part: 0.0,
            of_kernel: false,
        };
        (value.low > rule.above && value.estimate <= rule.unit.most()).then_some(finding)
    }

    fn of_whom(mut self, who: &OwnerOrTarget) -> Self {
        self.whose = Some(who.clone());
        self
    }

    fn about(mut self, subject: &Subject) -> Self {
        match subject {
            Subject::Owner(owner, of) => {
                self.whose = Some(OwnerOrTarget::Owner(owner.clone()));
                self.subject = Some((**of).clone());
            }
            subject => self.subject = Some(subject.clone()),
        }
        self
    }

    fn naming(mut self, names: impl IntoIterator<Item = Untrusted>) -> Self {
        self.names.extend(names);
        self
    }

    fn resting_on(mut self, metric: &str, unit: Unit, value: Known) -> Self {
        self.evidence.push(Evidence { metric: metric.to_owned(), unit, value, whose: None });
        self
    }

    /// Path of the cgroup that it is of.
    fn path(&self) -> Option<&[u8]> {
        match self.whose.as_ref()?.owner()? {
            Owner::Cgroup { path, .. } => Some(path.as_bytes()),
            _ => None,
        }
    }

    /// How much there was of it.
    fn amount(&self) -> f64 {
        self.weight.unwrap_or_else(|| self.evidence.first().map_or(self.value, |evidence| evidence.value).low)
    }

    /// Of a wait for a CPU, the share of the time that tasks could run for which others had that CPU, in per cent.
    fn lost_to_others(&self) -> f64 {
        self.value.estimate * (1.0 - self.own_part)
    }

    /// It, and then what follows from it.
    pub fn with_symptoms(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.symptoms)
    }

    /// What it rests on, by name.
    pub fn evidence(&self, metric: &str) -> Option<&Evidence> {
        self.evidence.iter().find(|evidence| evidence.metric == metric)
    }
}

/// What stands out in the whole of a run: rules in their order, of each where there is most of it first.
pub fn findings(header: &Header, report: &Report) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some((header, report)) = header.tasks.as_ref().zip(report.tasks.as_ref()) {
        found.extend(tasks::findings(header, report));
        found.extend(kernel::findings(header, report));
    }
    found.extend(report.io.iter().flat_map(io::findings));
    if let Some((tasks, io)) = report.tasks.as_ref().zip(report.io.as_ref()) {
        let limited = io_limit::findings(&tasks.limits, io);
        // That nothing is done because of I/O is then the limit's doing.
        let is_explained = |finding: &Finding| {
            finding.rule.cause == Cause::IoPressure
                && limited.iter().any(|limit| limit.whose == finding.whose)
        };
        found.retain(|finding| !is_explained(finding));
        found.extend(limited);
    }
    found.sort_by(|a, b| {
        let by_amount = || b.amount().total_cmp(&a.amount());
        a.rule.cause.cmp(&b.rule.cause).then_with(by_amount).then_with(|| a.whose.cmp(&b.whose))
    });
    let holds_another = above_another(&found);
    let mut kept: Vec<Finding> = Vec::new();
    // The numbers of a cgroup hold what is below it, which tells more.
    for (finding, _) in found.into_iter().zip(holds_another).filter(|(_, is_above)| !is_above) {
        let alike = kept.iter().rev().take_while(|other| other.rule == finding.rule).count();
        if alike < MOST_OF_A_RULE {
            kept.push(finding);
        }
    }
    explained::explain(kept)
}

/// Which findings are those of a cgroup above that of another one, by the same rule.
fn above_another(found: &[Finding]) -> Vec<bool> {
    let key = |finding: &Finding| (finding.rule.cause, finding.subject.clone());
    let mut above: BTreeMap<_, BTreeSet<&[u8]>> = BTreeMap::new();
    for finding in found {
        above.entry(key(finding)).or_default().extend(finding.path().into_iter().flat_map(ancestors));
    }
    let is_above = |finding: &Finding| finding.path().is_some_and(|path| above[&key(finding)].contains(path));
    found.iter().map(is_above).collect()
}

/// `part / (part + rest)` in per cent, where `part` is exact.
fn share_beside(part: f64, rest: &Known) -> Known {
    let of = |rest: f64| if part + rest > 0.0 { 100.0 * part / (part + rest) } else { 0.0 };
    Known { estimate: of(rest.estimate), low: of(rest.high), high: of(rest.low), ..*rest }
}

/// A count, which is exact, a second of `time`, which is in ns.
fn rate(count: &Known, time: &Known) -> Known {
    let per = |count: f64, ns: f64| if ns > 0.0 { count / (ns / 1e9) } else { f64::INFINITY };
    Known {
        estimate: per(count.estimate, time.estimate),
        low: per(count.low, time.high),
        high: per(count.high, time.low),
        coverage: count.coverage.min(time.coverage),
        how: How::Counted,
    }
}

/// CPU time of an owner that used at least so much of one CPU.
fn busy<'o>(report: &TasksReport, owner: &'o OwnerReport, least: f64) -> Option<&'o Known> {
    let time = owner.value(&metric::CPU_TIME)?;
    (time.low > least * report.length_ns as f64).then_some(time)
}

/// A number that is known exactly.
const fn exact(estimate: f64) -> Known {
    Known { estimate, low: estimate, high: estimate, coverage: 1.0, how: How::Counted }
}

#[cfg(test)]
mod tests {
    use super::{Cause, Finding, Known, exact, findings, rate, share_beside};
    use crate::{
        drain::{Header, Owner},
        metric::{
            OwnerOrTarget, Pressure, Report, TasksReport, Throttled,
            io::{IoReport, Label, Row, Scope, Subject},
            testing::{header, machine, with_late_ticks},
            value::{Distribution, How, Value},
        },
        model::histogram::Histogram,
        plan::Target,
        table::metric,
        untrusted::Untrusted,
    };

    fn between(low: f64, estimate: f64, high: f64) -> Known {
        Known { estimate, low, high, coverage: 0.5, how: How::Sampled }
    }

    #[test]
    fn what_may_be_below_the_threshold_is_none_nor_is_a_share_of_more_than_all() {
        let of =
            |low, high| Finding::of(Cause::HotFunction, between(low, (low + high) / 2.0, high)).is_some();
        assert!(of(30.1, 40.0) && of(99.0, 101.0));
        assert!(!of(30.0, 80.0) && !of(10.0, 20.0) && !of(120.0, 130.0));
    }

    #[test]
    fn rates_and_shares_are_as_sure_as_the_time_that_they_are_of() {
        let time = between(0.5e9, 1e9, 2e9);
        let per = rate(&exact(1000.0), &time);
        assert_eq!((per.low, per.estimate, per.high, per.coverage), (500.0, 1000.0, 2000.0, 0.5));
        let share = share_beside(1e9, &time);
        assert_eq!((share.estimate, share.high), (50.0, 1e11 / 1.5e9));
        assert_eq!(rate(&exact(1.0), &exact(0.0)).estimate, f64::INFINITY);
    }

    #[test]
    fn a_cgroup_above_one_that_is_found_tells_less_and_one_that_begins_as_it_does_is_another() {
        let of = |id, path: &str| Throttled {
            owner: Owner::cgroup(id, Untrusted::from(path)),
            periods: 100,
            share: Value::exact(50.0),
            time: Value::exact(1e9 * id as f64),
            limit: None,
        };
        let throttled = vec![of(1, "/"), of(2, "/web"), of(3, "/web/a"), of(4, "/webs")];
        let (header, ledger, interval) = with_late_ticks(Target::System, 1, 0);
        let tasks = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
        let tasks = Some(TasksReport { throttled, ..tasks });
        let header = Header::from(header);
        let found = findings(&header, &Report { tasks, ..Report::default() });
        let paths: Vec<_> = found.iter().filter_map(Finding::path).collect();
        assert_eq!(paths, [&b"/webs"[..], b"/web/a"]);
    }

    fn row(subject: Subject, metric: metric::Metric, value: Value) -> Row {
        let (metric, unit) = (metric.name.to_owned(), metric.unit);
        Row { subject, metric, unit, value, distribution: None, label: Label::System, note: None }
    }

    /// Requests of which all but a few took a millisecond.
    fn requests(subject: Subject, slow: u32, slow_ns: u64) -> Row {
        use pmu_common::histogram::BLOCK;
        let at = |ns: u64| BLOCK.bucket_of(ns) as u16;
        let histogram = Histogram::between(BLOCK, &[], &[(at(1_000_000), 1000), (at(slow_ns), slow)]);
        let max = histogram.last().unwrap();
        let found = Distribution { histogram, sum: 1, max, coverage: 1.0 };
        let row = row(subject, metric::BLOCK_LATENCY, Value::exact(1e6));
        Row { distribution: Some(Box::new(found)), ..row }
    }

    fn found(rows: Vec<Row>) -> Vec<Finding> {
        let io = Some(IoReport { rows, ..IoReport::default() });
        findings(&header(Target::System).into(), &Report { io, ..Report::default() })
    }

    #[test]
    fn a_disk_whose_last_per_cent_is_slow_is_found_with_whose_most_requests_are() {
        let disk = Subject::Disk(Untrusted::from("sda"), "read");
        let owner = Owner::cgroup(7, Untrusted::from("/db"));
        let of_owner = Subject::Owner(owner.clone(), Box::new(disk.clone()));
        let rows =
            |slow_ns| vec![requests(disk.clone(), 30, slow_ns), requests(of_owner.clone(), 20, slow_ns)];
        assert_eq!(found(rows(20_000_000)), []);
        let [slow] = &found(rows(200_000_000))[..] else { panic!("one of the disk") };
        assert_eq!((slow.rule.cause, slow.subject.as_ref()), (Cause::BlockLatency, Some(&disk)));
        assert!(slow.value.low <= 2e8 && slow.value.high >= 2e8);
        let whose = slow.evidence.iter().find_map(|evidence| evidence.whose.clone());
        assert_eq!(whose, Some(OwnerOrTarget::Owner(owner)));
    }

    #[test]
    fn memory_that_is_full_is_told_of_for_the_sockets_and_shares_only_of_enough_traffic() {
        let (socket, all) = (Subject::Scope(Scope::Socket(1)), Subject::Scope(Scope::Platform));
        let of = |subject: &Subject, metric, value| row(subject.clone(), metric, Value::exact(value));
        let full = [of(&all, metric::DRAM_UTILIZATION, 85.0), of(&socket, metric::DRAM_UTILIZATION, 92.0)];
        let subjects: Vec<_> = found(full.to_vec()).into_iter().map(|found| found.subject).collect();
        assert_eq!(subjects, [Some(socket.clone())]);
        let misses = |moved| {
            let rows = [
                of(&socket, metric::DDIO_WRITE_L3_MISS, 80.0),
                of(&socket, metric::PCIE_INBOUND_WRITE_BW, moved),
            ];
            found(rows.to_vec()).len()
        };
        assert_eq!((misses(900.0), misses(2000.0)), (0, 1));
        let remote = |part| {
            let rows = [
                of(&socket, metric::PCIE_INBOUND_READ_BW_REMOTE, part),
                of(&socket, metric::PCIE_INBOUND_READ_BW, 4000.0),
            ];
            found(rows.to_vec()).first().map(|found| (found.rule.cause, found.value.estimate))
        };
        assert_eq!((remote(1000.0), remote(3000.0)), (None, Some((Cause::RemoteDevice, 75.0))));
    }

    #[test]
    fn what_the_kernel_counts_of_disks_and_packets_is_found_where_there_is_enough_of_it() {
        let of = |subject: &Subject, metric, value| row(subject.clone(), metric, Value::exact(value));
        let causes = |subject: &Subject, share: (metric::Metric, f64), amount: (metric::Metric, f64)| {
            let rows = [of(subject, share.0, share.1), of(subject, amount.0, amount.1)];
            found(rows.to_vec()).iter().map(|found| found.rule.cause).collect::<Vec<_>>()
        };
        let disk = Subject::Disk(Untrusted::from("sda"), "all");
        let of_disk = |busy, depth| {
            causes(&disk, (metric::BLOCK_UTILIZATION, busy), (metric::BLOCK_QUEUE_DEPTH, depth))
        };
        assert_eq!((of_disk(99.0, 1.0), of_disk(80.0, 9.0)), (vec![], vec![]));
        assert_eq!(of_disk(99.0, 9.0), [Cause::DiskSaturated]);
        let eth0 = Subject::Interface(Untrusted::from("eth0"), "received");
        let drops = |share, count| causes(&eth0, (metric::NET_DROP_SHARE, share), (metric::NET_DROPS, count));
        assert_eq!((drops(5.0, 3.0), drops(0.05, 300.0)), (vec![], vec![]));
        assert_eq!(drops(0.2, 300.0), [Cause::PacketDrops]);
        let web = Owner::cgroup(7, Untrusted::from("/web"));
        let tcp = Subject::Owner(web, Box::new(Subject::Scope(Scope::Platform)));
        let again = |share, count| {
            causes(&tcp, (metric::NET_RETRANSMITTED_SHARE, share), (metric::NET_RETRANSMITTED, count))
        };
        assert_eq!((again(2.0, 20.0), again(2.0, 200.0)), (vec![], vec![Cause::Retransmits]));
    }

    #[test]
    fn pressure_is_found_of_cgroups_and_of_the_host_where_it_is_the_target() {
        let of = |whose, share| Pressure {
            whose,
            shares: vec![(metric::PRESSURE_IO_FULL, Value::exact(share))],
            of_ns: 1,
        };
        let causes = |target, pressure| {
            let (header, ledger, interval) = with_late_ticks(target, 1, 0);
            let tasks = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
            let tasks = Some(TasksReport { pressure: vec![pressure], ..tasks });
            let header = Header::from(header);
            let found = findings(&header, &Report { tasks, ..Report::default() });
            let causes = found.iter().map(|found| found.rule.cause);
            causes.filter(|cause| *cause == Cause::IoPressure).collect::<Vec<_>>()
        };
        let web = Owner::cgroup(7, Untrusted::from("/web"));
        let processes = || Target::Processes(vec![7]);
        assert_eq!(causes(processes(), of(None, 90.0)), []);
        assert_eq!(causes(Target::System, of(None, 90.0)), [Cause::IoPressure]);
        assert_eq!(causes(processes(), of(Some(web.clone()), 90.0)), [Cause::IoPressure]);
        assert_eq!(causes(processes(), of(Some(web), 40.0)), []);
    }
}
