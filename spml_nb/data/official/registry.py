"""The benchmarks, and how one is prepared: download, unpack, read, verify, write the table."""

import hashlib
import json
import shutil
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from ...base.errors import SpmlError, require_one_of
from ...base.files import hold_lock, write_atomically
from .. import fetch
from ..dataset import Dataset, join_items
from ..decoding import open_photo
from ..folder import LABEL_CELLS, RESERVED, Listing, assemble_dataset, read_folder
from . import attributes, coco, cub, l48, nus, single_label, small_photos, voc
from .files import ASSETS, benchmark_folder
from .shrink import Small, shrink_images

_PUBLISHED = tomllib.loads((ASSETS / 'benchmarks.toml').read_text(encoding='utf-8'))
BENCHMARKS = {name: entry['title'] for name, entry in _PUBLISHED.items()}
# sets in which classes that are not listed are unknown, not absent
PARTLY_KNOWN = [name for name, entry in _PUBLISHED.items() if entry.get('partly_known')]
# sets of which only images with complete labels are used for validation and testing
_SCORED_IF_COMPLETE = [
    name for name, entry in _PUBLISHED.items() if entry.get('scored_if_complete')
]
# default label settings other than 'single'
DEFAULT_LABELS = {name: entry['labels'] for name, entry in _PUBLISHED.items() if 'labels' in entry}
# default keys of `spml_nb.runs.config.VIEW_SETS` of sets whose photos must not be mirrored
DEFAULT_VIEWS = {name: entry['views'] for name, entry in _PUBLISHED.items() if 'views' in entry}


@dataclass(frozen=True)
class Archive:
    """A file of a benchmark, unpacked to (or, if it is not an archive, copied into) a folder.

    Args:
        file: Its name in downloads/.
        urls: Official addresses; none if it must be downloaded by hand.
        folder: The folder below `Benchmark.unpacked`; by default the name before its first dot.
        bytes: Approximate size.
        md5, sha256: Published checksums, if any.
        optional: Whether it may be missing.
    """

    file: str
    urls: Sequence[str] = ()
    folder: str = ''
    bytes: int | None = None
    md5: str | None = None
    sha256: str | None = None
    optional: bool = False

    @property
    def subfolder(self) -> str:
        "The folder below `Benchmark.unpacked`."
        return self.folder or self.file.split('.')[0]


