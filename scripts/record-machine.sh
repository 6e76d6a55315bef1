#!/bin/sh
# Copies what identifies a machine's PMUs, CPUs and I/O topology from /sys and /proc into a folder, so that the folder
# can stand for the machine in tests: sh record-machine.sh DIR
# Reads only. Leaves out what names the host or a part of it: host name, serial numbers, addresses, UUIDs.
set -eu
LC_ALL=C
export LC_ALL

[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
out=$1
[ ! -e "$out" ] || { echo "$0: $out exists" >&2; exit 1; }
mkdir -p "$out"
# Files larger than this are no attributes.
limit=65536

# keep PATH...: copies readable files, links followed, without what names the machine.
keep() {
    for file in "$@"; do
        if [ ! -f "$file" ] || [ ! -r "$file" ]; then continue; fi
        mkdir -p "$out$(dirname "$file")"
        timeout 2 head -c "$limit" "$file" 2>/dev/null | scrub > "$out$file" || true
    done
}

# UUIDs, MAC addresses, and lines that name a serial number (not the flag `serialize`).
scrub() {
    sed -E -e 's/[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}/00000000-0000-0000-0000-000000000000/g' \
        -e 's/([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}/00:00:00:00:00:00/g' \
        -e '/^[^:=]*[Ss]erial[^:=]*[:=]/d'
}

# PMUs: type, format, events, caps, cpumask.
for pmu in /sys/bus/event_source/devices/*; do
    keep "$pmu/type" "$pmu/cpumask" "$pmu/cpus" "$pmu/perf_event_mux_interval_ms" "$pmu/identifier" "$pmu/rdpmc" \
        "$pmu"/die* "$pmu"/format/* "$pmu"/events/* "$pmu"/caps/*
done

# CPUs, nodes and their topology.
keep /sys/devices/system/cpu/online /sys/devices/system/cpu/possible /sys/devices/system/cpu/present \
    /sys/devices/system/cpu/smt/active /sys/devices/system/cpu/smt/control /sys/devices/system/node/online
for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
    keep "$cpu"/topology/* "$cpu/cpufreq/base_frequency" "$cpu/cpufreq/cpuinfo_max_freq" "$cpu/cpufreq/scaling_driver"
done
for cache in /sys/devices/system/cpu/cpu0/cache/index*; do
    keep "$cache/level" "$cache/size" "$cache/type" "$cache/shared_cpu_list" "$cache/coherency_line_size"
done
for node in /sys/devices/system/node/node[0-9]*; do
    keep "$node/cpulist" "$node/distance" "$node/meminfo"
done

# link PATH...: copies symbolic links as they are.
link() {
    for file in "$@"; do
        [ -L "$file" ] || continue
        mkdir -p "$out$(dirname "$file")"
        ln -sfn "$(readlink "$file")" "$out$file"
    done
}

# words DIR OFFSET COUNT: copies double words of configuration space, which root may read beyond the 16th.
words() {
    [ -r "$1/config" ] || return 0
    dd if="$1/config" of="$out$1/config" bs=4 skip="$2" seek="$2" count="$3" conv=notrunc status=none 2>/dev/null || true
}

# PCI devices: what they are, how they are linked, and the way to their root bus.
for device in /sys/bus/pci/devices/*; do
    [ -L "$device" ] || continue
    link "$device"
    at=$(readlink -f "$device")
    keep "$at/class" "$at/vendor" "$at/device" "$at/numa_node" "$at/current_link_speed" "$at/current_link_width" \
        "$at/max_link_speed" "$at/max_link_width"
    link "$at/driver" "$at/iommu_group" "$at/physfn" "$at"/virtfn*
    # What says which stack a bus belongs to, where nothing else does.
    case "$(cat "$at/vendor" "$at/device" 2>/dev/null | tr '\n' ' ')" in
        "0x8086 0x09a6 ") words "$at" 100 16 ;;
        "0x8086 0x325b ") words "$at" 37 1 ;;
        "0x8086 0x09a2 ") words "$at" 253 1 ;;
    esac
done

# Disks, interfaces and nodes of PCI devices: their names, numbers and models.
for disk in /sys/block/*; do
    link "$disk"
    at=$(readlink -f "$disk")
    keep "$at/dev" "$at"/*/dev "$at"/*/partition
    link "$at/device" "$at"/slaves/*
    keep "$(readlink -f "$at/device" 2>/dev/null || echo "$at")/model"
done
for interface in /sys/class/net/*; do
    # Others have names that somebody chose.
    [ -e "$interface/device" ] || continue
    link "$interface"
    at=$(readlink -f "$interface")
    keep "$at/ifindex"
    link "$at/device"
done
for node in /sys/class/nvme/* /sys/class/infiniband/* /sys/class/infiniband_verbs/* /sys/class/drm/* /sys/class/accel/* \
    /sys/class/uio/* /sys/class/vfio-dev/* /sys/bus/dsa/devices/*; do
    link "$node"
    [ ! -L "$node" ] || keep "$(readlink -f "$node")/model"
done
for module in /sys/devices/system/edac/mc/mc*/dimm*; do
    keep "$module/size" "$module/dimm_mem_type"
done

# Kernel, processor, settings.
keep /proc/sys/kernel/osrelease /proc/sys/kernel/perf_event_paranoid /proc/sys/kernel/perf_event_max_sample_rate \
    /proc/sys/kernel/nmi_watchdog /proc/sys/kernel/kptr_restrict /proc/sys/kernel/unprivileged_bpf_disabled \
    /sys/hypervisor/type
mkdir -p "$out/proc/self" "$out/proc/sys/kernel"
echo machine > "$out/proc/sys/kernel/hostname"
# Two processors show what differs between them.
awk -F': *' '/^processor/ { n = $2 } n < 2' /proc/cpuinfo | scrub > "$out/proc/cpuinfo"
# Only the cgroup mounts: the others name disks.
grep -E ' - cgroup2? ' /proc/self/mountinfo > "$out/proc/self/mountinfo" || true

echo "$(find "$out" -type f | wc -l) files in $out"
