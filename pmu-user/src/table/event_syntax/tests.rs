//! Tests of the notation against a machine made of files, and against any text.

use proptest::prelude::*;

use super::{
    List, Modifiers, ParsedEvent, ParsedGroup, Precise, Selected, SyntaxFault, Term, TermValue, What, Why,
    resolve, resolve_with,
};
use crate::{
    machine::{
        cpu::Cpu,
        pmu::{
            bits::Words,
            catalog::{Catalog, PmuCpus},
        },
        testing::Tree,
    },
    table::model::{Tables, read},
};

/// Returns a server like real ones: a core PMU with Top-Down, numbered uncore PMUs, and a name that begins
/// like another.
fn server() -> Tree {
    let tree = Tree::new(&[("sys/kernel/tracing/events/sched/sched_switch/id", "317")]);
    tree.pmu("software", &[("type", "1")]);
    tree.pmu(
        "cpu",
        &[
            ("type", "4"),
            ("format/event", "config:0-7"),
            ("format/umask", "config:8-15"),
            ("format/inv", "config:23"),
            ("format/ldlat", "config1:0-15"),
            ("events/cpu-cycles", "event=0x3c"),
            ("events/slots", "event=0x00,umask=0x4"),
            ("events/topdown-retiring", "event=0x00,umask=0x80"),
            ("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
            ("events/open", "event=?"),
        ],
    );
    for number in 0..3 {
        tree.pmu(
            &format!("uncore_imc_{number}"),
            &[
                ("type", &format!("{}", 20 + number)),
                ("cpumask", "0,28"),
                ("format/event", "config:0-7"),
                ("format/umask", "config:8-15,32-57"),
                ("events/read", "event=0x04,umask=0x03"),
                ("events/read.scale", "6.103515625e-5"),
                ("events/read.unit", "MiB"),
            ],
        );
    }
    tree.pmu(
        "uncore_imc_free_running_0",
        &[("type", "40"), ("cpumask", "0"), ("format/event", "config:0-7")],
    );
    tree
}

fn selected(text: &str) -> Result<Vec<Selected>, Why> {
    let server = server();
    let catalog = Catalog::read(&server.root).unwrap();
    let groups = resolve(&List::parse(text).unwrap(), &catalog).map_err(|error| error.why)?;
    Ok(groups.into_iter().flat_map(|group| group.events).collect())
}

fn one(text: &str) -> Selected {
    let mut all = selected(text).unwrap();
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0)
}

/// Returns the PMU, type and config of every instance.
fn places(text: &str) -> Vec<(String, u32, u64)> {
    one(text).instances.into_iter().map(|at| (at.pmu, at.kind, at.words.0[0])).collect()
}

fn cpu(kind: u32, config: u64) -> Vec<(String, u32, u64)> {
    vec![("cpu".to_owned(), kind, config)]
}

#[test]
fn an_event_of_the_kernel_s_has_its_number() {
    assert_eq!(places("Cycles"), cpu(0, 0));
    assert_eq!(places("page-faults"), [("software".to_owned(), 1, 2)]);
    assert_eq!(places("LLC-load-misses"), cpu(3, 0x1_0002));
    assert_eq!(places("r1c4"), cpu(4, 0x1c4));
    assert_eq!(places("sched:sched_switch"), [("tracepoint".to_owned(), 2, 317)]);
}

#[test]
fn an_event_in_sysfs_needs_no_pmu() {
    assert_eq!(places("slots"), cpu(4, 0x400));
    assert_eq!(one("mem-loads").instances[0].words, Words([0x1cd, 3, 0, 0]));
}

#[test]
fn later_terms_change_an_event_of_sysfs() {
    assert_eq!(one("cpu/mem-loads,ldlat=50/").instances[0].words, Words([0x1cd, 50, 0, 0]));
    assert_eq!(one("cpu/cycles,inv/").instances[0].words, Words([0x80_003c, 0, 0, 0]));
    assert_eq!(one("cpu/config=0xff00,config2=7,event=1/").instances[0].words, Words([0xff01, 0, 7, 0]));
}

