import pytest
import torch
from networks import CASES

from spml_nb import models


@pytest.fixture(scope='session')
def built():
    "One model for each backbone and head, random weights; tests that change one take a copy."
    torch.manual_seed(0)
    return {case: models.create(case[0], 5, head=case[1], weights='none') for case in CASES}
