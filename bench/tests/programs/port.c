/* Says what state its port is in, and again after each of COUNT asynchronous events: `port COUNT`. */
#include <stdio.h>
#include <stdlib.h>
#include <infiniband/verbs.h>

static struct ibv_context *context;

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

static void say(const char *event)
{
	struct ibv_port_attr attr;

	check(ibv_query_port(context, 1, &attr), "ibv_query_port");
	printf("%s: %s\n", event, ibv_port_state_str(attr.state));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_async_event event;
	int n;

	check(argc != 2 || !list || !*list, "arguments and devices");
	context = ibv_open_device(*list);
	check(!context, "ibv_open_device");
	say("open");
	for (n = atoi(argv[1]); n > 0; n--) {
		check(ibv_get_async_event(context, &event), "ibv_get_async_event");
		say(ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
	check(ibv_close_device(context), "ibv_close_device");
	ibv_free_device_list(list);
	return 0;
}
