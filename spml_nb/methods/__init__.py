"""The methods: one module a family, one registry for all."""
from spml_nb.methods.core import Method, create, names, register, register_loss

__all__ = ['Method', 'create', 'names', 'register', 'register_loss']
