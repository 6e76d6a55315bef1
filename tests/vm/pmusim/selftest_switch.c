// SPDX-License-Identifier: GPL-2.0
/* selftest: a BPF program that reads two counters at each context switch. */
#include <linux/bpf.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "selftest.h"

#define INSN(_code, _dst, _src, _off, _imm) ((struct bpf_insn) { .code = (_code), \
	.dst_reg = (_dst), .src_reg = (_src), .off = (_off), .imm = (_imm) })
#define LOAD(dst, src, off)	INSN(BPF_LDX | BPF_MEM | BPF_DW, dst, src, off, 0)
#define STORE(dst, off, src)	INSN(BPF_STX | BPF_MEM | BPF_DW, dst, src, off, 0)
#define MAP(fd)			INSN(BPF_LD | BPF_IMM | BPF_DW, 1, BPF_PSEUDO_MAP_FD, 0, fd)
#define MAP_END			INSN(0, 0, 0, 0, 0)
#define SET(dst, value)		INSN(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, value)
#define ADD(dst, value)		INSN(BPF_ALU64 | BPF_ADD | BPF_K, dst, 0, 0, value)
#define FRAME(dst)		INSN(BPF_ALU64 | BPF_MOV | BPF_X, dst, 10, 0, 0)
#define MINUS(dst, src)		INSN(BPF_ALU64 | BPF_SUB | BPF_X, dst, src, 0, 0)
#define CALL(function)		INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_##function)
#define JUMP_IF(op, dst, value, off) INSN(BPF_JMP | BPF_##op | BPF_K, dst, 0, off, value)
#define THIS_CPU		INSN(BPF_ALU | BPF_MOV | BPF_K, 2, 0, 0, -1)

struct state {
	uint64_t all, ours, switches, wrong;
};

static int bpf(int command, union bpf_attr *attr)
{
	int result = syscall(SYS_bpf, command, attr, sizeof(*attr));

	must(result >= 0, "have command %d done", command);
	return result;
}

static int new_map(int type, int value_size, int entries)
{
	union bpf_attr attr = { .map_type = type, .key_size = 4, .value_size = value_size,
				.max_entries = entries };

	return bpf(BPF_MAP_CREATE, &attr);
}

static int map_of_event(int event)
{
	int map = new_map(BPF_MAP_TYPE_PERF_EVENT_ARRAY, 4, 2);
	uint32_t key = 0;
	union bpf_attr attr = { .map_fd = map, .key = (uint64_t)&key, .value = (uint64_t)&event };

	bpf(BPF_MAP_UPDATE_ELEM, &attr);
	return map;
}

/* Between two switches, ours must count as much as all, or nothing. */
static int comparing_program(int all, int ours, int state)
{
	struct bpf_insn program[] = {
		MAP(all), MAP_END, THIS_CPU, FRAME(3), ADD(3, -24), SET(4, 24),
		CALL(perf_event_read_value),
		JUMP_IF(JNE, 0, 0, 31),
		MAP(ours), MAP_END, THIS_CPU, FRAME(3), ADD(3, -48), SET(4, 24),
		CALL(perf_event_read_value),
		JUMP_IF(JNE, 0, 0, 23),
		INSN(BPF_ST | BPF_MEM | BPF_W, 10, 0, -52, 0),
		FRAME(2), ADD(2, -52),
		MAP(state), MAP_END,
		CALL(map_lookup_elem),
		JUMP_IF(JEQ, 0, 0, 16),
		LOAD(1, 10, -24), LOAD(3, 0, 0), STORE(0, 0, 1), MINUS(1, 3),
		LOAD(2, 10, -48), LOAD(3, 0, 8), STORE(0, 8, 2), MINUS(2, 3),
		LOAD(3, 0, 16), ADD(3, 1), STORE(0, 16, 3),
		JUMP_IF(JEQ, 2, 0, 4),
		INSN(BPF_JMP | BPF_JEQ | BPF_X, 1, 2, 3, 0),
		LOAD(3, 0, 24), ADD(3, 1), STORE(0, 24, 3),
		SET(0, 0),
		INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT,
		.insns = (uint64_t)program,
		.insn_cnt = sizeof(program) / sizeof(*program),
		.license = (uint64_t)"GPL",
	};

	return bpf(BPF_PROG_LOAD, &attr);
}

void test_reads_at_switches(void)
{
	struct event e = core_event(0xb0, 0);
	struct state state = { 0 };
	uint32_t key = 0;
	union bpf_attr look = { .key = (uint64_t)&key, .value = (uint64_t)&state };
	union bpf_attr attach = { .raw_tracepoint.name = (uint64_t)"sched_switch" };
	int all, ours, maps[3], program, link, i;

	manual(false);
	rates("cpu b0 ffff 1000000000\ncpu b1 ffff 0\ncpu b1 ffff 1000000000 tgid=%d\n", getpid());
	e.disabled = true;
	all = must_open(&e);
	e.disabled = false;
	e.group = all;
	e.config = 0xb1;
	ours = must_open(&e);
	maps[0] = map_of_event(all);
	maps[1] = map_of_event(ours);
	maps[2] = new_map(BPF_MAP_TYPE_ARRAY, sizeof(state), 1);
	program = comparing_program(maps[0], maps[1], maps[2]);
	attach.raw_tracepoint.prog_fd = program;
	link = bpf(BPF_RAW_TRACEPOINT_OPEN, &attach);
	ioctl(all, PERF_EVENT_IOC_ENABLE, 0);
	switch_often(1000);
	close(link);
	look.map_fd = maps[2];
	bpf(BPF_MAP_LOOKUP_ELEM, &look);
	check(state.switches >= 2000 && state.ours, "a BPF program read at %lu switches",
	      state.switches);
	equal(state.wrong, 0, "spans that were not wholly ours or others'");
	for (i = 0; i < 3; i++)
		close(maps[i]);
	close(program);
	close(ours);
	close(all);
}
