"""The list of benchmarks, and one command that prepares them: fetch, unpack, read, verify, write the table."""

import hashlib
import importlib
import json
import pkgutil
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from spml_nb.data.folder import (
    RESERVED,
    Listing,
    assemble,
    first_there,
    open_photo,
    places,
    read_folder,
)

from ...base import settings
from ...base.errors import SpmlError, one_of
from ...base.files import alone, write_atomically
from .. import fetch
from ..dataset import Dataset, listed
from .shrink import Small, shrink

PARTLY_KNOWN = ('vaw', 'wider')  # a class that is not named there is unknown, not absent
BENCHMARKS = {
    'voc12': 'PASCAL VOC 2012, 20 classes',
    'voc07': 'PASCAL VOC 2007, 20 classes',
    'coco14': 'MS-COCO 2014, 80 classes',
    'nus': 'NUS-WIDE as re-crawled, 81 classes',
    'nus-official': 'NUS-WIDE, official lists, 81 classes',
    'nus-labelled': 'NUS-WIDE, labelled images only, 81 classes',
    'cub': 'CUB-200-2011, 312 attributes',
    'vispr': 'VISPR, 68 classes',
    'vaw': 'VAW, 620 attributes',
    'wider': 'WIDER-Attribute, 14 attributes',
    'ccp': 'Clothing Co-Parsing, 58 labels',
    'voc12_animals': 'VOC 2012, its photos with animals, 19 classes',
    'coco18': 'MS-COCO, 6,000 photos, 18 classes',
    'cub_crops': 'CUB, crops of 100 species, 312 attributes',
    'mirflickr14': 'MIRFlickr, 6,000 photos, 14 labels',
    'corel5k': 'Corel5k, 260 words',
    'corel5k_themes': 'Corel5k, 50 themes, one a photo',
    'imagenet': 'ImageNet-1k',
    'aircraft': 'FGVC-Aircraft',
    'caltech101': 'Caltech-101',
    'cars': 'Stanford Cars',
    'cub-species': 'CUB-200-2011, 200 species',
    'dtd': 'Describable Textures',
    'flowers': 'Oxford Flowers-102',
    'food101': 'Food-101',
    'pets': 'Oxford-IIIT Pets',
    'sun': 'SUN397',
}


@dataclass(frozen=True)
class Archive:
    """A file of a benchmark.

    A file that is no archive becomes images/<folder>/<file>. In place of images/ it is originals/
    where photos are made small.

    Args:
        file: Its name in downloads/.
        urls: Official addresses; none if it must be brought by hand.
        folder: Where below images/ it is unpacked, a folder of its own; its name before the first
            dot if unset.
        bytes: About how many.
        md5: Published checksum, if there is one.
        sha256: The same.
        optional: Whether it may be missing if it is brought by hand.
    """

    file: str
    urls: tuple[str, ...] = ()
    folder: str = ''
    bytes: int | None = None
    md5: str | None = None
    sha256: str | None = None
    optional: bool = False

    @property
    def place(self) -> str:
        "The folder below images/."
        return self.folder or self.file.split('.')[0]


@dataclass(frozen=True)
class Benchmark:
    """A data set of the papers.

    Args:
        name: A key of `BENCHMARKS`.
        read: Function from the folder where its archives are unpacked to a `Listing`.
        archives: Its files.
        counts: What must come out: any of 'images', 'train' (validation rows included), 'test',
            'classes'.
        validation: 'drawn' (20 % of the training rows) or 'none'.
        version: Which one, where several are in use.
        instructions: What to do about files that are brought by hand.
        licence: Terms of use.
        small: To what size photos are made; unset, they stay as they are.
        digest: What `digest` must give, if it is known.
        boxes: Function from the folder images/ to {file name of a photo: [(class, left, top, right,
            bottom), …]}, in shares of its width and height; none if the archives have no boxes.
    """

    name: str
    read: Callable[[Path], Listing]
    archives: tuple[Archive, ...]
    counts: dict
    validation: str = 'drawn'
    version: str = ''
    instructions: str = ''
    licence: str = ''
    small: Small | None = None
    digest: str = ''
    boxes: Callable[[Path], dict[str, list]] | None = None


REGISTRY: dict[str, Benchmark] = {}


