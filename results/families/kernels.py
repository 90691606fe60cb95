"""Kernel regression (Nadaraya 1964, Watson 1964): fixed and learned widths."""

from results.schema import Table, fields, runs

TABLES = {
    "kernels": Table(
        metrics=fields("mean squared error: mse | width: width"),
        digits=2,
        runs=runs("""
        kernels_average kernel_regression:average | average of all points || 5
        kernels_boxcar kernel_regression:boxcar | boxcar, width 1 || 5
        kernels_triangular kernel_regression:triangular | triangular, width 1 || 5
        kernels_epanechnikov kernel_regression:epanechnikov | Epanechnikov, width 1 || 5
        kernels_gaussian kernel_regression:gaussian | Gaussian, width 0.5 || 5
        kernels_learned kernel_regression | Gaussian, learned width || 5
        kernels_no_leave_one_out kernel_regression:no_leave_one_out
            | Gaussian, learned width, no leave-one-out || 5
        """),
    ),
}
