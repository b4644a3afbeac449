"""Random search with an equal budget for every method, then final runs with fresh seeds."""

# A method with a free hyper-parameter could be made to look good by trying many values of it. So
# every method gets the same number of draws and the same learning rates. The first draw has the
# paper's values; the others come from distributions that were fixed before any run, around the
# values that the papers searched. The seed of a search is never used for a final run.

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, NotRequired, TypedDict

import numpy as np
import pandas as pd

from ..base.errors import SpmlError, require_one_of
from ..data import loading
from ..data.dataset import join_items
from ..methods.core import Choice, LogUniform, Uniform, find  # noqa: F401 (public here)
from ..runs.config import CHOICES, Config
from .queue import run_key, run_stages

SEARCH_SEED = 1000  # of observed labels and training in every search, never of a final run


def search_space(loss: str) -> dict:
    """The search space of a method's hyper-parameters, as registered beside its loss.

    Returns:
        {hyper-parameter: distribution}; a distribution maps [0, 1) to values.

    Raises:
        SpmlError: for an unknown method.
    """
    return find(loss).search


def draw_hparams(loss: str, k: int) -> dict:
    """Draw a method's hyper-parameters; the same on every data set and machine.

    Args:
        loss: a registered method.
        k: number of the draw; 0 stands for the paper's values.

    Returns:
        {hyper-parameter: value}; empty for k=0.
    """
    return draw_values(f'{loss} {k}', search_space(loss)) if k else {}


def draw_values(name: str, distributions: dict) -> dict:
    """Draw a value from each distribution; the same for a name on every machine.

    Args:
        name: of the draw.
        distributions: as from `search_space`.
    """
    numbers = _uniform_numbers(name, len(distributions))
    return {
        value: distribution(u)
        for (value, distribution), u in zip(distributions.items(), numbers, strict=True)
    }


@cache
def _uniform_numbers(name: str, n: int) -> list[float]:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], 'big')
    return np.random.default_rng(seed).random(n).tolist()


RATES = (3e-5, 1e-2)  # default range of learning rates


def learning_rates(
    n: int, widened: int = 0, usual: float = 1e-3, between: tuple[float, float] = RATES
) -> list[float]:
    """The learning rates that every method tries: stratified random draws from the log-uniform
    distribution, shuffled.

    Args:
        n: number of draws within the range.
        widened: how many rates to add beyond each end, each a factor √10 further out.
        usual: the rate of the protocol; the draw nearest to it comes first.
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
    return [*ordered, *(float(f'{rate:.3g}') for rate in beyond)]


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

# Methods and heads that train for `_LONGER_EPOCHS` epochs on a data set, since at least 70 % of
# their final runs on single labels had their best epoch among the last two of 60. The rule was
# applied once, and the search repeated; runs on other labels get the same number of epochs.
_LONGER_EPOCHS = 120
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

# for methods with a schedule over all epochs, which early stopping would cut short; end to end as
# many epochs as in EM/APL
_LENGTH = {'epochs': 40, 'patience': 0}
_LENGTH_END_TO_END = {'epochs': 10, 'patience': 0}


class _Suite(TypedDict):
    """A group of data sets, and how every method is searched and trained on them.

    Where a method's best rate is the lowest or highest tried, `widened` is raised by one and
    `draws` by two, for every method of the suite.
    """

    datasets: dict[str, dict[str, Any]]  # {name: fields of Config}
    config: dict[str, Any]  # fields of all runs
    heads: dict[str, dict[str, Any]]  # {head: fields}; the label-wise one is trained as in LAC
    scheduled: NotRequired[dict[str, dict[str, int]]]  # {method: fields}
    longer: NotRequired[dict[str, set[tuple[str, str]]]]  # {data set: (method, head)}
    draws: int
    widened: int  # as in `learning_rates`, and so are the next two
    usual: float
    between: NotRequired[tuple[float, float]]
    seeds: dict[str, int]  # {head: number of final runs}
    methods: NotRequired[tuple[str, ...]]  # empty: all on their own heads; missing: on all heads


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
        labels, side: as in `Config`.
        batch_size: unset: the suite's.
        min_positives, exclude: as in `Config`; only for a folder of one's own.
        train_images: number of training photos of the final runs; 0: all, as in the search.
    """

    loss: str
    head: str | None = None
    labels: str = 'single'
    batch_size: int | None = None
    min_positives: int = 0
    exclude: tuple[str, ...] = ()
    side: str = ''
    train_images: int = 0


