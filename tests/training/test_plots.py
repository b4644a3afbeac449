"""What is shown of a run: photos as the network sees them, and names with any sign; and the
tutorial that keeps its files.
"""

import ast
import re
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from spml_nb import data as datasets
from spml_nb.data import miniatures
from spml_nb.training import plots as report

ROOT = Path(__file__).resolve().parents[2]
NAMES = ['cost $5_$', 'plain']


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close('all')


@pytest.mark.parametrize('suffix', ['.png', '.tif'])
def test_16_bit_grey_is_shown_as_the_network_sees_it(tmp_path, suffix):
    Image.fromarray(np.full((40, 60), 0x7F00, np.uint16)).save(tmp_path / f'a{suffix}')
    shown = report.open_thumbnail([tmp_path / f'a{suffix}'], 0, 30)
    assert shown.shape == (20, 30, 3) and (shown == 0x7F).all()


def test_a_photo_is_turned_upright_and_a_small_one_keeps_its_size(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new('RGB', (60, 40)).save(tmp_path / 'a.jpg', exif=exif)
    assert report.open_thumbnail([tmp_path / 'a.jpg'], 0, 30).shape == (30, 20, 3)
    assert report.open_thumbnail([tmp_path / 'a.jpg'], 0).shape == (60, 40, 3)


def test_names_are_not_read_as_formulas(tmp_path):
    pixels, labels = np.zeros((2, 8, 8, 3), np.uint8), np.array([[1, -1], [-1, 1]], np.int8)
    data = datasets.Dataset('d', pixels, labels, NAMES, np.array(['train', 'test']))
    report.photo_grid(data, np.arange(2), np.ones((2, 2)), 0.5).savefig(tmp_path / 'grid.png')
    figure = report.class_plot([0.5, 0.6], NAMES, labels)
    figure.savefig(tmp_path / 'classes.png')
    assert sorted(label.get_text() for label in figure.axes[0].get_xticklabels()) == sorted(NAMES)
    curves = pd.DataFrame({'stage': 1, 'loss': [1.0], 'val_map': [50.0]})
    report.learning_curves(curves, f'em on {NAMES[0]}').savefig(tmp_path / 'curves.png')


def test_observed_auc_has_a_column_where_it_was_measured():
    scores = {'val_map': 8.0, 'val_truth': 'observed only', 'test_map': 7.0}
    chose = {'observed_val_auc': 81.0, 'selected_by': 'observed_auc'}
    table = report.score_table(scores | chose)
    assert table['observed AUC (%)'].tolist() == [81.0, '–'] and table.columns[1] == 'mAP (%)'
    assert report.score_table(scores).columns[0] == 'mAP (%)' and report.score_table({}).empty


def test_the_curve_is_of_the_score_that_chose():
    curves = pd.DataFrame({'stage': 1, 'loss': [2.0, 1.0], 'val_map': [5.0, 6.0]})
    for table, drawn, label in (
        (curves, [5.0, 6.0], 'validation mAP (%)'),
        (curves.assign(val_auc=[70.0, 80.0]), [70.0, 80.0], 'validation observed AUC (%)'),
    ):
        axis = report.learning_curves(table).axes[1]
        assert axis.lines[0].get_ydata().tolist() == drawn and axis.get_ylabel() == label


def test_scores_stand_beside_what_they_were_measured_against():
    table = report.score_table(
        {
            'val_map': 80.12345,
            'val_truth': 'observed only',
            'test_map': 70.0,
            'test_micro_f1': 0.5,
            'test_truth': 'partly known',
            'test_left_out': 3,
        }
    )
    assert table['against'].tolist() == [
        'observed labels (unknown ones as negatives)',
        'known labels (3 unknown ones left out)',
    ]
    assert (
        table['mAP (%)'].tolist() == [80.1234, 70]
        and table['micro-F1 (%)'].tolist() == ['–', 50]
        and 'NaN' not in table.to_html()
    )
    assert report.score_table({'test_map': 1.0})['against'].tolist() == [
        'all labels'
    ]  # of a run from before this was stored


@pytest.mark.silent('A4')
def test_f1_against_observed_labels_is_not_shown():
    scores = {'test_map': 70.0, 'test_micro_f1': 0.5, 'test_macro_f1': 0.4}
    for truth, f1 in (('observed only', ['–', '–']), ('partly known', [50, 40])):
        assert (
            report.score_table(scores | {'test_truth': truth})[['micro-F1 (%)', 'macro-F1 (%)']]
            .iloc[0]
            .tolist()
            == f1
        )


@pytest.mark.silent('C4')
def test_a_class_that_no_image_has_gets_no_bar_and_comes_last():
    figure = report.class_plot([0.0, 0.6], NAMES, np.array([[-1, 1], [-1, -1]], np.int8))
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert heights[0] == 60 and np.isnan(heights[1])


@pytest.mark.parametrize(
    'labels, chance, title',
    [
        ([[1, -1], [-1, 1], [-1, -1], [-1, 1]], [50, 25], ''),
        (
            [[1, -1], [-1, 1], [0, -1], [-1, 0]],
            [100 / 3, 100 / 3],
            'against known labels (2 unknown ones left out)',
        ),
        (
            [[1, 0], [0, 1], [0, 0], [0, 1]],
            [50, 25],
            'against observed labels (unknown ones as negatives)',
        ),
    ],
)
def test_classes_are_plotted_beside_the_chance_of_what_counts(labels, chance, title):
    figure = report.class_plot([0.5, 0.6], NAMES, np.array(labels, np.int8))
    assert (
        np.allclose(figure.axes[0].lines[0].get_ydata(), chance)
        and figure.axes[0].get_title() == title
    )  # the better class first


def test_a_label_that_nobody_knows_is_neither_right_nor_wrong():
    truth = np.array([[1, 0], [-1, 0]], np.int8)
    data = datasets.Dataset(
        'd', np.zeros((2, 8, 8, 3), np.uint8), truth, NAMES, np.array(['train', 'test'])
    )
    assert report.prediction_words(np.array([0.9, 0.8]), truth[0], NAMES, 0.5) == [
        (f'{NAMES[0]} 0.90', '#117733'),
        (f'{NAMES[1]} 0.80', '#997700'),
    ]
    assert (
        'brown: not known'
        in report.photo_grid(data, np.arange(2), np.ones((2, 2)), 0.5).get_suptitle()
    )


def test_counts_are_whole_numbers():
    shown = report.label_table(
        true=np.array([[1, -1, 1], [1, 1, -1]]), observed=np.array([[1, 0, 0], [0, 1, 0]])
    ).to_string()
    assert (
        re.search(r'images +2 +2\n', shown)
        and re.search(r'classes +3 +3\n', shown)
        and re.search(r'positives_per_image +2.0 +1.0\n', shown)
    )


@pytest.mark.parametrize('columns', [2, 6])
def test_words_below_photos_of_any_shape_cover_nothing(tmp_path, columns):
    random = np.random.RandomState(0)
    sizes = [(20, 160), (160, 20), (160, 120), (40, 40), (60, 160), (160, 60), (5, 500)]
    labels = random.choice([1, 0, -1], (7, 5)).astype(np.int8)
    names = [
        'airplane',
        'car',
        'a name of more than one line, beneath a photo',
        'dog',
        'traffic light',
    ]
    for row, (height, width) in enumerate(sizes):
        Image.new('RGB', (width, height)).save(tmp_path / f'{row}.png')
    data = datasets.Dataset(
        'd', [tmp_path / f'{row}.png' for row in range(7)], labels, names, np.array(['test'] * 7)
    )
    figure = report.photo_grid(
        data, np.arange(7), random.standard_normal((7, 5)) + 1, 0.5, columns=columns
    )
    figure.canvas.draw()
    drawer = figure.canvas.get_renderer()
    words = [text.get_window_extent(drawer) for axis in figure.axes for text in axis.texts]
    boxes = [
        *words,
        *(axis.get_window_extent() for axis in figure.axes),
        figure._suptitle.get_window_extent(drawer),
    ]
    assert len(figure.axes) == 7 and len(words) > 20
    for k, box in enumerate(boxes):
        for other in boxes[:k]:
            assert (
                min(box.x1, other.x1) - max(box.x0, other.x0) < 1
                or min(box.y1, other.y1) - max(box.y0, other.y0) < 1
            )
    assert min(box.y0 for box in boxes) >= 0
    for axis in figure.axes:  # no gap below a tall photo
        if axis.texts:
            assert (
                0 <= axis.get_window_extent().y0 - axis.texts[0].get_window_extent(drawer).y1 < 10
            )


@pytest.mark.parametrize('classes', [2, 20, 60])
def test_the_legend_of_the_classes_covers_no_bar(classes):
    figure = report.class_plot(
        np.linspace(1, 0.9, classes),
        [f'class {c}' for c in range(classes)],
        np.where(np.eye(classes) > 0, 1, 0),
    )
    figure.canvas.draw()
    box, axis = figure.legends[0].get_window_extent(), figure.axes[0]
    assert (
        box.y0 > axis.title.get_window_extent().y1 - 1 > axis.get_window_extent().y1
        and box.x0 >= 0
        and box.x1 <= figure.bbox.x1
    )


def test_twenty_classes_are_drawn_and_the_rest_stands_in_a_table():
    names = [f'the quite long name of a class that nobody can read, {k}' for k in range(50)]
    ap = np.random.RandomState(0).permutation(50) / 50
    labels = np.where((np.arange(50) + np.arange(4)[:, None]) % 3 == 0, 1, -1)
    figure, table = report.class_plot(ap, names, labels), report.class_table(ap, names, labels)
    drawn = [text.get_text().replace('\n', ' ') for text in figure.axes[0].get_xticklabels()]
    assert (
        len(drawn) == 20
        and len(table) == 30
        and not len(report.class_table(ap[:20], names[:20], labels[:, :20]))
    )
    assert all(
        len(line) <= 18
        for text in figure.axes[0].get_xticklabels()
        for line in text.get_text().split('\n')
    )
    left_out = sorted(range(50), key=lambda c: -ap[c])[10:40]
    assert table.index.tolist() == [names[c] for c in left_out] and table[
        'average precision (%)'
    ].tolist() == pytest.approx([100 * ap[c] for c in left_out])
    assert table.photos.tolist() == [2 if c % 3 == 0 else 1 for c in left_out]


def test_the_worst_mistakes_are_those_farthest_beyond_the_threshold():
    random = np.random.RandomState(0)
    labels, s, t = random.choice([1, 0, -1], (30, 4)), random.standard_normal((30, 4)), 0.7
    found, cut = report.worst_mistakes(labels, s, t, most=9), np.log(0.7 / 0.3)
    wrong = {
        (i, c): abs(s[i, c] - cut)
        for i in range(30)
        for c in range(4)
        if labels[i, c] and (s[i, c] > cut) != (labels[i, c] > 0)
    }
    worst = {
        i: max((far, c) for (j, c), far in wrong.items() if j == i) for i in {i for i, _ in wrong}
    }
    order = sorted(worst, key=lambda i: -worst[i][0])[:9]
    assert found['row'].tolist() == order and found['class'].tolist() == [
        worst[i][1] for i in order
    ]
    assert found.there.tolist() == [labels[i, worst[i][1]] > 0 for i in order] and np.allclose(
        found.probability, [1 / (1 + np.exp(-s[i, worst[i][1]])) for i in order]
    )


@pytest.mark.parametrize('far', [np.inf, -np.inf, np.nan])
def test_a_logit_of_an_unknown_label_hides_no_mistake(far):
    found = report.worst_mistakes(
        np.array([[0, 1, -1], [0, -1, 1]]), np.array([[far, -2.0, -1], [far, -1, 1]]), 0.5
    )
    assert found[['row', 'class', 'there']].to_numpy().tolist() == [[0, 1, True]]


@pytest.mark.parametrize('name', ['train', 'evaluate'])
def test_the_photos_of_a_notebook_are_seen(name):
    "A cell shows its last expression: what follows `figure_to_jpeg` would hide the picture."
    cells = [
        cell
        for cell in nbformat.read(ROOT / 'nbs' / f'{name}.ipynb', 4).cells
        if 'figure_to_jpeg(' in cell.source
    ]
    assert len(cells) == 2
    for cell in cells:
        assert 'figure_to_jpeg(' in ast.unparse(ast.parse(cell.source).body[-1])
        assert any('image/jpeg' in output.get('data', {}) for output in cell.outputs)


def test_mistakes_are_shown_with_what_is_true_and_none_where_there_is_none():
    data = datasets.Dataset(
        'd',
        np.zeros((2, 8, 8, 3), np.uint8),
        np.array([[1, -1], [-1, 0]], np.int8),
        NAMES,
        np.array(['test', 'test']),
    )
    figure = report.mistake_grid(data, np.arange(2), np.array([[-1.0, -9], [2, 99]]), 0.5)
    assert [axis.get_title() for axis in figure.axes[:2]] == [
        f'{NAMES[0]}\n0.88, not there',
        f'{NAMES[0]}\n0.27, missed',
    ]
    assert report.mistake_grid(data, np.arange(2), np.array([[1.0, -1], [-1, 99]]), 0.5) is None
    figure.canvas.draw()
    assert report.figure_to_jpeg(figure).data[:2] == b'\xff\xd8' and not plt.fignum_exists(
        figure.number
    )


# ---- nbs/tutorials/your_own_data.ipynb


def tutorial_function(name, **names):
    "A function of the tutorial that draws a folder."
    cells = nbformat.read(ROOT / 'nbs' / 'tutorials' / 'your_own_data.ipynb', 4).cells
    source = next(cell.source for cell in cells if f'def {name}(' in cell.source)
    node = next(node for node in ast.parse(source).body if getattr(node, 'name', '') == name)
    names |= {'np': np, 'pd': pd, 'Path': Path, 'Image': Image, 'miniatures': miniatures}
    exec(ast.unparse(node), names)
    return names[name]


def test_the_drawn_folder_is_drawn_once_and_no_other_is_overwritten(tmp_path):
    draw, target = tutorial_function('draw_folder'), tmp_path / 'kept' / 'photos'
    first = draw(target, 30, 10)
    stamps = {path: path.stat().st_mtime_ns for path in target.rglob('*')}
    again = draw(target, 30, 10)
    assert (
        all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
        and {path: path.stat().st_mtime_ns for path in target.rglob('*')} == stamps
    )
    (target / 'labels.csv').write_text('image,labels\n')
    with pytest.raises(FileExistsError, match='other photos. Choose another runs_folder'):
        draw(target, 30, 10)
    assert (target / 'labels.csv').read_text() == 'image,labels\n'
