"""Reviews labels that are probably missing or wrong on a local page, and stores each answer."""

import io
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ..base.errors import SpmlError
from ..base.files import hold_lock, print_line, write_atomically
from ..data.folder import find_folder, read_label_table
from ..data.table_editing import back_up_table, write_label
from ..runs.folder import format_json, open_run, read_json
from ..training.plots import open_thumbnail
from ..training.task import make_task
from .annotate import find_doubtful_labels, predict_held_out

MOST_MISSING = 1000  # questions about labels that are probably missing
MOST_WRONG = 100  # questions about labels that are probably wrong
LITTLE_SUPPORT = 0.1  # as in `find_doubtful_labels`
PHOTO_SIDE = 1000  # pixels
ANSWERS = {'yes': 1, 'no': -1, 'skip': None}
HOSTS = ['localhost', '127.0.0.1']  # against DNS rebinding by other pages


class Review:
    """Questions about the labels of a folder, stored with their answers in its review.json.

    Args:
        folder: with images/, labels.csv and review.json.

    Attributes:
        questions: dicts of image (as the table spells it), class, label (1, 0 or −1, before the
            review), probability, answer ('yes', 'no', 'skip', or '' for none yet).
        backup: the copy of the table made before the first answer; None until then.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.table = folder / 'labels.csv'
        self.file = folder / 'review.json'
        self.questions = read_json(self.file, ('questions',))['questions']
        self.backup: Path | None = None

    def answer(self, number: int, word: str) -> None:
        """Store an answer, first in the table and then in review.json.

        Args:
            number: of the question, from 0.
            word: one of `ANSWERS`. 'skip' restores the label if an earlier answer has changed it.

        Raises:
            SpmlError: as `spml_nb.data.table_editing.write_label`, and if a file cannot be written.
        """
        question = self.questions[number]
        label = ANSWERS[word]
        if word == 'skip':
            label = question['label'] if question['answer'] in ('yes', 'no') else None
        with hold_lock(self.table, None):
            if label is not None:
                self.backup = self.backup or back_up_table(self.table)
                write_label(self.table, question['image'], question['class'], label)
            question['answer'] = word
            write_questions(self.folder, self.questions)

    def describe_answers(self) -> str:
        "How many questions are answered, and where the answers are stored."
        answers = [question['answer'] for question in self.questions]
        text = f'{len(answers) - answers.count(""):,} of {len(answers):,} answered; every '
        if 'positives' not in read_label_table(self.table):
            return f'{text}answer is in the table'
        return (
            f'{text}"yes" is in the table; a "no" to a label that it lacked is in review.json '
            'alone, because a column `positives` cannot say that a label is absent'
        )


def write_questions(folder: Path, questions: list[dict]) -> None:
    "Write review.json."
    write_atomically(folder / 'review.json', format_json({'questions': questions}))


def open_review(folder: Path, run: str, tell: Callable[[str], None] = print_line) -> Review:
    """Continue a review, or begin one if no question is open.

    Two networks, trained like the run on one half of the training photos each, predict the other
    half. Answered questions are not asked again. Test and validation photos are never asked about:
    what a model suggests must not decide what models are measured against.

    Args:
        folder: with images/ and labels.csv.
        run: its folder or its name in the setting `runs`.
        tell: takes one line.

    Raises:
        SpmlError: as `spml_nb.runs.folder.open_run`, `spml_nb.training.task.make_task` and
            `spml_nb.training.trainer.train`.
    """
    answered = []
    if (folder / 'review.json').is_file():
        review = Review(folder)
        answered = [question for question in review.questions if question['answer']]
        if len(answered) < len(review.questions):
            tell(f'review.json: {len(answered):,} of {len(review.questions):,} are answered')
            return review
    tell('training two networks, each on one half of the training photos')
    config = replace(open_run(run).config, dataset=str(folder), labels='full', device=None)
    task = make_task(config)
    missing, wrong = _choose_doubts(predict_held_out(config, task), task.observed)
    images = read_label_table(folder / 'labels.csv')['image'].to_numpy()[task.train]
    before = {(question['image'], question['class']) for question in answered}
    questions = []
    for row, c, probability in pd.concat([missing, wrong]).itertuples(index=False):
        name = task.data.class_names[c]
        if (images[row], name) not in before:
            label = int(task.observed[row, c])
            question = {'image': images[row], 'class': name, 'label': label}
            questions.append(question | {'probability': round(probability, 3), 'answer': ''})
    write_questions(folder, [*answered, *questions])
    return Review(folder)


def retraining_command(folder: Path, run: str) -> str:
    """The command that trains a run again, with its settings and seed, on the labels of a folder.

    Args:
        folder: of photos, absolute.
        run: as in `open_review`.
    """
    words = ['spml', 'train', '--like', Path(run).name]
    with suppress(SpmlError):  # a review may outlive its run
        config = open_run(run).config
        if find_folder(config.dataset, config.root) != folder:
            words += ['-p', 'dataset', str(folder)]  # a copy of the run's photos was reviewed
    return shlex.join(words)


def _choose_doubts(
    probability: np.ndarray, observed: np.ndarray
) -> tuple[pd.DataFrame, pd.DataFrame]:
    "Tables of row, class and probability: labels probably missing, and probably wrong."
    wrong, missing = find_doubtful_labels(probability, observed)
    if (observed == 0).any():  # then a -1 is somebody's statement, not a default
        missing = missing[observed[missing['row'], missing['class']] == 0]
    missing = missing[missing.probability >= 0.5].head(MOST_MISSING)
    wrong = wrong[wrong.support < LITTLE_SUPPORT].head(MOST_WRONG)
    wrong = wrong.assign(probability=probability[wrong['row'], wrong['class']])
    return missing, wrong[['row', 'class', 'probability']]


def make_review_app(review: Review, next_command: str = '') -> Starlette:
    """Make the review as an ASGI application for this machine alone.

    `GET /` is the page, `GET /questions` the list, `GET /photos/3` the photo of a question, and
    `PUT /answers/3/yes` answers it. Other sites cannot answer, because browsers send a PUT across
    sites only after a preflight request, which this application does not grant.

    Args:
        review: whose questions to ask.
        next_command: shown once everything is answered, as from `retraining_command`.
    """
    page = (resources.files('spml_nb') / 'assets' / 'review.html').read_text(encoding='utf-8')

    async def show_page(request: Request) -> HTMLResponse:
        return HTMLResponse(page)

    async def list_questions(request: Request) -> JSONResponse:
        kept = 'positives' not in read_label_table(review.table)
        answer = {'questions': review.questions, 'no_is_kept': kept, 'next': next_command}
        return JSONResponse(answer)

    async def show_photo(request: Request) -> Response:
        question = _find(review, request)
        try:
            content = await run_in_threadpool(_read_photo, review.folder, question['image'])
        except Exception as error:  # decoders raise many types for damaged files
            raise HTTPException(404, str(error)) from None
        return Response(content, media_type='image/jpeg')

    async def answer(request: Request) -> JSONResponse:
        word = request.path_params['word']
        _find(review, request)
        if word not in ANSWERS:
            raise HTTPException(404, f'{word!r} is no answer; allowed: {", ".join(ANSWERS)}')
        try:
            review.answer(request.path_params['number'], word)
        except SpmlError as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse({'answer': word})

    return Starlette(
        routes=[
            Route('/', show_page),
            Route('/questions', list_questions),
            Route('/photos/{number:int}', show_photo),
            Route('/answers/{number:int}/{word}', answer, methods=['PUT']),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)],
    )


def _find(review: Review, request: Request) -> dict:
    number = request.path_params['number']
    if number >= len(review.questions):
        raise HTTPException(404, f'there are {len(review.questions)} questions')
    return review.questions[number]


def _read_photo(folder: Path, image: str) -> bytes:
    jpeg = io.BytesIO()
    pixels = open_thumbnail([folder / 'images' / image], 0, PHOTO_SIDE)
    Image.fromarray(pixels).save(jpeg, 'JPEG')
    return jpeg.getvalue()
