// To be preloaded into a client of an emulated server: resolves addresses a second later. With -R, perftest's tools connect
// twice, and do not wait until the server listens again.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <unistd.h>

int rdma_resolve_addr(void *id, void *src, void *dst, int timeout_ms)
{
	int (*next)(void *, void *, void *, int) = dlsym(RTLD_NEXT, "rdma_resolve_addr");

	sleep(1);
	return next != NULL ? next(id, src, dst, timeout_ms) : -1;
}
