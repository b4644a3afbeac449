"""Labels photos one after another, and finds labels that are probably wrong or missing."""

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
    CELLS,
    LABEL_CELLS,
    find_folder,
    images_folder,
    parse_label_table,
    read_groups,
    read_label_table,
    usable_class_names,
)
from ..data.labels import FULL_PHOTOS, split_rows
from ..data.loading import load
from ..runs.config import Config
from ..training.task import Task
from ..training.trainer import train
from .predictor import find_images


def _read_answers(file: Path, photos: list[str]) -> pd.DataFrame:
    """labels.csv as text by image: a column per class with '1', '0' or '', and `split`. Empty if
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
    table = pd.DataFrame(LABEL_CELLS[labels], images, list(names))
    return table.assign(split=cells.split.str.strip().to_numpy() if 'split' in cells else 'train')


def _read_groups(file: Path, photos: list[str]) -> pd.Series | None:
    "The column `group` by image; None if the table has none."
    if not file.is_file():
        return None
    cells = read_label_table(file)
    groups = read_groups(cells)
    if groups is None or not any(groups):
        return None
    return pd.Series(groups, _spell_as(photos, cells.image.map(posixpath.normpath)))


def _spell_groups(groups: list[str]) -> list[str]:
    """Groups as they can stand beside columns of classes, where a column of 1, 0 and empty cells
    would be read as a class.
    """
    if not CELLS.keys() >= set(groups):
        return groups
    return [group and f'group {group}' for group in groups]


def _spell_as(photos: list[str], names: pd.Series) -> list[str]:
    """Spell names as the photos on disk do: é is one character on some systems, e and an accent on
    others.
    """
    composed = pd.Series(photos, dtype=object).str.normalize('NFC')
    spellings: dict[Any, Any] = dict(zip(composed, photos, strict=True))
    spellings |= {photo: photo for photo in photos}
    return [
        spellings.get(name, spellings.get(nfc, name))
        for name, nfc in zip(names, names.str.normalize('NFC'), strict=True)
    ]


def _as_lists(table: pd.DataFrame) -> list:
    "To compare tables regardless of their dtypes."
    return [table.columns.tolist(), table.index.tolist(), table.to_numpy(object).tolist()]


def draw_sample(photos: Iterable[str], count: int, seed: int = 0) -> list[str]:
    """Draw photos at random, to label them in full and measure a model on them.

    Photos that somebody picked, or that a model is unsure of, would only tell how good it is on
    such photos. The draw is by a hash of the names: the same for the same pool, and a larger one
    begins with a smaller one.

    Args:
        photos: unique names.
        count: how many to draw.
        seed: of the draw.

    Raises:
        SpmlError: if there are fewer photos.
    """
    pool = list(photos)
    if not 0 <= count <= len(pool):
        raise SpmlError(
            f'{count:,} photos cannot be drawn from a pool of {len(pool):,}. Ask for at most '
            f'{len(pool):,}, or add photos.'
        )
    prefix = f'{seed}/' if seed else ''
    return sorted(pool, key=lambda name: hashlib.sha256((prefix + name).encode()).digest())[:count]


@dataclass(frozen=True)
class Sample:
    """Photos to label in full.

    Attributes:
        photos: names as in the table.
        pool: number of photos that they were drawn from.
        marked: whether a column `split` says which photos test; otherwise the split is drawn by
            name, as in training.
    """

    photos: list[str]
    pool: int
    marked: bool

    def __str__(self) -> str:
        where = f'the {self.pool:,} test photos that are not labelled in full'
        if not self.marked:
            where += (
                ' (split by name, as in training; if you want `spml data FOLDER --split`, run it '
                'first and draw again)'
            )
        how = 'all' if len(self.photos) == self.pool else 'drawn at random'
        return f'{len(self.photos):,} photos, {how} of {where}'


def write_sample(folder: str | Path, target: str | Path, count: int) -> Sample:
    """Copy test photos to label in full, to choose the threshold of a model and to measure it.

    They are drawn by `draw_sample` from the test photos, which no model is trained on, without
    those that have all their labels already.

    Args:
        folder: with images/ and labels.csv.
        target: a new folder, which gets images/ and labels.csv with a column per class, and the
            labels that are already known.
        count: how many; all, if there are fewer.

    Raises:
        SpmlError: as `load`; for a count below 1, a target that exists or cannot be written, and if
            no photo is left to label.
    """
    if count < 1:
        raise SpmlError(f'{count} photos; allowed: a whole number from 1 upwards, such as 50.')
    target = settings.expand_home(target)
    refuse_existing(target)  # before the work
    folder = find_folder(folder)
    data = load(folder, scored=True)
    names = read_label_table(folder / 'labels.csv')['image'].map(posixpath.normpath).tolist()
    pool = data.rows('test')
    pool = pool[(data.labels[pool] == 0).any(1)]
    if not len(pool):
        raise SpmlError(
            f'{folder} has no test photo with an unknown label, so there is nothing to label. '
            '`spml evaluate RUN FOLDER` scores its test photos as they are.'
        )
    row_of = {names[row]: row for row in pool}
    drawn = draw_sample(row_of, min(count, len(pool)))
    rows = [row_of[name] for name in drawn]
    cells = LABEL_CELLS[data.labels[rows]]
    table = pd.DataFrame(cells, pd.Index(drawn, name='image'), data.class_names)
    groups = [] if data.groups is None else [data.groups[row] for row in rows]
    if any(groups) and 'group' not in data.class_names:
        table['group'] = _spell_groups(groups)
    with new_folder(target) as temporary:
        for row, name in zip(rows, drawn, strict=True):
            copy = temporary / 'images' / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(data.images[row], copy)
        table.to_csv(temporary / 'labels.csv', lineterminator='\n')
    return Sample(drawn, len(pool), 'test' not in data.drawn)


class Sheet:
    """The labels that somebody gives the photos of a folder, stored in its labels.csv.

    For most photos one name that applies is enough; other classes stay unknown. A small random
    sample is labelled in full, half of it for validation and half for testing. It is drawn by a
    hash of the photos' names, so it does not depend on earlier answers and stays the same when the
    work is resumed. Photos that share a group in the table are drawn together, and none of them
    trains from the first answer on.

    Args:
        folder: with images/; an existing labels.csv, in any of the three layouts, is continued.
        classes: names to choose from, besides those of the table.
        sample: how many photos to label in full; more, if that takes whole groups. Photos marked
            `test` come first, and those marked `val` that are labelled in full. None: twice
            `FULL_PHOTOS`, since half of them choose, or a third of the photos if that is fewer.

    Attributes:
        images: all photos, as paths below images/, in the order in which they are asked about.
        sample: the photos to label in full.
        part: {photo of the sample: 'val' or 'test'}.
        class_names: C names.

    Raises:
        SpmlError: without photos or classes, for a table that cannot be read, an invalid name of a
            class, or if the sample takes the photos of all groups.
    """

    def __init__(self, folder: str | Path, classes: Iterable[str] = (), sample: int | None = 0):
        self.folder = Path(folder)
        self.file = self.folder / 'labels.csv'
        names, _ = find_images(images_folder(self.folder))
        _refuse_unwritable(names)
        self.images = draw_sample(names, len(names))
        if sample is None:
            sample = min(2 * FULL_PHOTOS, len(names) // 3)
        table = _read_answers(self.file, self.images)
        self.class_names = usable_class_names([*table.columns.drop('split'), *classes])
        if not self.class_names:
            raise SpmlError(
                'no class to choose from. Name some: classes = "cat|dog" in the notebook '
                'label_photos, classes=["cat", "dog"] in Python.'
            )
        cells = table.drop(columns='split')
        # labelled in full, which only photos of the sample are
        in_full = (cells == '0').any(axis=1) | (cells != '').all(axis=1)
        marked = table.split[(table.split == 'test') | ((table.split == 'val') & in_full)]
        parts: dict[Any, str] = marked[marked.index.isin(self.images)].to_dict()
        groups = _read_groups(self.file, self.images)
        together = _group_photos(self.images, groups)
        self.part = _draw_parts(together, sample, {})
        if not parts.items() <= self.part.items():  # else the work is resumed
            self.part = _draw_parts(together, sample, parts)
        if len(self.part) == len(self.images) > max(sample, len(parts)):
            raise SpmlError(
                f'a sample of {sample:,} photos takes the photos of all groups, so that none is '
                f'left for training. Add photos of other groups to {self.folder}, or remove the '
                'column `group` if its photos have little in common.'
            )
        in_sample = [name for name in self.images if name in self.part]
        self.sample = sorted(in_sample, key=lambda name: name not in parts)
        # photos whose rows get their part before they are answered
        self._grouped = [] if groups is None else [*groups.index[groups != '']]

    def table(self) -> pd.DataFrame:
        "The answers so far by image: a column per class with '1', '0' or '', and `split`."
        table = _read_answers(self.file, self.images)
        known = (*self.class_names, 'split')
        # another window may have added classes
        self.class_names += [str(name) for name in table if name not in known]
        return table.reindex(columns=[*self.class_names, 'split'], fill_value='')

    def waiting(self, full: bool = False) -> list[str]:
        """Photos without an answer, in the order in which they are asked about.

        Args:
            full: those of the sample instead of all others.
        """
        cells = self.table()[self.class_names] != ''
        is_answered: pd.Series = cells.all(axis=1) if full else cells.any(axis=1)
        answered = set(is_answered.index[is_answered])
        return [
            image for image in self.images if (image in self.part) == full and image not in answered
        ]

    def answer(self, image: str, names: Iterable[str]) -> None:
        """Store an answer.

        Args:
            image: one of `images`.
            names: classes that the photo shows. The others become absent if the photo is in the
                sample, else unknown; without any name all become absent.

        Raises:
            SpmlError: for an unknown class, and if the table cannot be read or written.
        """
        names = list(names)
        shown = list(self.class_names)  # before another window's classes are added
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
            for name in table.index.intersection(self._grouped).intersection([*self.part]):
                table.loc[name, 'split'] = self.part[name]
            write_atomically(
                self.file, partial(self._write, table.fillna('')), follow=self.file.is_file()
            )

    def _write(self, table: pd.DataFrame, file: Path) -> None:
        "Write a table, and refuse it if reading it back gives other answers."
        written = table
        if (table.split == 'train').all():  # without a column `split` it is drawn
            written = table.drop(columns='split')
        groups = _read_groups(self.file, self.images)
        if groups is not None:
            in_order = groups.reindex(written.index, fill_value='')
            written = written.assign(group=_spell_groups(in_order.tolist()))
        written.rename_axis('image').to_csv(file, lineterminator='\n')
        try:
            same = _as_lists(_read_answers(file, self.images)) == _as_lists(table)
        except SpmlError:
            same = False
        if not same:
            raise SpmlError(
                f'{self.file} stays as it is: with this answer it could not be read back. '
                'Remove control characters from the names of photos and classes in it.'
            )

    def add(self, name: str) -> str:
        """Add a class to choose from, if it is new. It is unknown on the photos of the sample, so
        they are asked about again.

        Returns:
            The name as it is in the table.

        Raises:
            SpmlError: for an invalid name.
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


