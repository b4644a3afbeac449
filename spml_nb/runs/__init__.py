"""Runs: a configuration, the folder it is trained in, and the table of all of them."""
from spml_nb.base import lazily

__getattr__ = lazily(__name__, {
    'config': ('ADDED CHOICES Config FINETUNE_LR HEADS IMAGE_SIZES MAP_DEFINITIONS OPTIMIZERS PRECISIONS '
        'PROTOCOL REGIMES SCHEDULES SELECTIONS VIEW_SETS as_dict config_hash neutral '
        'notebook_parameters resolve science_key usual_views'),
    'folder': 'PACKAGES Run provenance read_json',
    'record': 'RECORD export_csv load newest read_record',
})
