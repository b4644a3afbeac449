"""What a method gains over AN where no clean label chooses settings, epoch or threshold."""

# The boards choose settings and epoch on fully labelled validation photos, as the papers do. Who
# has none chooses by the observed labels, AN as well as the method, and names labels above a
# threshold that is chosen the same way. The runs are those of `observed_choice`: eight methods, a
# whole search for each of three draws of the observed labels. They are the searches themselves, no
# runs with fresh seeds, under either choice.

from typing import NamedTuple

import pandas as pd

from ..methods.core import find
from ..statistics import Effect, Scores, format_signed, pool_effects
from . import board, gains
from .experiments import observed_choice
from .experiments.observed_choice import CHOSEN_RULE, DATASETS, METHODS
from .rendering import render_template

# {name: (rule that chooses settings and epoch, column of the score)}
CHOICES = {
    'mAP, clean labels': ('clean_map', 'clean_map_test'),
    'mAP, observed labels': (CHOSEN_RULE, f'{CHOSEN_RULE}_test'),
    # epoch and settings by observed labels in both
    'micro-F1, clean labels': (CHOSEN_RULE, 'f1_clean_f1'),
    'micro-F1, observed labels': (CHOSEN_RULE, 'f1_lee_liu'),
}


class Place(NamedTuple):
    """A method on a set of photos, under one of `CHOICES`."""

    dataset: str
    loss: str
    choice: str


def measure(lines: pd.DataFrame) -> pd.DataFrame:
    """The gains over AN that is chosen in the same way.

    Args:
        lines: as from `observed_choice.read_trials`; a set of photos and a seed count when every
            method has its whole search.

    Returns:
        DataFrame as from `gains.gains_over_baselines`, one row per `Place`; intervals of mAP are
        over seeds and test images, those of micro-F1 over seeds alone.
    """
    scores = _score_choices(lines)
    an = {place: scores[place._replace(loss='an')] for place in scores if place.loss != 'an'}
    measured = gains.gains_over_baselines(scores, {gains.PLAIN_HEAD: an})
    return measured[measured.loss != 'an'] if len(measured) else measured


def _score_choices(lines: pd.DataFrame) -> dict[Place, Scores]:
    searches = lines.groupby(['dataset', 'seed'])
    whole = searches.loss.transform('nunique').eq(len(METHODS))
    whole &= searches.loss.transform('size').eq(len(METHODS) * lines.draw.nunique())
    lines = lines[whole]
    scores = {}
    for choice, (rule, column) in CHOICES.items():
        chosen = lines.loc[lines.groupby(['dataset', 'loss', 'seed'])[rule].idxmax()]
        for (dataset, loss), runs in chosen.groupby(['dataset', 'loss']):
            tested = dataset if choice.startswith('mAP') else ''
            by_seed = runs.set_index('seed')[column]
            scores[Place(dataset, loss, choice)] = Scores(by_seed, dataset=tested)
    return scores


def measure_loss_of_an(lines: pd.DataFrame) -> Effect:
    """By how much the mAP of AN changes where observed labels choose its settings and epoch in
    place of clean ones: the mean over the sets of photos.

    Args:
        lines: as in `measure`.
    """
    scores = _score_choices(lines)
    clean, observed = list(CHOICES)[:2]
    changes = [
        gains.estimate_gain(scores[Place(name, 'an', observed)], scores[Place(name, 'an', clean)])
        for name in DATASETS
    ]
    return pool_effects(changes)


def average(measured: pd.DataFrame) -> pd.DataFrame:
    """The mean over the sets of photos.

    Args:
        measured: as from `measure`.

    Returns:
        DataFrame of `Effect`s, a row a method, a column for each of `CHOICES`, the highest gain in
        mAP by observed labels first; without what lacks a set or has one seed.
    """
    effects: dict[str, dict[str, Effect]] = {}
    for (loss, choice), places in measured.groupby(['loss', 'choice']):
        if set(places.dataset) == set(DATASETS) and places.n.min() > 1:
            effects.setdefault(loss, {})[choice] = pool_effects(list(places.effect))
    table = pd.DataFrame.from_dict(effects, orient='index').reindex(columns=list(CHOICES))
    order = table['mAP, observed labels'].map(lambda effect: -effect.mean)
    return table.loc[order.sort_values(kind='stable').index]


def of_record() -> dict:
    """What pages show.

    Returns: {'rows': [{'loss', 'effects' (one a choice)}], 'an' (as from `measure_loss_of_an`),
        'choices', 'sets' and 'seeds'}; no row, and None for AN, while a set of photos lacks its
        runs.
    """
    lines = observed_choice.read_trials()
    rows, an = [], None
    if set(lines.dataset) == set(DATASETS):
        an = measure_loss_of_an(lines)
        rows = [
            {'loss': loss, 'effects': list(effects)}
            for loss, *effects in average(measure(lines)).itertuples()
        ]
    seeds = lines.seed.nunique()
    about = {'choices': [*CHOICES], 'sets': len(DATASETS), 'seeds': seeds}
    return {'rows': rows, 'an': an, **about}


def markdown() -> str:
    """The page, '' while a set of photos lacks its runs."""
    shown = of_record()
    if not shown['rows']:
        return ''
    names = {loss: board.describe_method(loss) | {'head': find(loss).head} for loss in METHODS}
    by_set = _by_set(
        measure(observed_choice.read_trials()), names, [row['loss'] for row in shown['rows']]
    )
    return render_template('without_clean.md', **shown, names=names, by_set=by_set)


def _by_set(measured: pd.DataFrame, names: dict, losses: list[str]) -> list[list[str]]:
    "The gains in mAP by both choices, a column for each set of photos."
    gained = measured.set_index([*Place._fields]).gain
    lines = [['method', *DATASETS]]
    for loss in losses:
        pairs = [[gained[name, loss, choice] for choice in list(CHOICES)[:2]] for name in DATASETS]
        cells = [' / '.join(map(format_signed, pair)) for pair in pairs]
        lines.append([names[loss]['name'], *cells])
    return lines
