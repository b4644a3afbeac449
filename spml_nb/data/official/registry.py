"""The list of benchmarks, and what prepares them: fetch, unpack, read, verify, write."""

import hashlib
import importlib
import json
import pkgutil
import shutil
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from ...base import settings
from ...base.errors import SpmlError, one_of
from ...base.files import hold_lock, write_atomically
from .. import fetch
from ..dataset import Dataset, join_items
from ..decoding import open_photo
from ..folder import (
    RESERVED,
    Listing,
    assemble_dataset,
    candidate_folders,
    first_existing_folder,
    read_folder,
)
from .shrink import Small, shrink

_PUBLISHED = tomllib.loads(
    (files('spml_nb') / 'assets' / 'benchmarks.toml').read_text(encoding='utf-8')
)
BENCHMARKS = {name: entry['title'] for name, entry in _PUBLISHED.items()}
# sets in which a class that is not named is unknown, not absent
PARTLY_KNOWN = [name for name, entry in _PUBLISHED.items() if entry.get('partly_known')]
# sets that are validated and tested only on images of which every label is known
SCORED_IF_COMPLETE = [name for name, entry in _PUBLISHED.items() if entry.get('scored_if_complete')]
# what is observed of a set unless something else is asked for, where it is not one drawn positive
DEFAULT_LABELS = {name: entry['labels'] for name, entry in _PUBLISHED.items() if 'labels' in entry}
# of `spml_nb.runs.config.VIEW_SETS`, where photos may not be mirrored
DEFAULT_VIEWS = {name: entry['views'] for name, entry in _PUBLISHED.items() if 'views' in entry}


@dataclass(frozen=True)
class Archive:
    """A file of a benchmark; one that is no archive becomes images/<folder>/<file>.

    In place of images/ it is originals/ where photos are made small.

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
    urls: Sequence[str] = ()
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
    """A data set of the papers; what is published about each is in assets/benchmarks.toml.

    Args:
        name: A key of `BENCHMARKS`.
        read: Function from the folder where its archives are unpacked to a `Listing`.
        counts: What must come out: any of 'images', 'train' (validation rows included), 'test',
            'classes'.
        validation: 'drawn' (20 % of the training rows), 'listed' (as the authors chose) or 'none'.
        version: Which one, where several are in use.
        instructions: What to do about files that are brought by hand.
        small: To what size photos are made; unset, they stay as they are.
        digest: What `hash_listing` must give, if it is published.
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

    def help(self, folder: Path) -> str:
        "The instructions, with the places below the set's folder filled in."
        places = {'downloads': folder / 'downloads', 'images': folder / 'images'}
        return self.instructions.format(version=self.version, **(self.counts | places))

    def unpacked(self, folder: Path) -> Path:
        "Where the archives are unpacked."
        return folder / ('originals' if self.small else 'images')


REGISTRY: dict[str, Benchmark] = {}


def register(name: str, read: Callable[[Path], Listing], boxes: Callable | None = None):
    """Register the reader of a benchmark.

    Args:
        name: A key of assets/benchmarks.toml.
        read, boxes: As in `Benchmark`.
    """
    entry = _PUBLISHED[one_of(name, BENCHMARKS, 'benchmark')]
    fields = _PUBLISHED.get(entry.get('like'), {}) | entry
    fields['archives'] = tuple(Archive(**archive) for archive in fields['archives'])
    if 'small' in fields:
        fields['small'] = Small(**fields['small'])
    for key in ('title', 'like', 'partly_known', 'scored_if_complete', 'labels', 'views'):
        fields.pop(key, None)
    REGISTRY[name] = Benchmark(name, read, boxes=boxes, **fields)


def names() -> list[str]:
    "List all benchmarks that can be prepared."
    return list(BENCHMARKS)


def find(name: str) -> Benchmark:
    """Find a benchmark by name, after importing the modules that register readers.

    Raises:
        SpmlError: For an unknown name.
    """
    one_of(name, BENCHMARKS, 'benchmark', '`spml data` lists them.')
    package = importlib.import_module('spml_nb.data.official')
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f'{package.__name__}.{module.name}')
    return REGISTRY[name]


