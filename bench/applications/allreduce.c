/*
 * Ring all-reduce over ibverbs with the traffic that NCCL's net_ib plugin makes (2.28, GPUDirect off), every byte checked, without
 * a GPU.
 *
 *   allreduce [OPTIONS] RANK HOST...
 *
 * HOST... are the hosts of all ranks, in order; rank R listens on TCP port PORT + R, or that of a HOST:PORT. Each rank prints the
 * times of an iteration, and, inside a lab, `ns BEGAN ENDED` by the lab's clock; before its last iterations rank 1 tells the lab what
 * LAB_FAULT says. Status: 0, 1 for wrong data or an error with its name, 2 for bad options.
 *
 *   -s SIZE     bytes that each rank reduces [4M]           -k CHUNK    bytes of a message [128K]
 *   -n NUMBER   iterations [100]                            -w NUMBER   iterations before them [10]
 *   -c NUMBER   channels [2]                                -q NUMBER   messages in flight for each [8]
 *   -m MTU      path MTU [the port's]                       -p PORT     first TCP port [18600]
 *   -a          the WRITE and the immediate value apart     -d, -g      device, index of the GID
 *   -r FILE     without a NIC: chunks are copied into a ring in FILE, and out of it, all ranks on one host
 *
 * A channel has one connection to the next rank and one from the rank before, with a completion queue and an RC queue pair at each
 * end. The receiver posts a receive without memory, then writes a "clear to send" of 64 bytes (address, key, number) into a table of
 * the sender's, by an inline WRITE of which one in 256 is signalled. The sender looks at that table in memory, without calling the
 * library, and then posts the message as one signalled WRITE with immediate. Completion queues are polled only while something is
 * outstanding. One thread serves all channels, and yields its core after a round without progress. Timeout 20, 7 retries, RNR
 * timer 12: NCCL's defaults.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#include "lab_time.h"

enum { TABLE = 256, MAX_CHANNELS = 32, MAX_DEPTH = 32, MAX_RANKS = 64 };

struct clear_to_send {
	uint64_t addr, size;
	uint32_t rkey, unused[5];
	uint64_t number; /* from 1 on; written last */
	uint64_t pad[2];
};

struct end {
	uint32_t qpn, rkey;
	uint64_t table;
};

struct hello {
	uint64_t size, chunk, iterations;
	uint32_t ranks, channels, depth, mtu; /* all equal at all ranks, but for the MTU */
	union ibv_gid gid;
	struct end ends[MAX_CHANNELS];
};

/* What -r puts between two ranks, before `depth` chunks. */
struct ring {
	_Alignas(128) uint64_t made; /* messages since the beginning */
	_Alignas(128) uint64_t used;
	_Alignas(128) char chunks[];
};

struct connection {
	struct ring *ring;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr, *table_mr;
	struct clear_to_send *table; /* sender: the table; receiver: what it writes there */
	char *chunks;
	struct end peer;
	/* Messages since the beginning. Sender: made, posted, complete. Receiver: cleared to send, complete, used. */
	uint64_t made, posted, done, used;
};

struct channel {
	struct connection out, in;
	uint64_t block; /* bytes of the part that each rank reduces */
	uint64_t messages, op, ops; /* of an iteration */
};

static uint64_t size = 4 << 20, chunk = 128 << 10, iterations = 100, warm_up = 10, ranks, channels = 2, depth = 8;
static uint64_t rank, port = 18600, wanted_mtu, gid_index = UINT64_MAX;
static char **hosts; /* by rank */
static int apart;
static const char *device, *ring_file;
static struct channel all[MAX_CHANNELS];
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_port_attr attr;

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "allreduce: rank %lu: ", rank);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	exit(1);
}

#define CHECK(what) do { if (!(what)) die("%s: %s", #what, strerror(errno)); } while (0)
#define CHECK0(what) do { int e_ = (what); if (e_) die("%s: %s", #what, strerror(e_ > 0 ? e_ : errno)); } while (0)

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Word i of a rank's data is its seed + i * STEP, so that sums are as easily checked. */
#define STEP 0x9e3779b97f4a7c15u

static uint64_t seed(uint64_t of, uint64_t iteration, uint64_t channel)
{
	uint64_t x = (iteration * MAX_CHANNELS + channel) * MAX_RANKS + of + 1;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	return (x ^ (x >> 27)) * 0x94d049bb133111ebu;
}

static void verify(const uint64_t *words, uint64_t count, uint64_t first, uint64_t sum, uint64_t step)
{
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < count; i++)
		wrong |= words[i] ^ (sum + (first + i) * step);
	for (uint64_t i = 0; wrong && i < count; i++)
		if (words[i] != sum + (first + i) * step)
			die("WRONG DATA: word %lu is %016lx, not %016lx", first + i, words[i], sum + (first + i) * step);
}

