"""Photos labelled one after another, and labels that are probably wrong or missing."""

import hashlib
import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from ..base import settings
from ..base.errors import SpmlError
from ..base.files import hold_lock, write_atomically
from ..data.dataset import listed
from ..data.folder import photos_of, read_cells, read_labels, usable_names
from ..data.labels import split
from ..runs.config import Config
from ..training.task import Task
from ..training.trainer import train
from .predictor import find_images


def _read(file: Path, photos: list[str]) -> pd.DataFrame:
    """labels.csv as text by image: a column a class with '1', '0' or '', and `split`; empty where
    there is no file.
    """
    if not file.is_file():
        return pd.DataFrame({'split': []}, index=pd.Index([], name='image'), dtype=object)
    table = read_cells(file)
    labels, names = read_labels(table, file)
    given = table.image.map(
        posixpath.normpath
    )  # é is one character to some systems, e and an accent to others
    there = dict(zip(pd.Index(photos, dtype=object).str.normalize('NFC'), photos, strict=True)) | {
        p: p for p in photos
    }
    images = pd.Index(
        [
            there.get(name, there.get(composed, name))
            for name, composed in zip(given, given.str.normalize('NFC'), strict=True)
        ],
        name='image',
    )
    if images.has_duplicates:
        raise SpmlError(
            f'{file} has several rows for: {listed(images[images.duplicated()])}. Keep one for '
            'each photo.'
        )
    return pd.DataFrame(np.array(['', '1', '0'], object)[labels], images, names).assign(
        split=table.split.str.strip().to_numpy() if 'split' in table else 'train'
    )


def _content(table: pd.DataFrame) -> list:
    "What a table of answers says, whatever types pandas keeps it in."
    return [table.columns.tolist(), table.index.tolist(), table.to_numpy(object).tolist()]


