"""Labels in the layouts of other tools: the same matrix comes back, wrong input is named."""

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from spml_nb.base.errors import SpmlError
from spml_nb.data.formats import LAYOUTS, recognise_layout
from spml_nb.data.importing import read_source, write_folder
from spml_nb.data.loading import load

pytestmark = pytest.mark.filterwarnings('ignore:.*(no training image has it|did you mean|made of)')

SCRIPTS = [  # twenty of them, and signs
    'cat', 'γάτα', 'кошка', 'կատու', 'חתול', 'قطة', 'ܩܛܐ', 'बिल्ली', 'বিড়াল', 'ਬਿੱਲੀ', 'બિલાડી',
    'பூனை', 'పిల్లి', 'ಬೆಕ್ಕು', 'പൂച്ച', 'แมว', 'ແມວ', 'ကြောင်', 'კატა', 'ድመት', '猫', 'ネコ', '고양이',
    '🐈‍⬛', 'tench, Tinca', 'say "cat"', "cat's; tail", 'a|b', '=1+1', '0', '[x]', 'naïve café',
]  # fmt: skip
COUNT = 40


def make_matrix(names, single=False):
    "Each class has a photo, and each photo a class."
    rng = np.random.default_rng(0)
    matrix = rng.random((COUNT, len(names))) < 0.1
    matrix[np.arange(COUNT), np.arange(COUNT) % len(names)] = True
    return np.eye(len(names), dtype=bool)[np.arange(COUNT) % len(names)] if single else matrix


def draw(folder, part=''):
    "Paths of photos below a folder."
    names = [f'{part}{k:03} é.jpg' for k in range(COUNT)]
    for k, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (8, 6), (5 * k, 5 * k, 5 * k)).save(folder / name)
    return names


def present(names, row):
    return [name for name, here in zip(names, row, strict=True) if here]


def write_coco(folder, names, matrix):
    photos = draw(folder / 'val2017')
    document = {
        'info': {'year': 2017},
        'licenses': [{'id': 1}],
        'images': [
            {'id': 100 + k, 'file_name': name, 'width': 8, 'height': 6}
            for k, name in enumerate(photos)
        ],
        'categories': [{'id': 2 * c + 1, 'name': name} for c, name in enumerate(names)],
        'annotations': [
            {'id': n, 'image_id': 100 + k, 'category_id': 2 * c + 1, 'bbox': [0, 0, 2, 2],
             'area': 4, 'iscrowd': int(n % 7 == 0), 'segmentation': []}
            for n, (k, c) in enumerate(np.argwhere(matrix).tolist())
        ],
    }  # fmt: skip
    (folder / 'annotations').mkdir()
    text = json.dumps(document)
    (folder / 'annotations' / 'instances_val2017.json').write_text(text)


def write_yolo(folder, names, matrix):
    photos = draw(folder / 'images', 'train/')
    for photo, row in zip(photos, matrix, strict=True):
        file = (folder / 'labels' / photo).with_suffix('.txt')
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [f'{c} 0.5 0.5 0.25 0.25\n' for c in np.flatnonzero(row)]
        file.write_text(''.join(lines))
    content = {'path': '../datasets/mine', 'train': 'images/train', 'nc': len(names)}
    content['names'] = dict(enumerate(names))
    (folder / 'data.yaml').write_text(yaml.safe_dump(content, allow_unicode=True), encoding='utf-8')


def write_yolo_without_yaml(folder, names, matrix):
    write_yolo(folder, names, matrix)
    (folder / 'data.yaml').unlink()
    (folder / 'classes.txt').write_text('\n'.join(names), encoding='utf-8')


def write_voc(folder, names, matrix):
    photos = draw(folder / 'JPEGImages')
    (folder / 'Annotations').mkdir()
    for photo, row in zip(photos, matrix, strict=True):
        root = ElementTree.Element('annotation')
        ElementTree.SubElement(root, 'filename').text = photo
        for name in present(names, row):
            entry = ElementTree.SubElement(root, 'object')
            ElementTree.SubElement(entry, 'name').text = name
            ElementTree.SubElement(entry, 'difficult').text = '0'
        file = (folder / 'Annotations' / photo).with_suffix('.xml')
        ElementTree.ElementTree(root).write(file, encoding='utf-8')


