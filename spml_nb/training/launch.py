"""Train one run on several GPUs or cores: torchrun starts the processes, `Group` connects them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import torch.distributed as dist

from ..base import settings
from ..base.errors import SpmlError
from ..runs.config import Config, config_to_dict
from .trainer import train


def _launch_command(config: Config, processes: int) -> list[str]:
    "The command that trains a configuration with several processes of this machine."
    torchrun = ['-m', 'torch.distributed.run', '--standalone', f'--nproc-per-node={processes}']
    fields = json.dumps({k: v for k, v in config_to_dict(config).items() if v is not None})
    return [sys.executable, *torchrun, '-m', 'spml_nb.training.launch', fields]


def launch(config: Config, processes: int, tell: Callable[[str], None] = print):
    """Train a run with several processes of this machine.

    Args:
        config: its batch_size is that of all processes together.
        processes: 1 or more.
        tell: called with each line that the first process prints.

    Returns:
        `spml_nb.runs.folder.Result`.

    Raises:
        SpmlError: for processes below 1, or if a process fails, with its error message.
    """
    if processes < 1:
        raise SpmlError(f'processes must be 1 or more, not {processes}.')
    if processes == 1:
        return train(config)
    environment = {
        'OMP_NUM_THREADS': str(max(1, settings.count_cores() // processes)),
        **os.environ,
    }
    with subprocess.Popen(
        _launch_command(config, processes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as process:
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip())
            if not line.startswith('['):
                tell(lines[-1])
    if process.returncode:
        # torchrun adds a page of output to the error
        errors = [line for line in lines if line.startswith('error: ')]
        output = ' '.join(errors[:1] or lines[-30:])
        raise SpmlError(
            f'{processes} processes ended with exit status {process.returncode}. {output}'
        )
    return train(config)


def _main(words: list[str]) -> int:
    "Train in one of the processes. words: [configuration as JSON]. Returns: exit status."
    try:
        train(Config(**json.loads(words[0])))
    except SpmlError as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0


if __name__ == '__main__' and '__file__' in globals():
    sys.exit(_main(sys.argv[1:]))
