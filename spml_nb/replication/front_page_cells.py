"""The gains on the front page: cells of the papers' tables beside our runs."""

from dataclasses import dataclass

import pandas as pd

from ..methods.core import find
from ..statistics import Scores
from . import gains as all_gains
from . import published
from .gains import mechanism_acted_in
from .published import PHOTOS_SUITE
from .tables import cell_final_runs, plan_cell, read_measures

PANELS = {
    'VOC': 'voc12',
    'COCO': 'coco14',
    'NUS': 'nus',
    'CUB': 'cub',
}  # {panel: the paper's data set}


@dataclass(frozen=True)
class FrontMethod:
    """A method on the front page, with the table that prints it.

    Attributes:
        cells: {panel: (row, row of AN or BCE in the table, column)}.
        own: Whether the paper proposes it.
        plain: Whether the paper's baseline has the linear head rather than the method's own.
    """

    name: str
    paper: str
    table: str
    cells: dict[str, tuple[str, str, str]]
    own: bool = False
    plain: bool = False

    @property
    def source(self) -> str:
        """Short name of the paper that trained it."""
        return self._cell['source']

    @property
    def loss(self) -> str:
        """The loss that it is trained with here."""
        return self._cell['config']['loss']

    @property
    def _cell(self) -> dict:
        row, _, column = next(iter(self.cells.values()))
        return published.index_cells(self.paper, self.table)[row, column]


def _row(columns: dict[str, str], row: str, baseline: str) -> dict:
    return {panel: (row, baseline, column) for panel, column in columns.items()}


_HML = {'VOC': 'VOC12', 'COCO': 'COCO', 'NUS': 'NUS', 'CUB': 'CUB'}
_SINGLE = {panel: f'Single Positive Labels / {column}' for panel, column in _HML.items()}
_LAC = {panel: f'LEM / {panel}' for panel in _HML}
_SAME = {panel: panel for panel in _HML}
_ONE = '1 P. & 0 N. / '
_TWO_WAY = {
    panel: (f'{name} / Ours', f'{name} / BCE', 'mAP@class / ResNet50')
    for panel, name in (('VOC', 'VOC2012'), ('COCO', 'MSCOCO'))
}


METHODS = (
    *[
        FrontMethod(name, 'hml', '2', _row(_HML, name, 'AN'))
        for name in ('WAN', 'LS', 'EPR', 'ROLE')
    ],
    FrontMethod('EM', 'em_apl', '1', _row(_SAME, 'EM', 'AN'), own=True),
    FrontMethod('EM+APL', 'em_apl', '1', _row(_SAME, 'EM+APL', 'AN'), own=True),
    FrontMethod('HML', 'hml', '4', _row(_SINGLE, 'HL + AL', 'neither'), own=True, plain=True),
    FrontMethod('LAC', 'lac', '2', _row(_LAC, 'Ours', 'L_AN'), own=True),
    *[
        FrontMethod(name, 'opml', 'II', _row(_SAME, _ONE + name, f'{_ONE}BCE'))
        for name in ('LL-R', 'LL-Ct', 'LL-Cp')
    ],
    *[
        FrontMethod(name, 'opml', 'II', _row(_SAME, f'{_ONE}{name} (Ours)', f'{_ONE}BCE'), own=True)
        for name in ('OPML', 'OPML-SP')
    ],
    FrontMethod('Two-way*', 'two_way', '7', _TWO_WAY, own=True),
)


def front_gains(runs: pd.DataFrame) -> pd.DataFrame:
    """The gains of every method on the front page.

    Args:
        runs: The table of record.

    Returns:
        DataFrame, one row per method and panel, in points of mAP:

        - method, panel; full: whether all labels are observed
        - published: over `published.gain_baseline`, NaN if not printed; uncounted: as from
          `published.explain_uncounted`
        - ours, half: gain over AN on the same head (Two-way: over weighted BCE; else over the
          baseline that the paper's file names) with half its interval over seeds and test images
        - plain: gain over AN on the linear head (Two-way: over BCE)
        - like, like_half: the one of both that corresponds to the published gain
        - effect, beside: like and plain as `statistics.Effect`, NaN without such a cell
        - n: common seeds, -1 without such a cell; exercised: whether the method's mechanism acted

    Source: the papers' tables.
    """
    return pd.DataFrame(
        [
            {'method': method.name, 'panel': panel, **_gain(method, panel, runs)}
            for method in METHODS
            for panel in PANELS
        ]
    )


def _gain(method: FrontMethod, panel: str, runs: pd.DataFrame) -> dict:
    if panel not in method.cells:
        return {'n': -1, 'full': False, 'uncounted': ''}
    row, baseline, column = method.cells[panel]
    cells = published.index_cells(method.paper, method.table)
    cell = cells[row, column]
    named_baseline = bool(cell['baseline'])
    base = published.gain_baseline(cell, []) if named_baseline else cells[baseline, column]
    config = cell['config']
    full = config.get('labels') == 'full'
    head = config.get('head') or find(config['loss']).head
    scores, exercised = _cell_scores(cell, runs)
    same_head = {} if named_baseline else {'loss': 'wbce' if full else 'an', 'head': head}
    base_scores, _ = _cell_scores(base if named_baseline else cell, runs, **same_head)
    plain_scores, _ = _cell_scores(cell, runs, loss='bce' if full else 'an', head='linear')
    ours = all_gains.estimate_gain(scores, base_scores)
    plain = all_gains.estimate_gain(scores, plain_scores)
    like = plain if method.plain else ours
    return {
        'published': cell['mean'] - base['mean'],
        'uncounted': published.explain_uncounted(cell, base),
        'ours': ours.mean,
        'half': ours.half_width,
        'n': ours.seeds,
        'plain': plain.mean,
        'like': like.mean,
        'like_half': like.half_width,
        'exercised': exercised,
        'effect': like,
        'beside': plain,
        'full': full,
    }


def _cell_scores(cell: dict, runs: pd.DataFrame, **changes) -> tuple[Scores, bool]:
    "(scores, exercised) of a cell's runs; with changes of another method in its place."
    if changes:
        config = published.merge_mappings(cell['config'], {'hparams': None}, changes)
        cell = cell | {'config': config}
    configs = cell_final_runs(plan_cell(cell, PHOTOS_SUITE), runs)
    return read_measures(configs, cell['metric'], runs), mechanism_acted_in(configs, runs)
