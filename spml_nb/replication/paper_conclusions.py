"""The conclusion on each paper, and the map from its sections to this project."""

# A conclusion says what held, why, what was difficult, and what to take from it. The texts are in
# `assets/templates/conclusion_PAPER.md`; every number comes from the record. The map says where
# each section of the paper is, or why it is not.

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.resources import files
from urllib.parse import quote

import numpy as np
import pandas as pd
import yaml
from safetensors.numpy import load as load_tensors

from ..base import settings
from ..base.errors import require_one_of
from ..base.files import markdown_table
from ..methods.core import resolve_hparams
from ..statistics import (
    COMPARED,
    EQUIVALENCE_MARGIN,
    Effect,
    Scores,
    estimate_effect,
    format_signed,
    pool_effects,
)
from ..sweeps.queue import run_key
from ..sweeps.search import SUITES, Row, final_configs, search_space
from . import (
    ablation_arms,
    figure_drawing,
    gains,
    paper_figures,
    published,
    run_measurements,
    tables,
)
from .experiments import budget, thresholds, two_steps
from .papers import opml_claims, two_way_claims
from .published import PHOTOS_SUITE, UNCOUNTED
from .templates import render_template


@dataclass(frozen=True)
class Answer:
    """The answer of our runs to a question, in points; above 0 is yes.

    Attributes:
        mean, low, high: Mean over the places with its 95 % interval; NaN without two seeds.
        published: The same in the paper's numbers, NaN if not printed.
        measured, printed: The values to show for mean and published if these are distances from a
            bound; NaN if they are the same.
        mixed: Whether the paper compares rows of several sources.
        size: Ours beside the paper's: one of `statistics.COMPARED`, or ''.
        there: Our mean on the sets that stand for the paper's, NaN if these are all.
        between: The comparison that decides, where there are several, or the sets of photos if
            some are missing.
        places: Number of places.
        opposite: Number of places that significantly contradict the mean.
        state: Why there is no mean.
        in_points: Whether in points, of which half a one is a small difference.
    """

    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    published: float = math.nan
    measured: float = math.nan
    printed: float = math.nan
    mixed: bool = False
    size: str = ''
    there: float = math.nan
    between: str = ''
    places: int = 0
    opposite: int = 0
    state: str = 'not run'
    in_points: bool = True

    @property
    def word(self) -> str:
        """'yes', 'no on average (yes on 1 of 4)', 'open', 'less than 0.5 apart'."""
        if math.isnan(self.mean):
            return self.state
        has_margin = self.in_points and math.isnan(self.measured)
        if has_margin and -EQUIVALENCE_MARGIN < self.low and self.high < EQUIVALENCE_MARGIN:
            return f'less than {EQUIVALENCE_MARGIN:g} apart'
        if not (self.low > 0 or self.high < 0):
            return 'open'
        words = ('yes', 'no') if self.low > 0 else ('no', 'yes')
        if not self.opposite:
            return words[0]
        return f'{words[0]} on average ({words[1]} on {self.opposite} of {self.places})'

    @property
    def ours(self) -> str:
        """'+1.9 ± 0.7'"""
        if math.isnan(self.mean):
            return self.state
        half = '' if math.isnan(self.low) else f' ± {self._half:.1f}'
        return format_signed(self._measured) + half

    @property
    def theirs(self) -> str:
        """The paper's number: '+4.1', '+3.2†', '–'."""
        if math.isnan(self.published):
            return '–'
        return format_signed(self._printed) + (UNCOUNTED if self.mixed else '')

    @property
    def _half(self) -> float:
        return (self.high - self.low) / 2

    @property
    def _measured(self) -> float:
        return self.mean if math.isnan(self.measured) else self.measured

    @property
    def _printed(self) -> float:
        return self.published if math.isnan(self.printed) else self.printed