#[test]
fn a_value_left_open_must_be_given() {
    assert_eq!(selected("cpu/open/"), Err(Why::NeedsValue("event".to_owned())));
    assert_eq!(places("cpu/open,event=5/"), cpu(4, 5));
}

#[test]
fn the_beginning_of_a_name_means_all_its_uncore_pmus() {
    let instances = |count: u32| -> Vec<(String, u32, u64)> {
        (0..count).map(|number| (format!("uncore_imc_{number}"), 20 + number, 4)).collect()
    };
    for text in ["uncore_imc/event=4/", "imc/event=4/", "uncore_imc_?/event=4/", "UNCORE_IMC/EVENT=4/"] {
        assert_eq!(places(text), instances(3), "{text}");
    }
    assert_eq!(places("imc_1/event=4/"), instances(2)[1..]);
    assert_eq!(places("*free*/event=4/"), [("uncore_imc_free_running_0".to_owned(), 40, 4)]);
}

#[test]
fn a_box_says_its_unit_and_its_cpus() {
    let read = one("uncore_imc/read/");
    assert_eq!((read.unit.as_deref(), read.scale), (Some("MiB"), 6.103_515_625e-5));
    assert_eq!(read.instances[2].place, PmuCpus::Uncore(vec![Cpu(0), Cpu(28)]));
}

#[test]
fn a_value_that_does_not_fit_names_the_largest() {
    let why = Why::TooLarge { term: "event".to_owned(), value: 0x100, max: 0xff };
    assert_eq!(selected("cpu/event=0x100/"), Err(why.clone()));
    assert_eq!(why.to_string(), "`event` cannot be 0x100: the largest value that fits its bits is 0xff");
}

#[test]
fn a_wide_umask_is_spread_over_its_ranges() {
    assert_eq!(places("imc_0/event=0x35,umask=0xc8f3fe04/")[0].2, 0x00c8_f3fe_0000_0435);
}

#[test]
fn what_is_not_there_names_the_nearest() {
    let near = |name: &str| vec![name.to_owned()];
    assert_eq!(selected("cylces"), Err(Why::NoEvent(near("cycles"))));
    assert_eq!(selected("slotz"), Err(Why::NoEvent(near("slots"))));
    assert_eq!(selected("cpi/event=1/"), Err(Why::NoPmu("cpi".to_owned(), near("cpu"))));
    let why = selected("cpu/umsk=1/").unwrap_err().to_string();
    assert_eq!(why, "the PMU `cpu` has neither a term nor an event `umsk`; did you mean umask?");
    let why = selected("sched:sched_swich").unwrap_err().to_string();
    assert_eq!(why, "there is no such tracepoint; did you mean sched_switch?");
}

#[test]
fn hardware_events_need_cores() {
    let tree = Tree::new(&[("sys/bus/event_source/devices/software/type", "1")]);
    let catalog = Catalog::read(&tree.root).unwrap();
    for text in ["cycles", "r1", "L1-dcache-loads"] {
        let error = resolve(&List::parse(text).unwrap(), &catalog).unwrap_err();
        assert_eq!(error.why, Why::NoCores, "{text}");
    }
}

#[test]
fn cores_that_differ_count_a_hardware_event_each() {
    let tree = Tree::new(&[]);
    tree.pmu("cpu_core", &[("type", "4"), ("cpus", "0-1")]);
    tree.pmu("cpu_atom", &[("type", "10"), ("cpus", "2-3")]);
    let catalog = Catalog::read(&tree.root).unwrap();
    let groups = resolve(&List::parse("{instructions,cpu-clock}").unwrap(), &catalog).unwrap();
    let configs: Vec<u64> = groups[0].events[0].instances.iter().map(|at| at.words.0[0]).collect();
    assert_eq!(configs, [4 << 32 | 1, 10 << 32 | 1]);
    assert!(groups[0].events[1].instance(1).is_some(), "a clock joins both");
}

