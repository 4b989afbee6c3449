/* Lists the devices of libibverbs, and opens each. Exit status: 0, 3 if there is none, 1 if something fails. */
#include <stdio.h>
#include <infiniband/verbs.h>

int main(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	for (int i = 0; list && i < count; i++) {
		struct ibv_context *context = ibv_open_device(list[i]);
		struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;

		if (!pd) {
			perror(ibv_get_device_name(list[i]));
			return 1;
		}
		printf("%s opened\n", ibv_get_device_name(list[i]));
		if (ibv_dealloc_pd(pd) || ibv_close_device(context))
			return 1;
	}
	if (list)
		ibv_free_device_list(list);
	return count ? 0 : 3;
}
