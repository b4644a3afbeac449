"""Random draws from one declared table, chosen by validation, then trained with fresh seeds."""

# A method with a free hyper-parameter could be made to look good by trying many values of it. So
# every method gets the same number of draws and the same learning rates. The first draw has the
# paper's values; the others come from distributions that were written down before any run, around
# what the papers searched. The seeds of a search are never used again.

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, NotRequired, TypedDict

import numpy as np
import pandas as pd

from ..base.errors import SpmlError, one_of
from ..data import loading
from ..data.dataset import join_items
from ..methods.core import Choice, LogUniform, Uniform, find  # noqa: F401 (public here)
from ..runs.config import CHOICES, Config
from .queue import key, run_stages

SEARCH_SEED = 1000  # of observed labels and training in every search, never of a final run


def search_space(loss: str) -> dict:
    """What a method's hyper-parameters are drawn from.

    Args:
        loss: a registered method.

    Returns:
        {hyper-parameter: distribution}, as registered beside the loss.

    Raises:
        SpmlError: for an unknown method.
    """
    return find(loss).search


def draw_hparams(loss: str, k: int) -> dict:
    """The hyper-parameters of a draw: the same on every data set and machine.

    Args:
        loss: a registered method.
        k: number of the draw; 0 has the paper's values.

    Returns:
        {hyper-parameter: value}, those that differ from the paper's.
    """
    if k == 0:
        return {}
    distributions = search_space(loss)
    numbers = _uniform_numbers(f'{loss} {k}', len(distributions))
    return {
        name: distribution(u)
        for (name, distribution), u in zip(distributions.items(), numbers, strict=True)
    }


@cache
def _uniform_numbers(name: str, n: int) -> list[float]:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], 'big')
    return np.random.default_rng(seed).random(n).tolist()


RATES = (3e-5, 1e-2)  # ends of the range of learning rates where a suite names no other


def learning_rates(
    n: int, widened: int = 0, usual: float = 1e-3, between: tuple[float, float] = RATES
) -> list[float]:
    """The learning rates that every method tries: one in each of n equal parts of the logarithmic
    range, shuffled.

    Args:
        n: how many.
        widened: how many more at each end, each a factor √10 further out.
        usual: the rate of the protocol; the one that is nearest to it comes first.
        between: the ends of the range.

    Returns:
        n + 2·widened rates.
    """
    rng = np.random.default_rng(SEARCH_SEED)
    distribution = LogUniform(*between)
    inner = [distribution(u) for u in rng.permutation((np.arange(n) + rng.random(n)) / n)]
    nearest = min(inner, key=lambda rate: abs(math.log(rate / usual)))
    beyond = []
    for k in range(1, widened + 1):
        factor = 10 ** (k / 2)
        beyond += [between[0] / factor, between[1] * factor]
    ordered = sorted(inner, key=lambda rate: rate != nearest)
    return ordered + [float(f'{rate:.3g}') for rate in beyond]


_LABELWISE = {
    'optimizer': 'adamw',
    'weight_decay': 0.01,
    'schedule': 'onecycle',
    'ema': 0.9997,
    'head_lr_multiplier': 1,
    'embedding_dim': 64,
    'cached_views': 2,
    'epochs': 30,
    'patience': 8,
}
_PHOTOS = {'backbone': 'efficientnet_lite0', 'min_positives': 20}

# Methods (with a head) that may train for `LONGER_EPOCHS` epochs on a data set. The rule: seven in
# ten of the final runs or more, with single labels, had been best in the last two of 60 epochs. It
# was applied once, and then the search was made again; other labels get as many epochs.
LONGER_EPOCHS = 120
_LONGER = {
    'ccp': {('em', 'linear')},
    'coco18': {('epr', 'cosine'), ('wbce', 'linear')},
    'corel5k': {('hill', 'linear'), ('llr', 'linear')},
    'cub_crops': {
        ('asl', 'linear'),
        ('dw', 'linear'),
        ('llr', 'linear'),
        ('llr', 'cosine'),
        ('nls', 'linear'),
        ('wan', 'linear'),
        ('wan', 'cosine'),
        ('wbce', 'linear'),
    },
    'voc12_animals': {('entmin', 'cosine'), ('nls', 'cosine')},
}

# of methods whose own schedule has an end, so that they reach it; end to end as long as in EM/APL
_LENGTH = {'epochs': 40, 'patience': 0}
_LENGTH_END_TO_END = {'epochs': 10, 'patience': 0}


