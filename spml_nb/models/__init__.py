"""Backbones, heads, and the model that joins them."""
from spml_nb.base import lazily

__getattr__ = lazily(__name__, {
    'backbones': ('AUXILIARY Backbone CLASSIFIERS OLD_DENSENET SHORT_LIST as_map build_backbone '
        'cut_torchvision download efficientnet_lite0_backbone efficientnet_lite0_weights '
        'feature_map load_weights mini_backbone names read_weights timm_backbone '
        'torchvision_backbone trial_run'),
    'heads': 'Attention AttentionLayer CosineHead HEADS LabelWiseHead LinearHead Outputs sine_positions',
    'model': 'CONTAINERS Model attention_maps class_activation create stages',
})
