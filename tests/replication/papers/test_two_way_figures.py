"""What the figure of Two-way draws."""
import numpy as np
import pytest

from spml_nb.replication.papers import two_way_figures


def test_the_tempered_log_sum_exp():
    gap = np.array([0.0, 0.5, 3.0, 50.0])
    for T in two_way_figures.TEMPERATURES:
        plain = [T * np.log(np.exp(5 / T) + np.exp((5 - g) / T)) - 5 for g in gap]
        assert np.allclose(two_way_figures.tempered(gap, T), plain) and two_way_figures.tempered(gap, T)[0] == pytest.approx(T * np.log(2))