def find_in_benchmark(folder: Path, *candidates: str) -> Path:
    """Find the first of several paths below a folder that is there.

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


def read_with_remedy(file: Path, read: Callable, form: str = ''):
    """Read a file, with the same error for whatever is wrong with it.

    Args:
        file: For the message.
        read: Function without arguments that reads it.
        form: What it should be, such as ' as a MATLAB file'.

    Raises:
        SpmlError: For any error of `read`.
    """
    try:
        return read()
    except Exception as error:
        raise SpmlError(f'{file} cannot be read{form}: {error}. Bring it again.') from error


def read_listing_lines(file: Path) -> list[str]:
    "Read the lines of a text file in UTF-8 that are not blank, without blanks at their ends."
    text = read_with_remedy(file, lambda: Path(file).read_text(encoding='utf-8'))
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def read_annotation_json(file: Path, hook: Callable | None = None):
    "Read a JSON file; `hook` is given each object and returns what takes its place."
    return read_with_remedy(
        file, lambda: json.loads(file.read_text(encoding='utf-8'), object_hook=hook)
    )


def get_fields(record: dict, file: Path, *keys: str) -> list:
    """Get values of a JSON object, in the order of the keys.

    Raises:
        SpmlError: For one that is missing.
    """
    absent = [key for key in keys if not isinstance(record, dict) or key not in record]
    if absent:
        raise SpmlError(f'{file}: an entry has no {join_items(absent)}: not the official form.')
    return [record[key] for key in keys]


def read_matlab(file: Path, key: str | None = None, squeeze: bool = False) -> np.ndarray:
    """Read one array of a MATLAB file.

    Args:
        file: Of a version before 7.3.
        key: The array's name; unset, the only one there is.
        squeeze: Drop axes of length one.

    Raises:
        SpmlError: If it cannot be read, or holds other arrays.
    """
    from scipy.io import loadmat

    arrays = read_with_remedy(file, lambda: loadmat(file, squeeze_me=squeeze), ' as a MATLAB file')
    content = {name: value for name, value in arrays.items() if not name.startswith('__')}
    if key is None and len(content) == 1:
        return next(iter(content.values()))
    if key not in content:
        raise SpmlError(
            f'{file} has {join_items(sorted(content))} where {key or "one array"} is expected.'
        )
    return content[key]


def hash_listing(listing: Listing) -> str:
    "Take a checksum of names, classes, split and labels: 64 hexadecimal digits."
    text = json.dumps([listing.images, listing.class_names, listing.split])
    return hashlib.sha256(text.encode() + listing.labels.tobytes()).hexdigest()


_COUNTED = {
    'images': 'images',
    'train': 'training images',
    'test': 'test images',
    'classes': 'classes',
}


def _counts(listing):
    total = len(listing.images)
    tests = (listing.split or []).count('test')
    return {
        'images': total,
        'train': total - tests,
        'test': tests,
        'classes': len(listing.class_names),
    }


def verify_listing(benchmark: Benchmark, listing: Listing, images: Path):
    """Compare what was read below `images` with the protocol.

    Raises:
        SpmlError: For other counts, names or labels.

    Source:
        The counts of the papers.
    """
    counts = _counts(listing)
    wrong = [
        f'{counts[what]:,} {_COUNTED[what]} (expected {count:,})'
        for what, count in benchmark.counts.items()
        if counts[what] != count
    ]
    different = len(set(listing.images))
    if different != len(listing.images):
        wrong.append(f'only {different:,} different images among these')
    if not wrong and benchmark.digest and hash_listing(listing) != benchmark.digest:
        wrong.append('names, labels or split that differ from the published ones')
    if wrong:
        raise SpmlError(
            f'{benchmark.name}: {images} has {"; ".join(wrong)}. These are not the official files, '
            'or not all of them: remove what differs and give the command again.'
        )


def _fault(file):
    "What is wrong with an image, '' if nothing is."
    try:
        with open_photo(file) as image:
            image.draft('RGB', (1, 1))
            image.load()
    except Exception as error:  # Pillow's plugins raise many types
        return f'{file.name} ({error or type(error).__name__})'
    return ''


def _make_images(benchmark, listing, images, tell):
    "Make the photos small, if the set wants that, and decode every one."
    doing = 'making small' if benchmark.small else 'decoding'
    tell(f'{benchmark.name}: {doing} {len(listing.images):,} images')
    if benchmark.small:
        shrink(listing, images, benchmark.small)
    with ThreadPoolExecutor() as pool:
        faults = list(pool.map(_fault, (images / name for name in listing.images)))
    faults = [fault for fault in faults if fault]
    if faults:
        raise SpmlError(
            f'{benchmark.name}: {len(faults):,} images below {images} are missing or damaged: '
            f'{join_items(faults, 5)}. Remove the folder they are in and give the command again.'
        )


MOST_CELLS = 30_000_000  # of labels.csv; a larger table becomes labels.npz


def listing_to_csv(listing: Listing) -> str:
    """Write a `Listing` as the text of labels.csv.

    Raises:
        SpmlError: For class names that the table cannot hold.
    """
    taken = sorted(set(RESERVED) & set(listing.class_names))
    if taken:
        raise SpmlError(f'classes named {join_items(taken)} cannot be columns of labels.csv.')
    cells = np.array(['0', '', '1'], object)[listing.labels + 1]
    table = pd.DataFrame(cells, columns=listing.class_names)
    table.insert(0, 'image', listing.images)
    if listing.split is not None:
        table.insert(1, 'split', listing.split)
    if listing.groups is not None:
        table.insert(2, 'group', listing.groups)
    return table.to_csv(index=False, lineterminator='\n')


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
        with np.load(file) as arrays:
            return Listing(
                arrays['images'].tobytes().decode().split('\n'),
                arrays['labels'],
                arrays['class_names'].tolist(),
                arrays['split'].tolist() or None,
            )
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

    Raises:
        SpmlError: If something is missing or malformed.
    """
    file = folder / 'labels.npz'
    if file.is_file():
        data = assemble_dataset(name, _load_matrix(file), folder / 'images', file)
    else:
        expected = (
            f'data set {name!r} ({BENCHMARKS[name]}) is not ready; `spml data {name}` prepares it: '
        )
        data = read_folder(folder, name, expected, by_row=True)
    validation = validation or fetch.read_download_note(folder / 'ready.json').get('validation')
    if validation == 'none':
        data = replace(data, split=np.where(data.split == 'val', 'train', data.split))
    return _keep_scored(data) if name in SCORED_IF_COMPLETE else data


