"""Compares methods on any folder of photos: the same search and seeds for each, then a verdict."""

import hashlib
import math
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..base import settings
from ..base.errors import SpmlError, require_kind, require_one_of
from ..base.files import write_atomically
from ..data import loading
from ..data.dataset import Dataset, join_items
from ..data.folder import find_folder
from ..data.labels import (
    Truth,
    choose_score_targets,
    describe_truth,
    explain_missing_scores,
    parse_label_setting,
)
from ..data.overview import count_parts, describe_shared_photos, find_shipped_model
from ..data.side_information import list_side_kinds, pin_file
from ..drawing import make_axes, to_svg
from ..methods.core import find, names
from ..runs.config import Config, class_names
from ..statistics import format_signed
from ..sweeps.boards import summarize_final_runs
from ..sweeps.estimate import time_photos
from ..sweeps.queue import (
    STARTUP,
    check_launch,
    find_earlier_runs,
    find_stale_runs,
    format_duration,
    load_finished_runs,
    plan_runs,
    run_key,
)
from ..sweeps.search import SUITES, Row, expect_finals, final_configs, run_search, search_configs
from ..training.summary import OBSERVED_AUC
from .recommendation import AUC, MAP, format_with_half, judge_methods, read_method_result
from .scoring import describe_groups, number_groups

PHOTO_SUITES = ('photos', 'photos_finetune')  # suites whose recipe is for any photos


def compare(
    folder: str | Path,
    methods: Iterable[str] = (),
    labels: str = 'full',
    suite: str = 'photos',
    seeds: int = 3,
    min_positives: int = 0,
    *,
    exclude: str | Iterable[str] = (),
    side: str = '',
    dry_run: bool = False,
    tell: Callable[[str], None] = print,
    engine: str = 'local',
    address: str | None = None,
    jobs: int = 1,
) -> pd.DataFrame:
    """Search settings for each method, train the best with fresh seeds, and say which to take.

    Args:
        folder: with images/ and labels.csv.
        methods: registered methods, each with its own head; none: those of the suite, or every
            method that has all the side information it needs.
        labels, min_positives, exclude: as in `Config`.
        suite: one of `PHOTO_SUITES`, whose recipe is used.
        seeds: number of final runs per method, with seeds from 0.
        side: a file of side information (`spml_nb/data/side_information.py`) for the methods that
            use it.
        dry_run: only say how many runs there are and how long they take.
        tell: takes each message.
        engine, address, jobs: as in `sweeps.queue.run`.

    Returns:
        DataFrame as from `sweeps.queue.run`, of all runs of the comparison, including those that
        were finished before; for a dry run, the missing ones, as from `sweeps.queue.plan_runs`.

    Raises:
        SpmlError: for an unknown method, label setting or suite, a folder that does not exist, and
            as `load` and `sweeps.queue.run`.
        KeyboardInterrupt: after Ctrl-C, without a recommendation.
    """
    require_one_of(suite, PHOTO_SUITES, 'suite')
    parse_label_setting(labels)
    check_launch(engine, address, jobs)
    if seeds < 1:
        raise SpmlError(
            f'seeds={seeds}; allowed: 1 or more, and 3 or more to say how sure a difference is.'
        )
    if not loading.is_user_folder(str(folder)):
        raise SpmlError(
            f'{folder} is no folder of photos. Give one that has images/ and labels.csv; the '
            "papers' data sets are compared by `spml sweep methods --dataset NAME`."
        )
    folder = str(find_folder(folder))  # known by its content
    listed = class_names(exclude if isinstance(exclude, str) else [*exclude])
    excluded: tuple[str, ...] = require_kind(listed, tuple, "'exclude'")
    losses = methods or SUITES[suite].get('methods')
    rows = _make_rows(losses, side, labels, min_positives, excluded)
    comparison = _Comparison(rows, suite, folder, seeds)
    data = comparison.load_data()
    tell(_describe_comparison(data, rows))
    missing = comparison.plan_missing_runs()
    earlier = find_earlier_runs(comparison.list_possible_runs())
    if earlier and len(missing):
        tell(
            f'{len(earlier)} runs were trained before photos, labels or split changed. They are '
            'kept; new runs with the same settings get names that end in '
            f'-{data.fingerprint[:6]}.'
        )
    feature_seconds = _time_features(missing, data, load_finished_runs())
    tell(describe_time_left(missing, jobs, feature_seconds))
    if dry_run:
        return missing
    trained = run_search(
        rows, suite, folder, range(seeds), tell=tell, engine=engine, address=address, jobs=jobs
    )
    if (trained.state == 'missing').any():
        raise KeyboardInterrupt  # too early for a recommendation
    runs = load_finished_runs()
    tell(_write_comparison(comparison, data, runs))
    return comparison.add_earlier_runs(trained, runs)