def search_configs(row: Row, suite: str, dataset: str) -> list[Config]:
    """The configurations of a method's search: as many for every method, with `SEARCH_SEED`.

    Args:
        row: the method.
        suite: a key of `SUITES`.
        dataset: one of the suite's, or a folder of one's own.

    Returns:
        Configurations, not resolved.

    Raises:
        SpmlError: for an unknown method, suite or data set.

    Source:
        Equal budgets, as in DomainBed (Gulrajani and Lopez-Paz 2021).
    """
    protocol = SUITES[require_one_of(suite, SUITES, 'suite')]
    if loading.is_user_folder(dataset):
        dataset_fields = {'min_positives': row.min_positives, 'exclude': row.exclude}
    else:
        dataset_fields = protocol['datasets'][check_dataset(dataset, suite)]
    head = row.head or find(row.loss).head
    common = protocol['config'] | protocol.get('scheduled', {}).get(row.loss, {})
    if (row.loss, head) in protocol.get('longer', {}).get(dataset, ()):
        common |= {'epochs': _LONGER_EPOCHS}
    common |= protocol['heads'].get(head, {}) | dataset_fields
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
    """Return the data set, or raise an SpmlError if it is not one of the suite's."""
    return require_one_of(
        dataset,
        SUITES[suite]['datasets'],
        f'data set of the suite {suite!r}',
        'Or give one folder that has images/ and labels.csv.',
    )


def suite_rates(suite: str) -> list[float]:
    """The learning rates of a suite's search, in the order of its draws."""
    protocol = SUITES[suite]
    widened = protocol['widened']
    between = protocol.get('between', RATES)
    return learning_rates(protocol['draws'] - 2 * widened, widened, protocol['usual'], between)


def final_seeds(row: Row, suite: str) -> range:
    """The seeds of a row's final runs, starting at 0."""
    return range(SUITES[suite]['seeds'][row.head or find(row.loss).head])


def choose_config(
    configs: Iterable[Config], runs: pd.DataFrame, measure: str = 'validation'
) -> Config | None:
    """The configuration with the best score on validation photos.

    Args:
        configs: of a search.
        runs: finished runs, as from `load_finished_runs`.
        measure: a column of the record; 'validation': as from `validation_scores`.

    Returns:
        The first of equally good ones; None while one of them is not done. One alone needs no
        score.

    Raises:
        SpmlError: as `validation_scores`.
    """
    configs = list(configs)
    if not configs or run_key(configs[0]) not in runs.index:
        return None  # quick, as most searches that are not done are not begun
    if len(configs) == 1:
        return configs[0]  # a paper's one setting, which may be trained without validation images
    values = _measured(configs, runs, measure)
    return None if values.isna().any() else configs[int(values.argmax())]


def choose_by_mean(searches: Iterable[list[Config]], runs: pd.DataFrame) -> Config | None:
    """The draw with the highest mean score on validation photos, of a search with several seeds.

    Args:
        searches: the same draws with each seed.
        runs: finished runs, as from `load_finished_runs`.

    Returns:
        The draw with the first of the seeds; None while a run is not done.

    Raises:
        SpmlError: as `validation_scores`.
    """
    searches = list(searches)
    means = np.mean([collect_validation(configs, runs) for configs in searches], axis=0)
    return None if np.isnan(means).any() else searches[0][int(means.argmax())]


def _rows(configs: Iterable[Config], runs: pd.DataFrame) -> pd.DataFrame:
    "The finished run of each configuration; NaN where it is not done."
    return runs.reindex([run_key(config) for config in configs])


def look_up_scores(configs: Iterable[Config], runs: pd.DataFrame) -> pd.DataFrame:
    """The scores of finished runs.

    Args:
        configs: their configurations.
        runs: finished runs, as from `load_finished_runs`.

    Returns:
        DataFrame by `run_key`: val_map, val_map_seen, test_map, test_map_observed and validation
        (as from `validation_scores`) in percent, late and exercised (0 or 1); NaN where a run is
        not done or has no such score.

    Raises:
        SpmlError: as `validation_scores`.
    """
    configs = list(configs)
    names = ['val_map', 'val_map_seen', 'test_map', 'observed_test_map', 'late', 'exercised']
    # columns first, for speed: the record has eighty, and this is called thousands of times
    numbers = _rows(configs, runs.reindex(columns=names)).astype(float)
    numbers = numbers.rename(columns={'observed_test_map': 'test_map_observed'})
    return numbers.assign(validation=collect_validation(configs, runs))


def _measured(configs: list[Config], runs: pd.DataFrame, measure: str) -> pd.Series:
    "A score of each configuration by key; 0 for a run that diverged, NaN if it is not done."
    if measure == 'validation':
        return collect_validation(configs, runs)
    scores = _rows(configs, runs.reindex(columns=[measure, 'diverged'])).astype(float)
    return scores[measure].mask(scores.diverged == 1, 0.0)


def list_unmeasured(configs: list[Config], runs: pd.DataFrame, measure: str) -> list[str]:
    """The keys of runs that are done, but without this measure.

    Args:
        configs, runs, measure: as in `choose_config`.
    """
    scores = _measured(configs, runs, measure)
    return [name for name in scores.index[scores.isna()] if name in runs.index]


def collect_validation(configs: Iterable[Config], runs: pd.DataFrame) -> pd.Series:
    """`validation_scores` of each configuration, by key; NaN where it is not done."""
    keys = [run_key(c) for c in configs]
    if 'validation' in runs:
        values = runs.validation.reindex(keys)
        if not any(key in runs.index for key in values.index[values.isna()]):
            return values  # only runs that are not done have no score
    return validation_scores(runs.reindex(columns=_SELECTION_COLUMNS).reindex(keys))


