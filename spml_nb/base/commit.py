"""The commit of the running code, whether in a checkout, a wheel or a copy."""

import re
import subprocess
from pathlib import Path

COMMIT = 'commit.txt'  # in the package, if it was built or copied outside its checkout


def find_commit() -> str | None:
    """Find the commit of the package's code.

    Returns:
        12 hex digits, followed by '+' if the working tree differs; None if there is no commit.
    """
    # --git-dir: a repository further up is another project's.
    # --no-optional-locks: if killed, git would leave its lock behind.
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
        return None  # git is not installed
    header = re.search('^# branch.oid ([0-9a-f]{12})', status.stdout, re.M)
    if header is None:
        return None
    is_changed = re.search('^[^#]', status.stdout, re.M)
    return header[1] + '+' if is_changed else header[1]