/* Messages of an iteration come in groups: half of `depth` chunks of a block for each step of the ring. */
static uint64_t steps(void)
{
	return 2 * (ranks - 1);
}

/* The block that a rank sends in a step: sums first, and from step ranks - 1 on results. */
static uint64_t block_of(uint64_t of, uint64_t step)
{
	return step < ranks - 1 ? (of + ranks - 1 - step) % ranks : (of + 2 * ranks - 1 - step) % ranks;
}

/* The first word of message `m` of a rank's, and its length in bytes. */
static uint64_t place(const struct channel *c, uint64_t of, uint64_t m, uint64_t *len)
{
	uint64_t half = depth / 2, at = (m / (half * steps()) * half + m % half) * chunk;

	*len = at >= c->block ? 0 : c->block - at < chunk ? c->block - at : chunk;
	return (block_of(of, m / half % steps()) * c->block + at) / 8;
}

static void open_device(void)
{
	struct ibv_gid_entry entry;
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	CHECK(list);
	for (int i = 0; i < count && !context; i++)
		if (!device || !strcmp(device, ibv_get_device_name(list[i])))
			context = ibv_open_device(list[i]);
	if (!context)
		die("no device %s", device ? device : "");
	ibv_free_device_list(list);
	CHECK(pd = ibv_alloc_pd(context));
	CHECK0(ibv_query_port(context, 1, &attr));
	for (int i = 0; gid_index == UINT64_MAX && i < attr.gid_tbl_len; i++)
		if (!ibv_query_gid_ex(context, 1, i, &entry, 0) && entry.gid_type == IBV_GID_TYPE_ROCE_V2)
			gid_index = i;
	if (gid_index == UINT64_MAX)
		die("no RoCEv2 address");
}

