//! Block requests: their number, their size and their owners.

use std::time::Duration;

use pmbpf::{
    bpf::{
        Attach, Kernel, Options,
        io::{Bios, Eviction, IoObject, IoOptions, Parts, Recycling, Wanted},
    },
    drain::io::{
        block::{BlockRow, Operation, Whose},
        traffic::Traffic,
    },
    machine::Machine,
    plan::request::{By, Descend, Inherit},
};

use super::{
    Loop, Zram, can_run, counting, fio, fio_command, found, id, job, kernel_counts, number, sum, ways,
};
use crate::support::{Cgroup, Scratch, Started, assert_close, skipped, unique, wait_until};

/// fio options that read 16 MiB.
const READS: &str = "--rw=randread --bs=4k --iodepth=4 --io_size=16m --size=64m";

#[test]
fn requests_and_bytes_of_a_device_are_the_kernels_own() {
    if !can_run() {
        return;
    }
    for way in ways() {
        let device = Loop::new("counts", 64 << 20);
        let object = counting(way, Wanted::Everybody(By::Process), Parts::Block);
        let before = device.kernel_counts();
        fio(&device.path, "--rw=randrw --bsrange=4k-64k --iodepth=8 --io_size=256m --size=64m");
        let traffic = object.drain();
        let truth = device.kernel_counts();
        for (index, operation) in [Operation::Read, Operation::Write].into_iter().enumerate() {
            let (requests, bytes) = sum(&traffic, device.number, operation, |_| true);
            assert!(requests > 1000.0, "{requests}");
            assert_close("requests", requests, truth[index].0 - before[index].0, 0.01, 0.0);
            assert_close("bytes", bytes, truth[index].1 - before[index].1, 0.01, 0.0);
            let named = |name: &[u8]| name == b"fio";
            let ours = sum(&traffic, device.number, operation, |row| named(row.name.as_bytes()));
            assert_close("fio's", ours.0, requests, 0.01, 0.0);
        }
        assert_eq!((traffic.losses, traffic.missed), (vec![], vec![]), "{way:?}");
    }
}

#[test]
fn two_cgroups_get_what_each_of_them_did() {
    if !can_run() {
        return;
    }
    for way in ways() {
        let device = Loop::new("split", 64 << 20);
        let groups = [Cgroup::new("reader"), Cgroup::new("writer")];
        let object = counting(way, Wanted::Everybody(By::Cgroup), Parts::Block);
        let mut started = [
            groups[0].spawn(&fio_command(
                &device.path,
                "--rw=randread --bs=16k --iodepth=4 --io_size=128m --size=64m",
            )),
            groups[1].spawn(&fio_command(
                &device.path,
                "--rw=randrw --bs=4k --iodepth=4 --io_size=64m --size=64m",
            )),
        ];
        let jobs = [0, 1].map(|index| job(&started[index].wait()));
        let traffic = object.drain();
        for (group, job) in groups.iter().zip(&jobs) {
            let owner = Whose::Cgroup(id(group));
            for (operation, name) in [(Operation::Read, "read"), (Operation::Write, "write")] {
                let (requests, bytes) = sum(&traffic, device.number, operation, |row| row.whose == owner);
                let of = |field: &str| job[name][field].as_f64().unwrap();
                assert_close(name, requests, of("total_ios"), 0.01, 0.0);
                assert_close(name, bytes, of("io_bytes"), 0.01, 0.0);
            }
        }
    }
}

#[test]
fn those_not_asked_for_share_a_row_and_the_device_keeps_its_total() {
    if !can_run() {
        return;
    }
    for way in ways() {
        let device = Loop::new("filter", 64 << 20);
        let parent = Cgroup::new("wanted");
        let (inside, outside) = (parent.below("inside"), Cgroup::new("unwanted"));
        let object = counting(way, Wanted::Cgroups(vec![found(&parent)], Descend::Yes), Parts::Block);
        let made_later = parent.below("later");
        for group in [&inside, &made_later, &outside] {
            group.spawn(&fio_command(&device.path, READS)).wait();
        }
        let traffic = object.drain();
        let of = |whose: Whose| sum(&traffic, device.number, Operation::Read, |row| row.whose == whose).1;
        let each = f64::from(16 << 20);
        assert_close("inside", of(Whose::Cgroup(id(&inside))), each, 0.01, 0.0);
        assert_close("later", of(Whose::Cgroup(id(&made_later))), each, 0.01, 0.0);
        // Programs that probe a new device share the row.
        assert_close("outside", of(Whose::Outsider), each, 0.1, 0.0);
        assert_eq!(of(Whose::Cgroup(id(&outside))), 0.0);
    }
}

