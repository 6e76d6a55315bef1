//! Programs on packets of sockets, attached to the first cgroup, where every socket's packets pass: received
//! packets before delivery, sent packets before the device gets them. They let every packet pass.
//!
//! A socket belongs to the cgroup of its task when it was created, and stays there.

use aya_ebpf::{
    helpers::generated::{bpf_skb_ancestor_cgroup_id, bpf_skb_cgroup_id},
    macros::cgroup_skb,
    programs::SkBuffContext,
};
use pmu_common::{
    config::{ABSENT, FILTER_CGROUPS},
    io::{
        IoKey, IoOwner, NAME_BYTES, loss,
        net::{self, OWNER_MANY, OWNER_OUTSIDER, RECEIVED, SENT, device_word},
    },
};

use super::{
    maps::{NET_COUNTS, NET_FREE, NET_OWNERS, NET_SLOT_OF},
    owner::is_named,
    slot::Slots,
};
use crate::{
    access::{Fields as _, Pointer, Probed},
    config::config,
    cpu::{lose, row, this_cpu},
    intrinsics::add,
};

/// Verdict that lets a packet pass.
const PASS: i32 = 1;

/// Largest number of levels of cgroups that are searched for a target.
const LEVELS_MAX: i32 = 16;

/// Protocols `ETH_P_IP` and `ETH_P_IPV6`, include/uapi/linux/if_ether.h, and the offset of the next protocol
/// in their headers.
const IP: (u16, usize) = (0x0800, 9);
const IPV6: (u16, usize) = (0x86dd, 6);

const SLOTS: Slots = Slots { of: &NET_SLOT_OF, free: &NET_FREE, owners: &NET_OWNERS };

/// Program on every packet that a socket receives.
#[cgroup_skb(ingress)]
#[expect(clippy::needless_pass_by_value, reason = "the macro hands over the context")]
pub(crate) fn net_receive(context: SkBuffContext) -> i32 {
    let _ = count(&context, RECEIVED);
    PASS
}

/// Program on every packet that a socket sends.
#[cgroup_skb(egress)]
#[expect(clippy::needless_pass_by_value, reason = "the macro hands over the context")]
pub(crate) fn net_send(context: SkBuffContext) -> i32 {
    let _ = count(&context, SENT);
    PASS
}

#[inline(always)]
fn count(context: &SkBuffContext, direction: usize) -> Option<()> {
    let index = row(slot_of(context), this_cpu());
    let count = NET_COUNTS.get_ptr_mut(index)?;
    // SAFETY: the lookup gave a live row.
    let packets = unsafe { &raw mut (*count).packets }.cast::<u64>();
    // SAFETY: as above.
    let bytes = unsafe { &raw mut (*count).bytes }.cast::<u64>();
    // One arm per protocol: the verifier requires constant indices.
    let place = match protocol(context) {
        net::TCP => direction * net::PROTOCOLS + net::TCP,
        net::UDP => direction * net::PROTOCOLS + net::UDP,
        _ => direction * net::PROTOCOLS + net::OTHER,
    };
    add(packets.wrapping_add(place), 1);
    add(bytes.wrapping_add(place), u64::from(context.skb.len()));
    Some(())
}

/// Returns the next protocol in the packet's IP header.
#[inline(always)]
fn protocol(context: &SkBuffContext) -> usize {
    // SAFETY: the verifier checks the context's fields.
    let kind = u16::from_be(unsafe { (*context.skb.skb).protocol } as u16);
    let (_, place) = if kind == IP.0 { IP } else { IPV6 };
    if kind != IP.0 && kind != IPV6.0 {
        return net::OTHER;
    }
    context.load::<u8>(place).map_or(net::OTHER, net::protocol)
}

#[inline(always)]
fn slot_of(context: &SkBuffContext) -> u32 {
    let packet = context.skb.skb;
    // SAFETY: the context is the helper's own.
    let cgroup = unsafe { bpf_skb_cgroup_id(packet) };
    // SAFETY: the verifier checks the context's fields.
    let index = unsafe { (*packet).ifindex };
    // The context is the kernel's own struct; the verifier allows only a part of it.
    let interface = Probed::pointer(packet.cast_const().cast(), config!(offsets.packet_interface));
    let key = IoKey { device: device_word(interface as u64, index), owner: cgroup };
    if let Some(slot) = SLOTS.known(&key) {
        return slot;
    }
    let describe = |owner: *mut IoOwner| describe(owner, interface, index);
    let wanted = config!(filter) != FILTER_CGROUPS || cgroup == 0 || wants(context, cgroup);
    let allocated = if wanted { SLOTS.allocate(&key, config!(net_owner_slots), describe) } else { None };
    allocated.unwrap_or_else(|| {
        if wanted {
            lose(loss::OWNER_LIMIT);
        }
        let owner = if wanted { OWNER_MANY } else { OWNER_OUTSIDER };
        SLOTS.share(&key, &IoKey { owner, ..key }, describe)
    })
}

/// Returns whether the cgroup is a target, or below one.
#[inline(always)]
fn wants(context: &SkBuffContext, cgroup: u64) -> bool {
    if is_named(cgroup) {
        return true;
    }
    if config!(descend) == 0 {
        return false;
    }
    for level in 1..LEVELS_MAX {
        // SAFETY: the context is the helper's own.
        let ancestor = unsafe { bpf_skb_ancestor_cgroup_id(context.skb.skb, level) };
        if ancestor == 0 {
            return false;
        }
        if is_named(ancestor) {
            return true;
        }
    }
    false
}

/// Writes the interface into an owner's row. Its index is unique only within its namespace, and both may be
/// gone before user space reads them.
#[inline(always)]
fn describe(owner: *mut IoOwner, interface: Pointer, index: u32) {
    let namespace = if config!(offsets.interface_namespace) == ABSENT {
        0
    } else {
        let namespace = Probed::pointer(interface, config!(offsets.interface_namespace));
        Probed::u32(namespace, config!(offsets.namespace_inode))
    };
    let name = Probed::read::<[u8; NAME_BYTES]>(interface, config!(offsets.interface_name));
    // SAFETY: `owner` is a live row with one writer until it is published.
    let owner = unsafe { &mut *owner };
    owner.interface = index;
    owner.namespace = namespace;
    owner.name = name;
}
