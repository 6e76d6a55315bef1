//! Places where each program for I/O is attached: a tracepoint, or the first cgroup.

use std::{fs::File, io, path::Path};

use aya::programs::{CgroupAttachMode, CgroupSkb, CgroupSkbAttachType};
use pmu_common::name::io::program;

use super::{Bios, IoObject, LoadError};
use crate::{
    bpf::{
        btf::Attachable,
        loaded::{refused, unattached},
    },
    machine::cgroup::Layout,
};

/// Programs and their tracepoints. Completions are attached first and starts last, so that no state is kept
/// of a request with an end that is not observed.
const TRACEPOINTS: [(&str, &str); 5] = [
    (program::COMPLETE, "block_rq_complete"),
    (program::MERGE, "block_rq_merge"),
    (program::REQUEUE, "block_rq_requeue"),
    (program::ISSUE, "block_rq_issue"),
    (program::INSERT, "block_rq_insert"),
];

/// Programs and tracepoints of bios.
const BIOS: [(&str, &str); 2] =
    [(program::BIO_COMPLETE, "block_bio_complete"), (program::BIO_QUEUE, "block_bio_queue")];

/// Program and tracepoint where limits of bios are timed.
const LIMITS: [(&str, &str); 1] = [(program::BIO_GO, "block_bio_queue")];

/// Programs and tracepoints for targets that are cgroups.
const CGROUPS: [(&str, &str); 2] =
    [(program::CGROUP_REMOVE, "cgroup_rmdir"), (program::CGROUP_CREATE, "cgroup_mkdir")];

/// Programs on packets, and the direction of the packets.
const PACKETS: [(&str, CgroupSkbAttachType); 2] =
    [(program::RECEIVE, CgroupSkbAttachType::Ingress), (program::SEND, CgroupSkbAttachType::Egress)];

impl IoObject {
    /// Makes the kernel verify the wanted programs. Those on packets may fail: the others count without them.
    pub(super) fn load_programs(&mut self, types: Option<&Attachable>) -> Result<(), LoadError> {
        let named = self.tracepoints().map(|(_, tracepoint)| tracepoint);
        let all = types;
        let types = types.map(|types| types.of_tracepoints(named)).transpose();
        let types = types.map_err(|error| refused(program::ISSUE, error.into()))?;
        for (name, tracepoint) in self.tracepoints() {
            self.loaded.load_tracepoint(name, tracepoint, types.as_ref())?;
        }
        if let Some((function, types)) = self.limit.zip(all) {
            // Some kernels allow no program on a function: time held back by limits is then in no latency.
            if self.loaded.load_functions(&[(program::BIO_LIMIT, function)], types).is_err() {
                self.limit = None;
            }
        }
        if self.parts.has_net() {
            self.net = self.load_packets();
        }
        Ok(())
    }

    /// Returns the wanted programs on tracepoints.
    fn tracepoints(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let requests = if self.parts.has_block() { &TRACEPOINTS[..] } else { &[] };
        let bios = if self.parts.has_block() && self.bios == Bios::Counted { &BIOS[..] } else { &[] };
        let cgroups = if self.has_cgroups { &CGROUPS[..] } else { &[] };
        let limits = if self.limit.is_some() { &LIMITS[..] } else { &[] };
        requests.iter().chain(bios).chain(limits).chain(cgroups).copied()
    }

    fn load_packets(&mut self) -> Result<(), LoadError> {
        for (name, _) in PACKETS {
            self.loaded.program::<CgroupSkb>(name)?.load().map_err(|error| refused(name, error))?;
        }
        Ok(())
    }

    /// Attaches the programs. Packets are counted where the v2 hierarchy of `layout` begins.
    pub(super) fn enable(&mut self, layout: &Layout) -> Result<(), LoadError> {
        for (name, tracepoint) in self.tracepoints() {
            self.loaded.attach_tracepoint(name, tracepoint)?;
        }
        if self.limit.is_some() && self.loaded.attach_function(program::BIO_LIMIT).is_err() {
            self.limit = None;
        }
        if self.parts.has_net() && self.net.is_ok() {
            self.net = self.attach_packets(layout.v2.as_deref());
        }
        Ok(())
    }

    fn attach_packets(&mut self, mount: Option<&Path>) -> Result<(), LoadError> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no cgroup v2 hierarchy is mounted");
        for (name, direction) in PACKETS {
            let top = mount.ok_or_else(missing).and_then(File::open);
            let top = top.map_err(|error| LoadError::Attach { name, error })?;
            // A link takes no mode: all programs that are attached by links run.
            let attached =
                self.loaded.program::<CgroupSkb>(name)?.attach(top, direction, CgroupAttachMode::Single);
            attached.map_err(|error| unattached(name, error))?;
        }
        Ok(())
    }
}
