"""Readers of the papers’ data sets in their official layouts."""
from spml_nb.base import lazily

__getattr__ = lazily(__name__, {
    'coco': 'COCO14 read_coco14',
    'cub': 'CUB CUB_ARCHIVE CUB_HELP read_cub',
    'photos': 'CCP read_ccp',
    'registry': ('Archive Benchmark Listing MOST_CELLS REGISTRY check find inside lines names overview '
        'prepare register single table table_text undecodable verify'),
    'voc': 'VOC07 VOC12 VOC_CLASSES VOC_TERMS read_voc07 read_voc12',
    'attributes': 'VAW VISPR WIDER crops read_vaw read_vispr read_wider',
    'nus': 'NUS read_nus',
    'transfer': ('IMAGENET read_aircraft read_caltech101 read_cars read_cub_species read_dtd read_flowers '
        'read_food101 read_imagenet read_pets read_sun'),
})
