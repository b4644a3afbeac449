from ..data.dataset import find_family as find_family
from .core import Method as Method
from .core import create as create
from .core import find as find
from .core import names as names
from .core import register as register
from .core import register_loss as register_loss
from .core import resolve_hparams as resolve_hparams
