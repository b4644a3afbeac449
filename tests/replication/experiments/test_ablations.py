"""Arms differ in one thing, at a rate that a stated rule chose; and every gain of the page is found
again from the record by other means.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import ViewOutputs, create, find
from spml_nb.models.heads import Outputs
from spml_nb.replication import ablation_arms, claims, published, tables
from spml_nb.replication.claims import Number
from spml_nb.replication.experiments import ablations
from spml_nb.runs.config import resolve
from spml_nb.sweeps.queue import run_key

OUTPUTS = Path(__file__).resolve().parents[3] / 'outputs'
ASSETS = Path(__file__).resolve().parents[3] / 'spml_nb' / 'assets'
ALL = ablation_arms.read_ablations()
OF_COMPONENT = [claim for claim in claims.read_claims() if claim.of_component]


@pytest.fixture
def any_rate(monkeypatch):
    rate = {'lr': 0.01, 'threshold': 0.7}
    for module in (ablation_arms, ablations):
        monkeypatch.setattr(module, 'choose_arm_rate', lambda ablation, dataset, runs: rate)


def compared(claim):
    """The operands of each comparison of a claim."""
    operands = {}

    def value(operand):
        number = Number({0: 1.0}, runs=len(operands))
        operands[id(number)] = operand, number
        return number

    return [
        [operands[id(number)][0] for number in contrast.numbers]
        for place in claim.places(value)
        for contrast in place.contrasts
    ]


def config_of(operand):
    """One of the runs of an operand; of a search, one that was tried."""
    if operand.arm:
        name, arm, column = operand.arm
        ablation = ALL[name]
        return ablation_arms.arm_configs(ablation, arm, ablation.columns[column], pd.DataFrame())[0]
    if operand.cell:
        cell = published.index_cells(operand.paper, operand.cell[0])[operand.cell[1:]]
    else:
        cell = tables.cell_of_runs(operand.paper, operand.config)
    plan = tables.plan_cell(cell, 'photos')
    tried = plan.search[0]
    return tried.changed(hparams=tried.hparams | plan.stated, labels=plan.labels or tried.labels)


WHOLE = {'em': 'em_apl', 'an': 'lac', 'lac_plc': 'lac'}
OFF = {  # what a method has not that another has
    'em': {'proportion': 0},
    'an': {'lambda_plc': 0, 'lambda_lac': 0, 'two_stage': False},
    'lac_plc': {'lambda_lac': 0, 'two_stage': False},
}
IDLE = {  # without the first the second does nothing
    'high_rank': {'rank_weight'},
    'smoothing': {'gamma'},
    'proportion': {'beta', 'labels', 'warm_up', 'positive_proportion'},
    'lambda_plc': {'threshold', 'form'},
    'lambda_lac': {'queue', 'temperature', 'projection'},
    'two_stage': {'stage2_threshold'},
}


def switches(one, other):
    """Names of what differs between two configurations, apart from constants of what is off."""
    augmented = {len(find(config.loss).views) > 1 for config in (one, other)}
    one, other = (vars(resolve(config)) for config in (one, other))
    names = {name for name in one if one[name] != other[name]} - {'hparams'}
    names |= {'views'} if len(augmented) > 1 else set()
    if WHOLE.get(one['loss'], one['loss']) == WHOLE.get(other['loss'], other['loss']):
        names -= {'loss'}
    ours, theirs = (each['hparams'] | OFF.get(each['loss'], {}) for each in (one, other))
    names |= {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]}
    idle = [IDLE[switch] for switch in IDLE if not (ours.get(switch, 1) and theirs.get(switch, 1))]
    return names.difference(*idle)


def test_a_loss_is_another_one_with_its_switches_off():
    logits, z = torch.randn(2, 6, 4), torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0]] * 3)
    views = {
        name: Outputs(s, embeddings=torch.randn(6, 4, 8))
        for name, s in zip(('weak', 'strong'), logits, strict=True)
    }
    index = torch.arange(6)
    for loss, part in ablation_arms._content()['parts'].items():
        small = create(loss, z, epochs=9, features=8)
        large = create(part['loss'], z, epochs=9, features=8, **part['hparams'])
        each = ViewOutputs(views if 'strong' in large.views else {'weak': views['weak']})
        assert small.loss(each, index) == large.loss(each, index)


@pytest.mark.parametrize('claim', OF_COMPONENT, ids=lambda claim: claim.id)
def test_the_sides_of_a_claim_about_a_component_differ_in_one_thing(claim, any_rate):
    compared_with = compared(claim)
    assert compared_with
    for first, *others in compared_with:
        for other in others:
            assert len(switches(config_of(first), config_of(other))) == 1
            if first.arm:  # one ablation, so that one rate
                assert first.arm[0] == other.arm[0] and first.arm[2] == other.arm[2]


def test_claims_and_ablations_name_each_other():
    deciding = {id: set(ablation.claims) for id, ablation in ALL.items()}
    reading = {
        id: {claim.id for claim in claims.read_claims() if id in claim.ablations} for id in deciding
    }
    assert deciding == reading
    assert len(OF_COMPONENT) >= 25


def test_our_sets_stand_for_the_papers():
    for ablation in ALL.values():
        for column, dataset in ablation.columns.items():
            theirs = ablation_arms.published_arm_config(ablation, next(iter(ablation.arms)), column)
            assert published.find_stand_in(theirs['dataset'], 'photos') == dataset


def entries(ablation='em_apl_parts', **changes):
    content = yaml.safe_load((ASSETS / 'ablations.yml').read_text(encoding='utf-8'))
    (entry,) = (each for each in content['ablations'] if each['id'] == ablation)
    for arm, changed in changes.items():
        entry['arms'][arm] |= changed
    return content | {'ablations': [entry]}


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'hard': {'hparams': {'labels': 'hard', 'beta': 1}}}, 'in beta, labels'),
        ({'hard': {'hparams': {}}}, 'in nothing'),
        ({'few': {'over': 'EM+ALP'}}, "unknown arm that 'few' is over 'EM\\+ALP'"),
    ],
)
def test_an_arm_that_differs_in_more_or_less_than_one_thing_is_refused(
    change, message, monkeypatch
):
    monkeypatch.setattr(ablation_arms, '_content', lambda: entries(**change))
    with pytest.raises(SpmlError, match=message):
        ablation_arms.read_ablations.__wrapped__()


def test_a_method_that_sees_augmented_views_differs_from_one_that_does_not(monkeypatch):
    changed = {'AN + PLC': {'over': 'AN', 'loss': 'lac_plc'}}
    monkeypatch.setattr(ablation_arms, '_content', lambda: entries('lac_parts', **changed))
    with pytest.raises(SpmlError, match="'AN \\+ PLC' differs from 'AN' in lambda_plc, views;"):
        ablation_arms.read_ablations.__wrapped__()
    arms = ALL['lac_parts'].arms
    assert [arms[name].over for name in ('AN on weak views', 'AN + PLC')] == [*arms][:2]


def test_an_on_weak_views_has_the_loss_of_an_there():
    arm = ALL['lac_parts'].arms['AN on weak views']
    z = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0]] * 3)
    weak, strong = torch.randn(2, 6, 4, requires_grad=True).unbind()
    views = ViewOutputs({'weak': Outputs(weak), 'strong': Outputs(strong)})
    index = torch.arange(6)
    loss = create(arm.loss, z, epochs=9, threshold=0.9, **arm.hparams).loss(views, index)
    of_an = create('an', z, epochs=9).loss(ViewOutputs({'weak': Outputs(weak)}), index)
    assert loss == of_an
    for of_arm, expected in zip(
        torch.autograd.grad(loss, (weak, strong)),
        (*torch.autograd.grad(of_an, weak), torch.zeros(6, 4)),
        strict=True,
    ):
        assert torch.equal(of_arm, expected)


def trials(scores, dataset='voc12_animals'):
    """Invented runs of EM. scores: {rate: [(validation mAP, best epoch) of each seed]}."""
    lines = {}
    for config in ablation_arms.list_rate_trials(ALL['em_apl_parts'], dataset):
        val_map, best_epoch = scores[config.lr][config.seed - 1000]
        lines[run_key(config)] = {'val_map': val_map, 'best_epoch': best_epoch}
    return pd.DataFrame.from_dict(lines, orient='index')


# voc: T_w is 5 of 10 epochs, so that APL selects after epoch 20 of 40 for the first time
EARLY, LATE = [(60, 5), (60, 40), (60, 20)], [(50, 21), (50, 3), (50, 30)]
LATER, LATE_AND_LOW = [(51, 40), (51, 40), (51, 40)], [(40, 40), (40, 40), (40, 40)]


@pytest.mark.parametrize(
    ('high', 'middle', 'low', 'chosen'),
    [
        (EARLY, LATE, LATE_AND_LOW, 3e-4),
        (EARLY, LATE, LATER, 1e-4),
        (LATER, LATE, LATE, 1e-3),
        (EARLY, EARLY, EARLY, 1e-4),
    ],
)
def test_the_rate_is_the_best_of_those_at_which_apl_acts(high, middle, low, chosen):
    ablation = ALL['em_apl_parts']
    runs = trials({1e-3: high, 3e-4: middle, 1e-4: low})
    assert ablation_arms.choose_arm_rate(ablation, 'voc12_animals', runs) == {'lr': chosen}
    assert ablation_arms.choose_arm_rate(ablation, 'voc12_animals', runs.iloc[1:]) == {}
    assert ablation_arms.choose_arm_rate(ablation, 'coco18', runs) == {}


def test_arms_share_everything_but_their_switch(any_rate):
    configs = ablations.plan_ablation_runs(pd.DataFrame())
    assert {config.seed == config.label_seed for config in configs} == {True}
    heads = [config.head for config in configs]
    assert heads == sorted(heads, key='labelwise'.__eq__)  # the slow ones last
    for ablation, dataset in itertools.product(ALL.values(), ('voc12_animals', 'coco18')):
        seeds = range(5 if ablation.head == 'labelwise' else 10)
        runs = {
            arm: ablation_arms.arm_configs(ablation, arm, dataset, None) for arm in ablation.arms
        }
        assert all([c.seed for c in each] == list(seeds) for each in runs.values())
        shared = {
            tuple((name, str(v)) for name, v in vars(c).items() if name not in ('loss', 'hparams'))
            for c in (each[0] for each in runs.values())
        }
        assert len(shared) == 1
    few = ablations.plan_ablation_runs(pd.DataFrame(), ['mirflickr14'])
    assert {config.dataset for config in few} == {'mirflickr14'}
    with pytest.raises(SpmlError, match="unknown set of photos 'ccp'"):
        ablations.plan_ablation_runs(pd.DataFrame(), ['ccp'])


@pytest.fixture
def invented(any_rate):
    """LAC's arms on two sets: each gains 2 over the one before, and one seed more or less."""
    lines = {}
    ablation = ALL['lac_parts']
    for dataset, (k, arm) in itertools.product(ablation.columns.values(), enumerate(ablation.arms)):
        for config in ablation_arms.arm_configs(ablation, arm, dataset, None):
            two = arm in ('second stage alone', 'two-stage', 'queue')
            lines[run_key(config)] = {
                'test_map': 40.0 + 2 * k + config.seed * (1 + 0.1 * k),
                'exercised': 1.0 if two else np.nan,
                'best_stage': 2 if two else 1,
                'best_epoch': 1 if config.seed == 0 else 3,
            }
    return pd.DataFrame.from_dict(lines, orient='index')


