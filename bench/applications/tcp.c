/*
 * Ping-pong and stream over the kernel's TCP, with the figures of ib_send_lat and ib_write_bw: what a lost packet costs there.
 *
 *   tcp latency|stream [-s SIZE] [-n NUMBER] [-p PORT] [HOST]
 *
 * Without HOST it serves one connection. The client prints `p50 US p99.9 US` of half a round trip, or `mean US` of a message.
 *
 *   -s SIZE     bytes of a message [64, or 65536]      -n NUMBER   messages [5000]
 *   -p PORT     TCP port [18701]
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void all(int sock, char *bytes, size_t len, int sends)
{
	while (len) {
		ssize_t n = sends ? send(sock, bytes, len, MSG_NOSIGNAL) : recv(sock, bytes, len, 0);

		if (n <= 0)
			err(1, sends ? "send" : "recv");
		bytes += n, len -= n;
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int latency = argc > 1 && !strcmp(argv[1], "latency"), number = 5000, option, sock, one = 1;
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(18701) };
	size_t size = latency ? 64 : 65536;
	const char *host;
	double *times, began;
	char *message;

	if (argc < 2 || (!latency && strcmp(argv[1], "stream")))
		errx(2, "expected latency or stream");
	optind = 2;
	while ((option = getopt(argc, argv, "s:n:p:")) != -1) {
		switch (option) {
		case 's': size = strtoul(optarg, NULL, 0); break;
		case 'n': number = atoi(optarg); break;
		case 'p': to.sin_port = htons(atoi(optarg)); break;
		default: return 2;
		}
	}
	if (!size || number < 1)
		errx(2, "-s and -n want positive numbers");
	host = argv[optind];
	message = calloc(1, size);
	times = calloc(number, sizeof *times);
	sock = socket(AF_INET, SOCK_STREAM, 0);
	if (!message || !times || sock < 0)
		err(1, "no memory or socket");
	setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (host) {
		if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
			errx(2, "%s is no IPv4 address", host);
		for (int k = 0; connect(sock, (struct sockaddr *)&to, sizeof to); k++) {
			if (k == 100)
				err(1, "%s", host);
			usleep(50 * 1000);
		}
	} else {
		if (bind(sock, (struct sockaddr *)&to, sizeof to) || listen(sock, 1) || (sock = accept(sock, NULL, NULL)) < 0)
			err(1, "port %d", ntohs(to.sin_port));
	}
	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	began = now();
	for (int k = 0; k < number; k++) {
		double start = now();

		all(sock, message, size, !!host);
		if (latency)
			all(sock, message, size, !host);
		times[k] = (now() - start) / 2;
	}
	/* A stream ends when all of it has been read. */
	if (!latency)
		all(sock, message, 1, !host);
	if (host && latency) {
		qsort(times, number, sizeof *times, by_value);
		printf("p50 %.2f p99.9 %.2f\n", times[number / 2], times[(size_t)(number * 0.999)]);
	} else if (host) {
		printf("mean %.2f\n", (now() - began) / number);
	}
	return 0;
}
