//! Tests that must hold for every quantity.

use super::{ALL, Quantity, RATIOS};
use crate::{machine::cpu::Vendor, table::event_syntax::List};

#[test]
fn a_quantity_stands_in_the_table_once() {
    for (index, facts) in ALL.iter().enumerate() {
        assert_eq!(facts.quantity.facts().name, facts.name);
        assert!(ALL[index + 1..].iter().all(|other| other.name != facts.name), "{}", facts.name);
    }
}

#[test]
fn a_default_period_is_a_prime() {
    for facts in &ALL {
        let divides = |divisor: &u64| facts.period.is_multiple_of(*divisor);
        assert_eq!((2..1500).find(divides), None, "{}", facts.name);
    }
}

#[test]
fn every_event_of_the_table_can_be_read() {
    let vendors = [Vendor::Intel, Vendor::Amd { family: 0x17 }, Vendor::Amd { family: 0x1a }, Vendor::Arm];
    for vendor in vendors {
        for event in ALL.iter().flat_map(|facts| facts.quantity.events(vendor)) {
            assert!(List::parse(event).is_ok(), "{event}");
        }
    }
}

#[test]
fn the_code_is_that_of_the_family() {
    let first = |family| Quantity::CodeFetches.events(Vendor::Amd { family }).next();
    assert_eq!(
        (first(0x17), first(0x19), first(0x1a)),
        (Some("r80"), Some("r100001f8e"), Some("r100001f8e"))
    );
    assert_eq!(first(0x15), Some("L1-icache-loads"));
}

#[test]
fn a_kernel_name_says_what_it_measures() {
    assert_eq!(Quantity::of_event("CPU-Cycles"), Some(Quantity::Cycles));
    assert_eq!(Quantity::of_event("branches"), Some(Quantity::Branches));
    assert_eq!(Quantity::of_event("inst_retired"), Some(Quantity::Instructions));
    assert_eq!(Quantity::of_event("page-faults"), None);
    assert_eq!(Quantity::of_event(""), None);
}

#[test]
fn a_ratio_has_a_name_of_its_own() {
    for (index, ratio) in RATIOS.iter().enumerate() {
        assert!(RATIOS[index + 1..].iter().all(|other| other.name != ratio.name), "{}", ratio.name);
    }
}
