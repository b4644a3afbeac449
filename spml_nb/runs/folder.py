"""The folder of a run: configuration, curves, checkpoints, result, and at the very end DONE."""

# A process may be killed at any moment, and the disk may fill up. So files are written atomically,
# and only `DONE` means that a run is finished: with a result or, in a sweep, diverged.

import contextlib
import hashlib
import json
import os
import platform
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from glob import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pandas as pd

from ..base import settings
from ..base.commit import find_commit
from ..base.errors import SpmlError
from ..base.escaping import escape_bytes
from ..base.files import hold_lock, remove_leftovers, require_regular_file, write_atomically
from .config import Config, complete_fields, config_hash, config_to_dict, fingerprint_folder

CALIBRATION = 'calibration.json'
WITHOUT_WEIGHTS = 'without_weights'  # marks a run that was trained elsewhere and unpacked here


class Run:
    """The folder of a run.

    Its files are `config.json`, `metrics.csv`, `last.pt` (a checkpoint), `best.pt`, `logits.npz`,
    `result.json`, `DONE`, and if its threshold was calibrated `calibration.json`.

    Args:
        config: resolved.
        root: the folder of runs; unset: the setting `runs`.
    """

    def __init__(self, config: Config, root: Path | None = None):
        self.config = config
        root = root or settings.get_folder('runs')
        self.folder = root / f'{config.loss}-{Path(config.dataset).name}-{config_hash(config)}'

    @property
    def done(self) -> bool:
        return (self.folder / 'DONE').is_file()

    def result(self) -> dict:
        """The content of `result.json`.

        Raises:
            SpmlError: if the run is not done or has diverged, or the file is damaged.
        """
        if not self.done:
            raise SpmlError(
                f'{self.folder} has no DONE: the run is not finished. Run the same command again '
                'to resume it.'
            )
        result = read_json(self.folder / 'result.json', ('scores',))
        if 'diverged' in result:
            raise SpmlError(
                f"{self.folder} has no result: {result['diverged']} Remove that folder to try "
                "again."
            )
        return result

    def fingerprint(self) -> str | None:
        """The fingerprint of the photos and labels that the run was trained on; None if unknown.

        Raises:
            SpmlError: if the run is done, but its result is damaged.
        """
        if self.done:
            return read_json(self.folder / 'result.json').get('data')
        with contextlib.suppress(SpmlError):  # a damaged checkpoint is reported on resuming
            return (self.restore('last.pt') or {}).get('data')
        return None

    def calibration(self) -> dict | None:
        """The content of `calibration.json`; None if the threshold was not calibrated.

        Raises:
            SpmlError: if the file is damaged.
        """
        file = self.folder / CALIBRATION
        if not file.is_file():
            return None
        try:
            stored = json.loads(file.read_text(encoding='utf-8'))
            for threshold in (stored['threshold'], *(stored.get('class_thresholds') or ())):
                if not 0 <= threshold <= 1:
                    raise ValueError(f'threshold {threshold}')
            return stored
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SpmlError(
                f'{file} is damaged ({type(error).__name__}: {error}). Remove it to go back to the '
                'threshold from training; then `spml calibrate` can set another.',
            ) from error

    def threshold(self) -> float:
        """The threshold on the probability: calibrated, else from training.

        Raises:
            SpmlError: as `result` and `calibration`.
        """
        calibration = self.calibration()
        source = self.result()['scores'] if calibration is None else calibration
        return float(source['threshold'])

    def thresholds(self) -> dict:
        """Details of the photos that set the threshold: for calibration, else of validation.

        Returns:
            `class_thresholds`: C numbers. `named`: mean number of labels that the threshold
            predicts on a photo. `labels`: mean number of its true labels. Each may be None if
            unknown.
        """
        calibration = self.calibration()
        if calibration is None:
            stored = self.result().get('thresholds', {})
        else:
            stored = calibration | {'labels': calibration.get('labels_a_photo')}
        return {name: stored.get(name) for name in ('class_thresholds', 'named', 'labels')}

    def start(self):
        """Write the configuration, and remove temporary files of killed processes. The caller holds
        the lock.
        """
        remove_leftovers(self.folder, 0)
        write_atomically(self.folder / 'config.json', format_json(config_to_dict(self.config)))

    def finish(self, result: dict):
        """Write the result, with seeds and device added, and then DONE.

        Args:
            result: scores, class_names, seconds, data, provenance.

        Raises:
            SpmlError: if the disk is full.
        """
        seeds = {'seed': self.config.seed, 'label_seed': self.config.label_seed}
        result = {**result, 'seeds': seeds, 'device': self.config.device}
        write_atomically(self.folder / 'result.json', format_json(result))
        write_atomically(self.folder / 'DONE', '')

    def save(self, name: str, state: dict):
        """Write a checkpoint: nested dicts and lists of tensors, numbers and strings.

        Raises:
            SpmlError: if the disk is full.
        """
        import torch

        def write(file):
            try:
                torch.save(state, file)
            except RuntimeError as error:
                if 'PytorchStreamWriter' not in str(error) and 'inline_container' not in str(error):
                    raise
                raise OSError(f'the disk is full or refuses ({error})') from error

        write_atomically(self.folder / name, write)

    def restore(self, name: str) -> dict | None:
        """Read a checkpoint, without executing code that it may contain.

        Returns:
            As passed to `save`, on the CPU; None if there is no such file.

        Raises:
            SpmlError: if the file is damaged.
        """
        import torch

        file = self.folder / name
        if not file.is_file():
            return None

        def load(file):
            with zipfile.ZipFile(file) as archive:
                damaged = archive.testzip()  # torch.load does not look at the checksums
            if damaged is not None:
                raise zipfile.BadZipFile(f'wrong checksum of {damaged}')
            return torch.load(file, map_location='cpu', weights_only=True)

        return _read(file, load)

    def best(self, name: str = 'best.pt') -> dict:
        """The weights of the best epoch.

        Returns:
            dict of 'network' and 'method' (state dicts) and 'best' (value, stage, epoch, weights).

        Raises:
            SpmlError: if the file is missing or damaged.
        """
        best = self.restore(name)
        if best is None:
            raise SpmlError(
                f'{self.folder / name} is missing. Remove {self.folder} to train from the start.'
            )
        return best

    def lock(self):
        """A context manager that locks the folder; it waits for another process that trains the
        same run. The lock file is beside the folder, which need not exist.

        Raises:
            SpmlError: if the lock file cannot be written.
        """
        return hold_lock(self.folder)


