"""The numbers in the conclusion on EM and APL, worked out again from the record."""

from pathlib import Path

import pandas as pd
import pytest
from worked_out import recorded_runs

from spml_nb.replication.papers import em_apl_conclusion

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope='module')
def record():
    return recorded_runs()


def test_f1_at_chosen_thresholds_is_recomputed_from_the_record_alone(record):
    """The setting with the best validation F1 of the search, then the seeds that trained it."""
    same = (record.labels == 'single') & (record.train_images == 0) & (record.regime == 'linear')
    same &= record.patience != 0  # no arm of an ablation
    same &= (record.trained_validation == '') & (record.backbone == 'efficientnet_lite0')
    runs = record[same & (record['head'] == 'linear') & (record.batch_size == 64)]
    means = []
    for dataset in ('voc12_animals', 'coco18', 'mirflickr14', 'cub_crops'):
        f1 = {}
        for loss in ('em', 'an'):
            lines = runs[(runs.dataset == dataset) & (runs.loss == loss)]
            tried = lines[lines.seed == 1000]
            if 'val_macro_f1' not in tried or tried.val_macro_f1.isna().any():
                pytest.skip('the searches have no F1 on validation')
            best = tried.sort_values('val_macro_f1').iloc[-1]
            chosen = lines[(lines.lr == best.lr) & (lines.hparams == best.hparams)]
            final = chosen[(chosen.seed < 10) & (chosen.epochs == best.epochs)]
            f1[loss] = final.set_index('seed').test_macro_f1
        assert len(f1['em']) == len(f1['an']) == 10
        means.append(100 * (f1['em'] - f1['an']).mean())
    f1 = em_apl_conclusion._answer_f1(record)
    assert f1['macro_chosen'].mean == pytest.approx(sum(means) / 4, abs=1e-6)
    assert f1['macro_chosen'].between == '4 sets'


def test_f1_at_a_threshold_for_each_class_is_that_of_its_page(monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    measured = pd.read_csv(ROOT / 'outputs' / 'thresholds.csv', dtype={'labels': str})
    chosen = measured[(measured.labels == 'clean') & (measured.kind == 'per class')]
    level = chosen.groupby(['loss', 'dataset']).macro.mean()
    answer = em_apl_conclusion._answer_by_class_thresholds()
    assert answer.places == 6
    assert answer.mean == pytest.approx((level['em'] - level['an']).mean(), abs=1e-6)
    assert 0.2 < (answer.high - answer.low) / 2 < 2


def test_arms_of_apl_are_counted_and_their_falls_read_from_the_record(record):
    arms = em_apl_conclusion._describe_arms(record)
    page = pd.read_csv(ROOT / 'outputs' / 'ablations.csv')
    mean = page[(page.ablation == 'em_apl_parts') & (page.column == 'mean')]
    assert arms['acted'] == (mean.acted.min(), mean.acted.max()) and {*mean.may_act} == {
        arms['runs']
    }
    rates = page[(page.ablation == 'em_apl_parts') & (page.arm == 'EM')].dropna(subset='lr')
    falls = []
    for place in rates.itertuples():
        lines = record[
            (record.loss == 'em') & (record.dataset == place.dataset) & (record.lr == place.lr)
            & (record.patience == 0) & (record.epochs == 40) & (record.seed < 10)
        ]  # fmt: skip
        assert len(lines) == 10
        falls.append((lines.val_map - lines.val_map_at_end).mean())
    assert arms['em_falls'] == pytest.approx(sum(falls) / 4, abs=1e-6)
    assert arms['precision'] > 100 - em_apl_conclusion._estimate_positive_chance() > 90


def test_the_warm_up_of_apl_is_stretched_to_our_epochs():
    warm_up = em_apl_conclusion._stretch_warm_up(40)
    assert warm_up['paper'] == [5, 5, 4, 3] and warm_up['of_paper'] == 10
    assert warm_up['ours'] == [20, 20, 16, 12]
