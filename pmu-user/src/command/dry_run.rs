//! `--dry-run`: list of what would be opened, by label, without opening anything.

mod io;

use std::time::Duration;

use super::sources::Sources;
use crate::{
    machine::{Machine, cpu::format_list, duration_ns, pmu::catalog::PmuCpus},
    perf::Counting,
    plan::{
        Plan, Sampling, Target,
        count::CountPlan,
        in_step,
        metrics::Metrics,
        multiplexing::{EventGroup, Multiplexing},
        request::Descend,
    },
    session::counts::count_targets,
    table::event_syntax::{Instance, Precise},
    view::{
        list::{Cell, Listing, Look},
        text::{duration, percent},
    },
};

/// Returns the plan of each source.
pub(super) fn listing(sources: &Sources) -> Listing {
    let mut planned = Planned::default();
    if let Some(plan) = &sources.tasks {
        planned.begin("tasks");
        tasks(&mut planned, plan, &sources.machine);
    }
    if let Some((plan, _)) = &sources.io {
        planned.begin("io");
        io::plan(&mut planned, plan);
    }
    if let Some((plan, _)) = &sources.counts {
        planned.begin("counts");
        counts(&mut planned, plan, &sources.machine);
    }
    planned.listing()
}

/// List of what would be opened, one row per fact.
#[derive(Default)]
struct Planned {
    sources: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Planned {
    /// Begins the plan of another source.
    fn begin(&mut self, source: &'static str) {
        self.sources.push(source);
    }

    fn says(&mut self, what: &str, value: &str) {
        self.row(what, value, None, "");
    }

    /// Adds a row with the number in its sentence, for machines.
    fn row(&mut self, what: &str, value: &str, number: Option<u64>, unit: &str) {
        let source = self.sources.last().copied().unwrap_or_default();
        let [source, what, value, unit] = [source, what, value, unit].map(Cell::text);
        self.rows.push(vec![source, what, value, number.map_or(Cell::Empty, Cell::Number), unit]);
    }

    /// Adds a time, or the meaning of its absence.
    fn time(&mut self, what: &str, time: Option<Duration>, none: &str) {
        let words = time.map_or_else(|| none.to_owned(), |time| duration(time.as_nanos() as f64));
        self.row(what, &words, time.map(duration_ns), if time.is_some() { "ns" } else { "" });
    }

    /// Adds the report interval and the duration of a run.
    fn times(&mut self, interval: Option<Duration>, length: Option<Duration>) {
        self.time("interval", interval, "none: one report at the end");
        self.time("duration", length, "until it is stopped, or the target is gone");
    }

    fn listing(self) -> Listing {
        Listing {
            kind: "planned",
            columns: &["source", "what", "value", "number", "unit"],
            // A single source needs no label.
            hidden: if self.sources.len() > 1 { &["number", "unit"] } else { &["source", "number", "unit"] },
            look: Look::Sheet("value"),
            rows: self.rows,
            notes: Vec::new(),
        }
    }
}

fn tasks(planned: &mut Planned, plan: &Plan, machine: &Machine) {
    planned.says("target", &plan.target_in_words());
    planned.says("owners", &format!("by {:?}, at most {}", plan.by, plan.slots - 1).to_lowercase());
    planned.says("cpus", &format_list(&plan.cpus));
    if plan.sampling.is_empty() {
        planned.says("sampling", "off");
    }
    plan.sampling.iter().for_each(|event| planned.says("sampling", &sampling(event)));
    if let Some(profile) = &plan.profile {
        planned.says("config", profile);
    }
    in_step(&plan.sampling, machine.cpu.tick_ns)
        .iter()
        .for_each(|lost| planned.says("missing", &format!("{}: {}", lost.row, lost.why)));
    plan.lost.iter().for_each(|lost| planned.says("lost", &format!("{}: {}", lost.row, lost.why)));
    let unwound = if plan.unwind.is_fp() { "" } else { ", unwound by DWARF" };
    let blocked = if plan.takes_off_cpu_stacks() { ", and of tasks that block" } else { "" };
    planned.says("stacks", &(format!("{:?}", plan.stacks).to_lowercase() + unwound + blocked));
    planned.time("tick", Some(plan.tick), "");
    planned.times(plan.interval, plan.duration);
    if let Some(budget) = plan.budget {
        planned.says("budget", &format!("{} % of the CPUs, beyond which work is stopped", budget * 100.0));
    }
    planned.says("gaps", &format!("listed from {}", duration(plan.gap_min_ns as f64)));
    for (turns, metrics) in plan.by_core_type() {
        counters(planned, plan, (turns, metrics));
    }
    let on = |event: &Sampling| plan.cpus.iter().filter(|&&cpu| event.is_on(cpu)).count();
    let of_cores =
        |(turns, metrics): (&Multiplexing, &Metrics)| turns.descriptors() * plan.cpus_of(metrics).len();
    let events =
        plan.sampling.iter().map(on).sum::<usize>() + plan.by_core_type().map(of_cores).sum::<usize>();
    // One event per CPU shows whether the CPU still has the others.
    let events = events + if plan.has_events() { plan.cpus.len() } else { 0 };
    planned.row("events", &format!("{events} descriptors"), Some(events as u64), "descriptors");
    let rows = u64::from(plan.slots) * u64::from(machine.cpu.possible) * plan.row_bytes();
    let memory = format!("{rows} bytes of rows, {} bytes of ring buffer", plan.ring_bytes);
    planned.row("memory", &memory, Some(rows + u64::from(plan.ring_bytes)), "bytes");
    planned.says("needs", "cap_bpf, cap_perfmon; cap_syslog for kernel names");
    if let Some(why) = machine.no_core_pmu() {
        planned.says("missing", &format!("Top-Down and every hardware event: {why}"));
    } else if let Some(why) = &plan.no_metrics {
        planned.says("missing", &format!("Top-Down: {why}"));
    }
}

/// Adds groups of counters, how often each has its turn, and what they are for.
fn counters(planned: &mut Planned, plan: &Plan, (turns, metrics): (&Multiplexing, &Metrics)) {
    let Metrics { model, formulas, source, .. } = metrics;
    let on = metrics
        .core_type
        .as_ref()
        .map_or(String::new(), |cores| format!(" on {}, cpu {}", cores.pmu, format_list(&cores.cpus)));
    planned.says("metrics", &format!("{model}{on}, formulas {formulas}, from {source}"));
    metrics.notes.iter().for_each(|note| planned.says("note", note));
    turns_of(planned, plan, (turns, metrics.first_groups().len()));
    for metric in &metrics.measured {
        let groups: Vec<String> = metric.groups.iter().map(u32::to_string).collect();
        let place = match (groups.len(), plan.runs()) {
            (0, None) => "all the time".to_owned(),
            (0, Some(_)) => "in every run".to_owned(),
            (_, Some(_)) => format!("in the run of group {}", groups.join(" ")),
            (1, None) => format!("group {}, {} of the time", groups[0], percent(metric.coverage)),
            _ => format!("groups {}, {} of the time each", groups.join(" "), percent(metric.coverage)),
        };
        planned.says("measures", &format!("{} (level {}): {place}", metric.name, metric.level));
    }
    metrics.missing.iter().for_each(|(name, why)| planned.says("missing", &format!("{name}: {why}")));
    metrics.holds.iter().for_each(|hold| planned.says("held", hold));
}

/// Adds the groups of the counters of one core PMU; `first` of them have turns from the start.
fn turns_of(planned: &mut Planned, plan: &Plan, (turns, first): (&Multiplexing, usize)) {
    let names = |group: &EventGroup| {
        group.events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let always: Vec<String> = turns.always.iter().map(|group| format!("{{{}}}", names(group))).collect();
    planned.says("always", &always.join(" "));
    let groups = turns.groups.len();
    let slice = duration(turns.slice.as_nanos() as f64);
    let at_first =
        if first < groups { format!(", {first} of them until a node is flagged") } else { String::new() };
    match plan.runs() {
        Some(runs) => {
            let words = format!("{runs} of the command, each with one of {groups} groups");
            planned.row("runs", &words, Some(runs.into()), "runs");
        }
        None => {
            let order = format!("{groups} groups, about {slice} each, in random order{at_first}");
            planned.row("turns", &order, Some(groups as u64), "groups");
        }
    }
    for (index, group) in turns.groups.iter().enumerate() {
        planned.says("group", &format!("{index} {{{}}}", names(group)));
    }
}

fn sampling(sampling: &Sampling) -> String {
    let asked = sampling.frequency.map(|hz| format!(", from {hz} Hz")).unwrap_or_default();
    let more: Vec<String> = sampling
        .more_config
        .iter()
        .zip(1..)
        .filter(|(word, _)| **word != 0)
        .map(|(word, number)| format!(", config{number} {word:#x}"))
        .collect();
    let precise = match sampling.precise {
        Precise::Level(0) => String::new(),
        Precise::Level(level) => format!(", precise level {level}"),
        Precise::Max => ", as precise as can be had".to_owned(),
    };
    format!(
        "{} (type {}, config {:#x}{}), period {}{asked}{precise}",
        sampling.event,
        sampling.kind,
        sampling.config,
        more.concat(),
        sampling.period
    )
}

fn counts(planned: &mut Planned, plan: &CountPlan, machine: &Machine) {
    let of_cpus = matches!(plan.target, Target::System | Target::Cgroups(_));
    planned.says("target", &plan.target.in_words(plan.inherit, Descend::Yes));
    if of_cpus {
        planned.says("cpus", &format_list(&plan.cpus));
    }
    let events: Vec<_> = plan.events().collect();
    let mut group = None;
    for asked in &plan.asked {
        let label = if group.replace(asked.group) == Some(asked.group) { "with" } else { "event" };
        match &asked.found {
            Ok(index) => {
                let found = events.get(*index as usize).into_iter().flat_map(|event| &event.instances);
                found.for_each(|at| planned.says(label, &format!("{} ({})", asked.name, instance(at))));
            }
            Err(why) => planned.says(label, &format!("{}: not supported here: {why}", asked.name)),
        }
    }
    planned.row("runs", &plan.runs.to_string(), Some(plan.runs.into()), "runs");
    plan.places.first().iter().for_each(|place| planned.says("rows", &format!("of each {}", place.kind())));
    if plan.delay.is_some() {
        planned.time("delay", plan.delay, "");
    }
    planned.times(plan.interval, plan.duration);
    let targets = count_targets(plan, machine, None);
    let counters: usize = targets.iter().map(|target| Counting::planned(&plan.groups, target)).sum();
    let words = format!("{counters} descriptors, no BPF program");
    planned.row("events", &words, Some(counters as u64), "descriptors");
    // Holds where `kernel.perf_event_paranoid` is as on most hosts.
    let needs =
        if of_cpus { "cap_perfmon" } else { "cap_perfmon to count in the kernel; none for user mode (:u)" };
    planned.says("needs", needs);
    plan.left_out.iter().for_each(|why| planned.says("missing", why));
}

/// Describes an event on one PMU, as it is passed to the kernel.
fn instance(at: &Instance) -> String {
    let place = match &at.place {
        PmuCpus::Anywhere => String::new(),
        PmuCpus::Cores(cpus) => format!(", cores {}", format_list(cpus)),
        PmuCpus::Uncore(cpus) => format!(", uncore on cpu {}", format_list(cpus)),
    };
    let words: Vec<String> = at.words.0.iter().map(|word| format!("{word:#x}")).collect();
    let used = words.iter().rposition(|word| word != "0x0").map_or(1, |last| last + 1);
    format!("{}, type {}, config {}{place}", at.pmu, at.kind, words[..used].join(" "))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Planned, counts, tasks};
    use crate::{
        machine::Machine,
        plan::{
            Plan, Target,
            count::{AskedEvent, CountPlan},
            metrics::{self, Depth, Multiplex},
            request::{Inherit, Request, WantedMetrics},
        },
        view::{Format, text::Style},
    };

    /// Returns the text of a plan.
    pub(super) fn shown(add: impl FnOnce(&mut Planned)) -> String {
        let mut planned = Planned::default();
        planned.begin("tasks");
        add(&mut planned);
        let (mut bytes, style) = (Vec::new(), Style::default());
        planned.listing().write(&mut bytes, &style, Format::Text).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// Returns the text for three levels on the simulated machine, and the number of groups that they take.
    fn printed(multiplex: Multiplex) -> (String, usize) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines/simulated-two-dies");
        let (model, depth) = (Some("sapphirerapids".to_owned()), Depth::Level(3));
        let metrics =
            metrics::MetricsRequest { model, depth, multiplex, ..metrics::MetricsRequest::default() };
        let request = Request { metrics: WantedMetrics::Required(metrics), ..Request::default() };
        let machine = Machine::read(&root).unwrap();
        let plan = Plan::new(&request, &machine, &root).unwrap();
        (shown(|planned| tasks(planned, &plan, &machine)), plan.turns[0].groups.len())
    }

    #[test]
    fn it_says_how_often_the_command_would_run() {
        let (runs, groups) = printed(Multiplex::Runs);
        let line = format!("\n  runs      {groups} of the command, each with one of {groups} groups\n");
        assert!(groups > 1 && runs.contains(&line), "{runs}");
        assert!(runs.contains("\n  measures  L2_Bound (level 3): in the run of group "), "{runs}");
        assert!(runs.contains("\n  measures  Retiring (level 1): in every run\n"), "{runs}");
        let (turns, groups) = printed(Multiplex::Yes);
        assert!(turns.contains(&format!("\n  turns     {groups} groups, about ")), "{turns}");
    }

    #[test]
    fn an_event_that_the_host_lacks_is_named_with_the_reason() {
        let asked = AskedEvent { name: "cycles".to_owned(), group: 0, found: Err("no PMU".to_owned()) };
        let plan = CountPlan {
            target: Target::Processes(vec![42]),
            inherit: Inherit::No,
            cpus: Vec::new(),
            asked: vec![asked],
            groups: Vec::new(),
            left_out: Some("branches: no PMU".to_owned()),
            runs: 1,
            interval: None,
            duration: None,
            places: Vec::new(),
            delay: None,
            if_possible: false,
        };
        let text = shown(|planned| counts(planned, &plan, &crate::metric::testing::machine()));
        let lines = ["  event     cycles: not supported here: no PMU", "  missing   branches: no PMU"];
        assert!(lines.iter().all(|line| text.lines().any(|there| there == *line)), "{text}");
    }

    #[test]
    fn plans_of_several_sources_are_one_table_with_a_row_of_each() {
        let plan = |planned: &mut Planned, source| {
            planned.begin(source);
            planned.row("events", "7 descriptors", Some(7), "descriptors");
        };
        let written = |format| {
            let mut planned = Planned::default();
            ["tasks", "io"].iter().for_each(|source| plan(&mut planned, source));
            let (mut bytes, style) = (Vec::new(), Style::default());
            planned.listing().write(&mut bytes, &style, format).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let csv = written(Format::Csv);
        let lines: Vec<_> = csv.lines().collect();
        let rows = ["tasks,events,7 descriptors,7,descriptors", "io,events,7 descriptors,7,descriptors"];
        assert_eq!(lines, ["source,what,value,number,unit", rows[0], rows[1]]);
        let rows = crate::schema::rows(&written(Format::Json));
        assert_eq!((&rows[1]["source"], &rows[1]["number"]), (&"io".into(), &7.into()));
        assert!(written(Format::Text).contains("  io     events  7 descriptors"));
    }
}
