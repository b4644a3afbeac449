"""Every hyper-parameter that the papers give, with its source."""

from dataclasses import dataclass, field, fields, replace

import pandas as pd

from ..base.errors import one_of

ORIGINS = {
    'paper': 'paper: {where}',
    'code': "authors' code: {where}",
    'cole': 'Cole et al. 2021: {where}',
    'cited': 'cited: {where}',
    'chosen': 'not stated ({where}) -> chosen here: {value}',
    'lost': 'lost ({where}) -> chosen here: {value}',
}


@dataclass(frozen=True)
class Value:
    """One hyper-parameter and its source.

    Args:
        value: the value, or in the tables of `PAPERS` a mapping from data set to value.
        origin: a key of `ORIGINS`.
        where: section or table of the paper, or what a choice rests on.
    """

    value: object
    origin: str
    where: str

    @property
    def source(self) -> str:
        "Origin and place in words."
        return ORIGINS[self.origin].format(where=self.where, value=self.value)


def _origin(origin: str):
    return lambda value, where: Value(value, origin, where)


printed, in_code, by_cole, cited, chosen, lost = map(_origin, ORIGINS)


def four(voc12, coco14, nus, cub) -> dict:
    """One value for each data set of the single-positive papers.

    Args:
        voc12, coco14, nus, cub: the values.

    Returns:
        {data set: value}.
    """
    return {'voc12': voc12, 'coco14': coco14, 'nus': nus, 'cub': cub}


POSITIVES = four(1.5, 2.9, 1.9, 31.4)  # an image has so many on average


@dataclass(frozen=True)
class Paper:
    """The hyper-parameters of a paper.

    Args:
        title: first author and short title.
        datasets: its data sets.
        every: {name: Value or list of Value} for all losses.
        losses: {loss: {name: Value or list of Value}}, its own first.
        on: {loss: its data sets} for losses that are not compared on all of them.
        copied: {another paper: losses whose results and values it quotes from there}.
    """

    title: str
    datasets: tuple
    every: dict
    losses: dict
    on: dict = field(default_factory=dict)
    copied: dict = field(default_factory=dict)


PAPERS = {}


PAPERS['hml'] = Paper(
    'Ke et al., Hyperspherical Learning in Multi-Label Classification',
    ('voc12', 'coco14', 'cub', 'nus'),
    every=dict(
        labels=printed('single', '4.1; full in Table 3, partial in Fig. 4'),
        label_seed=by_cole(1200, 'code; the paper uses the same sampled labels'),
        backbone=printed('resnet50', '4.1'),
        image_size=by_cole(448, 'appendix'),
        views=by_cole('flip', 'appendix'),
        optimizer=printed('adam', '4.1'),
        epochs=printed(10, '4.1'),
        batch_size=chosen(
            four(8, 16, 16, 8),
            '4.1 prints the search only (8, 16); the choices of EM/APL, Table 5, from the same',
        ),
        lr=chosen(
            four(1e-5, 1e-5, 1e-5, 1e-4),
            '4.1 prints the search only (1e-5 to 1e-2); the choices of EM/APL, Table 5',
        ),
        head_lr_multiplier=chosen(1, 'one learning rate is stated'),
        selection=printed('val_clean', '4.1; fully labelled as in Cole et al.'),
    ),
    losses=dict(
        hml=dict(
            scale=chosen(20, 'where s* starts; the fixed value, 4.5'),
            margin=chosen(0.3, 'where m* starts; the fixed value, 4.5'),
            adaptive_lr=chosen(1e-2, "at the network's 1e-5 they would not move"),
        ),
        hml_fixed=dict(scale=printed(20, '4.5'), margin=printed(0.3, '4.5')),
        an={},
        bce=dict(labels=printed('full', 'Table 3')),
        ls=dict(smoothing=by_cole(0.1, 'appendix')),
        wan={},
        epr=dict(k=by_cole(POSITIVES, 'positives an image')),
        role=dict(k=by_cole(POSITIVES, 'positives an image'), estimate_lr=by_cole(10, 'code')),
    ),
)


_EM = dict(
    batch_size=printed(four(8, 16, 16, 8), 'Table 5'),
    lr=printed(four(1e-5, 1e-5, 1e-5, 1e-4), 'Table 5'),
    alpha=printed(four(0.2, 0.1, 0.1, 0.01), 'Table 5'),
)