def register(benchmark: Benchmark) -> Benchmark:
    """Make a benchmark known.

    Args:
        benchmark: What is said of it.

    Returns:
        The same.

    Raises:
        SpmlError: For a name that `BENCHMARKS` does not list.
    """
    REGISTRY[one_of(benchmark.name, BENCHMARKS, 'benchmark')] = benchmark
    return benchmark


def names() -> list[str]:
    """List all benchmarks that can be prepared.

    Returns:
        Their names.
    """
    return list(BENCHMARKS)


def find(name: str) -> Benchmark:
    """Find a benchmark by name. The modules that register benchmarks are imported here.

    Args:
        name: One of `names()`.

    Returns:
        What is said of it.

    Raises:
        SpmlError: For another name.
    """
    one_of(name, BENCHMARKS, 'benchmark', '`spml data` lists them.')
    package = importlib.import_module('spml_nb.data.official')
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f'{package.__name__}.{module.name}')
    return REGISTRY[name]


def inside(folder: Path, *candidates: str) -> Path:
    """Find the first of several places that is there.

    Args:
        folder: Where to look.
        *candidates: Paths below it.

    Returns:
        The place.

    Raises:
        SpmlError: If none is there, naming what was expected.
    """
    for candidate in candidates:
        if (folder / candidate).exists():
            return folder / candidate
    raise SpmlError(
        f'{folder} has no {" or ".join(candidates)}: not the official layout. Remove the folder '
        'and give the command again.'
    )


def reading(file: Path, read: Callable, form: str = ''):
    """Read a file, with the same error for whatever is wrong with it.

    Args:
        file: The file, for the message.
        read: Function without arguments that reads it.
        form: What it should be, such as ' as a MATLAB file'.

    Returns:
        What `read` returns.

    Raises:
        SpmlError: If it cannot be read.
    """
    try:
        return read()
    except Exception as error:
        raise SpmlError(f'{file} cannot be read{form}: {error}. Bring it again.') from error


def lines(file: Path) -> list[str]:
    """Read the lines of a text file that are not blank.

    Args:
        file: A file in UTF-8.

    Returns:
        The lines, without blanks at their ends.

    Raises:
        SpmlError: If it cannot be read.
    """
    text = reading(file, lambda: Path(file).read_text(encoding='utf-8'))
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def read_json(file: Path, hook: Callable | None = None):
    """Read a JSON file.

    Args:
        file: A file in UTF-8.
        hook: Function that is given each object and returns what takes its place.

    Returns:
        Its content.

    Raises:
        SpmlError: If it cannot be read.
    """
    return reading(file, lambda: json.loads(file.read_text(encoding='utf-8'), object_hook=hook))


def read_matlab(file: Path, key: str | None = None, squeeze: bool = False):
    """Read one array of a MATLAB file.

    Args:
        file: The file.
        key: The array's name; unset, the only one there is.
        squeeze: Drop axes of length one.

    Returns:
        The array.

    Raises:
        SpmlError: If it cannot be read, or holds other arrays.
    """
    from scipy.io import loadmat

    arrays = reading(file, lambda: loadmat(file, squeeze_me=squeeze), ' as a MATLAB file')
    content = {name: value for name, value in arrays.items() if not name.startswith('__')}
    if key is None and len(content) == 1:
        return next(iter(content.values()))
    if key not in content:
        raise SpmlError(
            f'{file} has {listed(sorted(content))} where {key or "one array"} is expected.'
        )
    return content[key]


def _fault(file):
    "What is wrong with an image, '' if nothing is."
    try:
        with open_photo(file) as image:
            image.draft('RGB', (1, 1))
            image.load()
    except Exception as error:
        return f'{file.name} ({error or type(error).__name__})'  # Pillow's plugins raise many types
    return ''


_COUNTED = {
    'images': 'images',
    'train': 'training images',
    'test': 'test images',
    'classes': 'classes',
}


def _counts(listing):
    total, tests = len(listing.images), (listing.split or []).count('test')
    return {
        'images': total,
        'train': total - tests,
        'test': tests,
        'classes': len(listing.class_names),
    }


def digest(listing: Listing) -> str:
    """Take a checksum of names, classes, split and labels.

    Args:
        listing: What a reader gave.

    Returns:
        64 hexadecimal digits.
    """
    text = json.dumps([listing.images, listing.class_names, listing.split])
    return hashlib.sha256(text.encode() + listing.labels.tobytes()).hexdigest()


