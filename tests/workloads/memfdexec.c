// memfdexec PROGRAM [ARGUMENT]...: executes a copy of a program that is in memory and in no directory.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
	struct stat status;
	int from = open(argv[1], O_RDONLY | O_CLOEXEC), to = memfd_create("program", MFD_CLOEXEC);

	if (argc < 2 || from < 0 || to < 0 || fstat(from, &status))
		return 1;
	for (off_t at = 0; at < status.st_size;)
		if (sendfile(to, from, &at, status.st_size - at) <= 0)
			return 1;
	fexecve(to, argv + 1, environ);
	return 1;
}
