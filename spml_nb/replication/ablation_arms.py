"""The arms of ablations: configurations that differ in one thing, from assets/ablations.yml."""

from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files as packaged

import pandas as pd
import torch
import yaml

from ..base.errors import SpmlError, require_one_of
from ..methods.core import find, hyper_parameters, resolve_hparams
from ..runs.config import Config, resolve
from ..statistics import NO_SCORES, Scores
from ..sweeps.queue import run_key
from ..sweeps.search import Row, choose_config, search_configs
from . import gains, published, tables
from .published import PHOTOS_SUITE, STAND_INS

ON_TEST = ('mAP', 'mAP@class', 'mAP@sample')  # measured on test images
MEASURES = (*ON_TEST, 'fall', 'precision')


@dataclass(frozen=True)
class Arm:
    """A configuration of an ablation.

    Attributes:
        over: The arm that it is compared with, '' for none.
        differs: The difference from that arm, in words.
        loss: A registered method.
        hparams: Laid over those that come with the learning rate.
        several: Whether it may differ in more than one thing.
    """

    name: str
    over: str
    differs: str
    loss: str
    hparams: dict
    several: bool


@dataclass(frozen=True)
class Ablation:
    """Arms that answer a question about a paper.

    Attributes:
        table: Of the paper.
        where: Section, table or figure of the paper.
        columns: {column: our photo set}; for rows in `printed`, columns of the table.
        seeds: Number of seeds, from 0.
        head: Of all arms.
        config: Fields of `Config` of all arms, laid over those of the suite.
        rate: How the learning rate is chosen, see `choose_arm_rate`.
        rule: The same in words, with the choice of the constants.
        arms: By name.
        printed: {arm: row of the table}, or {arm: {column: (row, column) of the table}} if the
            columns differ from the table's.
        nearest: {arm that the paper does not print: the nearest row}.
        claims: Ids of the claims that the arms decide.
        measure: One of `MEASURES`: a test mAP, 'fall' (of validation mAP from the best epoch to the
            last) or 'precision' (of the positive pseudo-labels by the last epoch).
    """

    id: str
    paper: str
    table: str
    where: str
    question: str
    columns: dict[str, str]
    seeds: int
    head: str
    config: dict
    rate: dict
    rule: str
    arms: dict[str, Arm]
    claims: list[str]
    printed: dict[str, str | dict] = field(default_factory=dict)
    nearest: dict[str, str] = field(default_factory=dict)
    measure: str = 'mAP'


@lru_cache
def read_ablations() -> dict[str, Ablation]:
    """The ablations of assets/ablations.yml, by id.

    Raises:
        SpmlError: For an arm that does not differ in exactly one thing from the one it is over.
    """
    content = _content()
    by_id = {}
    for entry in content['ablations']:
        columns = entry['columns']
        if isinstance(columns, list):
            columns = {column: content['sets'][column] for column in columns}
        ablation = Ablation(**entry | {'columns': columns, 'arms': _arms(entry['arms'])})
        require_one_of(ablation.measure, MEASURES, f'measure of {ablation.id}')
        by_id[ablation.id] = ablation
        _check_differences(ablation)
    return by_id


@lru_cache
def _content() -> dict:
    file = packaged('spml_nb') / 'assets' / 'ablations.yml'
    return yaml.safe_load(file.read_text(encoding='utf-8'))


def _arms(entries: dict[str, dict]) -> dict[str, Arm]:
    """Arms inherit the loss and the hyper-parameters of the arm that they are over."""
    arms = {}
    for name, entry in entries.items():
        over = entry.get('over', '')
        base = arms[require_one_of(over, arms, f'arm that {name!r} is over')] if over else None
        arms[name] = Arm(
            name,
            over,
            differs=entry.get('differs', ''),
            loss=entry['loss'] if 'loss' in entry else base.loss,
            hparams=(base.hparams if base else {}) | entry.get('hparams', {}),
            several=entry.get('several', False),
        )
    return arms


