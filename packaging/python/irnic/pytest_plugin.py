"""Fixtures for pytest, found by it where irnic is installed.

    @pytest.mark.irnic("star:hosts=2", transport="roce")
    def test_a_lost_acknowledgement(rdma_pair):
        rdma_pair.lab.drop("ack", nth=3)
        server = rdma_pair.server(["./server"], listens=4711)
        rdma_pair.client(["./client", rdma_pair.address])
        server.finish()
"""

from __future__ import annotations

from typing import Any, Iterator, Optional

import pytest

from . import Command, Lab, Process


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", "irnic(topology, **options): the network of irnic_lab and rdma_pair")


@pytest.fixture
def irnic_lab(request: Any) -> Iterator[Lab]:
    """A lab for the test: two hosts on one switch, or what its mark irnic(topology, **options) says."""
    mark = request.node.get_closest_marker("irnic")
    with Lab(*(mark.args if mark else ()), **(mark.kwargs if mark else {})) as lab:
        yield lab


class Pair:
    """The hosts 0 and 1 of a lab, for a server and its clients."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        #: Address of the server's host.
        self.address = lab.address(0)

    def server(self, command: Command, listens: Optional[int] = None, **popen: Any) -> Process:
        """Starts a program on host 0, and waits until it listens at a TCP port, if one is given."""
        process = self.lab.start(0, command, **popen)
        if listens is not None:
            process.wait_for_listener(listens)
        return process

    def client(self, command: Command, timeout: float = 60.0, **popen: Any) -> str:
        """Runs a program on host 1, and returns its output. Raises CalledProcessError if it fails."""
        return self.lab.run(1, command, timeout, **popen)


@pytest.fixture
def rdma_pair(irnic_lab: Lab) -> Pair:
    """Two hosts of irnic_lab."""
    return Pair(irnic_lab)
