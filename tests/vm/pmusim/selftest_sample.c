// SPDX-License-Identifier: GPL-2.0
/* selftest: overflows, BPF on them, NMIs, and the triggers of masked spans. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "selftest.h"

#define PAGES 64
#define RING_BYTES (PAGES * 4096ULL)
#define NMI_PARAMETER "/sys/module/pmusim/parameters/nmi"

struct sample {
	struct perf_event_header header;
	uint64_t ip, time_ns;
};

struct ring {
	int fd;
	struct perf_event_mmap_page *page;
};

/* Returns the number of samples in the ring from @from on and before @to. */
static int samples_within(const struct ring *ring, uint64_t from, uint64_t to)
{
	const char *data = (const char *)ring->page + 4096;
	uint64_t at = ring->page->data_tail, end = ring->page->data_head;
	struct sample sample;
	int n = 0;

	__sync_synchronize();
	while (at < end) {
		for (size_t i = 0; i < sizeof(sample); i++)
			((char *)&sample)[i] = data[(at + i) % RING_BYTES];
		if (sample.header.type == PERF_RECORD_LOST)
			check(false, "the ring is large enough");
		if (sample.header.type == PERF_RECORD_SAMPLE && sample.time_ns >= from &&
		    sample.time_ns < to)
			n++;
		at += sample.header.size;
	}
	return n;
}

static struct ring open_ring(const struct event *e)
{
	struct ring ring = { .fd = must_open(e) };

	ring.page = mmap(NULL, 4096 + RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, 0);
	must(ring.page != MAP_FAILED, "map a ring");
	return ring;
}

static void close_ring(struct ring *ring)
{
	munmap(ring->page, 4096 + RING_BYTES);
	close(ring->fd);
}

static int bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

#define INSN(_code, _dst, _src, _off, _imm) ((struct bpf_insn) { .code = (_code), \
	.dst_reg = (_dst), .src_reg = (_src), .off = (_off), .imm = (_imm) })

/* Loads a program that adds 1 to the first value of an array at each run. */
static int counting_program(int map)
{
	struct bpf_insn program[] = {
		INSN(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0),
		INSN(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0),
		INSN(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4),
		INSN(BPF_LD | BPF_IMM | BPF_DW, 1, BPF_PSEUDO_MAP_FD, 0, map),
		INSN(0, 0, 0, 0, 0),
		INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem),
		INSN(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2, 0),
		INSN(BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, 1),
		INSN(BPF_STX | BPF_ATOMIC | BPF_DW, 0, 1, 0, BPF_ADD),
		INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0),
		INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_PERF_EVENT,
		.insns = (uint64_t)program,
		.insn_cnt = sizeof(program) / sizeof(*program),
		.license = (uint64_t)"GPL",
	};
	int fd = bpf(BPF_PROG_LOAD, &attr);

	must(fd >= 0, "load a program");
	return fd;
}

static uint64_t map_value(int map)
{
	uint64_t value = 0;
	uint32_t key = 0;
	union bpf_attr attr = { .map_fd = map, .key = (uint64_t)&key, .value = (uint64_t)&value };

	must(!bpf(BPF_MAP_LOOKUP_ELEM, &attr), "look up the program's count");
	return value;
}

static void test_exact_overflows(int mode)
{
	union bpf_attr attr = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8,
				.max_entries = 1 };
	int map = bpf(BPF_MAP_CREATE, &attr), program = counting_program(map);
	struct event e = core_event(0xb1, 1);
	struct ring ring, counted;

	must_put(NMI_PARAMETER, "%d", mode);
	manual(true);
	rates("cpu b1 ffff 1000000\n");
	e.period = 100000;
	ring = open_ring(&e);
	counted = open_ring(&e);
	must(!ioctl(counted.fd, PERF_EVENT_IOC_SET_BPF, program), "bind a program");
	advance(SECOND);
	equal(samples_within(&ring, 0, ~0ULL), 10, "nmi=%d: samples of a second", mode);
	equal(map_value(map), 10, "nmi=%d: runs of the program", mode);
	advance(SECOND / 20);
	equal(map_value(map), 10, "nmi=%d: and half a period later", mode);
	advance(SECOND / 20);
	equal(map_value(map), 11, "nmi=%d: and half a period later", mode);
	equal(count(counted.fd), 1100000, "nmi=%d: their counter", mode);
	must_put(DEBUGFS "faults", "cpu b1 ffff dead\n");
	advance(SECOND);
	equal(map_value(map), 11, "nmi=%d: a dead counter never overflows", mode);
	must_put(DEBUGFS "faults", "clear");
	close_ring(&ring);
	close_ring(&counted);
	close(program);
	close(map);
}