def test_gains_are_paired_by_seed_and_means_are_over_the_sets(invented):
    found = ablations.tabulate_arms(invented).set_index(['arm', 'column'])
    d = 2 + 0.1 * np.arange(5)
    line = found.loc['two-stage', 'VOC']  # two arms above the second stage alone
    assert (line.gain, line.n) == (pytest.approx(2 * d.mean()), 5)
    assert line.published == pytest.approx(89.2 - 89.0)
    assert (line.acted, line.may_act) == (4, 5)  # seed 0 was best when the stage began
    mean = found.loc['two-stage', 'mean']
    assert mean.gain == pytest.approx(line.gain) and mean.gain_half < line.gain_half
    assert (mean.acted, mean.may_act) == (8, 10)
    assert mean.published == pytest.approx((89.2 - 89.0 + 74.7 - 73.7) / 2)
    assert np.isnan(found.loc['AN', 'VOC'].gain) and ('AN', 'mean') not in found.index
    alone = found.loc['second stage alone', 'VOC']
    assert np.isnan(alone.published) and alone.gain == pytest.approx(d.mean())


def test_the_page_has_a_row_for_each_arm(invented):
    text = ablations.format_ablations(ablations.tabulate_arms(invented))
    rows = {line.split(' | ')[0].strip('| '): line for line in text.splitlines() if '|' in line}
    assert ALL['lac_parts'].arms.keys() <= rows.keys()
    assert rows['queue'].endswith('| 8 of 10 |') and ' / +0.4 |' in rows['queue']
    assert ablations.tabulate_arms(invented.iloc[:0]).empty
    (numbers,) = (line for line in text.splitlines() if line.startswith('| queue |'))
    idle = invented.assign(exercised=0 * invented.exercised)
    text = ablations.format_ablations(ablations.tabulate_arms(idle))
    (in_brackets,) = (line for line in text.splitlines() if line.startswith('| queue |'))
    assert in_brackets.count('(+') == 3 and '(+' not in numbers


