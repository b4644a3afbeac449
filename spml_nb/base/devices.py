"""Asynchronous copies from the CPU to a device."""

import numpy as np
import torch
from torch import Tensor

QUEUED = {'cuda'}  # devices to which copies from pinned memory are asynchronous


def copies_asynchronously(device: torch.device | str) -> bool:
    "Whether a copy to a device should come from pinned memory."
    return torch.device(device).type in QUEUED


def copy_to_device(values: np.ndarray | Tensor, device: torch.device | str) -> Tensor:
    "Copy from the CPU to a device without waiting for the work that is queued there."
    values = torch.as_tensor(values)
    if not copies_asynchronously(device) or not values.is_cpu:
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
