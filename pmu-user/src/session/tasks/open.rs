//! Opens what a plan names: programs, targets, events. Nothing counts yet.

use std::{
    collections::HashSet,
    ops::Range,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use pmu_common::{
    cpu::{Control, ITERATOR_BYTES_WORD, ITERATOR_WORD, OF_USER_WORD},
    off_cpu::OffCpu as OffCpuTimes,
    owner::Rare,
    target::PathKey,
};
use tokio::io::unix::AsyncFd;

use super::{
    super::{SessionError, raise_file_limit, usage::Targets},
    TasksSession,
    budget::Budget,
    hotplug::Hotplug,
    interrupts::SeenInterrupts,
    multiplexing,
    owners::Owners,
    pressure::Pressures,
    ring_reader::RingReader,
    sampling,
    throttling::Limited,
};
use crate::{
    bpf::{Kernel, LoadError, Object, Refused, Ring},
    drain::{Absent, TasksDrain, TasksHeader},
    machine::{Machine, cgroup, kernel_symbols, privilege::Privileges},
    perf::Counter,
    plan::{
        Plan, Sampling, Target, in_step,
        multiplexing::Multiplexing,
        request::{Descend, OffCpu},
    },
    symbol::Symbols,
};

/// Functions of the kernel that the programs, and the list of what is missing, depend on.
const FUNCTIONS: [&[&str]; 2] = [&kernel_symbols::TICK, &kernel_symbols::CLOCK];

impl TasksSession {
    /// Loads and attaches everything that `plan` needs. Nothing counts yet. Needs CAP_BPF and CAP_PERFMON (and
    /// CAP_SYSLOG for kernel names), and a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel refused something. The error says what would help.
    pub(in crate::session) fn open(
        mut plan: Plan,
        machine: Arc<Machine>,
        root: &Path,
        kernel: &Kernel,
    ) -> Result<Self, SessionError> {
        raise_file_limit(descriptors(&plan, &machine) + 128);
        let functions = Functions::begin_to_find(&plan, root);
        let early = if sampling::may_shrink(&plan) { Some(sampling::open(&mut plan)?) } else { None };
        let mut object = Object::load(&plan, &machine, kernel)?;
        offer_slots(&mut object, plan.slots)?;
        add_tasks(&mut object, &plan)?;
        object.attach(&plan)?;
        add_cgroups(&mut object, &plan, &machine)?;
        let samplers = early.map_or_else(|| sampling::open(&mut plan), Ok)?;
        let anchors = bind(&mut object, &plan, &samplers)?;
        let rotations = open_counters(&mut plan, &object, root)?;
        let tick = functions.write(&object, &plan);
        let ring = watched_ring(&mut object)?;
        let (symbols, deaf) = listen(&plan, &machine);
        let mut missing = missing(&plan, &machine, &object, tick, root);
        missing.extend(deaf);
        let pressures = Pressures::open(&plan, &machine.cgroups, root, &mut missing);
        let waits = if plan.off_cpu == OffCpu::Yes { plan.slots as usize } else { 0 };
        Ok(Self {
            culprits: super::culprits::Culprits::new(machine.cpu.possible),
            seen_off_cpu: vec![OffCpuTimes::ZERO; waits],
            seen_rare: vec![Rare::ZERO; plan.slots as usize],
            interrupts: SeenInterrupts::default(),
            seen_changes: vec![(0, 0); plan.slots as usize * machine.cpu.possible as usize],
            hotplug: Hotplug::new(&plan, &machine.cpu.online, root),
            rotations,
            slices: Vec::new(),
            owners: Owners::new(plan.by, machine.cgroups.clone(), plan.slots, machine.cpu.possible),
            budget: Budget::of(&plan),
            header: header(plan, &object),
            missing,
            machine,
            object,
            samplers,
            anchors,
            ring,
            symbols,
            ring_reader: RingReader::default(),
            meter: None,
            table: 0,
            changed_rows: 0,
            lost_flushes: 0,
            missed_runs: 0,
            rarely: None,
            lost_readings: 0,
            lost_waits: 0,
            lost_targets: 0,
            ticks: 0,
            command: None,
            targets: Targets::default(),
            limited: Limited::default(),
            pressures,
            before: TasksDrain::default(),
            counted: 0,
            unseen: 0,
            samples_ended_ns: None,
            root: root.to_owned(),
        })
    }
}

/// Returns what is known before counting starts.
fn header(plan: Plan, object: &Object) -> TasksHeader {
    TasksHeader {
        started_ns: 0,
        started_boot_ns: 0,
        attach: object.loaded.attach_kind().name().to_owned(),
        attach_refused: object.loaded.refused().iter().map(refused).collect(),
        knows_steal: object.knows_steal(),
        excludes_steal: object.excludes_steal(),
        off_cpu: (plan.off_cpu == OffCpu::Yes).then(|| object.told_waits()),
        plan,
    }
}

/// Opens the counters per owner. If they were not requested, a failure leaves only them out: CPUs without a
/// slice count nothing.
fn open_counters(
    plan: &mut Plan,
    object: &Object,
    root: &Path,
) -> Result<Vec<multiplexing::Rotation>, SessionError> {
    match multiplexing::open(plan, &object.maps, root) {
        Err(error) if !plan.needs_metrics => {
            plan.give_up_metrics(error.to_string());
            Ok(Vec::new())
        }
        opened => opened,
    }
}

/// Functions of the kernel that are being looked up, on threads, because reading kallsyms takes as long as
/// loading the programs.
struct Functions {
    /// Addresses of [`FUNCTIONS`], zeros where they are not known.
    timers: JoinHandle<[u64; FUNCTIONS.len()]>,
    /// Address ranges of the iterators of sampled tracepoints, by event; `None` if there is no tracepoint.
    iterators: Option<JoinHandle<Vec<Range<u64>>>>,
}

impl Functions {
    fn begin_to_find(plan: &Plan, root: &Path) -> Self {
        let (root, again) = (root.to_owned(), root.to_owned());
        let names: Vec<String> = plan.sampling.iter().map(iterator).collect();
        let unknown = vec![0..0; names.len()];
        let has_tracepoints = plan.sampling.iter().any(Sampling::is_tracepoint);
        Self {
            timers: thread::spawn(move || {
                kernel_symbols::find_or_recall(&root, FUNCTIONS).unwrap_or_default()
            }),
            iterators: has_tracepoints
                .then(|| thread::spawn(move || kernel_symbols::extents(&again, &names).unwrap_or(unknown))),
        }
    }

    /// Writes what was found to the maps of the programs; returns the address of the tick's function.
    fn write(self, object: &Object, plan: &Plan) -> u64 {
        let iterators = self.iterators.map(|found| found.join().unwrap_or_default());
        set_iterators(object, plan, &iterators.unwrap_or_default());
        set_timers(object, self.timers.join().unwrap_or_default())
    }
}

/// Returns the name of the function that calls the probes of a tracepoint if there are several
/// (include/linux/tracepoint.h, `DECLARE_TRACE`).
fn iterator(event: &Sampling) -> String {
    let name = event.event.split(':').nth(1).filter(|_| event.is_tracepoint());
    name.map(|name| format!("__traceiter_{name}")).unwrap_or_default()
}

/// Writes the address range of each tracepoint's iterator, which is not the caller of the tracepoint, and
/// marks tracepoints of system calls. It writes them for every possible CPU, as one may come online later.
fn set_iterators(object: &Object, plan: &Plan, iterators: &[Range<u64>]) {
    for (event, found) in iterators.iter().enumerate() {
        let of_user = plan.sampling[event].is_of_system_call();
        for row in (event..object.maps.cpu_samples.len()).step_by(plan.events() as usize) {
            object.maps.cpu_samples.write_word(row, ITERATOR_WORD, found.start);
            object.maps.cpu_samples.write_word(row, ITERATOR_BYTES_WORD, found.end - found.start);
            object.maps.cpu_samples.write_word(row, OF_USER_WORD, of_user.into());
        }
    }
}

/// Returns the ring buffer's reader. To be called once.
fn watched_ring(object: &mut Object) -> Result<AsyncFd<Ring>, SessionError> {
    let ring = object.maps.take_ring().expect("the ring buffer is taken once, here");
    ring.watch().map_err(|error| SessionError::Io("cannot watch the ring buffer", error))
}

/// Returns the number of event descriptors that a plan takes.
fn descriptors(plan: &Plan, machine: &Machine) -> u64 {
    let counters = plan.turns.iter().map(Multiplexing::descriptors).sum::<usize>() + plan.events() as usize;
    // One more shows whether the CPU still has them, and another one reports mappings.
    ((counters + 1) * plan.cpus.len() + machine.cpu.online.len()) as u64
}

/// Offers all slots but the common one, the lowest to be taken first.
fn offer_slots(object: &mut Object, slots: u32) -> Result<(), SessionError> {
    for slot in (1..slots).rev() {
        object.maps.offer_slot(slot)?;
    }
    Ok(())
}

/// Binds a program to every sampling event. Returns the counters that hold those of tracepoints.
fn bind(
    object: &mut Object,
    plan: &Plan,
    samplers: &[sampling::Samplers],
) -> Result<Vec<Counter>, SessionError> {
    let mut anchors = Vec::new();
    for (index, (event, samplers)) in plan.sampling.iter().zip(samplers).enumerate() {
        if event.is_tracepoint() {
            let anchor = Counter::anchor(event)?;
            object.sample_at(index, &event.event, &anchor)?;
            anchors.push(anchor);
        } else {
            object.sample_on(index, samplers.iter().map(|sampler| &sampler.counter))?;
        }
    }
    Ok(anchors)
}

/// Follows processes. If samples need names, the kernel's records of mappings are followed. Returns the
/// reason if these are not available.
fn listen(plan: &Plan, machine: &Machine) -> (Symbols, Option<Absent>) {
    let mut symbols = Symbols::default();
    if plan.sampling.is_empty() && !plan.takes_off_cpu_stacks() {
        return (symbols, None);
    }
    // A process maps its files wherever it runs, not only where it is sampled.
    let deaf = symbols.listen(&machine.cpu.online).err().map(|error| Absent {
        what: "names of processes that are gone before they are looked at".to_owned(),
        why: format!("cannot open the kernel's records of mappings: {error}"),
    });
    (symbols, deaf)
}

/// Adds the target tasks to the programs' maps. This comes before they are attached: a task is judged when it
/// is first seen.
fn add_tasks(object: &mut Object, plan: &Plan) -> Result<(), LoadError> {
    let (Target::Processes(ids) | Target::Threads(ids)) = &plan.target else { return Ok(()) };
    ids.iter().try_for_each(|&id| object.maps.add_target(u64::from(id), 0))
}

/// Adds the target cgroups to the programs' maps, before counting: a cgroup is judged when something is first
/// counted in it. Once attached, the programs find new cgroups below those they have. It is over when a look
/// finds nothing new.
fn add_cgroups(object: &mut Object, plan: &Plan, machine: &Machine) -> Result<(), LoadError> {
    let Target::Cgroups(targets) = &plan.target else { return Ok(()) };
    // By its path, a cgroup that is created again is known before any task can enter it.
    targets.iter().try_for_each(|target| object.maps.add_target(PathKey::of(target.path.as_bytes()), 0))?;
    if plan.descend == Descend::No {
        return targets.iter().try_for_each(|target| object.maps.add_target(target.id.0, 0));
    }
    let mut known = HashSet::new();
    loop {
        let before = known.len();
        // A target that is gone by now needs nothing.
        for cgroup in targets.iter().filter_map(|target| machine.cgroups.list(&target.path).ok()).flatten() {
            if known.insert(cgroup.id) {
                object.maps.add_target(cgroup.id.0, 0)?;
            }
        }
        if known.len() == before {
            return Ok(());
        }
    }
}

/// Writes the timers that the running programs watch: the tick's function, which is returned, and the
/// sampling clock's.
fn set_timers(object: &Object, [tick, clock]: [u64; 2]) -> u64 {
    const TICK_WORD: usize = std::mem::offset_of!(Control, tick_function) / 8;
    const CLOCK_WORD: usize = std::mem::offset_of!(Control, clock_function) / 8;
    object.maps.control.write_word(0, TICK_WORD, tick);
    object.maps.control.write_word(0, CLOCK_WORD, clock);
    tick
}

fn refused(refused: &Refused) -> Absent {
    Absent { what: refused.attach.name().to_owned(), why: refused.why.clone() }
}

const OWN_NAMESPACE: &str = "this cgroup namespace has what is below its own cgroup: mount the host's hierarchy \
                             (-v /sys/fs/cgroup:/sys/fs/cgroup:ro), or start the container with --cgroupns=host";

fn missing(plan: &Plan, machine: &Machine, object: &Object, tick: u64, root: &Path) -> Vec<Absent> {
    let absent = |what: &str, why: &str| Absent { what: what.to_owned(), why: why.to_owned() };
    let mut missing = Vec::new();
    if let Some(why) = machine.no_core_pmu() {
        missing.push(absent("Top-Down and every hardware event", &why));
    } else if let Some(why) = &plan.no_metrics {
        missing.push(absent("Top-Down", why));
    }
    missing
        .extend(in_step(&plan.sampling, machine.cpu.tick_ns).iter().map(|lost| absent(&lost.row, &lost.why)));
    if tick == 0 {
        let (why, _) = Privileges::read(root).hides_symbols();
        missing.push(absent("blind time", &format!("the tick's timer is not in /proc/kallsyms: {why}")));
    }
    if !plan.unwind.is_fp() && !object.finds_user_registers {
        let why = "bpf_task_pt_regs takes Linux 5.15 and attaching by type (tp_btf): frame pointers are followed there";
        missing.push(absent("user stacks of samples in the kernel, unwound by DWARF", why));
    }
    if !object.knows_steal() && machine.cpu.guest {
        missing.push(absent("stolen time", "this kernel does not account it, so a stolen span looks masked"));
    }
    if object.confuses_limits() {
        let why = "this kernel keeps no clock of it (Linux 6.6), and programs on its functions take its types and no --attach raw-tp: run-queue latency has it";
        missing.push(absent("what limits of CPU time (cpu.max, cpu.cfs_quota_us) take of waits", why));
    }
    if object.without_vectors {
        let why = "this kernel has no tracepoints where they begin and end (irq_vectors, of x86 with CONFIG_TRACE_IRQ_VECTORS)";
        missing.push(absent("interrupt handlers of the processor's own vectors", why));
    }
    if plan.uses_cgroups() && !cgroup::sees_all(root) {
        missing.push(absent("names of cgroups outside of this container", OWN_NAMESPACE));
    }
    missing
}