#[test]
fn slots_leads_its_metrics() {
    let names: Vec<String> =
        selected("{topdown-retiring,slots}").unwrap().into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["slots", "topdown-retiring"]);
    assert_eq!(selected("topdown-retiring"), Err(Why::NeedsSlots));
    assert_eq!(selected("{cycles,topdown-retiring}"), Err(Why::NeedsSlots));
}

#[test]
fn a_group_is_one_pmu_s() {
    assert_eq!(selected("{cycles,imc_0/read/}"), Err(Why::Apart("cycles".to_owned())));
    assert_eq!(selected("{imc_0/read/,imc_1/read/}"), Err(Why::Apart("imc_0/read/".to_owned())));
    assert!(selected("{imc/read/,imc/event=1/}").is_ok());
    assert!(selected("{cycles,page-faults,sched:sched_switch}").is_ok());
}

#[test]
fn modifiers_of_a_group_hold_for_its_members() {
    let events = selected("{cycles:u,instructions}:kD").unwrap();
    assert!(events[0].modifiers.user && events[0].modifiers.kernel && events[1].modifiers.pinned);
    assert_eq!(events[1].name, "instructions:kD");
    assert_eq!(selected("{cpu/event=1/,cycles}:W").unwrap()[0].name, "cpu/event=1/");
}

#[test]
fn a_name_and_a_period_are_kept_and_a_frequency_is_not() {
    let named = one("cpu/event=1,name='my own',period=100/u");
    assert_eq!((named.name.as_str(), named.period, named.modifiers.user), ("my own", Some(100), true));
    assert_eq!(selected("cpu/event=1,freq=99/"), Err(Why::Frequency));
}

#[test]
fn a_tracepoint_takes_a_name_and_a_period() {
    let one = |text: &str| selected(text).unwrap().remove(0);
    let every = one("sched:sched_switch/period=7/k");
    assert_eq!((every.name.as_str(), every.period), ("sched:sched_switch:k", Some(7)));
    assert!(every.modifiers.kernel);
    assert_eq!(one("sched:sched_switch/name=switches/").name, "switches");
    assert_eq!(one("sched:sched_switch").period, None);
    let why = selected("sched:sched_switch/umask=1/").unwrap_err().to_string();
    assert!(why.contains("neither a term nor an event `umask`"), "{why}");
}

#[test]
fn letters_behind_a_colon_are_modifiers_and_names_are_tracepoints() {
    let what = |text: &str| List::parse(text).unwrap().groups[0].members[0].clone();
    assert_eq!(what("cycles:ukpp").modifiers.precise, Precise::Level(2));
    assert!(matches!(what("irq:softirq_entry").what, What::Tracepoint { .. }));
    assert!(what("slots:u").modifiers.user, "known in sysfs only");
    assert!(what("sched:sched_switch:u").modifiers.user);
}

#[test]
fn an_error_says_where() {
    let errors: [(&str, usize, SyntaxFault); 13] = [
        ("", 0, SyntaxFault::Missing("an event")),
        ("cycles,", 7, SyntaxFault::Missing("an event")),
        ("cycles:x", 7, SyntaxFault::Modifier('x')),
        ("cycles:uu", 8, SyntaxFault::Repeated('u')),
        ("cycles:pppp", 10, SyntaxFault::Repeated('p')),
        ("cpu/event=1", 11, SyntaxFault::Unclosed('/')),
        ("{cycles", 7, SyntaxFault::Unclosed('}')),
        ("{a,{b}}", 3, SyntaxFault::Nested),
        ("cpu/event=0x1ffffffffffffffff/", 10, SyntaxFault::Number("0x1ffffffffffffffff".to_owned())),
        ("größe", 2, SyntaxFault::Unexpected('ö')),
        ("cycles instructions", 7, SyntaxFault::Unexpected('i')),
        ("cycles\n", 6, SyntaxFault::Unexpected('\n')),
        ("cpu/name='\u{202e}'/", 10, SyntaxFault::Unexpected('\u{202e}')),
    ];
    for (text, at, kind) in errors {
        let error = List::parse(text).unwrap_err();
        assert_eq!((error.at, error.kind), (at, kind), "{text}");
    }
}