def verify(benchmark: Benchmark, listing: Listing, images: Path):
    """Compare what was read with the protocol.

    Args:
        benchmark: Whose counts hold.
        listing: What its reader gave.
        images: Where it was read, for the message.

    Raises:
        SpmlError: For other counts, names or labels.

    Source:
        The counts of the papers.
    """
    found = _counts(listing)
    wrong = [
        f'{found[what]:,} {_COUNTED[what]} (expected {count:,})'
        for what, count in benchmark.counts.items()
        if found[what] != count
    ]
    different = len(set(listing.images))
    if different != len(listing.images):
        wrong.append(f'only {different:,} different images among these')
    if not wrong and benchmark.digest and digest(listing) != benchmark.digest:
        wrong.append('names, labels or split that differ from the published ones')
    if wrong:
        raise SpmlError(
            f'{benchmark.name}: {images} has {"; ".join(wrong)}. These are not the official files, '
            'or not all of them: remove what differs and give the command again.'
        )


def _make_images(benchmark, listing, images, tell):
    "Make the photos small, if the set wants that, and decode every one."
    tell(
        f'{benchmark.name}: {"making small" if benchmark.small else "decoding"} '
        f'{len(listing.images):,} images'
    )
    if benchmark.small:
        shrink(listing, images, benchmark.small)
    with ThreadPoolExecutor() as pool:
        bad = [
            fault for fault in pool.map(_fault, (images / name for name in listing.images)) if fault
        ]
    if bad:
        raise SpmlError(
            f'{benchmark.name}: {len(bad):,} images below {images} are missing or damaged: '
            f'{listed(bad, 5)}. Remove the folder they are in and give the command again.'
        )


MOST_CELLS = 30_000_000


def table_text(listing: Listing) -> str:
    """Write a `Listing` as the text of labels.csv.

    Args:
        listing: What the official files say.

    Returns:
        The text.

    Raises:
        SpmlError: For class names that the table cannot hold.
    """
    taken = sorted(set(RESERVED) & set(listing.class_names))
    if taken:
        raise SpmlError(f'classes named {listed(taken)} cannot be columns of labels.csv.')
    cells = pd.DataFrame(
        np.array(['0', '', '1'], object)[listing.labels + 1], columns=listing.class_names
    )
    cells.insert(0, 'image', listing.images)
    if listing.split is not None:
        cells.insert(1, 'split', listing.split)
    return cells.to_csv(index=False, lineterminator='\n')


def _save_matrix(file, listing):
    with open(file, 'wb') as out:
        np.savez_compressed(
            out,
            images=np.frombuffer('\n'.join(listing.images).encode(), np.uint8),
            labels=listing.labels,
            class_names=np.array(listing.class_names),
            split=np.array(listing.split or [], '<U5'),
        )


def _load_matrix(file):
    try:
        with np.load(file) as part:
            images, split = (
                part['images'].tobytes().decode().split('\n'),
                part['split'].tolist() or None,
            )
            return Listing(images, part['labels'], part['class_names'].tolist(), split)
    except Exception as error:  # zip, zlib, key, value
        raise SpmlError(
            f'{file} cannot be read: {error}. Remove it and give `spml data` again.'
        ) from error


def table(name: str, folder: Path, validation: str | None = None) -> Dataset:
    """Read the table of a benchmark; `spml_nb.data.load` calls this.

    Args:
        name: Of a benchmark.
        folder: With images/ and labels.csv or labels.npz.
        validation: 'drawn' or 'none'; as ready.json says if unset.

    Returns:
        The data set.

    Raises:
        SpmlError: If something is missing or malformed.
    """
    file = folder / 'labels.npz'
    if file.is_file():
        data = assemble(name, _load_matrix(file), folder / 'images', file)
    else:
        data = read_folder(
            folder,
            name,
            f'data set {name!r} ({BENCHMARKS[name]}) is not ready; '
            f'`spml data {name}` prepares it: ',
            by_row=True,
        )
    none = (validation or fetch.read_note(folder / 'ready.json').get('validation')) == 'none'
    return replace(data, split=np.where(data.split == 'val', 'train', data.split)) if none else data


