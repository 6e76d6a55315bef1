//! Pseudonyms: equal for equal names, different for different ones, and none for public text.

use std::collections::HashSet;

use super::Redactor;
use crate::{
    drain::{
        Absent, At, CgroupName, Code, Drain, Line, Loaded, Located, Name, Names, Owner, OwnerRow, SlotId,
        SourceRow, TasksDrain, Word,
    },
    machine::container::{Container, Identity, Pod, Runtime},
    untrusted::Untrusted,
};

fn process(pid: u32, name: &[u8]) -> OwnerRow {
    let owner = Owner::Process { pid, born_ns: 1, name: Untrusted::new(name) };
    OwnerRow { slot: SlotId::default(), owner, ended_ns: None }
}

fn cgroup(path: &str) -> Owner {
    Owner::cgroup(1, Untrusted::from(path))
}

fn name_of(owner: &Owner) -> String {
    match owner {
        Owner::Process { name, .. } => name.terminal().into_owned(),
        Owner::Cgroup { path, .. } => path.terminal().into_owned(),
        _ => unreachable!("the test has no others"),
    }
}

#[test]
fn equal_names_stay_equal_and_different_ones_different_whatever_is_in_them() {
    let names: Vec<String> = (0..5000).map(|number| format!("job-{number}")).collect();
    let mut owners: Vec<OwnerRow> = names.iter().map(|name| process(1, name.as_bytes())).collect();
    owners.extend([process(2, b"job-7"), process(3, b"\xff\x1b[m"), process(4, b"")]);
    let redactor = Redactor::new();
    let drain = TasksDrain { owners, ..TasksDrain::default() };
    let shown = redactor.of(drain.clone()).unwrap().owners;
    let shown: Vec<String> = shown.iter().map(|row| name_of(&row.owner)).collect();
    assert_eq!(shown[..5000].iter().collect::<HashSet<_>>().len(), 5000);
    assert_eq!(shown[5000], shown[7]);
    assert!(shown[..5002].iter().all(|name| name.starts_with("name-") && name.len() == 15));
    assert_eq!(shown[5002], "", "what has no name has none");
    let again = redactor.of(drain.clone()).unwrap().owners;
    assert_eq!(name_of(&again[7].owner), shown[7], "in another drain, too");
    let others = Redactor::new().of(drain).unwrap().owners;
    assert_ne!(name_of(&others[7].owner), shown[7], "each run has a key of its own");
}

#[test]
fn the_hierarchy_of_cgroups_stays() {
    let above = ["/", "/system.slice/web.service", "/system.slice/web.service/inner", "/web.service"];
    let drain = TasksDrain { above: above.map(cgroup).to_vec(), ..TasksDrain::default() };
    let shown: Vec<String> = Redactor::new().of(drain).unwrap().above.iter().map(name_of).collect();
    assert_eq!(shown[0], "/");
    assert!(shown[2].starts_with(&format!("{}/name-", shown[1])), "{shown:?}");
    assert_eq!(shown[1], format!("/system.slice{}", shown[3]));
}

#[test]
fn whose_a_cgroup_is_has_pseudonyms_and_its_path_the_same_as_elsewhere() {
    let container = Container {
        runtime: Some(Runtime::Podman),
        id: "c0ffee".into(),
        name: Some("payroll".into()),
        image: Some("registry/payroll:1".into()),
        is_infrastructure: false,
    };
    let pod = Pod { name: Some("payroll-0".into()), namespace: Some("finance".into()), uid: None };
    let identity = Identity {
        container: Some(container),
        inside: Some("/init.scope".into()),
        pod: Some(pod),
        unit: Some("payroll.service".into()),
        job: Some(("7".into(), None)),
        generation: 0,
    };
    let path = Untrusted::from("/libpod_parent/libpod-c0ffee");
    let tasks = TasksDrain { above: vec![Owner::cgroup(1, path.clone())], ..TasksDrain::default() };
    let drain =
        Drain { tasks: Some(tasks), cgroups: vec![CgroupName { path, identity }], ..Drain::default() };
    let shown = Redactor::new().of(drain).unwrap();
    let text = format!("{:?}", shown.cgroups);
    assert!(!["payroll", "c0ffee", "finance", "registry"].iter().any(|name| text.contains(name)), "{text}");
    let CgroupName { path, identity } = &shown.cgroups[0];
    assert_eq!(name_of(&shown.tasks.unwrap().above[0]), path.terminal(), "it is found by its path");
    assert_eq!(identity.container.as_ref().unwrap().runtime, Some(Runtime::Podman));
}