class Sheet:
    """The answers about a folder of photos, kept in its labels.csv.

    Args:
        folder: with images/; its labels.csv is gone on with, in any of the three layouts.
        classes: names to choose from, behind those of the table.
        sample: how many photos are labelled in full, half of them for validation, half for testing.
            Those marked `test` come first, and those marked `val` that have been labelled in full.

    Attributes:
        images: all photos, paths below images/, in the order in which they are asked about.
        sample: those of them to be labelled in full.
        part: {photo of the sample: 'val' or 'test'}.
        class_names: C names.

    Raises:
        SpmlError: without photos or classes, for a table that cannot be read, or a class that no
            table can name.
    """

    def __init__(self, folder: str | Path, classes: Iterable[str] = (), sample: int = 0):
        self.folder, self.file = Path(folder), Path(folder) / 'labels.csv'
        self.images = sorted(
            find_images(photos_of(self.folder))[0],
            key=lambda name: hashlib.sha256(name.encode('utf-8', 'surrogateescape')).digest(),
        )
        if strange := [
            name for name in self.images if name != name.encode('utf-8', 'ignore').decode()
        ]:
            raise SpmlError(
                f'no table can hold names that are not UTF-8: {listed(map(ascii, strange))}. '
                'Rename them.'
            )
        if strange := [name for name in self.images if re.search(r'[\x00-\x1f\x7f-\x9f]', name)]:
            raise SpmlError(
                'no table can hold names with line breaks or other control characters: '
                f'{listed(map(ascii, strange))}. Rename these photos.'
            )
        table = _read(self.file, self.images)
        self.class_names = usable_names([*table.columns.drop('split'), *classes])
        if not self.class_names:
            raise SpmlError(
                'no class to choose from. Name some: classes = "cat|dog" in the notebook '
                'label_photos, classes=["cat", "dog"] in Python.'
            )
        cells = table.drop(columns='split')
        # as only photos of the sample are
        answered = (cells == '0').any(axis=1) | (cells != '').all(axis=1)
        marked = table.split[(table.split == 'test') | ((table.split == 'val') & answered)]
        marked = marked[marked.index.isin(self.images)].to_dict()
        self.sample = sorted(self.images, key=lambda name: name not in marked)[
            : max(sample, len(marked))
        ]
        self.part = _halves(self.sample, marked)

    def table(self) -> pd.DataFrame:
        "What is known so far: by image, a column a class with '1', '0' or '', and `split`."
        table = _read(self.file, self.images)
        self.class_names += [
            name for name in table if name not in (*self.class_names, 'split')
        ]  # of another window
        return table.reindex(columns=[*self.class_names, 'split'], fill_value='')

    def waiting(self, full: bool = False) -> list[str]:
        """Photos without an answer.

        Args:
            full: of the sample; else of all others.

        Returns:
            Paths below images/, in the order in which they are asked about.
        """
        known = self.table()[self.class_names] != ''
        answered, sample = (
            set(known.index[known.all(axis=1) if full else known.any(axis=1)]),
            set(self.sample),
        )
        return [
            image for image in self.images if (image in sample) == full and image not in answered
        ]

    def answer(self, image: str, names: Iterable[str]):
        """Keep an answer.

        Args:
            image: one of `images`.
            names: what is on it. Of a photo of the sample all other classes are absent then, of
                another one unknown; no name at all means that every class is absent.

        Raises:
            SpmlError: for another name, and if the table cannot be read or written.
        """
        names, shown = (
            list(names),
            list(self.class_names),
        )  # without what another window has added since
        if wrong := [name for name in names if name not in self.class_names]:
            raise SpmlError(
                f'{wrong[0]!r} is no class; there are {listed(self.class_names)}. Add it first.'
            )
        full = image in self.part
        with hold_lock(self.file, None):
            table = self.table()
            cells = dict.fromkeys(shown, '0' if full or not names else '') | dict.fromkeys(
                names, '1'
            )
            part = self.part[image] if full else table.split.get(image, 'train')
            table.loc[image] = cells | {'split': part}
            write_atomically(
                self.file, partial(self._write, table.fillna('')), follow=self.file.is_file()
            )

    def _write(self, table: pd.DataFrame, file: Path):
        "Write a table, unless other answers than these would be read from it."
        drawn = (table.split == 'train').all()  # the split is drawn then
        shown = table.drop(columns='split') if drawn else table
        shown.rename_axis('image').to_csv(file, lineterminator='\n')
        try:
            same = _content(_read(file, self.images)) == _content(table)
        except SpmlError:
            same = False
        if not same:
            raise SpmlError(
                f'{self.file} stays as it is: with this answer it could not be read any more. '
                'Remove control characters from the names of photos and classes in it.'
            )

    def add(self, name: str) -> str:
        """A class more to choose from. Photos of the sample are asked about again, for it is
        unknown there.

        Args:
            name: of the class, which may be there already.

        Returns:
            The name as the table keeps it.

        Raises:
            SpmlError: for a name that no table can have.
        """
        (name,) = usable_names([name])
        self.class_names = usable_names([*self.class_names, name])
        return name


def _halves(sample: list[str], marked: dict[str, str]) -> dict[str, str]:
    """The part of each photo of a sample: as it is marked, else the one with fewer photos, test
    first.
    """
    part = {name: marked[name] for name in sample if name in marked}
    size = Counter(part.values())
    for name in sample:
        if name in marked:
            continue
        part[name] = 'test' if size['test'] <= size['val'] else 'val'
        size[part[name]] += 1
    return part


def understood(text: str, shown: list[str]) -> list[str]:
    """The names that an answer means.

    Args:
        text: names, beginnings of names, or numbers from 1, separated by commas; numbers by blanks
            as well.
        shown: C names in the order in which they are numbered.

    Returns:
        Different names, in the order in which they were typed.

    Raises:
        SpmlError: for what is no class, or the beginning of several.
    """
    parts = re.split(r'[\s,]+' if re.fullmatch(r'[\d\s,]+', text) else ',', text)
    return list(dict.fromkeys(_one(part.strip(), shown) for part in parts if part.strip()))


