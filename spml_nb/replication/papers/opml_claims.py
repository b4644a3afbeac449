"""Comparisons for claims of *Pushing One Pair of Labels Apart Each Time*.

The claims themselves are in assets/claims/opml.yml.
"""

from itertools import product

import numpy as np
import pandas as pd

from ...methods.core import resolve_hparams
from ...statistics import EQUIVALENCE_MARGIN, Effect, Scores, format_signed
from .. import ablation_arms, gains, tables
from ..comparisons import SHARE, claim_above, claim_curves_above, claim_steady
from ..published import PHOTOS_SUITE, find_stand_in, index_cells
from .opml_figures import HIGH_RANK, SHARES, WEIGHTS

_FIRST_EPOCHS = 5


def _turned_negative(measured):
    "Mean share of unannotated positives below 0 after each of the first epochs, in percent."
    return float(measured['negative'][:_FIRST_EPOCHS].mean())


def _validation_drop(curve):
    return float(curve['val_map'].max() - curve['val_map'][-1])


def _share_in(bins):
    return lambda histogram: (
        100 * float(histogram['counts'][bins].sum() / histogram['counts'].sum())
    )


def _confidence(figure):
    comparisons = (
        ('above 0.8', _share_in(slice(-4, None)), ('OPML', 'BCE')),
        ('below 0.2', _share_in(slice(4)), ('BCE', 'OPML')),
    )
    places = []
    for dataset in ('voc12', 'cub'):
        for what, quantity, order in comparisons:
            sides = (figure(dataset, name, quantity, metric=SHARE) for name in order)
            places.append(claim_above(f'{dataset}, {what}', *sides))
    return places


def _weights(runs):
    "{data set: (scores of the weights 1e-6 to 1e-4, score of the largest weight)}."
    settings = [{'hparams': {**HIGH_RANK, 'rank_weight': weight}} for weight in WEIGHTS]
    by_dataset = {}
    for dataset in ('voc12', 'cub'):
        scores = runs(*settings, dataset=dataset, loss='opml_sp', labels='single').values()
        names = [f'λ = {weight:g}' for weight in WEIGHTS]
        named = list(zip(names, scores, strict=True))
        by_dataset[dataset] = dict(named[:3]), dict(named[-1:])
    return by_dataset


def _validation_map(arrays):
    return float(arrays['val_map'])


def _test_map(arrays):
    return float(arrays['test_map'])


def _constants(figure):
    "The pair with the highest mean validation mAP above the pair that is ZLPR."
    pairs = {f'α = {a}, β = {b}': ('OPML', a, b) for a, b in product(SHARES, SHARES)}
    places = []
    for dataset in ('voc12', 'cub'):
        validation = figure(dataset, pairs, _validation_map)
        means = {
            name: np.mean([*number.seeds.values()] or [0]) for name, number in validation.items()
        }
        chosen = max(means, key=means.get)
        sides = (
            figure(
                dataset, {name: pairs[name]}, _test_map, tested=find_stand_in(dataset, PHOTOS_SUITE)
            )
            for name in (chosen, 'α = 0.5, β = 0.5')
        )
        places.append(claim_above(f'{dataset}, mAP', *sides))
    return places


def measure_level_changes(arm: str, runs: pd.DataFrame) -> dict[str, list[Effect]]:
    """What an arm changes in the validation mAP of OPML in long training.

    Args:
        arm: Of the ablation `opml_fall`.
        runs: The table of record.

    Returns:
        {'best': effects at the best epoch, 'last': at the last}, one effect for each set of photos
        where both have two seeds.
    """
    ablation = ablation_arms.read_ablations()['opml_fall']
    effects = {'best': [], 'last': []}
    for dataset in ablation.columns.values():
        own, base = (
            ablation_arms.arm_lines(ablation_arms.arm_configs(ablation, name, dataset, runs), runs)
            for name in (arm, 'OPML')
        )
        for epoch, column in (('best', 'val_map'), ('last', 'val_map_at_end')):
            scores = (Scores(lines[column].dropna(), metric='') for lines in (own, base))
            effect = gains.estimate_gain(*scores)
            if effect.seeds > 1:
                effects[epoch].append(effect)
    return effects


def _mean_change(effects: list[Effect]) -> str:
    return format_signed(float(np.mean([effect.mean for effect in effects])))


def _note_on_fall(runs: pd.DataFrame) -> str:
    text = (
        "The text does not say on which images the figure's mAP is measured; validation images are "
        'taken, from the best epoch to the last, at one rate and with λ = 0.01, the smallest power '
        'of ten at which high rank is at least a tenth of the gradient. The curves of the figure '
        'have a rate each.'
    )
    changes = {
        weight: measure_level_changes(f'high rank, λ = {weight}', runs) for weight in (0.01, 0.001)
    }
    if not all(effects for of_arm in changes.values() for effects in of_arm.values()):
        return text
    levels = [
        f'{_mean_change(of_arm["best"])} at the best epoch and {_mean_change(of_arm["last"])} at '
        f'the last with λ = {weight}'
        for weight, of_arm in changes.items()
    ]
    return (
        f'{text} A fall is short, too, if the mAP is low from the start: high rank changes it by '
        f'{", by ".join(levels)}.'
    )


def _note_on_fall_of_bce(runs: pd.DataFrame) -> str:
    text = (
        'Read from the curves of the figure, which have a rate each; OPML with high rank has α, β '
        'and λ of a search as well. So it says nothing of high rank itself.'
    )
    cells = index_cells('opml', 'IV')
    chosen = {
        column: tables.plan_cell(cells['OPML + high rank', column], PHOTOS_SUITE).choose(runs)
        for column in ('VOC', 'CUB')
    }
    if None in chosen.values():
        return text
    weights = [
        f'{resolve_hparams(run.loss, run.dataset, run.hparams)["rank_weight"]:.1g} on {column}'
        for column, run in chosen.items()
    ]
    return f'{text} The search chose λ = {", ".join(weights)}.'


COMPARE = {
    'opml-constants': _constants,
    'opml-slower': claim_curves_above(
        ('voc12', 'coco14', 'nus', 'cub'),
        'unannotated positives below 0',
        ('BCE', 'OPML'),
        _turned_negative,
        metric=SHARE,
    ),
    'opml-stable-bce': claim_curves_above(
        ('voc12', 'cub'), 'validation drop', ('BCE', 'OPML + high rank'), _validation_drop
    ),
    'opml-confidence': _confidence,
    'opml-weight': lambda runs: [
        claim_steady(f'{dataset}, mAP', low, within=EQUIVALENCE_MARGIN)
        for dataset, (low, _) in _weights(runs).items()
    ],
    'opml-weight-falls': lambda runs: [
        claim_above(f'{dataset}, mAP', low, high) for dataset, (low, high) in _weights(runs).items()
    ],
}
NOTES = {
    'opml-stable': _note_on_fall,
    'opml-stable-bce': _note_on_fall_of_bce,
}
