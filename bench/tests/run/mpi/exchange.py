"""Exchanges between ranks in Python, with checked data: arrays of bytes, and objects that are pickled."""

import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
MEBIBYTE = 1 << 20


def pattern(sender, receiver, turn, length):
    """The bytes of one message."""
    of = bytes((sender * 101 + receiver * 37 + turn * 13 + at * 7) & 255 for at in range(251))
    return (of * (length // len(of) + 1))[:length]


def check(what, got, sender, receiver, turn, length):
    if bytes(got) != pattern(sender, receiver, turn, length):
        print(f"{what}: {length} bytes of turn {turn}, from {sender} to {receiver}, are wrong", file=sys.stderr, flush=True)
        world.Abort(1)


def ring(length, turn):
    after, before = (rank + 1) % size, (rank - 1) % size
    incoming = bytearray(length)
    world.Sendrecv(pattern(rank, after, turn, length), after, turn, incoming, before, turn)
    check("Sendrecv", incoming, before, rank, turn, length)


def everybody(length, turn):
    outgoing = b"".join(pattern(rank, peer, turn, length) for peer in range(size))
    incoming = bytearray(size * length)
    world.Alltoall(outgoing, incoming)
    for peer in range(size):
        check("Alltoall", incoming[peer * length : (peer + 1) * length], peer, rank, turn, length)


def objects(length, turn):
    incoming = world.alltoall([{"from": rank, "data": pattern(rank, peer, turn, length)} for peer in range(size)])
    for peer, message in enumerate(incoming):
        assert message["from"] == peer, message["from"]
        check("alltoall", message["data"], peer, rank, turn, length)


for length, turns in [(1, 10), (64, 10), (4096, 10), (65536, 4), (MEBIBYTE, 2)]:
    for turn in range(turns):
        ring(length, turn)
        everybody(length, turn)
        objects(length, turn)
assert world.allreduce(rank) == size * (size - 1) // 2
if rank == 0:
    print(f"{size} ranks are right")