def _one(part: str, shown: list[str]) -> str:
    typed = part.casefold()
    if same := [name for name in shown if name.casefold() == typed]:
        return same[0]
    if typed.isdecimal() and 0 < int(typed) <= len(shown):
        return shown[int(typed) - 1]
    begun = [name for name in shown if name.casefold().startswith(typed)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise SpmlError(f'{part!r} may mean {listed(begun)}. Write more of the name.')
    raise SpmlError(
        f'{part!r} is no class here. Write the beginning of a name, or a number from 1 to '
        f'{len(shown)}.'
    )


def judged(config: Config, task: Task, root: Path | None = None) -> np.ndarray:
    """What networks say of training photos that they were not trained on.

    Args:
        config: of both networks.
        task: what it learns from.
        root: the folder of runs; unset: the setting `runs`. They lie in a folder named by the data.

    Returns:
        (N_train, C) probabilities in [0, 1].

    Raises:
        SpmlError: as `spml_nb.training.trainer.train`.
    """
    place = (root or settings.path('runs')) / f'judges-{task.data.fingerprint}'
    probability = np.empty(task.observed.shape)
    for k, half in enumerate(split(len(task.train), 0.5)):
        taught = np.setdiff1d(np.arange(len(task.train)), half)
        other = replace(
            task,
            train=task.train[taught],
            observed=task.observed[taught],
            test=task.train[half],
            side={kind: known[taught] for kind, known in task.side.items()},
        )
        probability[half] = expit(
            train(config, task=other, root=place / f'half-{k}').logits['test'].astype(float)
        )
    return probability


PRIOR = (
    10  # labels without evidence that are added to each class, so that three labels do not decide
)


def doubtful(probability: np.ndarray, observed: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Labels that are probably wrong, and labels that are probably missing.

    Args:
        probability: (N, C) in [0, 1], as from `judged`.
        observed: (N, C) in {1, 0, −1}.

    Returns:
        Two tables of row and class. The first has a line for each 1, the least supported first:
        support (the probability over what is typical of photos with that label) and instead
        (another class). The second has a line for each entry that is no 1, the likeliest first:
        probability, by the class's own labels.

    Source: Northcutt et al. (2021), confident learning; Fisher (1936), the linear discriminant.
    """
    given = observed > 0
    likely, count = expit(_evidence(probability, given)), given.sum(0)
    typical = np.where(given, probability, 0).sum(0) / np.maximum(count, 1)
    rival = np.where(given, -1, likely).argmax(1)
    (i, c), (j, d) = np.nonzero(given), np.nonzero(~given)
    wrong = pd.DataFrame(
        {'row': i, 'class': c, 'support': probability[i, c] / typical[c], 'instead': rival[i]}
    )
    missing = pd.DataFrame({'row': j, 'class': d, 'probability': likely[j, d]})
    return (
        wrong.sort_values('support', ignore_index=True),
        missing.sort_values('probability', ascending=False, ignore_index=True),
    )


def _evidence(probability: np.ndarray, given: np.ndarray) -> np.ndarray:
    """(N, C) logits that an entry is like the labelled ones of its class rather than like the
    others.
    """
    n, logits = given.sum(0), logit(np.clip(probability, 1e-6, 1 - 1e-6))
    labelled = np.where(given, logits, 0).sum(0) / np.maximum(n, 1)
    others = np.where(given, 0, logits).sum(0) / np.maximum(len(given) - n, 1)
    variance = np.square(logits - np.where(given, labelled, others)).mean(0) + 1e-3
    apart = n / (n + PRIOR) * (labelled - others)
    return apart * (logits - (labelled + others) / 2) / variance + np.log(
        (n + 1) / (len(given) - n + 1)
    )
