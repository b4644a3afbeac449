"""What pyproject.toml cannot say: the links of README.md on a package page, and the commit of a
build from a checkout, which lies in the package as commit.txt.
"""

import re
import subprocess
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent


def read_description() -> str:
    """README.md with links to the repository as it was at this version."""
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text(encoding='utf-8'))['project']
    text = (ROOT / 'spml_nb' / '__init__.py').read_text(encoding='utf-8')
    version = re.search(r'__version__ = "(.*)"', text)[1]
    repository = project['urls']['Repository']
    readme = (ROOT / 'README.md').read_text(encoding='utf-8')
    readme = re.sub(r'(!\[[^]]*\]\()(?!\w+:|#)', rf'\1{repository}/raw/v{version}/', readme)
    return re.sub(r'(\]\()(?!\w+:|#)', rf'\1{repository}/blob/v{version}/', readme)


def write_commit(package: Path) -> None:
    # a checkout further up is another project's
    command = 'git --git-dir=.git describe --always --abbrev=12 --exclude=* --dirty=+'
    try:
        done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return  # there is no git
    if done.returncode == 0:
        (package / 'commit.txt').write_text(done.stdout)


class BuildPackage(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:
            write_commit(Path(self.build_lib) / 'spml_nb')


class BuildSource(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir) / 'spml_nb')


setup(
    long_description=read_description(),
    long_description_content_type='text/markdown',
    cmdclass={'build_py': BuildPackage, 'sdist': BuildSource},
)
