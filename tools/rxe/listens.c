// To be preloaded into a server that connects by rdma_cm: each time that it listens, the file that LISTENS names gets a byte.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

int rdma_listen(void *id, int backlog)
{
	int (*next)(void *, int) = dlsym(RTLD_NEXT, "rdma_listen");
	const char *file = getenv("LISTENS");
	int listens = next != NULL ? next(id, backlog) : -1;

	if (listens == 0 && file != NULL) {
		int fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);

		if (fd < 0 || write(fd, "l", 1) != 1)
			abort();
		close(fd);
	}
	return listens;
}