def _read(file: Path, read: Callable):
    try:
        return read(require_regular_file(file))
    except Exception as error:  # readers raise a dozen different types for damaged files
        raise SpmlError(
            f'{file} cannot be read ({type(error).__name__}: {error}). Remove {file.parent} to '
            'train from the start.'
        ) from error


def format_json(content: dict) -> str:
    """Indented JSON, with bytes that are not UTF-8 (of file names) escaped."""
    return escape_bytes(json.dumps(content, indent=1, ensure_ascii=False))


def read_json(file: Path, needed: tuple[str, ...] = ()) -> dict:
    """Read a JSON file that holds an object.

    Args:
        file: its path.
        needed: names that the object must have.

    Raises:
        SpmlError: if the file is missing or damaged, or lacks a name.
    """
    try:
        content = json.loads(require_regular_file(Path(file)).read_text(encoding='utf-8'))
        if not isinstance(content, dict) or set(needed) - set(content):
            raise ValueError(f"no object with {', '.join(needed)}".removesuffix(' with '))
        return content
    # RecursionError: thousands of nested brackets
    except (OSError, ValueError, RecursionError) as error:
        raise SpmlError(
            f'{file} cannot be read: {error}. Remove its folder and run the command again.'
        ) from error


def locate_run(config: Config, root: Path | None = None, data: str = '') -> Run:
    """Find the run of a configuration on the current content of its folder of photos.

    The usual name of a run does not depend on that content. If a run on other photos, labels or
    split has the name already, it keeps it, and the fingerprint of the current content is appended
    to the name of the new run.

    Args:
        config: resolved.
        root: the folder of runs; unset: the setting `runs`.
        data: fingerprint of the current content; unset: computed if it is needed.

    Returns:
        The run, begun or not.

    Raises:
        SpmlError: if the folder of photos cannot be read, or a finished run is damaged.
    """
    from ..data.loading import names

    run = Run(config, root)
    same_name = run.folder.parent.glob(f'{escape(run.folder.name)}*')
    if config.dataset in names() or not any(map(Path.is_dir, same_name)):
        return run  # without reading the photos
    data = data or fingerprint_folder(config)
    with_data = run.folder.with_name(f'{run.folder.name}-{data[:6]}')
    if with_data.is_dir() or run.fingerprint() not in (None, data):
        run.folder = with_data
    return run