PAPERS['em_apl'] = Paper(
    'Zhou et al., Acknowledging the Unknown (supplement)',
    ('voc12', 'coco14', 'nus', 'cub'),
    every=dict(
        labels=printed('single', 'title'),
        label_seed=by_cole(1200, 'code'),
        seed=in_code(0, 'three runs, seeds 0, 1 and 8'),
        backbone=by_cole('resnet50', 'section 4'),
        image_size=by_cole(448, 'appendix'),
        views=by_cole('flip', 'appendix'),
        optimizer=in_code('adam', 'training script'),
        epochs=in_code(10, 'training script'),
        patience=in_code(1, 'stops at the first epoch whose validation mAP does not rise'),
        batch_size=chosen(
            four(8, 16, 16, 8), 'Table 5 gives those of EM and APL, of 8 and 16; the same for all'
        ),
        lr=chosen(
            four(1e-5, 1e-5, 1e-5, 1e-4),
            'Table 5 gives those of EM and APL, of 1e-5 to 1e-2; the same for all',
        ),
        head_lr_multiplier=chosen(1, 'one learning rate is stated'),
        selection=printed('val_clean', 'C.3'),
    ),
    losses=dict(
        em=_EM,
        em_apl=_EM
        | dict(
            beta=printed(four(0.02, 0.9, 0.2, 0.4), 'Table 5'),
            proportion=printed(0.9, 'Table 5'),
            warm_up=printed(four(5, 5, 4, 3), 'Table 5'),
        ),
        an={},
        bce=dict(labels=printed('full', 'E')),
        dw=dict(negative_weight=printed(four(0.1, 0.1, 0.1, 0.02), 'C.3')),
        l1=dict(weight=printed(four(1e-6, 1e-7, 1e-7, 1e-9), 'C.3')),
        l2=dict(
            weight=chosen(
                four(1e-6, 1e-7, 1e-7, 1e-8),
                'C.3 prints five values for four data sets: 1e-6; 1e-7, 1e-7, 1e-6, 1e-8',
            )
        ),
        ls=dict(smoothing=printed(0.1, 'C.3')),
        nls=dict(smoothing=printed(four(0.3, 0.1, 0.1, 0.1), 'C.3')),
        entmin=dict(weight=printed(four(0.01, 0.9, 0.4, 0.4), 'C.3')),
        focal=dict(gamma=printed(2, 'C.3'), alpha=printed(0.75, 'C.3')),
        asl=dict(
            gamma_pos=printed(0, 'C.3'),
            gamma_neg=printed(four(2, 2, 2, 1), 'C.3'),
            margin=printed(four(0.2, 0.2, 0.2, 0), 'C.3'),
        ),
        role=dict(
            k=by_cole(POSITIVES, 'positives an image'),
            estimate_lr=by_cole(10, 'code'),
            linear_epochs=by_cole(25, 'LinearInit (ROLE+LI: regime linear_init)'),
            linear_lr=by_cole(1e-3, 'LinearInit'),
        ),
    ),
)


_LARGE_LOSS = dict(
    optimizer=cited(four('sgd', 'adam', 'adam', 'adam'), 'Kim et al. 2022, code'),
    momentum=cited(0.9, 'Kim et al. 2022, code (VOC)'),
    nesterov=cited(False, 'Kim et al. 2022, code (VOC), plain momentum'),
    weight_decay=cited(four(1e-3, 0, 0, 0), 'Kim et al. 2022, code'),
    lr=cited(four(5e-3, 1e-5, 1e-5, 7.5e-5), 'Kim et al. 2022, code'),
    head_lr_multiplier=cited(10, 'Kim et al. 2022, code'),
    stop_below=cited(3, 'Kim et al. 2022, code'),
    batch_size=chosen(16, 'not in the sources at hand'),
    epochs=chosen(10, 'not in the sources at hand'),
)
_OPML = dict(
    alpha=lost(0.5, 'Fig. 5; the pair that is ZLPR'),
    beta=lost(0.5, 'Fig. 5; the pair that is ZLPR'),
)