def _keep_scored(data):
    "Leave out images for validation and testing of which a label is unknown."
    rows = np.flatnonzero((data.split == 'train') | (data.labels != 0).all(1))
    return replace(
        data,
        images=[data.images[row] for row in rows],
        labels=data.labels[rows],
        split=data.split[rows],
        groups=data.groups and [data.groups[row] for row in rows],
    )


def _write_table(listing, folder):
    """Write the table unless it is there; one that differs, which may hold somebody's corrections,
    is never overwritten.
    """
    is_large = listing.labels.size > MOST_CELLS
    file = folder / ('labels.npz' if is_large else 'labels.csv')
    if not file.exists():
        save_matrix = partial(_save_matrix, listing=listing)
        write_atomically(file, save_matrix if is_large else listing_to_csv(listing))
    elif not _same_table(file, listing):
        raise SpmlError(
            f'{file} differs from the official labels and is not overwritten. Move it away; if the '
            'changes are yours, move the folder away to train on it as your own.'
        )


def _same_table(file, listing):
    if file.suffix == '.csv':
        return file.read_text(encoding='utf-8', errors='replace') == listing_to_csv(listing)
    return hash_listing(_load_matrix(file)) == hash_listing(listing)


def benchmark_folder(name: str, root: Path | None = None) -> Path:
    "Where a benchmark lies or will lie: below `root`, the setting `data` if that is unset."
    return (
        settings.path('data') if root is None else first_existing_folder(candidate_folders(root))
    ) / name


