/* Sends 100 datagrams of 1000 bytes to itself, says "sent", and waits for the end of standard input. With an argument,
 * a child does the waiting as well, and this process does not. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define COUNT 100
#define SIZE 1000
#define HEADER 40

static void check(int done, const char *what)
{
	if (!done) {
		perror(what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;

	check(context != NULL, "ibv_open_device");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 2 * COUNT, NULL, NULL, 0);
	char *memory = calloc(1, 2 * (SIZE + HEADER));
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * (SIZE + HEADER), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1,
		.cap = { .max_send_wr = COUNT, .max_recv_wr = COUNT, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	check(mr && qp, "ibv_create_qp");
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };

	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
	attr.qp_state = IBV_QPS_RTR;
	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
	struct ibv_ah_attr path = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };

	check(!ibv_query_gid(context, 1, 0, &path.grh.dgid), "ibv_query_gid");
	struct ibv_ah *ah = ibv_create_ah(pd, &path);

	check(ah != NULL, "ibv_create_ah");
	for (int i = 0; i < COUNT; i++) {
		struct ibv_sge to = { (uintptr_t)memory, SIZE + HEADER, mr->lkey };
		struct ibv_sge from = { (uintptr_t)memory + SIZE + HEADER, SIZE, mr->lkey };
		struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad_recv;
		struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
		struct ibv_wc wc;

		send.wr.ud.ah = ah;
		send.wr.ud.remote_qpn = qp->qp_num;
		send.wr.ud.remote_qkey = 1;
		check(!ibv_post_recv(qp, &recv, &bad_recv), "ibv_post_recv");
		check(!ibv_post_send(qp, &send, &bad_send), "ibv_post_send");
		for (int done = 0; done < 2;) {
			int n = ibv_poll_cq(cq, 1, &wc);

			check(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS), "ibv_poll_cq");
			done += n;
		}
	}
	if (argc > 1 && fork())
		_exit(0);
	puts("sent");
	fflush(stdout);
	return getchar() != EOF;
}