def write_cvat(folder, names, matrix):
    photos = draw(folder / 'images')
    root = ElementTree.Element('annotations')
    ElementTree.SubElement(root, 'version').text = '1.1'
    for k, (photo, row) in enumerate(zip(photos, matrix, strict=True)):
        image = ElementTree.SubElement(root, 'image', id=str(k), name=photo, width='8', height='6')
        for c, name in enumerate(present(names, row)):
            ElementTree.SubElement(image, ('box', 'polygon', 'tag')[c % 3], label=name)
    ElementTree.ElementTree(root).write(folder / 'annotations.xml', encoding='utf-8')


def write_label_studio(folder, names, matrix):
    photos = draw(folder)
    tasks = []
    for k, (photo, row) in enumerate(zip(photos, matrix, strict=True)):
        here = present(names, row)
        result = [
            {'type': 'choices', 'from_name': 'choice', 'value': {'choices': here[:1]}},
            {'type': 'rectanglelabels', 'value': {'x': 1, 'rectanglelabels': here[1:]}},
        ]
        stored = f'/data/upload/3/{k:08x}-{photo}'.replace(' ', '%20')
        annotations = [{'id': k, 'was_cancelled': False, 'result': result}]
        tasks.append({'id': k, 'annotations': annotations, 'data': {'image': stored}})
    (folder / 'project-1.json').write_text(json.dumps(tasks))


def write_label_studio_min(folder, names, matrix):
    tasks = []
    for photo, row in zip(draw(folder), matrix, strict=True):
        here = present(names, row)
        choice = here[0] if len(here) == 1 else {'choices': here}
        tasks.append({'image': f'/data/local-files/?d=photos/{photo}', 'id': 1, 'choice': choice})
    (folder / 'project-1-min.json').write_text(json.dumps(tasks))


def write_columns(folder, names, matrix):
    "As a spreadsheet of a country with decimal commas writes it."
    table = pd.DataFrame(matrix.astype(int), columns=names)
    table.insert(0, 'filename', draw(folder / 'photos'))
    table.to_csv(folder / 'table.csv', sep=';', index=False, encoding='utf-8-sig')


def write_excel(folder, names, matrix):
    pytest.importorskip('openpyxl')
    table = pd.DataFrame(matrix.astype(int), columns=names)
    table.insert(0, 'filename', draw(folder / 'photos'))
    with pd.ExcelWriter(folder / 'table.xlsx') as writer:
        table.to_excel(writer, index=False)
        for (cell,) in writer.sheets['Sheet1'].iter_cols(max_row=1):
            cell.data_type = 's'  # of a name that begins with =


def write_rows(folder, names, matrix):
    "A row for each label, in UTF-16 with tabs."
    photos = draw(folder / 'photos')
    rows = [(photos[k], names[c]) for k, c in np.argwhere(matrix)]
    table = pd.DataFrame(rows, columns=['file', 'label'])
    table.to_csv(folder / 'table.tsv', sep='\t', index=False, encoding='utf-16')


def write_huggingface(folder, names, matrix):
    datasets = pytest.importorskip('datasets')
    photos = draw(folder / 'photos')
    rows = {
        'image': [str(folder / 'photos' / photo) for photo in photos],
        'labels': [np.flatnonzero(row).tolist() for row in matrix],
    }
    kinds = {
        'image': datasets.Image(),
        'labels': datasets.Sequence(datasets.ClassLabel(names=names)),
    }
    table = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
    datasets.DatasetDict({'train': table}).save_to_disk(folder / 'saved')


WRITERS = {
    'coco': write_coco,
    'yolo': write_yolo,
    'yolo without a .yaml': write_yolo_without_yaml,
    'voc': write_voc,
    'cvat': write_cvat,
    'label-studio': write_label_studio,
    'label-studio min': write_label_studio_min,
    'table': write_columns,
    'table in excel': write_excel,
    'table of rows': write_rows,
    'huggingface': write_huggingface,
}