fn word() -> impl Strategy<Value = String> {
    // Uppercase, so that neither a kernel event nor modifiers nor a raw code come out by chance.
    "[A-C][A-C0-9_.-]{2,8}"
}

fn modifiers() -> impl Strategy<Value = Modifiers> {
    (any::<[bool; 9]>(), 0..=4_u8).prop_map(|(on, precise)| Modifiers {
        user: on[0],
        kernel: on[1],
        hypervisor: on[2],
        guest: on[3],
        host: on[4],
        not_idle: on[5],
        precise: if precise == 4 { Precise::Max } else { Precise::Level(precise) },
        sample_read: on[6],
        pinned: on[7],
        exclusive: on[8],
        weak: false,
    })
}

fn term() -> impl Strategy<Value = Term> {
    let value = prop_oneof![
        Just(None),
        any::<u64>().prop_map(|number| Some(TermValue::Number(number))),
        "[A-Z][A-Z ]{0,6}".prop_map(|text| Some(TermValue::Text(text))),
    ];
    (word(), value).prop_map(|(name, value)| Term { name, value })
}

fn event() -> impl Strategy<Value = ParsedEvent> {
    let what = prop_oneof![
        word().prop_map(What::Named),
        any::<u64>().prop_map(What::Raw),
        (word(), word(), proptest::collection::vec(term(), 0..3))
            .prop_map(|(system, name, settings)| What::Tracepoint { system, name, settings }),
        (word(), proptest::collection::vec(term(), 0..4)).prop_map(|(pmu, terms)| What::Pmu { pmu, terms }),
    ];
    (what, modifiers()).prop_map(|(what, modifiers)| ParsedEvent {
        what,
        modifiers,
        typed: String::new(),
        at: 0,
    })
}

fn list() -> impl Strategy<Value = List> {
    let alone = event().prop_map(|event| ParsedGroup {
        braces: false,
        members: vec![event],
        modifiers: Modifiers::default(),
    });
    let together = (proptest::collection::vec(event(), 1..4), modifiers())
        .prop_map(|(members, modifiers)| ParsedGroup { braces: true, members, modifiers });
    proptest::collection::vec(prop_oneof![alone, together], 1..5).prop_map(|groups| List { groups })
}

/// Returns the list without the positions and texts that only parsing sets.
fn bare(mut list: List) -> List {
    for event in list.groups.iter_mut().flat_map(|group| &mut group.members) {
        (event.typed, event.at) = (String::new(), 0);
    }
    list
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(list in list()) {
        let text = list.to_string();
        let read = List::parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(read.to_string(), text);
        prop_assert_eq!(bare(read), list);
    }

    #[test]
    fn no_text_breaks_the_parser(text in ".{0,60}") {
        let _ = List::parse(&text);
    }

    #[test]
    fn no_text_that_looks_like_events_breaks_the_resolver(text in "[a-z0-9_/,:={}'?* ]{0,40}") {
        if let Ok(list) = List::parse(&text) {
            let _ = resolve(&list, &Catalog::default());
        }
    }
}

/// Table with an event of the cores, one of uncore PMUs, and one with a term that this machine's PMU lacks.
const TABLE: &str = "pmbpf table 1\n\
    event\tINST.DONE\tcore\tevent=0xc0,umask=0x2\tany\t1000003\tprecise\n\
    event\tOCR.X\tcore\tevent=0x2a,offcore_rsp=0x1\tany\t0\t-\n\
    event\tUNC_M.RD\timc\tevent=0x5\tany\t0\t-\n";