@dataclass(frozen=True)
class Benchmark:
    """A data set of the papers, as described in assets/benchmarks.toml.

    Args:
        name: A key of `BENCHMARKS`.
        read: Function from the folder of unpacked archives to a `Listing`.
        counts: Expected numbers: any of 'images', 'train' (with validation rows), 'test',
            'classes'.
        validation: 'drawn' (20 % of the training rows), 'listed' (as the authors chose) or 'none'.
        version: Which version, if several are in use.
        instructions: How to get files that must be downloaded by hand.
        small: Size to which photos are reduced; by default they are not.
        digest: Expected value of `hash_listing`, if published.
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

    def help(self, folder: Path) -> str:
        "The instructions, with paths below the set's folder filled in."
        places = {'downloads': folder / 'downloads', 'images': folder / 'images'}
        return self.instructions.format(version=self.version, **(self.counts | places))

    def unpacked(self, folder: Path) -> Path:
        "The folder in which archives are unpacked."
        return folder / ('originals' if self.small else 'images')


READER_MODULES = (attributes, coco, cub, l48, nus, single_label, small_photos, voc)
_READERS = {name: read for module in READER_MODULES for name, read in module.READERS.items()}
# what an entry of benchmarks.toml has beyond the fields of `Benchmark`
_BESIDE = ('title', 'like', 'partly_known', 'scored_if_complete', 'labels', 'views')


def _make_benchmark(name):
    "Make a `Benchmark` from its entry in benchmarks.toml."
    entry = _PUBLISHED[name]
    fields = _PUBLISHED.get(entry.get('like'), {}) | entry
    fields = {key: value for key, value in fields.items() if key not in _BESIDE}
    fields['archives'] = tuple(Archive(**archive) for archive in fields['archives'])
    if 'small' in fields:
        fields['small'] = Small(**fields['small'])
    return Benchmark(name, _READERS[name], **fields)


REGISTRY = {name: _make_benchmark(name) for name in BENCHMARKS}


def find_benchmark(name: str) -> Benchmark:
    """Find a benchmark by name.

    Raises:
        SpmlError: For an unknown name.
    """
    require_one_of(name, BENCHMARKS, 'benchmark', '`spml data` lists them.')
    return REGISTRY[name]


def hash_listing(listing: Listing) -> str:
    "SHA-256 (64 hex digits) of image names, classes, split and labels."
    text = json.dumps([listing.images, listing.class_names, listing.split])
    return hashlib.sha256(text.encode() + listing.labels.tobytes()).hexdigest()


_COUNTED = {'train': 'training images', 'test': 'test images'}


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
    """Compare a listing with the published counts and checksum.

    Args:
        images: The folder that was read, for the message.

    Raises:
        SpmlError: If they differ, or images are listed twice.
    """
    counts = _counts(listing)
    wrong = [
        f'{counts[what]:,} {_COUNTED.get(what, what)} (expected {count:,})'
        for what, count in benchmark.counts.items()
        if counts[what] != count
    ]
    n_different = len(set(listing.images))
    if n_different != len(listing.images):
        wrong.append(f'only {n_different:,} different images among these')
    if not wrong and benchmark.digest and hash_listing(listing) != benchmark.digest:
        wrong.append('names, labels or split that differ from the published ones')
    if wrong:
        raise SpmlError(
            f'{benchmark.name}: {images} has {"; ".join(wrong)}. These are not the official files, '
            'or not all of them: remove what differs and give the command again.'
        )


def _find_fault(file):
    "Why an image cannot be decoded; '' if it can."
    try:
        with open_photo(file) as image:
            image.draft('RGB', (1, 1))
            image.load()
    except Exception as error:  # Pillow's plugins raise many types
        return f'{file.name} ({error or type(error).__name__})'
    return ''


def _make_images(benchmark, listing, images, tell):
    "Reduce the photos if the benchmark requires it, and check that each can be decoded."
    doing = 'making small' if benchmark.small else 'decoding'
    tell(f'{benchmark.name}: {doing} {len(listing.images):,} images')
    if benchmark.small:
        shrink_images(listing, images, benchmark.small)
    photos = [images / name for name in listing.images]
    with ThreadPoolExecutor() as pool:
        faults = list(filter(None, pool.map(_find_fault, photos)))
    if faults:
        raise SpmlError(
            f'{benchmark.name}: {len(faults):,} images below {images} are missing or damaged: '
            f'{join_items(faults, 5)}. Remove the folder they are in and give the command again.'
        )


MOST_CELLS = 30_000_000  # of labels.csv; a larger table is written to labels.npz


def listing_to_csv(listing: Listing) -> str:
    """Write a `Listing` as the text of labels.csv.

    Raises:
        SpmlError: For class names that the table cannot hold.
    """
    taken = sorted(set(RESERVED) & set(listing.class_names))
    if taken:
        raise SpmlError(f'classes named {join_items(taken)} cannot be columns of labels.csv.')
    table = pd.DataFrame(LABEL_CELLS[listing.labels], columns=listing.class_names)
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


def load_benchmark(name: str, folder: Path, validation: str | None = None) -> Dataset:
    """Read the table of a benchmark that has been prepared.

    Args:
        name: A key of `BENCHMARKS`.
        folder: With images/ and labels.csv or labels.npz.
        validation: As in `Benchmark`; by default as in ready.json.

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
    validation = validation or fetch.read_json_note(folder / 'ready.json').get('validation')
    if validation == 'none':
        data = replace(data, split=np.where(data.split == 'val', 'train', data.split))
    return _keep_scored(data) if name in _SCORED_IF_COMPLETE else data


def _keep_scored(data):
    "Leave out validation and test images with unknown labels."
    rows = np.flatnonzero((data.split == 'train') | (data.labels != 0).all(1))
    return replace(
        data,
        images=[data.images[row] for row in rows],
        labels=data.labels[rows],
        split=data.split[rows],
        groups=data.groups and [data.groups[row] for row in rows],
    )


