//! Damaged kernel types, queried for every offset that the programs need.

use std::fs;

use pmbpf::bpf::btf::Btf;

use crate::{chance::Chance, each};

#[test]
fn every_btf_is_read_or_refused() {
    let Ok(original) = fs::read("/sys/kernel/btf/vmlinux") else {
        eprintln!("SKIPPED: this kernel has no BTF");
        return;
    };
    each(3, |file| {
        let chance = &mut Chance::of(file);
        let mut bytes = original.clone();
        if chance.below(2) == 0 {
            // The header alone.
            let at = chance.below(24);
            bytes[at] = chance.next() as u8;
        } else {
            (0..=chance.below(40)).for_each(|_| chance.damage(&mut bytes));
        }
        let path = std::env::temp_dir().join(format!("pmbpf-fuzz-{}-{file}.btf", std::process::id()));
        fs::write(&path, bytes).unwrap();
        if let Ok(btf) = Btf::read(&path) {
            let _ = (
                btf.offsets(),
                btf.timer_now_by_value(),
                btf.attachable().of_tracepoints(["sched_switch"].into_iter()).map(drop),
            );
        }
        fs::remove_file(&path).unwrap();
    });
}
