"""NUS-WIDE, the attribute sets, ImageNet folders and the nine sets of Table 8: small copies of the official files, from the archive to scores."""
import io
import json
import shutil

import numpy as np
import pytest
import torchvision.datasets as theirs
from PIL import Image
from scipy.io import savemat
from serving import drawing, full_circle, jpeg, local, serve, tar_of, zip_of

from spml_nb.data import official as benchmarks, official as benchmarks_more
from spml_nb import data as datasets, metrics
from spml_nb.data.official.attributes import crops, read_vaw, read_vispr, read_wider
from spml_nb.data.official.nus import nus, read_nus
from spml_nb.base.errors import SpmlError

pytestmark = [pytest.mark.filterwarnings('ignore:.*(no training image has it|label never used)'), pytest.mark.filterwarnings('ignore:.*No positive')]
TRAIN, TEST = 12, 4


def matrix(classes, n=TRAIN + TEST):
    "Labels of n images, each with a positive, each class with one in the first and the last rows: (n, classes) of 1 and -1."
    labels = np.where(np.random.RandomState(classes).random_sample((n, classes)) < 0.3, 1, -1)
    labels[np.arange(n), np.arange(n) % classes] = 1
    return labels


def one_of_each(classes, n=TRAIN + TEST): return np.arange(n) % classes


def one_hot(classes, names):
    labels = np.full((len(classes), len(names)), -1)
    labels[np.arange(len(classes)), classes] = 1
    return labels


def mat(**variables):
    out = io.BytesIO()
    savemat(out, variables)
    return out.getvalue()


def text(lines): return ''.join(f'{line}\n' for line in lines).encode()


# ---- small copies: each writes its archives into a folder and returns (class names, labels, split, ends of the images' names)

SPLIT = ['train'] * TRAIN + ['test'] * TEST


def make_nus(folder):
    labels = matrix(81)
    labels[5] = -1   # an image without any concept stays in
    concepts = sorted(['airport', 'zebra', *(f'concept{k}' for k in range(79))])
    names = [f'{("bear", "sun")[k % 2]}\\{k:04}_{k * 7}.jpg' for k in range(len(labels))]
    zip_of(folder / 'ImageList.zip', {'ImageList/TrainImagelist.txt': text(names[:TRAIN]), 'ImageList/TestImagelist.txt': text(names[TRAIN:])})
    parts = {'Train': slice(0, TRAIN), 'Test': slice(TRAIN, None)}
    zip_of(folder / 'Groundtruth.zip', {f'Groundtruth/TrainTestLabels/Labels_{concept}_{part}.txt': text((labels[rows, c] > 0).astype(int))
                                        for c, concept in reversed([*enumerate(concepts)]) for part, rows in parts.items()})
    images = [name.replace('\\', '/') for name in names]
    zip_of(folder / 'Flickr.zip', {f'Flickr/{name}': jpeg(row) for name, row in zip(images, labels, strict=True)})
    split, validates = list(SPLIT), np.random.RandomState(1200).permutation(TRAIN)[-2:]   # round(0.2 * 12)
    for k in validates: split[k] = 'val'
    return concepts, labels, split, images


VAW_WORDS = ['wooden', 'red', 'round', 'tall', 'wet']

def vaw_entry(k, z, box=(2, 3, 40.4, 38)):
    return {'image_id': 100 + k // 2, 'instance_id': str(9000 + k), 'instance_bbox': list(box), 'instance_polygon': None, 'object_name': 'thing',
            'positive_attributes': [w for w, v in zip(VAW_WORDS, z, strict=True) if v > 0], 'negative_attributes': [w for w, v in zip(VAW_WORDS, z, strict=True) if v < 0]}


