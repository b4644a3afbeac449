"""Checks everything that a run needs, and says what is wrong and what to do about it. It works offline."""

import os
import shutil
import sys
import tempfile
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from packaging.requirements import Requirement

from ..base import settings
from ..base.errors import SpmlError
from ..runs.folder import installed
from . import cleanup


class Finding(NamedTuple):
    """What a check found.

    Attributes:
        state: 'ok', 'warning' or 'problem'.
        found: in words.
        do: the remedy, '' where nothing is to be done.
    """

    state: str
    found: str
    do: str = ''


def check(*, quick: bool = False) -> pd.DataFrame:
    """Look at everything.

    Args:
        quick: only the checks that load no torch.

    Returns:
        DataFrame, one row per finding: check, state ('ok', 'warning', 'problem'), found, do.
    """
    names = [name for name in CHECKS if not (quick and name in SLOW)]
    rows = [(name, *finding) for name in names for finding in _findings(CHECKS[name])]
    return pd.DataFrame(rows, columns=['check', *Finding._fields])


def _findings(function) -> list[Finding]:
    try:
        return list(function())
    except SpmlError as error:
        return [Finding('problem', str(error))]  # it names the remedy
    except Exception as error:  # the other checks go on
        return [Finding('problem', f'the check itself failed: {type(error).__name__}: {error}')]


def text(table: pd.DataFrame) -> str:
    """The table for a terminal.

    Args:
        table: as from `check`.

    Returns:
        str, remedies on lines of their own, the last line a sum.
    """
    width = max(map(len, table.check), default=0)
    lines = [
        f'{row.state:8} {row.check:{width}}  {row.found}'
        + f'\n{"":{width + 10}} → {row.do}' * bool(row.do)
        for row in table.itertuples()
    ]
    counts = table.state.value_counts()
    return '\n'.join(
        [
            *lines,
            ', '.join(f'{counts.get(state, 0)} {state}' for state in ('ok', 'warning', 'problem')),
        ]
    )


def _packages():
    fitting, optional = [], []
    for one in map(Requirement, dict.fromkeys(requires('spml_nb') or [])):
        have, needed = installed(one.name), not one.marker or one.marker.evaluate({'extra': ''})
        if have and one.specifier.contains(have, prereleases=True):
            fitting.append(f'{one.name} {have}')
        elif have:
            yield Finding(
                'problem' if needed else 'warning',
                f'{one.name} {have}, but {one.specifier} is needed',
                f"Run `pip install '{one.name}{one.specifier}'`.",
            )
        elif needed:
            yield Finding('problem', f'{one.name} not installed', f'Run `pip install {one.name}`.')
        else:
            optional.append(f"{one.name} ({str(one.marker).partition('extra == ')[2]})")
    yield Finding('ok', ', '.join(fitting))
    if optional:
        yield Finding('ok', f"not installed, and optional (with its extra): {', '.join(optional)}")


def _kernel():
    if find_spec('jupyter_client') is None:
        return
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        program = KernelSpecManager().get_kernel_spec('python3').argv[0]
    except NoSuchKernel:
        program = 'not there'
    program = shutil.which(program) or program
    ours = Path(program).parent.resolve() == Path(sys.executable).parent.resolve()
    yield (
        Finding('ok', program)
        if ours
        else Finding(
            'warning',
            f'the kernel python3 of notebooks is {program}, not {sys.executable}',
            f'Run `{sys.executable} -m ipykernel install --sys-prefix --name python3`.',
        )
    )


def _torch():
    import torch
    import torchvision

    torch.ops.torchvision.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([1.0]), 0.5)
    yield Finding(
        'ok',
        f'{torch.__version__} and torchvision {torchvision.__version__} work together, with '
        f'{torch.get_num_threads()} threads; runs train on {settings.device()}',
    )


def _gpu():
    import torch
    from torch.utils import collect_env

    driver = collect_env.get_nvidia_driver_version(collect_env.run)
    if torch.cuda.is_available():
        for k in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(k)
            words = (
                f'{torch.cuda.get_device_name(k)}: {free / 2**30:.1f} of {total / 2**30:.1f} GiB '
                'free'
            )
            yield (
                Finding('ok', words)
                if free > 2 * 2**30
                else Finding(
                    'warning', words, 'Another process holds its memory: `nvidia-smi` names it.'
                )
            )
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


FREE = 5  # GiB


def _settings():
    file = settings.settings_file()
    yield (
        Finding('ok', str(file))
        if file
        else Finding(
            'warning',
            f'no settings.ini at or above {Path.cwd()}: the built-in settings hold',
            'Start in the folder of the project, or set SPML_NB_SETTINGS.',
        )
    )
    settings.read()


def _folders():
    for kind in settings.PATHS:
        path = settings.path(kind)
        place = next(each for each in (path, *path.parents) if os.path.lexists(each))
        remedy = f'Choose another folder in settings.ini or SPML_NB_{kind.upper()}.'
        try:
            with tempfile.TemporaryFile(dir=place):
                free = shutil.disk_usage(place).free / 2**30
            words = f'{kind}: {path}, {free:.1f} GiB free'
            yield Finding('ok', words) if free >= FREE else Finding('warning', words, remedy)
        except OSError as error:
            yield Finding(
                'warning' if kind == 'data' else 'problem',
                f'{kind}: {place} cannot be written ({error.strerror})',
                remedy,
            )


def _data_sets():
    from spml_nb.data import official

    root = settings.path('data')
    missing = {
        name: official.check(name, root)
        for name in official.names()
        if (root / name / 'ready.json').is_file()
    }
    ready = ', '.join(name for name in missing if not missing[name])
    yield Finding('ok', f"{ready or 'none prepared'}; the miniatures need no files")
    for name in filter(missing.get, missing):
        yield Finding('problem', f"{name}: {' '.join(missing[name])}", f'Run `spml data {name}`.')


def _weights():
    from spml_nb.use import export

    names = export.shipped()
    for name in names:
        export.any_network(name)
    yield Finding('ok', f"{', '.join(names)} and the weights of their backbone are as published")


def _runs():
    counts = cleanup.listing().state.value_counts()
    words = (
        f"{', '.join(f'{count} {state}' for state, count in counts.items()) or 'none'} in "
        f"{settings.path('runs')}"
    )
    remedy = (
        '`spml runs --state damaged` says why, and removes them with `--remove --yes`. Then train '
        'them anew.'
    )
    yield Finding('warning', words, remedy) if 'damaged' in counts else Finding('ok', words)


CHECKS = {
    'python': lambda: [Finding('ok', sys.version.split()[0])],
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
