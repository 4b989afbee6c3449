/* Connects by rdma_cm, sends messages that come back, and disconnects: as one of two programs of which one is killed, and
 * as one that makes many connections.
 *
 *   conn serve PORT OPTIONS...             answers whoever asks, until SIGTERM
 *   conn rounds PORT COUNT OPTIONS...      connects, sends, disconnects, COUNT times
 *   conn many PORT COUNT OPTIONS...        has COUNT connections at once
 *
 * Options: die=N ends the process at its Nth step, after=US that many microseconds later, exit=1 by exit() and not by
 * SIGKILL; slow=US takes that long for each step of a connection that is being made; messages=N of each connection.
 *
 * Whoever finds its peer gone says so and ends well, once all it has posted has completed and all is destroyed.
 * SIGUSR1 asks a server to say when it has no connections any more, how much memory it has, and how many descriptors. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* How long anything may take, in ms. A peer that does not answer is given up after 74 s: that is no way to hear of the
 * end of a process. */
#define PATIENCE 30000
#define RECEIVES 4
#define LEN 64

struct conn {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct conn *next;
	/* Works posted and completed, and completed with an error. */
	int posted, done, failed;
	/* Echoes received. */
	int echoes, wanted;
	int passive, established, leaving, ended;
	char buffer[(RECEIVES + 1) * LEN];
};

static struct rdma_event_channel *channel;
static struct ibv_pd *pd;
static long die_at = -1, die_after, by_exit, slow, messages = 3, step_count;
static volatile sig_atomic_t stop, asked;
static int connections, most;
static const char *doing = "nothing";
static double slowest;

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void fail(const char *what)
{
	printf("FAILED %s (%s): %s\n", what, doing, strerror(errno));
	fflush(stdout);
	/* Not _exit: the library says what it has counted. */
	exit(1);
}

static void on_alarm(int signal)
{
	(void)signal;
	kill(getpid(), SIGKILL);
}

static void on_signal(int signal)
{
	if (signal == SIGUSR1)
		asked = 1;
	else
		stop = 1;
}

/* One more step is done; perhaps the last. */
static void step(const char *what)
{
	doing = what;
	if (step_count++ != die_at)
		return;
	if (by_exit)
		exit(0);
	struct itimerval when = { .it_value.tv_usec = die_after % 1000000, .it_value.tv_sec = die_after / 1000000 };
	if (die_after == 0)
		kill(getpid(), SIGKILL);
	setitimer(ITIMER_REAL, &when, NULL);
}

/* One more step of a connection that is being made. */
static void slow_step(const char *what)
{
	step(what);
	/* A signal may end it early. */
	if (slow)
		usleep(slow);
}

static void say_size(const char *what)
{
	long size = 0, pages = 0, files = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	DIR *dir = opendir("/proc/self/fd");

	if (!file || !dir || fscanf(file, "%ld %ld", &size, &pages) != 2)
		fail("/proc/self");
	fclose(file);
	while (readdir(dir))
		files++;
	closedir(dir);
	/* ".", ".." and the directory itself. */
	printf("%s KiB %ld descriptors %ld\n", what, pages * (sysconf(_SC_PAGESIZE) / 1024), files - 3);
	fflush(stdout);
}

static void post_receive(struct conn *c, int at)
{
	if (rdma_post_recv(c->id, (void *)(long)at, c->buffer + at * LEN, LEN, c->mr))
		fail("rdma_post_recv");
	c->posted++;
}

static void post_send(struct conn *c)
{
	if (rdma_post_send(c->id, (void *)(long)RECEIVES, c->buffer + RECEIVES * LEN, LEN, c->mr, IBV_SEND_SIGNALED))
		fail("rdma_post_send");
	c->posted++;
}