@pytest.mark.parametrize('layout', WRITERS)
@pytest.mark.parametrize('meaning', ['complete', 'positives-only'])
def test_the_same_matrix_comes_back(tmp_path, layout, meaning):
    # in a column of names a bar is always between two
    names = [name for name in SCRIPTS if '|' not in name or layout != 'table of rows']
    spelled = [name.replace('|', '¦') for name in names]
    matrix = make_matrix(names)
    place = tmp_path / 'source'
    place.mkdir()
    WRITERS[layout](place, names, matrix)
    place = place / 'saved' if layout == 'huggingface' else place
    before = {file: file.stat().st_mtime_ns for file in place.rglob('*')}
    assert list(recognise_layout(place)) == [layout.split()[0]]
    write_folder(read_source(place), tmp_path / 'new', meaning)
    assert {file: file.stat().st_mtime_ns for file in place.rglob('*')} == before
    data = load(tmp_path / 'new')
    assert sorted(data.class_names) == sorted(spelled)
    labels = data.labels[:, [data.class_names.index(name) for name in spelled]]
    has_zeros = layout.startswith('table') and 'rows' not in layout
    rest = -1 if meaning == 'complete' or has_zeros else 0
    assert len(data) == COUNT
    assert (labels == np.where(matrix, 1, rest)).all()
    colours = [np.asarray(Image.open(path))[0, 0, 0] for path in data.images]
    assert np.argsort(colours).tolist() == list(range(COUNT))


def test_a_folder_for_each_class(tmp_path):
    for name in ('cat', 'γάτα', 'naïve café'):
        draw(tmp_path / 'source' / 'train' / name)
        draw(tmp_path / 'source' / 'val' / name)
    Image.new('RGB', (2, 2)).save(tmp_path / 'source' / 'train' / 'loose.png')
    source = read_source(tmp_path / 'source')
    assert source.meaning == 'positives-only'
    assert source.left_out == {'photos outside the folder of a class': ['train/loose.png']}
    table = write_folder(source, tmp_path / 'new', source.meaning)
    assert list(table) == ['image', 'positives', 'split']
    assert table['split'].value_counts().to_dict() == {'train': 3 * COUNT, 'test': 3 * COUNT}
    assert load(tmp_path / 'new').class_names == ['cat', 'naïve café', 'γάτα']


def test_parts_come_along(tmp_path):
    for part, seen in (('train', 'train'), ('valid', 'val'), ('test', 'test')):
        folder = tmp_path / 'source' / part
        document = {
            'images': [{'id': 0, 'file_name': 'a.jpg'}],
            'categories': [{'id': 0, 'name': seen}],
            'annotations': [{'image_id': 0, 'category_id': 0}],
        }
        folder.mkdir(parents=True)
        Image.new('RGB', (2, 2)).save(folder / 'a.jpg')
        (folder / '_annotations.coco.json').write_text(json.dumps(document))
    table = write_folder(read_source(tmp_path / 'source'), tmp_path / 'new', 'complete')
    assert table.set_index('image')[['labels', 'split']].to_dict('index') == {
        'test/a.jpg': {'labels': 'test', 'split': 'test'},
        'train/a.jpg': {'labels': 'train', 'split': 'train'},
        'valid/a.jpg': {'labels': 'val', 'split': 'val'},
    }


def test_tables_named_after_parts_keep_them(tmp_path):
    names = draw(tmp_path / 'source' / 'photos')
    for part, chosen in (('train', names[:30]), ('test', names[30:])):
        rows = ''.join(f'{name},cat\n' for name in chosen)
        (tmp_path / 'source' / f'{part}.csv').write_text(f'photo,labels\n{rows}', encoding='utf-8')
    table = write_folder(read_source(tmp_path / 'source'), tmp_path / 'new', 'complete')
    assert table['split'].tolist() == ['train'] * 30 + ['test'] * 10


