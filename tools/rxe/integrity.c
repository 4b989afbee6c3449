/*
 * Checks every byte that two RC queue pairs move, and the bytes around them: WRITE and SEND with immediate, READ, and atomics;
 * requests that come before their receives; ATOMIC WRITE (IBA 1.5) where both ends know it, which is said; and that a wrong key is
 * refused. rxe sends neither ATOMIC WRITEs nor wrong keys over a lossy network.
 *
 *     integrity DEVICE GID-INDEX MTU PORT lossy|calm [SERVER]
 *
 * The end that is given a server is the requester. Addresses go over TCP. Exits with 0 if both ends found everything right.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

enum { AREA = 2 * 1024 * 1024, GUARD = 64, CELL = 2 * AREA, SIZE = 2 * AREA + 64 };
enum { COUNT = 13 };

struct peer {
    uint32_t qpn, psn, rkey;
    /* Whether the device answers ATOMIC WRITEs. */
    uint32_t atomic_write;
    uint64_t addr;
    union ibv_gid gid;
};

static const uint64_t device_atomic_write = 1ull << 40; /* IB_UVERBS_DEVICE_ATOMIC_WRITE of later headers */

static uint8_t *memory;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
/* The same, if it sends ATOMIC WRITEs. */
static struct ibv_qp_ex *extended;
static struct peer peer;
static int wire;

/* Both ends fill and expect the same bytes for the same message. */
static uint8_t pattern(uint32_t message, uint32_t at) { return (uint8_t)(message * 29 + at * 131 + (at >> 8) * 7 + 1); }

/* Around the path MTU, short of a word, of several packets, and of more than may be in flight; at odd addresses. */
static uint32_t size_of(uint32_t message, uint32_t mtu) {
    const uint32_t sizes[COUNT] = {1,       2,       3,           4,           7,           mtu - 1,
                                   mtu,     mtu + 1, 2 * mtu + 3, 5 * mtu - 2, 5000,        65537, 1048577};
    return sizes[message % COUNT];
}

static uint32_t offset_of(uint32_t message) { return GUARD + message % 13; }

static void fill(uint8_t *area, uint32_t message, uint32_t size) {
    for (uint32_t i = 0; i < size; i++)
        area[offset_of(message) + i] = pattern(message, i);
}

/* The area has the message, and beside it what `blank` left. */
static void expect(const uint8_t *area, uint32_t message, uint32_t size, uint8_t blank) {
    const uint32_t start = offset_of(message);
    for (uint32_t i = 0; i < start + size + GUARD; i++) {
        const uint8_t right = i >= start && i < start + size ? pattern(message, i - start) : blank;
        if (area[i] != right) {
            fprintf(stderr, "message %u of %u bytes: byte %d is %02x, not %02x\n", message, size, (int)(i - start),
                    area[i], right);
            exit(1);
        }
    }
}

static void wait_for_any(struct ibv_wc *wc) {
    int n;
    while ((n = ibv_poll_cq(cq, 1, wc)) == 0) {}
    CHECK(n == 1);
}

static void wait_for(enum ibv_wc_opcode opcode, struct ibv_wc *wc) {
    wait_for_any(wc);
    if (wc->status != IBV_WC_SUCCESS) {
        fprintf(stderr, "completion of %lu: %s\n", (unsigned long)wc->wr_id, ibv_wc_status_str(wc->status));
        exit(1);
    }
    CHECK(wc->opcode == opcode);
}

