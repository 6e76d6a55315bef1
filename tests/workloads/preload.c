// Preloaded library that ends the process that waits to become pmbpf's command, before it does anything.
#include <signal.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void end(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "__launch"))
		kill(getpid(), SIGKILL);
}
