//! Builds pmu-ebpf for the BPF target with the same compiler, and writes its objects for `include_bytes!`. It
//! also packs the tables of CPU models, of which a run reads one.
//!
//! `core` has no pre-built BPF version, so it is built from rust-src. Cargo's unstable flag for that is
//! unlocked in this one nested build. `cargo xtask setup` provides rust-src and bpf-linker. The source
//! archive of `cargo xtask dist` has the objects below `programs`, and needs neither.

#[path = "build/forward.rs"]
mod forward;

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use flate2::{Compression, write::DeflateEncoder};
use object::{
    Endian as _, Endianness,
    build::elf::{Builder, SectionData},
    elf::SHT_STRTAB,
};

/// Objects: programs that access kernel memory by type, and by address; the same for I/O; and one for
/// benchmarks.
const OBJECTS: [&str; 5] =
    ["pmbpf-by-type", "pmbpf-by-address", "pmbpf-io-by-type", "pmbpf-io-by-address", "pmbpf-clock-only"];

fn main() -> Result<(), String> {
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("tables");
    println!("cargo::rerun-if-changed={}", tables.display());
    pack_tables(&tables, Path::new(&variable("OUT_DIR")?))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pmu-ebpf");
    for input in ["src", "Cargo.toml", "../pmu-common/src", "../Cargo.toml", "../pmu-user/build"] {
        println!("cargo::rerun-if-changed={}", root.join(input).display());
    }
    for input in ["PMBPF_EBPF_OBJECTS", "PMBPF_BPF_LINKER", "PMBPF_BPF_LINES"] {
        println!("cargo::rerun-if-env-changed={input}");
    }
    let given = env::var_os("PMBPF_EBPF_OBJECTS").map(PathBuf::from).or_else(archived);
    let built = given.map_or_else(|| build(&root), Ok)?;
    for object in OBJECTS {
        let from = built.join(object);
        let to = Path::new(&variable("OUT_DIR")?).join(object);
        let whole = fs::read(&from).map_err(|error| format!("cannot read {}: {error}", from.display()))?;
        let stripped = stripped(&whole).map_err(|error| format!("{}: {error}", from.display()))?;
        let at = |error: std::io::Error| format!("cannot write {}: {error}", to.display());
        fs::write(to.with_added_extension("deflate"), deflated(&stripped).map_err(at)?).map_err(at)?;
        fs::write(&to, stripped).map_err(at)?;
    }
    Ok(())
}

/// Packs the tables of CPU models in `folder`, and in folders there, into `out`. `NAME.deflate` is the table,
/// and `NAME.cpus` next to it lists its CPUs.
fn pack_tables(folder: &Path, out: &Path) -> Result<(), String> {
    fs::create_dir_all(out).map_err(|error| format!("cannot make {}: {error}", out.display()))?;
    for entry in fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))? {
        let path = entry.map_err(|error| error.to_string())?.path();
        let at = |error: std::io::Error| format!("{}: {error}", path.display());
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            pack_tables(&path, &out.join(name))?;
            continue;
        }
        let text = fs::read_to_string(&path).map_err(at)?;
        let Some(cpus) = text.lines().find_map(|line| line.strip_prefix("cpus\t")) else { continue };
        fs::write(out.join(format!("{name}.deflate")), deflated(text.as_bytes()).map_err(at)?).map_err(at)?;
        fs::write(out.join(format!("{name}.cpus")), cpus).map_err(at)?;
    }
    Ok(())
}

fn deflated(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes)?;
    packed.finish()
}

/// Returns an object without its DWARF, which the linker converted to BTF: it is two thirds of the object,
/// and no loader reads it. The source lines are removed too, which aya and the kernel copy at each start,
/// unless `PMBPF_BPF_LINES` requests them in the verifier's log. The forward declarations are sorted. An
/// object without DWARF, as one left by an earlier build, is returned unchanged.
fn stripped(whole: &[u8]) -> Result<Vec<u8>, object::build::Error> {
    let mut object = Builder::read(whole)?;
    let (endian, keeps_lines) = (object.endian, env::var_os("PMBPF_BPF_LINES").is_some());
    let mut has_dwarf = false;
    for section in &mut object.sections {
        let name = section.name.as_slice();
        let is_dwarf = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
        // Where BTF refers to an offset in the object, the section holds that offset, too.
        section.delete = is_dwarf || name.starts_with(b".rel.BTF");
        // Sections to be deleted are no longer iterated over.
        has_dwarf |= is_dwarf;
        match (name, &mut section.data) {
            (b".BTF", SectionData::Data(data)) => drop(forward::sort(data.to_mut())),
            (b".BTF.ext", SectionData::Data(data)) if !keeps_lines => without_lines(data.to_mut(), endian),
            _ => (),
        }
    }
    if !has_dwarf {
        return Ok(whole.to_vec());
    }
    object.delete_orphans();
    // LLVM puts the names of sections and of symbols into one table, this writer into two.
    let names = object.sections.add();
    names.name = b".shstrtab"[..].into();
    names.sh_type = SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    object.write(&mut stripped)?;
    Ok(stripped)
}

