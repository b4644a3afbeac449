"""Check everything that a run needs, and report problems with their remedies."""

# Works offline. A check is a function that yields findings; add new ones to `CHECKS`.

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from packaging.requirements import Requirement

from ..base import settings
from ..base.errors import SpmlError
from ..runs.folder import installed_version
from . import cleanup


class Finding(NamedTuple):
    """A result of a check.

    Attributes:
        state: 'ok', 'warning' (works for now, but perhaps slowly) or 'problem'.
        found: in words.
        do: the remedy, '' if none is needed.
    """

    state: str
    found: str
    do: str = ''


def check_installation(*, quick: bool = False) -> pd.DataFrame:
    """Run all checks.

    Args:
        quick: only those that do not import torch.

    Returns:
        DataFrame, one row per finding: check (name), and the attributes of `Finding`.
    """
    names = [name for name in CHECKS if not (quick and name in SLOW)]
    rows = [(name, *finding) for name in names for finding in _findings(CHECKS[name])]
    return pd.DataFrame(rows, columns=['check', *Finding._fields])


def _findings(function: Callable[[], Iterable[Finding]]) -> list[Finding]:
    try:
        return list(function())
    except SpmlError as error:
        return [Finding('problem', str(error))]
    except Exception as error:
        return [Finding('problem', f'the check itself failed: {type(error).__name__}: {error}')]


def format_findings(table: pd.DataFrame) -> str:
    """The table of `check_installation` as text, with the number of each state in the last line."""
    width = max(map(len, table.check), default=0)
    lines = []
    for row in table.itertuples():
        lines.append(f'{row.state:8} {row.check:{width}}  {row.found}')
        if row.do:
            lines.append(f'{"":{width + 10}} → {row.do}')
    counts = table.state.value_counts()
    total = [f'{counts.get(state, 0)} {state}' for state in ('ok', 'warning', 'problem')]
    return '\n'.join([*lines, ', '.join(total)])


def _python() -> Iterator[Finding]:
    yield Finding('ok', sys.version.split()[0])


_NEEDED_EXTRAS = ('', 'train', 'report')  # by the command line; others are optional


def _packages() -> Iterator[Finding]:
    "Compare installed packages with the requirements in the metadata of spml_nb."
    fitting, optional = [], []
    for package in map(Requirement, dict.fromkeys(requires('spml_nb') or [])):
        name, allowed, marker = package.name, package.specifier, package.marker
        have = installed_version(name)
        needed = not marker or any(marker.evaluate({'extra': extra}) for extra in _NEEDED_EXTRAS)
        if have and allowed.contains(have, prereleases=True):
            fitting.append(f'{name} {have}')
        elif have:
            yield Finding(
                'problem' if needed else 'warning',
                f'{name} {have}, but {allowed} is needed',
                f"Run `pip install '{name}{allowed}'`.",
            )
        elif needed:
            yield Finding('problem', f'{name} not installed', f'Run `pip install {name}`.')
        else:
            extra = str(marker).partition('extra == ')[2]
            optional.append(f'{name} ({extra})')
    yield Finding('ok', ', '.join(fitting))
    if optional:
        yield Finding('ok', f"not installed, and optional (with its extra): {', '.join(optional)}")


def _kernel() -> Iterator[Finding]:
    if find_spec('jupyter_client') is None:
        return
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        program = KernelSpecManager().get_kernel_spec('python3').argv[0]
    except NoSuchKernel:
        program = 'not there'
    program = shutil.which(program) or program
    if Path(program).parent.resolve() == Path(sys.executable).parent.resolve():
        yield Finding('ok', program)
    else:
        yield Finding(
            'warning',
            f'the kernel python3 of notebooks is {program}, not {sys.executable}',
            f'Run `{sys.executable} -m ipykernel install --sys-prefix --name python3`.',
        )


def _torch() -> Iterator[Finding]:
    "Call an operator of torchvision, which fails if torch is another build."
    import torch
    import torchvision

    torch.ops.torchvision.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([1.0]), 0.5)
    yield Finding(
        'ok',
        f'{torch.__version__} and torchvision {torchvision.__version__} work together, with '
        f'{torch.get_num_threads()} threads; runs train on {settings.choose_device()}',
    )


