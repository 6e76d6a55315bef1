//! Cost of a report every second of a large machine's uncore PMUs, after they were read: estimating their
//! counts and writing JSON. `cargo xtask bench io` runs it. Needs no privilege.
//!
//! The machine is the made one of two Sapphire Rapids with all devices known. It has as many uncore PMUs of
//! the cache as the largest of them. Counts are made up. Prints a line: uncore PMUs, numbers reported a
//! second, CPU time a second in ms. A file that is named gets the reports.

#![expect(clippy::unwrap_used, reason = "a bench that panics says where")]

#[path = "../unpack.rs"]
mod unpack;

use std::{
    fs::File,
    io::{self, Write as _, stdout},
    time::Duration,
};

use pmbpf::{
    drain::{
        Header,
        io::{IoDrain, IoHeader, UncoreSlice},
    },
    machine::{Machine, io::Platform, pmu::catalog::Catalog},
    metric::{
        Report,
        io::{History, IoReport, Prepared},
    },
    model::io::{IoInterval, IoLedger},
    plan::{
        io::{
            IoPlan, UncoreKind,
            request::{IoRequest, Reporting},
        },
        request::{Descend, Inherit, Target},
    },
    view::{Format, View, text::Style},
};

/// Machine name and description. The text is included, because the bench also runs in guests, which have no
/// folder of ours.
const NAME: &str = "made-sapphire-rapids-two-sockets";
const MADE: &str = include_str!("../machines/made-sapphire-rapids-two-sockets.made");
/// Number of reports.
const SECONDS: u64 = 20;
const SECOND_NS: u64 = 1_000_000_000;
/// Number of cache boxes, of all sockets.
const CHA: usize = 120;

fn main() -> io::Result<()> {
    let made = unpack::machine(NAME, MADE);
    let catalog = Catalog::read(&made.root).unwrap();
    let (machine, platform) = (Machine::read(&made.root).unwrap(), Platform::read(&made.root, &catalog));
    let second = Some(Duration::from_secs(1));
    let request = IoRequest {
        target: Target::System,
        inherit: Inherit::Yes,
        descend: Descend::Yes,
        model: None,
        report: Reporting::default(),
        interval: second,
        duration: None,
        ..IoRequest::default()
    };
    let mut plan = IoPlan::new(&request, &machine, &catalog, &platform, &made.root).unwrap();
    plan.kinds.iter_mut().filter(|kind| kind.name == "cha").for_each(grow);
    let instances: usize = plan.kinds.iter().map(|kind| kind.instances.len()).sum();
    let drains: Vec<IoDrain> = (1..=SECONDS).map(|second| drain(&plan, second)).collect();
    let header = Header {
        version: String::new(),
        started_unix_ns: 0,
        machine,
        missing: Vec::new(),
        tasks: None,
        io: Some(IoHeader { platform, plan }),
        counts: None,
        begins_midway: false,
    };
    let named = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let into: Box<dyn io::Write> = match named {
        Some(file) => Box::new(File::create(file)?),
        None => Box::new(io::sink()),
    };
    let (numbers, time) = reported(&header, drains, into)?;
    let each = SECONDS as f64;
    writeln!(stdout(), "{instances} {} {}", numbers as f64 / each, time.as_secs_f64() * 1e3 / each)
}

/// Adds instances to a kind, like its existing ones.
fn grow(kind: &mut UncoreKind) {
    let known = kind.instances.clone();
    for (number, site) in (0_u32..).zip(known.iter().cycle()).take(CHA).skip(known.len()) {
        let mut site = site.clone();
        site.unit = number;
        kind.instances.push(site);
    }
}

/// Returns the readings of a session in a second: groups in turn, on all instances of a kind at once.
fn drain(plan: &IoPlan, second: u64) -> IoDrain {
    let mut uncore = Vec::new();
    for (number, kind) in (0_u32..).zip(&plan.kinds) {
        let slice_ns = kind.turns.slice.as_nanos() as u64;
        let each = SECOND_NS / slice_ns;
        for slice in (second - 1) * each..second * each {
            let group = slice % kind.turns.groups.len() as u64;
            let events = kind.turns.groups[group as usize].events.len() as u64;
            for at in 0..kind.instances.len() as u64 {
                let count = |event: u64| (slice * 7919 + at * 104_729 + event * 1_299_709) % 1_000_003;
                uncore.push(UncoreSlice {
                    kind: number,
                    at: at as u32,
                    slice,
                    group: group as u32,
                    ended_ns: slice * slice_ns,
                    counts: (0..events).map(count).collect(),
                    enabled_ns: slice_ns,
                    running_ns: slice_ns,
                });
            }
        }
    }
    uncore.sort_by_key(|slice| slice.ended_ns);
    IoDrain { at_ns: second * SECOND_NS, uncore, ..IoDrain::default() }
}

/// Returns the number of reported values, and the CPU time used.
fn reported(
    header: &Header,
    drains: Vec<IoDrain>,
    into: Box<dyn io::Write>,
) -> io::Result<(usize, Duration)> {
    let io = header.io.as_ref().expect("the header was made with a part of I/O");
    let prepared = Prepared::new(io, &header.machine.topology).unwrap();
    let mut ledger = IoLedger::new(&io.plan);
    let (mut history, mut total) = (History::new(&io.plan), IoInterval::default());
    let mut view = View::new(header, Format::Json, Style::default(), into);
    let (mut numbers, begun) = (0, cpu_time());
    for drain in drains {
        let tick = ledger.advance(drain);
        history.add(&prepared, &ledger, &tick);
        let report = IoReport::new(&prepared, &ledger, &tick);
        history.add_interval(&report);
        numbers += report.rows.len();
        view.interval(&Report { io: Some(report), ..Report::default() })?;
        total.append(tick);
    }
    Ok((numbers, cpu_time() - begun))
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
