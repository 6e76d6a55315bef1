// bpfjit SECONDS NAME [SECONDS NAME]...: loads a BPF program of each name, has the kernel run it for SECONDS,
// and unloads it. The next lies at its addresses. Prints the CPU time of each.
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STEPS 4000

static struct bpf_insn code[STEPS + 2];

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

// Program of dependent multiplications.
static int load(const char *name)
{
	union bpf_attr attr;

	code[0] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 7 };
	for (int i = 1; i <= STEPS; i++)
		code[i] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MUL | BPF_K, .dst_reg = 0, .imm = 3 };
	code[STEPS + 1] = (struct bpf_insn){ .code = BPF_JMP | BPF_EXIT };
	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
	attr.insns = (uintptr_t)code;
	attr.insn_cnt = STEPS + 2;
	attr.license = (uintptr_t)"GPL";
	strncpy(attr.prog_name, name, sizeof(attr.prog_name) - 1);
	return bpf(BPF_PROG_LOAD, &attr);
}

int main(int argc, char **argv)
{
	static char packet[64];
	union bpf_attr attr;

	for (int i = 1; i + 1 < argc; i += 2) {
		int program = load(argv[i + 1]);
		double begun = seconds(), used;

		if (program < 0) {
			perror("bpf");
			return 1;
		}
		do {
			memset(&attr, 0, sizeof(attr));
			attr.test.prog_fd = program;
			attr.test.data_in = (uintptr_t)packet;
			attr.test.data_size_in = sizeof(packet);
			attr.test.repeat = 200;
			if (bpf(BPF_PROG_TEST_RUN, &attr) < 0) {
				perror("run");
				return 1;
			}
			used = seconds() - begun;
		} while (used < atof(argv[i]));
		printf("%s %.6f\n", argv[i + 1], used);
		fflush(stdout);
		close(program);
		// The program is freed after a grace period.
		usleep(50000);
	}
	return 0;
}
