"""Random draws from one declared table, chosen by validation, then trained with fresh seeds."""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from ..base import files, settings
from ..base.errors import SpmlError, one_of
from ..data import loading
from ..data.dataset import listed
from ..methods.core import Choice, LogUniform, Uniform, find, names  # noqa: F401 (public here)
from ..runs import record as runs_record
from ..runs.config import CHOICES, HEADS, Config
from .queue import finished, key, staged

SEARCH_SEED = 1000  # of observed labels and training in every search, never of a final run


def space(loss: str) -> dict:
    """What a method's hyper-parameters are drawn from.

    Args:
        loss: a registered method.

    Returns:
        {hyper-parameter: distribution}, as registered beside the loss.

    Raises:
        SpmlError: for an unknown method.
    """
    return find(loss).search


def drawn(loss: str, k: int) -> dict:
    """The hyper-parameters of a draw: the same on every data set and machine.

    Args:
        loss: a registered method.
        k: number of the draw; 0 has the paper's values.

    Returns:
        {hyper-parameter: value}, those that differ from the paper's.
    """
    seed = int.from_bytes(hashlib.sha256(f'{loss} {k}'.encode()).digest()[:8], 'big')
    rng = np.random.default_rng(seed)
    return {name: of(rng.random()) for name, of in space(loss).items()} if k else {}