def _check_differences(ablation: Ablation):
    dataset = next(iter(ablation.columns.values()))
    for arm in ablation.arms.values():
        if not arm.over or arm.several:
            continue
        base = ablation.arms[arm.over]
        names = _config_differences(
            _config(ablation, arm, dataset), _config(ablation, base, dataset)
        )
        if len(names) != 1:
            raise SpmlError(
                f'assets/ablations.yml, {ablation.id}: {arm.name!r} differs from {arm.over!r} in '
                f'{", ".join(sorted(names)) or "nothing"}; it must differ in one thing, or state '
                '`several: true`.'
            )


def _config_differences(one: Config, other: Config) -> set[str]:
    """Names of the fields and hyper-parameters in which two configurations differ, without
    constants of parts that are switched off in one of them; 'views' if the methods train on
    different views of the photos.
    """
    views = {'views'} if find(one.loss).views != find(other.loss).views else set()
    one, other = _canonical_loss(one), _canonical_loss(other)
    names = {name for name in vars(one) if getattr(one, name) != getattr(other, name)}
    first, second = _active_hparams(one.hparams), _active_hparams(other.hparams)
    in_both = first.keys() & second.keys()
    return views | names - {'hparams'} | {name for name in in_both if first[name] != second[name]}


def _canonical_loss(config: Config) -> Config:
    """The resolved configuration; a loss that equals another one with parts switched off is written
    as that one.
    """
    config = resolve(config)
    equal = _content()['parts'].get(config.loss)
    if not equal:
        return config
    hparams = _hparams_of(equal['loss'], config.hparams) | equal['hparams']
    return resolve(config.changed(loss=equal['loss'], hparams=hparams))


def _hparams_of(loss: str, hparams: dict) -> dict:
    """The hyper-parameters that a loss has."""
    names = hyper_parameters(find(loss))
    return {name: value for name, value in hparams.items() if name in names}


def _active_hparams(hparams: dict) -> dict:
    """The hyper-parameters without the constants of parts that are switched off."""
    inactive = {
        constant
        for switch, constants in _content()['constants'].items()
        if not hparams.get(switch, True)
        for constant in constants
    }
    return {name: value for name, value in hparams.items() if name not in inactive}


def _config(ablation: Ablation, arm: Arm, dataset: str, lr: float = 1e-3, **hparams) -> Config:
    """The configuration of an arm; `hparams` come with the rate, those that the loss has."""
    of_suite = search_configs(Row(arm.loss, ablation.head), PHOTOS_SUITE, dataset)[0]
    chosen = _hparams_of(arm.loss, hparams)
    return of_suite.changed(lr=lr, hparams=chosen | arm.hparams, **ablation.config)


def _with_seed(config: Config, seed: int) -> Config:
    return config.changed(seed=seed, label_seed=seed)


def list_rate_trials(ablation: Ablation, dataset: str) -> list[Config]:
    """The runs among which the learning rate of an ablation is chosen."""
    rate = ablation.rate
    if 'search' in rate:
        labels = ablation.config.get('labels', 'single')
        return search_configs(Row(rate['search'], ablation.head, labels), PHOTOS_SUITE, dataset)
    arm = ablation.arms.get(rate.get('arm'))
    return [
        _with_seed(_config(ablation, arm, dataset, lr), seed)
        for lr in rate.get('tried', ())
        for seed in rate['seeds']
    ]