class _Suite(TypedDict):
    """A group of data sets with their special settings, and how runs on them are trained: settings
    that all its runs share, settings of a head (every loss on the label-wise head is trained as LAC
    trains it), numbers of draws and of final seeds. Where a method's best rate lies at an end of
    the range, `widened` is raised by one and `draws` by two, for every method of the suite.
    """

    datasets: dict[str, dict[str, Any]]
    config: dict[str, Any]
    heads: dict[str, dict[str, Any]]
    scheduled: NotRequired[dict[str, dict[str, int]]]
    longer: NotRequired[dict[str, set[tuple[str, str]]]]
    draws: int
    widened: int
    usual: float
    between: NotRequired[tuple[float, float]]
    seeds: dict[str, int]
    methods: NotRequired[tuple[str, ...]]


SUITES: dict[str, _Suite] = {
    'photos': {
        'datasets': {
            'voc12_animals': {},
            'coco18': {},
            'cub_crops': {},
            'mirflickr14': {},
            'corel5k': {},
            'ccp': {'min_positives': 40, 'exclude': ('skin', 'hair')},
        },
        'config': {**_PHOTOS, 'regime': 'linear', 'batch_size': 64},
        'heads': {'labelwise': _LABELWISE},
        'scheduled': {'em_apl': _LENGTH, 'gr': _LENGTH},
        'longer': _LONGER,
        'draws': 10,
        'widened': 1,
        'usual': 1e-3,
        'between': (3e-4, 3e-2),  # lower rates need more than 60 epochs of batches of 64
        'seeds': {'linear': 10, 'cosine': 10, 'labelwise': 5, 'maps': 10},
    },
    'photos_finetune': {
        'datasets': {'voc12_animals': {}, 'cub_crops': {}},
        'config': {**_PHOTOS, 'regime': 'finetune', 'image_size': 160, 'batch_size': 16},
        'heads': {'labelwise': _LABELWISE | {'epochs': 15, 'patience': 4}},
        'scheduled': {'em_apl': _LENGTH_END_TO_END, 'gr': _LENGTH_END_TO_END},
        'draws': 3,
        'widened': 0,
        'usual': 1e-4,
        'between': (3e-5, 1e-3),  # higher rates undo what the backbone has learnt
        'seeds': dict.fromkeys(CHOICES['head'], 3),
        'methods': (
            'bce',
            'an',
            'wan',
            'epr',
            'role',
            'llr',
            'em',
            'em_apl',
            'hml',
            'opml_sp',
            'gr',
            'lac',
        ),
    },
    'mini': {
        'datasets': {'mini_voc': {}, 'mini_cub': {}},
        'config': {'regime': 'finetune'},
        'heads': {'labelwise': _LABELWISE},
        'draws': 4,
        'widened': 0,
        'usual': 1e-3,
        'seeds': dict.fromkeys(CHOICES['head'], 3),
        'methods': (),
    },
}


@dataclass(frozen=True)
class Row:
    """A line of a comparison.

    Args:
        loss: a registered method.
        head: unset: the method's own.
        labels: what is observed, as in `Config`.
        batch_size: unset: the suite's.
        min_positives, exclude: on a folder of one's own, leave out classes with fewer positives,
            and those of these names.
        side: the file of side information, for a method that needs it.
        train_images: so many training photos in the final runs; 0: all. The search has all of them.
    """

    loss: str
    head: str | None = None
    labels: str = 'single'
    batch_size: int | None = None
    min_positives: int = 0
    exclude: tuple[str, ...] = ()
    side: str = ''
    train_images: int = 0


def candidates(row: Row, suite: str, dataset: str) -> list[Config]:
    """The configurations of a method's search, as many for every method, all with the seed
    `SEARCH_SEED`.

    Args:
        row: what is compared.
        suite: a key of `SUITES`.
        dataset: one of the suite's, or a folder of one's own.

    Returns:
        Configurations, not resolved.

    Raises:
        SpmlError: for an unknown method, suite or data set.

    Source:
        Equal budgets, as in DomainBed (Gulrajani and Lopez-Paz 2021).
    """
    protocol = SUITES[one_of(suite, SUITES, 'suite')]
    if loading.own_folder(dataset):
        of_dataset = {'min_positives': row.min_positives, 'exclude': row.exclude}
    else:
        of_dataset = protocol['datasets'][check_dataset(dataset, suite)]
    head = row.head or find(row.loss).head
    common = protocol['config'] | protocol.get('scheduled', {}).get(row.loss, {})
    if (row.loss, head) in protocol.get('longer', {}).get(dataset, ()):
        common |= {'epochs': LONGER_EPOCHS}
    common |= protocol['heads'].get(head, {}) | of_dataset
    if row.batch_size is not None:
        common |= {'batch_size': row.batch_size}
    base = Config(
        loss=row.loss,
        head=head,
        labels=row.labels,
        dataset=dataset,
        seed=SEARCH_SEED,
        label_seed=SEARCH_SEED,
        side=row.side,
        **common,
    )
    return [
        base.changed(lr=rate, hparams=draw_hparams(row.loss, k))
        for k, rate in enumerate(suite_rates(suite))
    ]