def add_validation(runs: pd.DataFrame) -> pd.DataFrame:
    """Add `validation_scores` to finished runs as the column `validation`; NaN for runs selected by
    a measure of older versions, for which that function raises.
    """
    selection = runs.reindex(columns=_SELECTION_COLUMNS)
    scores = _score_selected(selection)
    return runs.assign(validation=scores.mask(_selected_by_observed_map(selection)))


_SELECTION_COLUMNS = [
    'val_map',
    'val_map_seen',
    'observed_val_auc',
    'selected_by',
    'selection',
    'val_truth',
    'run',
]


def validation_scores(runs: pd.DataFrame) -> pd.Series:
    """The validation score by which the runs of a search are compared: the measure that selected
    their epochs.

    Args:
        runs: finished runs on one data set, as rows of the record; all NaN where one is not done.

    Returns:
        Percent: observed AUC of runs selected by it, else mAP, over the classes that training
        images have if the run says so.

    Raises:
        SpmlError: if a run's epoch was selected by mAP against observed labels, as in versions
            before 0.2.
    """
    runs = runs.reindex(columns=_SELECTION_COLUMNS)
    outdated = runs.run[_selected_by_observed_map(runs)]
    if len(outdated):
        raise SpmlError(
            f'{len(outdated)} runs selected their epoch by mAP against observed labels. This '
            'version selects by ROC-AUC, which finds better epochs. Remove the runs to train them '
            f'anew: {join_items(outdated, 99)}.'
        )
    return _score_selected(runs)


def _selected_by_observed_map(runs: pd.DataFrame) -> pd.Series:
    blind = (runs.selection == 'val_observed') | (runs.val_truth == 'observed only')
    return blind & runs.selected_by.isna() & runs.val_truth.notna()  # diverged runs have neither


def _score_selected(runs: pd.DataFrame) -> pd.Series:
    maps = runs.val_map_seen.fillna(runs.val_map).astype(float)
    return maps.mask(runs.selected_by == 'observed_auc', runs.observed_val_auc.astype(float))


def run_search(
    rows: list[Row], suite: str, dataset: str, seeds: Iterable[int] | None, **options
) -> pd.DataFrame:
    """Search, select the best configuration of each row, and train it with every seed. Runs that
    are done are skipped. `boards.summarize_final_runs` tabulates the results.

    Args:
        rows: the methods to compare.
        suite, dataset: as in `search_configs`.
        seeds: of observed labels and training; None: those of the suite.
        options: dry_run, tell, engine, address and jobs, as in `run_stages`.

    Returns:
        DataFrame as from `run_stages`.

    Raises:
        SpmlError: as `search_configs`, and as `run`.
    """

    searches = [(row, search_configs(row, suite, dataset)) for row in rows]

    def chosen(runs: pd.DataFrame) -> list[Config]:
        runs = add_validation(runs)  # of all runs at once, for speed
        finals = [_choose_finals(configs, row, suite, runs, seeds) for row, configs in searches]
        return [config for of_row in finals for config in of_row]

    def unchosen(runs: pd.DataFrame) -> list[Config]:
        runs = add_validation(runs)
        return [
            config
            for row, configs in searches
            if choose_config(configs, runs) is None
            for config in _with_seeds(configs[0], row, suite, seeds)
        ]

    tried = [config for _, configs in searches for config in configs]
    return run_stages(tried, chosen, unchosen=unchosen, **options)


def expect_finals(
    row: Row, suite: str, dataset: str, seeds: Iterable[int] | None = None
) -> list[Config]:
    """Stand-ins for the final runs of a search that is not done, to estimate their time: the first
    configuration of the search with every seed.

    Args:
        row, suite, dataset, seeds: as in `final_configs`.
    """
    return _with_seeds(search_configs(row, suite, dataset)[0], row, suite, seeds)


def final_configs(
    row: Row, suite: str, dataset: str, runs: pd.DataFrame, seeds: Iterable[int] | None = None
) -> list[Config]:
    """The final runs of a row: the best configuration of its search with every seed.

    Args:
        row, suite, dataset: as in `search_configs`.
        runs: finished runs, as from `load_finished_runs`.
        seeds: of observed labels and training; unset: those of the suite.

    Returns:
        One configuration per seed; empty while a run of the search is missing.
    """
    return _choose_finals(search_configs(row, suite, dataset), row, suite, runs, seeds)


def _choose_finals(
    searched: list[Config],
    row: Row,
    suite: str,
    runs: pd.DataFrame,
    seeds: Iterable[int] | None,
) -> list[Config]:
    best = choose_config(searched, runs)
    if best is None:
        return []
    return _with_seeds(best.changed(train_images=row.train_images), row, suite, seeds)


def _with_seeds(config: Config, row: Row, suite: str, seeds: Iterable[int] | None) -> list[Config]:
    seeds = final_seeds(row, suite) if seeds is None else seeds
    return [config.changed(seed=seed, label_seed=seed) for seed in seeds]
