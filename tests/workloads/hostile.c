// hostile MODE SECONDS [ARGUMENT]: attacks on programs that look up its names. Runs code that a sample hits
// in
// all modes, and leaves nothing in /tmp.
//   map-truncate       a JIT that truncates its perf map while it runs
//   map-append         an honest JIT, which names its second function when half of the time is over
//   map-0x             an honest JIT that writes its addresses as the JVM does
//   map-exchange       exchanges its perf map and a pipe, again and again
//   map-pipe           has a pipe for a perf map
//   map-line           a perf map of 250 MB, a line without an end
//   map-lines          a perf map of 43 million lines
//   files N            maps N files, with a pipe in place of the first, under the kernel's name of a deleted
// file
//   storm N            forks and maps without end, with N executable mappings to copy each time
//   load LIBRARY       runs `hot` of a shared library
//   mapped FOLDER:OFFSET   runs the code at OFFSET in each file of a folder, and loads none of them
//   load-cut LIBRARY:FILE  the same, and truncates FILE 100 ms after another process has opened it
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "countdown.h"

typedef long (*work)(long);

static char map[64], other[64];
static volatile int stop;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void run(work function, double seconds)
{
	for (double end = now() + seconds; now() < end;)
		function(1000000);
}

static void *generated(int functions)
{
	char *page = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		exit(1);
	for (int i = 0; i < functions; i++)
		memcpy(page + i * 4096, code, sizeof(code));
	__builtin___clear_cache(page, page + functions * 4096);
	return page;
}

static void *exchange(void *unused)
{
	while (!stop)
		syscall(SYS_renameat2, AT_FDCWD, map, AT_FDCWD, other, 2 /* RENAME_EXCHANGE */);
	return unused;
}

static void *cut(void *file)
{
	char events[4096];
	int watch = inotify_init1(0);

	inotify_add_watch(watch, file, IN_OPEN);
	if (read(watch, events, sizeof(events)) > 0) {
		usleep(100000);
		if (truncate(file, 4096))
			perror("truncate");
	}
	return NULL;
}

static int jit(const char *mode, double seconds)
{
	char *page = generated(2);
	work first = (work)page, second = (work)(page + 4096);
	const char *form = strcmp(mode, "map-0x") ? "%lx %lx %s\n" : "0x%016lx 0x%016lx %s\n";
	pthread_t thread;

	snprintf(map, sizeof(map), "/tmp/perf-%d.map", getpid());
	snprintf(other, sizeof(other), "/tmp/pmbpf-test-pipe-%d", getpid());
	if (!strcmp(mode, "map-pipe")) {
		if (mkfifo(map, 0666))
			return 1;
		puts("ready");
		fflush(stdout);
		run(first, seconds);
		return unlink(map);
	}
	FILE *file = fopen(map, "w");

	if (!file)
		return 1;
	fprintf(file, form, (unsigned long)page, sizeof(code), "jitted_first");
	fflush(file);
	if (!strcmp(mode, "map-truncate"))
		fprintf(file, form, (unsigned long)second, sizeof(code), "jitted_second");
	if (!strcmp(mode, "map-line")) {
		char *line = malloc(1 << 20);

		memset(line, 'A', 1 << 20);
		for (int i = 0; i < 250; i++)
			fwrite(line, 1, 1 << 20, file);
	} else if (!strcmp(mode, "map-lines")) {
		for (int i = 0; i < 43000000; i++)
			fputs("0 1 a\n", file);
	} else if (!strcmp(mode, "map-exchange")) {
		if (mkfifo(other, 0666) || pthread_create(&thread, NULL, exchange, NULL))
			return 1;
	}
	fflush(file);
	puts("ready");
	fflush(stdout);
	run(first, seconds / 2);
	if (!strcmp(mode, "map-truncate") && truncate(map, 0))
		return 1;
	if (!strcmp(mode, "map-append") || !strcmp(mode, "map-0x"))
		fprintf(file, form, (unsigned long)second, sizeof(code), "jitted_second");
	fclose(file);
	run(second, seconds / 2);
	stop = 1;
	if (!strcmp(mode, "map-exchange"))
		pthread_join(thread, NULL);
	unlink(other);
	return unlink(map);
}