def make_vaw(folder):
    labels = matrix(5)
    labels[np.random.RandomState(0).random_sample(labels.shape) < 0.4] = 0
    labels[np.arange(16), np.arange(16) % 5] = 1   # every object has something, most say nothing of the rest
    labels[13, 4] = -1
    entries = [vaw_entry(k, z) for k, z in enumerate(labels)]
    entries.append(vaw_entry(16, labels[0], box=(500, 500, 9, 9)))   # beyond its photo: left out
    parts = {'train_part1': entries[:6], 'train_part2': entries[6:10], 'val': entries[10:12], 'test': entries[12:]}
    zip_of(folder / 'vaw_dataset-main.zip', {**{f'vaw_dataset-main/data/{name}.json': json.dumps(found).encode() for name, found in parts.items()},
                                             'vaw_dataset-main/data/attribute_index.json': json.dumps({w: k for k, w in enumerate(VAW_WORDS)}).encode()})
    zip_of(folder / 'images.zip', {f'VG_100K/{100 + k}.jpg': jpeg([k % 2, k % 3 == 0, 1]) for k in range(5)})
    zip_of(folder / 'images2.zip', {f'VG_100K_2/{100 + k}.jpg': jpeg([k % 2, k % 3 == 0, 1]) for k in range(5, 9)})
    return VAW_WORDS, labels, SPLIT, [f'{9000 + k}.jpg' for k in range(16)]


