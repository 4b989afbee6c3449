/* Loads libibverbs while it runs, as NCCL and the crate rdma-mummy-sys do. Exit status as that of lists.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	void **(*list)(int *) = library ? (void **(*)(int *))dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1") : NULL;
	int count = 0;

	if (!list || !list(&count))
		return 1;
	printf("%d devices\n", count);
	return count ? 0 : 3;
}
