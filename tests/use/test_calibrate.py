"""A threshold from a few fully labelled photos: the best there, kept with the run, read by all who
use it, and refused without such photos.
"""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from trained import change_threshold

from spml_nb import metrics, training
from spml_nb.base.errors import SpmlError
from spml_nb.cli import main
from spml_nb.data import load
from spml_nb.data.labels import FULL_PHOTOS, FULL_PHOTOS_GUIDE
from spml_nb.runs.folder import CALIBRATION, open_run
from spml_nb.use.calibrate import FEW_CALIBRATION_PHOTOS, _cross_validate, calibrate
from spml_nb.use.export import export
from spml_nb.use.model_card import write_model_folder
from spml_nb.use.predict import open_model, predict
from spml_nb.use.scoring import evaluate_model

pytestmark = pytest.mark.silent('A3')


@pytest.fixture
def run(made, tmp_path):
    "A run of one's own, to be changed; the threshold of its training is far too high."
    return change_threshold(made.copy('linear', tmp_path), 1 - 1e-7)


def sample(made, folder, rows, are_copies=False, **columns):
    """Some of the photos as a folder, with other columns beside or instead of `labels` (None:
    without it). They show the same, but are other files than those that trained the run, unless
    they are copies.
    """
    folder.mkdir()
    shutil.copytree(made.folder / 'images', folder / 'images')
    for photo in [] if are_copies else (folder / 'images').rglob('*.*'):
        photo.write_bytes(photo.read_bytes() + b' ')
    table = (
        pd.read_csv(made.folder / 'labels.csv')[['image', 'labels']].iloc[rows].assign(**columns)
    )
    table.dropna(axis=1, how='all').to_csv(folder / 'labels.csv', index=False)
    return folder


def test_the_threshold_is_the_best_of_the_sample_and_everybody_reads_it(made, run, tmp_path):
    rows = np.arange(0, 48, 3)
    before = open_model(run).threshold
    folder = sample(made, tmp_path / 'few', rows)
    result = (run / 'result.json').read_bytes()
    found = calibrate(run, folder)
    data = made.data.labels[rows] > 0
    p = predict(run, [made.data.images[row] for row in rows])[made.data.class_names].to_numpy()
    scores = {t: metrics.f1(p, data, threshold=t) for t in np.unique(p)}
    assert (
        found.f1 == max(scores.values()) == scores[min(t for t in scores if t >= found.threshold)]
        and found.f1_before == metrics.f1(p, data, threshold=before) <= found.f1
    )
    assert (found.before, found.photos, found.labels_a_photo) == (
        before,
        16,
        data.sum(1).mean(),
    ) and found.named == (p >= found.threshold).sum(1).mean()
    assert (
        predict(run, made.test).attrs['threshold']
        == training.evaluate(run)[0]['threshold']
        == evaluate_model(run, made.folder).threshold
        == found.threshold
    )
    assert (
        open_model(export(run, tmp_path / 'm.safetensors')).threshold
        == found.threshold
        == open_run(run).threshold()
        != before
    )
    text = (write_model_folder(run, tmp_path / 'card') / 'README.md').read_text()
    assert (
        f'{found.threshold:.4g}' in text
        and '16 fully labelled photos of few' in text
        and 'epoch and the threshold' not in text
    )
    assert '16 of them chose its threshold' in evaluate_model(run, folder, 'all').heading
    exported = export(run, tmp_path / 'again.safetensors')  # which photos, it does not say
    assert 'its threshold was chosen on photos of this' in evaluate_model(exported, folder).heading
    assert calibrate(run, folder) == found  # beside the training's, whatever was in use
    assert (run / 'result.json').read_bytes() == result
    (run / CALIBRATION).unlink()
    assert open_model(run).threshold == before


def test_photos_that_chose_are_known_in_any_folder(made, run, tmp_path):
    rows = np.delete(np.arange(48), made.data.rows('train')[0])  # or it is its own folder
    calibrate(run, sample(made, tmp_path / 'copies', rows, are_copies=True))
    tested = len(made.data.rows('test'))
    assert f'{tested} of them chose its threshold' in evaluate_model(run, made.folder).heading


