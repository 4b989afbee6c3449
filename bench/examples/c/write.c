/*
 * A test of an application in C: RDMA WRITEs between two queue pairs of the first device, and every byte compared. Nothing
 * in it knows of irnic.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1 << 20, ROUNDS = 20 };

#define CHECK(what)                                \
    do {                                           \
        if (!(what)) {                             \
            fprintf(stderr, "failed: %s\n", #what); \
            exit(1);                               \
        }                                          \
    } while (0)

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer, union ibv_gid gid, enum ibv_mtu mtu)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = peer->qp_num, .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}},
    };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

int main(void)
{
    int count;
    struct ibv_device **devices = ibv_get_device_list(&count);
    CHECK(devices && count > 0);
    struct ibv_context *context = ibv_open_device(devices[0]);
    CHECK(context);
    struct ibv_port_attr port;
    union ibv_gid gid;
    CHECK(!ibv_query_port(context, 1, &port) && !ibv_query_gid(context, 1, 0, &gid));
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    CHECK(pd && cq);
    unsigned char *from = malloc(SIZE), *to = calloc(1, SIZE);
    CHECK(from && to);
    struct ibv_mr *local = ibv_reg_mr(pd, from, SIZE, 0);
    struct ibv_mr *remote = ibv_reg_mr(pd, to, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(local && remote);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *a = ibv_create_qp(pd, &init), *b = ibv_create_qp(pd, &init);
    CHECK(a && b);
    connect_to(a, b, gid, port.active_mtu);
    connect_to(b, a, gid, port.active_mtu);

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SIZE; i++)
            from[i] = (unsigned char)(i * 7 + i / 251 + round);
        struct ibv_sge sge = {.addr = (uintptr_t)from, .length = SIZE, .lkey = local->lkey};
        struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1,
                                 .wr.rdma = {.remote_addr = (uintptr_t)to, .rkey = remote->rkey}}, *bad;
        CHECK(!ibv_post_send(a, &wr, &bad));
        struct ibv_wc wc;
        int polled;
        while ((polled = ibv_poll_cq(cq, 1, &wc)) == 0)
            ;
        CHECK(polled == 1 && wc.status == IBV_WC_SUCCESS);
        CHECK(!memcmp(from, to, SIZE));
    }
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_dereg_mr(local) && !ibv_dereg_mr(remote));
    CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    ibv_free_device_list(devices);
    free(from);
    free(to);
    printf("%d WRITEs of %d bytes, every byte as it was\n", ROUNDS, SIZE);
    return 0;
}
