"""A test of an application in Python, on pyverbs: RDMA WRITEs between two queue pairs of the first device, and every byte
compared. Nothing in it knows of irnic."""

import unittest

import pyverbs.device as devices
from pyverbs import enums
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

SIZE = 1 << 20
ROUNDS = 20


class Write(unittest.TestCase):
    def queue_pair(self):
        cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        init = QPInitAttr(qp_type=enums.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        return QP(self.pd, init)

    def connect(self, qp, peer):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = enums.IBV_ACCESS_REMOTE_WRITE
        qp.to_init(attr)
        attr.path_mtu = self.context.query_port(1).active_mtu
        attr.dest_qp_num = peer.qp_num
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        route = GlobalRoute(dgid=self.context.query_gid(port_num=1, index=0), sgid_index=0, hop_limit=64)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        qp.to_rts(attr)

    def test_every_byte_arrives(self):
        self.context = devices.Context(name=devices.get_device_list()[0].name.decode())
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 16)
        local = MR(self.pd, SIZE, enums.IBV_ACCESS_LOCAL_WRITE)
        remote = MR(self.pd, SIZE, enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE)
        a, b = self.queue_pair(), self.queue_pair()
        self.connect(a, b)
        self.connect(b, a)
        for n in range(ROUNDS):
            data = bytes((i * 7 + n) % 251 for i in range(1 << 10)) * (SIZE >> 10)
            local.write(data, SIZE)
            wr = SendWR(opcode=enums.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(local.buf, SIZE, local.lkey)])
            wr.set_wr_rdma(remote.rkey, remote.buf)
            a.post_send(wr)
            completions = []
            while not completions:
                _, completions = self.cq.poll()
            self.assertEqual(completions[0].status, enums.IBV_WC_SUCCESS)
            self.assertEqual(remote.read(SIZE, 0), data)


if __name__ == "__main__":
    unittest.main()