def _gpu() -> Iterator[Finding]:
    import torch
    from torch.utils import collect_env

    driver = collect_env.get_nvidia_driver_version(collect_env.run)
    if torch.cuda.is_available():
        for k in range(torch.cuda.device_count()):
            free, total = (size / 2**30 for size in torch.cuda.mem_get_info(k))
            memory = f'{torch.cuda.get_device_name(k)}: {free:.1f} of {total:.1f} GiB free'
            if free > 2:
                yield Finding('ok', memory)
            else:
                remedy = 'Another process holds its memory: `nvidia-smi` names it.'
                yield Finding('warning', memory, remedy)
    elif driver is None:
        yield Finding('ok', 'none; runs train on the CPU')
    else:
        yield Finding(
            'warning',
            f'there is one, but torch (CUDA {torch.version.cuda}) cannot use it with the driver '
            f'{driver}',
            'Install torch with CUDA, as its web page says, or update the driver. Unset '
            'CUDA_VISIBLE_DEVICES if it hides the GPU.',
        )


def _settings() -> Iterator[Finding]:
    file = settings.find_settings_file()
    if file:
        yield Finding('ok', str(file))
    else:
        yield Finding(
            'warning',
            f'no settings.ini at or above {Path.cwd()}: the built-in settings hold',
            'Start in the folder of the project, or set SPML_NB_SETTINGS.',
        )
    settings.read_settings()


_MIN_FREE_GIB = 5


def _folders() -> Iterator[Finding]:
    "Check the folders of the settings, or the nearest existing parent of a missing one."
    for kind in settings.PATHS:
        path = settings.get_folder(kind)
        existing = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
        remedy = f'Choose another folder in settings.ini or SPML_NB_{kind.upper()}.'
        try:
            with tempfile.TemporaryFile(dir=existing):
                free = shutil.disk_usage(existing).free / 2**30
        except OSError as error:
            yield Finding(
                'warning' if kind == 'data' else 'problem',  # data may be read-only
                f'{kind}: {existing} cannot be written ({error.strerror})',
                remedy,
            )
            continue
        found = f'{kind}: {path}, {free:.1f} GiB free'
        if free >= _MIN_FREE_GIB:
            yield Finding('ok', found)
        else:
            yield Finding('warning', found, remedy)


def _data_sets() -> Iterator[Finding]:
    from spml_nb.data import official

    root = settings.get_folder('data')
    missing = {
        name: official.list_missing_files(name, root)
        for name in official.BENCHMARKS
        if (root / name / 'ready.json').is_file()
    }
    ready = ', '.join(name for name, files in missing.items() if not files)
    yield Finding('ok', f"{ready or 'none prepared'}; the miniatures need no files")
    for name, files in missing.items():
        if files:
            yield Finding('problem', f"{name}: {' '.join(files)}", f'Run `spml data {name}`.')


def _weights() -> Iterator[Finding]:
    "Load the models of the package, which checks the weights of their backbones."
    from spml_nb.use import export

    names = export.shipped_models()
    for name in names:
        export.load_network(name)
    yield Finding('ok', f"{', '.join(names)} and the weights of their backbone are as published")


def _runs() -> Iterator[Finding]:
    counts = cleanup.list_runs().state.value_counts()
    states = ', '.join(f'{count} {state}' for state, count in counts.items())
    found = f"{states or 'none'} in {settings.get_folder('runs')}"
    if 'damaged' not in counts:
        yield Finding('ok', found)
    else:
        yield Finding(
            'warning',
            found,
            '`spml runs --state damaged` says why; with `--remove --yes` it removes them. Then '
            'train them anew.',
        )


CHECKS = {
    'python': _python,
    'packages': _packages,
    'kernel': _kernel,
    'torch': _torch,
    'GPU': _gpu,
    'settings': _settings,
    'folders': _folders,
    'data sets': _data_sets,
    'weights': _weights,
    'runs': _runs,
}
SLOW = {'torch', 'GPU', 'data sets', 'weights'}  # these load torch