def answer_claim(checked: pd.DataFrame, claim: str, in_points: bool = True) -> Answer:
    """The answer to a claim.

    Args:
        checked: As from `claims.report_claims`.
        claim: Its id.
        in_points: As in `Answer`.

    Raises:
        SpmlError: For a claim that is not among them.
    """
    by_id = checked.set_index('id')
    claim_line, *places = json.loads(by_id.forest[require_one_of(claim, by_id.index, 'claim')])
    numbers = {name: math.nan if v is None else v for name, v in claim_line.items()}
    bounded = numbers['bounded']
    opposite = sum(
        place['low'] is not None and _contradicts(place['low'], place['high'], numbers['mean'])
        for place in places
    )
    return Answer(
        mean=numbers['mean'],
        low=numbers['low'],
        high=numbers['high'],
        published=numbers['published'],
        measured=numbers['mean_told'] if bounded else math.nan,
        printed=numbers['published_told'] if bounded else math.nan,
        mixed=numbers['mixed'],
        size=numbers['size'] if numbers['size'] in COMPARED else '',
        there=numbers['comparable'],
        between=numbers['between'],
        places=len(places),
        opposite=opposite,
        state=numbers['word'],
        in_points=in_points,
    )


def _contradicts(low: float, high: float, mean: float) -> bool:
    return high < 0 < mean or low > 0 > mean


def answer_effects(effects: list[Effect]) -> Answer:
    """The answer of effects on several photo sets, each of two seeds or more."""
    if not effects:
        return Answer()
    mean = pool_effects(effects)
    opposite = sum(_contradicts(effect.low, effect.high, mean.mean) for effect in effects)
    return Answer(mean.mean, mean.low, mean.high, places=len(effects), opposite=opposite)


def answer_gain(runs: pd.DataFrame, method: Row, base: Row, metric: str = 'mAP') -> Answer:
    """The gain of a method over another, on the photo sets where both have runs in which their
    mechanisms acted.

    Args:
        runs: The table of record.
        method, base: Rows of the boards.
        metric: One of `published.METRICS`.
    """
    datasets = SUITES[PHOTOS_SUITE]['datasets']
    effects = []
    for dataset in datasets:
        configs = [final_configs(row, PHOTOS_SUITE, dataset, runs) for row in (method, base)]
        if all(gains.mechanism_acted_in(of_row, runs) for of_row in configs):
            scores = [tables.read_measures(of_row, metric, runs) for of_row in configs]
            effects.append(gains.estimate_gain(*scores))
    effects = [effect for effect in effects if effect.seeds > 1]
    return replace(
        answer_effects(effects),
        between='' if len(effects) in (0, len(datasets)) else f'{len(effects)} sets',
    )


def answer_cells(
    paper: str, number: str, row: str, base: str, columns: list[str], runs: pd.DataFrame
) -> Answer:
    """The gain of a row of a table over another, in the columns where both have runs.

    Args:
        paper, number: As in `published.index_cells`.
        row, base: Rows of the table.
        runs: The table of record.
    """
    cells = published.index_cells(paper, number)

    def scores(cell: dict) -> Scores:
        configs = tables.cell_final_runs(tables.plan_cell(cell, PHOTOS_SUITE), runs)
        return tables.read_measures(configs, cell['metric'], runs)

    effects = [
        gains.estimate_gain(scores(cells[row, column]), scores(cells[base, column]))
        for column in columns
    ]
    return answer_effects([effect for effect in effects if effect.seeds > 1])


def gains_at_equal_settings(paper: str, measured: str = 'parts') -> list[dict]:
    """The mean gain from each part of a method where nothing else differs.

    Args:
        paper: One of `published.list_papers()`.
        measured: End of the ablation's id: 'parts' for test mAP, 'fall' for OPML's fall of
            validation mAP.

    Returns:
        A dict for each arm of the ablation in `outputs/ablations.csv`: arm, over (the arm it is
        compared with), answer, and acted and may_act (runs in which a part that begins later had
        begun, of how many; 0 for other parts); empty without the file.
    """
    file = settings.get_folder('outputs') / 'ablations.csv'
    if not file.is_file():
        return []
    lines = pd.read_csv(file)
    lines = lines[(lines.ablation == f'{paper}_{measured}') & (lines.column == 'mean')]
    return [
        {
            'arm': line.arm,
            'over': line.over,
            'answer': Answer(
                line.gain,
                line.gain - line.gain_half,
                line.gain + line.gain_half,
                published=line.published,
            ),
            'acted': getattr(line, 'acted', 0),
            'may_act': getattr(line, 'may_act', 0),
        }
        for line in lines.itertuples()
    ]


