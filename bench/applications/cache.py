"""Mooncake's Transfer Engine moves key-value caches between hosts of a lab, every byte checked:

    cache.py target FOLDER CLIENTS BYTES
    cache.py client FOLDER NUMBER CLIENTS BYTES

The target has memory for the caches of so many clients. Each client writes its own cache of BYTES there, then reads it back,
in batches of 128 blocks of 64 KiB. FOLDER is where they meet. Each client prints when it began and ended by the lab's clock, ns.

A block before that makes the connections. Data are made before, and checked after, what is timed. Before that the first client
tells the lab what LAB_FAULT says.
"""

import ctypes
import mmap
import os
import pathlib
import random
import sys
import time

from irnic_lab import Lab
from mooncake.engine import TransferEngine

BLOCK, BATCH = 65536, 128


def memory(engine, size):
    """Memory that the engine may use: itself, and its address."""
    area = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    if engine.register_memory(address, size):
        sys.exit("the memory cannot be registered")
    return area, address


def cache(number, size):
    return random.Random(number).randbytes(size)


def say(folder, name, text):
    """Writes a file that nobody sees before it is whole."""
    part = folder / f"{name}.part"
    part.write_text(text)
    part.rename(folder / name)


def hear(folder, name):
    while not (folder / name).exists():
        time.sleep(0.002)
    return (folder / name).read_text()


def engine():
    address = f"127.77.0.{int(os.environ['IRNIC_LAB_HOST']) + 1}"
    engine = TransferEngine()
    if engine.initialize(address, "P2PHANDSHAKE", "rdma", "irnic0"):
        sys.exit("the transfer engine does not start")
    return engine, address


def target(folder, clients, size):
    own, address = engine()
    area, at = memory(own, clients * size)
    say(folder, "target", f"{address}:{own.get_rpc_port()} {at}")
    for number in range(clients):
        hear(folder, f"done{number}")
    for number in range(clients):
        if area[number * size : (number + 1) * size] != cache(number, size):
            sys.exit(f"the target has not what client {number} wrote")


def client(folder, number, clients, size):
    own, _ = engine()
    segment, at = hear(folder, "target").split()
    theirs = int(at) + number * size
    area, mine = memory(own, 2 * size)
    sent = cache(number, size)
    area[:size] = sent
    batches = [range(at, min(at + BATCH * BLOCK, size), BLOCK) for at in range(0, size, BATCH * BLOCK)]

    def move(way, local, batch):
        lengths = [min(BLOCK, size - at) for at in batch]
        if way(segment, [local + at for at in batch], [theirs + at for at in batch], lengths):
            say(folder, f"done{number}", "")
            sys.exit(f"client {number}: a transfer failed")

    move(own.batch_transfer_sync_write, mine, range(0, 1))
    say(folder, f"ready{number}", "")
    for other in range(clients):
        hear(folder, f"ready{other}")
    with Lab() as lab:
        began = lab.ask("time")["ns"]
        if number == 0 and "LAB_FAULT" in os.environ:
            print("began", began, file=sys.stderr, flush=True)
            lab.ask(os.environ["LAB_FAULT"])
        for batch in batches:
            move(own.batch_transfer_sync_write, mine, batch)
        for batch in batches:
            move(own.batch_transfer_sync_read, mine + size, batch)
        ended = lab.ask("time")["ns"]
    say(folder, f"done{number}", "")
    if area[size:] != sent:
        sys.exit(f"client {number}: what was read is not what was written")
    print(f"ns {began} {ended}", flush=True)


role, folder, *numbers = sys.argv[1:]
{"target": target, "client": client}[role](pathlib.Path(folder), *map(int, numbers))
# The engine's threads would keep the process.
sys.stdout.flush()
os._exit(0)
