//! Configuration that the loader passes to the programs before they are loaded, as in [`crate::config`].

use crate::{config::PidNamespace, wire};

wire! {
    /// Read-only globals of the programs. [`IoConfig::by`], [`IoConfig::filter`] and absent offsets have the
    /// values of [`crate::config`].
    pub struct IoConfig {
        /// Number of possible CPUs: the stride of rows that exist per CPU.
        pub cpus: u32,
        /// Owners of block requests: [`crate::config::BY_PROCESS`] or [`crate::config::BY_CGROUP`]. Packets
        /// have cgroups only.
        pub by: u32,
        /// [`crate::config::FILTER_NONE`], [`crate::config::FILTER_PROCESSES`] or
        /// [`crate::config::FILTER_CGROUPS`].
        pub filter: u32,
        /// 1: children of a target process, cgroups below a target cgroup are targets too.
        pub descend: u32,
        /// Entries of the table of requests in flight, minus one (a power of two, minus one).
        pub in_flight_mask: u32,
        /// First slot of requests that is kept for devices' common rows.
        pub block_owner_slots: u32,
        /// First slot of packets that is kept for the same.
        pub net_owner_slots: u32,
        /// Index of the request among the arguments of `block_rq_insert`, `_issue`, `_requeue` and `_merge`:
        /// 0, or before Linux 5.11 (5.10.137) 1, after the queue.
        pub request_argument: u32,
        /// Index of the bio among the arguments of `block_bio_queue`: 0, or before Linux 5.11 1, after the
        /// queue.
        pub bio_argument: u32,
        /// Histograms of a slot, of each kind: CPUs share them by number. A power of two.
        pub lanes: u32,
        /// 1: the kernel does not run a tracepoint's program inside itself (Linux 6.1), so the programs need
        /// not prevent it.
        pub kept_apart: u32,
        /// 1: the time that limits hold bios back is measured.
        pub times_throttling: u32,
        /// 1: a bio that was held back passes its limit again, with this flag (before Linux 5.19,
        /// `BIO_THROTTLED`).
        pub throttled_again: u32,
        /// Keeps the size a multiple of 8 bytes.
        pub reserved: u32,
        /// PID namespace of the reported ids.
        pub pids: PidNamespace,
        /// Offsets of the fields in this kernel.
        pub offsets: IoOffsets,
    }

    /// Byte offsets of kernel fields, from the running kernel's BTF; [`crate::config::ABSENT`] where a kernel
    /// has no such field.
    pub struct IoOffsets {
        /// Offset of `task_struct.tgid`.
        pub task_tgid: u32,
        /// Offset of `task_struct.group_leader`.
        pub task_group_leader: u32,
        /// `task_struct.start_boottime` (ns, CLOCK_BOOTTIME), as in /proc.
        pub task_start_boottime: u32,
        /// Offset of `task_struct.flags`.
        pub task_flags: u32,
        /// Offset of `task_struct.real_parent`.
        pub task_real_parent: u32,
        /// Offset of `task_struct.cgroups`.
        pub task_cgroups: u32,
        /// `css_set.dfl_cgrp`: the task's cgroup in the v2 hierarchy.
        pub css_set_dfl_cgrp: u32,
        /// `css_set.subsys[io_cgrp_id]`: the cgroup that controls the task's I/O. Absent without
        /// CONFIG_BLK_CGROUP.
        pub css_set_io: u32,
        /// Offset of `cgroup.kn`.
        pub cgroup_kn: u32,
        /// Offset of `cgroup.root`.
        pub cgroup_root: u32,
        /// `cgroup.self.parent`; `self` is the first member, so this is the parent cgroup.
        pub cgroup_parent: u32,
        /// `cgroup_root.hierarchy_id`: 0 for v2.
        pub cgroup_root_hierarchy: u32,
        /// Offset of `kernfs_node.id`.
        pub kernfs_node_id: u32,
        /// Offset of `request.q`.
        pub request_queue: u32,
        /// `request.rq_disk`, before Linux 5.17.
        pub request_disk: u32,
        /// Offset of `request.cmd_flags`.
        pub request_flags: u32,
        /// `request.__data_len` (bytes that have not completed).
        pub request_bytes: u32,
        /// Offset of `request.bio`.
        pub request_bio: u32,
        /// `request.start_time_ns`: time of its allocation (CLOCK_MONOTONIC), 0 where it is not requested.
        pub request_start: u32,
        /// `request_queue.disk`, since Linux 5.15.
        pub queue_disk: u32,
        /// Offset of `gendisk.major`.
        pub disk_major: u32,
        /// Offset of `gendisk.first_minor`.
        pub disk_minor: u32,
        /// `request_queue.mq_ops`: null where a device takes bios and makes no requests.
        pub queue_operations: u32,
        /// `bio.bi_disk`, before Linux 5.12.
        pub bio_disk: u32,
        /// `bio.bi_bdev`, since Linux 5.12.
        pub bio_device: u32,
        /// Offset of `block_device.bd_disk`.
        pub device_disk: u32,
        /// Offset of `gendisk.queue`.
        pub disk_queue: u32,
        /// Offset of `bio.bi_opf`.
        pub bio_flags: u32,
        /// `bio.bi_flags`, two bytes.
        pub bio_state: u32,
        /// Keeps the size a multiple of 8 bytes.
        pub reserved: u32,
        /// `bio.bi_iter.bi_size` (bytes that have not completed).
        pub bio_bytes: u32,
        /// `bio.bi_status`, a byte.
        pub bio_status: u32,
        /// `bio.bi_blkg`; absent without CONFIG_BLK_CGROUP.
        pub bio_group: u32,
        /// `blkcg_gq.blkcg`; absent without CONFIG_BLK_CGROUP.
        pub group_blkcg: u32,
        /// `blkcg.css.cgroup`; absent without CONFIG_BLK_CGROUP. `css` is the first member.
        pub blkcg_cgroup: u32,
        /// `blkcg.css.parent`; absent without CONFIG_BLK_CGROUP.
        pub blkcg_parent: u32,
        /// Offset of `sk_buff.dev`.
        pub packet_interface: u32,
        /// Offset of `net_device.name`.
        pub interface_name: u32,
        /// `net_device.nd_net.net`; absent without CONFIG_NET_NS.
        pub interface_namespace: u32,
        /// Offset of `net.ns.inum`.
        pub namespace_inode: u32,
    }
}
