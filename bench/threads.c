// Do threads scale? One process on a device, N threads, each with a completion queue and two RC queue pairs of its own that are
// connected to each other; each keeps 64 RDMA WRITEs under way. Prints millions of WRITEs a second.
//
//     gcc -O2 -o threads bench/threads.c -libverbs -pthread
//     irnic run -- ./threads 2 8 1            # threads, bytes, seconds
//     irnic run -- ./threads 2 8 1 first      # the first thread creates all queues

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_THREADS = 64, DEPTH = 64, BATCH = 32 };

static struct ibv_context *device;
static struct ibv_pd *pd;
static union ibv_gid gid;
static struct ibv_port_attr port;
static size_t bytes;
static int by_first;
static atomic_int go, stop;
static pthread_barrier_t ready;

static void check(int failed, const char *what) {
    if (failed) {
        perror(what);
        exit(1);
    }
}

static struct ibv_qp *queue_pair(struct ibv_cq *cq) {
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    check(!qp, "ibv_create_qp");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
    return qp;
}

static void connect_to(struct ibv_qp *qp, const struct ibv_qp *peer) {
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = peer->qp_num, .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = 1, .hop_limit = 64}},
    };
    check(ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
    struct ibv_qp_attr rts = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
    };
    check(ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

struct worker {
    struct ibv_cq *cq;
    struct ibv_qp *from;
    long count;
};

static void create(struct worker *worker) {
    worker->cq = ibv_create_cq(device, 2 * DEPTH, NULL, NULL, 0);
    check(!worker->cq, "ibv_create_cq");
    struct ibv_qp *to = queue_pair(worker->cq);
    worker->from = queue_pair(worker->cq);
    connect_to(worker->from, to);
    connect_to(to, worker->from);
}

static void *run(void *of) {
    struct worker *worker = of;
    if (!by_first)
        create(worker);
    char *memory = aligned_alloc(4096, (2 * bytes + 4095) / 4096 * 4096);
    check(!memory, "aligned_alloc");
    memset(memory, 1, 2 * bytes);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    check(!mr, "ibv_reg_mr");
    pthread_barrier_wait(&ready);
    while (!atomic_load(&go)) {
    }
    struct ibv_cq *cq = worker->cq;
    struct ibv_qp *from = worker->from;
    long done = 0;
    int under_way = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        for (; under_way < DEPTH; under_way++) {
            struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = bytes, .lkey = mr->lkey};
            struct ibv_send_wr *bad, wr = {
                .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
                .wr.rdma = {.remote_addr = (uintptr_t)memory + bytes, .rkey = mr->rkey},
            };
            check(ibv_post_send(from, &wr, &bad), "ibv_post_send");
        }
        struct ibv_wc completions[BATCH];
        int n = ibv_poll_cq(cq, BATCH, completions);
        check(n < 0, "ibv_poll_cq");
        for (int i = 0; i < n; i++) {
            if (completions[i].status != IBV_WC_SUCCESS) {
                fprintf(stderr, "%s\n", ibv_wc_status_str(completions[i].status));
                exit(1);
            }
        }
        under_way -= n;
        done += n;
    }
    worker->count = done;
    return NULL;
}

int main(int argc, char **argv) {
    by_first = argc == 5 && !strcmp(argv[4], "first");
    int threads = argc == 4 + by_first ? atoi(argv[1]) : 0, seconds = threads ? atoi(argv[3]) : 0;
    bytes = threads ? strtoul(argv[2], NULL, 10) : 0;
    if (threads < 1 || threads > MAX_THREADS || bytes < 1 || seconds < 1) {
        fprintf(stderr, "usage: %s THREADS BYTES SECONDS [first] (1 to %d threads)\n", argv[0], MAX_THREADS);
        return 2;
    }
    int devices;
    struct ibv_device **list = ibv_get_device_list(&devices);
    check(!list || !devices, "ibv_get_device_list");
    device = ibv_open_device(list[0]);
    check(!device, "ibv_open_device");
    pd = ibv_alloc_pd(device);
    check(!pd, "ibv_alloc_pd");
    check(ibv_query_port(device, 1, &port) || ibv_query_gid(device, 1, 1, &gid), "ibv_query_gid");
    pthread_t ids[MAX_THREADS];
    static struct worker workers[MAX_THREADS];
    long total = 0;
    pthread_barrier_init(&ready, NULL, threads + 1);
    for (int i = 0; i < threads; i++)
        check(pthread_create(&ids[i], NULL, run, &workers[i]), "pthread_create");
    for (int i = 0; i < threads && by_first; i++)
        create(&workers[i]);
    pthread_barrier_wait(&ready);
    atomic_store(&go, 1);
    sleep(seconds);
    atomic_store(&stop, 1);
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        total += workers[i].count;
    }
    printf("%d threads, %zu bytes: %.3f M/s, %.0f MiB/s\n", threads, bytes, total / 1e6 / seconds,
           (double)total * bytes / seconds / 1048576);
}
