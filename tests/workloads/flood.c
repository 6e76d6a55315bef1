// flood SECONDS: sends datagrams to itself on loopback as fast as it can, and reads none.
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(to);
	int from = socket(AF_INET, SOCK_DGRAM, 0), at = socket(AF_INET, SOCK_DGRAM, 0);
	char datagram[64];
	struct timespec begun, now;

	memset(datagram, 'x', sizeof(datagram));
	if (bind(at, (struct sockaddr *)&to, bytes) || getsockname(at, (struct sockaddr *)&to, &bytes) ||
	    connect(from, (struct sockaddr *)&to, bytes))
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	do {
		for (int i = 0; i < 100; i++)
			(void)!send(from, datagram, sizeof(datagram), MSG_DONTWAIT);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - begun.tv_sec + (now.tv_nsec - begun.tv_nsec) / 1e9 < seconds);
	return 0;
}