def _printed_gaps(
    paper: str, first: tuple[str, str, list], second: tuple[str, str, list]
) -> list[float]:
    """Differences of published numbers, each given as (table, row, columns)."""
    printed = []
    for table, row, columns in (first, second):
        cells = published.index_cells(paper, table)
        printed.append([cells[row, column]['mean'] for column in columns])
    return np.subtract(*printed).round(4).tolist()


def _hml(runs: pd.DataFrame) -> dict:
    voc = ['Single Positive Labels / VOC12']
    return {
        'leads': _hml_leads(runs),
        'learnt': {
            name: _hml_learnt_over_fixed(ablation, runs)
            for name, ablation in (('single', 'hml_adaptive'), ('full', 'hml_adaptive_full'))
        },
        'margin': replace(
            answer_cells('hml', '5', 'Positives & Negatives', 'No Margin', ['mAP'], runs),
            published=_printed_gaps(
                'hml', ('5', 'Positives & Negatives', ['mAP']), ('5', 'No Margin', ['mAP'])
            )[0],
        ),
        'printed_head': _printed_gaps('hml', ('5', 'No Margin', ['mAP']), ('4', 'neither', voc))[0],
        'shipped': _hml_shipped(),
        'by_searches': _hml_by_searches(runs),
    }


def _hml_leads(runs: pd.DataFrame) -> list[dict]:
    """HML's lead over the best rival of each data set of Table 2.

    Returns:
        A dict for each: name, rival and printed (the paper's best rival, and the lead), ours_over
        and answer (ours), own (how far the paper's own AN is above the one that Table 2 quotes),
        of_set_up (whether that is more than the lead).
    """
    cells = published.index_cells('hml', '2')
    leads = []
    for name in ('VOC12', 'COCO', 'CUB', 'NUS'):
        hml = cells['HML (Ours)', name]['mean']
        printed = {rival: hml - cells[rival, name]['mean'] for rival in _HML_RIVALS}
        rival = min(printed, key=printed.get)
        answers = {
            rival: answer_cells('hml', '2', 'HML (Ours)', rival, [name], runs)
            for rival in _HML_RIVALS
        }
        ours = min(answers, key=lambda rival: answers[rival].mean)
        column = f'Single Positive Labels / {name}'
        [own] = _printed_gaps('hml', ('4', 'neither', [column]), ('2', 'AN', [name]))
        leads.append(
            {
                'name': name,
                'rival': rival,
                'printed': printed[rival],
                'ours_over': ours,
                'answer': answers[ours],
                'own': own,
                'of_set_up': printed[rival] < own,
            }
        )
    return leads


_HML_RIVALS = ('AN', 'LS', 'WAN', 'EPR', 'ROLE')


def _hml_learnt_over_fixed(ablation: str, runs: pd.DataFrame) -> Answer:
    "What learning scale and margin adds at equal settings, beside the paper's Table 4."
    arms = ablation_arms.read_ablations()[ablation]
    effects = []
    for dataset in arms.columns.values():
        learnt, fixed = (
            ablation_arms.arm_scores(arms, arm, dataset, runs) for arm in ('HL + AL', 'HL')
        )
        effects.append(gains.estimate_gain(learnt, fixed))
    columns = [*arms.columns]
    printed = _printed_gaps('hml', ('4', 'HL + AL', columns), ('4', 'HL', columns))
    answer = answer_effects([effect for effect in effects if effect.seeds > 1])
    return replace(answer, published=float(np.mean(printed)))


def _hml_shipped() -> dict[str, list[float]]:
    """{'start', 'scales', 'margins'}: where scale and margin of the models in `assets/weights`
    start, and where they end.
    """
    folders = [*(files('spml_nb') / 'assets' / 'weights').iterdir()]
    about = [json.loads((folder / 'config.json').read_text())['description'] for folder in folders]
    learnt = [load_tensors((folder / 'model.safetensors').read_bytes()) for folder in folders]
    starts = {(one['hparams']['scale'], one['hparams']['margin']) for one in about}
    return {
        'start': starts.pop() if len(starts) == 1 else (),
        **{f'{name}s': [float(one[f'method.{name}']) for one in learnt] for name in _LEARNT},
    }


_LEARNT = ('scale', 'margin')