def make_wider(folder):
    labels = matrix(14)
    labels[:, 3:6] = np.where(np.arange(3) == 1, labels[:, 3:6], 0)
    names = ['Male', *(f'attribute {k}' for k in range(1, 14))]
    def person(z, box=(1, 1, 30, 40)): return {'attribute': [int(v) for v in z], 'bbox': list(box)}
    def photos(part, rows, extra=()):
        people = [person(z) for z in rows] + list(extra)
        return {'attribute_id_map': {str(k): name for k, name in enumerate(names)}, 'scene_id_map': {'0': 'Parade'},
                'images': [{'file_name': f'{part}/0--Parade/{k}.jpg', 'scene_id': 0, 'targets': people[2 * k:2 * k + 2]} for k in range((len(people) + 1) // 2)]}
    nobody = person(np.where(np.arange(14) < 7, -1, 0))   # no positive attribute: left out
    found = {'trainval': photos('train', labels[:TRAIN], [nobody]), 'test': photos('test', labels[TRAIN:], [person(labels[0], (300, 0, 5, 5))])}
    zip_of(folder / 'wider_attribute_annotation.zip', {f'wider_attribute_annotation/wider_attribute_{part}.json': json.dumps(content).encode() for part, content in found.items()})
    tar_of(folder / 'wider_attribute_image.tgz', {f"Image/{photo['file_name']}": jpeg([1, k % 2]) for content in found.values() for k, photo in enumerate(content['images'])})
    return names, labels, SPLIT, [f'trainval-{k:05}.jpg' for k in range(TRAIN)] + [f'test-{k:05}.jpg' for k in range(TEST)]


def make_vispr(folder):
    labels = matrix(6)
    names = ['a0_safe', 'a1_age_approx', 'a9_face_complete', 'a10_face_partial', 'a70_education_history', 'a102_vehicle_ownership']
    parts = {'train': range(8), 'val': range(8, TRAIN), 'test': range(TRAIN, TRAIN + TEST)}
    for part, rows in parts.items():
        tar_of(folder / f'{part}2017.tar.gz', {f'{part}2017/2017_{k:08}.jpg': jpeg(labels[k]) for k in rows})
    annotation = {f'{part}2017/2017_{k:08}.json': json.dumps({'id': k, 'labels': [n for n, v in zip(names, labels[k], strict=True) if v > 0]}).encode()
                  for part, rows in parts.items() for k in rows}
    tar_of(folder / 'annotations.tar.gz', annotation)
    return names, labels, SPLIT, [f'2017_{k:08}.jpg' for k in range(TRAIN + TEST)]


def make_imagenet(folder):
    names, classes = ['n01440764', 'n01443537', 'n02123045'], [*np.sort(one_of_each(3, TRAIN)).tolist(), 0, 1, 2, 2]
    files = [f'{names[c]}/{names[c]}_{k}.JPEG' if k < TRAIN else f'{names[c]}/ILSVRC2012_val_{k:08}.JPEG' for k, c in enumerate(classes)]
    files[:TRAIN] = sorted(files[:TRAIN])
    for part, rows in (('train', range(TRAIN)), ('val', range(TRAIN, 16))):
        tar_of(folder / f'{part}.tar', {files[k]: jpeg(np.arange(3) == classes[k]) for k in reversed(rows)}, 'w')
    return names, one_hot(classes, names), SPLIT, files


def make_aircraft(folder):
    names, classes, base = ['707-320', 'A300B4', 'Boeing 717'], one_of_each(3), 'fgvc-aircraft-2013b/data'
    parts = {'train': range(8), 'val': range(8, TRAIN), 'test': range(TRAIN, 16)}
    tar_of(folder / 'fgvc-aircraft-2013b.tar.gz', {
        f'{base}/variants.txt': text(names), **{f'{base}/images_variant_{part}.txt': text(f'{k:07} {names[classes[k]]}' for k in rows) for part, rows in parts.items()},
        **{f'{base}/images/{k:07}.jpg': jpeg(np.arange(3) == c) for k, c in enumerate(classes)}})
    return names, one_hot(classes, names), ['train'] * 8 + ['val'] * 4 + ['test'] * 4, [f'images/{k:07}.jpg' for k in range(16)]


def make_caltech101(folder):
    names = ['BACKGROUND_Google', 'Faces_easy']
    inner = {f'101_ObjectCategories/{name}/image_{k:04}.jpg': jpeg([c, 1 - c, k % 2], 24) for c, name in enumerate(names) for k in range(1, 33)}
    tar_of(folder / '101_ObjectCategories.tar.gz', inner)
    zip_of(folder / 'caltech-101.zip', {'caltech-101/101_ObjectCategories.tar.gz': (folder / '101_ObjectCategories.tar.gz').read_bytes(), 'caltech-101/Annotations.tar': b'x'})
    return names, one_hot(np.repeat([0, 1, 0, 1], [30, 30, 2, 2]), names), ['train'] * 60 + ['test'] * 4, None


def cars_entries(classes, first):
    kind = [('bbox_x1', 'i4'), ('class', 'u1'), ('fname', 'O')]
    return np.array([(1, c + 1, f'{k + first:05}.jpg') for k, c in enumerate(classes)], dtype=kind)


def make_cars(folder):
    names, classes = ['AM General Hummer SUV 2000', 'Acura RL Sedan 2012', 'Audi TT RS Coupe 2012'], one_of_each(3)
    for part, rows in (('train', range(TRAIN)), ('test', range(TRAIN, 16))):
        tar_of(folder / f'cars_{part}.tgz', {f'cars_{part}/{k - rows[0] + 1:05}.jpg': jpeg(np.arange(3) == classes[k]) for k in rows})
    tar_of(folder / 'car_devkit.tgz', {'devkit/cars_meta.mat': mat(class_names=np.array(names, dtype=object)),
                                       'devkit/cars_train_annos.mat': mat(annotations=cars_entries(classes[:TRAIN], 1))})
    (folder / 'cars_test_annos_withlabels.mat').write_bytes(mat(annotations=cars_entries(classes[TRAIN:], 1)))
    return names, one_hot(classes, names), SPLIT, [f'cars_train/{k + 1:05}.jpg' for k in range(TRAIN)] + [f'cars_test/{k + 1:05}.jpg' for k in range(TEST)]


def make_cub_species(folder):
    names, classes, base = ['001.Black_footed_Albatross', '002.Laysan_Albatross'], one_of_each(2), 'CUB_200_2011'
    files = [f'{names[c]}/bird_{k}.jpg' for k, c in enumerate(classes)]
    tests = {1, 4, 7, 10}
    tar_of(folder / 'CUB_200_2011.tgz', {
        f'{base}/images.txt': text(f'{k + 1} {file}' for k, file in enumerate(files)), f'{base}/classes.txt': text(f'{k + 1} {name}' for k, name in enumerate(names)),
        f'{base}/image_class_labels.txt': text(f'{k + 1} {c + 1}' for k, c in enumerate(classes)),
        f'{base}/train_test_split.txt': text(f'{k + 1} {int(k not in tests)}' for k in range(16)),
        **{f'{base}/images/{file}': jpeg(np.arange(2) == c) for file, c in zip(files, classes, strict=True)}})
    order = [k for k in range(16) if k not in tests] + sorted(tests)
    return names, one_hot(classes[order], names), SPLIT, [files[k] for k in order]


def make_dtd(folder):
    names, classes = ['banded', 'dotted', 'zigzagged'], one_of_each(3)
    files, parts = [f'{names[c]}/{names[c]}_{k:04}.jpg' for k, c in enumerate(classes)], {'train': range(8), 'val': range(8, TRAIN), 'test': range(TRAIN, 16)}
    tar_of(folder / 'dtd-r1.0.1.tar.gz', {
        **{f'dtd/labels/{part}1.txt': text(files[k] for k in rows) for part, rows in parts.items()}, 'dtd/labels/train2.txt': text(files[5:9]),
        **{f'dtd/images/{file}': jpeg(np.arange(3) == c) for file, c in zip(files, classes, strict=True)}})
    return names, one_hot(classes, names), ['train'] * 8 + ['val'] * 4 + ['test'] * 4, files


def make_flowers(folder):
    classes, ids = one_of_each(3), np.random.RandomState(1).permutation(16)
    tar_of(folder / '102flowers.tgz', {f'jpg/image_{k + 1:05}.jpg': jpeg(np.arange(3) == c) for k, c in enumerate(classes)})
    (folder / 'imagelabels.mat').write_bytes(mat(labels=classes[None] + 1))
    (folder / 'setid.mat').write_bytes(mat(trnid=ids[None, :8] + 1, valid=ids[None, 8:12] + 1, tstid=ids[None, 12:] + 1))
    return theirs.Flowers102.classes, one_hot(classes[ids], range(102)), ['train'] * 8 + ['val'] * 4 + ['test'] * 4, [f'image_{k + 1:05}.jpg' for k in ids]


def make_food101(folder):
    names, classes = ['apple_pie', 'baklava', 'waffles'], np.array([*np.repeat(range(3), 4), 0, 1, 2, 2])
    files = [f'{names[c]}/{1000 - k}' for k, c in enumerate(classes)]
    found = {part: {name: [file for file in files[rows] if file.startswith(name)] for name in reversed(names)} for part, rows in (('train', slice(0, 12)), ('test', slice(12, 16)))}
    tar_of(folder / 'food-101.tar.gz', {**{f'food-101/meta/{part}.json': json.dumps(content).encode() for part, content in found.items()},
                                        **{f'food-101/images/{file}.jpg': jpeg(np.arange(3) == c) for file, c in zip(files, classes, strict=True)}})
    return names, one_hot(classes, names), SPLIT, [f'{file}.jpg' for file in files]


def make_pets(folder):
    names, classes = ['Abyssinian', 'american_bulldog', 'Sphynx'], one_of_each(3)
    files = [f'{names[c]}_{k}' for k, c in enumerate(classes)]
    tar_of(folder / 'annotations.tar.gz', {f'annotations/{part}.txt': text(f'{files[k]} {classes[k] + 1} 1 1' for k in rows)
                                           for part, rows in (('trainval', range(TRAIN)), ('test', range(TRAIN, 16)))})
    tar_of(folder / 'images.tar.gz', {f'images/{file}.jpg': jpeg(np.arange(3) == c) for file, c in zip(files, classes, strict=True)})
    return names, one_hot(classes, names), SPLIT, [f'{file}.jpg' for file in files]


def make_sun(folder):
    names, classes = ['abbey', 'apartment_building/outdoor', 'zen_garden'], one_of_each(3)
    files = [f'/{names[c][0]}/{names[c]}/sun_{k:016}.jpg' for k, c in enumerate(classes)]
    tar_of(folder / 'SUN397.tar.gz', {f'SUN397{file}': jpeg(np.arange(3) == c) for file, c in zip(files, classes, strict=True)})
    zip_of(folder / 'Partitions.zip', {'ClassName.txt': text(f'/{name[0]}/{name}' for name in names), 'Training_01.txt': text(files[:TRAIN]), 'Testing_01.txt': text(files[TRAIN:]),
                                       'Training_02.txt': text(files[4:]), 'Testing_02.txt': text(files[:4])})
    return names, one_hot(classes, names), SPLIT, [file[1:] for file in files]


MAKERS = {'nus': make_nus, 'vaw': make_vaw, 'wider': make_wider, 'vispr': make_vispr, 'imagenet': make_imagenet, 'aircraft': make_aircraft, 'caltech101': make_caltech101,
          'cars': make_cars, 'cub-species': make_cub_species, 'dtd': make_dtd, 'flowers': make_flowers, 'food101': make_food101, 'pets': make_pets, 'sun': make_sun}


@pytest.fixture
def copy(tmp_path):
    "name → (Benchmark of a small copy, its root, what must come out, server): what can be fetched is served, the rest lies in downloads/."
    servers = []
    def make(name):
        folder, root = tmp_path / 'server', tmp_path / 'data'
        (root / name / 'downloads').mkdir(parents=True)
        folder.mkdir()
        expected = MAKERS[name](folder)
        server = serve(folder)
        servers.append(server)
        running = server.__enter__()
        split = expected[2]
        counts = {'train': len(split) - split.count('test'), 'test': split.count('test'), 'classes': len(expected[0])}
        benchmark = local(name, folder, running.url, counts=counts)
        for archive in benchmark.archives:
            if not archive.urls: shutil.move(folder / archive.file, root / name / 'downloads' / archive.file)
        return benchmark, root, expected, running
    yield make
    for server in servers: server.__exit__(None, None, None)


# ---- from the archive to scores

@pytest.mark.parametrize('name', MAKERS)
def test_from_the_official_files_to_scores(copy, monkeypatch, name):
    benchmark, root, (class_names, labels, split, images), server = copy(name)
    multi = (labels > 0).sum(1).max() > 1
    data, scores = full_circle(benchmark, root, monkeypatch, loss='an' if multi else 'softmax', batch_size=4 if len(labels) < 60 else 20)
    assert data.class_names == list(class_names) and np.array_equal(data.labels, labels)
    assert data.split.tolist() == split
    if images: assert all(path.as_posix().endswith(f'/{end}') for path, end in zip(data.images, images, strict=True))
    asked = {archive.file for archive in benchmark.archives if archive.urls}
    assert {file for file, _ in server.log} == asked and len(server.log) == len(asked)
    assert 0 <= scores['map'] <= 100 and datasets.load(name, root=root).fingerprint == data.fingerprint


def test_every_benchmark_is_registered_with_the_protocols_counts():
    found = {name: benchmarks.find(name) for name in MAKERS}
    assert {name: (b.counts['train'], b.counts['test'], b.counts['classes']) for name, b in found.items()} == {
        'nus': (150_000, 60_260, 81), 'vispr': (14_167, 8_000, 68), 'vaw': (229_076, 31_819, 620), 'wider': (28_340, 29_117, 14),
        'imagenet': (1_281_167, 50_000, 1000), 'aircraft': (6_667, 3_333, 100), 'caltech101': (3_060, 6_084, 102), 'cars': (8_144, 8_041, 196),
        'cub-species': (5_994, 5_794, 200), 'dtd': (3_760, 1_880, 47), 'flowers': (2_040, 6_149, 102), 'food101': (75_750, 25_250, 101),
        'pets': (3_680, 3_669, 37), 'sun': (19_850, 19_850, 397)}
    assert sorted(benchmarks.names()) == sorted(datasets.BENCHMARKS)


# ---- NUS-WIDE

def test_the_versions_of_nus_have_their_own_name_and_size():
    assert [(nus(v).name, nus(v).version, nus(v).counts['train'], nus(v).counts['test']) for v in benchmarks_more.NUS] == [
        ('nus', 'recrawled', 150_000, 60_260), ('nus-official', 'official', 161_789, 107_859), ('nus-labelled', 'labelled', 119_103, 50_720)]
    with pytest.raises(SpmlError, match="'lite'.*recrawled, official, labelled"): nus('lite')


def test_lists_of_another_version_are_refused_and_the_version_is_kept(copy):
    benchmark, root, _, _ = copy('nus')
    with pytest.raises(SpmlError, match=r'12 training images \(expected 150,000\)'): benchmarks.prepare(nus(), root, tell=lambda line: None)
    benchmarks.prepare(benchmark, root, tell=lambda line: None)
    assert json.loads((root / 'nus' / 'ready.json').read_text())['version'] == 'recrawled'


def test_what_must_be_brought_is_named_with_its_place(tmp_path):
    for name in ('nus', 'wider', 'vispr', 'imagenet', 'cars'):
        with pytest.raises(SpmlError) as caught: benchmarks.prepare(name, tmp_path, tell=lambda line: None)
        assert 'must be brought by hand' in str(caught.value) and str(tmp_path / name) in str(caught.value)
        assert next(a.file for a in benchmarks.find(name).archives if not a.urls) in str(caught.value)


@pytest.fixture
def unpacked(tmp_path, copy):
    "name → the images folder of a small copy, unpacked."
    def make(name):
        benchmark, root, expected, _ = copy(name)
        benchmarks.prepare(benchmark, root, tell=lambda line: None)
        return root / name / 'images', expected
    return make


def test_labels_that_do_not_fit_the_list_are_refused(unpacked):
    folder, _ = unpacked('nus')
    file = next(folder.rglob('Labels_zebra_Test.txt'))
    for content in ('1\n0\n', '1\n0\n2\n0\n', '1\nx\n0\n0\n'):
        file.write_text(content)
        with pytest.raises(SpmlError, match='Labels_zebra_Test.txt'): read_nus(folder)


# ---- boxes

def test_a_crop_shows_what_is_in_the_box(tmp_path):
    photo = np.zeros((50, 60, 3), np.uint8)
    photo[10:30, 20:50] = (200, 30, 60)
    Image.fromarray(photo).save(tmp_path / 'photo.png')
    boxes = {'all.jpg': (20, 10, 30, 20), 'part.jpg': (-5, -5, 30.2, 20), 'none.jpg': (60, 0, 9, 9), 'thin.jpg': (30, 20, 0.3, 0.3)}
    assert crops(tmp_path, {tmp_path / 'photo.png': boxes}) == {'all.jpg', 'part.jpg', 'thin.jpg'}
    with Image.open(tmp_path / 'crops/all.jpg') as image: assert image.size == (30, 20) and abs(np.asarray(image).astype(int) - (200, 30, 60)).max() < 6
    with Image.open(tmp_path / 'crops/part.jpg') as image: assert image.size == (26, 15) and np.asarray(image)[:8].max() < 40
    with Image.open(tmp_path / 'crops/thin.jpg') as image: assert image.size == (1, 1)


def test_a_damaged_photo_leaves_no_crops(tmp_path):
    (tmp_path / 'bad.jpg').write_bytes(jpeg([1])[:300])
    drawing([1]).save(tmp_path / 'good.jpg')
    with pytest.raises(SpmlError, match='bad.jpg'):
        crops(tmp_path, {tmp_path / 'good.jpg': {'a.jpg': (0, 0, 9, 9)}, tmp_path / 'bad.jpg': {'b.jpg': (0, 0, 9, 9)}})
    assert sorted(file.name for file in tmp_path.iterdir()) == ['bad.jpg', 'good.jpg']


def test_what_vaw_does_not_say_is_unknown_and_in_no_metric(unpacked, tmp_path):
    folder, (_, labels, _, _) = unpacked('vaw')
    data = datasets.load('vaw', root=tmp_path / 'data')
    z = data.labels[data.rows('test')]
    assert (z == 0).any() and np.array_equal(data.labels == 0, labels == 0)
    scores = np.random.RandomState(0).standard_normal(z.shape)
    moved = np.where(z == 0, 99 * np.random.RandomState(1).standard_normal(z.shape), scores)
    for axis in ('class', 'sample'): assert metrics.mean_average_precision(scores, z, axis=axis) == metrics.mean_average_precision(moved, z, axis=axis)
    assert metrics.mean_average_precision(-scores, z) != metrics.mean_average_precision(scores, z)


def change(file, edit):
    content = json.loads(file.read_text())
    edit(content)
    file.write_text(json.dumps(content))


def test_what_vaw_says_both_ways_is_unknown_and_other_words_are_refused(unpacked):
    folder, _ = unpacked('vaw')
    file = next(folder.rglob('val.json'))
    change(file, lambda found: found[0].update(positive_attributes=['red', 'tall'], negative_attributes=['tall', 'wet']))
    listing = read_vaw(folder)
    assert listing.labels[10].tolist() == [0, 1, 0, 0, -1]
    change(file, lambda found: found[0].update(positive_attributes=['reddish']))
    with pytest.raises(SpmlError, match="9010.*'reddish'"): read_vaw(folder)
    change(file, lambda found: found[0].pop('positive_attributes'))
    with pytest.raises(SpmlError, match='positive_attributes'): read_vaw(folder)
    change(file, lambda found: found[0].update(positive_attributes=[], image_id=4711))
    with pytest.raises(SpmlError, match='4711.jpg'): read_vaw(folder)


def test_wider_refuses_other_values(unpacked):
    folder, _ = unpacked('wider')
    change(next(folder.rglob('wider_attribute_test.json')), lambda found: found['images'][0]['targets'][0]['attribute'].__setitem__(0, 7))
    with pytest.raises(SpmlError, match='wider_attribute_test.json'): read_wider(folder)


def test_wider_reads_train_and_val_apart_as_well(unpacked):
    folder, (_, labels, split, _) = unpacked('wider')
    file = next(folder.rglob('wider_attribute_trainval.json'))
    content = json.loads(file.read_text())
    for part, rows in (('train', slice(0, 4)), ('val', slice(4, None))):
        (file.parent / f'wider_attribute_{part}.json').write_text(json.dumps({**content, 'images': content['images'][rows]}))
    file.unlink()
    shutil.rmtree(folder / 'crops')
    listing = read_wider(folder)
    assert np.array_equal(listing.labels, labels) and listing.split == split and listing.images[8] == 'crops/val-00000.jpg'


def test_vispr_needs_an_annotation_for_each_photo(unpacked):
    folder, _ = unpacked('vispr')
    next(folder.rglob('2017_00000009.json')).unlink()
    with pytest.raises(SpmlError, match='val/2017_00000009'): read_vispr(folder)


# ---- the sets of Table 8

def test_imagenet_refuses_folders_that_differ(unpacked):
    folder, _ = unpacked('imagenet')
    (folder / 'val' / 'n99999999').mkdir()
    with pytest.raises(SpmlError, match='n99999999'): benchmarks_more.read_imagenet(folder)


def test_caltech_trains_on_30_images_of_each_class_drawn_once(unpacked):
    folder, (names, _, _, _) = unpacked('caltech101')
    first, again = benchmarks_more.read_caltech101(folder), benchmarks_more.read_caltech101(folder)
    assert first.images == again.images and len(set(first.images)) == 64
    for k in range(2): assert (first.labels[:60, k] > 0).sum() == 30
    order = np.random.RandomState(1200).permutation(32)
    assert [int(name[-8:-4]) - 1 for name in first.images[:30]] == sorted(order[:30])
    for file in [*(folder / 'photos/101_ObjectCategories/Faces_easy').iterdir()][:2]: file.unlink()
    with pytest.raises(SpmlError, match="'Faces_easy' has 30 images"): benchmarks_more.read_caltech101(folder)


def pairs(listing, part):
    "{name of the image: class number} of a part."
    return {image.rsplit('/', 1)[1]: int(row.argmax()) for image, row, word in zip(listing.images, listing.labels, listing.split, strict=True) if word == part}


def ours_and_theirs(images, labels): return {str(image).replace('\\', '/').rsplit('/', 1)[1]: int(label) for image, label in zip(images, labels, strict=True)}


@pytest.mark.parametrize('name, kind, place, parts', [
    ('aircraft', theirs.FGVCAircraft, {'fgvc-aircraft-2013b': 'fgvc-aircraft/fgvc-aircraft-2013b'}, {'train': 'train', 'val': 'val', 'test': 'test'}),
    ('dtd', theirs.DTD, {'dtd/dtd': 'dtd/dtd'}, {'train': 'train', 'val': 'val', 'test': 'test'}),
    ('flowers', theirs.Flowers102, {'flowers-102/jpg': '102flowers/jpg', 'flowers-102/setid.mat': 'lists/setid.mat', 'flowers-102/imagelabels.mat': 'lists/imagelabels.mat'},
     {'train': 'train', 'val': 'val', 'test': 'test'}),
    ('food101', theirs.Food101, {'food-101': 'food-101/food-101'}, {'train': 'train', 'test': 'test'}),
    ('pets', theirs.OxfordIIITPet, {'oxford-iiit-pet/images': 'photos/images', 'oxford-iiit-pet/annotations': 'annotations/annotations'}, {'train': 'trainval', 'test': 'test'}),
    ('cars', theirs.StanfordCars, {'stanford_cars/devkit': 'car_devkit/devkit', 'stanford_cars/cars_train': 'cars_train/cars_train', 'stanford_cars/cars_test': 'cars_test/cars_test',
                                   'stanford_cars/cars_test_annos_withlabels.mat': 'annotations/cars_test_annos_withlabels.mat'}, {'train': 'train', 'test': 'test'})])
def test_torchvision_reads_the_same(unpacked, tmp_path, monkeypatch, name, kind, place, parts):
    folder, (class_names, _, _, _) = unpacked(name)
    listing = benchmarks.find(name).read(folder)
    for link, target in place.items():
        (tmp_path / 'theirs' / link).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'theirs' / link).symlink_to(folder / target)
    if name == 'flowers': monkeypatch.setattr(kind, '_check_integrity', lambda self: True)   # it insists on the official bytes
    for ours, word in parts.items():
        data = kind(tmp_path / 'theirs', split=word)
        images, labels = zip(*data._samples, strict=True) if name == 'cars' else (data._images if name == 'pets' else data._image_files, data._labels)
        assert ours_and_theirs(images, labels) == pairs(listing, ours)
    if name == 'cars': assert data.classes == class_names


@pytest.mark.parametrize('name, file, old, new, told', [
    ('aircraft', 'images_variant_test.txt', 'A300B4', 'A300B5', 'A300B5'), ('sun', 'Testing_01.txt', 'zen_garden', 'zen_gardens', 'zen_gardens'),
    ('cub-species', 'image_class_labels.txt', '3 1', '3 7', "'7'"), ('food101', 'test.json', 'waffles', 'wafers', 'different classes'),
    ('pets', 'trainval.txt', ' 2 1 1', ' 9 1 1', 'numbered'), ('flowers', 'setid.mat', '', None, 'setid.mat')])
def test_official_files_that_contradict_each_other_are_refused(unpacked, name, file, old, new, told):
    folder, _ = unpacked(name)
    file = next(folder.rglob(file))
    if new is None: file.write_bytes(b'no matlab')
    else:
        if name == 'food101': file.write_text(file.read_text().replace('"waffles":', '"wafers":'))
        else: file.write_text(file.read_text().replace(old, new))
    with pytest.raises(SpmlError, match=told): benchmarks.find(name).read(folder)
