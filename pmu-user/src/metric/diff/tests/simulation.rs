//! Synthetic recordings: a program with two processes. Their load, waits and code vary from second to second
//! as real ones do, and each second correlates with the one before.

use std::time::Duration;

use pmu_common::{count::Count, histogram::RUNQUEUE, sample::SampleCount};

use super::super::{Recorded, Run};
use crate::{
    drain::{
        At, Code, CodeRow, CountRow, CountsDrain, CountsHeader, Drain, Header, Located, Name, Names, Owner,
        OwnerRow, SlotId, SourceRow, TasksDrain, counts::Part, reading::Reading,
    },
    machine::{cpu::Cpu, pmu::catalog::Catalog, testing::Tree},
    metric::testing::{Random, header},
    plan::{
        Target,
        count::{AskedEvent, CountPlan},
        request::Inherit,
    },
    table::event_syntax::{List, resolve},
    untrusted::Untrusted,
};

const SECOND_NS: u64 = 1_000_000_000;
/// Number of functions of each process.
const FUNCTIONS: usize = 8;
/// Share of a second's deviation that the next one has: an AR(1) process.
const MEMORY: f64 = 0.6;

/// Parameters of a simulated program. 1 is the usual value.
#[derive(Clone, Copy)]
pub(super) struct Program {
    pub(super) ticks: u64,
    /// Number of waits of each process a second.
    pub(super) waits: u32,
    pub(super) cpu_time: f64,
    /// Factor of the longest 3 % of waits: p99 moves with it, and p50 stays.
    pub(super) tail: f64,
    pub(super) ipc: f64,
}

pub(super) const PROGRAM: Program = Program { ticks: 60, waits: 150, cpu_time: 1.0, tail: 1.0, ipc: 1.0 };

/// Factor that varies around 1 by `deviation`, with memory.
struct Load {
    state: f64,
    deviation: f64,
}

/// Returns a sum of 12 uniform numbers: nearly normal, as far as 4 deviations.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0
}

fn rare(random: &mut Random, mean: f64) -> u64 {
    if mean < 30.0 {
        random.poisson(mean)
    } else {
        (mean + mean.sqrt() * normal(random)).round().max(0.0) as u64
    }
}

impl Load {
    fn new(random: &mut Random, deviation: f64) -> Self {
        Self { state: normal(random), deviation }
    }

    fn next(&mut self, random: &mut Random) -> f64 {
        self.state = MEMORY * self.state + (1.0 - MEMORY * MEMORY).sqrt() * normal(random);
        (self.deviation * self.state).exp()
    }
}

/// Process of the program: its counts so far, and the variation of its load.
struct Process {
    slot: SlotId,
    count: Count,
    samples: SampleCount,
    latencies: Vec<u32>,
    loads: [Load; 4],
    code: Vec<Load>,
}

impl Process {
    fn new(slot: u32, random: &mut Random) -> Self {
        Self {
            slot: SlotId { slot, generation: 0 },
            count: Count::ZERO,
            samples: SampleCount::ZERO,
            latencies: vec![0; RUNQUEUE.buckets],
            loads: [0.04, 0.08, 0.2, 0.05].map(|deviation| Load::new(random, deviation)),
            code: (0..FUNCTIONS).map(|_| Load::new(random, 0.15)).collect(),
        }
    }

    /// Simulates a second: returns its row, and the samples that hit its code.
    fn tick(&mut self, program: &Program, random: &mut Random) -> (CountRow, Vec<CodeRow>) {
        let [cpu, switches, faults, waiting] = self.loads.each_mut().map(|load| load.next(random));
        let cpu_time = 4e8 * cpu * program.cpu_time;
        self.count.cpu_time_ns += cpu_time as u64;
        self.count.voluntary_switches += rare(random, 1500.0 * switches);
        self.count.involuntary_switches += rare(random, 40.0 * switches);
        self.count.minor_faults += rare(random, 20.0 * faults);
        self.count.major_faults += rare(random, 0.3 * faults);
        self.count.migrations += rare(random, 3.0);
        for _ in 0..program.waits {
            // A sum of four: there are very many waits.
            let deviate = ((0..4).map(|_| random.uniform()).sum::<f64>() - 2.0) * 3_f64.sqrt();
            let tail = if deviate > 1.88 { program.tail } else { 1.0 };
            let wait = 40_000.0 * (0.8 * deviate).exp() * waiting * tail;
            self.latencies[RUNQUEUE.bucket_of(wait as u64) as usize] += 1;
            self.count.runs += 1;
            self.count.wait_ns += wait as u64;
            self.count.wait_max_ns = self.count.wait_max_ns.max(wait as u64);
        }
        let mut code = Vec::new();
        for (index, load) in self.code.iter_mut().enumerate() {
            let mean = cpu_time / 1e7 * load.next(random) / (index as f64 + 1.0);
            let hits = rare(random, mean);
            self.samples.user += hits;
            let at = At { source: 1, offset: u64::from(self.slot.slot) * 100 + index as u64 };
            if hits > 0 {
                code.push(CodeRow { slot: self.slot, at, count: hits, event: 0, cpu: None });
            }
        }
        let filled = self.latencies.iter().enumerate().filter(|(_, count)| **count > 0);
        let latencies = filled.map(|(index, count)| (index as u8, *count)).collect();
        let row = CountRow {
            slot: self.slot,
            cpu: Cpu(0),
            count: self.count,
            samples: vec![self.samples],
            latencies,
        };
        (row, code)
    }
}