def _hml_by_searches(runs: pd.DataFrame) -> dict:
    """On the photos that stand for VOC12, what AN changes by if three searches choose its settings,
    and HML's gain over AN where one search and where three choose; empty without these runs.
    """
    dataset, _ = published.STAND_INS['voc12']
    scores = {}
    for searches in (1, len(budget.SEEDS)):
        planned = budget.plan_finals(runs, [dataset], searches)
        scores |= gains.collect_scores(planned, budget.Choice)

    def effect(first: tuple, second: tuple) -> Effect:
        one, other = (
            scores.get(budget.Choice(dataset, *of_row), gains.NO_SCORES)
            for of_row in (first, second)
        )
        return gains.estimate_gain(one, other)

    an, hml = ('an', 'linear'), ('hml', 'cosine')
    most = len(budget.SEEDS)
    effects = {
        'an': effect((*an, most), (*an, 1)),
        'by_one': effect((*hml, 1), (*an, 1)),
        'by_all': effect((*hml, most), (*an, most)),
    }
    if any(effect.seeds < 2 for effect in effects.values()):
        return {}
    return {name: answer_effects([effect]) for name, effect in effects.items()}


_OPML_SETS = ['VOC', 'COCO', 'NUS', 'CUB']


def _opml(runs: pd.DataFrame) -> dict:
    over_bce = {
        loss: {
            'printed': _printed_gaps('opml', ('III', loss, _OPML_SETS), ('III', 'BCE', _OPML_SETS)),
            'ours': answer_cells('opml', 'III', loss, 'BCE', _OPML_SETS, runs),
        }
        for loss in ('ZLPR', 'Focal', 'ASL')
    }
    falls = {part['arm']: part['answer'] for part in gains_at_equal_settings('opml', 'fall')}
    fall = falls.get('high rank, λ = 0.001', Answer())
    changes = opml_claims.measure_level_changes('high rank, λ = 0.01', runs)
    return {
        # above 0 where high rank shortened the fall
        'shortened': replace(fall, mean=-fall.mean, low=-fall.high, high=-fall.low),
        # taking high rank away from all parts together has the same sign
        'shortened_beside_others': falls.get('without high rank', Answer()),
        'level': {epoch: answer_effects(effects) for epoch, effects in changes.items()},
        'over_bce': over_bce,
        'all_smaller': all(
            of_loss['ours'].high < np.mean(of_loss['printed']) for of_loss in over_bce.values()
        ),
        'margins': _opml_printed_margins(),
        **_opml_constants(runs),
    }


def _opml_printed_margins() -> list[float]:
    "How far OPML-SP is above the best other method with single positives in the paper's Table II."
    cells = published.index_cells('opml', 'II')
    margins = []
    for name in _OPML_SETS:
        means = {
            row: cell['mean']
            for (row, column), cell in cells.items()
            if column == name and row.startswith('1 P. & 0 N.')
        }
        own = means.pop('1 P. & 0 N. / OPML-SP (Ours)')
        margins.append(own - max(means.values()))
    return margins


def _opml_constants(runs: pd.DataFrame) -> dict:
    """The product of the constants that OPML's search chose for each column of Table III, and on
    how many columns it chose another rate than that of ZLPR.
    """
    cells = published.index_cells('opml', 'III')
    products, other_rates = [], 0
    for name in _OPML_SETS:
        opml, zlpr = (
            tables.plan_cell(cells[loss, name], PHOTOS_SUITE).choose(runs)
            for loss in ('OPML', 'ZLPR')
        )
        if opml and zlpr:
            shares = resolve_hparams(opml.loss, opml.dataset, opml.hparams)
            # run under the name of ZLPR, it has no constants: both are 1
            odds = [shares.get(share, 0.5) for share in ('alpha', 'beta')]
            products.append(math.prod(share / (1 - share) for share in odds))
            other_rates += opml.lr != zlpr.lr
    return {'products': products, 'other_rates': other_rates}