def _make_rows(
    methods: Iterable[str] | None,
    side: str,
    labels: str,
    min_positives: int,
    exclude: tuple[str, ...],
) -> list[Row]:
    "A row per method, each once; methods: as in `compare`, None: every possible one."
    if not methods:
        kinds = list_side_kinds(side)
        methods = [name for name in names() if kinds.issuperset(find(name).side)]
    file = pin_file(side) if side else ''
    return [
        Row(
            name,
            labels=labels,
            min_positives=min_positives,
            exclude=exclude,
            side=file if find(name).side else '',
        )
        for name in dict.fromkeys(methods)
    ]


# ---- the runs of a comparison


@dataclass(frozen=True)
class _Comparison:
    """What is compared.

    Attributes:
        rows: one per method, with the same labels and classes.
        suite: whose recipe is used.
        folder: with images/ and labels.csv.
        seeds: number of final runs per method.
    """

    rows: list[Row]
    suite: str
    folder: str
    seeds: int

    def load_data(self) -> Dataset:
        row = self.rows[0]
        return loading.load(self.folder, min_positives=row.min_positives, exclude=row.exclude)

    def list_finals(self, row: Row, runs: pd.DataFrame) -> list[Config]:
        "The final runs of a method; empty while its search has not finished."
        return final_configs(row, self.suite, self.folder, runs, range(self.seeds))

    def list_runs(self, runs: pd.DataFrame) -> list[Config]:
        """Every run of the comparison; the first configuration of a search stands for final runs
        that it has not chosen yet.
        """
        configs = []
        for row in self.rows:
            configs += search_configs(row, self.suite, self.folder)
            configs += self.list_finals(row, runs) or expect_finals(
                row, self.suite, self.folder, range(self.seeds)
            )
        return configs

    def list_possible_runs(self) -> list[Config]:
        "Every run of the searches, and every final run that they may choose."
        searched = []
        for row in self.rows:
            searched += search_configs(row, self.suite, self.folder)
        return searched + [
            config.changed(seed=seed, label_seed=seed)
            for config in searched
            for seed in range(self.seeds)
        ]

    def plan_missing_runs(self) -> pd.DataFrame:
        """The runs to train, as from `plan_runs`.

        Raises:
            SpmlError: if photos of a run were overwritten with others of the same name and size.
        """
        if stale := find_stale_runs(self.list_possible_runs()):
            raise SpmlError(
                f'{len(stale)} runs of {self.folder} were trained before its photos were changed '
                f'in place. Move them out of {settings.get_folder("runs")} to compare anew: '
                f'{join_items(stale, 99)}.'
            )
        runs = load_finished_runs()
        missing = [config for config in self.list_runs(runs) if run_key(config) not in runs.index]
        return plan_runs(missing, runs).query("state != 'done'")

    def add_earlier_runs(self, trained: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
        "The table of the runs just trained, after those that were finished before."
        done = [config for config in self.list_runs(runs) if run_key(config) in runs.index]
        planned = plan_runs(done, runs)[['config', 'run']]
        earlier = planned[~planned.run.isin(trained.run)].assign(state='done', message='')
        return pd.concat([earlier, trained], ignore_index=True)


def _describe_comparison(data: Dataset, rows: list[Row]) -> str:
    "Which photos, how many methods and which labels."
    methods = '1 method' if len(rows) == 1 else f'{len(rows)} methods'
    labels = f', labels {rows[0].labels}'
    if rows[0].labels == 'full':
        labels = (
            '; all labels in the table are used, unknown ones stay unknown; seeds change the '
            'training only'
        )
    lines = [repr(data), f'{methods}{labels}.']
    if _is_complete(data, rows):
        lines.append(
            'No training label is unknown, so methods for missing labels have nothing to do here.'
        )
    if shared := describe_shared_photos(data):
        lines.append(shared)
    return '\n'.join(lines)


def _is_complete(data: Dataset, rows: list[Row]) -> bool:
    "Whether the methods see every label of the training photos."
    return rows[0].labels == 'full' and bool((data.labels[data.rows('train')] != 0).all())


def describe_time_left(missing: pd.DataFrame, jobs: int, feature_seconds: float = 0.0) -> str:
    """Say how long the missing runs will take.

    Args:
        missing: runs, as from `sweeps.queue.plan_runs`.
        jobs: runs at a time.
        feature_seconds: what the first run takes for the features of all photos; NaN if unknown.

    Returns:
        A sentence or two.
    """
    if not len(missing):
        return 'Every run is done.'
    features = ''
    if math.isnan(feature_seconds):
        features = ' (plus the features of all photos, once)'
    elif feature_seconds >= 1:
        length = format_duration(feature_seconds)
        features = f' (with {length} for the features of all photos, once)'
    if missing.expected.isna().all():
        return (
            f'{len(missing)} runs to train: no run of this kind is recorded, so the time left is '
            f'shown after the first one{features}.'
        )
    seconds = missing.expected.fillna(missing.expected.mean()).sum() / jobs
    seconds += 2 * STARTUP + np.nan_to_num(feature_seconds)  # workers start for search and finals
    return (
        f'{len(missing)} runs to train: about {format_duration(seconds)} on an idle machine'
        f'{features}. That is by recorded runs of this kind; with other photos or on another '
        'machine they may take several times as long.'
    )


def _time_features(missing: pd.DataFrame, data: Dataset, runs: pd.DataFrame) -> float:
    """Seconds for the features of all photos, measured on a few; 0 if a finished run has cached
    them, or no run needs them.
    """
    if not len(missing):
        return 0.0
    config = missing.config.iloc[0]
    name = Path(config.dataset).name
    is_cached = len(runs) and (runs.dataset == name).any()
    if config.regime != 'linear' or is_cached:
        return 0.0
    return len(data) * time_photos(config, data)


# ---- its result


def _write_comparison(comparison: _Comparison, data: Dataset, runs: pd.DataFrame) -> str:
    """Judge the finished runs and write table.csv, picture.svg and said.txt.

    Returns:
        The table, what its columns mean, which scores are missing and why, the recommendation, and
        where the files are.

    Raises:
        SpmlError: if a file cannot be written, or a run is damaged.
    """
    rows = comparison.rows
    targets, test_truth = choose_score_targets(data.labels[data.rows('test')])
    _, val_truth = choose_score_targets(data.labels[data.rows('val')])
    methods = [
        read_method_result(row, comparison.list_finals(row, runs), runs, targets) for row in rows
    ]
    table, recommendation = judge_methods(methods, comparison.seeds, _is_complete(data, rows))
    if not len(table):
        return recommendation
    choices = summarize_final_runs(
        rows, comparison.suite, comparison.folder, runs, range(comparison.seeds)
    )
    table = table.join(choices.set_index('loss')[['lr', 'hparams', 'late']], 'loss')
    table = table.assign(against=describe_truth(test_truth))
    if table.run.any():
        recommendation += _suggest_shipped_model(data)
    by_auc = table.val_measure[0] == AUC
    lines = [
        _format_table(table, len(data.class_names)).to_string(index=False),
        _explain_table(table, Truth.OBSERVED_ONLY if by_auc else val_truth, test_truth),
        *_describe_groups(data),
        *_describe_limits(data, val_truth, test_truth, by_auc),
        '',
        recommendation,
    ]
    text = '\n'.join(lines)
    title = (
        f'{data.name}, test {table.test_measure[0]} against {describe_truth(test_truth)}, '
        f'{table.seeds[0]} seeds, 95 % intervals'
    )
    target = _name_target(comparison, data)
    write_atomically(target / 'table.csv', table.to_csv(index=False, lineterminator='\n'))
    write_atomically(target / 'picture.svg', draw_comparison(table, title).decode())
    write_atomically(target / 'said.txt', f'{text}\n')
    return f'{text}\nTable and picture: {target}'


def _name_target(comparison: _Comparison, data: Dataset) -> Path:
    "The folder of the results, another one for other photos, labels, classes or suites."
    row = comparison.rows[0]
    parts = [comparison.folder, data.fingerprint, row.labels, comparison.suite]
    parts += [str(row.min_positives), *row.exclude]
    digest = hashlib.sha256('\n'.join(parts).encode()).hexdigest()[:6]
    return settings.get_folder('runs') / 'compare' / f'{Path(comparison.folder).name}-{digest}'


def _describe_groups(data: Dataset) -> list[str]:
    "For validation and test, that intervals are over groups, if they are."
    lines = []
    for name, part in (('validation', 'val'), ('test', 'test')):
        groups = number_groups(data, data.rows(part))
        if groups is not None:
            count = int(groups.max()) + 1
            lines.append(f'{name}: {describe_groups(count, "intervals are over seeds alone")}')
    return lines


def _describe_limits(data: Dataset, val_truth: str, test_truth: str, by_auc: bool) -> list[str]:
    """Which scores are missing, and which photos do not count or count twice. by_auc: observed AUC
    chose, in which every validation photo counts.
    """
    parts = {val_truth: 'val', test_truth: 'test'}
    if val_truth == test_truth:
        parts = {val_truth: 'val and test'}
    limits = [explain_missing_scores(truth, part) for truth, part in parts.items()]
    limits = [*filter(None, [*limits, describe_shared_photos(data)])]
    for part, counts in count_parts(data).iloc[1:].iterrows():
        if counts.counted < counts.photos and not (by_auc and part == 'val'):
            limits.append(
                f'Only {counts.counted} of {counts.photos} {part} photos count: of the others no '
                'label is known to be absent. More photos labelled in full make scores surer.'
            )
    return limits


def _suggest_shipped_model(data: Dataset) -> str:
    shipped = find_shipped_model(data)
    if shipped is None:
        return ''
    name = shipped.folder.name
    return (
        f'\n{name}, a model of the package, knows {shipped.known} of these classes. To see which '
        f'is better on photos labelled in full: spml evaluate {name} FULL, and the same with your '
        'run.'
    )


def _find_base(table: pd.DataFrame) -> str:
    "The method that the others are compared with; '' if it is the only one."
    return '' if len(table) == 1 else ''.join(table.loss[table.over_half.eq(0) & table.p.isna()])


def _format_table(table: pd.DataFrame, classes: int) -> pd.DataFrame:
    """A comparison as texts.

    Args:
        table: as from `judge_methods`.
        classes: number of classes.
    """
    shown = pd.DataFrame({'method': table.loss})
    shown['validation'] = table.validation.map('{:.1f}'.format)
    shown['test'] = list(map(format_with_half, table.test.map('{:.1f}'.format), table.half))
    if base := _find_base(table):
        gains = pd.Series(map(format_with_half, table.over.map(format_signed), table.over_half))
        shown[f'over {base}'] = gains.where(table.loss != base, '')
    if table.names.notna().any():
        shown['names'] = table.names.map('{:.2f}'.format)
        shown['classes'] = table.classes.map(f'{{:.0f}} of {classes}'.format)
        shown['threshold'] = (
            table.lowest.map('{:.3g}'.format) + '–' + table.highest.map('{:.3g}'.format)
        )
        shown.loc[table.names.isna(), ['names', 'classes']] = ''
        shown.loc[table.lowest.isna(), 'threshold'] = ''
    return shown


_MEANINGS = {
    MAP: 'how well photos with a class are ranked before the others, the mean over classes that '
    'any photo has, in percent',
    AUC: OBSERVED_AUC,
}


def _explain_table(table: pd.DataFrame, val_truth: str, test_truth: str) -> str:
    "What the columns of `_format_table` mean, for somebody who sees them for the first time."
    first = table.iloc[0]
    seeds = 'one run' if first.seeds == 1 else f'{first.seeds} runs that differ in their seed'
    lines = [
        f'validation: {first.val_measure} against {describe_truth(val_truth)}, the mean of '
        f'{seeds}: {_MEANINGS[first.val_measure]}. It chose settings and epoch, and ranks the '
        'methods here.'
    ]
    kind = 'the same'
    if (first.val_measure, val_truth) != (first.test_measure, test_truth):
        kind = f'{first.test_measure} against {describe_truth(test_truth)}'
    if first.val_measure != first.test_measure:
        kind += f' ({_MEANINGS[first.test_measure]})'
    test = f'test: {kind}, on photos that chose nothing.'
    if not math.isnan(first.half):
        test += (
            ' ±: with other seeds and other photos of this kind, the number would be within this '
            'distance in about 95 of 100 cases.'
        )
    lines.append(test)
    if base := _find_base(table):
        lines.append(
            f'over {base}: points of test above {base}; where ± is larger, that may be chance.'
        )
    if table.names.notna().any():
        lines.append(
            'names, classes: how many names the run with the best validation score gives a '
            'validation photo on average, and how many classes it names on any of them. threshold: '
            'the probability at which a class is named, lowest and highest of the seeds.'
        )
    return '\n'.join(lines)


TITLE_WIDTH = 70  # characters that fit above two panels


def draw_comparison(table: pd.DataFrame, title: str) -> bytes:
    """Draw test scores and gains with their intervals.

    Args:
        table: as from `judge_methods`.

    Returns:
        SVG, the same bytes for the same numbers.
    """
    return to_svg(lambda: _make_figure(table, title))


def _make_figure(table: pd.DataFrame, title: str) -> Figure:
    lines = textwrap.wrap(title, TITLE_WIDTH)
    height = 0.6 + 0.22 * len(table) + 0.17 * (len(lines) - 1)
    figure, ((scores, gains),) = make_axes(1, 2, 3.0, height)
    y = np.arange(len(table))[::-1]
    for ax, name, half, label in (
        (scores, 'test', 'half', f'test {table.test_measure[0]} (%)'),
        (gains, 'over', 'over_half', f'points over {_find_base(table)}'),
    ):
        ax.errorbar(table[name], y, xerr=table[half].fillna(0), fmt='o', capsize=2)
        ax.set(
            xlabel=label,
            yticks=y,
            yticklabels=table.loss if ax is scores else [],
            ylim=(-0.7, len(table) - 0.3),
        )
        ax.grid(axis='x', alpha=0.3)
    gains.axvline(0, color='#999999', linewidth=0.8)
    figure.suptitle('\n'.join(lines), parse_math=False)
    return figure
