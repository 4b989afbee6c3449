// To be preloaded into a server that connects by rdma_cm: once it listens, makes the file that LISTENS names. Where irnic is a
// station of its own, nothing else shows that.
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

	if (listens == 0 && file != NULL)
		close(open(file, O_WRONLY | O_CREAT, 0600));
	return listens;
}