def check_dataset(dataset: str, suite: str) -> str:
    """The data set, if it is one of the suite's; else an SpmlError."""
    return one_of(
        dataset,
        SUITES[suite]['datasets'],
        f'data set of the suite {suite!r}',
        'Or give one folder that has images/ and labels.csv.',
    )


def suite_rates(suite: str) -> list[float]:
    """The learning rates that a search of the suite tries, in the order of its draws."""
    protocol = SUITES[suite]
    widened = protocol['widened']
    between = protocol.get('between', RATES)
    return learning_rates(protocol['draws'] - 2 * widened, widened, protocol['usual'], between)


def final_seeds(row: Row, suite: str) -> range:
    """The seeds of a row's final runs, from 0."""
    return range(SUITES[suite]['seeds'][row.head or find(row.loss).head])


def choose_config(
    configs: Iterable[Config], runs: pd.DataFrame, measure: str = 'validation'
) -> Config | None:
    """The first of `rank_configs`, None where that has none."""
    return next(iter(rank_configs(configs, runs, measure)), None)


def rank_configs(
    configs: Iterable[Config], runs: pd.DataFrame, measure: str = 'validation'
) -> list[Config]:
    """Configurations by a score on validation photos.

    Args:
        configs: what was tried.
        runs: finished runs, as from `finished`.
        measure: a column of the record; 'validation': `validation_scores`.

    Returns:
        The best first, equal ones as given; none while one of them is not done.

    Raises:
        SpmlError: if some were chosen by another measure than the others.
    """
    configs = list(configs)
    if not configs or key(configs[0]) not in runs.index:
        return []  # most that is not done is not begun
    values = _measured(configs, runs, measure)
    if values.isna().any():
        return []
    return [configs[k] for k in (-values).argsort(kind='stable')]


def _rows(configs: Iterable[Config], runs: pd.DataFrame) -> pd.DataFrame:
    "Of finished runs, those of configurations; NaN where one is not done."
    return runs.reindex([key(config) for config in configs])


def look_up_scores(configs: Iterable[Config], runs: pd.DataFrame) -> pd.DataFrame:
    """The scores of runs.

    Args:
        configs: what was run.
        runs: finished runs, as from `finished`.

    Returns:
        DataFrame by `key`: val_map, val_map_seen, test_map and test_map_observed in percent, late
        and exercised (0 or 1), validation (percent, what compares the runs of a search); NaN where
        a run is not done or has no such score.

    Raises:
        SpmlError: if some were chosen by another measure than the others.
    """
    configs = list(configs)
    names = ['val_map', 'val_map_seen', 'test_map', 'observed_test_map', 'late', 'exercised']
    # the columns first: the record has eighty, and lines are looked up thousands of times
    numbers = _rows(configs, runs.reindex(columns=names)).astype(float)
    numbers = numbers.rename(columns={'observed_test_map': 'test_map_observed'})
    return numbers.assign(validation=collect_validation(configs, runs))


def _measured(configs: list[Config], runs: pd.DataFrame, measure: str) -> pd.Series:
    "A score of runs by key, 0 for one that diverged."
    if measure == 'validation':
        return collect_validation(configs, runs)
    scores = _rows(configs, runs.reindex(columns=[measure, 'diverged'])).astype(float)
    return scores[measure].mask(scores.diverged == 1, 0.0)


def list_unmeasured(configs: list[Config], runs: pd.DataFrame, measure: str) -> list[str]:
    """The keys of runs that are done but were recorded without a score.

    Args:
        configs, runs, measure: as in `rank_configs`.
    """
    scores = _measured(configs, runs, measure)
    return [name for name in scores.index[scores.isna()] if name in runs.index]


def collect_validation(configs: Iterable[Config], runs: pd.DataFrame) -> pd.Series:
    """What compares the runs of a search: the score on validation photos of each configuration, by
    key; NaN where it is missing. See `validation_scores`.
    """
    keys = [key(c) for c in configs]
    if 'validation' in runs:
        values = runs.validation.reindex(keys)
        if values.notna().all():
            return values
    return validation_scores(runs.reindex(columns=_CHOSEN_BY).reindex(keys))