static void open_connection(struct connection *c, struct end *own)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	size_t table = TABLE * sizeof(*c->table), chunks = (depth * chunk + 4095) / 4096 * 4096;

	CHECK(c->cq = ibv_create_cq(context, 2 * TABLE, NULL, NULL, 0));
	struct ibv_qp_init_attr init = {.send_cq = c->cq, .recv_cq = c->cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 2 * TABLE, .max_recv_wr = TABLE, .max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = sizeof(struct clear_to_send)}};
	CHECK(c->qp = ibv_create_qp(pd, &init));
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	CHECK0(ibv_modify_qp(c->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	CHECK(c->chunks = aligned_alloc(4096, chunks));
	CHECK(c->table = aligned_alloc(4096, table));
	memset(c->chunks, 0, chunks);
	memset(c->table, 0, table);
	CHECK(c->mr = ibv_reg_mr(pd, c->chunks, chunks, access));
	CHECK(c->table_mr = ibv_reg_mr(pd, c->table, table, access));
	*own = (struct end){.qpn = c->qp->qp_num, .rkey = c->table_mr->rkey, .table = (uintptr_t)c->table};
}

static void connect_connection(struct connection *c, const struct end *peer, const union ibv_gid *gid, uint32_t mtu)
{
	c->peer = *peer;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = peer->qpn, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1,
			.grh = {.dgid = *gid, .sgid_index = gid_index, .hop_limit = 255}}};
	CHECK0(ibv_modify_qp(c->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	CHECK0(ibv_modify_qp(c->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Opens what a rank sends to the next by -r. */
static void open_ring(struct connection *c, uint64_t of, uint64_t number)
{
	size_t chunks = (depth * chunk + 4095) / 4096 * 4096, bytes = 4096 + chunks;
	int file = open(ring_file, O_RDWR | O_CREAT, 0600);

	CHECK(file >= 0);
	CHECK0(posix_fallocate(file, (of * channels + number) * bytes, bytes));
	c->ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (of * channels + number) * bytes);
	CHECK(c->ring != MAP_FAILED);
	close(file);
	CHECK(c->chunks = aligned_alloc(4096, chunks));
	memset(c->chunks, 0, chunks);
}

static struct addrinfo *resolve(uint64_t number, int own)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = own ? AI_PASSIVE : 0}, *to;
	char service[24], host[256];

	snprintf(service, sizeof(service), "%lu", port + number);
	snprintf(host, sizeof(host), "%s", hosts[number]);
	char *colon = strchr(host, ':');
	if (colon) {
		*colon = 0;
		snprintf(service, sizeof(service), "%s", colon + 1);
	}
	int e = getaddrinfo(own ? NULL : host, service, &hints, &to);
	if (e)
		die("%s: %s", hosts[number], gai_strerror(e));
	return to;
}

static int listen_on(void)
{
	struct addrinfo *at = resolve(rank, 1);
	int on = 1, s = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(s >= 0);
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	CHECK0(bind(s, at->ai_addr, at->ai_addrlen));
	CHECK0(listen(s, 1));
	return s;
}

static int connect_to(uint64_t number)
{
	struct addrinfo *to = resolve(number, 0);

	for (int tries = 0;; tries++) {
		int s = socket(AF_INET, SOCK_STREAM, 0);

		CHECK(s >= 0);
		if (!connect(s, to->ai_addr, to->ai_addrlen))
			return s;
		if (tries == 300)
			die("cannot reach rank %lu at %s: %s", number, hosts[number], strerror(errno));
		close(s);
		usleep(100000);
	}
}

static void tell(int s, const void *what, size_t len)
{
	CHECK(send(s, what, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static void hear(int s, void *what, size_t len)
{
	if (recv(s, what, len, MSG_WAITALL) != (ssize_t)len)
		die("another rank has ended");
}

/* Returns when every rank has got here. */
static void barrier(int next, int before)
{
	char byte = 'b';

	for (uint64_t i = 1; i < ranks; i++) {
		tell(next, &byte, 1);
		hear(before, &byte, 1);
	}
}

/* One look each at what there is to do. All return whether there was something. */

static int poll_connection(struct connection *c, const struct channel *of, int sends)
{
	uint64_t len = 0, before = (rank + ranks - 1) % ranks;
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(c->cq, 4, wc);

	if (n < 0)
		die("ibv_poll_cq fails");
	for (int i = 0; i < n; i++) {
		if (wc[i].status)
			die("%s %lu: %s", sends ? "sending" : "receiving", wc[i].wr_id, ibv_wc_status_str(wc[i].status));
		if (!sends && wc[i].opcode != IBV_WC_RECV_RDMA_WITH_IMM)
			continue; /* a signalled "clear to send" */
		if (wc[i].wr_id != c->done)
			die("message %lu completes in place of %lu", wc[i].wr_id, c->done);
		if (!sends)
			place(of, before, c->done % of->messages, &len);
		if (!sends && ntohl(wc[i].imm_data) != len)
			die("a message of %u bytes, not %lu", ntohl(wc[i].imm_data), len);
		c->done++;
	}
	return n > 0;
}

/* The same by -r. */
static int copy_out(struct channel *of)
{
	struct connection *c = &of->out;
	uint64_t len, at = c->done % depth * chunk;

	if (c->done == c->made || c->done - __atomic_load_n(&c->ring->used, __ATOMIC_ACQUIRE) == depth)
		return 0;
	place(of, rank, c->done % of->messages, &len);
	memcpy(c->ring->chunks + at, c->chunks + at, len);
	__atomic_store_n(&c->ring->made, ++c->done, __ATOMIC_RELEASE);
	return 1;
}

static int copy_in(struct channel *of)
{
	struct connection *c = &of->in;
	uint64_t len, at = c->done % depth * chunk;

	if (c->done - c->used == depth || c->done == __atomic_load_n(&c->ring->made, __ATOMIC_ACQUIRE))
		return 0;
	place(of, (rank + ranks - 1) % ranks, c->done % of->messages, &len);
	memcpy(c->chunks + at, c->ring->chunks + at, len);
	__atomic_store_n(&c->ring->used, ++c->done, __ATOMIC_RELEASE);
	return 1;
}

static int serve_out(struct channel *of)
{
	struct connection *c = &of->out;
	volatile struct clear_to_send *entry = &c->table[c->posted % TABLE];
	int may = c->posted < c->made && entry->number == c->posted + 1;

	if (may) {
		uint64_t len;

		__sync_synchronize();
		if (entry->size != chunk)
			die("entry %lu is torn", c->posted);
		place(of, rank, c->posted % of->messages, &len);
		struct ibv_sge sge = {(uintptr_t)(c->chunks + c->posted % depth * chunk), (uint32_t)len, c->mr->lkey};
		struct ibv_send_wr *bad, last = {.wr_id = c->posted, .sg_list = &sge, .num_sge = len > 0,
			.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(len),
			.wr.rdma = {entry->addr, entry->rkey}}, data = last;
		data.opcode = IBV_WR_RDMA_WRITE;
		data.send_flags = 0;
		data.next = &last;
		if (apart)
			last.num_sge = 0;
		CHECK0(ibv_post_send(c->qp, apart ? &data : &last, &bad));
		memset((void *)entry, 0, sizeof(*entry));
		c->posted++;
	}
	return may | (c->done < c->posted ? poll_connection(c, of, 1) : 0);
}

static int serve_in(struct channel *of, uint64_t end)
{
	struct connection *c = &of->in;
	int may = c->posted < end && c->posted - c->used < depth;

	if (may) {
		struct ibv_recv_wr receive = {.wr_id = c->posted}, *bad_receive;
		uint64_t slot = c->posted % TABLE;

		CHECK0(ibv_post_recv(c->qp, &receive, &bad_receive));
		c->table[slot] = (struct clear_to_send){.addr = (uintptr_t)(c->chunks + c->posted % depth * chunk),
			.size = chunk, .rkey = c->mr->rkey, .number = c->posted + 1};
		struct ibv_sge sge = {(uintptr_t)&c->table[slot], sizeof(*c->table), c->table_mr->lkey};
		struct ibv_send_wr *bad, write = {.wr_id = c->posted, .sg_list = &sge, .num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE | (slot == 0 ? IBV_SEND_SIGNALED : 0),
			.wr.rdma = {c->peer.table + slot * sizeof(*c->table), c->peer.rkey}};
		CHECK0(ibv_post_send(c->qp, &write, &bad));
		c->posted++;
	}
	return may | (c->done < c->posted ? poll_connection(c, of, 0) : 0);
}

/* What the GPU's kernel does: the next operation, if what it waits for is there. */
static int reduce(struct channel *c, uint64_t number, uint64_t iteration)
{
	uint64_t half = depth / 2, before = (rank + ranks - 1) % ranks, len = 0, at, sum = 0, contributed = 0;
	uint64_t step = c->op / half % (steps() + 1); /* receives what was sent in the step before, if any, and sends */
	int sends = step < steps(), receives = step > 0;

	if (c->op == c->ops || (sends && c->out.made - c->out.done >= depth) || (receives && c->in.used == c->in.done))
		return 0;
	uint64_t *out = (uint64_t *)(c->out.chunks + c->out.made % depth * chunk);
	uint64_t *in = (uint64_t *)(c->in.chunks + c->in.used % depth * chunk);
	if (receives) {
		at = place(c, before, c->in.used % c->messages, &len);
		contributed = step < ranks ? step : ranks;
		for (uint64_t i = 0; i < contributed; i++)
			sum += seed((before + ranks - i) % ranks, iteration, number);
		verify(in, len / 8, at, sum, contributed * STEP);
		c->in.used++;
	}
	if (sends) {
		at = place(c, rank, c->out.made % c->messages, &len);
		uint64_t own = step < ranks ? seed(rank, iteration, number) : 0, own_step = step < ranks ? STEP : 0;
		for (uint64_t i = 0; i < len / 8; i++)
			out[i] = own + (at + i) * own_step + (receives ? in[i] : 0);
		c->out.made++;
	}
	c->op++;
	return 1;
}

static void all_reduce(uint64_t iteration)
{
	for (uint64_t i = 0; i < channels; i++)
		all[i].op = 0;
	for (int busy = 1; busy;) {
		int moved = busy = 0;

		for (uint64_t i = 0; i < channels; i++) {
			struct channel *c = &all[i];

			moved |= ring_file ? copy_in(c) : serve_in(c, (iteration + 1) * c->messages);
			moved |= reduce(c, i, iteration);
			moved |= ring_file ? copy_out(c) : serve_out(c);
			busy |= c->op < c->ops || c->out.done < c->out.made;
		}
		if (!moved)
			sched_yield();
	}
}

static int by_value(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static void usage(void)
{
	fprintf(stderr, "usage: allreduce [-s SIZE] [-k CHUNK] [-n ITERATIONS] [-w WARM_UP] [-c CHANNELS] [-q MESSAGES IN FLIGHT]\n"
		"                 [-m PATH MTU] [-p TCP PORT] [-a] [-d DEVICE] [-g GID] [-r FILE] RANK HOST...\n");
	exit(2);
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 0);

	value <<= *end == 'K' || *end == 'k' ? 10 : *end == 'M' || *end == 'm' ? 20 : 0;
	if (end == text || (*end && end[1]))
		usage();
	return value;
}

int main(int argc, char **argv)
{
	uint64_t *const numbers[128] = {['s'] = &size, ['k'] = &chunk, ['n'] = &iterations, ['w'] = &warm_up,
		['c'] = &channels, ['q'] = &depth, ['g'] = &gid_index, ['p'] = &port, ['m'] = &wanted_mtu};
	struct hello own, theirs[2];
	long long began = 0, ended;
	double *times, total = 0;

	for (int option; (option = getopt(argc, argv, "s:k:n:w:c:q:d:g:p:m:ar:")) != -1;) {
		if (option == '?')
			usage();
		if (numbers[option])
			*numbers[option] = number(optarg);
		else if (option == 'd')
			device = optarg;
		else if (option == 'r')
			ring_file = optarg;
		else
			apart = 1;
	}
	ranks = argc - optind - 1;
	if (argc - optind < 3 || ranks > MAX_RANKS || (rank = number(argv[optind])) >= ranks)
		usage();
	hosts = &argv[optind + 1];
	if (channels < 1 || channels > MAX_CHANNELS || depth < 2 || depth > MAX_DEPTH || depth % 2 || !iterations ||
	    !chunk || chunk % 8 || chunk > 1 << 30 || !size || size % (8 * channels * ranks)) {
		fprintf(stderr, "allreduce: 8 times channels times ranks have to divide the size, and 8 the chunk; "
			"messages in flight are even and %d at most\n", MAX_DEPTH);
		return 2;
	}
	if (!ring_file)
		open_device();
	own = (struct hello){.size = size, .chunk = chunk, .iterations = iterations + warm_up, .ranks = ranks,
		.channels = channels, .depth = depth, .mtu = attr.active_mtu};
	if (wanted_mtu)
		for (own.mtu = IBV_MTU_256; 128u << own.mtu < wanted_mtu;)
			own.mtu++;
	if (!ring_file)
		CHECK0(ibv_query_gid(context, 1, gid_index, &own.gid));
	struct hello inward = own;
	for (uint64_t i = 0; i < channels; i++) {
		uint64_t block = size / channels / ranks, group = depth / 2 * chunk, groups = (block + group - 1) / group;

		all[i] = (struct channel){.block = block, .messages = groups * depth / 2 * steps(),
			.ops = groups * depth / 2 * (steps() + 1)};
		if (ring_file) {
			open_ring(&all[i].out, rank, i);
			open_ring(&all[i].in, (rank + ranks - 1) % ranks, i);
			continue;
		}
		open_connection(&all[i].out, &own.ends[i]);
		open_connection(&all[i].in, &inward.ends[i]);
	}
	int listener = listen_on(), next = connect_to((rank + 1) % ranks);
	int before = accept(listener, NULL, NULL), on = 1;
	CHECK(before >= 0);
	setsockopt(next, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(before, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	tell(next, &own, sizeof(own));
	tell(before, &inward, sizeof(inward));
	hear(before, &theirs[0], sizeof(*theirs));
	hear(next, &theirs[1], sizeof(*theirs));
	for (int i = 0; i < 2; i++)
		if (memcmp(&own, &theirs[i], offsetof(struct hello, mtu)))
			die("the ranks have different options");
	for (uint64_t i = 0; i < channels && !ring_file; i++) {
		uint32_t in_mtu = own.mtu < theirs[0].mtu ? own.mtu : theirs[0].mtu;
		uint32_t out_mtu = own.mtu < theirs[1].mtu ? own.mtu : theirs[1].mtu;

		connect_connection(&all[i].in, &theirs[0].ends[i], &theirs[0].gid, in_mtu);
		connect_connection(&all[i].out, &theirs[1].ends[i], &theirs[1].gid, out_mtu);
	}
	barrier(next, before);
	CHECK(times = calloc(iterations, sizeof(*times)));
	for (uint64_t i = 0; i < warm_up + iterations; i++) {
		if (i == warm_up && getenv("IRNIC_LAB_CONTROL"))
			began = lab_time();
		if (i == warm_up && rank == 1 && getenv("LAB_FAULT")) {
			fprintf(stderr, "began %lld\n", began);
			lab_ask(getenv("LAB_FAULT"));
		}
		double start = now_us();
		all_reduce(i);
		if (i >= warm_up)
			total += times[i - warm_up] = now_us() - start;
	}
	ended = began ? lab_time() : 0;
	/* What another rank has yet to hear, this one's NIC has to send. */
	barrier(next, before);
	qsort(times, iterations, sizeof(*times), by_value);
	printf("rank %lu: %lu x %lu KiB, %lu channels, chunk %lu KiB: median %.0f us, p99 %.0f us, worst %.0f us, mean %.0f us\n", rank,
		iterations, size >> 10, channels, chunk >> 10, times[iterations / 2], times[(iterations * 99 + 99) / 100 - 1],
		times[iterations - 1], total / iterations);
	if (began)
		printf("ns %lld %lld\n", began, ended);
	return 0;
}