def _lac(runs: pd.DataFrame) -> dict:
    sets = ['VOC', 'COCO', 'NUS', 'CUB']
    lem, resnet = ([f'{network} / {name}' for name in sets] for network in ('LEM', 'ResNet-50'))
    cells = published.index_cells('lac', '2')
    over_plain = _lac_over_plain(runs)
    finals = _lac_final_lines(runs)
    return {
        'lem': _printed_gaps('lac', ('2', 'L_AN', lem), ('2', 'L_AN', resnet)),
        'lem_mixed': len({cells['L_AN', column]['source'] for column in lem + resnet}) > 1,
        'higher': sum(effect.mean > 0 for effect in over_plain),
        'idle': gains.count_stage_2_starts(finals),
        'runs': len(finals),
        'constants': len(search_space('lac')),
        'own_settings': _lac_stages_at_own_settings(runs),
        'first_searched': _lac_first_stage_searched(runs),
        'in_two_steps': _lac_in_two_steps(runs),
    }


def _lac_over_plain(runs: pd.DataFrame) -> list[Effect]:
    "Gain of LAC over AN on a linear head, on each photo set of the suite with runs of both."
    effects = [
        gains.estimate_gain(*(_final_scores(row, dataset, runs) for row in (two_steps.LAC, _PLAIN)))
        for dataset in SUITES[PHOTOS_SUITE]['datasets']
    ]
    return [effect for effect in effects if effect.seeds > 1]


def _lac_final_lines(runs: pd.DataFrame) -> pd.DataFrame:
    "The lines of LAC's final runs on all photo sets of the suite."
    configs = [
        config
        for dataset in SUITES[PHOTOS_SUITE]['datasets']
        for config in final_configs(two_steps.LAC, PHOTOS_SUITE, dataset, runs)
    ]
    return runs[runs.index.isin([run_key(config) for config in configs])]


def _lac_stages_at_own_settings(runs: pd.DataFrame) -> dict[str, Answer]:
    "{column of Table 3: gain of two stages over end to end, at the settings of LAC's search}."
    end_to_end = 'AN + PLC + LAC'
    answers = {
        column: answer_cells('lac', '3', f'{end_to_end} + two-stage', end_to_end, [column], runs)
        for column in _lac_parts().columns
    }
    return {column: answer for column, answer in answers.items() if answer.places}


def _lac_first_stage_searched(runs: pd.DataFrame) -> dict[str, Effect]:
    "{column of Table 3: gain of LAC by the rate and δ of AN + PLC's search over its own search}."
    ablation = _lac_parts()
    effects = {}
    for column, dataset in ablation.columns.items():
        first_searched = ablation_arms.arm_scores(ablation, 'queue', dataset, runs)
        effect = gains.estimate_gain(first_searched, _final_scores(two_steps.LAC, dataset, runs))
        if effect.seeds > 1:
            effects[column] = effect
    return effects


def _lac_in_two_steps(runs: pd.DataFrame) -> dict:
    """What the second search of LAC has chosen.

    Returns:
        {} without runs, else sets (names of the photo sets), again (those where it chose the
        settings of the arm 'queue', so that the runs are the same), changed ({name of another:
        gain over LAC searched in one step}), same_head and plain (gains over AN on two heads, mean
        over the sets), own_rates (number of sets with a rate of its own for the second stage).
    """
    scores = two_steps.two_step_scores(runs)
    if not scores:
        return {}
    ablation = _lac_parts()
    columns = {ours: name for name, ours in ablation.columns.items()}
    names = {dataset: columns.get(dataset, published.DATASET_NAMES[dataset]) for dataset in scores}
    finals = {
        place.dataset: configs
        for place, configs in two_steps.plan_finals(runs, list(scores)).items()
    }
    again = [
        dataset
        for dataset, configs in finals.items()
        if set(map(run_key, configs))
        == set(map(run_key, ablation_arms.arm_configs(ablation, 'queue', dataset, runs)))
    ]

    def gain_over(base: Row, dataset: str) -> Effect:
        return gains.estimate_gain(scores[dataset], _final_scores(base, dataset, runs))

    def mean_gain_over(base: Row) -> Answer:
        effects = [gain_over(base, dataset) for dataset in scores]
        return answer_effects([effect for effect in effects if effect.seeds > 1])

    return {
        'sets': [*names.values()],
        'again': [names[dataset] for dataset in again],
        'changed': {
            names[dataset]: gain_over(two_steps.LAC, dataset)
            for dataset in scores
            if dataset not in again
        },
        'same_head': mean_gain_over(Row('an', 'labelwise')),
        'plain': mean_gain_over(_PLAIN),
        'own_rates': sum(configs[0].stage2_lr is not None for configs in finals.values()),
    }


