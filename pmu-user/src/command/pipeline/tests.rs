//! Tests of reports from drains as they were read, and from the same drains out of a recording.

use std::{path::Path, time::Duration};

use pmu_common::io::block::BlockCount;

use super::{CGROUPS_MAX, Pipeline, lost};
use crate::{
    drain::{
        Absent, CgroupName, Cost, Drain, Ending, Stopped,
        io::{
            IoDrain, IoHeader, Named, UncoreSlice,
            group::{GroupOwner, GroupRow, Groups},
            testing::{always_running, drains, header, machine, requesters, steady},
            traffic::{Retired, Traffic},
        },
        recording::{Overwrite, Recording, Writer},
    },
    machine::{
        cgroup::Layout,
        container::Identity,
        io::{
            Fact,
            resctrl::{
                Domain, Monitoring, MonitoringGroup,
                testing::{group, host},
            },
        },
        testing::{Tree, processor},
    },
    metric::Report,
    schema,
    session::io::groups::Monitored,
    untrusted::Untrusted,
    view::{
        Format,
        text::{Style, percent},
    },
};

fn report(header: &IoHeader, drains: &[IoDrain], format: Format) -> String {
    let mut bytes = Vec::new();
    let style = Style { blocks: false, ..Style::default() };
    let header = header.clone().into();
    let mut pipeline = Pipeline::new(&header, None, (format.into(), style), Box::new(&mut bytes)).unwrap();
    drains.iter().for_each(|drain| drop(pipeline.drain(drain.clone().into()).unwrap()));
    pipeline.finish(&ending()).unwrap();
    drop(pipeline);
    let text = String::from_utf8(bytes).unwrap();
    if format == Format::Json {
        schema::rows(&text);
    }
    text
}

/// Returns what is read back from a recording of I/O.
fn recorded(path: &Path, header: &IoHeader, drains: &[IoDrain]) -> (IoHeader, Vec<IoDrain>) {
    let mut writer = Writer::create(path, Overwrite::No, &header.clone().into()).unwrap();
    drains.iter().for_each(|drain| writer.drain(&drain.clone().into()).unwrap());
    writer.end(&ending()).unwrap();
    let read = Recording::read(path).unwrap();
    (read.header.io.clone().unwrap(), read.io().cloned().collect())
}

fn ending() -> Ending {
    Ending { stopped: Stopped::Duration, workload: None, duration: Duration::from_secs(5), usage: None }
}

#[test]
fn what_is_lost_of_io_is_said_too() {
    let report = |losses: &[(&str, u64)]| {
        let losses = losses.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
        Report { losses, ..Report::default() }
    };
    assert_eq!(lost(&report(&[("io_slots", 3), ("io_nested", 0)])).as_deref(), Some("lost: io_slots 3"));
    assert_eq!(lost(&report(&[("io_slots", 0)])), None);
}

#[test]
fn a_recording_gives_the_report_of_the_run_in_every_format() {
    let (header, tree) = (header(), Tree::new(&[("folder", "")]));
    let mut drains = drains(&header);
    let what = "0000:3b:00.0".to_owned();
    drains.last_mut().unwrap().gone = vec![Absent { what, why: "the device vanished".to_owned() }];
    let path = tree.root.join("io.pmbpf");
    let read = recorded(&path, &header, &drains);
    for format in [Format::Text, Format::Json, Format::Csv] {
        let live = report(&header, &drains, format);
        assert_eq!(report(&read.0, &read.1, format), live);
        assert!(live.contains("0000:3b:00.0") || format == Format::Csv, "{live}");
        assert!(live.contains("web\\xff") || live.contains("web\\\\xff"), "{live}");
    }
}

