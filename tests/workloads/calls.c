// calls: repeats the same system calls, which stop, read and start a group of four software counters. Prints
// their CPU time, in seconds. Needs root.
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double cpu_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static int open_counter(int leader)
{
	struct perf_event_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.size = sizeof(attr);
	attr.type = PERF_TYPE_SOFTWARE;
	attr.config = PERF_COUNT_SW_DUMMY;
	attr.disabled = leader < 0;
	attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_TOTAL_TIME_ENABLED |
			   PERF_FORMAT_TOTAL_TIME_RUNNING;
	return syscall(SYS_perf_event_open, &attr, 0, -1, leader, 0);
}

int main(void)
{
	unsigned long words[64];
	double begun = cpu_seconds();
	int leader = open_counter(-1);

	for (int i = 0; i < 3; i++)
		if (leader < 0 || open_counter(leader) < 0)
			return perror("cannot open a counter"), 1;
	for (int i = 0; i < 50000; i++) {
		ioctl(leader, PERF_EVENT_IOC_DISABLE, 0);
		if (read(leader, words, sizeof(words)) < 0)
			return perror("cannot read a counter"), 1;
		ioctl(leader, PERF_EVENT_IOC_ENABLE, 0);
	}
	printf("%.6f\n", cpu_seconds() - begun);
	return 0;
}
