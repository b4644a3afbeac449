"""The gap to all labels: chosen on validation, shares as Fieller's formula gives them, the page."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from spml_nb.base import settings
from spml_nb.replication import gains, gap_to_full_labels
from spml_nb.replication.experiments import clean_photos
from spml_nb.replication.experiments.clean_photos import METHODS, Use
from spml_nb.replication.gap_to_full_labels import MEAN, Reached, Share, Step
from spml_nb.runs.config import Config
from spml_nb.statistics import Scores

SETS = ('ccp', 'coco18')  # with many labels a photo, and with few
ROWS = {  # loss, head, labels: points over AN, validation, whether the mechanism acted
    ('an', 'linear', 'single'): (0, 50, True),
    ('an', 'cosine', 'single'): (1, 51, True),
    ('an', 'labelwise', 'single'): (3, 49, True),
    ('em', 'linear', 'single'): (2, 54, True),
    ('llr', 'linear', 'single'): (4, 53, True),  # best on test
    ('epr', 'linear', 'single'): (2, 60, True),  # is told a number
    ('em_apl', 'linear', 'single'): (2, 61, False),
    ('hml', 'cosine', 'single'): (5, 55, True),
    ('bce', 'linear', 'full'): (10, 70, True),
    ('bce', 'cosine', 'full'): (10.5, 71, True),
}
ALONE = {'linear': (1, 44), 'cosine': (6.5, 45)}  # BCE on the other half alone
PAST = {'an': (6, 40), 'em': (7, 41), 'hml': (6.5, 42)}  # points, validation of the other half


def scores(dataset, points, seed=0, count=5):
    noise = np.random.default_rng(seed).normal(0, 0.3, count)
    return Scores(pd.Series(40 + points + noise), dataset=dataset)


def board(sets=SETS, rows=ROWS):
    "Lines as from `gains.gains_of_suites`, with those of other suites and choices."
    lines = []
    for dataset in sets:
        for k, ((loss, head, labels), (points, validation, acted)) in enumerate(rows.items()):
            place = ['photos', dataset, loss, head, labels, 'clean']
            about = [scores(dataset, points, k), 5, float(validation), acted]
            lines.append([*place, gains.PLAIN_HEAD, *about])
    other = ['linear', 'single', 'observed', gains.PLAIN_HEAD, scores('coco18', 9), 5, 99.0, True]
    lines.append(['photos', 'coco18', 'wan', *other])
    lines.append(['photos_finetune', 'coco18', 'wan', 'linear', 'single', 'clean', *other[3:]])
    columns = [*gains.Setting._fields, 'baseline', 'scores', 'n', 'validation', 'acted']
    return pd.DataFrame(lines, columns=columns)


@pytest.fixture
def beside(monkeypatch):
    "Runs that were trained on half of validation, and runs that were not."

    def plan_runs(known):
        lines = []
        for dataset in SETS:
            for row in METHODS:
                points, validation = PAST[row.loss]
                for use, more in ((Use.BESIDE, 0), (Use.CHOOSE, 50)):
                    for seed in range(5):
                        config = Config(dataset=dataset, loss=row.loss, head=row.head, seed=seed)
                        numbers = [seed, config, 40.0 + points + more, validation + more]
                        lines.append([dataset, use, row.loss, row.head, *numbers])
            for head, (points, validation) in ALONE.items():
                for seed in range(5):
                    config = Config(
                        dataset=dataset, loss='bce', head=head, labels='full', seed=seed
                    )
                    numbers = [seed, config, 40.0 + points + 3 * (dataset == 'ccp'), validation]
                    lines.append([dataset, Use.ALONE, 'bce', head, *numbers])
        names = [*clean_photos.Place._fields, 'seed', 'config', 'test_map', 'validation']
        return pd.DataFrame(lines, columns=names)

    monkeypatch.setattr(clean_photos, 'plan_runs', plan_runs)
    monkeypatch.setattr(gap_to_full_labels, 'image_error', lambda names, weights, fallback: 0.0)


def measure(measured=None, for_all=False):
    measured = board() if measured is None else measured
    candidates = gap_to_full_labels.list_candidates(measured, pd.DataFrame())
    return gap_to_full_labels.measure_gap(
        measured, gap_to_full_labels.choose_candidates(candidates, for_all)
    )


def test_validation_chooses_among_what_may_be_taken(beside):
    found = measure().set_index(['dataset', 'step'])
    chosen = {step: tuple(found.loc[('coco18', step), ['loss', 'head']]) for step in Step}
    assert chosen == {
        Step.METHOD: ('em', 'linear'),
        Step.HEAD: ('an', 'cosine'),
        Step.BOTH: ('hml', 'cosine'),
        Step.PHOTOS: ('hml', 'cosine'),
        Step.ALONE: ('bce', 'cosine'),
    }
    assert list(dict.fromkeys(found.index.get_level_values('dataset'))) == [*reversed(SETS), MEAN]
    gained = found.gain['coco18', Step.PHOTOS]
    assert gained.mean == pytest.approx(46.5 - scores('coco18', 0).by_seed.mean())


def test_one_method_for_all_has_runs_on_the_most_sets(beside):
    measured = board()
    lone = (measured.loss == 'em') & (measured.dataset == 'ccp')
    measured.loc[lone, 'validation'] = 99.0
    found = measure(measured[~((measured.loss == 'em') & (measured.dataset == 'coco18'))], True)
    of_sets = found[(found.step == Step.METHOD) & (found.dataset != MEAN)]
    assert of_sets.loss.tolist() == ['llr', 'llr']


def fieller(gain, whole):
    "Closed form, for differences by seed alone."
    (a, c), (_, b) = np.cov(gain, whole) / len(gain)
    t = stats.t.ppf(0.975, len(gain) - 1) ** 2
    g, f = np.mean(gain), np.mean(whole)
    return sorted(np.roots([f**2 - t * b, -2 * (g * f - t * c), g**2 - t * a]))


def test_the_interval_of_a_share_is_that_of_the_closed_form(beside):
    own, an, full = (
        scores('coco18', points, seed).by_seed for seed, points in enumerate((2, 0, 5))
    )
    places = [Reached(*(Scores(each, dataset='coco18') for each in (own, an, full)))]
    share = gap_to_full_labels.estimate_share(places)
    expected = np.mean(own - an) / np.mean(full - an)
    assert share == pytest.approx((expected, *fieller(own - an, full - an)), abs=1e-3)
    assert str(share) == f'{100 * expected:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f})'


def test_a_gap_that_may_be_none_bounds_no_share(beside):
    values = [2.1, 1.9, 2.2], [0.0, 0.0, 0.0], [1.0, -1.2, 0.5]
    share = gap_to_full_labels.estimate_share(
        [Reached(*(Scores(pd.Series(each)) for each in values))]
    )
    assert np.isinf([share.low, share.high]).any()
    assert str(Share(0.5, -np.inf, -0.2)) == '50 % (−∞ to −20)'


def test_the_mean_is_of_the_mean_gap(beside):
    found = measure().set_index(['step', 'dataset'])
    of_step = found.loc[Step.BOTH]
    means = [np.mean([effect.mean for effect in of_step[name][:-1]]) for name in ('gain', 'gap')]
    pooled = of_step.loc[MEAN]
    assert (pooled.gain.mean, pooled.gap.mean) == pytest.approx(means)
    assert pooled.share.closed == pytest.approx(means[0] / means[1])
    ends = pooled.share.high - pooled.share.low
    assert 0 < ends < of_step.share['coco18'].high - of_step.share['coco18'].low


def test_the_picture_has_the_gaps_and_gains(beside):
    found = measure()
    found = found[found.step != Step.ALONE]
    (ax,) = gap_to_full_labels.draw_gap(measure()).axes
    sets = list(dict.fromkeys(found.dataset))
    assert [patch.get_width() for patch in ax.patches] == pytest.approx(
        [found.gap[found.dataset == dataset].iloc[0].mean for dataset in sets]
    )
    drawn = [line.get_xdata()[0] for line in ax.lines if line.get_marker() in 'osD^']
    assert drawn == pytest.approx([effect.mean for effect in found.gain])
    assert [tick.get_text().partition('\n')[0] for tick in ax.get_yticklabels()] == sets


def test_the_page_says_what_was_chosen_and_what_is_missing(beside, monkeypatch, tmp_path):
    monkeypatch.setattr(settings, 'get_folder', lambda name: tmp_path)
    none = pd.DataFrame()
    assert gap_to_full_labels.write_gap(none, none) == []
    assert gap_to_full_labels.write_gap(none, board()[lambda lines: lines.labels == 'single']) == []
    assert gap_to_full_labels.write_gap(none, board()[lambda lines: lines.labels == 'full']) == []
    written = gap_to_full_labels.write_gap(none, board())
    assert [file.name for file in written] == ['gap.md', 'gap.svg']
    page = written[0].read_text()
    cells = next(line for line in page.splitlines() if line.startswith('| coco18 |')).split(' | ')
    for cell, name in zip(cells[2:], ('EM: +2', 'AN, cosine: +1', 'HML, cosine: +5'), strict=False):
        assert cell.startswith(name[:-2])
    assert (
        'voc12_animals, cub_crops, mirflickr14, corel5k' in page
        and 'would move the far end by +0.' in page
    )
    assert 'have no runs here' in page and '5.5 labels a photo the best method closes' in page
    with_side = gap_to_full_labels.write_gap(pd.DataFrame({'side': ['scores.npz']}), board())
    assert with_side == [written[0]] and 'have no runs here' not in written[0].read_text()
    assert len(page.splitlines()) <= 40
    joined = ' '.join(page.split())
    assert 'On coco18 that is +0.0 ± 0.0' in joined and 'On ccp that is' not in joined
    # photos of validation were trained on for more sets than a board has
    lone = gap_to_full_labels.write_gap(none, board(SETS[:1]))
    assert len(lone) == 2 and 'HML, cosine: +' in lone[0].read_text().partition('for all sets')[2]