/// Changes the first row of `traffic` as if its owner had received a new one when all of `before` had been
/// counted.
fn begin_anew(traffic: &mut Traffic, before: &Traffic) {
    let (row, old) = (&mut traffic.block[0], &before.block[0]);
    row.count.requests -= old.count.requests;
    row.count.bytes -= old.count.bytes;
    row.count.latency_ns -= old.count.latency_ns;
    let counted = |bucket: u16| old.latency.iter().find(|known| known.0 == bucket).map_or(0, |known| known.1);
    row.latency.iter_mut().for_each(|(bucket, count)| *count -= counted(*bucket));
    row.latency.retain(|&(_, count)| count > 0);
    let (count, old) = (&mut traffic.net[0].count, &before.net[0].count);
    for (way, kind) in [0, 1].into_iter().flat_map(|way| [0, 1, 2].map(|kind| (way, kind))) {
        count.packets[way][kind] -= old.packets[way][kind];
        count.bytes[way][kind] -= old.bytes[way][kind];
    }
}

#[test]
fn a_report_is_the_same_whether_or_not_rows_were_given_up() {
    let header = header();
    let mut drains = drains(&header);
    let formats = [Format::Text, Format::Json, Format::Csv];
    let whole = formats.map(|format| report(&header, &drains, format));
    let before = drains[2].traffic.clone().unwrap();
    drains[3..].iter_mut().for_each(|drain| begin_anew(drain.traffic.as_mut().unwrap(), &before));
    let (block, net) = (vec![before.block[0].clone()], vec![before.net[0].clone()]);
    drains[3].traffic.as_mut().unwrap().retired = Retired { block, net };
    assert_eq!(formats.map(|format| report(&header, &drains, format)), whole);
}

/// Sets counts as if uncore PMUs had counted for longer than any run, and owners had reached the maximum. In
/// the next drain the counts are lower.
fn overdo(drain: &mut IoDrain) {
    for slice in &mut drain.uncore {
        (slice.enabled_ns, slice.running_ns) = (u64::MAX, u64::MAX);
    }
    let traffic = drain.traffic.as_mut().unwrap();
    for (at, block) in (0..).zip(&mut traffic.block) {
        let most = u64::MAX - at;
        block.count = BlockCount {
            requests: most,
            bytes: most,
            latency_ns: most,
            queued: most,
            queue_ns: most,
            unstarted: most,
            errors: most,
            requeued: most,
            ..block.count
        };
    }
    for net in &mut traffic.net {
        (net.count.packets, net.count.bytes) = ([[u64::MAX; 3]; 2], [[u64::MAX; 3]; 2]);
    }
}

#[test]
fn a_recording_may_hold_anything() {
    let mut header = header();
    let mut drains = drains(&header);
    let odd = |kind, at, group, counts: &[u64]| UncoreSlice {
        kind,
        at,
        group,
        slice: 3,
        counts: counts.to_vec(),
        enabled_ns: 10,
        running_ns: 20,
        ..UncoreSlice::default()
    };
    drains[1].uncore.extend([
        odd(u32::MAX, 0, 0, &[1]),
        odd(0, u32::MAX, 0, &[1]),
        odd(0, 0, u32::MAX, &[1]),
        odd(0, 0, 0, &[]),
        odd(1, 0, 0, &[u64::MAX; 40]),
    ]);
    overdo(&mut drains[2]);
    drains[2].traffic.as_mut().unwrap().block[0].latency = vec![(u16::MAX, 7), (3, 1)];
    // Time that goes backwards, an empty last drain, and intervals shorter than half a tick.
    drains.swap(3, 4);
    drains.push(IoDrain::default());
    // Groups inside themselves, with one name, and with counts that are too many, too few and too large.
    let domain = |counts: &[u64]| Domain {
        name: Untrusted::from("mon_L3_00"),
        counts: counts.iter().copied().map(Fact::Known).collect(),
    };
    let group = |id, of, counts: &[u64]| GroupRow {
        group: MonitoringGroup {
            id,
            path: Untrusted::from("/x"),
            of,
            domains: vec![domain(counts)],
            again: Vec::new(),
        },
        whose: GroupOwner::Of(Vec::new()),
    };
    for (tick, drain) in drains.iter_mut().enumerate() {
        let rows = vec![
            group(1, Some(1), &[u64::MAX]),
            group(1, Some(2), &[]),
            group(2 + tick as u64 % 2, None, &[u64::MAX, 1, 2, 3]),
            GroupRow { whose: GroupOwner::Nobody("\u{1b}".to_owned()), ..group(7, None, &[u64::MAX; 3]) },
        ];
        drain.groups = Some(Groups { at_ns: u64::MAX - tick as u64, rows, untold: Vec::new() });
    }
    header.plan.monitoring = Monitoring::find(&host().root, &processor()).unwrap().ok();
    let mut hasty = header.clone();
    hasty.plan.interval = Some(Duration::from_nanos(1));
    for header in [&header, &hasty] {
        for format in [Format::Text, Format::Json, Format::Csv] {
            assert!(!report(header, &drains, format).is_empty());
        }
    }
}

