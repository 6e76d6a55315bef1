//! Lines of address maps.

use super::{AddressMap, BYTES_MAX};

const MAPS: &[u8] = b"\
55d0c0000000-55d0c0020000 r--p 00000000 fe:00 1234                       /usr/bin/app\n\
55d0c0020000-55d0c0100000 r-xp 00020000 fe:00 1234                       /usr/bin/app with space (deleted)\n\
7f0000000000-7f0000010000 rwxp 00000000 00:00 0 \n\
7f0000020000-7f0000030000 r-xs 00000000 00:01 77                         /memfd:jit (deleted)\n\
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                          [vdso]\n";

#[test]
fn an_address_is_found_in_its_executable_mapping() {
    let map = AddressMap::parse(7, MAPS);
    let region = map.find(0x55d0_c002_0010).unwrap();
    assert_eq!(region.path.as_bytes(), b"/usr/bin/app with space (deleted)");
    assert_eq!(0x55d0_c002_0010 - region.start + region.offset, 0x2_0010);
    assert!(region.file.is_some());
}

#[test]
fn code_without_a_file_is_told_apart() {
    let map = AddressMap::parse(7, MAPS);
    assert_eq!(map.find(0x7f00_0000_0000).unwrap().file, None);
    let memfd = map.find(0x7f00_0002_0000).unwrap();
    assert!(memfd.file.is_some() && memfd.is_memory(), "a memfd may hold a program");
    assert!(!map.find(0x55d0_c002_0010).unwrap().is_memory());
    assert_eq!(map.find(0x7ffc_0000_0001).unwrap().path.as_bytes(), b"[vdso]");
}

#[test]
fn a_segment_of_shared_memory_is_no_memfd_with_its_number() {
    let maps =
        b"1000-2000 r-xs 00000000 00:01 77 /SYSV00000000 (deleted)\n3000-4000 r-xs 0 00:01 77 /memfd:a\n";
    let map = AddressMap::parse(7, maps);
    assert_ne!(map.find(0x1000).unwrap().file, map.find(0x3000).unwrap().file);
}

#[test]
fn a_process_cannot_make_its_map_large() {
    let line =
        |index: u64| format!("{:x}-{:x} r-xp 0 fe:00 7 /{}\n", index * 16, index * 16 + 8, "x".repeat(4000));
    let text: String = (1..2000).map(line).collect();
    let map = AddressMap::parse(7, text.as_bytes());
    assert!(map.bytes <= BYTES_MAX && map.find(16).is_some());
}

#[test]
fn a_line_that_is_cut_off_is_no_mapping() {
    assert!(AddressMap::parse(7, b"1000-2000 r-xp 0 fe:00 7 /usr/bin/ap").find(0x1000).is_none());
}

#[test]
fn an_address_between_mappings_is_not_found() {
    let map = AddressMap::parse(7, MAPS);
    assert!(map.find(0x55d0_c000_0000).is_none(), "not executable");
    assert!(map.find(0x7f00_0001_0000).is_none(), "past the end");
    assert!(map.find(0).is_none());
}
