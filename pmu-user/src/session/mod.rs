//! One run: opens what the plan says, starts it, drains it at every tick, and closes it by being dropped.

mod collect;
mod cost;
mod inbox;
pub mod launch;
mod owners;
mod run;

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use pmu_common::{
    config::TARGET_FROM_EXEC,
    cpu::{COUNTED_WORD, Control},
    loss,
};
use tokio::io::unix::AsyncFd;

use self::{collect::Changes, cost::Meter, inbox::Inbox, owners::Owners};
pub use self::{
    cost::Measure,
    run::{Outcome, Stop, run},
};
use crate::{
    bpf::{LoadError, Object, Options, Ring, release_memory},
    drain::{Absent, Drain, Header},
    machine::{
        Machine,
        cpu::{self, Cpu, Times},
        kernel_symbols,
    },
    perf::{Counter, OpenError},
    plan::{Plan, Target},
    symbol::Symbols,
};

/// Time that looking up names may take at the end: a report is due within two seconds of a signal.
const NAMING: Duration = Duration::from_millis(1200);

/// Why a session could not be opened or went wrong.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A program or map.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An event.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Anything else the system refused.
    #[error("{0}: {1}")]
    Io(&'static str, io::Error),
}

/// Everything that is open during a run.
pub struct Session {
    /// What is known before the first drain.
    pub header: Header,
    object: Object,
    counters: Vec<Counter>,
    ring: AsyncFd<Ring>,
    owners: Owners,
    symbols: Symbols,
    inbox: Inbox,
    meter: Option<Meter>,
    /// Which hot-address table the programs write.
    table: u32,
    seen_changes: Vec<Changes>,
    /// How many rows had changed at the last drain.
    changed_rows: usize,
    /// Samples by address in the whole run, to name the hottest first.
    hotness: HashMap<(u32, u64), u64>,
    lost_flushes: u64,
    ticks: u64,
    root: PathBuf,
}

impl Session {
    /// Loads and attaches everything that `plan` needs. Nothing counts yet. Needs CAP_BPF and CAP_PERFMON (and
    /// CAP_SYSLOG for kernel names), and a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel refused something; the error knows what would help.
    pub fn open(plan: Plan, machine: Machine, root: &Path, options: &Options) -> Result<Self, SessionError> {
        raise_file_limit(plan.cpus.len() as u64 + 128);
        let symbols_root = root.to_owned();
        // Reading kallsyms takes as long as loading the programs.
        let lists: [&[&str]; 2] = [&kernel_symbols::TICK, &kernel_symbols::CLOCK];
        let functions = thread::spawn(move || kernel_symbols::find(&symbols_root, lists));
        let mut object = Object::load(&plan, &machine, root, options)?;
        for slot in (1..plan.slots).rev() {
            object.maps.offer_slot(slot)?;
        }
        add_targets(&mut object, &plan)?;
        object.attach(&plan)?;
        let counters = match &plan.sampling {
            None => Vec::new(),
            Some(sampling) => {
                plan.cpus.iter().map(|&cpu| Counter::open(sampling, cpu)).collect::<Result<_, _>>()?
            }
        };
        if !counters.is_empty() {
            object.sample_on(&counters)?;
        }
        let functions = functions.join().ok().and_then(Result::ok).unwrap_or_default();
        set_functions(&object, functions);
        let ring = object.maps.take_ring().expect("the ring buffer is taken once, here");
        let ring = ring.watch().map_err(|error| SessionError::Io("cannot watch the ring buffer", error))?;
        let rows = plan.slots as usize * machine.cpu.possible as usize;
        let missing = missing(&machine, &object, functions[0]);
        Ok(Self {
            owners: Owners::new(plan.by, machine.cgroups.clone(), plan.slots),
            header: Header {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                started_unix_ns: 0,
                started_ns: 0,
                attach: object.attach_kind().name().to_owned(),
                knows_steal: object.knows_steal(),
                missing,
                machine,
                plan,
            },
            object,
            counters,
            ring,
            symbols: Symbols::default(),
            inbox: Inbox::default(),
            meter: None,
            table: 0,
            seen_changes: vec![(0, 0); rows],
            changed_rows: 0,
            hotness: HashMap::new(),
            lost_flushes: 0,
            ticks: 0,
            root: root.to_owned(),
        })
    }

