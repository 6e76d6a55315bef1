//! The built BPF object holds exactly the maps and programs that pmu-common names. Needs no privilege.

use std::collections::BTreeSet;

use aya_obj::Object;
use pmbpf::bpf::OBJECT;
use pmu_common::name::{map, program};

fn names<'a>(list: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    list.into_iter().map(str::to_owned).collect()
}

#[test]
fn the_object_has_the_maps_that_are_named() {
    let object = Object::parse(OBJECT).unwrap();
    // The compiler's own: read-only and writable data.
    let sections = [".rodata", ".data", ".bss"];
    let found =
        object.maps.into_keys().filter(|name| !sections.iter().any(|section| name.starts_with(section)));
    assert_eq!(found.collect::<BTreeSet<_>>(), names(map::ALL));
}

#[test]
fn the_object_has_the_programs_that_are_named_and_their_twins() {
    let object = Object::parse(OBJECT).unwrap();
    let mut expected = names(program::TWINS.into_iter().chain(program::SINGLES));
    expected.extend(program::TWINS.iter().map(|name| format!("{name}{}", program::RAW)));
    assert_eq!(object.programs.into_keys().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn the_object_may_call_gpl_only_helpers() {
    let object = Object::parse(OBJECT).unwrap();
    assert_eq!(object.license.to_str(), Ok("Dual MIT/GPL"));
}