#[test]
fn a_name_of_the_table_is_an_event_of_the_pmu_that_counts_it() {
    let catalog = Catalog::read(&server().root).unwrap();
    let model = Tables::of_any(read(TABLE).unwrap());
    let resolve = |text: &str| resolve_with(&List::parse(text).unwrap(), &catalog, &model);
    let core = resolve("inst.done:u").unwrap().remove(0).events.remove(0);
    assert_eq!((core.name.as_str(), core.instances[0].words), ("inst.done:u", Words([0x2c0, 0, 0, 0])));
    assert!(core.modifiers.user);
    assert_eq!(resolve("UNC_M.RD").unwrap()[0].events[0].instances.len(), 3);
    assert!(matches!(resolve("OCR.X").unwrap_err().why, Why::NoTerm { term, .. } if term == "offcore_rsp"));
    assert!(matches!(resolve("INST.DOEN").unwrap_err().why, Why::NoEvent(near) if near == ["INST.DONE"]));
}

#[test]
fn a_name_of_the_table_needs_its_pmu() {
    let (model, none) = (Tables::of_any(read(TABLE).unwrap()), Catalog::default());
    let why = |text: &str| resolve_with(&List::parse(text).unwrap(), &none, &model).unwrap_err().why;
    assert_eq!(why("INST.DONE"), Why::NoCores);
    assert!(matches!(why("UNC_M.RD"), Why::NoPmu(name, _) if name == "imc"));
}

#[test]
fn a_breakpoint_has_an_address_a_length_and_an_access() {
    let watched = |text: &str| {
        let catalog = Catalog::read(&server().root).unwrap();
        let event = resolve(&List::parse(text).unwrap(), &catalog).unwrap()[0].events[0].clone();
        (event.instances[0].kind, event.instances[0].words, event.modifiers.user, event.name)
    };
    let words = |access, bytes| Words([access, 0x1000, bytes, 0]);
    let name = |text: &str| text.to_owned();
    assert_eq!(watched("mem:0x1000:w"), (5, words(2, 4), false, name("mem:0x1000:w")));
    assert_eq!(watched("mem:0x1000"), (5, words(3, 4), false, name("mem:0x1000")));
    assert_eq!(watched("mem:4096/8:rw:u"), (5, words(3, 8), true, name("mem:4096/8:rw:u")));
    assert_eq!(watched("mem:0x1000:x"), (5, words(4, 8), false, name("mem:0x1000:x")));
    assert_eq!(watched("mem:0x1000:u"), (5, words(3, 4), true, name("mem:0x1000:u")));
    let refused = |text: &str| List::parse(text).unwrap_err().kind;
    assert_eq!(refused("mem:0x1000:ww"), SyntaxFault::Repeated('w'));
    assert!(matches!(refused("mem:nowhere:w"), SyntaxFault::Missing(_)));
    assert!(matches!(refused("mem:0x1000/x:w"), SyntaxFault::Missing(_)));
    let catalog = Catalog::read(&server().root).unwrap();
    let odd = resolve(&List::parse("mem:0x1000/3:w").unwrap(), &catalog).unwrap_err();
    assert_eq!(odd.why, Why::BreakpointSize(3));
}

#[test]
fn user_mode_stands_behind_the_modifiers_that_a_name_has() {
    for (name, in_user_mode) in [
        ("cycles", "cycles:u"),
        ("cycles:pp", "cycles:ppu"),
        ("sched:sched_switch", "sched:sched_switch:u"),
        ("cpu/cycles/", "cpu/cycles/u"),
    ] {
        let event = List::parse(name).unwrap().groups[0].members[0].clone();
        assert_eq!(event.modifiers.in_user_mode(name), in_user_mode);
    }
}