PAPERS['opml'] = Paper(
    'Li et al., Pushing One Pair of Labels Apart Each Time',
    ('voc12', 'coco14', 'nus', 'cub'),
    every=dict(
        labels=printed('single', 'IV-A'),
        label_seed=by_cole(1200, 'code'),
        backbone=printed('resnet50', 'IV-A, with V1 weights'),
        image_size=by_cole(448, 'appendix'),
        views=by_cole('flip', 'appendix'),
        optimizer=printed('sgd', 'IV-G'),
        momentum=chosen(0.9, 'the usual one'),
        nesterov=chosen(False, 'IV-G says SGD only'),
        epochs=lost(10, 'IV-G; as in Cole et al.'),
        batch_size=lost(four(8, 16, 16, 8), 'IV-G; as in EM/APL, Table 5'),
        lr=lost(5e-3, 'IV-G; the rate of SGD in Large loss on VOC'),
        head_lr_multiplier=chosen(1, 'one rate for all'),
        selection=printed('val_clean', 'IV-A'),
    ),
    losses=dict(
        opml=_OPML,
        opml_sp=_OPML
        | dict(
            rank_weight=lost(1e-3, 'Fig. 6'),
            rank_eps=chosen(1e-3, 'not in the paper; keeps the determinant above 0'),
            gamma=lost(4, 'IV-G'),
            ratio=lost(0.05, 'IV-G'),
            cap=lost(0.5, 'IV-G, the same for all data sets'),
        ),
        zlpr={},
        llr=_LARGE_LOSS | dict(delta=cited(four(0.002, 0.004, 0.004, 0.004), 'Kim et al. 2022')),
        llct=_LARGE_LOSS | dict(delta=cited(four(0.002, 0.002, 0.002, 0.004), 'Kim et al. 2022')),
        llcp=_LARGE_LOSS | dict(delta=cited(four(0.001, 0.002, 0.002, 0.002), 'Kim et al. 2022')),
    ),
    copied=dict(
        em_apl=('an', 'bce', 'dw', 'l1', 'l2', 'ls', 'nls', 'role', 'em', 'em_apl', 'focal', 'asl')
    ),
)


_PLC = dict(
    lambda_plc=printed(1, '4.1'),
    threshold=[
        chosen(
            dict(voc12=0.6, nus=0.6), 'the paper names the search, 0.5 to 0.9; the value of COCO'
        ),
        in_code(dict(coco14=0.6, cub=0.5), 'first stage'),
    ],
    form=in_code('code', 'mask and mean of the PLC loss'),
)

PAPERS['lac'] = Paper(
    'Xie et al., Label-Aware Global Consistency',
    ('voc12', 'coco14', 'nus', 'cub'),
    every=dict(
        labels=printed('single', '4.1'),
        label_seed=by_cole(1200, 'code'),
        seed=printed(1, '4.1'),
        backbone=printed('resnet50', '4.1'),
        head=printed('labelwise', '4.1; columns LEM of Table 2'),
        image_size=printed(448, '4.1'),
        views=in_code('flip', 'strong view with jitter and grey; by the paper, 4.1: flip_bare'),
        normalise=in_code(False, 'images enter as they are'),
        freeze_batchnorm=in_code(True, 'backbone'),
        frozen_stages=in_code(2, 'stem and layer1'),
        optimizer=printed('adamw', '4.1'),
        weight_decay=printed(0.01, '4.1'),
        schedule=printed('onecycle', '4.1'),
        lr=printed(1e-4, '4.1, the highest of the cycle'),
        head_lr_multiplier=chosen(1, 'one learning rate is stated'),
        epochs=printed(40, '4.1; in the code at most, of each stage'),
        patience=in_code(8, 'early stopping'),
        batch_size=in_code(32, 'the paper names the search only, 8 to 64'),
        ema=printed(0.9997, '4.1'),
        precision=in_code('fp16', 'AMP'),
        selection=printed('val_clean', '4.1'),
    ),
    losses=dict(
        lac=_PLC
        | dict(
            lambda_lac=printed(1, '4.1'),
            stage2_threshold=[
                chosen(
                    dict(voc12=0.9, nus=0.9),
                    'the paper searches δ of stage 1, 0.5 to 0.9; the value of COCO',
                ),
                in_code(dict(coco14=0.9, cub=0.5), 'second stage'),
            ],
            temperature=in_code(0.5, 'the paper shows a sweep only, 0.1 to 2, Fig. 4'),
            queue=in_code(512, 'the paper names the search only, 512 to 8192'),
            projection=in_code(128, 'projection head'),
        ),
        lac_plc=_PLC,
        an={},
        wan={},
        epr=dict(k=cited(POSITIVES, 'Cole et al. 2021')),
        ls=dict(smoothing=cited(0.1, 'Cole et al. 2021')),
        role=dict(
            k=cited(POSITIVES, 'Cole et al. 2021'), estimate_lr=cited(10, 'Cole et al. 2021, code')
        ),
        em=dict(alpha=cited(four(0.2, 0.1, 0.1, 0.01), 'EM/APL, Table 5')),
        em_apl=dict(
            alpha=cited(four(0.2, 0.1, 0.1, 0.01), 'EM/APL, Table 5'),
            beta=cited(four(0.02, 0.9, 0.2, 0.4), 'EM/APL, Table 5'),
            proportion=cited(0.9, 'EM/APL, Table 5'),
            warm_up=cited(four(5, 5, 4, 3), 'EM/APL, Table 5'),
        ),
    ),
)


