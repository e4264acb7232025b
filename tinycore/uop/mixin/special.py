"""Inverse trigonometric functions and erf, by polynomials of the smallest degree that suffices.

The coefficients (highest power first) are least-maximum fits made with 60 digits. Each pair is for
float32 and shorter, and for float64.
"""

from __future__ import annotations

import math
from typing import Self

from tinycore.dtype import dtypes
from tinycore.uop.mixin.elementwise import Elementwise
from tinycore.uop.ops_table import Ops

_LOG2E = 1 / math.log(2)
_PI_8 = math.tan(math.pi / 8)

# atan(x) / x in x * x, for x up to tan(pi / 8)
_ATAN = (
    (
        -0.06025934885056124,
        0.10569685283640824,
        -0.14239513423957814,
        0.19998182002716527,
        -0.33333306873799395,
        0.9999999993706711,
    ),
    (
        0.021132810313338496,
        -0.0434784293457331,
        0.05688276780465485,
        -0.0664022008540203,
        0.07689951902451446,
        -0.09090772961650327,
        0.11111106175584769,
        -0.14285714180856576,
        0.19999999998853618,
        -0.3333333333332843,
        1.0,
    ),
)
# asin(x) / x in x * x, for x up to 1 / 2
_ASIN = (
    (
        0.04241737375979984,
        0.02399399965364759,
        0.045520635631714566,
        0.07494696687423973,
        0.16666782005775338,
        0.999999995983738,
    ),
    (
        0.03187962140081284,
        -0.016187392271599134,
        0.019513468251252167,
        0.0065293020047365695,
        0.012170138592391726,
        0.01388484282640208,
        0.01735977964134998,
        0.022371749733164054,
        0.03038195969768514,
        0.044642856805998936,
        0.07500000000385201,
        0.16666666666664942,
        1.0,
    ),
)
# erf(x) / x in x * x, for x up to 1
_ERF = (
    (
        7.875875062685488e-05,
        -0.000801686428716587,
        0.005189087423433974,
        -0.026854212010626412,
        0.11283594715160218,
        -0.37612626666720334,
        1.1283791658483509,
    ),
    (
        -7.795898827002142e-10,
        1.3720064546777686e-08,
        -1.6208483801871705e-07,
        1.6447424703317362e-06,
        -1.492473690741966e-05,
        0.00012055294904839707,
        -0.0008548325975389692,
        0.0052239776071164225,
        -0.02686617064323777,
        0.11283791670945006,
        -0.37612638903183543,
        1.1283791670955126,
    ),
)
# (1 + 2 x) exp(x * x) erfc(x) in (x - 3.75) / (x + 3.75), for x from 1 on
_ERFC = (
    (
        -0.010357351084504026,
        0.02912465053742193,
        -0.05839200106453506,
        0.09218793654394127,
        -0.10884612770874312,
        0.08228363462756412,
        0.003587256977793497,
        -0.1402407166169517,
        1.2375126185397685,
    ),
    (
        -2.830851588107223e-07,
        1.5170967541350278e-06,
        -6.298300183262115e-07,
        -1.138745638540914e-05,
        2.2179319770112318e-05,
        5.166468997483978e-05,
        -0.00029008973542907646,
        0.0002937023816813005,
        0.0017556143113300535,
        -0.009746577084537196,
        0.02836227860483567,
        -0.058693398845090436,
        0.09230432109467565,
        -0.10880393012954771,
        0.08227673849181981,
        0.0035854154852498097,
        -0.14024059858555982,
        1.2375126308378281,
    ),
)


class Special(Elementwise):
    """asin, acos, atan, erf."""

    __slots__ = ()

    def _polynomial(self, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> Self:
        """The polynomial for this dtype at every element."""
        first, *rest = coefficients[self.dtype is dtypes.float64]
        out = self * first + rest[0]
        for c in rest[1:]:
            out = out * self + c
        return out

    def _asin_halves(self) -> tuple[Self, Self, Self]:
        """(asin(y), whether |self| > 1/2, whether self < 0), y being |self| up to 1/2 and
        sqrt((1 - |self|) / 2) beyond, where asin(|self|) = pi/2 - 2 asin(y)."""
        negative = self < 0
        size = negative.where(-self, self)
        far = size > 0.5
        # the root is taken of a positive number on the branch that is not used, too
        y = far.where(((1 - far.where(size, 0.5)) * 0.5).alu(Ops.SQRT), size)
        return y * (y * y)._polynomial(_ASIN), far, negative

    def asin(self) -> Self:
        """The angle in [-pi/2, pi/2] whose sine this is."""
        near, far, negative = self._wide()._asin_halves()
        out = far.where(math.pi / 2 - near * 2, near)
        return self._narrow(negative.where(-out, out))

    def acos(self) -> Self:
        """The angle in [0, pi] whose cosine this is."""
        near, far, negative = self._wide()._asin_halves()
        beyond = negative.where(math.pi - near * 2, near * 2)
        inside = math.pi / 2 - negative.where(-near, near)
        return self._narrow(far.where(beyond, inside))

    def atan(self) -> Self:
        """The angle in [-pi/2, pi/2] whose tangent this is."""
        x = self._wide()
        negative = x < 0
        size = negative.where(-x, x)
        steep = size > 1
        z = steep.where(1 / steep.where(size, 1.0), size)
        middle = z > _PI_8
        y = middle.where((z - 1) / (z + 1), z)
        out = y * (y * y)._polynomial(_ATAN)
        out = middle.where(out + math.pi / 4, out)
        out = steep.where(math.pi / 2 - out, out)
        return self._narrow(negative.where(-out, out))

    def erf(self) -> Self:
        """The error function: 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to self.

        Source: for the form beyond 1, Shepherd and Laframboise, "Chebyshev approximation of
        (1 + 2x) exp(x^2) erfc x" (1981).
        """
        x = self._wide()
        negative = x < 0
        size = negative.where(-x, x).clip(None, 28.0)
        far = size > 1
        inner = far.where(0.5, size)
        small = inner * (inner * inner)._polynomial(_ERF)
        t = far.where(size, 1.0)
        tail = ((t - 3.75) / (t + 3.75))._polynomial(_ERFC)
        tail = tail / (1 + t * 2) * (t * t * -_LOG2E).alu(Ops.EXP2)
        out = far.where(1 - tail, small)
        return self._narrow(negative.where(-out, out))