def _write_table(listing, folder):
    """Write the table unless it is there; one that differs, which may hold somebody's corrections,
    is never overwritten.
    """
    large = listing.labels.size > MOST_CELLS
    file = folder / ('labels.npz' if large else 'labels.csv')
    if file.exists() and _same_table(file, listing):
        return
    if file.exists():
        raise SpmlError(
            f'{file} differs from the official labels and is not overwritten. Move it away; if the '
            'changes are yours, move the folder away to train on it as your own.'
        )
    write_atomically(
        file, (lambda target: _save_matrix(target, listing)) if large else table_text(listing)
    )


def _same_table(file, listing):
    if file.suffix == '.csv':
        return file.read_text(encoding='utf-8', errors='replace') == table_text(listing)
    return digest(_load_matrix(file)) == digest(listing)


def folder_of(name: str, root: Path | None = None) -> Path:
    """Say where a benchmark lies, or will lie.

    Args:
        name: One of `names()`.
        root: The folder of data sets; the setting `data` if unset.

    Returns:
        Its folder, which need not exist.
    """
    return (settings.path('data') if root is None else first_there(places(root))) / name


def _benchmark(given):
    return given if isinstance(given, Benchmark) else find(given)


def _base(benchmark, folder):
    return folder / ('originals' if benchmark.small else 'images')


def _there(archive, base):
    "Whether what an archive holds is unpacked."
    place = base / archive.place
    if not fetch.is_archive(archive.file):
        return (place / archive.file).is_file()
    return place.is_dir() and any(place.iterdir())


def check(name: str | Benchmark, root: Path | None = None) -> list[str]:
    """Say what a benchmark lacks.

    Args:
        name: One of `names()`, or a Benchmark.
        root: The folder of data sets; the setting `data` if unset.

    Returns:
        Sentences, none if it is ready.

    Raises:
        SpmlError: For an unknown name.
    """
    benchmark = _benchmark(name)
    folder = folder_of(benchmark.name, root)
    ready = fetch.read_note(folder / 'ready.json')
    missing = [
        _missing(archive, folder)
        for archive in benchmark.archives
        if not (
            archive.optional
            or (ready and benchmark.small)
            or _there(archive, _base(benchmark, folder))
        )
    ]
    if not ready:
        missing.append(f'{folder} has not been verified: give `spml data {benchmark.name}`.')
    if missing:
        return missing
    try:
        same = table(benchmark.name, folder).fingerprint == ready.get('fingerprint')
    except SpmlError as error:
        return [str(error)]
    return (
        []
        if same
        else [
            f'images or table in {folder} have changed since they were verified. Give `spml data '
            f'{benchmark.name}`.'
        ]
    )


def _missing(archive, folder):
    file = folder / 'downloads' / archive.file
    about = f' ({fetch.in_words(archive.bytes)})' if archive.bytes else ''
    if file.is_file():
        return f'{archive.file} is there, but not unpacked.'
    if part := fetch.size_of(file.with_name(file.name + '.part')):
        return f'{archive.file}{about} is half there: {fetch.in_words(part)}.'
    remedy = f'from {archive.urls[0]}' if archive.urls else f'put it into {file.parent}'
    return f'{archive.file}{about} is not there; {remedy}.'


def _help(benchmark, folder):
    return benchmark.instructions.format(downloads=folder / 'downloads', images=folder / 'images')


def _refuse_early(benchmark, folder, tell):
    """Before gigabytes are fetched: files that only a person can bring, what somebody made, and the
    terms of use.
    """
    base = _base(benchmark, folder)
    absent = [
        archive for archive in benchmark.archives if not (archive.optional or _there(archive, base))
    ]
    by_hand = [
        archive.file
        for archive in absent
        if not (archive.urls or (folder / 'downloads' / archive.file).is_file())
    ]
    if by_hand:
        raise SpmlError(
            f'{benchmark.name}: {listed(by_hand)} must be brought by hand. '
            f'{_help(benchmark, folder)}'
        )
    own = (
        folder / 'labels.csv',
        *([folder / 'images'] if benchmark.small and not base.is_dir() else []),
    )
    strange = (
        [file for file in own if file.exists()]
        if absent and not (folder / 'ready.json').exists()
        else []
    )
    if strange:
        raise SpmlError(
            f'{strange[0]} was not written by this command, and it is not overwritten. Use it '
            f'as it is, or move {folder} away.'
        )
    sources = dict.fromkeys(archive.urls[0].rsplit('/', 1)[0] for archive in absent if archive.urls)
    if sources:
        tell(f'{benchmark.name}: from {listed(sources)}')
    if absent and benchmark.licence:
        tell(f'{benchmark.name}: terms of use: {benchmark.licence}')