/* Returns false if the peer has gone meanwhile: a connection that has ended has no attributes for a queue pair. */
static int make_qp(struct conn *c)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 8, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	if (!pd && !(pd = ibv_alloc_pd(c->id->verbs)))
		fail("ibv_alloc_pd");
	if (!(c->cq = ibv_create_cq(c->id->verbs, 16, NULL, NULL, 0)))
		fail("ibv_create_cq");
	attr.send_cq = attr.recv_cq = c->cq;
	if (rdma_create_qp(c->id, pd, &attr)) {
		if (!c->passive || errno != EINVAL)
			fail("rdma_create_qp");
		if (ibv_destroy_cq(c->cq))
			fail("ibv_destroy_cq");
		c->cq = NULL;
		return 0;
	}
	if (!(c->mr = ibv_reg_mr(pd, c->buffer, sizeof c->buffer, IBV_ACCESS_LOCAL_WRITE)))
		fail("ibv_reg_mr");
	for (int i = 0; i < RECEIVES; i++)
		post_receive(c, i);
	return 1;
}

static struct conn *new_conn(struct rdma_cm_id *id)
{
	struct conn *c = calloc(1, sizeof *c);

	if (!c)
		fail("calloc");
	c->id = id;
	c->wanted = messages;
	id->context = c;
	if (++connections > most)
		most = connections;
	return c;
}

/* Takes completions; sends back what was received if this is the server. */
static void take(struct conn *c, int echo)
{
	struct ibv_wc wc[8];
	int n;

	while (c->cq && (n = ibv_poll_cq(c->cq, 8, wc)) > 0) {
		for (int i = 0; i < n; i++) {
			c->done++;
			if (wc[i].status != IBV_WC_SUCCESS) {
				c->failed++;
				continue;
			}
			if (wc[i].wr_id == RECEIVES)
				continue;
			step("received");
			if (strcmp(c->buffer + wc[i].wr_id * LEN, "message"))
				fail("other bytes than were sent");
			if (c->failed)
				continue;
			post_receive(c, wc[i].wr_id);
			c->echoes++;
			if (echo) {
				strcpy(c->buffer + RECEIVES * LEN, "message");
				post_send(c);
				step("sent back");
			}
		}
	}
}

/* Ends a connection, whatever it came to: all that was posted completes. */
static void end(struct conn *c)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	double start = now_ms();

	if (c->id->qp) {
		/* librdmacm leaves the queue pair as it is where there was no connection. */
		rdma_disconnect(c->id);
		if (ibv_modify_qp(c->id->qp, &attr, IBV_QP_STATE))
			fail("ibv_modify_qp");
		c->failed++;
		while (c->done < c->posted) {
			take(c, 0);
			if (now_ms() - start > PATIENCE)
				fail("what was posted does not complete");
		}
		step("flushed");
		rdma_destroy_qp(c->id);
		if (ibv_dereg_mr(c->mr) || ibv_destroy_cq(c->cq))
			fail("ibv_destroy_cq");
		step("queue pair destroyed");
	}
	if (rdma_destroy_id(c->id))
		fail("rdma_destroy_id");
	free(c);
	connections--;
	step("destroyed");
}

/* Waits up to `ms` for an event. */
static int wait_event(struct rdma_cm_event **event, int ms)
{
	struct pollfd poll_fd = { .fd = channel->fd, .events = POLLIN };

	if (rdma_get_cm_event(channel, event) == 0)
		return 1;
	if (errno != EAGAIN)
		fail("rdma_get_cm_event");
	if (ms == 0 || poll(&poll_fd, 1, ms) <= 0)
		return 0;
	return rdma_get_cm_event(channel, event) == 0;
}

static void open_channel(void)
{
	if (!(channel = rdma_create_event_channel()))
		fail("rdma_create_event_channel");
	if (fcntl(channel->fd, F_SETFL, O_NONBLOCK))
		fail("fcntl");
}

static struct sockaddr_in address(const char *port, in_addr_t host)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(port)), .sin_addr.s_addr = htonl(host) };

	return to;
}

/* The server. */

static struct conn *all;

static void request(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7 };
	struct conn *c = new_conn(id);

	c->next = all;
	all = c;
	c->passive = 1;
	slow_step("asked");
	int made = make_qp(c);
	slow_step("queue pair made");
	/* The peer may have gone meanwhile: then there is nothing to accept. */
	if (!made || rdma_accept(id, &param))
		c->ended = 1;
	slow_step("accepted");
}