#[test]
fn a_target_that_is_made_again_is_wanted_again() {
    if !can_run() {
        return;
    }
    for way in ways() {
        let device = Loop::new("again", 64 << 20);
        let group = Cgroup::new("again");
        let object = counting(way, Wanted::Cgroups(vec![found(&group)], Descend::Yes), Parts::Block);
        let lives = [0, 1].map(|life| {
            // A unit that ends at once and is restarted, for an hour.
            for _ in 0..life * 100 {
                group.make_again();
            }
            group.spawn(&fio_command(&device.path, READS)).wait();
            id(&group)
        });
        let traffic = object.drain();
        assert_ne!(lives[0], lives[1]);
        for life in lives {
            let is_its = |row: &BlockRow| row.whose == Whose::Cgroup(life);
            let (_, bytes) = sum(&traffic, device.number, Operation::Read, is_its);
            assert_close("each life", bytes, f64::from(16 << 20), 0.01, 0.0);
        }
    }
}

#[test]
fn what_was_nobodys_is_a_targets_from_when_it_is_one() {
    if !can_run() {
        return;
    }
    for way in ways() {
        let device = Loop::new("adopted", 64 << 20);
        let (group, later) = (Cgroup::new("there"), Cgroup::new("adopted"));
        let inner = later.below("inner");
        let mut object = counting(way, Wanted::Cgroups(vec![found(&group)], Descend::Yes), Parts::Block);
        let read = || inner.spawn(&fio_command(&device.path, READS)).wait();
        let bytes = |object: &IoObject, whose| {
            sum(&object.drain(), device.number, Operation::Read, |row: &BlockRow| row.whose == whose).1
        };
        read();
        assert_eq!(bytes(&object, Whose::Cgroup(id(&inner))), 0.0);
        assert_close("before", bytes(&object, Whose::Outsider), f64::from(16 << 20), 0.1, 0.0);
        object.adopt_cgroup(id(&later).0).unwrap();
        wait_until("it is judged again", || object.recycle(|_| Eviction::Stays).unwrap() == Recycling::Idle);
        read();
        assert_close("after", bytes(&object, Whose::Cgroup(id(&inner))), f64::from(16 << 20), 0.01, 0.0);
    }
}

#[test]
fn children_of_a_target_process_are_told_from_others() {
    if !can_run() {
        return;
    }
    for way in ways() {
        let device = Loop::new("process", 64 << 20);
        let waiting = crate::support::Waiting::new(&fio_command(&device.path, READS));
        let object = counting(way, Wanted::Processes(vec![waiting.pid()], Inherit::Yes), Parts::Block);
        // fio's job is a child of the target process.
        waiting.go().wait();
        fio(&device.path, READS);
        let traffic = object.drain();
        let is_process = |whose: Whose| matches!(whose, Whose::Process { .. });
        let (_, ours) = sum(&traffic, device.number, Operation::Read, |row| is_process(row.whose));
        let (_, others) = sum(&traffic, device.number, Operation::Read, |row| row.whose == Whose::Outsider);
        assert_close("ours", ours, f64::from(16 << 20), 0.1, 0.0);
        assert_close("others", others, f64::from(16 << 20), 0.1, 0.0);
    }
}