_IGNORED = dict(unknown=chosen(dict(vaw='ignore'), 'most cells of VAW are unlabelled'))
_TWO_WAY = dict(T_pos=printed(4, '4.2'), T_neg=printed(1, '4.2'), bucket=printed(128, '4.1'))
_MULTI_LABEL = ('coco14', 'vispr', 'vaw', 'wider', 'voc07', 'voc12')

PAPERS['two_way'] = Paper(
    'Kobayashi, Two-way Multi-Label Loss',
    (*_MULTI_LABEL, 'imagenet'),
    every=dict(
        labels=printed('full', '2.2'),
        backbone=printed('resnet50', '4.2; four in Table 7'),
        image_size=in_code(224, 'crop'),
        views=in_code(
            'crop',
            'random resized crop, flip, jitter 0.4, PCA lighting 0.1; resize 256 and centre crop',
        ),
        optimizer=printed('sgd', '4.1'),
        momentum=printed(0.9, '4.1'),
        nesterov=in_code(True, 'optimiser; the paper says momentum only'),
        weight_decay=printed(1e-4, '4.1'),
        batch_size=printed(512, '4.1; batch norms see 128 on each of its four GPUs, all 512 here'),
        epochs=[printed(40, '4.1'), printed(dict(imagenet=90), '4.4')],
        schedule=printed('cosine', '4.1'),
        lr=[printed(1e-3, '4.1'), printed(dict(imagenet=0.1), '4.4')],
        head_lr_multiplier=[
            printed(10, '4.1, 0.01 against 0.001'),
            chosen(dict(imagenet=1), 'one learning rate is stated'),
        ],
        precision=in_code('fp16', 'AMP'),
        hold_out=in_code(False, 'trains on all training images'),
        selection=in_code('last', 'reports the last epoch'),
        map_definition=in_code('two_way', 'classes without positives are left out'),
        weights=printed(dict(imagenet='none'), '4.4, from scratch'),
    ),
    losses=dict(
        two_way=_TWO_WAY | _IGNORED,
        softmax=dict(bucket=printed(128, '4.1')) | _IGNORED,
        wbce=_IGNORED,
        focal=dict(gamma=printed(2, '4.3'), alpha=chosen(0.25, 'the default of Lin et al. 2017'))
        | _IGNORED,
        asl=dict(
            gamma_pos=printed(0, '4.3'), gamma_neg=printed(4, '4.3'), margin=printed(0.05, '4.3')
        )
        | _IGNORED,
        two_way_class=_TWO_WAY,
        two_way_sample=_TWO_WAY,
        softmax_two_way=dict(bucket=printed(128, '4.1')),
        joint=dict(T_pos=printed(4, 'Table 4b, the best of its row'), bucket=printed(128, '4.1')),
        multi_similarity=dict(T_pos=printed(4, 'Table 4a, the best of its row')),
    ),
    on=dict(
        wbce=_MULTI_LABEL,
        focal=_MULTI_LABEL,
        two_way_class=('coco14',),
        two_way_sample=('coco14',),
        softmax_two_way=('coco14',),
        joint=('coco14',),
        multi_similarity=('coco14',),
    ),
)


def datasets(paper: str) -> list[str]:
    """The data sets of a paper.

    Args:
        paper: one of `PAPERS`.

    Returns:
        Names.

    Raises:
        SpmlError: for an unknown paper.
    """
    return list(PAPERS[one_of(paper, PAPERS, 'paper')].datasets)


