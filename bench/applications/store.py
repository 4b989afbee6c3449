"""Mooncake's store keeps objects of one host in the memory of another, every byte checked:

    store.py keeper FOLDER MASTER BYTES
    store.py client FOLDER MASTER BYTES

MASTER is where mooncake_master listens. The keeper lends memory; the client, which has none to lend, puts objects of 1 MiB and
less, BYTES in all, then gets them. FOLDER is where they meet. The client prints when it began and ended by the lab's clock, ns.
"""

import os
import pathlib
import random
import sys
import time

from irnic_lab import Lab
from mooncake.store import MooncakeDistributedStore

OBJECT, HANG = 1 << 20, 300

role, folder, master, size = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
# A segment is a multiple of 16 MiB.
room = (2 * size // (16 << 20) + 1) * (16 << 20)
store = MooncakeDistributedStore()
host = f"127.77.0.{int(os.environ['IRNIC_LAB_HOST']) + 1}"


def until(what, condition):
    end = time.monotonic() + HANG
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"waited in vain for {what}")
        time.sleep(0.002)


def setup(lent):
    until("the master", lambda: store.setup(host, "P2PHANDSHAKE", lent, room, "rdma", "irnic0", master) == 0)


if role == "keeper":
    setup(room)
    (folder / "keeps").touch()
    until("the client", (folder / "done").exists)
else:
    until("the keeper", (folder / "keeps").exists)
    setup(0)
    objects = [random.Random(at).randbytes(min(OBJECT, size - at)) for at in range(0, size, OBJECT)]
    # The first makes the connections.
    if store.put("first", b"x") or store.get("first") != b"x":
        sys.exit("an object cannot be put and got")
    with Lab() as lab:
        began = lab.ask("time")["ns"]
        failed = [key for key, value in enumerate(objects) if store.put(str(key), value)]
        got = [store.get(str(key)) for key in range(len(objects))]
        ended = lab.ask("time")["ns"]
    (folder / "done").touch()
    if failed or got != objects:
        sys.exit(f"objects {failed} were not put, or others came back")
    print(f"ns {began} {ended}", flush=True)
# The engine's threads would keep the process.
sys.stdout.flush()
os._exit(0)
