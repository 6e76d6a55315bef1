//! Shared libraries that are made to harm their readers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::chance::Chance;

/// Bytes of a compressed section's header (elf(5), `Elf64_Chdr`).
const COMPRESSION_HEADER_BYTES: usize = 24;

/// Makes a library with `hot`, in a folder that every user can read.
pub(super) fn library(folder: &Path, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads/hot.c");
    let library = folder.join("libhot.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-g", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).args(options);
    assert!(compiler.status().unwrap().success());
    library
}

/// Makes the library with a link to debug information in `link`.
pub(super) fn linked(folder: &Path, link: &str) -> PathBuf {
    let library = library(folder, &["-g0"]);
    let mut section = link.as_bytes().to_vec();
    section.resize(section.len() / 4 * 4 + 4, 0);
    section.extend(0x1234_5678_u32.to_le_bytes());
    add_section(&library, ".gnu_debuglink", &section);
    library
}

/// Makes the library with a compressed section that claims a huge size.
pub(super) fn claiming(folder: &Path) -> PathBuf {
    let library = library(folder, &["-gz=zlib"]);
    patch(&library, |bytes, file| {
        for section in file.sections() {
            let (start, _) = section.file_range().unwrap_or_default();
            if section.name().is_ok_and(|name| name.starts_with(".debug")) && is_compressed(&section) {
                let size = start as usize + 8;
                bytes[size..size + 8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
            }
        }
    });
    library
}

/// Makes the library with four megabytes that unpack to four gigabytes of debug information.
pub(super) fn bomb(folder: &Path) -> PathBuf {
    const BYTES: u64 = 4 << 30;
    let library = library(folder, &["-g0"]);
    let mut packed = Vec::new();
    for word in [1_u32, 0] {
        packed.extend(word.to_le_bytes());
    }
    for word in [BYTES, 1] {
        packed.extend(word.to_le_bytes());
    }
    assert_eq!(packed.len(), COMPRESSION_HEADER_BYTES);
    let script = format!(
        "import sys,zlib\nz=zlib.compressobj(9)\nfor _ in range({}):sys.stdout.buffer.write(z.compress(bytes(1<<24)))\nsys.stdout.buffer.write(z.flush())",
        BYTES >> 24
    );
    let zeros = Command::new("python3").args(["-c", &script]).output().unwrap();
    assert!(zeros.status.success());
    packed.extend(zeros.stdout);
    add_section(&library, ".debug_info", &packed);
    add_section(&library, ".debug_abbrev", b"\x01\x11\0\0\0\0");
    mark_compressed(&library, ".debug_info");
    library
}

/// Makes the library with a line table row for a file that does not exist.
pub(super) fn misnumbered(folder: &Path) -> PathBuf {
    // `DW_LNS_set_file` (DWARF 5, 6.2.5.2), with the only other file.
    const SET_FILE: u8 = 4;
    let library = library(folder, &["-gdwarf-4", "-gz=none"]);
    patch(&library, |bytes, file| {
        let section = file.section_by_name(".debug_line").expect("it has lines");
        let (start, length) = section.file_range().unwrap_or_default();
        let lines = &mut bytes[start as usize..(start + length) as usize];
        let header = u32::from_le_bytes([lines[6], lines[7], lines[8], lines[9]]) as usize;
        let program = &mut lines[10 + header..];
        let places: Vec<usize> =
            (1..program.len() - 1).filter(|&at| program[at] == SET_FILE && program[at + 1] <= 2).collect();
        assert!(!places.is_empty(), "no line is of another file");
        places.into_iter().for_each(|at| program[at + 1] = 99);
    });
    library
}

/// Makes this number of copies of the library in `files`, each damaged outside its code, and returns the
/// position of `hot` in each.
pub(super) fn damaged(folder: &Path, files: &Path, count: u64) -> u64 {
    let library = fs::read(library(folder, &["-Wl,--build-id"])).unwrap();
    let parsed = object::File::parse(&*library).unwrap();
    let text = parsed.section_by_name(".text").unwrap();
    let (start, length) = text.file_range().unwrap();
    let code = start as usize..(start + length) as usize;
    let hot = parsed.symbols().find(|symbol| symbol.name() == Ok("hot")).unwrap();
    let parts = parsed.sections().filter_map(|section| section.file_range());
    let parts = parts.map(|(start, length)| start as usize..(start + length) as usize);
    let headers = u64::from_le_bytes(library[0x28..0x30].try_into().unwrap()) as usize;
    let parts = parts.chain([0..0x200, headers..library.len()]);
    let parts: Vec<_> = parts.filter(|part| !part.is_empty() && *part != code).collect();
    for number in 0..count {
        let mut chance = Chance::of(number);
        let mut bytes = library.clone();
        for _ in 0..=chance.below(24) {
            let part = chance.one(&parts).clone();
            let at = part.start + chance.below(part.len());
            if !code.contains(&at) {
                bytes[at] = if chance.below(2) == 0 {
                    *chance.one(b"\0\xff\x7f\x80\x01")
                } else {
                    chance.next() as u8
                };
            }
        }
        if chance.below(6) == 0 {
            bytes.truncate(code.end + chance.below(bytes.len() - code.end));
        }
        let file = files.join(number.to_string());
        fs::write(&file, bytes).unwrap();
    }
    hot.address() - text.address() + start
}

fn is_compressed(section: &object::Section<'_, '_>) -> bool {
    section.compressed_data().is_ok_and(|data| data.format != object::CompressionFormat::None)
}

fn add_section(library: &Path, name: &str, content: &[u8]) {
    let file = library.with_extension("section");
    fs::write(&file, content).unwrap();
    let section = format!("{name}={}", file.display());
    assert!(
        Command::new("objcopy").args(["--add-section", &section]).arg(library).status().unwrap().success()
    );
    fs::remove_file(file).unwrap();
}

/// Sets `SHF_COMPRESSED` of a section.
fn mark_compressed(library: &Path, name: &str) {
    const FLAGS: usize = 8;
    let mut bytes = fs::read(library).unwrap();
    let index = object::File::parse(&*bytes).unwrap().section_by_name(name).unwrap().index().0;
    let headers = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()) as usize;
    let header_bytes = usize::from(u16::from_le_bytes(bytes[0x3a..0x3c].try_into().unwrap()));
    bytes[headers + index * header_bytes + FLAGS + 1] |= 0x8;
    fs::write(library, bytes).unwrap();
}

fn patch(library: &Path, change: impl FnOnce(&mut [u8], &object::File<'_>)) {
    let whole = fs::read(library).unwrap();
    let mut bytes = whole.clone();
    change(&mut bytes, &object::File::parse(&*whole).unwrap());
    assert_ne!(bytes, whole, "nothing was changed");
    fs::write(library, bytes).unwrap();
}
