"""Gather rows and broadcast state among the processes of a `torch.distributed` group."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def count_processes() -> int:
    "Number of processes in the group; 1 without a group."
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class GatherRows(torch.autograd.Function):
    """Concatenate the rows of all processes: `apply(rows (b, ...), sizes)` → (sum(sizes), ...).

    Backward keeps the gradient of this process's rows, times the number of processes, because
    `DistributedDataParallel` averages over them.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        first = sum(sizes[: dist.get_rank()])
        ctx.rows = slice(first, first + len(rows))
        ctx.processes = len(sizes)
        return gather_rows(rows, sizes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.processes * gradient[ctx.rows], None


def gather_rows(rows: Tensor, sizes: list[int]) -> Tensor:
    "Concatenate the rows of all processes, of which process k has sizes[k]."
    padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(gathered, padded.contiguous())
    return torch.cat([part[:n] for part, n in zip(gathered, sizes, strict=True)])


def gather_sizes(rows: Tensor) -> list[int]:
    "Number of rows in each process."
    size = torch.tensor([len(rows)], device=rows.device)
    return gather_rows(size, [1] * count_processes()).tolist()


def broadcast_state(module: nn.Module, parameters: bool = True) -> None:
    "Copy buffers, and optionally parameters, from process 0 to all others."
    for buffer in module.buffers():
        dist.broadcast(buffer, 0)
    if parameters:
        for parameter in module.parameters():
            dist.broadcast(parameter.detach(), 0)