#[test]
fn requests_under_way_at_the_start_have_no_latency_and_those_at_the_end_are_told() {
    if !can_run() {
        return;
    }
    for way in ways() {
        let device = Loop::new("flying", 64 << 20);
        // A thread, which leaves nothing behind when it is killed.
        let options = "--thread --rw=read --bs=1m --iodepth=32 --size=64m --time_based --runtime=60";
        let fio = Started::new(&format!("exec {}", fio_command(&device.path, options)));
        let before = device.kernel_counts();
        wait_until("fio reads", || device.kernel_counts()[0].0 > before[0].0 + 100.0);
        // fio may be between two requests at the critical moment.
        let start = || {
            let object = counting(way, Wanted::Everybody(By::Cgroup), Parts::Block);
            let read = || sum(&object.drain(), device.number, Operation::Read, |_| true).0;
            wait_until("enough is read", || read() > 1000.0);
            object
        };
        let unseen =
            |object: &IoObject| rows(&object.drain(), &device).map(|row| row.count.unstarted).sum::<u64>();
        let object = (0..20).map(|_| start()).find(|object| unseen(object) > 0).unwrap();
        let issued = || {
            let flying = object.drain().in_flight.into_iter().filter(|row| row.device == device.number);
            flying.map(|row| row.issued).sum::<u64>()
        };
        wait_until("some are under way", || (1..=128).contains(&issued()));
        drop(fio);
        wait_until("none is left", || issued() == 0);
        for row in rows(&object.drain(), &device) {
            let latencies: u64 = row.latency.iter().map(|&(_, count)| u64::from(count)).sum();
            assert_eq!(latencies + row.count.unstarted, row.count.requests);
            assert!(row.whose != Whose::Unseen || latencies == 0);
        }
    }
}

fn rows<'a>(traffic: &'a Traffic, device: &Loop) -> impl Iterator<Item = &'a BlockRow> + use<'a> {
    let device = device.number;
    traffic.block.iter().filter(move |row| row.device == device)
}

#[test]
fn a_stacked_device_and_the_one_below_are_two_devices() {
    if !can_run() {
        return;
    }
    let disks = std::fs::read_dir("/sys/block").unwrap().flatten().map(|entry| entry.file_name());
    let disks: Vec<_> = disks
        .filter_map(|name| name.into_string().ok())
        .filter(|name| !name.starts_with("loop") && !name.starts_with("zram") && !name.starts_with("ram"))
        .map(|name| number(&name))
        .collect();
    for way in ways() {
        let backing = Scratch(std::path::Path::new("/var/tmp").join(unique("below")));
        let device = Loop::over(backing, 16 << 20, &["--direct-io=on"]);
        let Some(device) = device.filter(|_| !disks.is_empty()) else {
            skipped("no file system on a disk that loop devices can use directly");
            return;
        };
        // A kernel may leave out some events while others attach and detach programs. The device's own count
        // shows this, as in a report, and the test tries again.
        let told = (0..3).any(|_| {
            let object = counting(way, Wanted::Everybody(By::Process), Parts::Block);
            let before = device.kernel_counts()[0].0;
            let done = fio(&device.path, "--rw=randread --bs=4k --iodepth=4 --io_size=16m --size=16m");
            // The disk's own counts settle a moment after fio gets its completion.
            std::thread::sleep(Duration::from_millis(50));
            let traffic = object.drain();
            let (seen, _) = sum(&traffic, device.number, Operation::Read, |_| true);
            if seen < 0.99 * (device.kernel_counts()[0].0 - before) {
                return false;
            }
            let above = sum(&traffic, device.number, Operation::Read, |row| row.name.as_bytes() == b"fio").1;
            let below: f64 = disks.iter().map(|disk| sum(&traffic, *disk, Operation::Read, |_| true).1).sum();
            assert_close("above", above, done["read"]["io_bytes"].as_f64().unwrap(), 0.01, 0.0);
            assert!(below >= 0.99 * above, "{below} of {above}");
            true
        });
        assert!(told, "{way:?}: requests were left out three times");
    }
}