_PLAIN = Row('an', 'linear')


def _final_scores(row: Row, dataset: str, runs: pd.DataFrame) -> Scores:
    "Test mAP of the final runs of a row on a photo set of the suite."
    configs = final_configs(row, PHOTOS_SUITE, dataset, runs)
    return tables.read_measures(configs, 'mAP', runs)


def _lac_parts() -> ablation_arms.Ablation:
    return ablation_arms.read_ablations()['lac_parts']


def _two_way(runs: pd.DataFrame) -> dict:
    cells = published.index_cells('two_way', '7').values()
    of_paper = {cell['dataset'] for cell in cells if not cell['added']}
    plans = [(cell['dataset'], tables.plan_cell(cell, PHOTOS_SUITE)) for cell in cells]
    searched = {dataset: plan.search[0] for dataset, plan in plans if plan.search}
    config = next(iter(searched.values()))
    rivals = {'softmax': 'Softmax', 'weighted BCE': 'BCE', 'focal loss': 'Focal', 'ASL': 'ASL'}
    lost = [
        cell
        for number in published.table_numbers('two_way')
        for cell in published.index_cells('two_way', number).values()
        if cell['lost']
    ]
    return {
        'epochs': config.epochs,
        'leads': {name: _two_way_leads('Ours', row, runs) for name, row in rivals.items()},
        'over_plain': {
            name: _two_way_leads(row, 'plain BCE', runs)
            for name, row in two_way_claims.BESIDE_PLAIN_BCE.items()
        },
        'sets': len(of_paper),
        'fillable': len(of_paper & set(searched)),
        'lost': len(lost),
    }


def _two_way_leads(loss: str, rival: str, runs: pd.DataFrame) -> list[Answer]:
    "The lead of a row of Table 7 over another in mAP over classes and over samples."
    return [
        answer_effects(two_way_claims.estimate_leads(loss, rival, measure, runs))
        for measure in ('mAP@class', 'mAP@sample')
    ]


def _em_apl(runs: pd.DataFrame) -> dict:
    sets = ['VOC', 'COCO', 'NUS', 'CUB']
    lem = [f'LEM / {name}' for name in sets]
    lines = tables.cell_lines('em_apl', '1', 'EM+APL', sets, runs) if len(runs) else runs
    in_lac = _printed_gaps('lac', ('2', 'L_EM', lem), ('2', 'L_AN', lem))
    return {
        'rerun': float(np.mean(in_lac)),
        'idle': int((lines.exercised == 0).sum()) if len(lines) else 0,
        'runs': len(lines),
        'best_epochs': lines.best_epoch.astype(int).tolist() if len(lines) else [],
        'warm_up': _em_apl_warm_up(lines.epochs.iloc[0] if len(lines) else 0),
        'whole': _em_apl_on_whole_network(runs),
        'f1': _em_apl_f1(sets, runs),
        'poor': _poorest_search_by_macro_f1(sets, runs),
        'falls': {p['arm']: p['answer'] for p in gains_at_equal_settings('em_apl', 'fall')},
        'arms': _em_apl_arms(runs),
        'chance': _positive_chance(),
        'sunken': _sunken_positives(),
        'classes': _classes_by_em(),
    }


def _em_apl_f1(sets: list[str], runs: pd.DataFrame) -> dict[str, Answer]:
    """What EM gains over AN in F1: at the paper's thresholds, at one threshold that validation
    chooses, and ('by_class') in macro-F1 at one for each class.
    """
    f1 = {'by_class': _gain_by_class_thresholds('macro-F1') if len(runs) else Answer()}
    for average in ('micro', 'macro'):
        for name, end in (('', ''), ('_chosen', ' at the chosen threshold')):
            columns = [f'{of_set} / {average}-F1{end}' for of_set in sets]
            answer = answer_cells('em_apl', '7', 'EM', 'AN', columns, runs)
            between = f'{answer.places} sets' if answer.places else ''
            f1[average + name] = replace(answer, between=between)
    return f1


