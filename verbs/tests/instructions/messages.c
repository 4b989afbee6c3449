/* Messages between two queue pairs of one thread, all of whose calls count: messages ROW COUNT.
 * valgrind counts what `counted` calls. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN 65536
#define RECEIVES 32
#define CHECK(x) \
	do { \
		if (!(x)) { \
			perror(#x); \
			exit(1); \
		} \
	} while (0)

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buffer;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static struct end ends[2];

static void create(struct end *e)
{
	struct ibv_qp_init_attr attr = { .cap = { 64, 64, 1, 1, 64 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 15 };

	CHECK(e->cq = ibv_create_cq(context, 256, NULL, NULL, 0));
	attr.send_cq = attr.recv_cq = e->cq;
	CHECK(e->qp = ibv_create_qp(pd, &attr));
	CHECK(e->buffer = calloc(1, LEN));
	CHECK(e->mr = ibv_reg_mr(pd, e->buffer, LEN, 15));
	CHECK(!ibv_modify_qp(e->qp, &init,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void join(struct end *e, struct end *peer)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 64 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 16,
	};

	CHECK(!ibv_modify_qp(e->qp, &rtr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	CHECK(!ibv_modify_qp(e->qp, &rts,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_MAX_QP_RD_ATOMIC));
}

static int poll_for(struct end *e, enum ibv_wc_opcode wanted)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(e->cq, 4, wc), found = 0;

	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		CHECK(wc[i].status == IBV_WC_SUCCESS);
		found += wc[i].opcode == wanted;
	}
	return found;
}

static void post_receive(struct end *e)
{
	struct ibv_sge sge = { (uintptr_t)e->buffer, 64, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(e->qp, &wr, &bad));
}

static void post(struct end *e, struct end *peer, enum ibv_wr_opcode op, unsigned len)
{
	struct ibv_sge sge = { (uintptr_t)e->buffer, len, e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = op,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)peer->buffer;
		wr.wr.atomic.rkey = peer->mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)peer->buffer;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	CHECK(!ibv_post_send(e->qp, &wr, &bad));
}

/* The ends send in turn, as in ib_send_lat. */
static void in_turn(int count)
{
	for (int i = 0; i < count; i++) {
		post_receive(&ends[!(i & 1)]);
		post(&ends[i & 1], &ends[!(i & 1)], IBV_WR_SEND, 2);
		while (!poll_for(&ends[!(i & 1)], IBV_WC_RECV))
			;
	}
}

/* One end asks, with up to `most` requests under way. */
static void ask(int count, int most, enum ibv_wr_opcode op, enum ibv_wc_opcode done, unsigned len)
{
	for (int posted = 0, completed = 0; completed < count; completed += poll_for(&ends[0], done))
		for (; posted < count && posted - completed < most; posted++)
			post(&ends[0], &ends[1], op, len);
}

static void run(const char *row, int count)
{
	if (!strcmp(row, "send"))
		in_turn(count);
	else if (!strcmp(row, "write"))
		ask(count, 1, IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 8);
	else if (!strcmp(row, "stream"))
		ask(count, 32, IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 8);
	else if (!strcmp(row, "read"))
		ask(count, 1, IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, 8);
	else if (!strcmp(row, "atomic"))
		ask(count, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, 8);
	else if (!strcmp(row, "large"))
		ask(count, 1, IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, LEN);
	else if (!strcmp(row, "empty"))
		for (int i = 0; i < count; i++)
			CHECK(!poll_for(&ends[0], IBV_WC_SEND));
	else
		CHECK(!"a row");
}

__attribute__((noinline)) static void counted(const char *row, int count)
{
	run(row, count);
	__asm__ volatile("");
}

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(argc == 3 && devices && devices[0]);
	CHECK(context = ibv_open_device(devices[0]));
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(!ibv_query_gid(context, 1, 0, &gid));
	create(&ends[0]);
	create(&ends[1]);
	join(&ends[0], &ends[1]);
	join(&ends[1], &ends[0]);
	/* A responder without any would repeat its acknowledgement for each. */
	for (int i = 0; i < RECEIVES; i++) {
		post_receive(&ends[0]);
		post_receive(&ends[1]);
	}
	/* Even before polls in vain there is a link. */
	ask(1, 1, IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 8);
	run(argv[1], atoi(argv[2]) / 4);
	counted(argv[1], atoi(argv[2]));
	return 0;
}
