// To be preloaded into mckey as a sender: waits until its datagrams have been sent before it leaves the group. By itself mckey asks
// for no completions, and destroys its queue pair as soon as it has posted: the driver (6.12), which sends from a work queue, then
// drops what it has not sent yet.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>

static struct ibv_cq *cq;
// mckey's send queue has room for exactly what it sends.
static unsigned sends;

int rdma_create_qp(void *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	int (*next)(void *, struct ibv_pd *, struct ibv_qp_init_attr *) = dlsym(RTLD_NEXT, "rdma_create_qp");

	cq = attr->send_cq;
	sends = attr->cap.max_send_wr;
	attr->sq_sig_all = 1;
	return next != NULL ? next(id, pd, attr) : -1;
}

int rdma_leave_multicast(void *id, void *addr)
{
	int (*next)(void *, void *) = dlsym(RTLD_NEXT, "rdma_leave_multicast");
	struct ibv_wc wc;
	int n = 0;

	for (; sends != 0 && n >= 0; sends -= n)
		n = ibv_poll_cq(cq, 1, &wc);
	return next != NULL ? next(id, addr) : -1;
}
