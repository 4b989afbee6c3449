"""The fixtures of the package irnic: pytest."""

import pytest


@pytest.mark.irnic("star:hosts=2,rate=10G", transport="roce")
def test_a_lost_packet_is_sent_again(rdma_pair):
    lost = rdma_pair.lab.drop("data", from_host=1, nth=3)
    server = rdma_pair.server(["ib_write_bw", "-d", "irnic0", "-n", "50"], listens=18515)
    assert " 65536 " in rdma_pair.client(["ib_write_bw", "-d", "irnic0", "-n", "50", rdma_pair.address])
    server.finish()
    assert lost.applied == 1


def test_a_lab_has_two_hosts(irnic_lab):
    assert irnic_lab.hosts == 2
    assert irnic_lab.run(1, ["sh", "-c", "echo $IRNIC_LAB_HOST"]) == "1\n"
