// prefork N SECONDS: N processes that serve the same requests, like servers that fork before they accept.
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

__attribute__((noinline)) void serve_request(void)
{
	for (volatile int i = 0; i < 30000; i++)
		;
}

__attribute__((noinline)) void parse_header(void)
{
	for (volatile int i = 0; i < 20000; i++)
		;
}

int main(int count, char **words)
{
	int processes = count > 2 ? atoi(words[1]) : 8;
	double end = now() + (count > 2 ? atof(words[2]) : 1);

	for (int i = 0; i < processes; i++) {
		if (fork())
			continue;
		while (now() < end) {
			serve_request();
			parse_header();
		}
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
	return 0;
}
