"""A verdict in a line for each paper: made from numbers, with its links, and none for what was not
run.
"""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from spml_nb import sweeps
from spml_nb.replication import claims, gains, paper_verdicts, published
from spml_nb.statistics import Size

ROOT = Path(__file__).resolve().parents[2]


def fabricated(**scores):
    """Runs of methods on cub_crops as the search would leave them. scores: by method, as many as
    seeds.
    """
    lines = {}
    for loss, each in scores.items():
        row = sweeps.search.Row(loss)
        tried = sweeps.search.search_configs(row, 'photos', 'cub_crops')
        known = pd.DataFrame({'val_map': 50.0}, index=[sweeps.run_key(c) for c in tried])
        lines |= {
            sweeps.run_key(c): {
                'run': sweeps.run_key(c),
                'loss': loss,
                'dataset': 'cub_crops',
                'val_map': 50.0,
                'test_map': 0.0,
            }
            for c in tried
        }
        for c, score in zip(
            sweeps.search.final_configs(row, 'photos', 'cub_crops', known, range(len(each))),
            each,
            strict=True,
        ):
            lines[sweeps.run_key(c)] = {
                'run': sweeps.run_key(c),
                'loss': loss,
                'dataset': 'cub_crops',
                'val_map': 50.0,
                'test_map': score,
            }
    return pd.DataFrame.from_dict(lines, orient='index').rename_axis('key')


def test_a_papers_line_has_its_main_claims_with_both_words_and_links_that_lead_somewhere():
    for paper in published.list_papers():
        checked = claims.report_claims('photos', pd.DataFrame(), paper)
        line = paper_verdicts.format_verdicts(checked)
        assert 1 <= checked.main.sum() <= 2
        assert all(claim in line for claim in checked.claim[checked.main])
        assert f'Of {len(checked)} claims {len(checked)} not run.' in line
        assert (ROOT / 'nbs' / 'papers' / f'{paper}.ipynb').is_file()
        assert len(line.split()) <= 60
    checked.loc[checked.main, ['ours', 'sign', 'size']] = [
        'reproduced',
        'reproduced on average',
        'mixed sources',
    ]
    checked.loc[checked.main, ['amount', 'half_width', 'published_amount']] = [1.77, 0.794, 3.2]
    line = paper_verdicts.format_verdicts(checked)
    for words in ('Reproduced on average', 'mixed sources', '+1.77 ± 0.79', '+3.20†'):
        assert words in line
    assert len(line.split()) <= 60


def test_sizes_are_counted_where_they_compare():
    checked = pd.DataFrame({'size': [*Size, Size.SMALLER, Size.NOT_PRINTED]})
    assert paper_verdicts.count_sizes(checked) == {'as large': 1, 'smaller': 2, 'larger': 1}
    assert paper_verdicts.count_sizes(checked[checked['size'] == Size.MIXED]) == {}


def whole(plain, plain_alone, published, acted=True, labels='single'):
    """Rows as from `gains_end_to_end`, on one set of photos."""
    index = pd.MultiIndex.from_tuples(
        [('voc12_animals', loss, 'linear', labels) for loss in ('em', 'wan', 'gr', 'llr', 'hml')],
        names=['dataset', 'loss', 'head', 'labels'],
    )
    part = {
        'level': 45.0,
        'level_half': 1.0,
        'gain': np.subtract(plain, 0.2),
        'gain_half': 0.4,
        'plain_half': 0.5,
        'late': 1 / 3,
        'acted': acted,
    }
    return pd.DataFrame(
        {
            'plain': plain,
            **part,
            **{f'{name}_alone': value for name, value in part.items()},
            'tried_low': 44.0,
            'tried_high': 46.5,
            'plain_alone': plain_alone,
            'published': published,
            'lowest': published,
            'highest': np.add(published, 0.5),
        },
        index=index,
    ).assign(level_alone=[45.0, 46.0, 47.5, 44.0, math.nan])


def test_whole_networks_stand_beside_a_head_alone_with_levels_and_what_is_not_run():
    found = whole(
        [4.0, 3.0, 2.0, 1.0, 0.5], [2.0, 1.5, 1.2, 0.1, 0.0], [-1.0, 0.0, 1.0, math.nan, 2.0]
    )
    text = paper_verdicts.format_whole_network(found)
    assert '| 45.0 ± 1.0 | 44.0 to 46.5 | 45.0 | 33% |' in text and '| – | 33% |' in text
    words = ' '.join(text.split())
    assert (
        'In 2 of 4 rows the whole network stays below' in words and 'by 1.0 to 2.5 points' in words
    )
    first, second = text.partition('Not run yet: on voc12_animals ')[2].split('; on cub_crops ')
    assert (
        first.startswith('an (linear), an (cosine), bce (linear)')
        and ' em (linear)' not in first
        and ' em (linear)' in second
        and 'lac (labelwise)' in second
    )


@pytest.mark.silent('B')
def test_gains_over_a_row_of_another_source_are_not_among_the_papers_gains(monkeypatch):
    line = {'loss': 'em', 'head': 'linear', 'labels': 'single'}

    def cell(gain, why=''):
        return {'cub': {'theirs': gain, 'uncounted': why}}

    monkeypatch.setattr(paper_verdicts, 'WHOLE_NETWORK_SUITE', 'photos')
    known = fabricated(an=[20.0, 21.0], em=[21.0, 23.0])
    found = paper_verdicts.gains_end_to_end(
        gains.gains_of_suites(known),
        known,
        [line | {'cells': cell(2.0)}, line | {'cells': cell(9.0, 'over another row')}],
    )
    em = found.loc['cub_crops', 'em', 'linear', 'single']
    assert (em.published, em.lowest, em.highest) == (2.0, 2.0, 2.0)


def test_a_network_whose_mechanism_did_not_act_says_so():
    five = [4.0, 3.0, 2.0, 1.0, 0.5]
    assert '(not exercised) | 45.0 ± 1.0' in paper_verdicts.format_whole_network(
        whole(five, five, five, acted=False)
    )
