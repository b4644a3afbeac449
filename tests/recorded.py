"""What the second programs share: which lines of outputs/runs.csv are a suite's own.

No line here is shared with what the pages are made by. Arms of ablations, long curves of figures,
runs of the last epoch and runs that train on validation photos share losses, seeds and data with
the searches and their finals, and are neither.
"""

import numpy as np
import pandas as pd

BACKBONE = 'efficientnet_lite0'
LABELWISE = (30, 8)  # (epochs, patience) of a suite
SCHEDULED = (40, 0)  # of losses whose schedule has an end
OTHERS = ((60, 10), (120, 10), (60, 8))  # the last of LAC's recipe


def of_a_suite(runs: pd.DataFrame, photos: int = 0, backbone: str = BACKBONE) -> pd.Series:
    """Whether each line trains as the searches and finals of heads on frozen features do.

    Args:
        photos: so many of the training photos; 0: all.
        backbone: whose features; the study has runs on others too.

    An arm that does so as well, such as those on the label-wise head, is told from the final runs
    of a search by its rate and hyper-parameters: where these are equal, so are the runs.
    """

    def column(name, usual):
        return runs[name].fillna(usual) if name in runs else pd.Series(usual, runs.index)

    length = list(zip(column('epochs', 60), column('patience', 10), strict=True))
    scheduled = runs.loss.isin(['em_apl', 'gr'])
    labelwise = column('head', 'linear') == 'labelwise'
    expected = np.select(
        [labelwise, scheduled],
        [[each == LABELWISE for each in length], [each == SCHEDULED for each in length]],
        [each in OTHERS for each in length],
    )
    return (
        expected.astype(bool)
        & (column('regime', 'linear') == 'linear')
        & (column('backbone', BACKBONE) == backbone)
        & (column('selection', 'val_clean') == 'val_clean')
        & (column('train_images', 0) == photos)
        & (column('trained_validation', '') == '')
    )
