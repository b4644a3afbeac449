"""Experiment trackers: log the curves of a run while it trains, so far to TensorBoard."""

import weakref
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from ..base import settings
from ..base.errors import require_one_of, require_package


class TensorBoard:
    """Logs the curves of a run to TensorBoard: `train(config, on_epoch=TensorBoard(folder))`.

    Args:
        folder: of the event files.

    Raises:
        SpmlError: if TensorBoard is not installed.
    """

    def __init__(self, folder: Path):
        module = require_package('torch.utils.tensorboard', "tracker 'tensorboard'", 'tracking')
        self.make_writer = lambda: module.SummaryWriter(folder, purge_step=1)
        self.writer = None
        self.written = 0  # epochs

    def __call__(self, curves: pd.DataFrame):
        if self.writer is None:
            self.writer = self.make_writer()
            weakref.finalize(self, self.writer.close)  # a sweep trains many runs in one process
        for step, row in enumerate(curves.to_dict('records')[self.written :], self.written + 1):
            for name, value in row.items():
                self.writer.add_scalar(name, value, step)
        self.written = len(curves)
        self.writer.flush()


TRACKERS = {'none': lambda folder: lambda curves: None, 'tensorboard': TensorBoard}


def find_tracker(folder: Path) -> Callable[[pd.DataFrame], None]:
    """The tracker of the setting `tracker`, to be called with the curves after each epoch.

    Args:
        folder: of the run.

    Raises:
        SpmlError: for an unknown tracker, or one that is not installed.
    """
    name = require_one_of(settings.read_settings()['tracker'], TRACKERS, 'tracker')
    return TRACKERS[name](folder)
