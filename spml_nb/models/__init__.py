"""Backbones, heads, and the model that joins them."""

from spml_nb.base import lazily

__getattr__ = lazily(
    __name__,
    {
        'backbones': 'Backbone build_backbone feature_map names',
        'heads': 'CosineHead HEADS LabelWiseHead LinearHead MapsHead Outputs',
        'model': 'Model attention_maps class_activation create stages',
    },
)