def choose_arm_rate(ablation: Ablation, dataset: str, runs: pd.DataFrame) -> dict:
    """The learning rate of all arms, chosen without test images.

    Args:
        runs: Finished runs, as from `sweeps.load_finished_runs` or `tables.read_recorded_runs`.

    Returns:
        {'lr': rate} with the hyper-parameters that were chosen together with it; {} while a
        deciding run is missing.
    """
    if 'lr' in ablation.rate:
        return {'lr': ablation.rate['lr']}
    trials = list_rate_trials(ablation, dataset)
    if 'search' in ablation.rate:
        chosen = choose_config(trials, runs)
        return {'lr': chosen.lr, **chosen.hparams} if chosen else {}
    scores = runs.reindex(columns=['val_map', 'best_epoch']).reindex([run_key(c) for c in trials])
    if scores.isna().any(axis=None):
        return {}
    by_rate = scores.groupby([config.lr for config in trials])
    late = by_rate.best_epoch.median() > _first_selection(ablation, dataset)
    means = by_rate.val_map.mean()
    return {'lr': float(means[late].idxmax() if late.any() else means.index.min())}


def _first_selection(ablation: Ablation, dataset: str) -> int:
    """The epoch after which APL selects for the first time."""
    config = resolve(_config(ablation, ablation.arms[ablation.rate['before']], dataset))
    hparams = resolve_hparams(config.loss, dataset, config.hparams)
    labels = torch.zeros(1, 1, dtype=torch.int8)
    return find(config.loss)(labels, epochs=config.epochs, **hparams).first


def arm_configs(ablation: Ablation, arm: str, dataset: str, runs: pd.DataFrame) -> list[Config]:
    """The runs of an arm, one per seed; empty until its learning rate can be chosen."""
    rate = choose_arm_rate(ablation, dataset, runs)
    if not rate:
        return []
    config = _config(ablation, ablation.arms[arm], dataset, **rate)
    return [_with_seed(config, seed) for seed in range(ablation.seeds)]


def arm_scores(ablation: Ablation, arm: str, dataset: str, runs: pd.DataFrame) -> Scores:
    """The measure of an ablation, in percent, for the finished runs of an arm."""
    configs = arm_configs(ablation, arm, dataset, runs)
    if not configs:
        return NO_SCORES
    if ablation.measure in ON_TEST:
        return tables.read_measures(configs, ablation.measure, runs)
    lines = arm_lines(configs, runs)
    # these are not measured on test images, and have no dataset
    if ablation.measure == 'fall':
        return Scores((lines.val_map - lines.val_map_at_end).dropna(), metric='')
    return Scores(lines.pseudo_positive_precision_at_end.dropna(), metric='')


_COLUMNS = [
    'val_map',
    'val_map_at_end',
    'pseudo_positive_precision_at_end',
    'exercised',
    'best_stage',
    'best_epoch',
]


def arm_lines(configs: list[Config], runs: pd.DataFrame) -> pd.DataFrame:
    """The lines of the record by seed, NaN for a run that is not finished."""
    lines = runs.reindex(columns=_COLUMNS).reindex([run_key(config) for config in configs])
    return lines.astype(float).set_axis([config.seed for config in configs])


def arm_acted(ablation: Ablation, arm: str, dataset: str, runs: pd.DataFrame) -> bool:
    """`gains.mechanism_acted` for the runs of an arm; True if all epochs are measured."""
    if ablation.measure not in ON_TEST:
        return True
    return gains.mechanism_acted_in(arm_configs(ablation, arm, dataset, runs), runs)


def published_arm_config(ablation: Ablation, arm: str, column: str) -> dict:
    """Fields of `Config` for an arm on the paper's data set."""
    ours = ablation.columns[column]
    return {
        'dataset': next(name for name, (photos, _) in STAND_INS.items() if photos == ours),
        'loss': ablation.arms[arm].loss,
        'head': ablation.head,
        'labels': ablation.config.get('labels', 'single'),
        'hparams': ablation.arms[arm].hparams,
    }


def printed_arm_cell(ablation: Ablation, arm: str, column: str) -> dict | None:
    """The cell of the paper that an arm repeats or comes nearest to, None without one."""
    printed = ablation.printed.get(arm, ablation.nearest.get(arm))
    where = printed.get(column) if isinstance(printed, dict) else printed and (printed, column)
    if not where:
        return None
    return published.index_cells(ablation.paper, ablation.table)[tuple(where)]
