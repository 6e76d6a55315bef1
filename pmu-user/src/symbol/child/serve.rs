//! The symbolizer process: takes requests from its standard input, a socket, until that ends. It holds no secret and no
//! right, so whatever a file does to it costs names and nothing else.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{fs::FileExt as _, net::UnixStream},
    },
};

use super::{
    demangle::demangle,
    dwarf, elf,
    mapping::Mapping,
    sandbox, text,
    unwind::Unwinder,
    wire::{Answer, Found, Request, Why, receive, receive_bytes, send},
};
use crate::{drain::Code, untrusted::Untrusted};

/// Serves until the collector is gone.
///
/// # Errors
///
/// The process cannot give up its rights, or the socket fails.
pub fn serve() -> io::Result<()> {
    let standard_input: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let mut stream = UnixStream::from(standard_input);
    // What it reads of itself, it reads before it can open nothing any more.
    let vdso = vdso().unwrap_or_default();
    let _ = cpu_ns();
    sandbox::enter()?;
    let mut unwinder = Unwinder::default();
    while let Some((request, files)) = receive::<Request>(&mut stream, |_| Ok(()))? {
        let found = match &request {
            Request::Frames(number) => keep_frames(&mut unwinder, *number, &files, &vdso),
            Request::Unwind(mappings, starts) => {
                let stacks = receive_bytes(&mut stream, starts)?;
                Ok(Found::Stacks(unwinder.unwind_all(mappings, starts, &stacks)))
            }
            _ => answer(&request, &files, &vdso),
        };
        send(&mut stream, &Answer { cpu_ns: cpu_ns(), found }, &[])?;
    }
    Ok(())
}

fn keep_frames(unwinder: &mut Unwinder, number: u32, files: &[File], vdso: &[u8]) -> Result<Found, Why> {
    let mapped = |index: usize| files.get(index).map(Mapping::of).transpose();
    match mapped(0)? {
        Some(file) => unwinder.keep(number, &file, mapped(1).ok().flatten().as_deref())?,
        None => unwinder.keep(number, vdso, None)?,
    }
    Ok(Found::Ready)
}

fn answer(request: &Request, files: &[File], vdso: &[u8]) -> Result<Found, Why> {
    let mapped = |index: usize| files.get(index).map(Mapping::of).transpose();
    let binary = || mapped(0)?.ok_or(Why::Unreadable);
    let debug = || mapped(1).ok().flatten();
    let list = || files.first().ok_or(Why::Unreadable);
    let names = match request {
        Request::Identify => return Ok(Found::Identity(elf::identity(&binary()?)?)),
        Request::Kernel(addresses) => plain(text::kernel(list()?, addresses)?),
        Request::PerfMap(addresses) => plain(text::perf_map(list()?, addresses)?),
        Request::Symbols(offsets) => plain(elf::symbols(&binary()?, debug().as_deref(), offsets)?),
        Request::Vdso(offsets) => plain(elf::symbols(vdso, None, offsets)?),
        Request::Lines(offsets) => {
            let shared = mapped(2).ok().flatten();
            let codes = dwarf::lines(&binary()?, debug().as_deref(), shared.as_deref(), offsets)?;
            codes.into_iter().map(|code| code.ok_or(Why::NotFound)).collect()
        }
        Request::Frames(_) | Request::Unwind(..) => return Err(Why::NotFound),
    };
    Ok(Found::Names(names))
}

/// Names without lines.
fn plain(names: Vec<Result<Vec<u8>, Why>>) -> Vec<Result<Code, Why>> {
    let code =
        |name: Vec<u8>| Code { function: Untrusted::new(demangle(&name)), line: None, inlined: Vec::new() };
    names.into_iter().map(|name| name.map(code)).collect()
}

/// This process's own vDSO: every 64-bit process has the same.
fn vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

fn cpu_ns() -> u64 {
    crate::machine::clock::now_ns(rustix::time::ClockId::ProcessCPUTime)
}