static int files(double seconds, int number)
{
	char folder[64], path[96], gone[128], page[4096] = { 0 };
	work last = NULL;

	memcpy(page, code, sizeof(code));
	snprintf(folder, sizeof(folder), "/tmp/pmbpf-test-files-%d", getpid());
	mkdir(folder, 0755);
	for (int i = 0; i < number; i++) {
		snprintf(path, sizeof(path), "%s/%d", folder, i);
		int file = open(path, O_RDWR | O_CREAT, 0755);

		if (file < 0 || write(file, page, sizeof(page)) != sizeof(page))
			return 1;
		last = (work)mmap(NULL, sizeof(page), PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
		close(file);
		if (last == MAP_FAILED)
			return 1;
		if (!i) {
			snprintf(gone, sizeof(gone), "%s (deleted)", path);
			unlink(path);
			if (mkfifo(gone, 0666))
				return 1;
		}
	}
	puts("ready");
	fflush(stdout);
	run(last, seconds);
	unlink(gone);
	for (int i = 1; i < number; i++) {
		snprintf(path, sizeof(path), "%s/%d", folder, i);
		unlink(path);
	}
	return rmdir(folder);
}

static int storm(double seconds, int number)
{
	work function = generated(1);
	char *room = mmap(NULL, number * 8192L, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double end = now() + seconds;

	if (room == MAP_FAILED)
		return 1;
	for (int i = 0; i < number; i++)
		if (mprotect(room + i * 8192L, 4096, PROT_READ | PROT_EXEC))
			return 1;
	puts("ready");
	fflush(stdout);
	for (int i = 0; now() < end; i++) {
		pid_t child = vfork();

		if (!child)
			_exit(0);
		waitpid(child, NULL, 0);
		mprotect(room + i % number * 8192L, 4096, PROT_NONE);
		mprotect(room + i % number * 8192L, 4096, PROT_READ | PROT_EXEC);
		function(500000);
	}
	return 0;
}

static int mapped(double seconds, char *folder)
{
	char *offset = strrchr(folder, ':');
	work functions[256];
	int count = 0;

	*offset++ = 0;
	DIR *entries = opendir(folder);

	for (struct dirent *entry; entries && (entry = readdir(entries)) && count < 256;) {
		char path[4096];
		struct stat status;

		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		int file = open(path, O_RDONLY);

		if (file >= 0 && !fstat(file, &status) && S_ISREG(status.st_mode)) {
			char *start = mmap(NULL, status.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);

			if (start == MAP_FAILED)
				return 1;
			functions[count++] = (work)(start + atol(offset));
		}
		close(file);
	}
	if (!count)
		return 1;
	puts("ready");
	fflush(stdout);
	for (double end = now() + seconds; now() < end;)
		for (int i = 0; i < count; i++)
			run(functions[i], 0.01);
	return 0;
}

static int load(double seconds, char *library)
{
	char *file = strchr(library, ':');
	pthread_t thread;

	if (file)
		*file++ = 0;
	void *handle = dlopen(library, RTLD_NOW);
	work hot = handle ? (work)dlsym(handle, "hot") : NULL;

	if (!hot)
		return fprintf(stderr, "%s\n", dlerror()), 1;
	if (file && pthread_create(&thread, NULL, cut, file))
		return 1;
	puts("ready");
	fflush(stdout);
	run(hot, seconds);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	double seconds = atof(argv[2]);

	if (!strncmp(argv[1], "map-", 4))
		return jit(argv[1], seconds);
	if (!strcmp(argv[1], "mapped") && argc > 3)
		return mapped(seconds, argv[3]);
	if (!strcmp(argv[1], "files") && argc > 3)
		return files(seconds, atoi(argv[3]));
	if (!strcmp(argv[1], "storm") && argc > 3)
		return storm(seconds, atoi(argv[3]));
	if (!strncmp(argv[1], "load", 4) && argc > 3)
		return load(seconds, argv[3]);
	return 2;
}
