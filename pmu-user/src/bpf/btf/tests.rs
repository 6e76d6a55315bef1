//! Tests with a made-up BTF, and with the kernel's.

use super::{Btf, EXPIRE, KIND_FUNC_PROTO, KIND_PTR, KIND_STRUCT, KIND_TYPEDEF, KIND_UNION, SWITCH};

/// Returns a BTF blob of types, each a name and the words after it. Type 1 is an `int`. Offsets of names are
/// computed.
pub(super) fn btf_of(names: &[&str], types: &[&[u32]]) -> Vec<u8> {
    let strings: String = names.iter().flat_map(|name| [name, "\0"]).collect();
    let bytes_of = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let types: Vec<u8> = types.iter().flat_map(|words| bytes_of(words)).collect();
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    bytes.extend(bytes_of(&[24, 0, types.len() as u32, types.len() as u32, strings.len() as u32]));
    bytes.extend(types);
    bytes.extend_from_slice(strings.as_bytes());
    bytes
}

const INT: [u32; 4] = [1, 1 << 24, 4, 32];

/// Returns BTF of `int`, `union { int a; int b; }` without a name, and
/// `struct rq { int first; union { a, b } }`.
fn blob() -> Vec<u8> {
    let union_ = [0, KIND_UNION << 24 | 2, 4, 14, 1, 0, 16, 1, 0];
    let rq = [5, KIND_STRUCT << 24 | 2, 8, 8, 1, 0, 0, 2, 32];
    btf_of(&["", "int", "rq", "first", "a", "b"], &[&INT, &union_, &rq])
}

/// Returns BTF of `hrtimer_expire_entry(void *, void *, now)`.
fn expire_entry(now: u32) -> Btf {
    let pointer = [0, KIND_PTR << 24, 0];
    let function = [0, KIND_FUNC_PROTO << 24 | 3, 0, 0, 2, 0, 2, 0, now];
    let tracepoint = [5, KIND_TYPEDEF << 24, 5];
    let to_function = [0, KIND_PTR << 24, 4];
    // The function is type 4, because the time's own type stands between it and the pointer.
    let time = [1, KIND_TYPEDEF << 24, 1];
    let types: [&[u32]; 6] = [&INT, &pointer, &time, &function, &to_function, &tracepoint];
    Btf::parse(btf_of(&["", "int", EXPIRE], &types)).unwrap()
}

#[test]
fn a_timers_expiry_is_passed_by_pointer_or_by_value() {
    let (pointer, time) = (2, 3);
    assert!(!expire_entry(pointer).timer_now_by_value());
    assert!(expire_entry(time).timer_now_by_value());
    assert!(!Btf::parse(blob()).unwrap().timer_now_by_value());
}

#[test]
fn a_typed_tracepoint_is_found_by_its_id() {
    let types: [&[u32]; 2] = [&INT, &[5, KIND_TYPEDEF << 24, 1]];
    let btf = Btf::parse(btf_of(&["", "int", SWITCH], &types)).unwrap();
    assert_eq!(btf.tracepoint(), Some(2));
    assert_eq!(Btf::parse(blob()).unwrap().tracepoint(), None);
}

#[test]
fn stolen_time_is_found_under_either_name_the_finer_one_first() {
    let rq = |second: &str| {
        let rq = [5, KIND_STRUCT << 24 | 2, 8, 8, 1, 0, 24, 1, 32];
        Btf::parse(btf_of(&["", "int", "rq", "prev_steal_time", second], &[&INT, &rq])).unwrap()
    };
    assert_eq!(rq("other").steal(), Some(0));
    assert_eq!(rq("prev_steal_time_rq").steal(), Some(4));
    assert_eq!(Btf::parse(blob()).unwrap().steal(), None);
}

#[test]
fn a_member_is_found_inside_an_anonymous_union() {
    let btf = Btf::parse(blob()).unwrap();
    assert_eq!(btf.offset("rq", "first"), Some(0));
    assert_eq!(btf.offset("rq", "b"), Some(4));
    assert_eq!(btf.offset("rq", "c"), None);
    assert_eq!(btf.offset("cgroup", "first"), None);
}

#[test]
fn the_attachable_types_keep_their_ids() {
    let path = std::path::Path::new("/sys/kernel/btf/vmlinux");
    if path.exists() {
        let parse = |bytes: &[u8]| aya::Btf::parse(bytes, aya::Endianness::default()).unwrap();
        let whole = parse(&std::fs::read(path).unwrap());
        let attachable = Btf::read(path).unwrap().attachable();
        let tracepoints = ["sched_wakeup", "of no kernel", "sched_switch"].into_iter();
        let of_tracepoints = attachable.of_tracepoints(tracepoints).unwrap();
        for (thin, name, kind) in [
            (&of_tracepoints, "btf_trace_sched_switch", aya_obj::btf::BtfKind::Typedef),
            (&of_tracepoints, "btf_trace_sched_wakeup", aya_obj::btf::BtfKind::Typedef),
            (&attachable.of_iterator("task").unwrap(), "bpf_iter_task", aya_obj::btf::BtfKind::Func),
        ] {
            let id = whole.id_by_type_name_kind(name, kind).unwrap();
            assert_eq!(thin.id_by_type_name_kind(name, kind).unwrap(), id, "{name}");
        }
        for name in ["btf_trace_of no kernel", "btf_trace_sched_process_exit"] {
            let id = of_tracepoints.id_by_type_name_kind(name, aya_obj::btf::BtfKind::Typedef);
            assert!(id.is_err(), "nobody asked for {name}, or no kernel has it");
        }
    }
}

#[test]
fn a_blob_cut_anywhere_is_refused_or_read_never_a_panic() {
    let whole = blob();
    for length in 0..whole.len() {
        if let Some(btf) = Btf::parse(whole[..length].to_vec()) {
            let _ = (btf.offset("rq", "b"), btf.attachable().of_iterator("task").map(drop));
        }
    }
}

#[test]
fn this_kernel_has_every_field_that_is_needed() {
    let path = std::path::Path::new("/sys/kernel/btf/vmlinux");
    if path.exists() {
        let offsets = Btf::read(path).unwrap().offsets().unwrap();
        assert_ne!(offsets.task_pid, offsets.task_tgid);
    }
}