struct span {
	int cpu;
	uint64_t from, to;
};

static struct span make_span(const char *kind, int cpu, unsigned int us)
{
	char path[64];
	struct span span;

	snprintf(path, sizeof(path), DEBUGFS "%s", kind);
	must_put(path, "%d %u\n", cpu, us);
	must(sscanf(get(path), "%d %lu %lu", &span.cpu, &span.from, &span.to) == 3,
	     "read the span of %s", kind);
	return span;
}

/*
 * The host may lengthen a span, as it may lengthen anything.  A tick at its
 * edges is not counted.
 */
static void test_span(const char *kind, int mode, bool sampled)
{
	struct event e = core_event(0xb1, 1);
	struct ring ring;
	struct span span;
	int n;

	must_put(NMI_PARAMETER, "%d", mode);
	rates("cpu b1 ffff 1000000000\n");
	e.period = 5000000;
	ring = open_ring(&e);
	usleep(50000);
	span = make_span(kind, 1, 300000);
	usleep(50000);
	check(span.cpu == 1 && span.to - span.from >= 300000000 &&
	      span.to - span.from < 600000000, "%s lasted %llu ns", kind,
	      (unsigned long long)(span.to - span.from));
	n = samples_within(&ring, span.from + 1000000, span.to - 1000000);
	if (sampled)
		check(n >= 10, "nmi=%d: samples inside %s: %d", mode, kind, n);
	else
		equal(n, 0, "nmi=%d: samples inside %s", mode, kind);
	check(samples_within(&ring, 0, span.from) > 0, "nmi=%d: samples before it", mode);
	check(samples_within(&ring, span.to, ~0ULL) > 0, "nmi=%d: samples after it", mode);
	close_ring(&ring);
}

/* Runs everything at once, for the kernel log, which must stay clean. */
static void test_stress(int mode)
{
	struct event e = core_event(0, 0);
	struct ring rings[24];
	int i, n = 0;

	must_put(NMI_PARAMETER, "%d", mode);
	rates("cpu 0 0 1000000000\ncpu b3 ff 500000000 tgid=%d\n"
	      "cpu b5 ff 5000000000 phase=1000000:0:300000\n", getpid());
	for (i = 0; i < 24; i++) {
		e.config = 0xb1 + i / 2;
		e.cpu = i % 2;
		e.period = 3000000 + 100000 * i;
		rings[i] = open_ring(&e);
	}
	for (i = 0; i < 20; i++) {
		switch_often(50);
		must_put(DEBUGFS "rates", "cpu b1 ff %d\n", i * 100000000);
		must_put(DEBUGFS "taken", i % 2 ? "clear" : "cpu 3");
		make_span("irqoff", i % 2, 2000);
	}
	must_put(DEBUGFS "taken", "clear");
	for (i = 0; i < 24; i++) {
		n += samples_within(&rings[i], 0, ~0ULL);
		close_ring(&rings[i]);
	}
	check(n > 100, "nmi=%d: %d samples of 24 multiplexed events under changing tables", mode,
	      n);
}

void test_samples(void)
{
	int mode;

	for (mode = 0; mode <= 2; mode++)
		test_exact_overflows(mode);
	manual(false);
	test_span("irqoff", 0, false);
	test_span("irqoff", 1, false);
	test_span("irqoff", 2, true);
	test_span("preemptoff", 0, true);
	test_span("bhoff", 0, true);
	test_span("softirq", 1, true);
	for (mode = 0; mode <= 2; mode++)
		test_stress(mode);
	check(put(DEBUGFS "irqoff", "1 1000001") == EINVAL, "more than a second is refused");
	must_put(NMI_PARAMETER, "0");
}
