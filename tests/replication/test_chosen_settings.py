"""What the searches behind a table chose stands under it."""

import pandas as pd
import pytest

from spml_nb.base.errors import SpmlError
from spml_nb.replication import chosen_settings, published, tables
from spml_nb.sweeps.queue import run_key


def finished(plan, best):
    """The runs of a search, of which one has the highest validation mAP."""
    configs = plan.search
    keys = [run_key(config) for config in configs]
    scores = [float(k == best) for k in range(len(configs))]
    return pd.DataFrame({'val_map': scores, 'validation': scores}, index=keys)


def plan_of(paper, number, row, column):
    return tables.plan_cell(
        published.index_cells(paper, number)[row, column], published.PHOTOS_SUITE
    )


def test_the_rate_and_the_constants_are_those_of_the_best_run_on_validation():
    plan = plan_of('hml', '2', 'LS', 'VOC12')
    table = chosen_settings.chosen_settings('hml', '2', finished(plan, 3))
    config = plan.search[3]
    expected = f'{config.lr:.3g}; smoothing {config.hparams["smoothing"]:.3g}'
    assert table.to_dict() == {'voc12_animals': {'ls': expected}}


def test_a_first_draw_has_the_papers_constants():
    plan = plan_of('hml', '2', 'HML (Ours)', 'VOC12')
    text = chosen_settings.chosen_settings('hml', '2', finished(plan, 0)).at['hml', 'voc12_animals']
    assert text.split('; ')[1:] == ['scale 20', 'margin 0.3', 'adaptive_lr 0.01']


def test_what_a_table_states_is_not_chosen():
    plan = plan_of('two_way', '1', 'T_P = 4', 'mAP@class / T_N = 1')
    table = chosen_settings.chosen_settings('two_way', '1', finished(plan, 2))
    assert table.to_dict() == {'coco18': {'two_way, labels full': f'{plan.search[2].lr:.3g}'}}


def test_other_heads_and_batches_have_lines_of_their_own():
    searches = [
        plan_of('lac', '3', 'AN', 'VOC'),
        plan_of('two_way', '5', 'mAP@class', 'M = 16'),
    ]
    lac, two_way = (finished(plan, 1) for plan in searches)
    assert list(chosen_settings.chosen_settings('lac', '3', lac).index) == ['an, head labelwise']
    assert list(chosen_settings.chosen_settings('two_way', '5', two_way).index) == [
        'two_way, labels full, batches of 512'
    ]


def test_markdown_is_a_table_or_nothing():
    plan = plan_of('hml', '2', 'AN', 'VOC12')
    text = chosen_settings.format_chosen_settings('hml', '2', finished(plan, 1))
    assert f'| an | {plan.search[1].lr:.3g} |' in text
    assert chosen_settings.format_chosen_settings('hml', '2', pd.DataFrame()) == ''
    assert chosen_settings.format_chosen_settings('hml', '1', finished(plan, 1)) == ''
    with pytest.raises(SpmlError):
        chosen_settings.format_chosen_settings('hml', '9', pd.DataFrame())