/// Headers of simulated recordings, created once.
pub(super) struct Simulator {
    tasks: Header,
    counts: Header,
}

impl Simulator {
    pub(super) fn new() -> Self {
        let tasks = Header::from(header(Target::System));
        let counts = Some(CountsHeader { plan: plan() });
        Self { counts: Header { tasks: None, counts, ..tasks.clone() }, tasks }
    }

    /// Returns a recording of `pmbpf run`.
    pub(super) fn run(&self, program: &Program, random: &mut Random) -> Vec<Recorded> {
        let mut run = Run::new(&self.tasks, Vec::new()).unwrap();
        let mut processes = [1, 2].map(|slot| Process::new(slot, random));
        // Ids differ in every run.
        let first = random.below(30_000) as u32;
        let owner = |process: &Process| OwnerRow {
            slot: process.slot,
            owner: Owner::Process {
                pid: first + process.slot.slot,
                born_ns: 5,
                name: Untrusted::from(["server", "helper"][process.slot.slot as usize - 1]),
            },
            ended_ns: None,
        };
        let source = SourceRow {
            source: 1,
            build_id: None,
            unnamed: "no name was looked up".to_owned(),
            ..SourceRow::default()
        };
        let begin = TasksDrain {
            owners: processes.iter().map(owner).collect(),
            located: Located { sources: vec![source], ..Located::default() },
            ..TasksDrain::default()
        };
        run.drain(Drain::from(begin));
        for tick in 1..=program.ticks {
            let rows = processes.each_mut().map(|process| process.tick(program, random));
            let (counts, code): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
            run.drain(Drain::from(TasksDrain {
                at_ns: tick * SECOND_NS,
                ticks: tick,
                counts,
                located: Located { code: code.concat(), ..Located::default() },
                ..TasksDrain::default()
            }));
        }
        let name = |offset: u64| {
            let function = Untrusted::from(format!("function_{offset}").as_str());
            Name::new(At { source: 1, offset }, Ok(Code { function, ..Code::default() }))
        };
        let all = (1..=2).flat_map(|slot| (0..FUNCTIONS as u64).map(move |index| slot * 100 + index));
        run.name(&Names { names: all.map(name).collect(), ..Names::default() });
        run.finish("simulated", None)
    }

    /// Returns a recording of `pmbpf stat -I 1`.
    pub(super) fn stat(&self, program: &Program, random: &mut Random) -> Vec<Recorded> {
        let mut run = Run::new(&self.counts, Vec::new()).unwrap();
        let mut loads = [0.1, 0.03].map(|deviation| Load::new(random, deviation));
        let mut values = [0_u64; 2];
        for tick in 1..=program.ticks {
            let [cycles, ipc] = loads.each_mut().map(|load| load.next(random));
            values[0] += (3e9 * cycles) as u64;
            values[1] += (3e9 * cycles * 1.4 * ipc * program.ipc) as u64;
            let reading = |(index, value): (u32, u64)| Reading {
                index,
                event: String::new(),
                pmu: "cpu".to_owned(),
                cpu: Some(Cpu(0)),
                thread: None,
                value,
                enabled_ns: tick * SECOND_NS,
                running_ns: tick * SECOND_NS,
            };
            let readings = (0..).zip(values).map(reading).collect();
            run.drain(Drain {
                counts: Some(CountsDrain {
                    run: 1,
                    at: Duration::from_secs(tick),
                    parts: vec![Part { readings, uncounted: Vec::new() }],
                    ended: None,
                }),
                ..Drain::default()
            });
        }
        run.finish("simulated", None)
    }
}

/// Returns a plan of cycles and instructions, each second.
fn plan() -> CountPlan {
    let tree = Tree::new(&[]);
    tree.pmu("cpu", &[("type", "4"), ("format/event", "config:0-7")]);
    let groups =
        resolve(&List::parse("cycles,instructions").unwrap(), &Catalog::read(&tree.root).unwrap()).unwrap();
    let asked =
        |(name, index): (&str, u32)| AskedEvent { name: name.to_owned(), group: index, found: Ok(index) };
    CountPlan {
        target: Target::System,
        inherit: Inherit::Yes,
        cpus: vec![Cpu(0)],
        asked: ["cycles", "instructions"].into_iter().zip(0..).map(asked).collect(),
        groups,
        left_out: None,
        runs: 1,
        interval: Some(Duration::from_secs(1)),
        duration: None,
        places: Vec::new(),
        delay: None,
        if_possible: false,
    }
}