def _group_photos(images: list[str], groups: pd.Series | None) -> list[list[str]]:
    "Photos that share a group, or a photo without one, in the order of `draw_sample`."
    group_of = {} if groups is None else groups.to_dict()
    together: dict[str, list[str]] = {}
    for image in images:
        together.setdefault(group_of.get(image) or image, []).append(image)
    return [together[name] for name in draw_sample(together, len(together))]


def _draw_parts(together: list[list[str]], size: int, marked: dict[str, str]) -> dict[str, str]:
    """Draw a sample and halve it: each marked photo has its part, and photos that belong together
    get one part, that of a marked one, else the part with fewer photos, test first.

    Args:
        together: as from `_group_photos`.
        size: how many photos to draw, marked ones included; more if the last ones belong together.
        marked: {photo: 'val' or 'test'}.
    """
    part = dict(marked)
    count = Counter(part.values())
    half = min(size // 2, size - max(count.values(), default=0))
    for names in sorted(together, key=marked.keys().isdisjoint):
        if len(part) >= size and min(count['test'], count['val']) >= half:
            break
        smaller = 'test' if count['test'] <= count['val'] else 'val'
        own = next((marked[name] for name in names if name in marked), smaller)
        drawn = [name for name in names if name not in marked]
        part |= dict.fromkeys(drawn, own)
        count[own] += len(drawn)
    return part


def parse_answer(text: str, shown: list[str]) -> list[str]:
    """Parse what somebody has typed.

    Args:
        text: names, beginnings of names, or numbers from 1, separated by commas; numbers also by
            blanks.
        shown: C names in the order of their numbers.

    Returns:
        Unique names, in the order in which they were typed.

    Raises:
        SpmlError: for an unknown or ambiguous name.
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


def predict_held_out(config: Config, task: Task, root: Path | None = None) -> np.ndarray:
    """Predict each training photo with a network that was not trained on it.

    A network that was trained on a wrong label may have memorised it, and one that took an unknown
    label for absent has learned that. So two networks are trained, each on half of the training
    photos, and predict the other half.

    Args:
        config: of both networks.
        task: the photos and labels.
        root: the folder of runs, in which a folder named by the data gets both; None: the setting
            `runs`.

    Returns:
        (N_train, C) probabilities in [0, 1].

    Raises:
        SpmlError: as `spml_nb.training.trainer.train`.
    """
    folder = (root or settings.get_folder('runs')) / f'judges-{task.data.fingerprint}'
    probability = np.empty(task.observed.shape)
    for k, judged in enumerate(split_rows(len(task.train), 0.5)):
        trained = np.setdiff1d(np.arange(len(task.train)), judged)
        half = replace(
            task,
            train=task.train[trained],
            observed=task.observed[trained],
            test=task.train[judged],
            side={kind: values[trained] for kind, values in task.side.items()},
        )
        result = train(config, task=half, root=folder / f'half-{k}')
        probability[judged] = expit(result.logits['test'].astype(float))
    return probability


PRIOR = 10  # pseudo-labels that shrink the evidence of classes with few labels


def find_doubtful_labels(
    probability: np.ndarray, observed: np.ndarray
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rank labels that are probably wrong, and labels that are probably missing.

    Args:
        probability: (N, C) in [0, 1], as from `predict_held_out`.
        observed: (N, C) in {1, 0, −1}.

    Returns:
        Two tables of row and class. The first has a line for each 1, the least supported first:
        support (the probability divided by its mean over photos with that label) and instead (the
        likeliest other class). The second has a line for each 0 and −1, the likeliest first:
        probability (that the label applies, by the evidence of the labelled photos).

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
    r"""(N, C) log odds that an entry resembles the labelled ones of its class rather than the rest.

    The plain probability is not enough (a method may leave a whole class near one half), nor is its
    ratio to the class mean (which may be one percent for a class that was hardly learned). With the
    logits $s$, their mean $t$ over the $n$ labelled photos and $u$ over the others, and their
    variance $\sigma^2$ within both, it is Fisher's discriminant, shrunk for few labels:

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
