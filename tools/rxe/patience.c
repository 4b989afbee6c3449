// To be preloaded into a client that connects twice: waits before the second time until the file is there that GRANTED names. With
// -R, perftest's tools tell each other their parameters by a first connection, and do not wait until the server listens again.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

int rdma_resolve_addr(void *id, void *src, void *dst, int timeout_ms)
{
	int (*next)(void *, void *, void *, int) = dlsym(RTLD_NEXT, "rdma_resolve_addr");
	const char *file = getenv("GRANTED");
	static int calls;

	// Whoever runs the client ends it if that takes too long.
	while (calls > 0 && file != NULL && access(file, F_OK) != 0)
		usleep(10000);
	calls++;
	return next != NULL ? next(id, src, dst, timeout_ms) : -1;
}
