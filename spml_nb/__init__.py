__version__ = "0.1.0"


def __getattr__(name):
    "`from spml_nb import predict` loads torch only when it is asked for."
    if name != 'predict': raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from spml_nb.use.predict import predict
    return predict
