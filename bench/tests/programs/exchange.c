/* Two processes that know each other by nothing but rdma_cm and verbs: `exchange listen ROUNDS [events]`, and
 * `exchange ADDRESS ROUNDS [events]`, which sends so many messages and awaits the answer to each. `events`: it sleeps in
 * completion channels. `exchange nobody TIMEOUT` sends to a queue pair that is not there until it has tried seven times. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define PORT 7471
#define SIZE 3000

static char buffers[2][SIZE];
static struct ibv_mr *mr;
static int events;

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	if (event->event != type) {
		fprintf(stderr, "%s, expected %s\n", rdma_event_str(event->event), rdma_event_str(type));
		exit(1);
	}
	return event;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_comp_channel *channel = NULL;
	struct ibv_cq *cq;

	if (events)
		check(!(channel = ibv_create_comp_channel(id->verbs)), "ibv_create_comp_channel");
	check(!(cq = ibv_create_cq(id->verbs, 16, NULL, channel, 0)), "ibv_create_cq");
	if (events)
		check(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
	attr.send_cq = attr.recv_cq = cq;
	check(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
	check(!(mr = ibv_reg_mr(id->pd, buffers, sizeof(buffers), IBV_ACCESS_LOCAL_WRITE)), "ibv_reg_mr");
}

static void receive(struct rdma_cm_id *id)
{
	check(rdma_post_recv(id, NULL, buffers[0], SIZE, mr), "rdma_post_recv");
}

static void send_one(struct rdma_cm_id *id)
{
	check(rdma_post_send(id, NULL, buffers[1], SIZE, mr, IBV_SEND_SIGNALED), "rdma_post_send");
}

/* Waits for so many completions. */
static void await(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;
	struct ibv_cq *from;
	void *context;
	int n;

	while (count > 0) {
		while (!(n = ibv_poll_cq(cq, 1, &wc))) {
			if (!events)
				continue;
			check(ibv_get_cq_event(cq->channel, &from, &context), "ibv_get_cq_event");
			ibv_ack_cq_events(from, 1);
			check(ibv_req_notify_cq(from, 0), "ibv_req_notify_cq");
		}
		check(n < 0, "ibv_poll_cq");
		if (wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
		count--;
	}
}

/* Sends to a queue pair of host 1 that is not there. Returns how that ended. */
static int to_nobody(int timeout)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	check(!list || !list[0] || !(context = ibv_open_device(list[0])), "ibv_open_device");
	check(!(pd = ibv_alloc_pd(context)), "ibv_alloc_pd");
	check(!(cq = ibv_create_cq(context, 4, NULL, NULL, 0)), "ibv_create_cq");
	init.send_cq = init.recv_cq = cq;
	check(!(qp = ibv_create_qp(pd, &init)), "ibv_create_qp");
	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 0x123456,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } },
	};
	check(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid), "ibv_query_gid");
	/* 127.77.0.2 */
	attr.ah_attr.grh.dgid.raw[15] = 2;
	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
			    | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = 7 };
	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN
			    | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
	check(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
	while (!ibv_poll_cq(cq, 1, &wc))
		;
	printf("%s\n", ibv_wc_status_str(wc.status));
	return wc.status != IBV_WC_RETRY_EXC_ERR;
}

int main(int argc, char **argv)
{
	const char *peer = argc > 1 && strcmp(argv[1], "listen") ? argv[1] : NULL;
	int rounds = argc > 2 ? atoi(argv[2]) : 1;
	/* Of a port that the system chooses messages would tell. */
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(PORT + 1) };
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7, .responder_resources = 1 };
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;

	events = argc > 3 && !strcmp(argv[3], "events");
	if (argc > 2 && !strcmp(argv[1], "nobody"))
		return to_nobody(rounds);
	check(!(channel = rdma_create_event_channel()), "rdma_create_event_channel");
	check(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	if (peer) {
		inet_pton(AF_INET, peer, &address.sin_addr);
		inet_pton(AF_INET, "127.77.0.2", &own.sin_addr);
		check(rdma_resolve_addr(id, (struct sockaddr *)&own, (struct sockaddr *)&address, 2000), "rdma_resolve_addr");
		rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
		check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
		rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
		make_qp(id);
		receive(id);
		check(rdma_connect(id, &param), "rdma_connect");
		rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_ESTABLISHED));
	} else {
		check(rdma_bind_addr(id, (struct sockaddr *)&address), "rdma_bind_addr");
		check(rdma_listen(id, 1), "rdma_listen");
		printf("listens\n");
		fflush(stdout);
		event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		id = event->id;
		rdma_ack_cm_event(event);
		make_qp(id);
		receive(id);
		check(rdma_accept(id, &param), "rdma_accept");
		rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_ESTABLISHED));
	}
	if (peer)
		for (; rounds > 0; rounds--) {
			send_one(id);
			await(id->qp->send_cq, 2);
			receive(id);
		}
	else
		for (; rounds > 0; rounds--) {
			await(id->qp->recv_cq, 1);
			receive(id);
			send_one(id);
			await(id->qp->send_cq, 1);
		}
	if (peer)
		check(rdma_disconnect(id), "rdma_disconnect");
	rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_DISCONNECTED));
	printf("done\n");
	return 0;
}