    /// Makes a process that waits to become a command the target.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn target_command(&mut self, pid: u32) -> Result<(), SessionError> {
        Ok(self.object.maps.add_target(u64::from(pid), TARGET_FROM_EXEC)?)
    }

    /// Starts counting. `launched` is when this process began, for what starting cost.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn start(&mut self, measure: Measure, launched: Instant) -> Result<(), SessionError> {
        self.object.prime()?;
        release_memory();
        self.flush();
        self.read_ring();
        self.inbox = Inbox::default();
        self.header.started_ns = monotonic_ns();
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.header.started_unix_ns = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        for cpu in &self.header.plan.cpus {
            self.object.maps.cpus.write_word(cpu.0 as usize, COUNTED_WORD, 1);
        }
        for counter in &self.counters {
            counter.enable().map_err(|error| SessionError::Io("cannot start the sampling event", error))?;
        }
        self.meter = Some(Meter::start(&self.object, measure, launched.elapsed()));
        Ok(())
    }

    /// The first drain: what the CPUs' rows hold before counting is not ours.
    ///
    /// # Errors
    ///
    /// As for [`Session::drain`].
    pub fn baseline(&mut self) -> Result<Drain, SessionError> {
        let times = self.times();
        Ok(Drain { times, ..self.drain(false)? })
    }

    /// Reads everything that has happened since the last drain.
    ///
    /// # Errors
    ///
    /// A slot could not be freed.
    pub fn drain(&mut self, regular: bool) -> Result<Drain, SessionError> {
        let begun = Instant::now();
        self.ticks += u64::from(regular);
        self.flush();
        let now_ns = monotonic_ns();
        // The ring first: it brings the paths of cgroups that may be gone already.
        self.read_ring();
        let mut drain = Drain {
            at_ns: now_ns.saturating_sub(self.header.started_ns),
            ticks: self.ticks,
            owners: self.owners.look(&self.object.maps, self.header.started_ns),
            cpus: self.cpu_rows(),
            counts: self.count_rows(),
            hot: self.hot_rows(),
            stacks: self.inbox.take_stacks(&self.owners),
            gaps: self.inbox.take_gaps(&self.owners, self.header.started_ns),
            losses: self.user_losses(),
            ..Drain::default()
        };
        let pressed = std::mem::take(&mut self.inbox.pressed);
        let freed =
            self.owners.recycle(&mut self.object.maps, self.header.machine.cpu.possible, now_ns, pressed)?;
        self.forget_changes(&freed);
        self.locate(&mut drain);
        self.object.flush_log();
        if let Some(meter) = &mut self.meter {
            drain.programs = meter.programs(&self.object, &drain.cpus);
            meter.refreshed(begun.elapsed());
            drain.cost = meter.process();
        }
        Ok(drain)
    }

    /// Where the addresses that the drain brought lie, while their processes live.
    fn locate(&mut self, drain: &mut Drain) {
        for row in &drain.hot {
            *self.hotness.entry((row.tgid, row.address)).or_default() += row.count;
        }
        let hot = drain.hot.iter().map(|row| (row.tgid, row.address));
        let stacks = drain.stacks.iter().flat_map(|row| {
            let kernel = row.kernel.iter().map(|&address| (0, address));
            kernel.chain(row.user.iter().map(|&address| (row.tgid, address)))
        });
        let gaps = drain.gaps.iter().flat_map(|gap| gap.stack.iter().map(|&address| (0, address)));
        drain.places = self.symbols.locate(hot.chain(stacks).chain(gaps));
    }

    /// Stops counting and drains for the last time, with the names of what was hot.
    ///
    /// # Errors
    ///
    /// As for [`Session::drain`].
    pub fn finish(&mut self) -> Result<Drain, SessionError> {
        let mut last = self.drain(true)?;
        last.times = self.times();
        for cpu in &self.header.plan.cpus {
            self.object.maps.cpus.write_word(cpu.0 as usize, COUNTED_WORD, 0);
        }
        self.counters.clear();
        let hotness = std::mem::take(&mut self.hotness);
        let weight = |tgid, address| hotness.get(&(tgid, address)).copied().unwrap_or(0);
        last.places.extend(self.symbols.name_all(Instant::now() + NAMING, weight));
        if let Some(meter) = &self.meter {
            last.cost = meter.process();
        }
        Ok(last)
    }

    /// Where the kernel says the time of the counted CPUs went.
    fn times(&self) -> Vec<(Cpu, Times)> {
        let times = cpu::times(&self.root).unwrap_or_default();
        times.into_iter().filter(|(cpu, _)| self.header.plan.cpus.contains(cpu)).collect()
    }

    /// A freed slot's rows are zero again, and so is what was last seen of them.
    fn forget_changes(&mut self, freed: &[u32]) {
        let cpus = self.header.machine.cpu.possible as usize;
        for &slot in freed {
            let first = slot as usize * cpus;
            self.seen_changes[first..first + cpus].fill((0, 0));
        }
    }

    fn user_losses(&self) -> Vec<(String, u64)> {
        let losses = [("cpu_not_flushed", self.lost_flushes), ("record_unreadable", self.inbox.unreadable)];
        losses
            .into_iter()
            .filter(|&(_, count)| count > 0)
            .map(|(reason, count)| (reason.to_owned(), count))
            .collect()
    }
}