/// Removes the lines from a section `.BTF.ext` (Documentation/bpf/btf.rst, `struct btf_ext_header`) that has
/// them behind the functions, and nothing else.
fn without_lines(data: &mut Vec<u8>, endian: Endianness) {
    // Offsets in the header: of its length, and of the bounds of each part.
    const HEADER_BYTES: usize = 4;
    const FUNCTIONS: usize = 8;
    const LINES: usize = 16;
    const RELOCATIONS: usize = 24;
    let word = |at: usize| {
        let bytes = data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, |bytes| endian.read_u32(bytes))
    };
    let functions_end = word(FUNCTIONS) + word(FUNCTIONS + 4);
    if word(LINES) != functions_end || word(RELOCATIONS + 4) != 0 {
        return;
    }
    let end = word(HEADER_BYTES) + functions_end;
    for (at, value) in [(LINES + 4, 0), (RELOCATIONS, functions_end)] {
        data[at..at + 4].copy_from_slice(&endian.write_u32(value));
    }
    data.truncate(end as usize);
}

/// Returns the folder of the source archive with the objects for the target's processor, or `None` in any
/// other tree.
fn archived() -> Option<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    Some(all.join(env::var_os("CARGO_CFG_TARGET_ARCH")?)).filter(|folder| folder.is_dir())
}

/// Builds the objects. Returns their folder.
fn build(root: &Path) -> Result<PathBuf, String> {
    let endian = if variable("CARGO_CFG_TARGET_ENDIAN")? == "big" { "bpfeb" } else { "bpfel" };
    let target = format!("{endian}-unknown-none");
    let target_dir = Path::new(&variable("OUT_DIR")?).join("ebpf");
    let flags = [
        format!("--cfg=bpf_target_arch=\"{}\"", variable("CARGO_CFG_TARGET_ARCH")?),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        format!("-Clinker={}", linker()),
    ];
    let flags: Vec<String> = flags.into_iter().chain(remapped(root, &target_dir)).collect();
    let mut cargo = Command::new(variable("CARGO")?);
    cargo
        .current_dir(root)
        .args([
            "build",
            "--release",
            "--locked",
            "--bins",
            "-Zbuild-std=core",
            "--target",
            &target,
            "--target-dir",
        ])
        .arg(&target_dir)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    // The outer build's wrappers and flags are for the host.
    for outer in ["RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS", "RUSTC_LINKER"] {
        cargo.env_remove(outer);
    }
    // So are its profiles: with less optimization, or with more units, LLVM ends functions with code that no
    // verifier accepts.
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"CARGO_PROFILE_") {
            cargo.env_remove(name);
        }
    }
    let status = cargo.status().map_err(|error| format!("cannot run cargo for pmu-ebpf: {error}"))?;
    if !status.success() {
        return Err("pmu-ebpf does not build; if `core` or `bpf-linker` is missing, run: cargo xtask setup"
            .to_owned());
    }
    Ok(target_dir.join(target).join("release"))
}

/// Returns flags that keep folders of the build machine out of an object: its BTF has the names of source
/// files. Where lines are kept, the compiler must find the files to read the lines.
fn remapped(root: &Path, target_dir: &Path) -> Vec<String> {
    if env::var_os("PMBPF_BPF_LINES").is_some() {
        return Vec::new();
    }
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let sysroot = Command::new(compiler).args(["--print", "sysroot"]).output().ok();
    let sysroot = sysroot.and_then(|output| String::from_utf8(output.stdout).ok());
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cargo"));
    let cargo = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home);
    let workspace = root.parent().map(Path::to_owned);
    let all = [
        (sysroot.map(|path| PathBuf::from(path.trim())), "/rust"),
        (cargo, "/cargo"),
        (workspace.and_then(|folder| folder.canonicalize().ok()), "/pmbpf"),
        (target_dir.canonicalize().ok().or_else(|| Some(target_dir.to_owned())), "/build"),
    ];
    // The last match counts.
    let flag =
        |(from, to): (Option<PathBuf>, &str)| Some(format!("--remap-path-prefix={}={to}", from?.display()));
    all.into_iter().filter_map(flag).collect()
}

/// Returns the linker that `PMBPF_BPF_LINKER` names, that `cargo xtask setup` installed, or that is in PATH.
fn linker() -> String {
    let installed = || Some(installed_linker()?.to_str()?.to_owned());
    env::var("PMBPF_BPF_LINKER").ok().or_else(installed).unwrap_or_else(|| "bpf-linker".to_owned())
}

/// Returns the newest linker in the cache of `cargo xtask setup` that shares the compiler's LLVM.
fn installed_linker() -> Option<PathBuf> {
    let version = Command::new(env::var_os("RUSTC")?).arg("-vV").output().ok()?;
    let version = String::from_utf8(version.stdout).ok()?;
    let llvm = version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?.split('.').next()?;
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    let is_ours = |name: &str| name.starts_with("bpf-linker-") && name.ends_with(&format!("-llvm{llvm}"));
    fs::read_dir(base.join("pmbpf"))
        .ok()?
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_str().is_some_and(is_ours))
        .map(|entry| entry.path().join("bin/bpf-linker"))
        .filter(|linker| linker.is_file())
        .max_by_key(|linker| fs::metadata(linker).and_then(|file| file.modified()).ok())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("cargo did not set {name}: {error}"))
}