def test_nothing_is_written_without_runs(any_rate, tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path))
    assert settings.get_folder('outputs') == tmp_path
    assert ablations.write_ablations(pd.DataFrame()) == [] and not list(tmp_path.iterdir())


# The same numbers once more, from the files alone


def rows_of_page():
    file = OUTPUTS / 'ablations.csv'
    return pd.read_csv(file) if file.is_file() else pd.DataFrame(columns=['ablation', 'arm'])


@pytest.fixture(scope='module')
def record():
    table = pd.read_csv(OUTPUTS / 'runs.csv', low_memory=False)
    usual = {'labels': 'single', 'head': 'linear', 'epochs': 60, 'patience': 10, 'batch_size': 64}
    usual |= {'regime': 'linear', 'selection': 'val_clean', 'train_images': 0}
    table = table.fillna(usual)
    of_all = table.train_images == 0
    if 'trained_validation' in table:
        of_all &= table.trained_validation.isna()
    table = table[of_all]
    return table.assign(hparams=table.hparams.map(json.loads), seed=table.seed.astype(int))


@pytest.fixture(scope='module')
def entries_of_file():
    content = yaml.safe_load((ASSETS / 'ablations.yml').read_text(encoding='utf-8'))
    return {
        entry['id']: entry
        | {'sets': entry['columns'] if isinstance(entry['columns'], dict) else content['sets']}
        for entry in content['ablations']
    }


