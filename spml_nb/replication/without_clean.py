"""Gains over AN where settings, epoch and threshold are chosen without clean labels."""

# The boards choose settings and epoch on fully labelled validation photos, as the papers do.
# Without such photos one has to choose by the observed labels, for AN as well as for the method,
# and choose the threshold of predicted labels in the same way. The runs are those of
# `observed_choice`: eight methods, with a full search for each of three draws of the observed
# labels. Under either choice they are runs of the search itself, not runs with fresh seeds.

from typing import NamedTuple

import pandas as pd

from ..methods.core import find
from ..statistics import Effect, Scores, estimate_effect, format_signed, pool_effects
from . import board, gains
from .experiments import observed_choice
from .experiments.observed_choice import CHOSEN_RULE, DATASETS, METHODS
from .templates import render_template

ON_MAP = 'mAP, observed labels'  # the choice of who has no clean label

# {name: (column by which settings and epoch are chosen, column of the score)}
CHOICES = {
    'mAP, clean labels': ('clean_map', 'clean_map_test'),
    ON_MAP: (CHOSEN_RULE, f'{CHOSEN_RULE}_test'),
    # settings and epoch are chosen by observed labels in both, the threshold as named
    'micro-F1, clean labels': (CHOSEN_RULE, 'f1_clean_f1'),
    'micro-F1, observed labels': (CHOSEN_RULE, 'f1_lee_liu'),
}


class Setting(NamedTuple):
    """A method on a photo set, under one of `CHOICES`."""

    dataset: str
    loss: str
    choice: str


def measure_gains(lines: pd.DataFrame) -> pd.DataFrame:
    """The gains over AN with the same choice.

    Args:
        lines: As from `observed_choice.read_trials`. A seed on a photo set is used if every method
            has its full search.

    Returns:
        DataFrame as from `gains.gains_over_baselines`, one row per `Setting`. Intervals of mAP are
        over seeds and test images, those of micro-F1 over seeds alone.
    """
    scores = _score_choices(lines)
    an = {s: s._replace(loss='an') for s in scores if s.loss != 'an'}
    measured = gains.gains_over_baselines(scores, {gains.PLAIN_HEAD: an})
    return measured[measured.loss != 'an'] if len(measured) else measured


def _score_choices(lines: pd.DataFrame) -> dict[Setting, Scores]:
    searches = lines.groupby(['dataset', 'seed'])
    complete = searches.loss.transform('nunique').eq(len(METHODS))
    complete &= searches.loss.transform('size').eq(len(METHODS) * lines.draw.nunique())
    lines = lines[complete]
    scores = {}
    for choice, (rule, column) in CHOICES.items():
        chosen = lines.loc[lines.groupby(['dataset', 'loss', 'seed'])[rule].idxmax()]
        for (dataset, loss), runs in chosen.groupby(['dataset', 'loss']):
            tested = dataset if choice.startswith('mAP') else ''
            by_seed = runs.set_index('seed')[column]
            scores[Setting(dataset, loss, choice)] = Scores(by_seed, dataset=tested)
    return scores


def measure_changes(lines: pd.DataFrame, measure: str = 'mAP') -> dict[str, Effect]:
    """What a method changes by if observed labels choose instead of clean ones, mean over the sets.

    They choose settings and epoch in mAP, the threshold in micro-F1.

    Two settings of one method err alike on a test image, and how much so is not recorded: intervals
    are over seeds alone.

    Args:
        lines: As in `measure_gains`, with every photo set.
        measure: 'mAP' or 'micro-F1'.
    """
    return {
        loss: pool_effects([estimate_effect(by_seed.to_numpy()) for by_seed in of_sets])
        for loss, of_sets in _list_changes(lines, measure).items()
    }


def _average_changes(lines: pd.DataFrame) -> Effect:
    """The mean of `measure_changes` over the methods, which share the seeds."""
    changes = _list_changes(lines, 'mAP')
    return pool_effects(
        [
            estimate_effect(pd.concat(of_methods, axis=1).mean(axis=1).to_numpy())
            for of_methods in zip(*changes.values(), strict=True)
        ]
    )


def _list_changes(lines: pd.DataFrame, measure: str) -> dict[str, list[pd.Series]]:
    "{method: its change by seed, for each photo set}."
    scores = _score_choices(lines)
    clean, observed = (choice for choice in CHOICES if choice.startswith(measure))
    return {
        loss: [
            scores[Setting(name, loss, observed)].by_seed
            - scores[Setting(name, loss, clean)].by_seed
            for name in DATASETS
        ]
        for loss in METHODS
    }


def average_gains(measured: pd.DataFrame) -> pd.DataFrame:
    """The mean gains over the photo sets.

    Args:
        measured: As from `measure_gains`.

    Returns:
        DataFrame of `Effect`s, a row per method and a column per choice, the highest gain in mAP by
        observed labels first; without gains that lack a set or have one seed.
    """
    effects: dict[str, dict[str, Effect]] = {}
    for (loss, choice), on_sets in measured.groupby(['loss', 'choice']):
        if set(on_sets.dataset) == set(DATASETS) and on_sets.n.min() > 1:
            effects.setdefault(loss, {})[choice] = pool_effects(list(on_sets.effect))
    table = pd.DataFrame.from_dict(effects, orient='index').reindex(columns=list(CHOICES))
    order = table[ON_MAP].map(lambda effect: -effect.mean)
    return table.loc[order.sort_values(kind='stable').index]


def read_without_clean() -> dict:
    """The numbers of the pages.

    Returns:
        {'rows': [{'loss', 'effects' (one for each choice)}], 'changes' (as from `measure_changes`),
        'f1_changes', 'mean_change' (their mean over the methods), 'choices' (names), 'sets',
        'seeds' (numbers)}; no rows and no changes while a photo set lacks runs.
    """
    lines = observed_choice.read_trials()
    rows, changes, f1_changes, mean_change = [], {}, {}, None
    if set(lines.dataset) == set(DATASETS):
        changes = measure_changes(lines)
        f1_changes = measure_changes(lines, 'micro-F1')
        mean_change = _average_changes(lines)
        rows = [
            {'loss': loss, 'effects': list(effects)}
            for loss, *effects in average_gains(measure_gains(lines)).itertuples()
        ]
    return {
        'rows': rows,
        'changes': changes,
        'f1_changes': f1_changes,
        'mean_change': mean_change,
        'choices': list(CHOICES),
        'sets': len(DATASETS),
        'seeds': lines.seed.nunique(),
    }


def format_page(shown: dict) -> str:
    """The page.

    Args:
        shown: As from `read_without_clean`, with rows.
    """
    names = {loss: board.describe_method(loss) | {'head': find(loss).head} for loss in METHODS}
    measured = measure_gains(observed_choice.read_trials())
    by_set = _tabulate_by_set(measured, names, [row['loss'] for row in shown['rows']])
    return render_template('without_clean.md', **shown, names=names, by_set=by_set)


def _tabulate_by_set(measured: pd.DataFrame, names: dict, losses: list[str]) -> list[list[str]]:
    "The gains in mAP under both choices, a column for each photo set."
    gained = measured.set_index([*Setting._fields]).gain
    lines = [['method', *DATASETS]]
    for loss in losses:
        pairs = [[gained[name, loss, choice] for choice in list(CHOICES)[:2]] for name in DATASETS]
        cells = [' / '.join(map(format_signed, pair)) for pair in pairs]
        lines.append([names[loss]['name'], *cells])
    return lines