def _write_table(listing, folder):
    """Write the table unless it exists.

    Raises:
        SpmlError: If it exists and differs, because it may contain corrections by the user.
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


def _as_benchmark(name):
    return name if isinstance(name, Benchmark) else find_benchmark(name)


def _is_unpacked(archive, base):
    target = base / archive.subfolder
    if not fetch.is_archive(archive.file):
        return (target / archive.file).is_file()
    return target.is_dir() and any(target.iterdir())


def _missing_archives(benchmark, folder):
    "Required archives that are not unpacked."
    base = benchmark.unpacked(folder)
    return [
        archive
        for archive in benchmark.archives
        if not archive.optional and not _is_unpacked(archive, base)
    ]


def list_missing_files(name: str | Benchmark, root: Path | None = None) -> list[str]:
    """List what a benchmark lacks to be ready.

    Args:
        name: A key of `BENCHMARKS`, or a Benchmark.
        root: Folder of the benchmarks; by default the setting `data`.

    Returns:
        Sentences; none if it is ready.
    """
    benchmark = _as_benchmark(name)
    folder = benchmark_folder(benchmark.name, root)
    ready = fetch.read_json_note(folder / 'ready.json')
    missing = []
    if not (ready and benchmark.small):
        archives = _missing_archives(benchmark, folder)
        missing += [_describe_missing(archive, folder) for archive in archives]
    if not ready:
        missing.append(f'{folder} has not been verified: give `spml data {benchmark.name}`.')
    if missing:
        return missing
    try:
        fingerprint = load_benchmark(benchmark.name, folder).fingerprint
    except SpmlError as error:
        return [str(error)]
    if fingerprint == ready.get('fingerprint'):
        return []
    return [
        f'images or table in {folder} have changed since they were verified. Give `spml data '
        f'{benchmark.name}`.'
    ]


def _describe_missing(archive, folder):
    file = folder / 'downloads' / archive.file
    size = f' ({fetch.format_bytes(archive.bytes)})' if archive.bytes else ''
    if file.is_file():
        return f'{archive.file} is downloaded, but not unpacked.'
    if arrived := fetch.file_size(file.with_name(file.name + '.part')):
        return f'{archive.file}{size} is downloaded in part: {fetch.format_bytes(arrived)}.'
    remedy = f'from {archive.urls[0]}' if archive.urls else f'put it into {file.parent}'
    return f'{archive.file}{size} is missing; {remedy}.'


def _check_before_download(benchmark, folder, tell):
    """Refuse what would fail after the download, and tell the sources and terms of use.

    Raises:
        SpmlError: If files must be downloaded by hand, or the folder has files of the user.
    """
    missing = _missing_archives(benchmark, folder)
    by_hand = [
        archive.file
        for archive in missing
        if not archive.urls and not (folder / 'downloads' / archive.file).is_file()
    ]
    if by_hand:
        raise SpmlError(
            f'{benchmark.name}: {join_items(by_hand)} must be brought by hand. '
            f'{benchmark.help(folder)}'
        )
    outputs = [folder / 'labels.csv']
    if benchmark.small and not benchmark.unpacked(folder).is_dir():
        outputs.append(folder / 'images')
    foreign = [file for file in outputs if file.exists()]
    if foreign and missing and not (folder / 'ready.json').exists():
        raise SpmlError(
            f'{foreign[0]} was not written by this command, and it is not overwritten. Use it '
            f'as it is, or move {folder} away.'
        )
    downloads = [archive for archive in missing if archive.urls]
    sources = dict.fromkeys(archive.urls[0].rsplit('/', 1)[0] for archive in downloads)
    if sources:
        tell(f'{benchmark.name}: from {join_items(sources)}')
    if missing and benchmark.licence:
        tell(f'{benchmark.name}: terms of use: {benchmark.licence}')


def _download_and_unpack(archive, benchmark, folder, mirror, tell):
    base = benchmark.unpacked(folder)
    if _is_unpacked(archive, base):
        return
    file = folder / 'downloads' / archive.file
    if archive.optional and not archive.urls and not file.is_file():
        return
    target = base / archive.subfolder
    is_packed = fetch.is_archive(archive.file)
    if not (is_packed or benchmark.small or file.is_file()):
        file = target / archive.file
    official = fetch.list_addresses(archive.urls, f'{benchmark.name}/{archive.file}', mirror)
    try:
        fetch.download(
            [*_addresses_on_disk(archive, folder), *official],
            file,
            md5=archive.md5,
            sha256=archive.sha256,
            bytes=archive.bytes,
            tell=tell,
        )
    except SpmlError as error:
        raise SpmlError(f'{error} {benchmark.help(folder)}'.rstrip()) from error.__cause__
    try:
        if is_packed:
            fetch.unpack_archive(file, target, tell)
        elif target != file.parent:
            write_atomically(target / file.name, lambda copy: shutil.copyfile(file, copy))
    except fetch.DamagedArchive as error:
        raise SpmlError(
            f'{error}. It is kept as {fetch.set_aside_download(file).name}; give the command again '
            'to download it again.'
        ) from error


def _addresses_on_disk(archive, folder):
    "Addresses of copies of an archive, verified by checksum, in the folders of other benchmarks."
    return [
        other.resolve().as_uri()
        for other in sorted(folder.parent.glob(f'*/downloads/{archive.file}'))
        if other.parents[1] != folder
        and fetch.matches_checksum(other, md5=archive.md5, sha256=archive.sha256)
    ]


def prepare_benchmark(
    name: str | Benchmark, root: Path | None = None, mirror: str | None = None, tell=print
) -> Path:
    """Prepare a benchmark for `spml_nb.data.load`.

    Steps that were completed before are skipped. ready.json is written last.

    Args:
        name: A key of `BENCHMARKS`, or a Benchmark.
        root: Folder of the benchmarks; by default the setting `data`.
        mirror: As in `fetch.list_addresses`.
        tell: Called with lines of progress.

    Returns:
        Its folder.

    Raises:
        SpmlError: If something is missing, damaged, or not as published.
    """
    benchmark = _as_benchmark(name)
    folder = benchmark_folder(benchmark.name, root)
    with hold_lock(folder, tell):
        if not list_missing_files(benchmark, folder.parent):
            tell(f'{benchmark.name} is ready: {folder}')
            return folder
        _check_before_download(benchmark, folder, tell)
        for archive in benchmark.archives:
            _download_and_unpack(archive, benchmark, folder, mirror, tell)
        tell(f'{benchmark.name}: reading the official files')
        base = benchmark.unpacked(folder)
        listing = benchmark.read(base)
        verify_listing(benchmark, listing, base)
        _make_images(benchmark, listing, folder / 'images', tell)
        _write_table(listing, folder)
        if listing.groups is not None:
            groups = pd.DataFrame({'image': listing.images, 'group': listing.groups})
            write_atomically(folder / 'groups.csv', groups.to_csv(index=False))
        data = load_benchmark(benchmark.name, folder, benchmark.validation)
        _mark_as_ready(benchmark, folder, listing, data)
        if benchmark.small:
            shutil.rmtree(base)
        tell(f'{data!r}\nready: {folder}')
    return folder


def _mark_as_ready(benchmark, folder, listing, data):
    base = benchmark.unpacked(folder)
    archives = {}
    for archive in benchmark.archives:
        mark = fetch.read_json_note(base / archive.subfolder / fetch.UNPACKED_MARK)
        archives[archive.file] = mark.get('sha256')
    note = {
        'name': benchmark.name,
        'version': benchmark.version,
        'validation': benchmark.validation,
        'fingerprint': data.fingerprint,
        **_counts(listing),
        'archives': archives,
    }
    write_atomically(folder / 'ready.json', json.dumps(note, indent=1))


def describe_benchmarks(root: Path | None = None) -> str:
    "Make a table of all benchmarks: name, title, size of the download, and state."
    rows = []
    for benchmark in REGISTRY.values():
        size = sum(archive.bytes or 0 for archive in benchmark.archives)
        sources = [fetch.format_bytes(size)] if size else []
        if any(not archive.urls and not archive.optional for archive in benchmark.archives):
            sources.append('by hand')
        is_ready = (benchmark_folder(benchmark.name, root) / 'ready.json').is_file()
        state = 'ready' if is_ready else 'missing'
        rows.append((benchmark.name, BENCHMARKS[benchmark.name], ', '.join(sources), state))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return '\n'.join('  '.join(row).rstrip() for row in padded)
