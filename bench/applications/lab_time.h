/* Times of the lab that this process runs in, by its control socket (docs/lab-faults.md). */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Tells the lab a command, and returns the time in its answer, ns: that of its effect. Exits if there is none. */
static long long lab_ask(const char *command)
{
	const char *place = getenv("IRNIC_LAB_CONTROL"), *at;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = place ? strlen(place) : 0;
	char line[256], answer[4096];
	long long ns = -1;
	ssize_t got;
	int fd;

	if (length > 1 && length < sizeof(address.sun_path)) {
		memcpy(address.sun_path, place, length);
		if (*place == '@')
			address.sun_path[0] = 0;
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		snprintf(line, sizeof(line), "%s\n", command);
		if (!connect(fd, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + length) &&
		    write(fd, line, strlen(line)) == (ssize_t)strlen(line) && (got = read(fd, answer, sizeof(answer) - 1)) > 0) {
			answer[got] = 0;
			if (!strncmp(answer, "{\"ok\":true", 10))
				ns = (at = strstr(answer, "ns\":")) ? atoll(at + 4) : 0;
			else
				fputs(answer, stderr);
		}
		close(fd);
	}
	if (ns < 0) {
		fprintf(stderr, "the lab at IRNIC_LAB_CONTROL does not do it: %s\n", command);
		exit(1);
	}
	return ns;
}

/* Lab time, ns. */
static long long lab_time(void)
{
	return lab_ask("time");
}
