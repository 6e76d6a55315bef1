//! Built BPF objects against pmu-common: exactly the maps and programs that it names, and nothing that no
//! loader reads. Needs no privilege.

#[path = "contract/stack.rs"]
mod stack;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use aya_obj::Object;
use pmbpf::bpf::{BY_ADDRESS, BY_TYPE, Built, IO_BY_ADDRESS, IO_BY_TYPE};
use pmu_common::{
    histogram::BlockBuckets,
    io::{
        IoCpu, IoKey, IoOwner, Recent,
        block::{BlockCount, InFlight},
        config::IoConfig,
        net::NetCount,
    },
    name::{io, map, program},
};

/// Both objects, with the map and the programs that only they have.
static OBJECTS: [(Built, &str, &[&str]); 2] = [
    (BY_TYPE, map::TASKS, &[program::SEED, program::WAITS, program::THROTTLE, program::UNTHROTTLE]),
    (BY_ADDRESS, map::TASKS_BY_ADDRESS, &[program::FREE, program::THROTTLE, program::UNTHROTTLE]),
];

/// Both I/O objects, which have the same maps and programs.
static IO_OBJECTS: [Built; 2] = [IO_BY_TYPE, IO_BY_ADDRESS];

/// Compiler-generated sections for read-only and writable data.
const SECTIONS: [&str; 3] = [".rodata", ".data", ".bss"];

fn names<'a>(list: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    list.into_iter().map(str::to_owned).collect()
}

#[test]
fn an_object_holds_no_folder_of_who_builds_it() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.components().count() > 1);
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    for folder in [Some(workspace.to_owned()), home, cargo].into_iter().flatten() {
        let folder = folder.to_str().unwrap().as_bytes();
        for object in OBJECTS.iter().map(|(object, ..)| object).chain(&IO_OBJECTS) {
            let bytes = object.bytes();
            let found = bytes.windows(folder.len()).position(|part| part == folder);
            let text = found.map(|at| String::from_utf8(bytes[at..(at + 90).min(bytes.len())].to_vec()));
            assert!(found.is_none(), "{text:?}");
        }
    }
}

#[test]
fn an_object_has_the_maps_that_are_named() {
    for (object, own, _) in OBJECTS {
        let object = Object::parse(&object.bytes()).unwrap();
        let found =
            object.maps.into_keys().filter(|name| !SECTIONS.iter().any(|section| name.starts_with(section)));
        assert_eq!(found.collect::<BTreeSet<_>>(), names(map::BOTH.into_iter().chain([own])));
    }
}

#[test]
fn an_object_has_the_programs_that_are_named() {
    for (object, _, own) in OBJECTS {
        let object = Object::parse(&object.bytes()).unwrap();
        let interrupts = program::INTERRUPTS.into_iter().map(|(name, _)| name);
        let samples = program::SAMPLES.into_iter().chain(program::TRACEPOINT_SAMPLES).chain(interrupts);
        let expected = names(program::BOTH.into_iter().chain(samples).chain(own.iter().copied()));
        assert_eq!(object.programs.into_keys().collect::<BTreeSet<_>>(), expected);
    }
}

#[test]
fn an_object_for_io_has_the_maps_and_programs_that_are_named() {
    for object in IO_OBJECTS {
        let object = Object::parse(&object.bytes()).unwrap();
        let found =
            object.maps.into_keys().filter(|name| !SECTIONS.iter().any(|section| name.starts_with(section)));
        assert_eq!(found.collect::<BTreeSet<_>>(), names(io::map::ALL));
        assert_eq!(object.programs.into_keys().collect::<BTreeSet<_>>(), names(io::program::ALL));
    }
}

#[test]
fn rows_of_an_object_for_io_are_as_large_as_both_sides_think() {
    let rows = [
        (io::map::CPUS, size_of::<IoCpu>()),
        (io::map::RECENT, size_of::<Recent>()),
        (io::map::TARGETS, size_of::<u32>()),
        (io::map::IN_FLIGHT, size_of::<InFlight>()),
        (io::map::IN_FLIGHT_ENDED, size_of::<u64>()),
        (io::map::BLOCK_OWNERS, size_of::<IoOwner>()),
        (io::map::BLOCK_COUNTS, size_of::<BlockCount>()),
        (io::map::BLOCK_LATENCIES, size_of::<BlockBuckets>()),
        (io::map::BLOCK_SLOT_OF, size_of::<u32>()),
        (io::map::BLOCK_FREE, size_of::<u32>()),
        (io::map::NET_OWNERS, size_of::<IoOwner>()),
        (io::map::NET_COUNTS, size_of::<NetCount>()),
        (io::map::NET_SLOT_OF, size_of::<u32>()),
        (io::map::NET_FREE, size_of::<u32>()),
        (io::map::HELD, size_of::<u64>()),
        (io::map::LIMITED, size_of::<u64>()),
    ];
    assert_eq!(rows.len(), io::map::ALL.len());
    for object in IO_OBJECTS {
        let object = Object::parse(&object.bytes()).unwrap();
        for (name, bytes) in rows {
            assert_eq!(object.maps[name].value_size() as usize, bytes, "{name}");
        }
        for name in [io::map::BLOCK_SLOT_OF, io::map::NET_SLOT_OF] {
            assert_eq!(object.maps[name].key_size() as usize, size_of::<IoKey>(), "{name}");
        }
        let settings = object.maps.iter().find(|(name, _)| name.starts_with(".rodata")).map(|(_, map)| map);
        assert!(settings.is_some_and(|map| map.data().len() >= size_of::<IoConfig>()));
    }
}

#[test]
fn an_object_may_call_gpl_only_helpers() {
    for object in OBJECTS.map(|(object, ..)| object).into_iter().chain(IO_OBJECTS) {
        let object = Object::parse(&object.bytes()).unwrap();
        assert_eq!(object.license.to_str(), Ok("Dual MIT/GPL"));
    }
}

#[test]
fn an_object_has_no_relocations_by_the_kernel_s_types() {
    for object in OBJECTS.map(|(object, ..)| object).into_iter().chain(IO_OBJECTS) {
        assert!(!Object::parse(&object.bytes()).unwrap().has_btf_relocations());
    }
}

#[test]
fn an_object_has_no_dwarf() {
    for object in OBJECTS.map(|(object, ..)| object).into_iter().chain(IO_OBJECTS) {
        assert!(!object.bytes().windows(7).any(|bytes| bytes == b".debug_"));
    }
}
