"""What the conclusion on *Acknowledging the Unknown* reports."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from ...statistics import estimate_effect
from ...sweeps.queue import run_key
from ...sweeps.search import SUITES, Row, final_configs
from .. import ablation_arms, figure_drawing, paper_figures, published, run_measurements, tables
from ..answers import (
    Answer,
    answer_cells,
    answer_effects,
    gains_at_equal_settings,
    subtract_printed,
)
from ..experiments import thresholds
from ..published import ORIGINAL_SETS, PHOTOS_SUITE

_SETS = list(ORIGINAL_SETS)
_POOR = 5.0  # points of mAP
_SINKS = 5.0  # points of probability, as claim em_apl-maintaining asks
_SURE = 0.96  # above it are two of the fifty bins of the figure


def collect_fields(runs: pd.DataFrame) -> dict:
    """The fields of `conclusion_em_apl.md` that no other conclusion has.

    Args:
        runs: The table of record.
    """
    lem = [f'LEM / {name}' for name in _SETS]
    lines = tables.cell_lines('em_apl', '1', 'EM+APL', _SETS, runs)
    in_lac = subtract_printed('lac', ('2', 'L_EM', lem), ('2', 'L_AN', lem))
    return {
        'rerun': float(np.mean(in_lac)),
        'idle': int((lines.exercised == 0).sum()) if len(lines) else 0,
        'runs': len(lines),
        'best_epochs': lines.best_epoch.astype(int).tolist() if len(lines) else [],
        'warm_up': _stretch_warm_up(lines.epochs.iloc[0] if len(lines) else 0),
        'whole': _count_acted_on_whole_network(runs),
        'f1': _answer_f1(runs),
        'poor': _find_poorest_search_by_macro_f1(runs),
        'falls': {p['arm']: p['answer'] for p in gains_at_equal_settings('em_apl', 'fall')},
        'arms': _describe_arms(runs),
        'chance': _estimate_positive_chance(),
        'sunken': _find_sunken_positives(),
        'classes': _describe_classes(),
    }


def _answer_f1(runs: pd.DataFrame) -> dict[str, Answer]:
    """What EM gains over AN in F1: at the paper's thresholds, at one threshold that validation
    chooses, and ('by_class') in macro-F1 at one for each class.
    """
    f1 = {'by_class': _answer_by_class_thresholds() if len(runs) else Answer()}
    for average in ('micro', 'macro'):
        for name, end in (('', ''), ('_chosen', ' at the chosen threshold')):
            columns = [f'{of_set} / {average}-F1{end}' for of_set in _SETS]
            answer = answer_cells('em_apl', '7', 'EM', 'AN', columns, runs)
            between = f'{answer.places} sets' if answer.places else ''
            f1[average + name] = replace(answer, between=between)
    return f1


def _answer_by_class_thresholds() -> Answer:
    """What EM gains over AN in macro-F1 where clean validation labels choose a threshold for each
    class.
    """
    lines, resampled = thresholds.MEASUREMENTS.read()
    way = thresholds.Way(thresholds.CLEAN, thresholds.PER_CLASS)
    where = thresholds.WAYS.index(way), thresholds.METRICS.index('macro-F1')
    effects = []
    for dataset, part in lines.groupby('dataset', sort=False):
        chosen = part[(part.labels == way.labels) & (part.kind == way.kind)]
        by_loss = chosen.pivot(index='seed', columns='loss', values='macro')
        of_loss = dict(zip(thresholds.LOSSES, resampled[dataset].astype(float), strict=True))
        error = (of_loss['em'][where] - of_loss['an'][where]).std(ddof=1)
        effects.append(estimate_effect((by_loss.em - by_loss.an).to_numpy(), None, error))
    return answer_effects(effects)


def _find_poorest_search_by_macro_f1(runs: pd.DataFrame) -> dict | None:
    """Where the search by macro-F1 at one chosen threshold took the EM setting that loses most mAP
    against the search by mAP: the set and the loss in points; None if it is below `_POOR`.
    """
    if runs.empty:
        return None
    losses = {}
    for name in _SETS:
        column = f'{name} / macro-F1 at the chosen threshold'
        by_f1 = tables.cell_lines('em_apl', '7', 'EM', [column], runs)
        by_map = tables.cell_lines('em_apl', '1', 'EM', [name], runs)
        loss = by_map.test_map.mean() - by_f1.test_map.mean()
        if not math.isnan(loss):
            losses[name] = loss
    worst = max(losses, key=losses.get, default=None)
    return {'set': worst, 'loss': losses[worst]} if worst and losses[worst] >= _POOR else None


def _stretch_warm_up(epochs: float) -> dict[str, list[int]]:
    """T_w: epochs before the first pseudo-label, in the paper and in ours of so many epochs."""
    cells = published.index_cells('em_apl', '5')
    paper = [cell['mean'] for (row, _), cell in cells.items() if row == 'T_w']
    whole = published.read_paper('em_apl')['config']['epochs']
    return {
        'paper': [int(value) for value in paper],
        'ours': [math.ceil(value * epochs / whole) for value in paper],
        'of_paper': whole,
        'of_ours': int(epochs),
    }


def _count_acted_on_whole_network(runs: pd.DataFrame) -> dict[str, int]:
    """In how many runs of the whole network the epoch that was kept came after pseudo-labels."""
    suite = 'photos_finetune'
    keys = [
        run_key(config)
        for dataset in SUITES[suite]['datasets']
        for config in final_configs(Row('em_apl'), suite, dataset, runs)
    ]
    acted = runs.reindex(columns=['exercised']).reindex(keys).exercised.dropna()
    return {'acted': int((acted == 1).sum()), 'runs': len(acted)}


def _describe_arms(runs: pd.DataFrame) -> dict:
    """Of the ablation of APL: the least and the most runs of an arm in which pseudo-labels acted
    before the epoch that was kept, and the runs of each; how far EM's validation mAP falls; and the
    percentage of APL's negatives that are right by the last epoch. NaN without runs.
    """
    ablation = ablation_arms.read_ablations()['em_apl_fall']
    sets = ablation.columns.values()
    acted, planned, precision = [], [], []
    for arm in ablation.arms.values():
        keys = [
            run_key(config)
            for dataset in sets
            for config in ablation_arms.arm_configs(ablation, arm.name, dataset, runs)
        ]
        columns = ['exercised', 'pseudo_negative_precision_at_end']
        lines = runs.reindex(columns=columns).reindex(keys)
        if arm.over:
            acted.append(int((lines.exercised == 1).sum()))
            planned.append(len(lines))
        if arm.name == 'EM+APL':
            precision = lines.pseudo_negative_precision_at_end.tolist()
    falls = [ablation_arms.arm_scores(ablation, 'EM', name, runs).by_seed for name in sets]
    complete = all(map(len, falls))
    return {
        'acted': (min(acted), max(acted)),
        'runs': max(planned),
        'em_falls': np.mean([fall.mean() for fall in falls]) if complete else math.nan,
        'precision': float(np.mean(precision)) if precision else math.nan,
    }


def _estimate_positive_chance() -> float:
    """The percentage of positives among unknown labels, the mean over the sets that stand for the
    paper's: with one positive known of k among C classes, (k − 1) / (C − 1).
    """
    sets = ablation_arms.read_ablations()['em_apl_precision'].columns.values()
    photos = published.describe_photo_sets().loc[[*sets]]
    return float(100 * ((photos.positives - 1) / (photos.used - 1)).mean())


def _find_sunken_positives() -> list[str]:
    """The paper's data sets on whose photos the median probability of hidden positives under EM
    sinks from the first epoch to the last by more than `_SINKS` points, the mean over seeds.
    """
    file = paper_figures.find_arrays('em_apl', '9', PHOTOS_SUITE)
    if not file.is_file():
        return []
    collected = figure_drawing.read_figure_arrays(file)
    hidden = run_measurements.GROUPS.index('unannotated positives')
    median = run_measurements.QUANTILES.index(0.5)
    sunken = []
    for column, dataset in ORIGINAL_SETS.items():
        seeds = [
            seed['probability'][:, hidden, median] for seed in collected.of_seeds(dataset, 'EM')
        ]
        if seeds and 100 * np.mean([of_seed[-1] - of_seed[0] for of_seed in seeds]) < -_SINKS:
            sunken.append(column)
    return sunken


def _describe_classes() -> dict | None:
    """The classes of Fig. 11: how many there are, how many gain by EM, and the one that loses most:
    name, its average precision with AN and EM, and the percentage of its labels to which EM gives a
    probability of `_SURE` or more.
    """
    file = paper_figures.find_arrays('em_apl', '11', PHOTOS_SUITE)
    if not file.is_file():
        return None
    collected = figure_drawing.read_figure_arrays(file)
    seeds = collected.of_seeds('coco14', 'AN')
    an, em = (collected.summary('coco14', name, 'ap')[0] for name in ('AN', 'EM'))
    worst = int(np.argmin(em - an))
    counts = collected.summary('coco14', 'EM', 'counts')[0][worst].sum(0)
    first_bin = round(_SURE * len(counts))
    return {
        'gain': int((em > an).sum()),
        'all': len(an),
        'worst': str(seeds[0]['names'][worst]),
        'an': an[worst],
        'em': em[worst],
        'sure': 100 * counts[first_bin:].sum() / counts.sum(),
        'from': _SURE,
    }