static void serve_event(struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	struct conn *c = id->context;
	enum rdma_cm_event_type type = event->event;

	rdma_ack_cm_event(event);
	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		request(id);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		c->established = 1;
		step("established");
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		step(rdma_event_str(type));
		c->ended = 1;
	}
}

static void serve(const char *port)
{
	struct rdma_cm_id *listener;
	struct sockaddr_in any = address(port, INADDR_ANY);
	double asked_at = 0;

	open_channel();
	if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP))
		fail("rdma_create_id");
	if (rdma_bind_addr(listener, (struct sockaddr *)&any))
		fail("rdma_bind_addr");
	if (rdma_listen(listener, 1024))
		fail("rdma_listen");
	printf("serving\n");
	while (!stop) {
		struct rdma_cm_event *event;

		while (wait_event(&event, connections ? 1 : 20))
			serve_event(event);
		for (struct conn **at = &all; *at;) {
			struct conn *c = *at;

			take(c, 1);
			if (c->ended) {
				*at = c->next;
				end(c);
			} else {
				at = &c->next;
			}
		}
		if (!asked) {
			asked_at = 0;
		} else if (!connections) {
			asked = 0;
			say_size("idle");
		} else if (!asked_at) {
			asked_at = now_ms();
		} else if (now_ms() - asked_at > PATIENCE) {
			fail(all->established ? "nobody says that the peer has gone" : "a connection is neither made nor refused");
		}
	}
	while (all) {
		struct conn *c = all;

		all = c->next;
		end(c);
	}
	if (rdma_destroy_id(listener))
		fail("rdma_destroy_id");
	rdma_destroy_event_channel(channel);
	if (pd && ibv_dealloc_pd(pd))
		fail("ibv_dealloc_pd");
	printf("served %d at once\n", most);
}

/* Clients. */

static struct conn *begin(const char *port)
{
	struct rdma_cm_id *id;
	struct sockaddr_in to = address(port, INADDR_LOOPBACK);

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		fail("rdma_create_id");
	struct conn *c = new_conn(id);
	step("created");
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000))
		fail("rdma_resolve_addr");
	step("resolving");
	return c;
}

/* Handles an event of the active side; returns false if the peer has gone. */
static int go_on(struct conn *c, struct rdma_cm_event *event)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
	enum rdma_cm_event_type type = event->event;
	int status = event->status;

	rdma_ack_cm_event(event);
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(c->id, 1000))
			fail("rdma_resolve_route");
		step("resolving the route");
		return 1;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		make_qp(c);
		slow_step("queue pair made");
		if (rdma_connect(c->id, &param))
			fail("rdma_connect");
		slow_step("connecting");
		return 1;
	case RDMA_CM_EVENT_ESTABLISHED:
		c->established = 1;
		step("connected");
		return 1;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return 1;
	default:
		c->ended = 1;
		if (type == RDMA_CM_EVENT_DISCONNECTED && c->leaving)
			return 1;
		printf("gone %s %d after %s\n", rdma_event_str(type), status, doing);
		return 0;
	}
}

/* Handles events until something is true; returns false if the peer has gone. */
static int until(struct conn *c, int (*is)(struct conn *))
{
	double start = now_ms();
	struct rdma_cm_event *event;

	while (!is(c)) {
		take(c, 0);
		/* Sometimes the background thread works, sometimes this one. */
		if (wait_event(&event, step_count & 1 ? 0 : 1) && !go_on(c, event))
			return 0;
		if (now_ms() - start > PATIENCE)
			fail("nothing happens");
	}
	return 1;
}

static int is_connected(struct conn *c)
{
	return c->established;
}

static int has_echo(struct conn *c)
{
	return c->echoes == c->wanted;
}

static int has_ended(struct conn *c)
{
	return c->ended;
}

static void send_message(struct conn *c)
{
	strcpy(c->buffer + RECEIVES * LEN, "message");
	post_send(c);
	step("sent");
}

