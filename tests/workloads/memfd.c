// memfd PROGRAM…: executes a program from a memfd, as runc does with itself.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

extern char **environ;

int main(int count, char **arguments)
{
	static char piece[65536];
	int from = open(arguments[1], O_RDONLY), into = memfd_create("runc_cloned", MFD_CLOEXEC);
	ssize_t bytes;

	while ((bytes = read(from, piece, sizeof(piece))) > 0)
		if (write(into, piece, bytes) != bytes)
			return 1;
	fexecve(into, arguments + 1, environ);
	perror("fexecve");
	return 1;
}
