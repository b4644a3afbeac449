"""What the conclusion on *Hyperspherical Learning in Multi-Label Classification* reports."""

import json
import math
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pandas as pd
from safetensors.numpy import load as load_tensors

from ...statistics import Effect
from .. import ablation_arms, gains, published
from ..answers import Answer, answer_cells, answer_effects, subtract_printed
from ..experiments import budget

_RIVALS = ('AN', 'LS', 'WAN', 'EPR', 'ROLE')


def collect_fields(runs: pd.DataFrame) -> dict:
    """The fields of `conclusion_hml.md` that no other conclusion has.

    Args:
        runs: The table of record.
    """
    voc = ['Single Positive Labels / VOC12']
    no_margin = ('5', 'No Margin', ['mAP'])
    [printed_margin] = subtract_printed('hml', ('5', 'Positives & Negatives', ['mAP']), no_margin)
    [printed_head] = subtract_printed('hml', no_margin, ('4', 'neither', voc))
    margin = answer_cells('hml', '5', 'Positives & Negatives', 'No Margin', ['mAP'], runs)
    return {
        'leads': _list_leads(runs),
        'learnt': {
            'single': _answer_learnt_over_fixed('hml_adaptive', runs),
            'full': _answer_learnt_over_fixed('hml_adaptive_full', runs),
        },
        'margin': replace(margin, published=printed_margin),
        'printed_head': printed_head,
        'shipped': _read_shipped_models(),
        'by_searches': _answer_by_searches(runs),
    }


def _list_leads(runs: pd.DataFrame) -> list[dict]:
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
        printed = {rival: hml - cells[rival, name]['mean'] for rival in _RIVALS}
        rival = min(printed, key=printed.get)
        answers = {
            rival: answer_cells('hml', '2', 'HML (Ours)', rival, [name], runs) for rival in _RIVALS
        }
        run = [rival for rival in _RIVALS if not math.isnan(answers[rival].mean)]
        ours = min(run or _RIVALS, key=lambda rival: answers[rival].mean)
        own_an = ('4', 'neither', [f'Single Positive Labels / {name}'])
        [own] = subtract_printed('hml', own_an, ('2', 'AN', [name]))
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


def _answer_learnt_over_fixed(ablation: str, runs: pd.DataFrame) -> Answer:
    "What learning scale and margin adds at equal settings, beside the paper's Table 4."
    arms = ablation_arms.read_ablations()[ablation]
    effects = []
    for dataset in arms.columns.values():
        learnt = ablation_arms.arm_scores(arms, 'HL + AL', dataset, runs)
        fixed = ablation_arms.arm_scores(arms, 'HL', dataset, runs)
        effects.append(gains.estimate_gain(learnt, fixed))
    columns = [*arms.columns]
    printed = subtract_printed('hml', ('4', 'HL + AL', columns), ('4', 'HL', columns))
    return replace(answer_effects(effects), published=float(np.mean(printed)))


def _read_shipped_models() -> dict[str, list[float]]:
    """{'start', 'scales', 'margins'}: where scale and margin of the models in `assets/weights`
    start, and where they end.
    """
    folders = [*(files('spml_nb') / 'assets' / 'weights').iterdir()]
    about = [json.loads((folder / 'config.json').read_text())['description'] for folder in folders]
    learnt = [load_tensors((folder / 'model.safetensors').read_bytes()) for folder in folders]
    starts = {(one['hparams']['scale'], one['hparams']['margin']) for one in about}
    return {
        'start': starts.pop() if len(starts) == 1 else (),
        'scales': [float(one['method.scale']) for one in learnt],
        'margins': [float(one['method.margin']) for one in learnt],
    }


def _answer_by_searches(runs: pd.DataFrame) -> dict[str, Answer]:
    """On the photos that stand for VOC12, what AN changes by if three searches choose its settings,
    and HML's gain over AN where one search and where three choose; empty without these runs.
    """
    dataset, _ = published.STAND_INS['voc12']
    scores = {}
    for searches in (1, len(budget.SEEDS)):
        planned = budget.plan_finals(runs, [dataset], searches)
        scores |= gains.collect_scores(planned, budget.Choice)

    def estimate(first: tuple, second: tuple) -> Effect:
        one, other = (
            scores.get(budget.Choice(dataset, *of_row), gains.NO_SCORES)
            for of_row in (first, second)
        )
        return gains.estimate_gain(one, other)

    an, hml = ('an', 'linear'), ('hml', 'cosine')
    most = len(budget.SEEDS)
    answers = {
        'an': answer_effects([estimate((*an, most), (*an, 1))]),
        'by_one': answer_effects([estimate((*hml, 1), (*an, 1))]),
        'by_all': answer_effects([estimate((*hml, most), (*an, most))]),
    }
    return answers if all(answer.places for answer in answers.values()) else {}
