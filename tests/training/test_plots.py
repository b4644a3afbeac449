"""What is shown of a run: photos as the network sees them, and names with any sign; and the tutorial that keeps its files."""
import ast
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


def test_scores_stand_beside_what_they_were_measured_against():
    table = report.score_table({'val_map': 80.12345, 'val_truth': 'observed only', 'test_map': 70.0, 'test_micro_f1': 0.5, 'test_truth': 'partly known', 'test_left_out': 3})
    assert table['against'].tolist() == ['observed labels (unknown ones as negatives)', 'known labels (3 unknown ones left out)']
    assert table['mAP (%)'].tolist() == [80.1234, 70] and np.isnan(table.loc['val', 'micro-F1']) and table.dtypes.iloc[:3].eq(float).all()
    assert report.score_table({'test_map': 1.0})['against'].tolist() == ['all labels']   # of a run from before this was stored


@pytest.mark.parametrize('labels, chance, title', [
    ([[1, -1], [-1, 1], [-1, -1], [-1, 1]], [50, 25], ''),
    ([[1, -1], [-1, 1], [0, -1], [-1, 0]], [100 / 3, 100 / 3], 'against known labels (2 unknown ones left out)'),
    ([[1, 0], [0, 1], [0, 0], [0, 1]], [50, 25], 'against observed labels (unknown ones as negatives)')])
def test_classes_are_plotted_beside_the_chance_of_what_counts(labels, chance, title):
    figure = report.class_plot([0.5, 0.6], NAMES, np.array(labels, np.int8))
    assert np.allclose(figure.axes[0].lines[0].get_ydata(), chance) and figure.axes[0].get_title() == title   # the better class first


def test_a_label_that_nobody_knows_is_neither_right_nor_wrong():
    truth = np.array([[1, 0], [-1, 0]], np.int8)
    data = datasets.Dataset('d', np.zeros((2, 8, 8, 3), np.uint8), truth, NAMES, np.array(['train', 'test']))
    assert report.label_words(np.array([0.9, 0.8]), truth[0], NAMES, 0.5) == [(f'{NAMES[0]} 0.90', '#117733'), (f'{NAMES[1]} 0.80', '#997700')]
    assert 'brown: not known' in report.photo_grid(data, np.arange(2), np.ones((2, 2)), 0.5).get_suptitle()


# ---- nbs/tutorials/your_own_data.ipynb

def tutorial_function(name, **names):
    "A function of the tutorial that draws and halves folders."
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
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)) and {path: path.stat().st_mtime_ns for path in target.rglob('*')} == stamps
    (target / 'labels.csv').write_text('image,labels\n')
    with pytest.raises(FileExistsError, match='other photos. Choose another runs_folder'): draw(target, 30, 10)
    assert (target / 'labels.csv').read_text() == 'image,labels\n'


@pytest.mark.filterwarnings('ignore:.*no training image has it')
@pytest.mark.parametrize('kind', ['labels', 'positives'])
def test_halves_have_all_classes_and_are_of_the_folder_that_is_set(tmp_path, photo_folder, kind):
    table = pd.read_csv(photo_folder / 'labels.csv').rename(columns={'labels': kind})
    table[kind] = table[kind].where(table.index > 0, 'rare|red')   # a class of one training row
    table.to_csv(photo_folder / 'labels.csv', index=False)
    other = tmp_path / 'other'
    (other / 'images').mkdir(parents=True)
    for file in (photo_folder / 'images').iterdir(): Image.new('RGB', (9, 9)).save(other / 'images' / file.name)
    (other / 'labels.csv').write_bytes((photo_folder / 'labels.csv').read_bytes())
    halves = []
    for folder in (photo_folder, other, photo_folder):
        data = datasets.load(folder)
        linked = tutorial_function('linked', folder=folder)
        half = tutorial_function('half_of', folder=folder, data=data, linked=linked)(data.rows('train')[1:6], tmp_path / 'kept' / 'half 0')
        assert (half / 'images').resolve() == (folder / 'images').resolve() and (datasets.load(half).split == 'train').sum() == 5
        halves.append(half)
        assert datasets.load(half).class_names == data.class_names
    assert halves[0] == halves[2] == tmp_path / 'kept' / 'half 0' and halves[1] != halves[0]   # a run knows its data by their folder
