"""The page of `observed_choice`, and what `spml compare` reads of it."""

import json
from functools import partial
from importlib import resources
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from ...base import settings
from ...base.files import write_changed
from ...methods.core import find
from ...statistics import (
    EQUIVALENCE_MARGIN,
    Effect,
    estimate_effect,
    format_signed,
    pool_effects,
)
from .. import board, gains
from ..templates import list_cells, render_template
from .core import Experiment
from .observed_choice import (
    CHOSEN_RULE,
    COMPARED_RULES,
    DATASETS,
    EVEN,
    FILE_LABELS,
    FILE_PHOTOS,
    KEYS,
    LABELS,
    LABELS_DATASETS,
    LABELS_DRAWS,
    LABELS_METHODS,
    METHODS,
    NEGATIVE_RULES,
    RULES,
    SUITE,
    WAYS,
    average_choice_losses,
    average_over_sets,
    average_photo_choice,
    average_thresholds,
    compare_label_rules,
    compare_with_even_draw,
    count_label_losses,
    count_named_labels,
    join_label_trials,
    measure_choice_losses,
    read_trials,
)
from .observed_choice_trials import GROUP_SIZE, sweep_observed_choice

MISSING = '–'
RULE_NAMES = RULES | NEGATIVE_RULES


_NAMED = {
    f'{column}_{way}': f'{name}, {WAYS[way]}'
    for way in ('lee_liu', 'observed_f1')
    for column, name in (('named', 'labels'), ('none', '% without any'))
}
_LOST = {'right': '% right', 'lost': 'points lost', 'worst': 'points lost, worst set and seed'}


def format_observed_choice(
    trials: pd.DataFrame, photos: pd.DataFrame, label_trials: pd.DataFrame
) -> str:
    """The page, as Markdown.

    Args:
        trials, photos, label_trials: as from `read_trials()`, `read_trials(FILE_PHOTOS)` and
            `read_trials(FILE_LABELS)`.
    """
    losses = measure_choice_losses(trials)
    pick = average_choice_losses(losses, 'pick')['mean']
    complete = trials.merge(losses[['dataset', 'seed']].drop_duplicates())
    seeds = losses.groupby('dataset').seed.nunique()
    joined = join_label_trials(trials, label_trials)
    return render_template(
        'observed_choice.md',
        methods=len(METHODS),
        draws=complete.draw.nunique(),
        seeds=', '.join(f'{name} {count}' for name, count in seeds.items()),
        runs=len(complete),
        hours=complete.seconds.sum() / 3600,
        rule=RULES[CHOSEN_RULE],
        losses={
            column: _format_numbers(average_choice_losses(losses, column).rename(index=RULES), 2)
            for column in ('within', 'pick', 'correlation')
        },
        thresholds=_format_numbers(average_thresholds(complete).rename(index=WAYS), 1),
        named_labels=_format_numbers(count_named_labels(complete).rename(columns=_NAMED), 1),
        pick={
            'observed': pick[CHOSEN_RULE],
            'map': pick['observed_map'],
            'clean': pick['clean_map'],
        },
        more_by_photos=compare_photo_choice(complete, photos),
        photos=_format_numbers(average_photo_choice(photos).rename(columns=_LOST), 2),
        label_draws=format_label_draws(joined).rstrip() if len(joined) else '',
    )


def compare_photo_choice(trials: pd.DataFrame, photos: pd.DataFrame) -> dict[int, Effect]:
    """What a few fully labelled photos lose more than the observed labels of all validation photos.

    Both choose among all runs of all methods, at the same epochs, those of `CHOSEN_RULE`.

    Args:
        trials, photos: as from `read_trials()` and `read_trials(FILE_PHOTOS)`.

    Returns:
        {number of photos: points of test mAP}, means over the sets; intervals are over seeds alone.
    """
    if not len(photos):
        return {}
    lost_by_observed = {
        place: searches[f'{CHOSEN_RULE}_test'].max()
        - searches.at[searches[CHOSEN_RULE].idxmax(), f'{CHOSEN_RULE}_test']
        for place, searches in trials.groupby(['dataset', 'seed'])
    }
    more = photos.set_index(['dataset', 'seed', 'photos']).lost.unstack('photos')
    more = more.sub(pd.Series(lost_by_observed), axis=0).dropna()
    return {
        int(number): pool_effects(
            [estimate_effect(of_set.to_numpy()) for _, of_set in lost.groupby('dataset')]
        )
        for number, lost in more.items()
    }


def photos_that_choose_worse() -> int | None:
    """The largest number of fully labelled photos that surely choose worse than observed labels do.

    By the record; None if the interval of no number is above 0.
    """
    more = compare_photo_choice(read_trials(), read_trials(FILE_PHOTOS))
    return max((number for number, effect in more.items() if effect.low > 0), default=None)