#[test]
fn functions_of_the_kernel_stay_and_no_address_does() {
    let code = |function: &str| {
        let line = Some(Line { file: Untrusted::from("/home/acme/x.c"), line: 3 });
        let inlined = vec![Word(Untrusted::from(format!("{function}_inlined")))];
        let inlined_lines = vec![line.clone()];
        Ok(Code { function: Untrusted::from(function), line, inlined, inlined_lines })
    };
    let kernel = At::kernel(0xffff_ffff_8100_1234);
    let user = At { source: 1, offset: 0x1234 };
    let start = At { source: 1, offset: 0x1000 };
    let names = [(kernel, "schedule"), (user, "acme::secret"), (start, "_start")];
    let names = names.map(|(at, function)| Name::new(at, code(function))).to_vec();
    let redactor = Redactor::new();
    let shown = redactor.of(Names { names, ..Names::default() }).unwrap().names;
    let text = serde_json::to_string(&shown).unwrap();
    let [in_kernel, in_user, begins] = [0, 1, 2].map(|index| shown[index].code.as_ref().unwrap());
    assert_eq!(in_kernel.function, Untrusted::from("schedule"));
    assert_eq!(in_kernel.inlined[0].0, Untrusted::from("schedule_inlined"));
    assert_eq!(begins.function, Untrusted::from("_start"), "it says that a stack is whole");
    assert!(in_user.function.terminal().starts_with("name-"));
    assert!(
        !text.contains("acme") && !text.contains("x.c") && !text.contains("18446744071578849844"),
        "{text}"
    );
    assert!(shown[0].at.is_kernel() && shown[0].at != kernel && shown[1].at.offset != user.offset);
    // Samples and the stack of a gap still match their names.
    let row = |at| crate::drain::CodeRow { slot: SlotId::default(), at, count: 1, event: 0, cpu: None };
    let located = Located { code: vec![row(kernel), row(user)], ..Located::default() };
    let drain = redactor.of(TasksDrain { located, ..TasksDrain::default() }).unwrap();
    assert_eq!([drain.located.code[0].at, drain.located.code[1].at], [shown[0].at, shown[1].at]);
}

#[test]
fn a_module_is_known_by_nothing_but_its_kind() {
    let source = |path: &str| SourceRow {
        source: 1,
        path: Some(Word(Untrusted::from(path))),
        build_id: Some("00112233445566778899aabbccddeeff".to_owned()),
        unnamed: "it has no symbols".to_owned(),
        loaded: vec![Loaded { offset: 0x1000, bytes: 0x2345, address: 0x40_1000 }],
    };
    let sources = ["/usr/lib/acme/libacme.so.1", "[vdso]"].map(source).to_vec();
    let located = Located { sources, ..Located::default() };
    let shown = Redactor::new().of(TasksDrain { located, ..TasksDrain::default() }).unwrap().located.sources;
    let path = |index: usize| shown[index].path.as_ref().unwrap().0.terminal().into_owned();
    assert!(path(0).starts_with("/usr/lib/name-") && path(0).matches("name-").count() == 2, "{}", path(0));
    assert_eq!(path(1), "[vdso]");
    assert!(shown[0].build_id.as_ref().unwrap().starts_with("name-"));
    assert_eq!((shown[0].unnamed.as_str(), shown[0].loaded.len()), ("it has no symbols", 0));
}

#[test]
fn a_sentence_keeps_its_words_and_loses_what_it_quotes() {
    let redactor = Redactor::new();
    let drain = TasksDrain {
        owners: vec![process(1, b"tmux: server"), process(2, b"frobnicate")],
        above: vec![cgroup("/acme.slice/pay-roll.service")],
        ..TasksDrain::default()
    };
    let _met = redactor.of(drain).unwrap();
    for (text, gone) in [
        ("no PMU for frobnicate (tmux: server)", &["frobnicate", "tmux"][..]),
        ("cgroup `/acme.slice`, pay-roll.service: 2 of 3", &["acme", "roll"]),
        ("cannot open /home/jo/x.pem: permission denied", &["jo", "pem"]),
        (
            "10.1.2.3, fe80::1 and 02:42:ac:11:00:02 at 0xffffffff81001234.",
            &["10.1", "fe80", "ac:11", "8100"],
        ),
    ] {
        let shown = redactor.sentence(text);
        assert!(gone.iter().all(|gone| !shown.contains(gone)), "{shown}");
    }
    for text in [
        "perf_event_paranoid is 2; run as root, or grant CAP_PERFMON",
        "cannot read /sys/kernel/tracing: 1.5 µs, 0x3c, 0000:3b:00.0 and refrobnicated",
    ] {
        assert_eq!(redactor.sentence(text), text);
    }
}

#[test]
fn reasons_are_rewritten_where_a_name_comes_after_them() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Both {
        missing: Vec<Absent>,
        owner: Owner,
    }
    impl super::Redact for Both {}
    let why = Absent { what: "counts of frobnicate".to_owned(), why: "frobnicate is gone".to_owned() };
    let shown =
        Redactor::new().of(Both { missing: vec![why], owner: process(1, b"frobnicate").owner }).unwrap();
    let name = name_of(&shown.owner);
    assert_eq!(shown.missing[0].why, format!("{name} is gone"));
    assert_eq!(shown.missing[0].what, format!("counts of {name}"));
}