def runs_of(record, entry, arm, dataset, lr):
    """Lines of the record by seed."""
    loss, hparams = None, {}
    while arm:
        about = entry['arms'][arm]
        loss = loss or about.get('loss')
        hparams = about.get('hparams', {}) | hparams
        arm = about.get('over')
    # what other arms switch is here as it is by default
    switched = {name for each in entry['arms'].values() for name in each.get('hparams', {})}
    weights = {'voc12_animals': 0.02, 'coco18': 0.9, 'mirflickr14': 0.2, 'cub_crops': 0.4}
    usual = {
        'proportion': 0.9, 'labels': 'soft', 'positive_proportion': 0, 'rank_weight': 1e-3,
        'gamma': 4, 'lambda_plc': 1, 'two_stage': True, 'stage2_threshold': 0.9,
        'beta': weights[dataset],
    }  # fmt: skip
    wanted = {name: usual.get(name) for name in switched} | hparams
    wide = entry['head'] == 'labelwise'
    length = {'epochs': 30, 'patience': 8} if wide else {'epochs': 60, 'patience': 10}
    fixed = {'labels': 'single', 'selection': 'val_clean', 'batch_size': 64, **length}
    fixed |= entry['config']
    lines = record[
        (record.dataset == dataset)
        & (record.loss == loss)
        & (record['head'] == entry['head'])
        & (record[list(fixed)] == pd.Series(fixed)).all(axis=1)
        & np.isclose(record.lr, lr)
        & (record.seed < (5 if wide else 10))
    ]
    searched = entry['rate'].get('search')
    if searched and not wide:  # constants were chosen with the rate
        tried = record[
            (record.dataset == dataset) & (record.loss == searched) & (record.seed == 1000)
            & (record['head'] == entry['head']) & (record.labels == fixed['labels'])
        ]  # fmt: skip
        best = tried.loc[tried.val_map_seen.fillna(tried.val_map).idxmax()]
        assert np.isclose(best.lr, lr)
        wanted |= best.hparams
    fits = lines.hparams.map(
        lambda has: all(has[name] == value for name, value in wanted.items() if name in has)
    )
    chosen = lines[fits.astype(bool)]
    if wide and loss != 'an':  # the δ of the first stage was chosen with the rate
        chosen = chosen[chosen.hparams.map(lambda has: has['threshold']) == 0.9]
    assert chosen.seed.is_unique
    return chosen.set_index('seed')


