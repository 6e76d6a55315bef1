//! The built BPF objects hold exactly the maps and programs that pmu-common names. Needs no privilege.

use std::collections::BTreeSet;

use aya_obj::Object;
use pmbpf::bpf::{BY_ADDRESS, BY_TYPE};
use pmu_common::name::{map, program};

/// Both objects, with the map and the program that only they have.
const OBJECTS: [(&[u8], &str, &str); 2] =
    [(BY_TYPE, map::TASKS, program::PRIME), (BY_ADDRESS, map::TASKS_BY_ADDRESS, program::FREE)];

fn names<'a>(list: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    list.into_iter().map(str::to_owned).collect()
}

#[test]
fn an_object_has_the_maps_that_are_named() {
    for (object, own, _) in OBJECTS {
        let object = Object::parse(object).unwrap();
        // The compiler's own: read-only and writable data.
        let sections = [".rodata", ".data", ".bss"];
        let found =
            object.maps.into_keys().filter(|name| !sections.iter().any(|section| name.starts_with(section)));
        assert_eq!(found.collect::<BTreeSet<_>>(), names(map::BOTH.into_iter().chain([own])));
    }
}

#[test]
fn an_object_has_the_programs_that_are_named() {
    for (object, _, own) in OBJECTS {
        let object = Object::parse(object).unwrap();
        let expected = names(program::BOTH.into_iter().chain(program::SAMPLES).chain([own]));
        assert_eq!(object.programs.into_keys().collect::<BTreeSet<_>>(), expected);
    }
}

#[test]
fn an_object_may_call_gpl_only_helpers() {
    for (object, ..) in OBJECTS {
        let object = Object::parse(object).unwrap();
        assert_eq!(object.license.to_str(), Ok("Dual MIT/GPL"));
    }
}