static void post_receive(uint32_t offset, uint32_t length) {
    struct ibv_sge sge = {(uintptr_t)memory + offset, length, mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static void post_any(struct ibv_send_wr *wr, uint32_t offset, uint32_t length, struct ibv_wc *wc) {
    struct ibv_sge sge = {(uintptr_t)memory + offset, length, mr->lkey};
    struct ibv_send_wr *bad;
    wr->sg_list = &sge;
    wr->num_sge = 1;
    wr->send_flags = IBV_SEND_SIGNALED;
    CHECK(ibv_post_send(qp, wr, &bad) == 0);
    wait_for_any(wc);
}

static void post(struct ibv_send_wr *wr, uint32_t offset, uint32_t length, enum ibv_wc_opcode opcode) {
    struct ibv_wc wc;
    post_any(wr, offset, length, &wc);
    if (wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "%u bytes: %s\n", length, ibv_wc_status_str(wc.status));
        exit(1);
    }
    CHECK(wc.opcode == opcode);
}

/* Both ends have come here. */
static void meet(void) {
    char c = 'm';
    CHECK(write(wire, &c, 1) == 1);
    CHECK(read(wire, &c, 1) == 1 && c == 'm');
}

/* The responder's cell is 77 before and after, the one behind it what was written last. */
static void request_atomic_writes(void) {
    const uint64_t cell = peer.addr + CELL;
    uint64_t *copy = (uint64_t *)(memory + CELL), value = 1;
    for (int i = 0; i < 40; i++, value *= 3) {
        struct ibv_wc wc;
        ibv_wr_start(extended);
        extended->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_atomic_write(extended, peer.rkey, cell + 8, &value);
        CHECK(ibv_wr_complete(extended) == 0);
        wait_for(IBV_WC_ATOMIC_WRITE, &wc);
        struct ibv_send_wr back = {.opcode = IBV_WR_RDMA_READ};
        back.wr.rdma.remote_addr = cell;
        back.wr.rdma.rkey = peer.rkey;
        post(&back, CELL, 24, IBV_WC_RDMA_READ);
        CHECK(copy[0] == 77 && copy[1] == value && copy[2] == 0);
    }
    puts("ATOMIC WRITEs, too");
}

static void request_with_a_wrong_key(int lossy) {
    struct ibv_wc wc;
    struct ibv_send_wr wrong = {.opcode = IBV_WR_RDMA_WRITE};
    wrong.wr.rdma.remote_addr = peer.addr;
    wrong.wr.rdma.rkey = peer.rkey ^ 0x5500;
    post_any(&wrong, 0, 3000, &wc);
    CHECK(wc.status == IBV_WC_REM_ACCESS_ERR || (lossy && wc.status == IBV_WC_RETRY_EXC_ERR));
}

static void request(uint32_t mtu, int lossy, int is_rxe) {
    for (uint32_t m = 0; m < 2 * COUNT; m++) {
        const uint32_t size = size_of(m, mtu), at = offset_of(m);
        fill(memory, m, size);
        meet();
        struct ibv_send_wr wr = {.imm_data = htonl(m)};
        wr.opcode = m < COUNT ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM;
        wr.wr.rdma.remote_addr = peer.addr + at;
        wr.wr.rdma.rkey = peer.rkey;
        post(&wr, at, size, m < COUNT ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
        meet();
        /* And back again, into the second half. */
        memset(memory + AREA, 0x5a, AREA);
        struct ibv_send_wr back = {.opcode = IBV_WR_RDMA_READ};
        back.wr.rdma.remote_addr = peer.addr + AREA + at;
        back.wr.rdma.rkey = peer.rkey;
        post(&back, AREA + at, size, IBV_WC_RDMA_READ);
        expect(memory + AREA, m, size, 0x5a);
        meet();
    }
    uint64_t *result = (uint64_t *)(memory + CELL);
    meet();
    for (uint64_t value = 1000; value < 1100; value += 10) {
        struct ibv_send_wr add = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
        add.wr.atomic.remote_addr = peer.addr + CELL;
        add.wr.atomic.rkey = peer.rkey;
        add.wr.atomic.compare_add = 10;
        post(&add, CELL, 8, IBV_WC_FETCH_ADD);
        CHECK(*result == value);
    }
    for (uint64_t compare = 1100; compare <= 1101; compare++) {
        struct ibv_send_wr swap = {.opcode = IBV_WR_ATOMIC_CMP_AND_SWP};
        swap.wr.atomic.remote_addr = peer.addr + CELL;
        swap.wr.atomic.rkey = peer.rkey;
        swap.wr.atomic.compare_add = compare;
        swap.wr.atomic.swap = 77;
        post(&swap, CELL, 8, IBV_WC_COMP_SWAP);
        CHECK(*result == (compare == 1100 ? 1100 : 77));
    }
    /* rxe (6.12) repeats an ATOMIC WRITE to address 0: when req_retry() sets a request's address again, it knows those of READs,
     * WRITEs and atomics. */
    if (lossy && is_rxe)
        puts("no ATOMIC WRITEs: rxe cannot repeat one");
    else if (extended && peer.atomic_write)
        request_atomic_writes();
    /* A NAK that the network loses is not repeated: the peer's queue pair is in the error state, and silent. */
    if (lossy && is_rxe)
        puts("no wrong key: rxe would repeat its request for ever");
    else
        request_with_a_wrong_key(lossy);
    meet();
}

static void respond(uint32_t mtu) {
    struct ibv_wc wc;
    for (uint32_t m = 0; m < 2 * COUNT; m++) {
        const uint32_t size = size_of(m, mtu), at = offset_of(m);
        memset(memory, 0xa5, AREA);
        fill(memory + AREA, m, size);
        /* A SEND goes to the receive's buffer, a WRITE only takes the receive. */
        if (m % 5 != 4)
            post_receive(at, size);
        meet();
        if (m % 5 == 4) {
            /* So late that the requester is told to try again (RNR NAK). */
            usleep(20000);
            post_receive(at, size);
        }
        wait_for(m < COUNT ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV, &wc);
        CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
        CHECK(ntohl(wc.imm_data) == m);
        CHECK(wc.byte_len == size);
        expect(memory, m, size, 0xa5);
        meet();
        /* The requester has read. */
        meet();
    }
    uint64_t *cell = (uint64_t *)(memory + CELL);
    *cell = 1000;
    meet();
    meet();
    CHECK(*cell == 77);
}

static void reach(const char *port, const char *server) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *address;
    CHECK(getaddrinfo(server, port, &hints, &address) == 0);
    int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    CHECK(s >= 0);
    if (server) {
        CHECK(connect(s, address->ai_addr, address->ai_addrlen) == 0);
        wire = s;
    } else {
        CHECK(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
        CHECK(bind(s, address->ai_addr, address->ai_addrlen) == 0 && listen(s, 1) == 0);
        CHECK((wire = accept(s, NULL, NULL)) >= 0);
    }
    freeaddrinfo(address);
}

static void open_device(const char *name, int gid, struct peer *me) {
    int n;
    struct ibv_device **list = ibv_get_device_list(&n), *device = NULL;
    CHECK(list);
    for (int i = 0; i < n; i++)
        if (!strcmp(ibv_get_device_name(list[i]), name))
            device = list[i];
    CHECK(device);
    struct ibv_context *context = ibv_open_device(device);
    CHECK(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    CHECK(posix_memalign((void **)&memory, 4096, SIZE) == 0);
    memset(memory, 0, SIZE);
    struct ibv_device_attr_ex device_attr;
    CHECK(ibv_query_device_ex(context, NULL, &device_attr) == 0);
    const int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    CHECK((mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | access)));
    CHECK((cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
    struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
                                       .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                       .send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE,
                                       .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    /* rxe's library takes the flag whatever its kernel knows. */
    const int atomic_write = (device_attr.device_cap_flags_ex & device_atomic_write) != 0;
    if (!atomic_write)
        init.comp_mask = IBV_QP_INIT_ATTR_PD;
    CHECK((qp = ibv_create_qp_ex(context, &init)));
    if (atomic_write)
        CHECK((extended = ibv_qp_to_qp_ex(qp)));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1,
                               .qp_access_flags = access};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    *me = (struct peer){.qpn = qp->qp_num, .psn = 0xfffffa, .rkey = mr->rkey, .addr = (uintptr_t)memory,
                        .atomic_write = (uint32_t)atomic_write};
    CHECK(ibv_query_gid(context, 1, gid, &me->gid) == 0);
}

static void connect_queue_pairs(const struct peer *me, int gid, enum ibv_mtu mtu, int is_rxe) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = peer.qpn, .rq_psn = peer.psn,
                               .max_dest_rd_atomic = 1, .min_rnr_timer = 12};
    attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
    attr.ah_attr.grh = (struct ibv_global_route){.dgid = peer.gid, .sgid_index = (uint8_t)gid, .hop_limit = 64};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    /* irnic retries for 15 seconds, since an emulated guest without a core answers late; its timer follows the round trip, whatever
     * the timeout. rxe waits for the timeout at each loss, and begins to count retries anew at ACKs, and not at NAKs, which
     * acknowledge packets, too (check_ack() in rxe_comp.c): close losses exhaust any number but 7, which it does not count. */
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = me->psn, .max_rd_atomic = 1, .timeout = is_rxe ? 16 : 19,
                                .retry_cnt = is_rxe ? 7 : 6, .rnr_retry = 7};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT |
                                       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 6 || argc == 7);
    const int lossy = strcmp(argv[5], "lossy") == 0;
    const char *server = argc == 7 ? argv[6] : NULL;
    const int gid = atoi(argv[2]), is_rxe = strncmp(argv[1], "rxe", 3) == 0;
    const uint32_t bytes = (uint32_t)atoi(argv[3]);
    enum ibv_mtu mtu = IBV_MTU_256;
    while (128u << mtu < bytes)
        mtu++;
    struct peer me;
    open_device(argv[1], gid, &me);
    reach(argv[4], server);
    CHECK(write(wire, &me, sizeof me) == sizeof me);
    CHECK(recv(wire, &peer, sizeof peer, MSG_WAITALL) == sizeof peer);
    connect_queue_pairs(&me, gid, mtu, is_rxe);
    meet();
    if (server)
        request(bytes, lossy, is_rxe);
    else
        respond(bytes);
    puts("every byte is right");
    return 0;
}
