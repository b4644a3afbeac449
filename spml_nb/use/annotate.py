"""Photos labelled one after another, and labels that are probably wrong or missing."""

import hashlib
import posixpath
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from ..base import settings
from ..base.errors import SpmlError
from ..base.files import hold_lock, new_folder, refuse_existing, write_atomically
from ..data.dataset import join_items
from ..data.folder import (
    candidate_folders,
    first_existing_folder,
    images_folder,
    parse_label_table,
    read_groups,
    read_label_table,
    usable_class_names,
)
from ..data.labels import split_rows
from ..data.loading import load
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
    cells = read_label_table(file)
    labels, names = parse_label_table(cells, file)
    images = pd.Index(_spell_as(photos, cells.image.map(posixpath.normpath)), name='image')
    if images.has_duplicates:
        raise SpmlError(
            f'{file} has several rows for: {join_items(images[images.duplicated()])}. Keep one for '
            'each photo.'
        )
    # a label of -1 is the last of the three
    table = pd.DataFrame(np.array(['', '1', '0'], object)[labels], images, list(names))
    return table.assign(split=cells.split.str.strip().to_numpy() if 'split' in cells else 'train')


def _read_groups(file: Path, photos: list[str]) -> pd.Series | None:
    "What the photos of a table share, by image; None where it does not say."
    if not file.is_file():
        return None
    cells = read_label_table(file)
    groups = read_groups(cells)
    if groups is None:
        return None
    return pd.Series(groups, _spell_as(photos, cells.image.map(posixpath.normpath)))


def _spell_as(photos: list[str], names: pd.Series) -> list[str]:
    """Names of photos as the photos have them: é is one character to some systems, e and an accent
    to others.
    """
    composed = pd.Series(photos, dtype=object).str.normalize('NFC')
    spellings: dict[Any, Any] = dict(zip(composed, photos, strict=True))
    spellings |= {photo: photo for photo in photos}
    return [
        spellings.get(name, spellings.get(nfc, name))
        for name, nfc in zip(names, names.str.normalize('NFC'), strict=True)
    ]


def _content(table: pd.DataFrame) -> list:
    "Of a table of answers, whatever types pandas keeps it in."
    return [table.columns.tolist(), table.index.tolist(), table.to_numpy(object).tolist()]


def draw_sample(photos: Iterable[str], count: int, seed: int = 0) -> list[str]:
    """Which photos of a pool to label in full, to measure a model on them.

    They are drawn at random, by a hash of their names: on photos that somebody chose, or of which a
    model was unsure, it would be measured how good it is on such photos. Whoever draws from the
    same pool gets the same, and a larger draw begins with a smaller one.

    Args:
        photos: different names.
        count: how many.
        seed: another one draws others.

    Raises:
        SpmlError: if the pool has fewer.
    """
    pool = list(photos)
    if not 0 <= count <= len(pool):
        raise SpmlError(
            f'{count:,} photos cannot be drawn from a pool of {len(pool):,}. Ask for at most '
            f'{len(pool):,}, or add photos.'
        )
    start = f'{seed}/' if seed else ''
    return sorted(pool, key=lambda name: hashlib.sha256((start + name).encode()).digest())[:count]


@dataclass(frozen=True)
class Sample:
    """Photos that are to be labelled in full.

    Attributes:
        photos: names, as the table has them.
        pool: how many they were drawn from.
        marked: whether a column `split` says which photos test; else they are chosen by name, as
            for a training.
    """

    photos: list[str]
    pool: int
    marked: bool

    def __str__(self) -> str:
        where = f'the {self.pool:,} test photos that are not labelled in full'
        if not self.marked:
            where += (
                ' (chosen by name, as for a training; if you want `spml data FOLDER --split`, give '
                'it first and draw again)'
            )
        took = 'all' if len(self.photos) == self.pool else 'drawn at random'
        return f'{len(self.photos):,} photos, {took} of {where}'


def write_sample(folder: str | Path, target: str | Path, count: int) -> Sample:
    """Copy photos that are to be labelled in full, to set the threshold of a model by them and to
    measure it on them.

    They are drawn by `draw_sample` from the photos that test, which no model is trained on. Photos
    that have all their labels already are left out.

    Args:
        folder: with images/ and labels.csv.
        target: a new folder, which gets images/ and labels.csv: a column a class, in which what the
            table knows of these photos stays known.
        count: how many; of a smaller pool all are taken.

    Raises:
        SpmlError: as `load`; for a count below 1, a target that is there already or cannot be
            written, and where no photo is left to be labelled.
    """
    if count < 1:
        raise SpmlError(f'{count} photos; allowed: a whole number from 1 upwards, such as 50.')
    target = settings.expand_home(target)
    refuse_existing(target)  # before the work
    folder = first_existing_folder(candidate_folders(folder))
    data = load(folder, scored=True)
    names = read_label_table(folder / 'labels.csv')['image'].map(posixpath.normpath).tolist()
    pool = data.rows('test')
    pool = pool[(data.labels[pool] == 0).any(1)]
    if not len(pool):
        raise SpmlError(
            f'{folder} has no test photo of which a label is unknown, so there is nothing to '
            'label. `spml evaluate RUN FOLDER` scores its test photos as they are.'
        )
    row_of = {names[row]: row for row in pool}
    drawn = draw_sample(row_of, min(count, len(pool)))
    rows = [row_of[name] for name in drawn]
    cells = np.array(['', '1', '0'], object)[data.labels[rows]]  # -1 is the last of the three
    table = pd.DataFrame(cells, pd.Index(drawn, name='image'), data.class_names)
    with new_folder(target) as temporary:
        for row, name in zip(rows, drawn, strict=True):
            copy = temporary / 'images' / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(data.images[row], copy)
        table.to_csv(temporary / 'labels.csv', lineterminator='\n')
    return Sample(drawn, len(pool), 'test' not in data.drawn)