def add_validation(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs with a column `validation` that compares those of a search, as from
    `validation_scores`; NaN where their measure is none of today's.
    """
    choices = runs.reindex(columns=_CHOSEN_BY)
    values = _compared_by(choices)
    return runs.assign(validation=values.mask(_chosen_by_observed_map(choices)))


_CHOSEN_BY = [
    'val_map',
    'val_map_seen',
    'observed_val_auc',
    'selected_by',
    'selection',
    'val_truth',
    'run',
]


def validation_scores(runs: pd.DataFrame) -> pd.Series:
    """What compares runs of one data set: the measure that chose their epochs.

    Args:
        runs: finished ones, with the columns of the record; NaN in all of them for what is not
            done.

    Returns:
        Percent: observed AUC where no label of validation is clean, else mAP, without classes that
        no training image has where a run says so.

    Raises:
        SpmlError: if some were chosen by observed labels in another measure, as versions before 0.2
            did.
    """
    runs = runs.reindex(columns=_CHOSEN_BY)
    earlier = runs.run[_chosen_by_observed_map(runs)]
    if len(earlier):
        raise SpmlError(
            f"{len(earlier)} runs chose their epoch by mAP against observed labels, and today's "
            'choose by ROC-AUC, which finds better ones. Remove them to train anew: '
            f'{join_items(earlier, 99)}.'
        )
    return _compared_by(runs)


def _chosen_by_observed_map(runs: pd.DataFrame) -> pd.Series:
    blind = (runs.selection == 'val_observed') | (runs.val_truth == 'observed only')
    return blind & runs.selected_by.isna() & runs.val_truth.notna()  # a diverged run has neither


def _compared_by(runs: pd.DataFrame) -> pd.Series:
    maps = runs.val_map_seen.fillna(runs.val_map).astype(float)
    return maps.mask(runs.selected_by == 'observed_auc', runs.observed_val_auc.astype(float))


def best_of_k(values: Iterable[float]) -> list[float]:
    """Expected best of k random draws.

    Args:
        values: n scores.

    Returns:
        For k = 1 … n, the mean of the maximum over all subsets of k scores.

    Source:
        Dodge et al. 2019, here without replacement.
    """
    ordered = sorted(values)
    n = len(ordered)
    return [
        sum(math.comb(i, k - 1) * v for i, v in enumerate(ordered)) / math.comb(n, k)
        for k in range(1, n + 1)
    ]


def run_search(
    rows: list[Row], suite: str, dataset: str, seeds: Iterable[int] | None, **options
) -> pd.DataFrame:
    """Search, choose, and train with every seed; what is done already is left alone. `outcome` says
    what came out.

    Args:
        rows: the lines to compare.
        suite, dataset: as in `candidates`.
        seeds: of observed labels and training; None: those of the suite.
        options: dry_run, tell, engine, address and jobs, as in `run_stages`.

    Returns:
        DataFrame as from `run_stages`.

    Raises:
        SpmlError: as `candidates`, and as `run`.
    """

    def chosen(runs: pd.DataFrame) -> list[Config]:
        runs = runs.reindex(columns=_CHOSEN_BY)  # fewer columns are quicker to search
        return [config for row in rows for config in finals(row, suite, dataset, runs, seeds)]

    def unchosen(runs: pd.DataFrame) -> list[Config]:
        return [
            config
            for row in rows
            if not finals(row, suite, dataset, runs.reindex(columns=_CHOSEN_BY), seeds)
            for config in expect_finals(row, suite, dataset, seeds)
        ]

    tried = [config for row in rows for config in candidates(row, suite, dataset)]
    return run_stages(tried, chosen, unchosen=unchosen, **options)


def expect_finals(
    row: Row, suite: str, dataset: str, seeds: Iterable[int] | None = None
) -> list[Config]:
    """Stand-ins for final runs that are not chosen yet, to count them and the time they take.

    Args:
        row, suite, dataset, seeds: as in `finals`.

    Returns:
        The first configuration of the search with every seed.
    """
    first = candidates(row, suite, dataset)[0]
    seeds = final_seeds(row, suite) if seeds is None else seeds
    return [first.changed(seed=seed, label_seed=seed) for seed in seeds]


def finals(
    row: Row, suite: str, dataset: str, runs: pd.DataFrame, seeds: Iterable[int] | None = None
) -> list[Config]:
    """The chosen configuration with every seed.

    Args:
        row, suite, dataset: as in `candidates`.
        runs: finished runs, as from `finished`.
        seeds: of observed labels and training; unset: those of the suite.

    Returns:
        One configuration per seed; none while a run of the search is missing.
    """
    chosen = choose_config(candidates(row, suite, dataset), runs)
    if chosen is None:
        return []
    seeds = final_seeds(row, suite) if seeds is None else seeds
    chosen = chosen.changed(train_images=row.train_images)
    return [chosen.changed(seed=seed, label_seed=seed) for seed in seeds]