def _format_numbers(table: pd.DataFrame, digits: int) -> list[list[str]]:
    return list_cells(table.map(f'{{:.{digits}f}}'.format))


def format_label_draws(trials: pd.DataFrame) -> str:
    """The section of the page about labels that are not drawn evenly, as Markdown.

    Args:
        trials: as from `join_label_trials`, of at least one set.
    """
    losses = count_label_losses(trials)
    comparisons = {
        'observed mAP / AUC': compare_label_rules(losses, 'observed_map', CHOSEN_RULE),
        'AUC / clean mAP': compare_label_rules(losses, CHOSEN_RULE, 'clean_map'),
        'AUC, even draw / this': compare_with_even_draw(losses, CHOSEN_RULE),
    }
    return render_template(
        'observed_choice_labels.md',
        methods=[board.describe_method(loss)['name'] for loss in LABELS_METHODS],
        draws=LABELS_DRAWS,
        group_size=GROUP_SIZE,
        seeds=trials.seed.nunique(),
        rule=RULES[CHOSEN_RULE],
        sets=[name for name in LABELS_DATASETS if name in set(trials.dataset)],
        kinds=_tabulate_draws(trials),
        by_chance=f'{trials.groupby("dataset").by_chance.first().mean():.0f}',
        alike=_find_unchanged_methods(trials),
        tables={column: _tabulate_losses(losses, column) for column in ('within', 'pick')},
        compared=_tabulate_comparisons(comparisons),
        intervals=sum(effects.size for effects in comparisons.values()),
        verdicts=_judge_rules(*comparisons.values()),
        largest=_find_largest_loss(losses),
        by_set=_tabulate_sets(losses),
    )


def _tabulate_draws(trials: pd.DataFrame) -> list[list[str]]:
    """Which labels each draw shows, the test mAP that methods reach with it where clean labels
    choose, and the F1 of two ways to choose a threshold.
    """
    shares = trials.groupby('labels')[['most_frequent', 'most_salient']].mean()
    shares.loc[EVEN] = shares.loc['single+3-negatives']  # the same positives
    table = shares.map('{:.0f}'.format).set_axis(['% most frequent', '% most salient'], axis=1)
    for name, rule, column in (
        ('mAP', 'clean_map', 'clean_map_test'),
        ('F1, clean', CHOSEN_RULE, 'f1_clean_f1'),
        ('F1, r²/Pr', CHOSEN_RULE, 'f1_lee_liu'),
    ):
        chosen = trials.groupby(['labels', 'dataset', 'seed', 'loss'])[rule].idxmax()
        means = trials.loc[chosen].groupby('labels')[column].mean()
        table[name] = means.map('{:.1f}'.format)
    return list_cells(table.reindex(list(LABELS)).rename(LABELS))


def _find_unchanged_methods(trials: pd.DataFrame) -> list[str]:
    "The methods whose runs are the same with sure negatives, up to rounding."
    test_map = trials.set_index(['labels', *KEYS])[[f'{rule}_test' for rule in RULES]]
    change = (test_map.loc[EVEN] - test_map.loc['single+3-negatives']).abs().max(axis=1)
    unchanged = change.groupby('loss').max() < 0.05
    return [board.describe_method(loss)['name'] for loss in LABELS_METHODS if unchanged[loss]]


def _tabulate_losses(losses: pd.DataFrame, column: str) -> list[list[str]]:
    "A row for each rule, a column for each draw: means over sets."
    points = losses.set_index(['dataset', 'seed']).groupby(['rule', 'labels'])[column]
    table = points.apply(average_over_sets).map(_format_effect).unstack()
    table = table.reindex(index=COMPARED_RULES, columns=list(LABELS)).fillna(MISSING)
    return list_cells(table.rename(index=RULE_NAMES, columns=LABELS))


def _tabulate_comparisons(comparisons: dict[str, pd.DataFrame]) -> list[list[str]]:
    "A row for each draw, two columns for each comparison."
    table = pd.concat(comparisons, axis=1).reindex(list(LABELS)).rename(LABELS)
    table = table.map(partial(_format_effect, form='+.2f'), na_action='ignore').fillna(MISSING)
    ways = {'within': 'within a method', 'pick': 'one pick'}
    return list_cells(table.set_axis([f'{name}, {ways[way]}' for name, way in table], axis=1))


def _tabulate_sets(losses: pd.DataFrame) -> list[list[str]]:
    "A row for each set and draw, a column for each rule."
    means = losses.groupby(['dataset', 'labels', 'rule'])[['within', 'pick']].mean()
    texts = means.map('{:.2f}'.format)
    table = (texts.within + ' / ' + texts.pick).unstack().reindex(columns=COMPARED_RULES)
    table = table.fillna(MISSING)
    lines = [['', 'labels', *(RULE_NAMES[rule] for rule in COMPARED_RULES)]]
    for dataset, labels in product(LABELS_DATASETS, LABELS):
        if dataset in set(losses.dataset):
            lines.append([dataset, LABELS[labels], *table.loc[dataset, labels]])
    return lines