@pytest.mark.parametrize('layout', ['voc', 'table'])
def test_folders_of_parts_are_kept_as_roboflow_exports_them(tmp_path, layout):
    for part in ('train', 'valid', 'test'):
        folder = tmp_path / 'source' / part
        name, *_ = draw(folder)
        if layout == 'voc':
            (folder / 'a.xml').write_text(
                f'<annotation><filename>{name}</filename><object><name>cat</name></object>'
                '</annotation>',
                encoding='utf-8',
            )
        else:
            (folder / '_classes.csv').write_text(f'filename, cat\n{name}, 1\n', encoding='utf-8')
    photos = read_source(tmp_path / 'source').photos
    assert {path.split('/')[0]: photo.split for path, photo in photos.items()} == {
        'train': 'train',
        'valid': 'val',
        'test': 'test',
    }


def test_the_name_of_the_source_itself_is_no_part(tmp_path):
    names = draw(tmp_path / 'dev')
    for file, name in (('train', names[0]), ('more', names[1])):
        (tmp_path / 'dev' / f'{file}.csv').write_text(f'image,label\n{name},cat\n')
    photos = read_source(tmp_path / 'dev').photos
    assert {photos[names[0]].split, photos[names[1]].split} == {'train', ''}


def test_two_groups_and_two_parts_of_a_photo_are_reported(tmp_path):
    name, *_ = draw(tmp_path / 'source')
    (tmp_path / 'source' / 'test.csv').write_text(f'image,label,group\n{name},cat,a\n')
    (tmp_path / 'source' / 'train.csv').write_text(f'image,label,group\n{name},dog,b\n')
    source = read_source(tmp_path / 'source')
    assert source.remarks['photos of two groups, of which the first counts'] == [name]
    assert source.remarks['photos of two parts, of which the first counts'] == [name]


def test_labels_known_to_be_absent_and_difficult_ones_get_columns(tmp_path):
    document = {
        'images': [{'id': k, 'file_name': f'{k:03} é.jpg'} for k in range(COUNT)],
        'categories': [{'id': 0, 'name': 'cat'}, {'id': 1, 'name': 'dog'}, {'id': 2, 'name': 'ox'}],
        'annotations': [{'image_id': k, 'category_id': k % 2} for k in range(COUNT)],
    }
    document['images'][0]['neg_category_ids'] = [1]
    draw(tmp_path / 'lvis')
    (tmp_path / 'lvis' / 'lvis.json').write_text(json.dumps(document))
    source = read_source(tmp_path / 'lvis')
    assert source.left_out == {'classes that no photo has': ['ox']}
    write_folder(source, tmp_path / 'new', 'positives-only')
    assert load(tmp_path / 'new').labels[:3].tolist() == [[1, -1], [0, 1], [1, 0]]


@pytest.mark.parametrize('encoding', ['utf-8', 'utf-8-sig', 'cp1252', 'utf-16'])
@pytest.mark.parametrize('sign', [',', ';', '\t'])
def test_tables_in_any_encoding(tmp_path, encoding, sign):
    draw(tmp_path / 'source' / 'photos')
    lines = [f'photos/{k:03} é.jpg{sign}café|thé{sign}{k}' for k in range(COUNT)]
    lines.insert(0, f'path{sign}tags{sign}group')
    (tmp_path / 'source' / 'list.csv').write_text('\r\n'.join(lines), encoding=encoding)
    source = read_source(tmp_path / 'source')
    assert {len(photo.present) for photo in source.photos.values()} == {2}
    assert source.photos['photos/007 é.jpg'].group == '7'
    assert bool(source.remarks) == (encoding in ('cp1252', 'utf-16'))


def test_what_is_left_out_is_counted(tmp_path):
    names = draw(tmp_path)
    document = {
        'images': [{'id': k, 'file_name': name} for k, name in enumerate(names[1:])],
        'categories': [{'id': 3, 'name': 'cat'}, {'id': 4, 'name': 'dog'}],
        'annotations': [
            {'image_id': 0, 'category_id': 3, 'iscrowd': 1},
            {'image_id': 777, 'category_id': 3},
        ],
    }
    document['images'] += [{'id': 99, 'file_name': 'gone.jpg'}, {'id': 98, 'file_name': names[1]}]
    (tmp_path / 'a.json').write_text(json.dumps(document))
    source = read_source(tmp_path)
    assert source.left_out == {
        'labels without photos': ['gone.jpg'],
        'annotations of images that the file does not list': ['annotations[1]'],
        'photos that no label file names': [names[0]],
        'classes that no photo has': ['dog'],
    }
    assert source.remarks == {
        'crowd regions, whose class counts as present': [names[1]],
        'entries of a photo that was listed before, joined': [names[1]],
    }
    assert len(source.photos) == COUNT - 1


