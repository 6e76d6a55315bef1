//! A kernel with everything that its guests need, and guests of it, booted or restored.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::{
    apt::{Apt, KEY_DIGITS, key, stamp},
    guest::{From, Guest, Output, Parts},
    image::{self, INIT},
    kernel::{Kernel, qemu_version},
    qemu::{Work, description},
    tools::Tools,
};
use crate::command::say;

/// Guests of a kernel.
pub(super) struct Bed {
    pub(super) parts: Parts,
    /// Path of the saved guest, named by everything on which it depends.
    saved: PathBuf,
}

impl Bed {
    pub(super) fn new(apt: &mut Apt, tools: &Tools, kernel: Kernel) -> anyhow::Result<Self> {
        let programs = image::programs(apt, tools, &kernel.series)?;
        let made_of = [
            stamp(kernel.folder())?,
            stamp(&programs.with_extension(""))?,
            qemu_version(tools)?,
            description(&kernel.series),
            INIT.to_owned(),
        ];
        let folder = apt.cache.join("saved");
        fs::create_dir_all(&folder)?;
        let name = kernel.series.to_string();
        let key = key(&made_of.concat());
        let initramfs = folder.join(format!("{name}-{key}.cpio"));
        if !initramfs.is_file() {
            remove_older(&folder, &name)?;
            let part = initramfs.with_extension("part");
            fs::write(&part, image::initramfs(apt, tools, &kernel)?)?;
            fs::rename(&part, &initramfs)?;
        }
        Ok(Self { saved: initramfs.with_extension("state"), parts: Parts { kernel, initramfs, programs } })
    }

    /// Boots a guest with this disk.
    pub(super) fn boot(&self, tools: &Tools, shared: &Path, output: &Output) -> anyhow::Result<Guest> {
        let mut guest = Guest::start(&self.parts, tools, shared, &From::Boot, output)?;
        guest.wait_ready()?;
        Ok(guest)
    }

    /// Boots a guest and saves it, unless that has been done.
    pub(super) fn save(&self, tools: &Tools) -> anyhow::Result<()> {
        if self.saved.is_file() {
            return Ok(());
        }
        let begun = Instant::now();
        let work = Work::new("nothing")?;
        let mut guest = self.boot(tools, &image::nothing_shared(&work.0)?, &Output::Pass)?;
        // Work that the kernel still does after booting would be done again in every guest.
        thread::sleep(Duration::from_secs(1));
        let part = self.saved.with_extension("part");
        guest.monitor.save(&part)?;
        guest.end();
        fs::rename(&part, &self.saved)?;
        say(&format!(
            "{}: booted and saved in {:.1} s",
            self.parts.kernel.series,
            begun.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    /// Restores a guest as it was saved, with this disk.
    pub(super) fn restore(&self, tools: &Tools, shared: &Path, output: &Output) -> anyhow::Result<Guest> {
        let mut guest = Guest::start(&self.parts, tools, shared, &From::Saved(&self.saved), output)?;
        guest.monitor.migrated().and_then(|()| guest.monitor.go_on()).inspect_err(|_| guest.keep_log())?;
        Ok(guest)
    }
}

/// Removes saved guests that were made of other parts, which are of no use any more.
fn remove_older(folder: &Path, name: &str) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
        // `6.1-KEY.state`, but neither `6.12-KEY.state` nor `6.1-arm64-KEY.state`.
        let rest = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).unwrap_or_default();
        if rest.split('.').next().is_some_and(|key| key.len() == KEY_DIGITS) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
