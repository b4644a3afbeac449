"""Train a finished run again, and report every difference between the two runs."""

# With the same device, number of threads and precision, runs are identical bit for bit. Another
# number of threads changes the order of summation, another device or precision the rounding, and
# training amplifies small differences.

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
    """{name: value} of all that could change the numbers of a run; older runs lack some.

    Args:
        result: as in `result.json`.
        config: of the run.
    """
    facts = {name: result[name] for name in ('data', 'photos') if name in result}
    facts |= {name: getattr(config, name) for name in ('device', 'seed', 'label_seed')}
    facts |= result['provenance']
    if len(facts.get('sessions', ())) < 2:
        facts.pop('sessions', None)  # repeats threads and versions
    return facts | facts.pop('versions', {})


@dataclass(frozen=True)
class Reproduction:
    """Two runs of one configuration, side by side; differences are second minus first.

    Attributes:
        run: name of the first run.
        facts: DataFrame of what could change the numbers: fact, first, second, same.
        epochs: DataFrame of validation mAP in percent, one row per epoch: stage, epoch, first,
            second, difference; empty for a run of the record.
        scores: DataFrame: score, first, second, difference.
        logits: {split: largest absolute difference, NaN for other images or classes}; empty for a
            run of the record.
        identical: whether all logits and curves are bit-identical; for a run of the record, whether
            all recorded scores are equal.
    """

    run: str
    facts: pd.DataFrame
    epochs: pd.DataFrame
    scores: pd.DataFrame
    logits: dict[str, float]
    identical: bool

    @property
    def differs(self) -> list[str]:
        "The names of the facts that differ."
        return self.facts.fact[~self.facts.same].tolist()


def reproduce(
    run: str | Path, *, device: str | None = None, threads: int | None = None
) -> Reproduction:
    """Train the configuration of a finished run again in a temporary folder, and compare.

    Args:
        run: its folder, its name in the setting `runs`, or its name in the table of record.
        device: unset: the run's.
        threads: of torch; unset: the run's.

    Raises:
        SpmlError: if the run is not done or is damaged, its data are missing, or the device is not
            available.
    """
    recorded = _find_record(run)
    if recorded is not None:
        return _reproduce_recorded(recorded, device, threads)
    first = read_result(open_run(run))
    result = read_json(first.folder / 'result.json', ('scores', 'data', 'provenance'))
    first_facts = _collect_conditions(result, first.config)
    second, second_facts = _train_again(first.config, device, threads or first_facts.get('threads'))
    return Reproduction(
        run=first.folder.name,
        facts=_compare_facts(first_facts, second_facts),
        epochs=_compare_epochs(first, second),
        scores=_compare_scores(first.scores, second.scores),
        logits=_compare_logits(first, second),
        identical=_bits(first) == _bits(second),
    )


def _reproduce_recorded(line: dict, device: str | None, threads: int | None) -> Reproduction:
    second, facts = _train_again(parse_recorded_config(line), device, threads)
    names = ('commit', 'data', 'device')
    recorded_scores = {column: parse_number(text) for column, text in line.items() if text}
    scores = _compare_scores(_round_scores(recorded_scores), _round_scores(second.scores))
    return Reproduction(
        run=line['run'],
        facts=_compare_facts(
            {name: line[name] for name in names}, {name: facts.get(name) for name in names}
        ),
        epochs=pd.DataFrame(),
        scores=scores,
        logits={},
        identical=bool((scores.difference == 0).all()),
    )


def _train_again(config: Config, device: str | None, threads: int | None) -> tuple[Result, dict]:
    "Returns: the result of the new run, and its facts."
    config = _resolve_again(config, device)
    with _temporary_runs(threads or torch.get_num_threads()):
        result = training.train(config)
        return result, _collect_conditions(read_json(result.folder / 'result.json'), config)


def _find_record(run: str | Path) -> dict | None:
    "The line of the table of record for a run without a folder; None if there is none."
    file = settings.get_folder('outputs') / 'runs.csv'
    if Path(run).exists() or (settings.get_folder('runs') / run).exists() or not file.exists():
        return None
    lines = read_record(file, dtype=str, keep_default_na=False)
    lines = lines[lines.run == str(run)]
    return None if lines.empty else lines.iloc[0].to_dict()


def _resolve_again(config: Config, device: str | None) -> Config:
    "The configuration of a run, resolved by this version, with another device if one is given."
    wanted = device or config.device
    try:
        settings.choose_device(wanted)
    except SpmlError as error:
        raise SpmlError(
            f'the run was trained on {config.device!r}, and {wanted!r} is not available: {error} '
            'Choose another with --device, such as --device cpu (in Python device="cpu").'
        ) from error
    return resolve(Config(**complete_fields(vars(config)) | {'device': wanted}))


@contextlib.contextmanager
def _temporary_runs(threads: int) -> Iterator[None]:
    """Put runs and cached features into a temporary folder, and set torch's number of threads.

    Features are computed again, as a wrong cache must not make a run look reproduced. The lock
    protects the folder from `spml runs --leftovers`.
    """
    cache = settings.get_folder('cache')
    threads_before = torch.get_num_threads()
    try:
        (cache / 'images').mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(dir=cache, prefix='reproduction-')
    except OSError as error:
        raise SpmlError(
            f'{cache} cannot be written: {error.strerror}. Choose another folder: `cache` in '
            'settings.ini, or SPML_NB_CACHE.'
        ) from error
    with (
        temporary as folder,
        hold_lock(Path(folder) / 'run'),
        patch.dict(os.environ, SPML_NB_RUNS=folder, SPML_NB_CACHE=folder),
    ):
        with contextlib.suppress(OSError):
            (Path(folder) / 'images').symlink_to(cache / 'images')  # saves decoding them again
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads_before)


def _compare_facts(first: dict, second: dict) -> pd.DataFrame:
    rows = [(fact, first.get(fact), second.get(fact)) for fact in first | second]
    table = pd.DataFrame(rows, columns=['fact', 'first', 'second'])
    return table.assign(same=[before == after for _, before, after in rows])


def _round_scores(scores: dict) -> dict:
    "Round scores as in the table of record."
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
        second_logits = second.logits.get(part)
        if second_logits is None or second_logits.shape != logits.shape:
            differences[part] = math.nan
        else:
            differences[part] = float(np.abs(logits.astype(float) - second_logits).max())
    return differences


def _bits(result: Result) -> tuple:
    "The curves and the bytes of the logits, equal for bit-identical runs."
    logits = {part: (values.shape, values.tobytes()) for part, values in result.logits.items()}
    return result.curves.drop(columns='seconds').to_csv(), logits


def format_reproduction(reproduction: Reproduction) -> str:
    """A reproduction as text, in several lines."""
    same = 'the same' if reproduction.identical else 'not the same'
    lines = [f"{reproduction.run}: {same} {'bits' if reproduction.logits else 'scores'}"]
    changed = reproduction.facts[~reproduction.facts.same]
    changed = changed.where(changed.notna(), 'not recorded')
    lines += [f'  {row.fact}: {row.first} then, {row.second} now' for row in changed.itertuples()]
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