def test_folders_and_lists_of_a_yaml_are_found_where_they_are(tmp_path):
    "As Roboflow writes them, beginning with ../, and as lists of paths."
    names = ['cat', 'dog']
    for part in ('train', 'valid'):
        (tmp_path / part / 'labels').mkdir(parents=True)
        for k, name in enumerate(draw(tmp_path / part / 'images')):
            file = (tmp_path / part / 'labels' / name).with_suffix('.txt')
            file.write_text(f'{k % 2} 0.5 0.5 0.1 0.1 0.2 0.2\n\n' if k else '')
    photos = sorted((tmp_path / 'valid' / 'images').glob('*.jpg'))[:5]
    (tmp_path / 'few.txt').write_text('\n'.join(f'./valid/images/{file.name}' for file in photos))
    content = {'train': '../train/images', 'val': 'few.txt', 'test': '../test/images'}
    (tmp_path / 'data.yaml').write_text(yaml.safe_dump(content | {'names': names, 'nc': 2}))
    source = read_source(tmp_path)
    splits = [photo.split for photo in source.photos.values()]
    assert (splits.count('train'), splits.count('val')) == (COUNT, 5)
    assert source.left_out['parts whose folder is not there'] == ['test: ../test/images']
    assert len(source.left_out['photos that no label file names']) == COUNT - 5
    first = source.photos['train/images/000 é.jpg']
    assert first.present == set() and source.photos['train/images/003 é.jpg'].present == {'dog'}


def test_labels_that_one_of_two_yaml_files_uses_are_not_left_out(tmp_path):
    write_yolo(tmp_path, ['cat', 'dog'], make_matrix(['cat', 'dog']))
    (tmp_path / 'few.txt').write_text('images/train/000 é.jpg', encoding='utf-8')
    (tmp_path / 'few.yaml').write_text('names: [cat, dog]\ntrain: few.txt\n')
    source = read_source(tmp_path)
    assert len(source.photos) == COUNT and source.left_out == {}


def test_difficult_objects_and_lists_of_parts_of_voc(tmp_path):
    place = tmp_path / 'source'
    place.mkdir()
    write_voc(place, ['cat', 'dog'], make_matrix(['cat', 'dog'], single=True))
    file = place / 'Annotations' / '000 é.xml'
    file.write_text(file.read_text().replace('>0<', '>1<'), encoding='utf-8')
    lists = place / 'ImageSets' / 'Main'
    lists.mkdir(parents=True)
    for part, rows in (('train', range(1, 30)), ('val', [0]), ('test', range(30, COUNT))):
        (lists / f'{part}.txt').write_text(''.join(f'{k:03} é\n' for k in rows), encoding='utf-8')
    source = read_source(place)
    photo = source.photos['JPEGImages/000 é.jpg']
    assert (photo.present, photo.unknown, photo.split) == (set(), {'cat'}, 'val')
    write_folder(source, tmp_path / 'new', 'complete')
    data = load(tmp_path / 'new')
    assert data.labels[0].tolist() == [0, -1] and (data.labels[1:] != 0).all()
    assert [len(data.rows(part)) for part in ('train', 'val', 'test')] == [29, 1, 10]


def test_entries_of_voc_that_lead_to_one_photo_are_noted(tmp_path):
    names = draw(tmp_path)
    for k, name in enumerate(('cat', 'dog')):  # the second was copied with the photo's old name
        (tmp_path / f'{k}.xml').write_text(
            f'<annotation><filename>{names[0]}</filename><object><name>{name}</name></object>'
            '</annotation>',
            encoding='utf-8',
        )
    source = read_source(tmp_path)
    assert source.photos[names[0]].present == {'cat', 'dog'}
    assert source.remarks == {'entries of a photo that was listed before, joined': [names[0]]}


