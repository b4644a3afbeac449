"""What the conclusion on *Label-Aware Global Consistency* reports."""

import pandas as pd

from ...statistics import Effect, Scores
from ...sweeps.queue import run_key
from ...sweeps.search import SUITES, Row, final_configs, search_space
from .. import ablation_arms, gains, published, tables
from ..answers import Answer, answer_cells, answer_effects, subtract_printed
from ..experiments import two_steps
from ..published import ORIGINAL_SETS, PHOTOS_SUITE

_PLAIN = Row('an', 'linear')


def collect_fields(runs: pd.DataFrame) -> dict:
    """The fields of `conclusion_lac.md` that no other conclusion has.

    Args:
        runs: The table of record.
    """
    lem, resnet = (
        [f'{network} / {name}' for name in ORIGINAL_SETS] for network in ('LEM', 'ResNet-50')
    )
    cells = published.index_cells('lac', '2')
    finals = _select_final_lines(runs)
    return {
        'lem': subtract_printed('lac', ('2', 'L_AN', lem), ('2', 'L_AN', resnet)),
        'lem_mixed': len({cells['L_AN', column]['source'] for column in lem + resnet}) > 1,
        'higher': _count_gains_over_plain(runs),
        'idle': gains.count_stage_2_starts(finals),
        'runs': len(finals),
        'constants': len(search_space('lac')),
        'own_settings': _answer_stages_at_own_settings(runs),
        'first_searched': _estimate_first_stage_searched(runs),
        'in_two_steps': _describe_two_steps(runs),
    }


def _count_gains_over_plain(runs: pd.DataFrame) -> int:
    "On how many photo sets with runs of both LAC is above AN on a linear head."
    count = 0
    for dataset in SUITES[PHOTOS_SUITE]['datasets']:
        lac = _read_final_scores(two_steps.LAC, dataset, runs)
        gain = gains.estimate_gain(lac, _read_final_scores(_PLAIN, dataset, runs))
        count += gain.seeds > 1 and gain.mean > 0
    return count


def _select_final_lines(runs: pd.DataFrame) -> pd.DataFrame:
    "The lines of LAC's final runs on all photo sets of the suite."
    configs = [
        config
        for dataset in SUITES[PHOTOS_SUITE]['datasets']
        for config in final_configs(two_steps.LAC, PHOTOS_SUITE, dataset, runs)
    ]
    return runs[runs.index.isin([run_key(config) for config in configs])]


def _answer_stages_at_own_settings(runs: pd.DataFrame) -> dict[str, Answer]:
    "{column of Table 3: gain of two stages over end to end, at the settings of LAC's search}."
    end_to_end = 'AN + PLC + LAC'
    answers = {
        column: answer_cells('lac', '3', f'{end_to_end} + two-stage', end_to_end, [column], runs)
        for column in _read_parts().columns
    }
    return {column: answer for column, answer in answers.items() if answer.places}


def _estimate_first_stage_searched(runs: pd.DataFrame) -> dict[str, Effect]:
    "{column of Table 3: gain of LAC by the rate and δ of AN + PLC's search over its own search}."
    ablation = _read_parts()
    effects = {}
    for column, dataset in ablation.columns.items():
        first_searched = ablation_arms.arm_scores(ablation, 'queue', dataset, runs)
        own_search = _read_final_scores(two_steps.LAC, dataset, runs)
        effect = gains.estimate_gain(first_searched, own_search)
        if effect.seeds > 1:
            effects[column] = effect
    return effects


def _describe_two_steps(runs: pd.DataFrame) -> dict:
    """What the second search of LAC has chosen.

    Returns:
        {} without runs, else sets (names of the photo sets), again (those where it chose the
        settings of the arm 'queue', so that the runs are the same), changed ({name of another:
        gain over LAC searched in one step}), plain (gain over plain AN, mean over the sets),
        own_rates (number of sets with a rate of its own for the second stage).
    """
    scores = two_steps.two_step_scores(runs)
    if not scores:
        return {}
    ablation = _read_parts()
    columns = {ours: name for name, ours in ablation.columns.items()}
    names = {dataset: columns.get(dataset, published.DATASET_NAMES[dataset]) for dataset in scores}
    again, own_rates = [], 0
    for place, finals in two_steps.plan_finals(runs, scores).items():
        in_arm = ablation_arms.arm_configs(ablation, 'queue', place.dataset, runs)
        if set(map(run_key, finals)) == set(map(run_key, in_arm)):
            again.append(place.dataset)
        own_rates += finals[0].stage2_lr is not None

    def gain_over(base: Row, dataset: str) -> Effect:
        return gains.estimate_gain(scores[dataset], _read_final_scores(base, dataset, runs))

    return {
        'sets': [*names.values()],
        'again': [names[dataset] for dataset in again],
        'changed': {
            names[dataset]: gain_over(two_steps.LAC, dataset)
            for dataset in scores
            if dataset not in again
        },
        'plain': answer_effects(gain_over(_PLAIN, dataset) for dataset in scores),
        'own_rates': own_rates,
    }


def _read_final_scores(row: Row, dataset: str, runs: pd.DataFrame) -> Scores:
    "Test mAP of the final runs of a row on a photo set of the suite."
    configs = final_configs(row, PHOTOS_SUITE, dataset, runs)
    return tables.read_measures(configs, 'mAP', runs)


def _read_parts() -> ablation_arms.Ablation:
    return ablation_arms.read_ablations()['lac_parts']
