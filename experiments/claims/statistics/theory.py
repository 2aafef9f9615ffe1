"""What theory says, as functions of settings."""

import numpy as np
import xarray as xr
from scipy.special import digamma


def harmonic(n: xr.DataArray | float) -> xr.DataArray:
    """The harmonic number H_n = 1 + 1/2 + ... + 1/n, with H_0 = 0: E[max of n exponential times of mean 1]."""
    return xr.apply_ufunc(lambda count: digamma(np.asarray(count, float) + 1) + np.euler_gamma, n)
