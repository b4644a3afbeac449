"""Serves a trained model over HTTP: a page to drop a photo on, and an address for programs."""

import asyncio
import io
from importlib import resources
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from ..base.errors import SpmlError
from ..data.decoding import FORMATS, open_photo
from .predictor import Predictor, read_images

MAX_BYTES = 20 * 2**20  # of a photo
MAX_SECONDS = 10  # until a photo has arrived
MAX_REQUESTS = 16  # at a time; more are refused


def make_app(model: Predictor, max_seconds: float = MAX_SECONDS) -> Starlette:
    """Make the service as an ASGI application.

    `GET /` is the page, `GET /health` says that the model is ready, and `POST /predict` takes a
    photo's bytes as the body: `curl --data-binary @photo.jpg localhost:8000/predict`. It answers
    with JSON: labels (names), probabilities ({name: probability}) and threshold. The status is 400
    for a body that is no photo, 408 for one that is too slow, 413 for one that is too large, and
    500 if the model gives no finite numbers.

    Args:
        model: as from `spml_nb.use.predict.open_model`.
        max_seconds: how long a photo may take to arrive.
    """
    one_at_a_time = asyncio.Semaphore(1)  # a network uses all cores for a single photo
    page = (resources.files('spml_nb') / 'assets' / 'serve.html').read_text(encoding='utf-8')

    async def show_page(request: Request) -> HTMLResponse:
        return HTMLResponse(page)

    async def report_health(request: Request) -> JSONResponse:
        return JSONResponse({'status': 'ok', 'classes': model.class_names})

    async def answer(request: Request) -> JSONResponse:
        try:
            body = await asyncio.wait_for(_read_body(request), max_seconds)
        except TimeoutError:
            raise HTTPException(408, f'no whole photo within {max_seconds} seconds') from None
        async with one_at_a_time:
            pixels = await run_in_threadpool(_read_photo, model, body)
            return JSONResponse(await run_in_threadpool(_predict, model, pixels))

    routes = [
        Route('/', show_page),
        Route('/health', report_health),
        Route('/predict', answer, methods=['POST']),
    ]
    handlers: dict[Any, Any] = {HTTPException: _explain}
    return Starlette(routes=routes, exception_handlers=handlers)


async def _read_body(request: Request) -> bytes:
    "The body, of which no more than `MAX_BYTES` is read."
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f'a photo may have {MAX_BYTES:,} bytes, this one has more')
    return bytes(body)


def _read_photo(model: Predictor, body: bytes) -> np.ndarray:
    "(1, 3, S, S) uint8."
    size, resize = model.description['image_size'], model.description['resize']
    try:
        pixels = read_images(['the photo'], [open_photo(io.BytesIO(body))], size, resize)
    except UnidentifiedImageError:
        formats = ', '.join(FORMATS)
        raise HTTPException(400, f'the body is no photo; allowed: {formats}') from None
    except (SpmlError, ValueError, OSError, Image.DecompressionBombError) as error:
        raise HTTPException(400, str(error)) from None
    return np.stack(pixels).transpose(0, 3, 1, 2)


def _predict(model: Predictor, pixels: np.ndarray) -> dict:
    try:
        (row,) = model(pixels)
    except SpmlError as error:
        raise HTTPException(500, str(error)) from None
    probabilities = dict(zip(model.class_names, map(float, row), strict=True))
    return {
        'labels': [name for name, p in probabilities.items() if p >= model.threshold],
        'probabilities': probabilities,
        'threshold': model.threshold,
    }


async def _explain(request: Request, error: HTTPException) -> JSONResponse:
    return JSONResponse({'error': error.detail}, error.status_code)