/// Rates of 2,000 MB/s written and 10 read at a stack and at the part of another, by metrics, and by counters
/// that always run. One test multiplies the latter by eight.
const RATES: [(&str, u64); 3] =
    [("OF_CPU.MEM_WRITE", 500_000_000), ("CMPD", 2_500_000), ("bw_in_port1", 62_812_500)];

#[test]
fn counters_that_always_run_agree_where_it_can_be_seen() {
    let header = always_running();
    let drains = steady(&header, 4, &RATES);
    let text = report(&header, &drains, Format::Text);
    let line = "check of part 0/0/1: bw_in agrees in 4 of 4 ticks: metrics say 2010 MB/s, the counter that always runs 2010 (×1.00)";
    assert!(text.contains(line) && text.contains(&line.replace("part 0/0/1", "stack 0/1")), "{text}");
    assert!(!text.contains("differs"), "{text}");
    let json = report(&header, &drains, Format::Json);
    let check =
        json.lines().find(|line| line.contains(r#""kind":"check""#) && line.contains("0/0/1")).unwrap();
    let check: serde_json::Value = serde_json::from_str(check).unwrap();
    assert_eq!((check["verdict"].as_str(), check["counter"].as_str()), (Some("agrees"), Some("bw_in")));
    for side in ["metrics", "always"] {
        assert!((check[side].as_f64().unwrap() - 2010.0).abs() < 1e-6, "{side}: {check}");
    }
    assert_eq!(check["ticks"], serde_json::json!({"agreed": 4, "compared": 4}));
    let little = json.lines().find(|line| line.contains(r#""verdict":"little""#)).unwrap();
    assert!(
        little.contains(r#""ratio":null"#) && text.contains("2 checks say nothing: less than 100 MB/s"),
        "{little}"
    );
    let csv = report(&header, &drains, Format::Csv);
    assert!(csv.contains("part,0/0/1,,free.bw_in.ratio,1,"), "{csv}");
    assert!(csv.contains("part,0/0/1,,free.bw_in,MB/s,2010,"), "{csv}");
    assert!(!csv.contains("part,0/0/1,,free.bw_in_port"), "a part has no counter of another: {csv}");
}

#[test]
fn counters_that_differ_are_a_warning_with_both_numbers_and_what_it_looks_like() {
    let (mut header, mut rates) = (always_running(), RATES);
    rates[2].1 *= 8;
    header.plan.interval = Some(header.plan.tick);
    let drains = steady(&header, 4, &rates);
    let text = report(&header, &drains, Format::Text);
    let warning = text.lines().find(|line| line.contains("check of stack 0/1")).unwrap();
    let words = "bw_in differs: metrics say 2010 MB/s, the counter that always runs 16080 (×0.125), like a unit of 32 bytes \
                 taken for 4; agrees in 0 of 4 ticks";
    assert!(warning.contains(words), "{warning}");
    let json = report(&header, &drains, Format::Json);
    let rows = json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let of_part = rows.filter(|row| row["metric"] == "free.bw_in.ratio" && row["subject"]["at"] == "0/0/1");
    let ratios: Vec<f64> = of_part.map(|row| row["value"].as_f64().unwrap()).collect();
    assert!(ratios.len() == 4 && ratios.iter().all(|ratio| (ratio - 0.125).abs() < 1e-6), "{ratios:?}");
    assert!(json.contains(r#""verdict":"differs""#) && json.contains("32 bytes taken for 4"), "{json}");
}

#[test]
fn a_device_that_its_iommu_counts_alone_is_a_row_of_its_own_in_every_format() {
    let mut header = requesters();
    let drains = steady(&header, 4, &[("iotlb_lookup", 1_000_000), ("iotlb_hit", 900_000)]);
    let all = report(&header, &drains, Format::Csv);
    let rows: Vec<&str> = all.lines().filter(|line| line.contains(",vtd.iotlb_miss,")).collect();
    assert_eq!(rows.len(), 3, "{all}");
    assert!(
        rows[0]
            .contains(",function,Ethernet,0000:16:00.0,vtd.iotlb_miss,%,10,10,10,,,1,counted,ok,,,measured,"),
        "{all}"
    );
    let text = report(&header, &drains, Format::Text);
    let line = text.lines().find(|line| line.contains("0000:27:00.1 Ethernet")).unwrap();
    assert!(line.contains("1.00") && line.contains("10.0"), "{text}");
    assert!(text.contains("one requester alone"), "{text}");
    header.plan.report.devices = vec!["27:00.1".to_owned()];
    let json = report(&header, &drains, Format::Json);
    let rows = json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let subjects: Vec<_> =
        rows.filter(|row| row["metric"] == "vtd.iotlb_miss").map(|row| row["subject"].clone()).collect();
    let expected = serde_json::json!({"kind": "function", "address": "0000:27:00.1", "name": "Ethernet"});
    assert_eq!(subjects, [expected], "only the device that was named");
}

/// Reads the groups of a synthetic host at five ticks, between which their counts and threads change, and
/// reports them.
#[test]
fn groups_of_a_host_become_rows_of_their_owners_in_every_format() {
    let tree = host();
    tree.write("sys/fs/cgroup/web/cgroup.threads", "7\n");
    ["proc/7/comm", "proc/8/comm"].iter().for_each(|path| tree.write(path, "server\n"));
    let mut header = header();
    header.plan.kinds.clear();
    header.plan.interval = None;
    header.plan.monitoring = Monitoring::find(&tree.root, &processor()).unwrap().ok();
    let layout = Layout { v2: Some(tree.root.join("sys/fs/cgroup")), ..Layout::default() };
    let reader = Monitored::new(&header.plan, &layout, &tree.root, None).unwrap();
    let mut drains = Vec::new();
    for second in 0..5 {
        // The whole includes the group: 300 MB/s outside of it, 200 MB/s of the group.
        group(&tree, "", [1_000_000_000 + second * 500_000_000, 0], &[]);
        group(&tree, "mon_groups/web", [second * 200_000_000, 3_000_000], &[7]);
        if second == 4 {
            // Another thread enters the group.
            group(&tree, "mon_groups/web", [second * 200_000_000, 3_000_000], &[7, 8]);
        }
        let at_ns = second * 1_000_000_000;
        drains.push(IoDrain { at_ns, groups: Some(reader.drain(at_ns)), ..IoDrain::default() });
    }
    let path = tree.root.join("io.pmbpf");
    let read = recorded(&path, &header, &drains);
    let [text, json, csv] =
        [Format::Text, Format::Json, Format::Csv].map(|format| report(&read.0, &read.1, format));
    let row = |of: &str, start: &str| {
        let row = of.lines().find(|line| line.contains(start));
        row.unwrap_or_else(|| panic!("no {start} in {of}")).to_owned()
    };
    let web = row(&csv, "cgroup,/web,,platform,,,dram.cpu_total_bw");
    assert!(
        web.contains(",MB/s,200,200,200,") && web.contains(",scaled,") && web.contains("measured"),
        "{web}"
    );
    let rest = row(&csv, "group,/,,dram.cpu_total_bw");
    assert!(rest.contains(",MB/s,300,300,300,") && rest.contains("system"), "{rest}");
    assert!(row(&csv, "cgroup,/web,,platform,,,llc.occupancy").contains(",MB,3,3,3,"));
    let web: serde_json::Value = serde_json::from_str(&row(&json, "\"path\":\"/web\"")).unwrap();
    assert_eq!((&web["owner"]["kind"], &web["subject"]["kind"]), (&"cgroup".into(), &"platform".into()));
    assert!(row(&text, "web: all").contains("200"), "{text}");
    assert!(row(&text, "missing   memory traffic of /web").contains("known for "), "{text}");
    assert!(text.contains("group /: it counts for whatever is in no group of its own"), "{text}");
    assert!(text.contains("it holds threads of cgroups that cannot be seen from here"), "{text}");
    (header.plan.tick, header.plan.interval) = (Duration::from_secs(1), Some(Duration::from_secs(2)));
    let csv = report(&header, &drains, Format::Csv);
    let of_web: Vec<&str> =
        csv.lines().filter(|line| line.contains("/web,,platform,,,dram.cpu_total_bw,MB/s,200,")).collect();
    assert!(of_web[0].starts_with("0,2000000000,") && of_web[0].contains(",1,counted,ok,"), "{csv}");
    assert!(of_web[1].starts_with("2000000000,2000000000,") && of_web[1].contains(",0.5,scaled,"), "{csv}");
}

#[test]
fn what_starting_cost_is_told_apart_from_the_share_of_the_cpus_while_counting() {
    let header = header();
    let drain =
        |at_ns, cpu_ns| IoDrain { at_ns, cost: Cost { cpu_ns, ..Cost::default() }, ..IoDrain::default() };
    let drains = [drain(0, 80_000_000), drain(3_000_000, 80_300_000)];
    let cpus = machine().cpu.online.len() as u64;
    let row = schema::rows(&report(&header, &drains, Format::Json)).pop().unwrap();
    let fields = ["cpu_ns", "startup_cpu_ns", "counting_cpu_ns", "capacity_ns"];
    let fields = fields.map(|field| row["self"][field].as_u64().unwrap());
    assert_eq!(fields, [80_300_000, 80_000_000, 300_000, 3_000_000 * cpus]);
    let text = report(&header, &drains, Format::Text);
    let share = percent(0.1 / cpus as f64);
    let line =
        format!("process   300 µs CPU while it counted ({share} of the CPUs), 80.0 ms before, 0 after");
    assert!(text.contains(&line), "{text}");
}

#[test]
fn names_of_cgroups_that_nobody_knows_any_more_are_forgotten() {
    let header = header().into();
    let mut pipeline =
        Pipeline::new(&header, None, (Format::Json.into(), Style::default()), Box::new(std::io::sink()))
            .unwrap();
    let named = |path: String| CgroupName { path: path.into(), identity: Identity::default() };
    let io = || IoDrain { names: vec![Named { cgroup: 7, path: "/kept".into() }], ..IoDrain::default() };
    let mut drain = Drain { cgroups: vec![named("/kept".to_owned())], ..io().into() };
    drain.cgroups.extend((0..CGROUPS_MAX - 1).map(|number| named(format!("/{number}"))));
    drop(pipeline.drain(drain).unwrap());
    assert_eq!(pipeline.cgroups.len(), CGROUPS_MAX);
    drop(pipeline.drain(Drain { cgroups: vec![named("/more".to_owned())], ..io().into() }).unwrap());
    assert_eq!(pipeline.cgroups.into_keys().collect::<Vec<_>>(), [Untrusted::from("/kept")]);
}
