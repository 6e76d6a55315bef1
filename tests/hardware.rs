//! Tests that need a hardware PMU. `cargo xtask test` reports its absence. Run by hand without one, they
//! fail.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics says where")]

use std::{path::Path, process::Command};

use pmbpf::machine::Machine;

fn pmbpf(arguments: &[&str]) -> String {
    let machine = Machine::read(Path::new("/")).unwrap();
    if let Some(why) = machine.no_core_pmu() {
        panic!("this ring needs a hardware PMU: {why}");
    }
    let release = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/pmbpf");
    let output = Command::new(release).args(["run", "--json", "-d", "2s"]).args(arguments).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn cycles_are_the_default_event_and_sample() {
    let rows = pmbpf(&[]);
    let header = rows.lines().next().unwrap();
    assert!(header.contains("\"event\":\"cycles\""), "{header}");
    assert!(rows.contains("\"kind\":\"hot\""), "no sample came");
}

#[test]
fn instructions_sample_every_so_many() {
    let rows = pmbpf(&["-e", "instructions", "-c", "10000000"]);
    assert!(rows.contains("\"kind\":\"hot\""), "no sample came");
}
