"""How many times as fast one call is as another, on a machine that may be busy."""

import time

import torch


def ratio(slow, fast, rounds=9):
    """Seconds of `slow` over those of `fast`, the best of each.

    In turn, so that a slow spell of the machine meets both, and in the time of the thread's
    processor, which waiting for it does not lengthen.
    """
    best = {slow: float('inf'), fast: float('inf')}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(rounds):
            for call in best:
                start = time.thread_time()
                call()
                best[call] = min(best[call], time.thread_time() - start)
    finally:
        torch.set_num_threads(threads)
    return best[slow] / best[fast]
