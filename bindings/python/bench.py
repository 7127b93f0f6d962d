"""Compare shmsync with multiprocessing, in one run: python3 bench.py [--rounds N] [--quick].

The rounds of the two libraries alternate, so that other load of the machine affects both. A figure is the time of one
operation: the mean over all rounds, and the 50th and 99th percentile of the times of batches. A ratio compares the
medians.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import statistics
import time
import uuid
from typing import Any, Callable, Dict, List, Tuple

import shmsync

BATCH = 200

Timer = Callable[[int], List[float]]


def batches(operation: Callable[[int], None]) -> Timer:
    """Return a function that times n batches of an operation, in nanoseconds per operation."""

    def times(n: int) -> List[float]:
        out = []
        for _ in range(n):
            begin = time.perf_counter_ns()
            operation(BATCH)
            out.append((time.perf_counter_ns() - begin) / BATCH)
        return out

    return times


def pair(lock: Any) -> Timer:
    def run(n: int) -> None:
        acquire, release = lock.acquire, lock.release
        for _ in range(n):
            acquire()
            release()

    return batches(run)


def with_pair(lock: Any) -> Timer:
    def run(n: int) -> None:
        for _ in range(n):
            with lock:
                pass

    return batches(run)


def produce(q: Any, item: bytes, go: Any) -> None:
    while go.recv():
        for _ in range(BATCH):
            q.put(item)


def produce_ours(name: str, item: bytes, go: Any) -> None:
    produce(shmsync.Queue(shmsync.Arena(name), "queue", 64, 1024), item, go)


def transfer(q: Any, target: Callable[..., None], first: Any, item: bytes, workers: List[Any]) -> Timer:
    """Time the transfer of items from a process that puts them to this process, which gets them."""
    here, there = multiprocessing.Pipe()
    p = multiprocessing.get_context("spawn").Process(target=target, args=(first, item, there), daemon=True)
    p.start()
    workers.append((p, here))

    def run(n: int) -> None:
        here.send(True)
        for _ in range(n):
            q.get()

    run(BATCH)  # after this, the other process is running
    return batches(run)


def both(name: str, ours: Timer, theirs: Timer, rounds: int, size: int) -> float:
    """Time both libraries by turns, print a line for each, and return the ratio of the medians, ours to theirs."""
    times: Dict[str, List[float]] = {"shmsync": [], "multiprocessing": []}
    for _ in range(rounds):
        times["shmsync"] += ours(size)
        times["multiprocessing"] += theirs(size)
    for label, all_of in times.items():
        cuts = statistics.quantiles(all_of, n=100)
        print(f"{name:28} {label:16} {statistics.fmean(all_of):9.0f} {cuts[49]:9.0f} {cuts[98]:9.0f}")
    ratio = statistics.median(times["shmsync"]) / statistics.median(times["multiprocessing"])
    print(f"{name:28} {'ratio':16} {ratio:29.2f}")
    return ratio


def hold_ours(name: str, told: Any) -> None:
    shmsync.Mutex(shmsync.Arena(name, label="holder"), "killed").acquire()
    told.send("held")
    signal.pause()


def hold_theirs(lock: Any, told: Any) -> None:
    lock.acquire()
    told.send("held")
    signal.pause()


def killed(target: Callable[..., None], first: Any, spawn: Any) -> Tuple[int, int]:
    """Run a process that holds a lock, kill it, and return its process ID and the time of the kill."""
    here, there = multiprocessing.Pipe()
    p = spawn.Process(target=target, args=(first, there))
    p.start()
    here.recv()
    assert p.pid is not None
    begin = time.monotonic_ns()
    os.kill(p.pid, signal.SIGKILL)
    p.join()
    return p.pid, begin


def deaths(arena: shmsync.Arena, name: str) -> None:
    """Show what a kill -9 of the holder does to a lock of each library."""
    spawn = multiprocessing.get_context("spawn")
    m = shmsync.Mutex(arena, "killed")
    pid, begin = killed(hold_ours, name, spawn)
    try:
        m.acquire()
    except shmsync.OwnerDead as e:
        m.recover(lambda: None)
        with m:
            pass
        print(f"kill -9 of the holder        shmsync          goes on after {(time.monotonic_ns() - begin) / 1e6:.1f} ms: {e}")
        assert e.pid == pid
    lock = spawn.Lock()
    killed(hold_theirs, lock, spawn)
    got = lock.acquire(timeout=2)
    print(f"kill -9 of the holder        multiprocessing  {'goes on' if got else 'still hangs after 2 s'}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare shmsync with multiprocessing.")
    parser.add_argument("--rounds", type=int, default=50, help="how often the two take turns")
    parser.add_argument("--quick", action="store_true", help="run each measurement once, to see that it works")
    args = parser.parse_args()
    rounds, size = (1, 2) if args.quick else (args.rounds, 20)
    name = f"bench-{uuid.uuid4().hex}"
    workers: List[Any] = []
    with shmsync.Arena(name, size=16 << 20, label="bench") as arena:
        try:
            print(f"{'operation':28} {'library':16} {'mean ns':>9} {'p50':>9} {'p99':>9}")
            mutex, lock = shmsync.Mutex(arena), multiprocessing.Lock()
            both("with lock", with_pair(mutex), with_pair(lock), rounds, size)
            both("lock.acquire, release", pair(mutex), pair(lock), rounds, size)
            ours, theirs = shmsync.Semaphore(arena), multiprocessing.Semaphore()
            both("with semaphore", with_pair(ours), with_pair(theirs), rounds, size)
            both("semaphore.acquire, release", pair(ours), pair(theirs), rounds, size)
            item = bytes(1024)
            ours_q = shmsync.Queue(arena, "queue", 64, 1024)
            theirs_q: Any = multiprocessing.get_context("spawn").Queue(64)
            ours_t = transfer(ours_q, produce_ours, name, item, workers)
            theirs_t = transfer(theirs_q, produce, theirs_q, item, workers)
            ratio = both("queue, items of 1 KiB", ours_t, theirs_t, rounds, size)
            print(f"{'queue, items of 1 KiB':28} {'throughput':16} {1 / ratio:29.2f} times that of multiprocessing")
            deaths(arena, name)
        finally:
            for p, here in workers:
                here.send(False)
                p.join()
    shmsync.remove(name)


if __name__ == "__main__":
    main()