def open_run(folder: str | Path) -> Run:
    """Find a run by its folder.

    Args:
        folder: a name in the setting `runs`, or a path.

    Returns:
        The run, finished or not.

    Raises:
        SpmlError: if there is no such run.
    """
    paths = list(dict.fromkeys([settings.get_folder('runs') / folder, Path(folder).resolve()]))
    path = next((path for path in paths if (path / 'config.json').is_file()), None)
    if path is None:
        raise SpmlError(
            f"no run {str(folder)!r}: looked for config.json in {' and '.join(map(str, paths))}. "
            '`spml runs` lists the runs here. coco18, mirflickr14 and voc12_animals, which come '
            'with the package, are no runs: `spml predict`, `serve` and `evaluate` take them.'
        )
    fields = complete_fields(read_json(path / 'config.json', ('dataset',)))
    run = Run(Config(**fields), path.resolve().parent)
    run.folder = path.resolve()  # a copy may have another name
    return run


@dataclass(frozen=True)
class Result:
    """A finished run.

    Args:
        config: resolved.
        folder: of the run.
        scores: as from `spml_nb.training.selection.score_finished_run`.
        curves: one row per epoch: stage, epoch, loss, val_map (percent), val_auc (percent, if it
            selects the epoch), lr (after its last step), seconds.
        logits: {'val', 'test': (N, C) float32}.
    """

    config: Config
    folder: Path
    scores: dict
    curves: pd.DataFrame
    logits: dict[str, np.ndarray]


def read_result(run: Run) -> Result:
    """The result of a finished run.

    Raises:
        SpmlError: if the run is not done, or one of its files is damaged.
    """
    scores = run.result()['scores']
    curves = _read(run.folder / 'metrics.csv', pd.read_csv)
    logits = _read(run.folder / 'logits.npz', lambda file: dict(np.load(file)))
    return Result(run.config, run.folder, scores, curves, logits)


_PACKAGES = ('torch', 'torchvision', 'timm', 'numpy', 'scikit-learn', 'spml_nb')


def installed_version(package: str) -> str | None:
    """The version of a package by its name on PyPI; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def hash_file(file: str | Path) -> str | None:
    """The SHA-256 of a file in hexadecimal digits; None if there is no such file."""
    file = settings.expand_home(file)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def provenance() -> dict:
    """Commit, versions and machine; None for what is unknown."""
    import torch

    return {
        'commit': find_commit(),
        'versions': {package: installed_version(package) for package in _PACKAGES},
        'python': sys.version.split()[0],
        'machine': platform.machine(),
        'system': platform.system(),
        'threads': torch.get_num_threads(),
        'processes': int(os.environ.get('WORLD_SIZE', 1)),
        'instructions': torch.backends.cpu.get_cpu_capability(),
        'cuda': torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        'cuda_version': torch.version.cuda,
    }


def add_session(sessions: list[dict]) -> list[dict]:
    """Append the torch version and number of threads of this process, on which the last digits of a
    run depend, to those of the sessions before it was resumed.

    Args:
        sessions: the oldest first.

    Returns:
        `sessions`, with a new entry unless it equals the last one.
    """
    import torch

    now = {'torch': str(torch.__version__), 'threads': torch.get_num_threads()}
    return sessions if sessions[-1:] == [now] else [*sessions, now]
