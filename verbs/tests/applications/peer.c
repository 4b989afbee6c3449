/*
 * One of two programs that talk over an RC queue pair and nothing else: who the other is comes by standard input.
 *
 * peer verify SEED: every operation on data that the other can check; exits 0 if all was right.
 * peer until-error SEED: sends and writes until a completion fails; prints its status.
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AREA = 1 << 20, ROUNDS = 12, DEPTH = 16 };

/* What a side owns: data to send, data received, data that the peer writes, data that the peer reads, a counter. */
struct memory {
	uint8_t out[AREA], in[AREA], written[AREA], readable[AREA], fetched[AREA];
	uint64_t counter, before;
};

static struct memory *mem;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static struct ibv_cq *cq;
static uint64_t remote_addr;
static uint32_t remote_rkey;

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

static void fill(uint8_t *at, uint32_t len, uint64_t key)
{
	for (uint32_t i = 0; i < len; i++)
		at[i] = mix(key + i / 8) >> i % 8 * 8;
}

static void check(const char *what, const uint8_t *at, uint32_t len, uint64_t key)
{
	for (uint32_t i = 0; i < len; i++)
		if (at[i] != (uint8_t)(mix(key + i / 8) >> i % 8 * 8)) {
			printf("%s: byte %u of %u is wrong\n", what, i, len);
			exit(1);
		}
}

static int post(enum ibv_wr_opcode opcode, void *local, uint32_t len, void *remote)
{
	struct ibv_sge sge = { (uintptr_t)local, len, mr->lkey };
	struct ibv_send_wr wr = { .opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;
	uint64_t addr = remote_addr + ((uint8_t *)remote - (uint8_t *)mem);

	wr.wr_id = opcode;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = remote_rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = remote_rkey;
	}
	return ibv_post_send(qp, &wr, &bad);
}

static void receive(void *local, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)local, len, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(qp, &wr, &bad))
		die("ibv_post_recv");
}

/* Waits for `n` completions, of which all have to succeed. Sleeps between looks: many of these share a core. */
static void complete(int n)
{
	struct ibv_wc wc;

	while (n > 0) {
		int got = ibv_poll_cq(cq, 1, &wc);
		if (got < 0)
			die("ibv_poll_cq");
		if (got == 0)
			usleep(50);
		if (got == 1 && wc.status != IBV_WC_SUCCESS) {
			printf("%s (%d)\n", ibv_wc_status_str(wc.status), wc.status);
			exit(1);
		}
		n -= got;
	}
}

static void line(const char *word)
{
	char got[64];

	printf("%s\n", word);
	fflush(stdout);
	if (!fgets(got, sizeof got, stdin) || strncmp(got, word, strlen(word)))
		exit(3);
}

static void verify(uint64_t seed)
{
	for (uint64_t round = 0; round < ROUNDS; round++) {
		uint64_t key = mix(seed + round);
		uint32_t len = round == 0 ? 1 : 1 + mix(key) % AREA;

		fill(mem->out, len, key);
		fill(mem->readable, len, ~key);
		receive(mem->in, AREA);
		line("posted");
		if (post(IBV_WR_RDMA_WRITE, mem->out, len, mem->written) || post(IBV_WR_SEND, mem->out, len, mem) ||
		    post(IBV_WR_RDMA_READ, mem->fetched, len, mem->readable) ||
		    post(IBV_WR_ATOMIC_FETCH_AND_ADD, &mem->before, 8, &mem->counter))
			die("ibv_post_send");
		complete(5);
		check("SEND", mem->in, len, key);
		check("WRITE", mem->written, len, key);
		check("READ", mem->fetched, len, ~key);
		if (mem->before != round) {
			printf("FETCH_AND_ADD: %lu in place of %lu\n", mem->before, round);
			exit(1);
		}
		/* The peer's atomic may be still to come; what it reads and writes must not change before it has done so. */
		line("checked");
	}
	puts("verified");
}

static void until_error(uint64_t seed)
{
	struct ibv_wc wc;
	uint64_t n = seed;

	for (int i = 0; i < DEPTH; i++)
		receive(mem->in, AREA);
	line("posted");
	for (int i = 0; i < DEPTH / 2; i++)
		post(IBV_WR_RDMA_WRITE, mem->out, 1 + mix(n++) % 20000, mem->written);
	for (;;) {
		int got = ibv_poll_cq(cq, 1, &wc);

		if (got < 0)
			die("ibv_poll_cq");
		if (got == 0)
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			break;
		if (wc.opcode & IBV_WC_RECV)
			receive(mem->in, AREA);
		else if (post(n % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, mem->out, 1 + mix(n) % 20000, mem->written))
			die("ibv_post_send");
		else
			n++;
	}
	printf("status %d\n", wc.status);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	int index = argc == 4 ? atoi(argv[3]) : 0;
	union ibv_gid gid;
	uint64_t gid_high, gid_low;
	unsigned qpn;

	mem = aligned_alloc(4096, (sizeof *mem + 4095) / 4096 * 4096);
	if (argc != 4 || !pd || !mem || ibv_query_gid(context, 1, index, &gid))
		die("setup");
	memset(mem, 0, sizeof *mem);
	mr = ibv_reg_mr(pd, mem, sizeof *mem, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC);
	cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 } };
	if (!mr || !cq || !(qp = ibv_create_qp(pd, &init)))
		die("objects");
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");

	memcpy(&gid_high, gid.raw, 8);
	memcpy(&gid_low, gid.raw + 8, 8);
	printf("%u %lx %lx %lx %x\n", qp->qp_num, gid_high, gid_low, (uintptr_t)mem, mr->rkey);
	fflush(stdout);
	char text[128];
	if (!fgets(text, sizeof text, stdin) ||
	    sscanf(text, "%u %lx %lx %lx %x", &qpn, &gid_high, &gid_low, &remote_addr, &remote_rkey) != 5)
		die("the peer's address");
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = index, .hop_limit = 64 } } };
	memcpy(rtr.ah_attr.grh.dgid.raw, &gid_high, 8);
	memcpy(rtr.ah_attr.grh.dgid.raw + 8, &gid_low, 8);
	if (ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	/* 4.096 us * 2^12 = 17 ms, eight times: a busy host does not look like a dead one, and a dead one is known in 0.2 s. */
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 13, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4 };
	if (ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			  IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
	line("ready");
	if (!strcmp(argv[1], "verify"))
		verify(strtoull(argv[2], NULL, 0));
	else
		until_error(strtoull(argv[2], NULL, 0));
	return 0;
}