def _as_benchmark(name):
    return name if isinstance(name, Benchmark) else find(name)


def _is_unpacked(archive, base):
    place = base / archive.place
    if not fetch.is_archive(archive.file):
        return (place / archive.file).is_file()
    return place.is_dir() and any(place.iterdir())


def _absent(benchmark, folder):
    "Archives that are needed and not unpacked."
    base = benchmark.unpacked(folder)
    return [
        archive
        for archive in benchmark.archives
        if not archive.optional and not _is_unpacked(archive, base)
    ]


def check(name: str | Benchmark, root: Path | None = None) -> list[str]:
    """Find what a benchmark lacks.

    Args:
        name: One of `names()`, or a Benchmark.
        root: The folder of data sets; the setting `data` if unset.

    Returns:
        Sentences, none if it is ready.
    """
    benchmark = _as_benchmark(name)
    folder = benchmark_folder(benchmark.name, root)
    ready = fetch.read_download_note(folder / 'ready.json')
    missing = []
    if not (ready and benchmark.small):
        missing += [_missing(archive, folder) for archive in _absent(benchmark, folder)]
    if not ready:
        missing.append(f'{folder} has not been verified: give `spml data {benchmark.name}`.')
    if missing:
        return missing
    try:
        fingerprint = table(benchmark.name, folder).fingerprint
    except SpmlError as error:
        return [str(error)]
    if fingerprint == ready.get('fingerprint'):
        return []
    return [
        f'images or table in {folder} have changed since they were verified. Give `spml data '
        f'{benchmark.name}`.'
    ]


def _missing(archive, folder):
    file = folder / 'downloads' / archive.file
    size = f' ({fetch.format_bytes(archive.bytes)})' if archive.bytes else ''
    if file.is_file():
        return f'{archive.file} is there, but not unpacked.'
    if arrived := fetch.file_size(file.with_name(file.name + '.part')):
        return f'{archive.file}{size} is half there: {fetch.format_bytes(arrived)}.'
    remedy = f'from {archive.urls[0]}' if archive.urls else f'put it into {file.parent}'
    return f'{archive.file}{size} is not there; {remedy}.'


def _refuse_early(benchmark, folder, tell):
    """Before gigabytes are fetched: files that only a person can bring, what somebody made, and the
    terms of use.
    """
    absent = _absent(benchmark, folder)
    by_hand = [
        archive.file
        for archive in absent
        if not archive.urls and not (folder / 'downloads' / archive.file).is_file()
    ]
    if by_hand:
        raise SpmlError(
            f'{benchmark.name}: {join_items(by_hand)} must be brought by hand. '
            f'{benchmark.help(folder)}'
        )
    ours = [folder / 'labels.csv']
    if benchmark.small and not benchmark.unpacked(folder).is_dir():
        ours.append(folder / 'images')
    foreign = [file for file in ours if file.exists()]
    if foreign and absent and not (folder / 'ready.json').exists():
        raise SpmlError(
            f'{foreign[0]} was not written by this command, and it is not overwritten. Use it '
            f'as it is, or move {folder} away.'
        )
    sources = dict.fromkeys(archive.urls[0].rsplit('/', 1)[0] for archive in absent if archive.urls)
    if sources:
        tell(f'{benchmark.name}: from {join_items(sources)}')
    if absent and benchmark.licence:
        tell(f'{benchmark.name}: terms of use: {benchmark.licence}')