def rates(
    n: int, widened: int = 0, usual: float = 1e-3, between: tuple = (3e-5, 1e-2)
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
    rng, of = np.random.default_rng(SEARCH_SEED), LogUniform(*between)
    inner = [of(u) for u in rng.permutation((np.arange(n) + rng.random(n)) / n)]
    nearest = min(inner, key=lambda rate: abs(math.log(rate / usual)))
    beyond = [
        float(f'{end * 10 ** (step / 2):.3g}')
        for k in range(1, widened + 1)
        for end, step in ((of.low, -k), (of.high, k))
    ]
    return sorted(inner, key=lambda rate: rate != nearest) + beyond


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

# seven in ten final runs or more, with single labels, were best in the last two of 60 epochs; with
# other labels as many
_LONGER = {
    'ccp': {'em linear'},
    'coco18': {'epr cosine', 'wbce linear'},
    'corel5k': {'hill linear', 'llr linear'},
    'cub_crops': {
        'asl linear',
        'dw linear',
        'llr linear',
        'llr cosine',
        'nls linear',
        'wan linear',
        'wan cosine',
        'wbce linear',
    },
    'voc12_animals': {'entmin cosine', 'nls cosine'},
}

# of methods whose own schedule has an end, so that they reach it; end to end as long as in EM/APL
_LENGTH, _LENGTH_END_TO_END = {'epochs': 40, 'patience': 0}, {'epochs': 10, 'patience': 0}

SUITES = {
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
        # below 3e-4, 60 epochs of batches of 64 are too few for a head
        'draws': 10,
        'widened': 1,
        'usual': 1e-3,
        'between': (3e-4, 3e-2),
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
        'between': (3e-5, 1e-3),
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
        min_positives: on a folder of one's own, leave out classes with fewer positives.
        side: the file of side information, for a method that needs it.
    """

    loss: str
    head: str | None = None
    labels: str = 'single'
    batch_size: int | None = None
    min_positives: int = 0
    side: str = ''


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
    given = SUITES[one_of(suite, SUITES, 'suite')]
    own = (
        {'min_positives': row.min_positives}
        if loading.own_folder(dataset)
        else given['datasets'][_of_suite(dataset, suite)]
    )
    head = row.head or find(row.loss).head
    length = given.get('scheduled', {}).get(row.loss, {})
    if f'{row.loss} {head}' in given.get('longer', {}).get(dataset, ()):
        length = {'epochs': 120}
    base = given['config'] | length | given['heads'].get(head, {}) | own
    if row.batch_size is not None:
        base = base | {'batch_size': row.batch_size}
    return [
        Config(
            loss=row.loss,
            head=head,
            labels=row.labels,
            dataset=dataset,
            lr=rate,
            hparams=drawn(row.loss, k),
            seed=SEARCH_SEED,
            label_seed=SEARCH_SEED,
            side=row.side,
            **base,
        )
        for k, rate in enumerate(_rates(suite))
    ]


def _of_suite(dataset: str, suite: str) -> str:
    return one_of(
        dataset,
        SUITES[suite]['datasets'],
        f'data set of the suite {suite!r}',
        'Or give one folder that has images/ and labels.csv.',
    )


def _rates(suite: str) -> list[float]:
    given = SUITES[suite]
    inner = given['draws'] - 2 * given['widened']
    return rates(inner, given['widened'], given['usual'], given.get('between', (3e-5, 1e-2)))


def head_of_an(head: str) -> str:
    """The head on which AN is compared with a method.

    Args:
        head: the method's.

    Returns:
        The same; for class maps, whose mean is what a linear head gives, the linear one.
    """
    return 'linear' if head == 'maps' else head


def seeds_of(row: Row, suite: str) -> range:
    """The seeds of a row's final runs.

    Args:
        row: of the suite.
        suite: a key of `SUITES`.

    Returns:
        From 0.
    """
    return range(SUITES[suite]['seeds'][row.head or find(row.loss).head])


def choose(configs: Iterable[Config], known: pd.DataFrame) -> Config | None:
    """The configuration with the best validation score: mAP, or observed AUC where no label of
    validation is clean.

    Args:
        configs: what was tried.
        known: finished runs, as from `finished`.

    Returns:
        The first of the best; None while one of them is not done, or without any.
    """
    return next(iter(ranked(configs, known)), None)


def ranked(configs: Iterable[Config], known: pd.DataFrame) -> list[Config]:
    """Configurations by validation score, as `choose` compares them.

    Args:
        configs: what was tried.
        known: finished runs, as from `finished`.

    Returns:
        The best first, equal ones as given; none while one of them is not done.

    Raises:
        SpmlError: if some were chosen by another measure than the others.
    """
    configs = list(configs)
    if not configs or key(configs[0]) not in known.index:
        return []  # most that is not done is not begun
    values = scores(configs, known).validation
    return [] if values.isna().any() else [configs[k] for k in (-values).argsort(kind='stable')]


def scores(configs: Iterable[Config], known: pd.DataFrame) -> pd.DataFrame:
    """The scores of runs.

    Args:
        configs: what was run.
        known: finished runs, as from `finished`.

    Returns:
        DataFrame by `key`: val_map, val_map_seen, test_map and test_map_observed in percent, late
        and exercised (0 or 1), validation (percent, what compares the runs of a search); NaN where
        a run is not done or has no such score.

    Raises:
        SpmlError: if some were chosen by another measure than the others.
    """
    known = known.rename(columns={'observed_test_map': 'test_map_observed'})
    names = ['val_map', 'val_map_seen', 'test_map', 'test_map_observed', 'late', 'exercised']
    runs = known.reindex(index=[key(c) for c in configs])
    return runs.reindex(columns=names).astype(float).assign(validation=validation_scores(runs))


def validation_scores(runs: pd.DataFrame) -> pd.Series:
    """What compares runs of one data set: the measure that chose their epochs.

    Args:
        runs: finished ones, with the columns of the record; NaN in all of them for what is not
            done.

    Returns:
        Percent: observed AUC where no label of validation is clean, else mAP, without classes that
            no training image
        has where a run says so.

    Raises:
        SpmlError: if some were chosen by observed labels in another measure, as versions before 0.2
            did.
    """
    runs = runs.reindex(
        columns=[
            'val_map',
            'val_map_seen',
            'observed_val_auc',
            'selected_by',
            'selection',
            'val_truth',
            'run',
        ]
    )
    by_auc = runs.selected_by == 'observed_auc'
    blind = (runs.selection == 'val_observed') | (runs.val_truth == 'observed only')
    earlier = runs.run[
        blind & runs.selected_by.isna() & runs.val_truth.notna()
    ]  # a diverged run has neither
    if len(earlier):
        raise SpmlError(
            f"{len(earlier)} runs chose their epoch by mAP against observed labels, and today's "
            "choose by "
            f'ROC-AUC, which finds better ones. Remove them to train anew: {listed(earlier, 99)}.'
        )
    maps = runs.val_map_seen.fillna(runs.val_map).astype(float)
    return maps.mask(by_auc, runs.observed_val_auc.astype(float))


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


def trained(
    rows: list[Row], suite: str, dataset: str, seeds: Iterable[int] | None, **options
) -> pd.DataFrame:
    """Search, choose, and train with every seed; what is done already is left alone. `outcome` says
    what came out.

    Args:
        rows: the lines to compare.
        suite, dataset: as in `candidates`.
        seeds: of observed labels and training; None: those of the suite.
        options: dry_run, tell, engine, address and jobs, as in `staged`.

    Returns:
        DataFrame as from `staged`.

    Raises:
        SpmlError: as `candidates`, and as `run`.
    """
    return staged(
        [c for row in rows for c in candidates(row, suite, dataset)],
        lambda known: [c for row in rows for c in finals(row, suite, dataset, known, seeds)],
        **options,
    )


def finals(
    row: Row, suite: str, dataset: str, known: pd.DataFrame, seeds: Iterable[int] | None = None
) -> list[Config]:
    """The chosen configuration with every seed.

    Args:
        row, suite, dataset: as in `candidates`.
        known: finished runs, as from `finished`.
        seeds: of observed labels and training; unset: those of the suite.

    Returns:
        One configuration per seed; none while a run of the search is missing.
    """
    chosen, seeds = (
        choose(candidates(row, suite, dataset), known),
        seeds_of(row, suite) if seeds is None else seeds,
    )
    return [replace(chosen, seed=s, label_seed=s) for s in seeds] if chosen else []


def searched(row: Row, suite: str, dataset: str, known: pd.DataFrame) -> pd.DataFrame:
    """The record of a search.

    Args:
        row, suite, dataset: as in `candidates`.
        known: finished runs, as from `finished`.

    Returns:
        DataFrame, one row per run: suite, dataset, loss, head, labels, lr, hparams (those given),
        val_map in percent (as `choose` compares it; NaN if missing), chosen, key.
    """
    tried = candidates(row, suite, dataset)
    chosen, values = choose(tried, known), scores(tried, known).validation
    return pd.DataFrame(
        [
            {
                'suite': suite,
                'dataset': dataset,
                'loss': c.loss,
                'head': c.head,
                'labels': c.labels,
                'lr': c.lr,
                'hparams': json.dumps(c.hparams),
                'val_map': value,
                'chosen': c == chosen,
                'key': name,
            }
            for c, (name, value) in zip(tried, values.items(), strict=True)
        ]
    )


def half_interval(values: pd.Series) -> float:
    """Half the width of the 95 % interval of a mean.

    Args:
        values: a score of each seed.

    Returns:
        In the unit of the values; NaN for fewer than two.

    Source:
        Student's t distribution.
    """
    return float(stdtrit(len(values) - 1, 0.975) * values.sem())


def outcome(
    rows: Iterable[Row],
    suite: str,
    dataset: str,
    known: pd.DataFrame,
    seeds: Iterable[int] | None = None,
) -> pd.DataFrame:
    """What a comparison found, as far as it has been run.

    Args:
        rows, suite, dataset: as in `trained`.
        known: finished runs, as from `finished`.
        seeds: as in `finals`.

    Returns:
        DataFrame, one row per line: loss, head, labels, lr, hparams (chosen), val_map and test_map
        (means), sd and half (deviation over seeds and half the 95 % interval of test_map), over_an
        and over_plain_an (mean difference to AN on the same head, and on the linear head, with the
        same seeds; AN with the same labels where it is a line, else with single ones), n seeds,
        test_map_observed (mean of what selection on observed labels would have given), late (share
        of runs whose best epoch is one of the last two), exercised (share in which the method's
        mechanism acted; NaN if it has none), test_maps (of each seed). In percent but for shares;
        missing numbers are NaN.
    """
    lines = [_line(row, finals(row, suite, dataset, known, seeds), known) for row in rows]
    an = {(line['head'], line['labels']): line['each'] for line in lines if line['loss'] == 'an'}
    for line in lines:
        for name, head in (('over_an', head_of_an(line['head'])), ('over_plain_an', 'linear')):
            other = an.get((head, line['labels']), an.get((head, 'single'), pd.Series(dtype=float)))
            line[name] = (line['each'] - other).mean()
    return pd.DataFrame(lines, columns=COLUMNS)


COLUMNS = [
    'loss',
    'head',
    'labels',
    'lr',
    'hparams',
    'val_map',
    'test_map',
    'sd',
    'half',
    'over_an',
    'over_plain_an',
    'n',
    'test_map_observed',
    'late',
    'exercised',
    'test_maps',
]


def _line(row: Row, configs: list[Config], known: pd.DataFrame) -> dict:
    "A line of `outcome`, `each` being the test mAP by seed."
    runs = scores(configs, known).set_axis([c.seed for c in configs]).dropna(subset='test_map')
    return {
        'loss': row.loss,
        'head': row.head or find(row.loss).head,
        'labels': row.labels,
        'lr': configs[0].lr if configs else math.nan,
        'hparams': json.dumps(configs[0].hparams) if configs else '',
        **runs.mean(),
        'sd': runs.test_map.std(),
        'half': half_interval(runs.test_map),
        'n': len(runs),
        'test_maps': runs.test_map.round(2).tolist(),
        'each': runs.test_map,
    }


def every_method() -> list[Row]:
    """Each method that learns from labels alone, on every head it allows, full labels included, the
    label-wise last.

    Returns:
        Rows for `trained` and `outcome`.
    """
    rows = [
        Row(name, head, 'full' if name == 'bce' else 'single')
        for name in names()
        if not find(name).side
        for head in find(name).heads or HEADS
    ]
    return sorted(rows, key=lambda row: row.head == 'labelwise')


def rows_of(suite: str) -> list[Row]:
    """The lines of a suite's boards.

    Args:
        suite: a key of `SUITES`.

    Returns:
        `every_method`, or the suite's methods, each on its own head, with AN on every one of these
        heads.

    Raises:
        SpmlError: for another suite.
    """
    given = SUITES[one_of(suite, SUITES, 'suite')]
    chosen = given.get('methods') or names()
    heads = {find(name).head for name in chosen}
    return [
        row
        for row in every_method()
        if 'methods' not in given
        or (row.loss == 'an' and row.head in heads)
        or (row.loss in chosen and row.head == find(row.loss).head)
    ]


def sweep(
    suite: str,
    datasets: Iterable[str] = (),
    losses: Iterable[str] = (),
    *,
    dry_run: bool = False,
    tell: Callable[[str], None] = print,
    **launch,
) -> pd.DataFrame:
    """Train what the boards of a suite still need and write them.

    Args:
        suite: a key of `SUITES`.
        datasets: some of the suite's; none: all of them.
        losses: some of its methods; none: all of them.
        dry_run: only say how much there is.
        tell: is given the lines.
        launch: engine, address and jobs, as in `run`.

    Returns:
        DataFrame as from `staged`.

    Raises:
        SpmlError: for another suite, data set or method, and as `run`.
    """
    every_row, done = rows_of(suite), []
    asked = {
        one_of(loss, sorted({row.loss for row in every_row}), f'method of {suite}')
        for loss in losses
    }
    rows = [row for row in every_row if row.loss in asked or not asked]
    every = [_of_suite(name, suite) for name in datasets or SUITES[suite]['datasets']]
    for labelwise, dataset in itertools.product((False, True), every):
        part = [row for row in rows if (row.head == 'labelwise') == labelwise]
        tell(f"{dataset}, {'label-wise head' if labelwise else 'all other heads'}:")
        done.append(trained(part, suite, dataset, None, dry_run=dry_run, tell=tell, **launch))
        if dry_run:
            continue
        runs_record.export_csv()
        record(suite, dataset, finished(), tell)
        if (done[-1].state == 'missing').any():
            break  # interrupted
    return pd.concat(done, ignore_index=True)


def record(
    suite: str, dataset: str, known: pd.DataFrame, tell: Callable[[str], None] = lambda line: None
) -> pd.DataFrame:
    """Write a board to `methods/NAME.csv`, `.md`, `_search.csv` and `_best_of_k.csv` in the setting
    `outputs`.

    NAME is that of the data set, with `_finetune` behind it for the suite `photos_finetune`.

    Args:
        suite, dataset: as in `candidates`.
        known: finished runs, as from `finished`.
        tell: is given a line where the range of learning rates is too narrow.

    Returns:
        DataFrame as from `outcome`, the best first; what was not run is left out, and nothing is
        written for nothing.

    Raises:
        SpmlError: if the files cannot be written.
    """
    name = (
        settings.path('outputs')
        / 'methods'
        / (dataset + suite.removeprefix('photos').removeprefix('mini'))
    )
    table = outcome(rows_of(suite), suite, dataset, known).query('n > 0')
    table = table.sort_values('test_map', ascending=False, ignore_index=True, kind='stable')
    every = pd.concat(
        [searched(row, suite, dataset, known) for row in rows_of(suite)], ignore_index=True
    )
    search, rates_tried = every.dropna(subset='val_map'), _rates(suite)
    at_end = every[every.chosen & every.lr.isin((min(rates_tried), max(rates_tried)))]
    where = ', '.join(
        f'{line.loss} ({line.head}, {line.labels}) {line.lr:g}' for line in at_end.itertuples()
    )
    if where:
        tell(
            f'{dataset}: the best rate is the lowest or highest tried for {where}. Raise `widened` '
            f'by one and `draws` by two in the suite {suite!r} of spml_nb/sweeps/search.py. Then '
            'give the command again.'
        )
    if not len(table):
        return table
    curves = (
        search.groupby(['loss', 'head', 'labels'], sort=False)
        .val_map.apply(lambda values: pd.Series(best_of_k(values), range(1, len(values) + 1)))
        .rename_axis(['loss', 'head', 'labels', 'k'])
        .dropna()
        .reset_index()
    )
    for end, content in (('.csv', table), ('_search.csv', search), ('_best_of_k.csv', curves)):
        text = (
            content.round(4)
            .assign(**content.filter(['lr']))
            .to_csv(index=False, lineterminator='\n')
        )
        files.write_atomically(name.with_name(name.name + end), text)
    rounded = table.drop(columns='test_maps').round(1).assign(lr=table.lr, late=table.late.round(2))
    ends = (
        ' The lowest or highest rate tried is the best, so a wider search could find a better '
        f'one: {where}.'
    )
    about = _about(suite, dataset) + ends * bool(where)
    grid = files.grid([[*rounded], *_cells(rounded)])
    files.write_atomically(name.with_name(f'{name.name}.md'), f'{about}\n\n{grid}')
    return table


def _cells(table: pd.DataFrame) -> list[list]:
    "The lines of a table, with nothing for what is missing, and no minus before 0."
    unsigned = table.map(lambda value: value + 0.0 if isinstance(value, float) else value)
    return unsigned.astype(object).where(table.notna(), '').to_numpy().tolist()


def boards(known: pd.DataFrame):
    """Write every board that has a run, as `record` does.

    Args:
        known: finished runs, as from `finished`.

    Raises:
        SpmlError: if the files cannot be written.
    """
    begun = set(known.dataset[known.seed == SEARCH_SEED]) if len(known) else set()
    for suite, given in SUITES.items():
        for dataset in filter(begun.__contains__, given['datasets']):
            record(suite, dataset, known)


def _about(suite: str, dataset: str) -> str:
    "What has to be known to read a board."
    given = SUITES[suite]
    seeds = ', '.join(f'{head} {n}' for head, n in given['seeds'].items())
    return (
        f"{dataset}, suite `{suite}`: regime {given['config']['regime']}, backbone "
        f"{given['config'].get('backbone', 'mini')}. Search: {len(_rates(suite))} draws for every "
        "method, seed "
        f'{SEARCH_SEED}, the paper’s values first; the best mAP on fully labelled validation '
        f'images is chosen. Then fresh seeds, by head: {seeds}. mAP in percent; half: half the 95 '
        '% interval over seeds; test_map_observed: had observed labels alone chosen the epoch, '
        'not the settings; late, exercised: shares of runs. A late run has its best epoch among '
        'the last two, so that a longer one could have been better.'
    )