def test_the_command_says_what_changed(made, run, tmp_path, capsys):
    assert main(['calibrate', str(run), str(sample(made, tmp_path / 'few', range(20)))]) == 0
    told, stored = capsys.readouterr().out, json.loads((run / CALIBRATION).read_text())
    for number in (
        f"{stored['threshold']:.4g}",
        f"{stored['before']:.4g}",
        '20 fully labelled',
        f"{100 * stored['f1']:.1f} %",
        f"{stored['named']:.2f}",
        f"{stored['labels_a_photo']:.2f}",
    ):
        assert number in told
    assert stored['dataset'] == 'few'
    assert told.endswith(f'to go back: remove {run / CALIBRATION}\n')


def test_a_report_of_before_is_said_to_be_old(made, run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(['report', str(run)]) == 0
    page = tmp_path / f'{run.name}.html'
    assert main(['calibrate', str(run), str(sample(made, tmp_path / 'few', range(20)))]) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    assert told.startswith(f'{page} may have another threshold')
    assert told.endswith(f'rm {page} && spml report {run}')


def photos_by(rng, n, shifts):
    "(n, C) probabilities and labels; the logits of each class are moved by its shift."
    labels = np.where(rng.random((n, len(shifts))) < 0.4, 1, -1)
    logits = 2 * labels + rng.normal(size=labels.shape) + np.array(shifts)
    return 1 / (1 + np.exp(-logits)), labels


def test_gains_are_measured_on_photos_that_did_not_choose():
    "Against many fresh photos of the same kind; thresholds fitted to noise gain nothing there."
    rng = np.random.default_rng(0)
    for shifts, better in (([0, 0, 0], False), ([-4, 0, 4], True)):
        found = [_cross_validate(*photos_by(rng, 60, shifts), 0.999) for _ in range(10)]
        fresh, labels = photos_by(rng, 20_000, shifts)
        actual = metrics.f1(fresh, labels, threshold=metrics.best_threshold(fresh, labels))
        actual -= metrics.f1(fresh, labels, threshold=0.999)
        gain = np.array([first for first, _ in found])
        assert gain[:, 0].mean() == pytest.approx(100 * actual, abs=2.5)
        offered = [mean > half for _, (mean, half) in found]
        assert all(offered) if better else not any(offered)


@pytest.mark.parametrize(
    ('changes', 'said'),
    [
        ({'gain_per_class': (2.0, 1.0)}, '(--per-class) is better: +2.0 ± 1.0'),
        ({'gain_per_class': (2.0, 3.0)}, '(--per-class) is not shown to be better: +2.0 ± 3.0'),
        ({'gain_per_class': (-2.0, 1.0)}, '(--per-class) is worse: -2.0 ± 1.0'),
        ({'gain_per_class': None}, f'at least {FULL_PHOTOS} photos'),
        ({'gain': (-3.0, 1.0)}, '-3.0 ± 1.0 points of micro-F1: worse\nnot taken'),
        ({'gain': (-3.0, 4.0)}, 'micro-F1: none\nnot taken'),
        ({'gain': (1.0, 2.0)}, 'which may be chance'),
    ],
)
def test_a_threshold_for_each_class_is_offered_only_where_it_is_better(
    made, run, tmp_path, changes, said
):
    found = calibrate(run, sample(made, tmp_path / 'few', range(20)))
    assert found.gain_per_class is None and found.gain is not None
    text = str(replace(found, **changes))
    assert said in text and ('(--per-class) is better: ' in text) == ('is better' in said)


def test_pages_and_messages_name_one_number_of_photos_to_label_in_full():
    root = Path(__file__).parents[2]
    guide = json.loads((root / FULL_PHOTOS_GUIDE).read_text())
    text = '\n'.join(''.join(cell['source']) for cell in guide['cells'])
    choosing = re.findall(r'(\d+) of them choose the threshold', text)
    drawn = re.findall(r'Begin with (\d+)|draw_sample\(names, (\d+)\)|testing; None: (\d+),', text)
    readme = (root / 'README.md').read_text()
    drawn += re.findall(r'--sample FULL (\d+)()()', readme)
    troubles = (root / 'TROUBLESHOOTING.md').read_text()
    choosing += re.findall(r'\[(\d+) photos labelled in full\]', troubles)
    assert len(choosing) == 2 and {*choosing} == {str(FULL_PHOTOS)}
    # half of a sample chooses, half measures
    assert len(drawn) == 4 and {*map(''.join, drawn)} == {str(2 * FULL_PHOTOS)}


def test_a_threshold_that_gains_nothing_is_not_taken(made, run, tmp_path, capsys):
    folder = sample(made, tmp_path / 'few', range(40))
    found = calibrate(run, folder)
    assert found.taken and (run / CALIBRATION).exists()
    # the best one already: what others choose can only be worse
    change_threshold(run, found.threshold)
    again = calibrate(run, folder)
    assert again.gain[0] <= 0 and not again.taken and not (run / CALIBRATION).exists()
    assert f'the threshold of the training, {again.before:.4g}, is in use' in str(again)
    assert open_model(run).threshold == again.before
    assert main(['calibrate', str(run), str(folder)]) == 0
    assert 'to go back' not in capsys.readouterr().out


def test_an_earlier_calibration_stays_unless_as_many_photos_overrule_it(made, run, tmp_path):
    many = calibrate(run, sample(made, tmp_path / 'many', range(40)))
    stored = (run / CALIBRATION).read_bytes()
    # the best threshold already, so that no photos can gain anything over it
    change_threshold(run, many.threshold)
    few = calibrate(run, sample(made, tmp_path / 'few', range(12)))
    assert not few.taken and few.keeps_earlier
    assert (run / CALIBRATION).read_bytes() == stored
    (said,) = [line for line in str(few).splitlines() if line.startswith('not taken: ')]
    assert f'{many.threshold:.4g}, from 40 photos of many' in said and '12 photos' in said
    as_many = calibrate(run, sample(made, tmp_path / 'as_many', range(8, 48)))
    assert not as_many.taken and not as_many.keeps_earlier
    assert not (run / CALIBRATION).exists()
    assert f'{many.threshold:.4g}, from 40 photos of many) is removed' in str(as_many)


def test_a_gain_replaces_an_earlier_calibration_and_says_so(made, run, tmp_path):
    many = calibrate(run, sample(made, tmp_path / 'many', range(40)))
    assert many.earlier is None and 'earlier' not in str(many)
    few = calibrate(run, sample(made, tmp_path / 'few', range(12)))
    assert few.taken and not few.keeps_earlier
    assert f'{many.threshold:.4g}, from 40 photos of many' in str(few)
    assert 'earlier' not in json.loads((run / CALIBRATION).read_text())


def test_a_calibration_that_holds_a_threshold_alone_is_overruled(made, run, tmp_path):
    change_threshold(run, calibrate(run, sample(made, tmp_path / 'many', range(40))).threshold)
    (run / CALIBRATION).write_text('{"threshold": 0.3}')
    few = calibrate(run, sample(made, tmp_path / 'few', range(12)))
    assert not few.taken and not few.keeps_earlier and not (run / CALIBRATION).exists()
    assert 'the earlier calibration (0.3) is removed' in str(few)


def test_a_class_that_is_named_on_nearly_every_photo_is_said(made, run, tmp_path, monkeypatch):
    folder = sample(made, tmp_path / 'few', range(20))
    monkeypatch.setattr(metrics, 'best_threshold', lambda *_, **options: 1 - 1e-9)
    assert not calibrate(run, folder).overused
    monkeypatch.setattr(metrics, 'best_threshold', lambda *_, **options: 1e-9)
    counts = dict(zip(made.data.class_names, (made.data.labels[:20] > 0).sum(0), strict=True))
    found = calibrate(run, folder)
    assert found.overused == {n: (20, count, 20) for n, count in counts.items() if count < 18}
    name, (named, present, _) = next(iter(found.overused.items()))
    assert f'{name} is named on 20 of 20 photos; {present} have it. More training' in str(found)
    fewer = replace(found, overused={name: (19, present, 12)})
    assert f'{name} is named on 19 of 20 photos; {present} have it. Its own threshold' in str(fewer)
    assert 'names it on 12' in str(fewer)


def test_of_a_table_with_parts_the_validation_photos_choose_and_the_test_photos_measure(
    made, run, tmp_path
):
    parts = ['val', 'test'] * 12
    folder = sample(made, tmp_path / 'halves', range(24), split=parts)
    found = calibrate(run, folder)
    rows = range(0, 24, 2)
    assert found.photos == 12
    assert found.photo_hashes == [load(folder, scored=True).photo_hashes[row] for row in rows]
    marked = sample(made, tmp_path / 'test', range(24), split='test')
    assert calibrate(run, marked).photos == 24  # nothing else could choose


def test_a_class_that_a_complete_table_never_names_is_absent(made, run, tmp_path):
    rows = [
        row for row in range(48) if made.data.labels[row, made.data.class_names.index('bright')] < 0
    ]
    found = calibrate(run, sample(made, tmp_path / 'dark', rows))
    data = made.data.labels[rows] > 0
    p = predict(run, [made.data.images[row] for row in rows])[made.data.class_names].to_numpy()
    assert found.photos == len(rows) and found.f1 == metrics.f1(p, data, threshold=found.threshold)


def test_photos_with_unknown_labels_do_not_count(made, run, tmp_path):
    cells = (
        (pd.DataFrame(made.data.labels, columns=made.data.class_names) > 0)
        .astype(int)
        .astype(object)
    )
    cells.iloc[12:, 0] = ''
    folder = sample(made, tmp_path / 'mixed', range(48), labels=None, **cells)
    assert calibrate(run, folder).photos == 12 and calibrate(run, folder) == calibrate(run, folder)
    cells.iloc[:, 0] = ''
    with pytest.raises(
        SpmlError,
        match="'none' has no photo with all 3 labels known; .* blue",
    ):
        calibrate(run, sample(made, tmp_path / 'none', range(48), labels=None, **cells))


def test_copies_of_photos_that_trained_the_run_do_not_choose(made, run, tmp_path):
    trained = made.data.rows('train')[1:]
    held_out = np.flatnonzero(made.data.split != 'train')
    rows = np.sort([*trained, *held_out])
    copies = sample(made, tmp_path / 'copies', rows, are_copies=True)
    found = calibrate(run, copies)
    assert (found.photos, found.left_out) == (len(held_out), len(trained))
    assert found.photo_hashes == [made.data.photo_hashes[row] for row in held_out]
    alone = calibrate(run, sample(made, tmp_path / 'alone', held_out, are_copies=True))
    assert found.threshold == alone.threshold and alone.left_out == 0
    assert f'left out because they trained the run: {len(trained)} ' in str(found)
    assert 'left out' not in str(alone) and 'is not known' not in str(alone)


def test_a_sample_that_is_almost_all_of_trained_photos_is_refused(made, run, tmp_path):
    rows = [*made.data.rows('train')[:15], *made.data.rows('test')[:3]]
    with pytest.raises(SpmlError, match='18 photos of .few. .* 15 trained the run and are left'):
        calibrate(run, sample(made, tmp_path / 'few', rows, are_copies=True))
    assert not (run / CALIBRATION).exists()


def own_folder(made, tmp_path):
    "A run on a folder of one's own, whose table can change. Returns: both folders."
    folder = shutil.copytree(made.folder, tmp_path / 'own')
    run = made.copy('linear', tmp_path)
    config = json.loads((run / 'config.json').read_text())
    (run / 'config.json').write_text(json.dumps(config | {'dataset': str(folder)}))
    return folder, change_threshold(run, 1 - 1e-7)


@pytest.mark.parametrize('kept', [(), ('test',)])
def test_photos_that_trained_do_not_choose_if_the_parts_of_their_folder_change(
    made, tmp_path, kept
):
    """Of a table without the column `split`, photos are marked after the training; then of one that
    had test photos marked.
    """
    folder, run = own_folder(made, tmp_path)
    assert calibrate(run, folder).left_out == 0
    before = made.data.split
    marked = np.where(np.isin(before, kept), before, 'train').astype(object)
    marked[before == 'val'] = 'val'
    marked[made.data.rows('train')[:20]] = 'val'
    if not kept:
        marked[made.data.rows('test')[:5]] = 'val'
        marked[made.data.rows('train')[20:25]] = 'test'
    table = pd.read_csv(folder / 'labels.csv').assign(split=marked)
    table.to_csv(folder / 'labels.csv', index=False)
    stays = (marked == 'val') & (before != 'train')
    if stays.sum() < FEW_CALIBRATION_PHOTOS:
        with pytest.raises(SpmlError, match='20 trained the run and are left out'):
            calibrate(run, folder)
        return
    with pytest.warns(UserWarning, match='parts have changed .* are left out'):
        found = calibrate(run, folder)
    assert (found.photos, found.left_out) == (stays.sum(), 20)


def test_a_folder_that_no_longer_tells_which_photos_trained_is_said(made, tmp_path):
    folder, run = own_folder(made, tmp_path)
    table = pd.read_csv(folder / 'labels.csv')[:40]
    table.assign(split=np.resize(['train', 'val', 'test'], 40)).to_csv(
        folder / 'labels.csv', index=False
    )
    with pytest.warns(UserWarning, match='own: .* have changed since .* may have trained the run'):
        found = calibrate(run, folder)
    assert found.left_out is None and 'is not known' in str(found)
    shutil.rmtree(folder)
    other = calibrate(run, sample(made, tmp_path / 'few', range(20)))
    assert other.left_out is None and 'is not known' in str(other)


def test_a_run_that_was_trained_on_its_validation_photos_is_not_calibrated_on_them(made, tmp_path):
    folder, run = own_folder(made, tmp_path)
    config = json.loads((run / 'config.json').read_text())
    change = {'hold_out': False, 'selection': 'last'}
    (run / 'config.json').write_text(json.dumps(config | change))
    logits = dict(np.load(run / 'logits.npz'))
    np.savez(run / 'logits.npz', test=logits['test'])
    count = len(made.data.rows('val'))
    with pytest.raises(SpmlError, match=f'{count} trained the run and are left out'):
        calibrate(run, folder)


def test_gains_of_groups_are_measured_on_other_groups():
    """20 groups of 10 equal photos. Their labels are chance, so that a threshold gains nothing on
    other groups, and an interval over single photos would be too narrow.
    """
    rng = np.random.default_rng(0)
    p, labels = photos_by(rng, 20, [0, 0, 0])
    groups = np.repeat(np.arange(20), 10)
    one = _cross_validate(p, labels, 0.999)
    ten = _cross_validate(p[groups], labels[groups], 0.999, groups)
    assert np.allclose(one[0], ten[0])
    alone = _cross_validate(p[groups], labels[groups], 0.999)
    assert alone[0][1] < 0.5 * ten[0][1]


def test_groups_of_the_table_choose_and_are_said(made, run, tmp_path):
    groups = [str(k // 4) for k in range(40)]
    found = calibrate(run, sample(made, tmp_path / 'ten', range(40), group=groups))
    assert found.groups == 10 and 'over 10 groups of photos' in str(found)
    alone = calibrate(run, sample(made, tmp_path / 'alone', range(40)))
    assert alone.groups is None and 'groups' not in str(alone)
    assert (found.threshold, found.f1) == (alone.threshold, alone.f1) and found.gain != alone.gain
    with pytest.warns(UserWarning, match='only 4 groups of fully labelled photos chose'):
        calibrate(run, sample(made, tmp_path / 'four', range(40), group=[k % 4 for k in range(40)]))
    single = calibrate(run, sample(made, tmp_path / 'one', range(40), group='all', split='test'))
    assert single.gain is None and 'of one group' in str(single)


def test_of_the_folder_that_it_was_trained_on_only_validation_photos_count(made, run):
    assert calibrate(run, made.folder).photos == len(made.data.rows('val'))


def test_a_few_photos_bring_a_warning_with_the_range_of_other_samples(made, run, tmp_path):
    with pytest.warns(
        UserWarning,
        match='only 6 fully labelled photos .* from [0-9.e-]+ to [0-9.e-]+',
    ):
        calibrate(run, sample(made, tmp_path / 'few', range(6)))


def test_what_cannot_set_a_threshold_is_refused_and_changes_nothing(made, run, tmp_path):
    one_each = sample(
        made,
        tmp_path / 'one',
        range(20),
        positives=pd.read_csv(made.folder / 'labels.csv').labels.str.split('|').str[0],
        labels=None,
    )
    with pytest.raises(SpmlError, match="'one' has no photo with all 3 labels known"):
        calibrate(run, one_each)
    with pytest.raises(SpmlError, match=r'none of the 20 fully labelled photos'):
        calibrate(run, sample(made, tmp_path / 'other', range(20), labels='cat'))
    with pytest.raises(SpmlError, match='is an exported model'):
        calibrate(export(run, tmp_path / 'm.safetensors'), one_each)
    with pytest.raises(SpmlError, match='no run'):
        calibrate(tmp_path / 'gone', one_each)
    assert not (run / CALIBRATION).exists()


@pytest.mark.parametrize('content', ['{', '[]', '{"threshold": 3}', '{"threshold": "high"}', '{}'])
def test_a_damaged_calibration_names_itself(run, content):
    (run / CALIBRATION).write_text(content)
    with pytest.raises(
        SpmlError,
        match=r'calibration\.json is damaged .*Remove it to go back to the threshold',
    ):
        open_model(run)


def test_thresholds_of_classes_are_kept_and_read_and_go_with_the_export(made, run, tmp_path):
    kept = calibrate(run, sample(made, tmp_path / 'few', range(0, 48, 2)))
    stored = dict(zip(made.data.class_names, kept.class_thresholds, strict=True))
    for model in (
        run,
        export(run, tmp_path / 'm.safetensors'),
        write_model_folder(run, tmp_path / 'c'),
    ):
        assert predict(model, made.test, per_class=True).attrs['threshold'] == stored
    assert json.loads((tmp_path / 'c' / 'config.json').read_text())['class_thresholds'] == stored
    card = (tmp_path / 'c' / 'README.md').read_text()
    assert all(f'{t:.3g} |' in card for t in kept.class_thresholds) and '--per-class' in card


def test_a_recall_needs_no_full_labels(made, run, tmp_path):
    first = [cell.split('|')[0] for cell in pd.read_csv(made.folder / 'labels.csv').labels]
    folder = sample(made, tmp_path / 'one', range(48), labels=None, positives=first)
    with pytest.raises(SpmlError):
        calibrate(run, folder)
    kept = calibrate(run, folder, recall=0.75)
    assert (kept.photos, kept.recall, kept.f1, kept.labels_a_photo) == (48, 0.75, None, None)
    p = predict(run, list(made.data.images))[made.data.class_names].to_numpy()
    columns = [made.data.class_names.index(name) for name in first]
    observed = p[np.arange(48), columns]
    assert (observed >= kept.threshold).sum() == 36
    assert '75 %' in str(kept)
    card = (write_model_folder(run, tmp_path / 'card') / 'README.md').read_text()
    assert 'for a recall of 75 %' in card


def test_the_command_takes_a_recall(made, run, tmp_path, capsys):
    folder = sample(made, tmp_path / 'few', range(20))
    assert main(['calibrate', str(run), str(folder), '--recall', '0.9']) == 0
    assert json.loads((run / CALIBRATION).read_text())['recall'] == 0.9
    assert main(['calibrate', str(run), str(folder), '--recall', '90']) == 2
    assert '90' in capsys.readouterr().err
    photos = [str(photo) for photo in made.test]
    assert main(['predict', str(run), *photos, '--per-class']) == 0
    said = capsys.readouterr()
    lowest = min(json.loads((run / CALIBRATION).read_text())['class_thresholds'])
    assert f'{lowest:.3g}' in said.err and said.out.startswith('image,labels\n')
    assert main(['evaluate', str(run), str(folder), '--part', 'all', '--per-class']) == 0
    assert f'{lowest:.3g}' in capsys.readouterr().out


def test_names_that_model_and_table_do_not_share_are_noted(made, run, tmp_path):
    renamed = pd.read_csv(made.folder / 'labels.csv').labels.str.replace('bright', 'Bright')
    kept = calibrate(run, sample(made, tmp_path / 'few', range(48), labels=renamed))
    assert (kept.foreign, kept.missing) == (['Bright'], ['bright'])
    noted = [line for line in str(kept).splitlines() if line.startswith('noted: ')]
    assert len(noted) == 2 and 'Bright' in noted[0] and 'bright' in noted[1]
    assert 'noted: ' not in str(calibrate(run, made.folder))