def _bring(archive, benchmark, folder, mirror, tell):
    "One archive from its address to where it is unpacked."
    base = benchmark.unpacked(folder)
    if _is_unpacked(archive, base):
        return
    file = folder / 'downloads' / archive.file
    if archive.optional and not archive.urls and not file.is_file():
        return
    place = base / archive.place
    packed = fetch.is_archive(archive.file)
    if not (packed or benchmark.small or file.is_file()):
        file = place / archive.file
    official = fetch.list_addresses(archive.urls, f'{benchmark.name}/{archive.file}', mirror)
    try:
        fetch.download(
            [*_nearby(archive, folder), *official],
            file,
            md5=archive.md5,
            sha256=archive.sha256,
            bytes=archive.bytes,
            tell=tell,
        )
    except SpmlError as error:
        raise SpmlError(f'{error} {benchmark.help(folder)}'.rstrip()) from error.__cause__
    try:
        if packed:
            fetch.unpack_archive(file, place, tell)
        elif place != file.parent:
            write_atomically(place / file.name, lambda target: shutil.copyfile(file, target))
    except fetch.DamagedArchive as error:
        raise SpmlError(
            f'{error}. It is kept as {fetch.set_aside_download(file).name}; give the command again '
            'to fetch it anew.'
        ) from error


def _nearby(archive, folder):
    """Addresses of the same archive in other data sets' folders, where a checksum tells that it is
    the same.
    """
    return [
        other.resolve().as_uri()
        for other in sorted(folder.parent.glob(f'*/downloads/{archive.file}'))
        if other.parents[1] != folder
        and fetch.matches_checksum(other, md5=archive.md5, sha256=archive.sha256)
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
        mirror: As in `fetch.list_addresses`.
        tell: Takes lines of progress.

    Returns:
        Its folder.

    Raises:
        SpmlError: For whatever is missing, damaged, or not as the protocol says.
    """
    benchmark = _as_benchmark(name)
    folder = benchmark_folder(benchmark.name, root)
    with hold_lock(folder, tell):
        if not check(benchmark, folder.parent):
            tell(f'{benchmark.name} is ready: {folder}')
            return folder
        _refuse_early(benchmark, folder, tell)
        for archive in benchmark.archives:
            _bring(archive, benchmark, folder, mirror, tell)
        tell(f'{benchmark.name}: reading the official files')
        base = benchmark.unpacked(folder)
        listing = benchmark.read(base)
        verify_listing(benchmark, listing, base)
        _make_images(benchmark, listing, folder / 'images', tell)
        _write_table(listing, folder)
        if listing.groups is not None:
            groups = pd.DataFrame({'image': listing.images, 'group': listing.groups})
            write_atomically(folder / 'groups.csv', groups.to_csv(index=False))
        data = table(benchmark.name, folder, benchmark.validation)
        marks = {
            archive.file: base / archive.place / fetch.UNPACKED_MARK
            for archive in benchmark.archives
        }
        note = {
            'name': benchmark.name,
            'version': benchmark.version,
            'validation': benchmark.validation,
            'fingerprint': data.fingerprint,
            **_counts(listing),
            'archives': {
                file: fetch.read_download_note(mark).get('sha256') for file, mark in marks.items()
            },
        }
        write_atomically(folder / 'ready.json', json.dumps(note, indent=1))
        if benchmark.small:
            shutil.rmtree(base)
        tell(f'{data!r}\nready: {folder}')
    return folder


def overview(root: Path | None = None) -> str:
    "List all benchmarks, a line each: name, title, size of the download, and whether it is ready."
    rows = []
    for benchmark in map(find, BENCHMARKS):
        size = sum(archive.bytes or 0 for archive in benchmark.archives)
        sources = [fetch.format_bytes(size)] if size else []
        if any(not archive.urls and not archive.optional for archive in benchmark.archives):
            sources.append('by hand')
        ready = (benchmark_folder(benchmark.name, root) / 'ready.json').is_file()
        rows.append(
            {
                'name': benchmark.name,
                'title': BENCHMARKS[benchmark.name],
                'download': ', '.join(sources),
                'state': 'ready' if ready else 'not there',
            }
        )
    table = pd.DataFrame(rows)
    padded = table.apply(lambda cells: cells.str.ljust(cells.str.len().max()))
    return '\n'.join('  '.join(row).rstrip() for row in padded.to_numpy())