def _format_effect(effect: Effect, form: str = '.2f') -> str:
    half = '' if np.isnan(effect.half_width) else f' ± {effect.half_width:.2f}'
    return format_signed(effect.mean, form) + half


def _find_largest_loss(losses: pd.DataFrame) -> dict:
    "The set and draw where observed AUC loses most over clean mAP within a method."
    means = losses.groupby(['rule', 'dataset', 'labels']).within.mean()
    difference = means[CHOSEN_RULE] - means['clean_map']
    dataset, labels = difference.idxmax()
    return {'set': dataset, 'draw': LABELS[labels], 'points': f'{difference.max():.2f}'}


def _judge_rules(
    over_map: pd.DataFrame, over_clean: pd.DataFrame, over_even: pd.DataFrame
) -> list[str]:
    """What the intervals decide, a sentence for each question.

    Args:
        over_map: how much more observed mAP loses than observed AUC.
        over_clean: how much more observed AUC loses than clean mAP.
        over_even: how much more observed AUC loses under the even draw than under the others.
    """
    questions = {
        'Observed AUC beside observed mAP': over_map,
        'Clean mAP beside observed AUC': over_clean,
        'Observed AUC beside itself under the even draw': over_even,
    }
    sentences = []
    for question, effects in questions.items():
        for column, how in (('within', 'within a method'), ('pick', 'by one pick')):
            draws: dict[str, list[str]] = {}
            for labels, effect in effects[column].items():
                draws.setdefault(_judge(effect), []).append(LABELS[labels])
            answers = '; '.join(f'{verdict} ({", ".join(draws[verdict])})' for verdict in draws)
            sentences.append(f'{question}, {how}: {answers}.')
    return sentences


def _judge(effect: Effect) -> str:
    "The verdict on the rule that is asked about, which loses less where the effect is positive."
    if -EQUIVALENCE_MARGIN < effect.low and effect.high < EQUIVALENCE_MARGIN:
        return f'within {EQUIVALENCE_MARGIN} points'
    if effect.low > 0:
        return 'loses less'
    return 'loses more' if effect.high < 0 else 'undecided'


def _measure_experience(measured: pd.DataFrame, trials: pd.DataFrame, photos: pd.DataFrame) -> dict:
    """What `recommendation.read_experience` reads: the mean gain of each method that was run on
    every set, its spread between sets, and what choices lose.

    Args:
        measured: as from `gains.gains_of_suites`.
        trials, photos: as from `read_trials()` and `read_trials(FILE_PHOTOS)`.
    """
    usual = measured[
        (measured.suite == SUITE)
        & (measured.baseline == gains.PLAIN_HEAD)
        & (measured.choice == 'clean')
        & (measured.labels == EVEN)
        & (measured['head'] == [find(loss).head for loss in measured.loss])
        & measured.gain.notna()
    ]
    by_loss = usual.groupby('loss').gain
    is_on_every_set = by_loss.size() == len(DATASETS)
    on_every_set = by_loss.mean()[is_on_every_set]
    spread = by_loss.std()[is_on_every_set].drop('an', errors='ignore').median()
    pick = average_choice_losses(measure_choice_losses(trials), 'pick')['mean']
    lost = average_photo_choice(photos).lost
    return {
        'methods': {loss: round(float(gain), 2) for loss, gain in on_every_set.items()}
        | {'an': 0.0},
        'sets': len(DATASETS),
        'spread': round(float(spread), 2),
        'photos': {str(n): round(float(value), 2) for n, value in lost.items()},
        'observed': round(float(pick[CHOSEN_RULE]), 2),
        'observed_map': round(float(pick['observed_map']), 2),
    }


def write_observed_choice(measured: pd.DataFrame) -> list[Path]:
    """Write `observed_choice.md` in the setting `outputs`, and `assets/experience.json` of the
    package.

    Args:
        measured: as from `gains.gains_of_suites`.

    Returns:
        The files that changed; none while the record has no complete search.
    """
    trials, photos = read_trials(), read_trials(FILE_PHOTOS)
    if not len(photos):
        return []
    page = format_observed_choice(trials, photos, read_trials(FILE_LABELS))
    experience = json.dumps(_measure_experience(measured, trials, photos), indent=1) + '\n'
    package = Path(str(resources.files('spml_nb')))
    return write_changed(
        {
            settings.get_folder('outputs') / 'observed_choice.md': page,
            package / 'assets' / 'experience.json': experience,
        }
    )


EXPERIMENT = Experiment(
    sweep_observed_choice, lambda known, measured: write_observed_choice(measured)
)