def test_rows_of_huggingface_without_a_label_or_an_image_are_no_photos_without_classes(tmp_path):
    datasets = pytest.importorskip('datasets')
    photos = [str(tmp_path / name) for name in draw(tmp_path)]
    kinds = {'image': datasets.Image(), 'label': datasets.ClassLabel(names=['cat', 'dog'])}
    parts = {'train': ([*photos[:2], None], [0, 1, 1]), 'test': (photos[2:4], [-1, None])}
    tables = {
        part: datasets.Dataset.from_dict(
            {'image': images, 'label': labels}, features=datasets.Features(kinds)
        )
        for part, (images, labels) in parts.items()
    }
    datasets.DatasetDict(tables).save_to_disk(tmp_path / 'saved')
    source = read_source(tmp_path / 'saved')
    assert [photo.present for photo in source.photos.values()] == [{'cat'}, {'dog'}]
    assert source.left_out == {
        'rows without an image': ['train 2'],
        'rows without a label': ['test 0', 'test 1'],
    }


def test_cancelled_annotations_and_several_annotators(tmp_path):
    names = draw(tmp_path)

    def annotation(name, **more):
        return {'result': [{'value': {'choices': [name]}}], **more}

    tasks = [
        [annotation('cat'), annotation('dog')],
        [annotation('cat', was_cancelled=True), annotation('dog')],
        [annotation('cat', was_cancelled=True)],
    ]
    export = [
        {'data': {'image': f's3://bucket/{name}'}, 'annotations': annotations}
        for name, annotations in zip(names, tasks, strict=False)
    ]
    (tmp_path / 'tasks.json').write_text(json.dumps(export))
    source = read_source(tmp_path)
    assert [photo.present for photo in source.photos.values()] == [{'cat', 'dog'}, {'dog'}]
    assert source.left_out['cancelled annotations'] == names[1:3]
    assert source.left_out['photos that nobody has annotated'] == names[2:3]
    assert source.remarks['photos annotated more than once, joined'] == names[:1]


# ---- wrong input

COCO = {
    'images': [{'id': 0, 'file_name': 'a.jpg'}],
    'categories': [{'id': 5, 'name': 'cat'}],
    'annotations': [{'image_id': 0, 'category_id': 5}],
}
WRONG = {  # file: content, and what the message has to name
    'cut.json': ('{"images": [\n{"id": 0,', 'cut.json, line 2, column 10'),
    'key.json': (COCO | {'annotations': [{'image_id': 0}]}, 'annotations[0]', '`category_id`'),
    'id.json': (COCO | {'annotations': [{'image_id': 0, 'category_id': 6}]}, 'annotations[0]', '5'),
    'two.json': (COCO | {'categories': [*COCO['categories'], {'id': 5, 'name': 'dog'}]}, "'cat'"),
    'same.json': (COCO | {'images': [*COCO['images'], {'id': 0, 'file_name': 'b.jpg'}]}, "'a.jpg'"),
    'none.json': ({'images': [], 'annotations': []}, '`categories`'),
    'gone.json': (
        COCO | {'images': [{'id': 0, 'file_name': 'b.jpg'}]},
        'labels without photos: b.jpg',
    ),
    'other.json': ({'a': 1}, 'coco (COCO JSON)'),
    'tasks.json': ([{'data': {'text': 'x'}, 'annotations': []}], 'task 1', '`data`'),
    'task.json': ([{'data': {'image': 'a.jpg'}, 'annotations': [{'result': 3}]}], 'task 1'),
    'choice.json': ([{'image': 'a.jpg', 'choice': {'choices': [['cat']]}}], "['cat']"),
    'absent.json': (COCO | {'images': [COCO['images'][0] | {'neg_category_ids': 5}]}, 'images[0]'),
    'cut.xml': ('<annotation>\n<object>', 'cut.xml, line 2'),
    'name.xml': ('<annotation><object/></annotation>', 'object 1', '<name>'),
    'video.xml': ('<annotations><track/></annotations>', 'CVAT for images'),
    'image.xml': ('<annotations><image/></annotations>', 'image 1'),
    'bad.yaml': ('names: [cat\ntrain: x', 'bad.yaml', 'line 2'),
    'names.yaml': ('names: 3\ntrain: .', '`names`'),
    'train.yaml': ('names: [cat]\ntrain: 3', '`train`', '3'),
    'column.csv': ('image\na.jpg', 'line 1', "'image'"),
    'ragged.csv': ('image,labels\na.jpg,cat,dog', 'row 2', '3 cells'),
    'cell.csv': ('image,cat,width\na.jpg,1,640', 'row 2', "'width'", "'640'"),
    'photos.csv': ('image,labels\nx.jpg,cat', '--images'),
    'quote.csv': ('image,labels\na.jpg,"cat', 'quote.csv'),
    'twice.csv': ('image,cat,cat\na.jpg,1,1', "'cat'"),
    'list.csv': ('image,labels\na.jpg,[cat]', 'row 2', "'[cat]'"),
    'no.xlsx': ('no', 'xlsx'),
    'bytes.csv': (b'image,labels\na.jpg,\x81', 'UTF-8'),
}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_input_is_named(tmp_path, name):
    content, *parts = WRONG[name]
    Image.new('RGB', (2, 2)).save(tmp_path / 'a.jpg')
    if not isinstance(content, str | bytes):
        content = json.dumps(content)
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SpmlError) as caught:
        read_source(tmp_path / name)
    assert all(part in str(caught.value) for part in [name, *parts]), str(caught.value)


