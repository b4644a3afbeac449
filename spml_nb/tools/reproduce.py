"""Trains a finished run again and says what differs between the two runs and their results."""

# The same threads, precision and device give the same bits. Another number of threads adds the same
# numbers in another order, another precision or device rounds differently, and training amplifies
# small differences.

import contextlib
import math
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
from ..base.errors import SpmlError, parse_number
from ..base.files import hold_lock
from ..runs.config import Config, complete_fields, resolve
from ..runs.folder import Result, open_run, read_json, read_result
from ..runs.record import parse_recorded_config, read_record, round_score


def _collect_conditions(result: dict, config: Config) -> dict:
    """What could change a run's numbers, {name: value}; an older run may lack some.

    Args:
        result: as in `result.json`.
        config: of the run.
    """
    facts = {name: result[name] for name in ('data', 'photos') if name in result}
    facts |= {name: getattr(config, name) for name in ('device', 'seed', 'label_seed')}
    facts |= result['provenance']
    if len(facts.get('sessions', ())) < 2:
        facts.pop('sessions', None)  # threads and versions say it already
    return facts | facts.pop('versions', {})


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
    line = _recorded(run)
    if line is not None:
        return _reproduce_line(line, device, threads)
    first = read_result(open_run(run))
    result = read_json(first.folder / 'result.json', ('scores', 'data', 'provenance'))
    before = _collect_conditions(result, first.config)
    second, now = _train_again(first.config, device, threads or before.get('threads'))
    return Reproduction(
        run=first.folder.name,
        facts=_compare_facts(before, now),
        epochs=_compare_epochs(first, second),
        scores=_compare_scores(first.scores, second.scores),
        logits=_compare_logits(first, second),
        identical=_bits(first) == _bits(second),
    )


def _reproduce_line(line: dict, device: str | None, threads: int | None) -> Reproduction:
    second, now = _train_again(parse_recorded_config(line), device, threads)
    recorded = ('commit', 'data', 'device')
    scores = {column: parse_number(text) for column, text in line.items() if text}
    scores = _compare_scores(_round_scores(scores), _round_scores(second.scores))
    return Reproduction(
        run=line['run'],
        facts=_compare_facts(
            {fact: line[fact] for fact in recorded}, {fact: now.get(fact) for fact in recorded}
        ),
        epochs=pd.DataFrame(),
        scores=scores,
        logits={},
        identical=bool((scores.difference == 0).all()),
    )


def _train_again(config: Config, device: str | None, threads: int | None) -> tuple[Result, dict]:
    "The result, and the facts of the new run."
    config = _config(config, device)
    with _elsewhere(threads or torch.get_num_threads()):
        result = training.train(config)
        return result, _collect_conditions(read_json(result.folder / 'result.json'), config)


def _recorded(run: str | Path) -> dict | None:
    "The line of the record for a run whose folder is not here."
    file = settings.path('outputs') / 'runs.csv'
    if Path(run).exists() or (settings.path('runs') / run).exists() or not file.exists():
        return None
    lines = read_record(file, dtype=str, keep_default_na=False)
    lines = lines[lines.run == str(run)]
    return None if lines.empty else lines.iloc[0].to_dict()


def _config(config: Config, device: str | None) -> Config:
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
    return resolve(Config(**complete_fields(vars(config)) | {'device': wanted}))


@contextlib.contextmanager
def _elsewhere(threads: int) -> Iterator[None]:
    """Runs and features go into a temporary folder of the cache, and torch takes so many threads.

    So features are computed again: a wrong cache must not make a run look reproduced. The lock
    keeps the folder from `spml runs --leftovers`.
    """
    cache = settings.path('cache')
    threads_before = torch.get_num_threads()
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


def _compare_facts(before: dict, now: dict) -> pd.DataFrame:
    rows = [(fact, before.get(fact), now.get(fact)) for fact in before | now]
    table = pd.DataFrame(rows, columns=['fact', 'first', 'second'])
    return table.assign(same=[first == second for _, first, second in rows])


def _round_scores(scores: dict) -> dict:
    "Scores with the digits that the record keeps."
    return {
        name: round_score(name, value)
        for name, value in scores.items()
        if isinstance(value, int | float)
    }


def _compare_scores(first: dict, second: dict) -> pd.DataFrame:
    rows = [
        (score, first[score], value)
        for score, value in second.items()
        if isinstance(value, int | float) and score in first
    ]
    table = pd.DataFrame(rows, columns=['score', 'first', 'second'])
    return table.assign(difference=table['second'] - table['first'])


def _compare_epochs(first: Result, second: Result) -> pd.DataFrame:
    first, second = (
        result.curves.set_index(['stage', 'epoch']).val_map for result in (first, second)
    )
    table = pd.DataFrame({'first': first, 'second': second})
    return table.assign(difference=table['second'] - table['first']).reset_index()


def _compare_logits(first: Result, second: Result) -> dict[str, float]:
    differences = {}
    for part, logits in first.logits.items():
        others = second.logits.get(part)
        if others is None or others.shape != logits.shape:
            differences[part] = math.nan
        else:
            differences[part] = float(np.abs(logits.astype(float) - others).max())
    return differences


def _bits(result: Result) -> tuple:
    "What two runs share if they are identical: their curves and the bytes of their logits."
    logits = {part: (values.shape, values.tobytes()) for part, values in result.logits.items()}
    return result.curves.drop(columns='seconds').to_csv(), logits


def format_reproduction(reproduction: Reproduction) -> str:
    """What a reproduction found, in several lines."""
    same = 'the same' if reproduction.identical else 'not the same'
    lines = [f"{reproduction.run}: {same} {'bits' if reproduction.logits else 'scores'}"]
    others = reproduction.facts[~reproduction.facts.same]
    others = others.where(others.notna(), 'not recorded')
    lines += [f'  {row.fact}: {row.first} then, {row.second} now' for row in others.itertuples()]
    commits = reproduction.facts[reproduction.facts.fact == 'commit']
    if any('+' in f'{row.first}{row.second}' for row in commits.itertuples()):
        lines.append('  a commit with + had changes that are in no commit: the code may differ')
    if not reproduction.differs and reproduction.logits:
        lines.append(
            '  no known difference between the two: same commit, versions, data, device and threads'
        )
    if reproduction.identical:
        return '\n'.join(lines)
    if 'data' in reproduction.differs:
        lines.append('  the data have changed since: what follows compares runs on different data')
    for part, value in reproduction.logits.items():
        size = 'other images or classes' if math.isnan(value) else f'{value:.3g}'
        lines.append(f'  largest difference of a logit, {part}: {size}')
    if len(reproduction.epochs):
        lines += ['validation mAP by epoch:', reproduction.epochs.to_string(index=False)]
    return '\n'.join([*lines, reproduction.scores.to_string(index=False)])
