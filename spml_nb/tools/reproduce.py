"""Trains a finished run again and says which results differ, and what differed between the two runs."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

from .. import training
from ..base import settings
from ..base.errors import SpmlError, as_number
from ..base.files import hold_lock
from ..runs.config import Config, completed, resolve
from ..runs.folder import Result, open_run, read_json, read_result
from ..runs.record import configuration, read_record


def facts(result: dict, config: Config) -> dict:
    """What could change a run's numbers.

    Args:
        result: as in `result.json`.
        config: of the run.

    Returns:
        {name: value}.
    """
    kept = {
        'data': result['data'],
        **({'photos': result['photos']} if 'photos' in result else {}),
        'device': config.device,
        'seed': config.seed,
        'label_seed': config.label_seed,
        **result['provenance'],
    }
    if len(kept.get('sessions', ())) < 2:
        kept.pop('sessions', None)  # threads and versions say it already
    return kept | kept.pop('versions', {})


@dataclass(frozen=True)
class Reproduction:
    """Two runs of one configuration, side by side; a difference is the second value minus the
    first.

    Attributes:
        run: name of the first.
        facts: DataFrame of what could matter: fact, first, second, same.
        epochs: DataFrame, one row per epoch: stage, epoch, and validation mAP in percent: first,
            second, difference; empty for a line of the record.
        scores: DataFrame: score, first, second, difference.
        logits: {part: the largest difference, NaN where the images or classes are others};
            empty for a line of the record.
        identical: whether all logits and curves have the same bits; of a line of the record, all
            scores.
    """

    run: str
    facts: pd.DataFrame
    epochs: pd.DataFrame
    scores: pd.DataFrame
    logits: dict[str, float]
    identical: bool

    @property
    def differs(self) -> list[str]:
        "The names of the facts that were different."
        return self.facts.fact[~self.facts.same].tolist()


def reproduce(
    run: str | Path, *, device: str | None = None, threads: int | None = None
) -> Reproduction:
    """Train a finished run's configuration again and compare; the run itself is not touched.

    Args:
        run: its folder, its name in the setting `runs`, or the name of a line of `runs.csv` in the
            setting `outputs`.
        device: unset: the run's.
        threads: of torch; unset: the run's.

    Returns:
        Reproduction.

    Raises:
        SpmlError: if the run is not done or damaged, if its data are gone, or for a device that is
            not here.
    """
    if line := _recorded(run):
        first, given, scores = (
            None,
            configuration(line),
            {name: as_number(text) for name, text in line.items() if text},
        )
        before = {name: line[name] for name in ('commit', 'data', 'device')}
    else:
        first = read_result(open_run(run))
        given, scores = first.config, first.scores
        before = facts(
            read_json(first.folder / 'result.json', ('scores', 'data', 'provenance')), given
        )
    config = _config(given, device)
    with _elsewhere(threads or before.get('threads') or torch.get_num_threads()):
        again = training.train(config)
        now = facts(read_json(again.folder / 'result.json'), config)
    return _compared(line['run'] if line else first.folder.name, before, now, scores, first, again)


def _recorded(run: str | Path) -> dict | None:
    "The line of the record for a run whose folder is not here."
    file = settings.path('outputs') / 'runs.csv'
    if Path(run).exists() or (settings.path('runs') / run).exists() or not file.exists():
        return None
    lines = read_record(file, dtype=str, keep_default_na=False)
    return next(iter(lines[lines.run == str(run)].to_dict('records')), None)


def _config(config, device) -> Config:
    """A run's configuration as it would be resolved today; fields that it lacks have the value that
    they stood for.
    """
    wanted = device or config.device
    try:
        settings.device(wanted)
    except SpmlError as error:
        raise SpmlError(
            f'the run was trained on {config.device!r}, and {wanted!r} is not here: {error} '
            'Another is given with --device, such as --device cpu (in Python device="cpu").'
        ) from error
    return resolve(Config(**completed(vars(config)) | {'device': wanted}))


@contextlib.contextmanager
def _elsewhere(threads: int) -> Iterator[None]:
    "Runs and features go into a temporary folder of the cache, and torch takes so many threads."
    cache, threads_before = settings.path('cache'), torch.get_num_threads()
    try:
        (cache / 'images').mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(dir=cache, prefix='reproduction-')
    except OSError as error:
        raise SpmlError(
            f'{cache} cannot be written: {error.strerror}. Name another: `cache` in settings.ini, '
            'or SPML_NB_CACHE.'
        ) from error
    with (
        temporary as folder,
        hold_lock(Path(folder) / 'run'),
        patch.dict(os.environ, SPML_NB_RUNS=folder, SPML_NB_CACHE=folder),
    ):
        with contextlib.suppress(OSError):
            (Path(folder) / 'images').symlink_to(cache / 'images')  # else decoded again
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads_before)


def _compared(
    name: str, before: dict, now: dict, scores: dict, first: Result | None, second: Result
) -> Reproduction:
    """before, now: facts of the two runs; scores: of the first; first: None where only a line of
    the record is left.
    """
    pairs = [
        (fact, before.get(fact), now.get(fact)) for fact in (before | now if first else before)
    ]
    table = pd.DataFrame(
        [(*pair, pair[1] == pair[2]) for pair in pairs], columns=['fact', 'first', 'second', 'same']
    )
    numbers = [
        (score, scores[score], value)
        for score, value in second.scores.items()
        if isinstance(value, int | float) and score in scores
    ]
    numbers = pd.DataFrame(numbers, columns=['score', 'first', 'second'])
    numbers['difference'] = numbers['second'] - numbers['first']
    if first is None:
        return Reproduction(
            name, table, pd.DataFrame(), numbers, {}, bool((numbers.difference == 0).all())
        )
    epochs = first.curves.merge(second.curves, on=['stage', 'epoch'], how='outer')
    epochs = epochs.rename(columns={'val_map_x': 'first', 'val_map_y': 'second'})[
        ['stage', 'epoch', 'first', 'second']
    ]
    epochs['difference'] = epochs['second'] - epochs['first']
    logits = {
        part: _largest(values, second.logits.get(part)) for part, values in first.logits.items()
    }
    return Reproduction(name, table, epochs, numbers, logits, _bits(first) == _bits(second))


def _bits(result: Result) -> tuple:
    "What two runs share if they are identical: their curves and the bytes of their logits."
    logits = {part: (values.shape, values.tobytes()) for part, values in result.logits.items()}
    return result.curves.drop(columns='seconds').to_csv(), logits


def _largest(a, b) -> float:
    "The largest difference of two arrays, NaN where they cannot be compared."
    return (
        float(np.abs(a.astype(float) - b).max())
        if b is not None and a.shape == b.shape
        else float('nan')
    )


def text(found: Reproduction) -> str:
    """What a reproduction found.

    Args:
        found: as from `reproduce`.

    Returns:
        str, several lines.
    """
    others = found.facts[~found.facts.same]
    others = others.where(others.notna(), 'not recorded')
    lines = [
        f"{found.run}: {'the same' if found.identical else 'not the same'} "
        f"{'bits' if found.logits else 'scores'}",
        *(f'  {row.fact}: {row.first} then, {row.second} now' for row in others.itertuples()),
    ]
    if any(
        row.fact == 'commit' and '+' in f'{row.first}{row.second}'
        for row in found.facts.itertuples()
    ):
        lines.append('  a commit with + had changes that are in no commit: the code may differ')
    if not found.differs and found.logits:
        lines.append(
            '  no known difference between the two: same commit, versions, data, device and threads'
        )
    if found.identical:
        return '\n'.join(lines)
    if 'data' in found.differs:
        lines.append('  the data have changed since: what follows compares runs on different data')
    for part, value in found.logits.items():
        size = 'other images or classes' if np.isnan(value) else f'{value:.3g}'
        lines.append(f'  largest difference of a logit, {part}: {size}')
    if len(found.epochs):
        lines += ['validation mAP by epoch:', found.epochs.to_string(index=False)]
    return '\n'.join([*lines, found.scores.to_string(index=False)])