@pytest.mark.parametrize('line', ['7 0.5 0.5 1 1', 'cat 0.5', '0 x'])
def test_a_wrong_line_of_yolo_is_named(tmp_path, line):
    write_yolo(tmp_path, ['cat', 'dog'], make_matrix(['cat', 'dog']))
    file = tmp_path / 'labels' / 'train' / '003 é.txt'
    file.write_text(f'0 0.5 0.5 1 1\n{line}\n')
    with pytest.raises(SpmlError) as caught:
        read_source(tmp_path)
    assert f'{file}, line 2: {line!r}' in str(caught.value)


def test_one_photo_for_two_paths_is_refused(tmp_path):
    draw(tmp_path / 'train')
    table = 'image,labels\ntrain/000 é.jpg,cat\nval/000 é.jpg,dog\n'
    (tmp_path / 'labels.csv').write_text(table, encoding='utf-8')
    with pytest.raises(SpmlError, match='val/000 é.jpg'):
        read_source(tmp_path)


def test_several_layouts_are_named(tmp_path):
    write_voc(tmp_path, ['cat'], make_matrix(['cat']))
    (tmp_path / 'a.json').write_text(json.dumps(COCO))
    with pytest.raises(SpmlError) as caught:
        read_source(tmp_path)
    assert 'voc' in str(caught.value) and 'coco: a.json' in str(caught.value)
    assert len(read_source(tmp_path, 'voc').photos) == COUNT
    assert set(LAYOUTS) >= {'voc', 'coco'}


@pytest.mark.parametrize('layout', ['coco', 'yolo', 'yolo without a .yaml', 'voc', 'cvat'])
def test_a_folder_of_another_tool_is_refused_with_the_command_that_imports_it(tmp_path, layout):
    place = tmp_path / 'my photos'
    place.mkdir()
    WRITERS[layout](place, ['cat', 'dog'], make_matrix(['cat', 'dog']))
    command = f"`spml import '{place}' NEW_FOLDER`"
    with pytest.raises(SpmlError) as refused:
        load(place)
    first = str(refused.value).split('. ')[0]
    assert command in first and LAYOUTS[layout.split()[0]].title in first
    (place / 'labels.csv').write_text('image,labels\n')
    with pytest.raises(SpmlError) as refused:
        load(place)
    assert 'spml import' not in str(refused.value)


def test_damaged_or_several_layouts_leave_the_message_on_folders(tmp_path):
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images' / 'a.jpg').write_bytes(b'x')
    (tmp_path / 'a.json').write_text('{"images": [')
    with pytest.raises(SpmlError, match='labels.csv is not there'):
        load(tmp_path)
    (tmp_path / 'a.json').write_text('{"images": []}')
    (tmp_path / 'a.xml').write_text('<annotation/>')
    with pytest.raises(SpmlError, match='labels.csv is not there'):
        load(tmp_path)