def _gain_by_class_thresholds(metric: str) -> Answer:
    """What EM gains over AN where clean validation labels choose a threshold for each class.

    Args:
        metric: One of `thresholds.METRICS`.
    """
    lines, resampled = thresholds.MEASUREMENTS.read()
    way = thresholds.Way(thresholds.CLEAN, thresholds.PER_CLASS)
    where = thresholds.WAYS.index(way), thresholds.METRICS.index(metric)
    effects = []
    for dataset, part in lines.groupby('dataset', sort=False):
        chosen = part[(part.labels == way.labels) & (part.kind == way.kind)]
        by_loss = chosen.pivot(index='seed', columns='loss', values=metric.removesuffix('-F1'))
        of_loss = dict(zip(thresholds.LOSSES, resampled[dataset].astype(float), strict=True))
        error = (of_loss['em'][where] - of_loss['an'][where]).std(ddof=1)
        effects.append(estimate_effect((by_loss.em - by_loss.an).to_numpy(), None, error))
    return answer_effects(effects)


def _poorest_search_by_macro_f1(sets: list[str], runs: pd.DataFrame) -> dict | None:
    """Where the search by macro-F1 at one chosen threshold took the EM setting that loses most mAP
    against the search by mAP: the set and the loss in points; None if it is below `_POOR`.
    """
    losses = {}
    for name in sets if len(runs) else []:
        column = f'{name} / macro-F1 at the chosen threshold'
        by_f1 = tables.cell_lines('em_apl', '7', 'EM', [column], runs)
        by_map = tables.cell_lines('em_apl', '1', 'EM', [name], runs)
        losses[name] = by_map.test_map.mean() - by_f1.test_map.mean()
    worst = max(losses, key=losses.get, default=None)
    if worst is None or not losses[worst] >= _POOR:
        return None
    return {'set': worst, 'loss': losses[worst]}


_POOR = 5.0  # points of mAP


def _em_apl_warm_up(epochs: float) -> dict[str, list[int]]:
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


def _em_apl_on_whole_network(runs: pd.DataFrame) -> dict[str, int]:
    """In how many runs of the whole network the epoch that was kept came after pseudo-labels."""
    suite = 'photos_finetune'
    keys = [
        run_key(config)
        for dataset in SUITES[suite]['datasets']
        for config in final_configs(Row('em_apl'), suite, dataset, runs)
    ]
    acted = runs.reindex(columns=['exercised']).reindex(keys).exercised.dropna()
    return {'acted': int((acted == 1).sum()), 'runs': len(acted)}


def _em_apl_arms(runs: pd.DataFrame) -> dict:
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


def _positive_chance() -> float:
    """The percentage of positives among unknown labels, the mean over the sets that stand for the
    paper's: with one positive known of k among C classes, (k − 1) / (C − 1).
    """
    sets = ablation_arms.read_ablations()['em_apl_precision'].columns.values()
    photos = published.describe_photo_sets().loc[[*sets]]
    return float(100 * ((photos.positives - 1) / (photos.used - 1)).mean())


_SINKS = 5.0  # points of probability, as claim em_apl-maintaining asks


def _sunken_positives() -> list[str]:
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
    for column, dataset in (('VOC', 'voc12'), ('COCO', 'coco14'), ('NUS', 'nus'), ('CUB', 'cub')):
        seeds = [
            seed['probability'][:, hidden, median] for seed in collected.of_seeds(dataset, 'EM')
        ]
        if seeds and 100 * np.mean([of_seed[-1] - of_seed[0] for of_seed in seeds]) < -_SINKS:
            sunken.append(column)
    return sunken


_SURE = 0.96  # above it are two of the fifty bins of the figure


def _classes_by_em() -> dict | None:
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


_FIELDS: dict[str, Callable[[pd.DataFrame], dict]] = {
    'hml': _hml,
    'opml': _opml,
    'lac': _lac,
    'two_way': _two_way,
    'em_apl': _em_apl,
}


def format_conclusion(paper: str, checked: pd.DataFrame, runs: pd.DataFrame) -> str:
    """The conclusion on a paper, in Markdown.

    Args:
        paper: One of `published.list_papers()`.
        checked: Its claims, as from `claims.report_claims`.
        runs: The table of record.
    """

    def gain(
        method: str,
        base: str,
        head: str | None = None,
        base_head: str | None = None,
        metric: str = 'mAP',
    ) -> Answer:
        return answer_gain(runs, Row(method, head), Row(base, base_head), metric)

    return render_template(
        f'conclusion_{paper}.md',
        claim=partial(answer_claim, checked),
        gain=gain,
        parts=gains_at_equal_settings(paper),
        uncounted=UNCOUNTED,
        **_FIELDS[paper](runs),
    )