def measured(runs, entry):
    return {
        'mAP': lambda: runs.test_map,
        'mAP@class': lambda: runs.test_map_class,
        'mAP@sample': lambda: runs.test_map_sample,
        'fall': lambda: runs.val_map - runs.val_map_at_end,
        'precision': lambda: runs.pseudo_positive_precision_at_end,
    }[entry.get('measure', 'mAP')]()


@pytest.mark.skipif(not len(rows_of_page()), reason='the arms are not trained yet')
def test_every_gain_of_the_page_is_that_of_the_record(record, entries_of_file):
    page = rows_of_page()
    gains = {}
    for row in page[page.column != 'mean'].itertuples():
        entry = entries_of_file[row.ablation]
        dataset = entry['sets'][row.column]
        assert dataset == row.dataset
        own = measured(runs_of(record, entry, row.arm, dataset, row.lr), entry)
        assert own.mean() == pytest.approx(row.level, abs=1e-3)
        if np.isnan(row.gain):
            continue
        base = measured(runs_of(record, entry, row.over, dataset, row.lr), entry)
        difference = (own - base).dropna()
        assert difference.mean() == pytest.approx(row.gain, abs=1e-3)
        gains.setdefault((row.ablation, row.arm), []).append(difference.mean())
    means = page[page.column == 'mean'].set_index(['ablation', 'arm']).gain
    assert len(means) > 10
    for place, mean in means.items():
        assert mean == pytest.approx(np.mean(gains[place]), abs=1e-3)


@pytest.mark.skipif(not len(rows_of_page()), reason='the arms are not trained yet')
def test_the_rates_of_em_follow_the_rule(record):
    page = rows_of_page()
    rates = page[page.ablation == 'em_apl_parts'].dropna(subset='lr').groupby('dataset').lr.first()
    began = {'voc12_animals': 20, 'coco18': 20, 'mirflickr14': 16, 'cub_crops': 12}
    em = record[
        (record.loss == 'em') & record.seed.between(1000, 1002) & (record.patience == 0)
        & (record.epochs == 40) & (record['head'] == 'linear')
    ]  # fmt: skip
    assert len(rates)
    for dataset, rate in rates.items():
        by_rate = em[em.dataset == dataset].groupby('lr')
        assert by_rate.size().to_dict() == {1e-4: 3, 3e-4: 3, 1e-3: 3}
        acts = by_rate.best_epoch.median() > began[dataset]
        means = by_rate.val_map.mean()
        assert rate == (means[acts].idxmax() if acts.any() else 1e-4)
