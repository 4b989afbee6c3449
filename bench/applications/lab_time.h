/* Times of the lab that this process runs in, by its control socket (docs/lab-faults.md). */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Lab time, ns; exits if there is no lab. */
static long long lab_time(void)
{
	const char *place = getenv("IRNIC_LAB_CONTROL");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = place ? strlen(place) : 0;
	char answer[128];
	long long ns = -1;
	ssize_t got;
	int fd;

	if (length > 1 && length < sizeof(address.sun_path)) {
		memcpy(address.sun_path, place, length);
		if (*place == '@')
			address.sun_path[0] = 0;
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (!connect(fd, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + length) &&
		    write(fd, "time\n", 5) == 5 && (got = read(fd, answer, sizeof(answer) - 1)) > 0) {
			answer[got] = 0;
			sscanf(answer, "{\"ok\":true,\"ns\":%lld", &ns);
		}
		close(fd);
	}
	if (ns < 0) {
		fprintf(stderr, "no lab answers at IRNIC_LAB_CONTROL\n");
		exit(1);
	}
	return ns;
}