def paper_pages(checked: pd.DataFrame, runs: pd.DataFrame) -> dict[str, str]:
    """The page of every paper: its conclusion, with links to its tables, figures and claims.

    Args:
        checked: The claims of all papers, as from `claims.report_claims`.
        runs: The table of record.

    Returns:
        {`PAPER/README.md`: Markdown}.
    """
    return {
        f'{paper}/README.md': render_template(
            'paper_readme.md',
            paper=published.read_paper(paper),
            conclusion=format_conclusion(paper, of_paper, runs),
            figures=[
                number
                for number in paper_figures.list_figures(paper)
                if paper_figures.find_arrays(paper, number, PHOTOS_SUITE).is_file()
            ],
        )
        for paper, of_paper in checked.groupby('paper', sort=False)
    }


@dataclass(frozen=True)
class Part:
    """A section of a paper, or a part of one.

    Attributes:
        name: Number and heading as in the text.
        tables, figures, equations: Their numbers in the paper.
        claims: Ids of `claims.read_claims`.
        notebooks: Notebooks in nbs/ with a heading in them: 'methods/hml#Label correlation'.
        also: Where else it is, as Markdown.
        not_done: What is missing and why, '' if nothing.
    """

    name: str
    tables: Sequence[str] = ()
    figures: Sequence[str] = ()
    equations: Sequence[int] = ()
    claims: Sequence[str] = ()
    notebooks: Sequence[str] = ()
    also: str = ''
    not_done: str = ''


@dataclass(frozen=True)
class PaperMap:
    """All parts of a paper.

    Attributes:
        parts: In the order of the text.
        tables, figures: Numbers of all tables and figures of the paper.
        equations: Number of the last equation.
        source: Where these numbers are from.
    """

    parts: Sequence[Part]
    tables: Sequence[str]
    figures: Sequence[str]
    equations: int
    source: str


@lru_cache
def read_paper_map(paper: str) -> PaperMap:
    """The map of a paper, from `assets/sections`.

    Raises:
        SpmlError: For a paper that is not in `published.list_papers()`.
    """
    require_one_of(paper, published.ORDER, 'paper')
    file = files('spml_nb') / 'assets' / 'sections' / f'{paper}.yml'
    content = yaml.safe_load(file.read_text(encoding='utf-8'))
    return PaperMap([Part(**part) for part in content['parts']], **content['numbers'])


def format_paper_map(paper: str) -> str:
    """The map of a paper as a Markdown table, with links from nbs/papers.

    Raises:
        SpmlError: For a paper that is not in `published.list_papers()`.
    """
    rows = [[_name_part(part), _links(paper, part)] for part in read_paper_map(paper).parts]
    return markdown_table([['part of the paper', 'here'], *rows])


def _name_part(part: Part) -> str:
    if not part.equations:
        return part.name
    first, last = min(part.equations), max(part.equations)
    return f'{part.name} (Eq. {first})' if first == last else f'{part.name} (Eq. {first}–{last})'


def _links(paper: str, part: Part) -> str:
    tables = [number for number in part.tables if number in published.table_numbers(paper)]
    figures = [number for number in part.figures if number in paper_figures.list_figures(paper)]
    links = [
        _list_numbers('Table', tables),
        _list_numbers('Fig.', figures),
        _list_numbers('claims', [f'`{claim}`' for claim in part.claims]),
        ', '.join(map(_link_notebook, part.notebooks)),
        part.also,
        part.not_done and f'*not done*: {part.not_done}',
    ]
    return '; '.join(filter(None, links))


def _list_numbers(kind: str, names: list[str]) -> str:
    return f"{kind} {', '.join(names)}" if names else ''


def _link_notebook(target: str) -> str:
    notebook, _, heading = target.partition('#')
    return f"[{notebook}: {heading}](../{notebook}.ipynb#{quote(heading.replace(' ', '-'))})"
