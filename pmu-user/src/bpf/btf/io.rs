//! Offsets of the fields that the programs for I/O need.

use pmu_common::{config::ABSENT, io::config::IoOffsets};

use super::{BIO, Btf, BtfError, ISSUE, TYPE_BYTES};

/// Name of the I/O controller in the enumeration.
const IO_CONTROLLER: &str = "io_cgrp_id";

impl Btf {
    /// Returns all offsets that the programs for I/O need.
    ///
    /// # Errors
    ///
    /// A required field is missing. Optional ones become [`ABSENT`].
    pub fn io_offsets(&self) -> Result<IoOffsets, BtfError> {
        let need = |name: &str, path: &str| {
            self.offset(name, path).ok_or_else(|| BtfError::NoField(format!("{name}.{path}")))
        };
        let want = |name: &str, path: &str| self.offset(name, path).unwrap_or(ABSENT);
        let request_disk = want("request", "rq_disk");
        let bio_disk = want("bio", "bi_disk");
        let controlled = self.controlled();
        let of_group =
            |name: &str, path: &str| controlled.and_then(|_| self.offset(name, path)).unwrap_or(ABSENT);
        Ok(IoOffsets {
            task_tgid: need("task_struct", "tgid")?,
            task_group_leader: need("task_struct", "group_leader")?,
            task_start_boottime: need("task_struct", "start_boottime")?,
            task_flags: need("task_struct", "flags")?,
            task_real_parent: need("task_struct", "real_parent")?,
            task_cgroups: need("task_struct", "cgroups")?,
            css_set_dfl_cgrp: need("css_set", "dfl_cgrp")?,
            css_set_io: controlled.unwrap_or(ABSENT),
            cgroup_kn: need("cgroup", "kn")?,
            cgroup_root: need("cgroup", "root")?,
            cgroup_parent: need("cgroup", "self.parent")?,
            cgroup_root_hierarchy: need("cgroup_root", "hierarchy_id")?,
            kernfs_node_id: need("kernfs_node", "id")?,
            request_queue: need("request", "q")?,
            request_disk,
            request_flags: need("request", "cmd_flags")?,
            request_bytes: need("request", "__data_len")?,
            request_bio: need("request", "bio")?,
            request_start: need("request", "start_time_ns")?,
            queue_disk: if request_disk == ABSENT { need("request_queue", "disk")? } else { ABSENT },
            disk_major: need("gendisk", "major")?,
            disk_minor: need("gendisk", "first_minor")?,
            queue_operations: need("request_queue", "mq_ops")?,
            bio_disk,
            bio_device: if bio_disk == ABSENT { need("bio", "bi_bdev")? } else { ABSENT },
            device_disk: if bio_disk == ABSENT { need("block_device", "bd_disk")? } else { ABSENT },
            disk_queue: need("gendisk", "queue")?,
            bio_flags: need("bio", "bi_opf")?,
            bio_state: need("bio", "bi_flags")?,
            reserved: 0,
            bio_bytes: need("bio", "bi_iter.bi_size")?,
            bio_status: need("bio", "bi_status")?,
            bio_group: of_group("bio", "bi_blkg"),
            group_blkcg: of_group("blkcg_gq", "blkcg"),
            blkcg_cgroup: of_group("blkcg", "css.cgroup"),
            blkcg_parent: of_group("blkcg", "css.parent"),
            packet_interface: need("sk_buff", "dev")?,
            interface_name: need("net_device", "name")?,
            interface_namespace: want("net_device", "nd_net.net"),
            namespace_inode: want("net", "ns.inum"),
        })
    }

    /// Returns the offset of the I/O controller's state in a task's set of states. Returns `None` unless all
    /// fields that lead from a request to such a state exist.
    fn controlled(&self) -> Option<u32> {
        self.offset("bio", "bi_blkg")?;
        self.offset("blkcg_gq", "blkcg")?;
        self.offset("blkcg", "css.cgroup").filter(|_| self.offset("blkcg", "css") == Some(0))?;
        let controller = self.enumerated(self.controllers?, IO_CONTROLLER)?;
        Some(self.offset("css_set", "subsys")? + 8 * controller)
    }

    /// Returns the value of a name in an enumeration.
    fn enumerated(&self, id: u32, name: &str) -> Option<u32> {
        let at = self.at(id)?;
        let (_, values) = self.kind(at)?;
        let found = (0..values)
            .map(|index| at + TYPE_BYTES + index * 8)
            .find(|&value| self.is_called(value, name))?;
        self.u32_at(found + 4)
    }

    /// Returns the index of the request among the arguments of the tracepoints of block requests. It came
    /// after its queue before Linux 5.11.
    pub(in crate::bpf) fn request_argument(&self) -> u32 {
        self.follows_queue(ISSUE)
    }

    /// Returns the index of the bio among the arguments of `block_bio_queue`.
    pub(in crate::bpf) fn bio_argument(&self) -> u32 {
        self.follows_queue(BIO)
    }

    fn follows_queue(&self, tracepoint: &str) -> u32 {
        /// Index of the argument after the queue. The first is the kernel's own, then comes the queue.
        const AFTER_QUEUE: usize = 2;
        let after = self.tracepoints.get(tracepoint).and_then(|&id| self.parameter(id, AFTER_QUEUE));
        u32::from(after.is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pmu_common::config::ABSENT;

    use super::Btf;

    #[test]
    fn this_kernel_has_every_field_that_is_needed() {
        let path = Path::new("/sys/kernel/btf/vmlinux");
        if path.exists() {
            let offsets = Btf::read(path).unwrap().io_offsets().unwrap();
            assert_ne!(offsets.request_bio, offsets.request_bytes);
            assert_eq!(offsets.bio_group == ABSENT, offsets.css_set_io == ABSENT);
            assert_ne!((offsets.request_disk, offsets.queue_disk), (ABSENT, ABSENT));
        }
    }
    #[test]
    fn kernels_since_6_1_say_that_they_keep_programs_apart() {
        let (types, release) = (Path::new("/sys/kernel/btf/vmlinux"), "/proc/sys/kernel/osrelease");
        if types.exists() {
            let release = std::fs::read_to_string(release).unwrap();
            let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
            let release = (numbers.next().unwrap(), numbers.next().unwrap());
            assert_eq!(Btf::read(types).unwrap().keeps_programs_apart(), release >= (6, 1));
        }
    }
}
