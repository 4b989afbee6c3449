/* Says what happens to an id that is bound to an address, until its device is gone: `cm_events ADDRESS`. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <rdma/rdma_cma.h>

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	enum rdma_cm_event_type type;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	check(argc != 2 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1, "an address");
	check(!channel, "rdma_create_event_channel");
	check(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	check(rdma_bind_addr(id, (struct sockaddr *)&address), "rdma_bind_addr");
	printf("bound to %s\n", ibv_get_device_name(id->verbs->device));
	do {
		fflush(stdout);
		check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
		type = event->event;
		printf("%s %s\n", event->id == id ? "own" : "another", rdma_event_str(type));
		check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
	} while (type != RDMA_CM_EVENT_DEVICE_REMOVAL);
	check(rdma_destroy_id(id), "rdma_destroy_id");
	rdma_destroy_event_channel(channel);
	return 0;
}
