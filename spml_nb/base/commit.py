"""Of which commit the running code is: in a checkout, a wheel, or a copy."""

import subprocess
from pathlib import Path

COMMIT = 'commit.txt'  # in the package, where it was built or copied out of its checkout


def find_commit() -> str | None:
    """The commit of the package's code.

    Returns:
        12 digits, with '+' behind them when files differ from it; None where it cannot be found
        out.
    """
    # A checkout further up is another project's. A lock of git's would be left there by a kill.
    command = (
        'git --git-dir=.git --no-optional-locks status --porcelain=v2 --branch '
        '--untracked-files=no -- spml_nb'
    )
    package = Path(__file__).resolve().parents[1]
    if (package / COMMIT).is_file():
        return (package / COMMIT).read_text().strip() or None
    try:
        status = subprocess.run(command.split(), cwd=package.parent, capture_output=True, text=True)
    except OSError:
        return None  # there is no git
    commit, changed = None, ''
    for line in status.stdout.splitlines():
        if line.startswith('# branch.oid '):
            commit = line.split()[-1][:12]
        elif not line.startswith('#'):
            changed = '+'
    return commit and commit + changed