/* Returns false if the peer has gone. */
static int round_trip(struct conn *c)
{
	double start = now_ms();

	if (!until(c, is_connected))
		return 0;
	if (now_ms() - start > slowest)
		slowest = now_ms() - start;
	for (int i = 1; i <= messages; i++) {
		c->wanted = i;
		send_message(c);
		if (!until(c, has_echo))
			return 0;
	}
	c->leaving = 1;
	if (rdma_disconnect(c->id))
		fail("rdma_disconnect");
	step("disconnecting");
	return until(c, has_ended);
}

static void rounds(const char *port, long count)
{
	double start = now_ms();

	open_channel();
	for (long i = 0; i < count; i++) {
		if (count >= 10 && i == count / 5)
			say_size("early");
		struct conn *c = begin(port);
		int there = round_trip(c);
		end(c);
		if (!there)
			return;
	}
	say_size("late");
	printf("%ld connections in %.1f ms, the slowest made in %.1f\n", count, now_ms() - start, slowest);
}

static void many(const char *port, long count)
{
	struct conn **conns = calloc(count, sizeof *conns);
	struct rdma_cm_event *event;
	double start = now_ms();
	long established = 0, echoes, ended = 0;

	if (!conns)
		fail("calloc");
	open_channel();
	for (long i = 0; i < count; i++)
		conns[i] = begin(port);
	while (established < count) {
		if (now_ms() - start > 4 * PATIENCE)
			fail("not all are connected");
		if (!wait_event(&event, 1))
			continue;
		int made = event->event == RDMA_CM_EVENT_ESTABLISHED;
		if (!go_on(event->id->context, event))
			fail("a connection was refused");
		established += made;
	}
	printf("%ld connected in %.1f ms\n", count, now_ms() - start);
	for (int m = 1; m <= messages; m++) {
		for (long i = 0; i < count; i++) {
			conns[i]->wanted = m;
			send_message(conns[i]);
		}
		do {
			echoes = 0;
			for (long i = 0; i < count; i++) {
				take(conns[i], 0);
				echoes += conns[i]->echoes;
			}
			if (wait_event(&event, 0) && !go_on(event->id->context, event))
				fail("a connection has ended");
			if (now_ms() - start > 4 * PATIENCE)
				fail("not all messages come back");
		} while (echoes < count * m);
	}
	for (long i = 0; i < count; i++) {
		conns[i]->leaving = 1;
		if (rdma_disconnect(conns[i]->id))
			fail("rdma_disconnect");
	}
	while (ended < count) {
		if (now_ms() - start > 4 * PATIENCE)
			fail("not all are disconnected");
		if (!wait_event(&event, 1))
			continue;
		struct conn *c = event->id->context;
		int before = c->ended;
		go_on(c, event);
		ended += c->ended - before;
	}
	for (long i = 0; i < count; i++)
		end(conns[i]);
	free(conns);
	printf("%ld disconnected in %.1f ms\n", count, now_ms() - start);
}

int main(int argc, char **argv)
{
	struct sigaction act = { .sa_handler = on_signal };
	struct sigaction alarm_act = { .sa_handler = on_alarm };

	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGUSR1, &act, NULL);
	sigaction(SIGALRM, &alarm_act, NULL);
	for (int i = 3; i < argc; i++) {
		sscanf(argv[i], "die=%ld", &die_at);
		sscanf(argv[i], "after=%ld", &die_after);
		sscanf(argv[i], "exit=%ld", &by_exit);
		sscanf(argv[i], "slow=%ld", &slow);
		sscanf(argv[i], "messages=%ld", &messages);
	}
	if (argc >= 3 && !strcmp(argv[1], "serve"))
		serve(argv[2]);
	else if (argc >= 4 && !strcmp(argv[1], "rounds"))
		rounds(argv[2], atol(argv[3]));
	else if (argc >= 4 && !strcmp(argv[1], "many"))
		many(argv[2], atol(argv[3]));
	else
		return 2;
	return 0;
}
