"""Newton's method with a dense Hessian, one evaluation at a time: the function's owner also owns the loop.

The value, gradient and Hessian of a likelihood over many chunks come from workers. So, as with ``lbfgs``, the method
never calls an objective. It says where it wants the next evaluation (``NewtonAscent.trial``) and is given the result
(``after``)::

    ascent = NewtonAscent.begin(x)
    while ascent.gain > tolerance and ascent.evaluations < most:
        ascent = ascent.after(*evaluate(ascent.trial))

The function is maximised. A step that ends lower than it began is halved. Cost of a step: O(size^3).

The pairwise models have a Newton's method of their own (``models.pairwise.kernels``): their Hessian is the sparse
Laplacian of a comparison graph, which is never written down as a matrix, and many small queries are fitted in one
kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from distagg.optimise.linear import solved
from distagg.types import Floats

ROUNDING = 1e-12  # a value that is lower by no larger share is as high


@dataclass(frozen=True, slots=True, eq=False)
class NewtonAscent:
    """The way to the maximum of a concave function; nothing is overwritten.

    >>> ascent = NewtonAscent.begin(np.zeros(2))
    >>> while ascent.gain > 1e-9:  # the maximum of -(x0 - 3)^2 - 2 (x1 + 1)^2
    ...     x, y = ascent.trial
    ...     value, gradient = -((x - 3) ** 2) - 2 * (y + 1) ** 2, np.array([-2 * (x - 3), -4 * (y + 1)])
    ...     ascent = ascent.after(value, gradient, np.diag([2.0, 4.0]))
    >>> ascent.x.round(9).tolist(), ascent.evaluations
    ([3.0, -1.0], 2)
    """

    trial: Floats  # (size,) where the next evaluation is wanted
    x: Floats  # (size,) the best point so far
    step: Floats  # (size,) from there to the trial
    value: float  # at x
    gain: float  # what the step promises to add to the value, for each observation
    evaluations: int  # so far

    @classmethod
    def begin(cls, x: Floats) -> NewtonAscent:
        """Before the first evaluation, which is wanted at x."""
        return cls(x, x, np.zeros_like(x), -np.inf, np.inf, 0)

    def after(self, value: float, gradient: Floats, curvature: Floats, observations: float = 1.0) -> NewtonAscent:
        """The next state, from the value, gradient (size,) and minus the Hessian (size, size) at ``trial``."""
        evaluations = self.evaluations + 1
        if self.evaluations and not value >= self.value - ROUNDING * abs(self.value):
            step = 0.5 * self.step
            return replace(self, trial=self.x + step, step=step, gain=0.5 * self.gain, evaluations=evaluations)
        step = solved(curvature, gradient)
        gain = 0.5 * float(gradient @ step) / observations
        return NewtonAscent(self.trial + step, self.trial, step, value, gain, evaluations)
