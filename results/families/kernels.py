"""Kernel regression (Nadaraya 1964, Watson 1964): fixed and learned widths."""

from results.schema import Run, Table

TABLES = {
    "kernels": Table(
        metrics={"mean squared error": "mse", "width": "width"},
        curves=False,
        digits=2,
        runs=(
            Run(
                name="kernels_average",
                config="kernel_regression:average",
                seeds=(0, 1, 2, 3, 4),
                label="average of all points",
            ),
            Run(
                name="kernels_boxcar",
                config="kernel_regression:boxcar",
                seeds=(0, 1, 2, 3, 4),
                label="boxcar, width 1",
            ),
            Run(
                name="kernels_triangular",
                config="kernel_regression:triangular",
                seeds=(0, 1, 2, 3, 4),
                label="triangular, width 1",
            ),
            Run(
                name="kernels_epanechnikov",
                config="kernel_regression:epanechnikov",
                seeds=(0, 1, 2, 3, 4),
                label="Epanechnikov, width 1",
            ),
            Run(
                name="kernels_gaussian",
                config="kernel_regression:gaussian",
                seeds=(0, 1, 2, 3, 4),
                label="Gaussian, width 0.5",
            ),
            Run(
                name="kernels_learned",
                config="kernel_regression",
                seeds=(0, 1, 2, 3, 4),
                label="Gaussian, learned width",
            ),
            Run(
                name="kernels_no_leave_one_out",
                config="kernel_regression:no_leave_one_out",
                seeds=(0, 1, 2, 3, 4),
                label="Gaussian, learned width, no leave-one-out",
            ),
        ),
    ),
}