class Sheet:
    """The answers about a folder of photos, kept in its labels.csv.

    For most photos one name that applies is enough; other classes stay unknown. A small sample is
    labelled in full: one half of it becomes the validation set, the other the test set. It must be
    a fair draw, so it is drawn by a hash of the photos' names, whatever has been labelled before,
    and stays the same when the work is resumed.

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
        self.folder = Path(folder)
        self.file = self.folder / 'labels.csv'
        names, _ = find_images(images_folder(self.folder))
        _refuse_unwritable(names)
        self.images = draw_sample(names, len(names))
        table = _read(self.file, self.images)
        self.class_names = usable_class_names([*table.columns.drop('split'), *classes])
        if not self.class_names:
            raise SpmlError(
                'no class to choose from. Name some: classes = "cat|dog" in the notebook '
                'label_photos, classes=["cat", "dog"] in Python.'
            )
        cells = table.drop(columns='split')
        # as only photos of the sample are
        in_full = (cells == '0').any(axis=1) | (cells != '').all(axis=1)
        marked = table.split[(table.split == 'test') | ((table.split == 'val') & in_full)]
        parts: dict[Any, str] = marked[marked.index.isin(self.images)].to_dict()
        size = max(sample, len(parts))
        self.sample = sorted(self.images, key=lambda name: name not in parts)[:size]
        self.part = _halve(self.sample, parts)

    def table(self) -> pd.DataFrame:
        "The answers so far: by image, a column a class with '1', '0' or '', and `split`."
        table = _read(self.file, self.images)
        others = (*self.class_names, 'split')
        self.class_names += [str(name) for name in table if name not in others]  # of another window
        return table.reindex(columns=[*self.class_names, 'split'], fill_value='')

    def waiting(self, full: bool = False) -> list[str]:
        """Photos without an answer.

        Args:
            full: of the sample; else of all others.

        Returns:
            Paths below images/, in the order in which they are asked about.
        """
        cells = self.table()[self.class_names] != ''
        is_answered: pd.Series = cells.all(axis=1) if full else cells.any(axis=1)
        answered = set(is_answered.index[is_answered])
        return [
            image for image in self.images if (image in self.part) == full and image not in answered
        ]

    def answer(self, image: str, names: Iterable[str]) -> None:
        """Keep an answer.

        Args:
            image: one of `images`.
            names: what is on it. Of a photo of the sample all other classes are absent then, of
                another one unknown; no name at all means that every class is absent.

        Raises:
            SpmlError: for another name, and if the table cannot be read or written.
        """
        names = list(names)
        shown = list(self.class_names)  # without what another window has added since
        if wrong := [name for name in names if name not in shown]:
            raise SpmlError(
                f'{wrong[0]!r} is no class; there are {join_items(shown)}. Add it first.'
            )
        full = image in self.part
        unnamed = '0' if full or not names else ''
        with hold_lock(self.file, None):
            table = self.table()
            part = self.part[image] if full else table.split.get(image, 'train')
            cells = {name: '1' if name in names else unnamed for name in shown}
            table.loc[image] = cells | {'split': part}
            write_atomically(
                self.file, partial(self._write, table.fillna('')), follow=self.file.is_file()
            )

    def _write(self, table: pd.DataFrame, file: Path) -> None:
        "Write a table, unless other answers than these would be read from it."
        kept = table
        if (table.split == 'train').all():  # the split is drawn then
            kept = table.drop(columns='split')
        groups = _read_groups(self.file, self.images)
        if groups is not None:
            kept = kept.assign(group=groups.reindex(kept.index, fill_value=''))
        kept.rename_axis('image').to_csv(file, lineterminator='\n')
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
        (name,) = usable_class_names([name])
        self.class_names = usable_class_names([*self.class_names, name])
        return name


def _refuse_unwritable(names: list[str]) -> None:
    if strange := [name for name in names if name != name.encode('utf-8', 'ignore').decode()]:
        raise SpmlError(
            f'no table can hold names that are not UTF-8: {join_items(map(ascii, strange))}. '
            'Rename them.'
        )
    if strange := [name for name in names if re.search(r'[\x00-\x1f\x7f-\x9f]', name)]:
        raise SpmlError(
            'no table can hold names with line breaks or other control characters: '
            f'{join_items(map(ascii, strange))}. Rename these photos.'
        )


def _halve(sample: list[str], marked: dict[str, str]) -> dict[str, str]:
    """The part of each photo of a sample: as it is marked, else the one with fewer photos, test
    first.
    """
    part = {name: marked[name] for name in sample if name in marked}
    size = Counter(part.values())
    for name in sample:
        if name not in marked:
            part[name] = 'test' if size['test'] <= size['val'] else 'val'
            size[part[name]] += 1
    return part


def parse_answer(text: str, shown: list[str]) -> list[str]:
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
    words = re.split(r'[\s,]+' if re.fullmatch(r'[\d\s,]+', text) else ',', text)
    return list(dict.fromkeys(_parse_word(word.strip(), shown) for word in words if word.strip()))


def _parse_word(word: str, shown: list[str]) -> str:
    typed = word.casefold()
    for name in shown:
        if name.casefold() == typed:
            return name
    if typed.isdecimal() and 0 < int(typed) <= len(shown):
        return shown[int(typed) - 1]
    matches = [name for name in shown if name.casefold().startswith(typed)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise SpmlError(f'{word!r} may mean {join_items(matches)}. Write more of the name.')
    raise SpmlError(
        f'{word!r} is no class here. Write the beginning of a name, or a number from 1 to '
        f'{len(shown)}.'
    )


def judge_photos(config: Config, task: Task, root: Path | None = None) -> np.ndarray:
    """What networks say of training photos that they were not trained on.

    A network that was trained on a wrong label may have memorised it, and one that read an unknown
    label as absent has learnt that as well. So the training photos are halved, and the network of
    each half judges the photos of the other.

    Args:
        config: of both networks.
        task: what it learns from.
        root: the folder of runs; unset: the setting `runs`. They lie in a folder named by the data.

    Returns:
        (N_train, C) probabilities in [0, 1].

    Raises:
        SpmlError: as `spml_nb.training.trainer.train`.
    """
    folder = (root or settings.path('runs')) / f'judges-{task.data.fingerprint}'
    probability = np.empty(task.observed.shape)
    for k, judged in enumerate(split_rows(len(task.train), 0.5)):
        taught = np.setdiff1d(np.arange(len(task.train)), judged)
        half = replace(
            task,
            train=task.train[taught],
            observed=task.observed[taught],
            test=task.train[judged],
            side={kind: values[taught] for kind, values in task.side.items()},
        )
        result = train(config, task=half, root=folder / f'half-{k}')
        probability[judged] = expit(result.logits['test'].astype(float))
    return probability


# labels without evidence that are added to each class, so that three labels do not decide
PRIOR = 10


def find_doubtful_labels(
    probability: np.ndarray, observed: np.ndarray
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Labels that are probably wrong, and labels that are probably missing.

    Args:
        probability: (N, C) in [0, 1], as from `judge_photos`.
        observed: (N, C) in {1, 0, −1}.

    Returns:
        Two tables of row and class. The first has a line for each 1, the least supported first:
        support (the probability over what is typical of photos with that label) and instead
        (another class). The second has a line for each entry that is no 1, the likeliest first:
        probability, by the class's own labels.

    Source: Northcutt et al. (2021), confident learning; Fisher (1936), the linear discriminant.
    """
    positive = observed > 0
    likely = expit(_evidence(probability, positive))
    typical = np.where(positive, probability, 0).sum(0) / np.maximum(positive.sum(0), 1)
    rival = np.where(positive, -1, likely).argmax(1)
    rows, classes = np.nonzero(positive)
    wrong = pd.DataFrame(
        {
            'row': rows,
            'class': classes,
            'support': probability[rows, classes] / typical[classes],
            'instead': rival[rows],
        }
    )
    rows, classes = np.nonzero(~positive)
    missing = pd.DataFrame({'row': rows, 'class': classes, 'probability': likely[rows, classes]})
    return (
        wrong.sort_values('support', ignore_index=True),
        missing.sort_values('probability', ascending=False, ignore_index=True),
    )


def _evidence(probability: np.ndarray, positive: np.ndarray) -> np.ndarray:
    r"""(N, C) log odds that an entry is like the labelled ones of its class rather than the others.

    The plain probability does not do (a method may leave a whole class near one half), nor its
    ratio to what is typical of the class (one percent where a class was hardly learnt). With the
    logits $s$, their mean $t$ over the $n$ labelled photos and $u$ over the others, and their
    variance $\sigma^2$ within both, it is Fisher's discriminant, shrunk where labels are few:

    $$\frac{n}{n+10}\,\frac{t-u}{\sigma^2}\Big(s-\frac{t+u}{2}\Big)+\log\frac{n+1}{N-n+1}$$
    """
    n = positive.sum(0)
    rest = len(positive) - n
    s = logit(np.clip(probability, 1e-6, 1 - 1e-6))
    t = np.where(positive, s, 0).sum(0) / np.maximum(n, 1)
    u = np.where(positive, 0, s).sum(0) / np.maximum(rest, 1)
    variance = np.square(s - np.where(positive, t, u)).mean(0) + 1e-3
    slope = n / (n + PRIOR) * (t - u)
    return slope * (s - (t + u) / 2) / variance + np.log((n + 1) / (rest + 1))