def _bring(archive, benchmark, folder, mirror, tell):
    "One archive from its address to where it is unpacked."
    if _there(archive, base := _base(benchmark, folder)):
        return
    file, place = folder / 'downloads' / archive.file, base / archive.place
    if archive.optional and not archive.urls and not file.is_file():
        return
    packed = fetch.is_archive(archive.file)
    if not (packed or benchmark.small or file.is_file()):
        file = place / archive.file
    urls = [
        *_nearby(archive, folder),
        *fetch.mirrored(archive.urls, f'{benchmark.name}/{archive.file}', mirror),
    ]
    try:
        fetch.download(
            urls, file, md5=archive.md5, sha256=archive.sha256, bytes=archive.bytes, tell=tell
        )
    except SpmlError as error:
        raise SpmlError(f'{error} {_help(benchmark, folder)}'.rstrip()) from error.__cause__
    try:
        if packed:
            fetch.unpack(file, place, tell)
        elif place != file.parent:
            write_atomically(place / file.name, lambda target: shutil.copyfile(file, target))
    except fetch.Damaged as error:
        raise SpmlError(
            f'{error}. It is kept as {fetch.set_aside(file).name}; give the command again to fetch '
            'it anew.'
        ) from error


def _nearby(archive, folder):
    """Addresses of the same archive in other data sets' folders, where a checksum tells that it is
    the same.
    """
    return [
        other.resolve().as_uri()
        for other in sorted(folder.parent.glob(f'*/downloads/{archive.file}'))
        if other.parents[1] != folder
        and fetch.agrees(other, md5=archive.md5, sha256=archive.sha256)
    ]


def prepare(
    name: str | Benchmark, root: Path | None = None, mirror: str | None = None, tell=print
) -> Path:
    """Make a benchmark ready for `spml_nb.data.load`: fetch, unpack, read, verify, write the table.

    What is there and verifies is neither fetched nor written again. Nothing half-done is left that
    looks done.

    Args:
        name: One of `names()`, or a Benchmark.
        root: The folder of data sets; the setting `data` if unset.
        mirror: As in `fetch.mirrored`.
        tell: Takes lines of progress.

    Returns:
        Its folder.

    Raises:
        SpmlError: For whatever is missing, damaged, or not as the protocol says.
    """
    benchmark = _benchmark(name)
    folder = folder_of(benchmark.name, root)
    images, base = folder / 'images', _base(benchmark, folder)
    with alone(folder, tell):
        if not check(benchmark, folder.parent):
            tell(f'{benchmark.name} is ready: {folder}')
            return folder
        _refuse_early(benchmark, folder, tell)
        for archive in benchmark.archives:
            _bring(archive, benchmark, folder, mirror, tell)
        tell(f'{benchmark.name}: reading the official files')
        listing = benchmark.read(base)
        verify(benchmark, listing, base)
        _make_images(benchmark, listing, images, tell)
        _write_table(listing, folder)
        data = table(benchmark.name, folder, benchmark.validation)
        archives = {
            archive.file: fetch.read_note(base / archive.place / fetch.MARK).get('sha256')
            for archive in benchmark.archives
        }
        note = {
            'name': benchmark.name,
            'version': benchmark.version,
            'validation': benchmark.validation,
            'fingerprint': data.fingerprint,
            **_counts(listing),
            'archives': archives,
        }
        write_atomically(folder / 'ready.json', json.dumps(note, indent=1))
        if benchmark.small:
            shutil.rmtree(base)
        tell(f'{data!r}\nready: {folder}')
    return folder


def overview(root: Path | None = None) -> str:
    """List all benchmarks: name, title, size of the download, and whether it is ready.

    Args:
        root: The folder of data sets; the setting `data` if unset.

    Returns:
        One line per benchmark.
    """
    rows = []
    for benchmark in map(find, names()):
        size = sum(archive.bytes or 0 for archive in benchmark.archives)
        by_hand = any(not archive.urls and not archive.optional for archive in benchmark.archives)
        ready = (folder_of(benchmark.name, root) / 'ready.json').is_file()
        rows.append(
            (
                benchmark.name,
                BENCHMARKS[benchmark.name],
                ', '.join([fetch.in_words(size)] * bool(size) + ['by hand'] * by_hand),
                'ready' if ready else 'not there',
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return '\n'.join(
        '  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