def losses(paper: str, dataset: str) -> list[str]:
    """The losses that a paper's tables have on a data set, its own first.

    Args:
        paper: one of `PAPERS`.
        dataset: one of `datasets(paper)`.

    Returns:
        Names of registered methods.

    Raises:
        SpmlError: for an unknown paper or a data set that it does not have.
    """
    one_of(dataset, datasets(paper), f'data set of {paper!r}')
    given = PAPERS[paper]
    own = [loss for loss in given.losses if dataset in given.on.get(loss, given.datasets)]
    return own + [loss for names in given.copied.values() for loss in names]


def values(paper: str, dataset: str, loss: str) -> dict[str, Value]:
    """Every hyper-parameter that the sources give for a run of a paper, or that they have lost.

    Args:
        paper, dataset, loss: as in `losses`.

    Returns:
        {name: Value}; a name is a field of `Config` or a hyper-parameter of the loss.

    Raises:
        SpmlError: for a combination that the paper does not have.
    """
    one_of(loss, losses(paper, dataset), f'loss of {paper!r} on {dataset!r}')
    for source, names in PAPERS[paper].copied.items():
        if loss in names:
            return {
                name: _quoted(value, source)
                for name, value in values(source, dataset, loss).items()
            }
    given = {
        name: _on(dataset, value)
        for name, value in (PAPERS[paper].every | PAPERS[paper].losses[loss]).items()
    }
    return {name: value for name, value in given.items() if value is not None}


def _on(dataset: str, given: Value | list[Value]) -> Value | None:
    "The last of the values that holds for a data set."
    for value in reversed(given if isinstance(given, list) else [given]):
        if not isinstance(value.value, dict):
            return value
        if dataset in value.value:
            return replace(value, value=value.value[dataset])
    return None


def _quoted(value: Value, paper: str) -> Value:
    "A value as another paper quotes it."
    return (
        replace(value, origin='cited', where=f'as in {paper}, {value.where}')
        if value.origin == 'paper'
        else value
    )


def preset(paper: str, dataset: str, loss: str) -> dict:
    """A run of a paper as the fields of a configuration.

    Args:
        paper, dataset, loss: as in `losses`.

    Returns:
        {field: value} for `Config(**preset(...))`; change what you like before.

    Raises:
        SpmlError: for a combination that the paper does not have.
    """
    from spml_nb.runs.config import Config

    given, names = values(paper, dataset, loss), {f.name for f in fields(Config)}
    own = {name: value.value for name, value in given.items() if name not in names}
    return {
        'loss': loss,
        'dataset': dataset,
        'hparams': own,
        **{name: value.value for name, value in given.items() if name in names},
    }


def table(paper: str | None = None) -> pd.DataFrame:
    """Every preset, value by value.

    Args:
        paper: one of `PAPERS`; unset: all.

    Returns:
        DataFrame with the columns paper, dataset, loss, name, value, origin and source.

    Raises:
        SpmlError: for an unknown paper.
    """
    return pd.DataFrame(
        [
            {
                'paper': p,
                'dataset': d,
                'loss': loss,
                'name': name,
                'value': v.value,
                'origin': v.origin,
                'source': v.source,
            }
            for p in ([paper] if paper else PAPERS)
            for d in datasets(p)
            for loss in losses(p, d)
            for name, v in values(p, d, loss).items()
        ]
    )


def overview(paper: str, loss: str | None = None) -> pd.DataFrame:
    """A paper's presets side by side.

    Args:
        paper: one of `PAPERS`.
        loss: one of its losses; unset: its own main one.

    Returns:
        DataFrame indexed by name, with one column per data set and the source.

    Raises:
        SpmlError: for an unknown paper, or a loss that it does not have.
    """
    every = list(dict.fromkeys(name for d in datasets(paper) for name in losses(paper, d)))
    loss = one_of(loss or every[0], every, f'loss of {paper!r}')
    rows = table(paper)[lambda t: t.loss == loss].assign(value=lambda t: t.value.astype(str))
    wide = rows.pivot(index='name', columns='dataset', values='value')
    wide = wide.reindex(index=rows.name.unique(), columns=rows.dataset.unique()).fillna('·')
    sources = rows.source.str.replace(
        r'(chosen here): .*', r'\1', regex=True
    )  # the values stand in the columns
    return wide.assign(
        source=sources.groupby(rows.name).agg(lambda s: ' | '.join(dict.fromkeys(s)))
    )