#[test]
fn a_device_that_makes_no_requests_is_counted_by_bios() {
    if !can_run() {
        return;
    }
    let Some(disk) = Zram::new(64 << 20) else {
        skipped("this kernel has no zram");
        return;
    };
    let device = number(&disk.0);
    for way in ways() {
        let object = counting(way, Wanted::Everybody(By::Process), Parts::Block);
        let before = kernel_counts(&disk.0);
        fio(&format!("/dev/{}", disk.0), "--rw=randrw --bs=4k --iodepth=4 --io_size=32m --size=64m");
        let traffic = object.drain();
        let truth = kernel_counts(&disk.0);
        for (index, operation) in [Operation::Read, Operation::Write].into_iter().enumerate() {
            let (requests, bytes) = sum(&traffic, device, operation, |_| true);
            assert!(requests > 1000.0, "{requests}");
            assert_close("requests", requests, truth[index].0 - before[index].0, 0.01, 0.0);
            assert_close("bytes", bytes, truth[index].1 - before[index].1, 0.01, 0.0);
            let ours = sum(&traffic, device, operation, |row| row.name.as_bytes() == b"fio");
            assert_close("fio's", ours.0, requests, 0.01, 0.0);
        }
        // A device with requests is counted by those, not by bios in addition.
        let other = Loop::new("requests", 16 << 20);
        fio(&other.path, "--rw=read --bs=4k --iodepth=1 --io_size=16m --size=16m");
        let (_, bytes) =
            sum(&object.drain(), other.number, Operation::Read, |row| row.name.as_bytes() == b"fio");
        assert_close("requests", bytes, f64::from(16 << 20), 0.01, 0.0);
        for row in traffic.block.iter().filter(|row| row.device == device) {
            let latencies: u64 = row.latency.iter().map(|&(_, count)| u64::from(count)).sum();
            assert_eq!((latencies, row.count.queued), (row.count.requests, 0), "{way:?}");
        }
        assert_eq!((traffic.losses, traffic.missed), (vec![], vec![]), "{way:?}");
    }
}

/// Returns the kernel's types with the names of two members of a bio swapped: code that reads its device
/// finds another bio.
fn types_that_mislead_about_bios() -> Scratch {
    let mut types = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let at = |name: &[u8]| types.windows(name.len()).position(|window| window == name).unwrap() + 1;
    let members = [(at(b"\0bi_next\0"), b"bi_bdev"), (at(b"\0bi_bdev\0"), b"bi_next")];
    for (at, name) in members {
        types[at..at + name.len()].copy_from_slice(name);
    }
    let file = Scratch::new("misleading-types");
    std::fs::write(&file.0, types).unwrap();
    file
}

#[test]
fn where_the_kernel_refuses_programs_on_bios_requests_are_counted_all_the_same() {
    if !can_run() {
        return;
    }
    let Some(disk) = Zram::new(16 << 20).filter(|_| ways().contains(&Attach::TpBtf)) else {
        skipped("this kernel has no zram, or checks no types");
        return;
    };
    let types = types_that_mislead_about_bios();
    let options = Options { attach: Some(Attach::TpBtf), btf: Some(types.0.clone()), ..Options::default() };
    let wanted = Wanted::Everybody(By::Process);
    let wanted = IoOptions { wanted, parts: Parts::Block, bios: Bios::Counted };
    let root = std::path::Path::new("/");
    let object = IoObject::open(&wanted, &Machine::read(root).unwrap(), &Kernel::new(root, options)).unwrap();
    let why = object.bios().unwrap_err().in_short();
    let (program, reason) =
        why.strip_prefix("cannot load the BPF program `").unwrap().split_once(": ").unwrap();
    assert!(program.contains("bio") && reason.lines().count() == 1, "{why}");
    assert!(reason.contains(" mem access ") || reason.contains("access beyond"), "the verifier's own: {why}");
    let device = Loop::new("refused", 16 << 20);
    fio(&device.path, "--rw=read --bs=4k --iodepth=1 --io_size=16m --size=16m");
    fio(&format!("/dev/{}", disk.0), "--rw=read --bs=4k --iodepth=1 --io_size=1m --size=1m");
    let traffic = object.drain();
    let ours = sum(&traffic, device.number, Operation::Read, |row| row.name.as_bytes() == b"fio");
    assert_close("requests", ours.1, f64::from(16 << 20), 0.01, 0.0);
    let of_disk = traffic.block.iter().filter(|row| row.device == number(&disk.0));
    assert_eq!(of_disk.count(), 0, "no row is better than one that nobody counts for");
}