fn add_targets(object: &mut Object, plan: &Plan) -> Result<(), LoadError> {
    let ids: Vec<u64> = match &plan.target {
        Target::System | Target::Command(_) => Vec::new(),
        Target::Processes(ids) | Target::Threads(ids) => ids.iter().map(|&id| u64::from(id)).collect(),
        Target::Cgroups(cgroups) => cgroups.iter().map(|cgroup| cgroup.id.0).collect(),
    };
    ids.into_iter().try_for_each(|id| object.maps.add_target(id, 0))
}

/// Tells the running programs which timers to watch.
fn set_functions(object: &Object, [tick, clock]: [u64; 2]) {
    const TICK_WORD: usize = std::mem::offset_of!(Control, tick_function) / 8;
    const CLOCK_WORD: usize = std::mem::offset_of!(Control, clock_function) / 8;
    object.maps.control.write_word(0, TICK_WORD, tick);
    object.maps.control.write_word(0, CLOCK_WORD, clock);
}

fn missing(machine: &Machine, object: &Object, tick: u64) -> Vec<Absent> {
    let absent = |what: &str, why: &str| Absent { what: what.to_owned(), why: why.to_owned() };
    let mut missing = Vec::new();
    if let Some(why) = machine.no_core_pmu() {
        missing.push(absent("Top-Down and every hardware event", &why));
    }
    if tick == 0 {
        missing.push(absent(
            "blind time",
            "the tick's timer is not in /proc/kallsyms; see kernel.kptr_restrict",
        ));
    }
    if !object.knows_steal() && machine.cpu.guest {
        missing.push(absent("stolen time", "this kernel does not account it, so a stolen span looks masked"));
    }
    missing
}

/// CLOCK_MONOTONIC, the programs' clock.
fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// One descriptor per CPU and event, and some for files: up to the hard limit the choice is ours.
fn raise_file_limit(needed: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|soft| soft < needed + 1024) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// Reasons for losses that only user space knows, beside [`loss::NAMES`].
pub const USER_LOSSES: [&str; 2] = ["cpu_not_flushed", "record_unreadable"];
const _: usize = loss::REASONS;
