"""Prints the polynomial coefficients of `tinycore/codegen/decompose/`.

Method: a weighted minimax polynomial by the exchange algorithm of Remez, in 200-bit arithmetic.
Then the coefficients are rounded to the target format one by one, lowest order first; after each
rounding the ones that are still free are fitted again, so that they make up for it.

    python tools/minimax.py            needs mpmath, which the test environment has

Every polynomial approximates `target(x)`, and the error that is made small is
`(poly(x) - target(x)) * weight(x)`: the relative error of the function that is built from it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import mpmath as mp

mp.mp.prec = 200
Function = Callable[[mp.mpf], mp.mpf]


class Problem(NamedTuple):
    name: str
    target: Function
    weight: Function
    low: mp.mpf
    high: mp.mpf
    degree: int
    bits: int  # 32 or 64: the format of the coefficients


def round_to(x: mp.mpf, bits: int) -> mp.mpf:
    """The float32 or float64 nearest to `x`."""
    if bits == 64:
        return mp.mpf(float(x))
    return mp.mpf(struct.unpack("<f", struct.pack("<f", float(x)))[0])


def fit(problem: Problem, fixed: list[mp.mpf]) -> tuple[list[mp.mpf], mp.mpf]:
    """The best coefficients that follow the `fixed` ones, and the largest weighted error."""
    free = problem.degree + 1 - len(fixed)
    low, high = problem.low, problem.high

    def residual(x: mp.mpf) -> mp.mpf:
        return problem.target(x) - mp.polyval(list(reversed(fixed)) or [0], x)

    grid = [low + (high - low) * (1 - mp.cos(mp.pi * k / 600)) / 2 for k in range(601)]
    grid = [x for x in grid if x != 0]
    points = [
        low + (high - low) * (1 - mp.cos(mp.pi * (k + mp.mpf(1) / 2) / (free + 1))) / 2
        for k in range(free + 1)
    ]
    best: tuple[list[mp.mpf], mp.mpf] | None = None
    for _ in range(12):
        rows, values = mp.zeros(free + 1, free + 1), mp.zeros(free + 1, 1)
        for i, x in enumerate(points):
            w = problem.weight(x)
            for j in range(free):
                rows[i, j] = w * x ** (len(fixed) + j)
            rows[i, free] = (-1) ** i
            values[i] = w * residual(x)
        solved = mp.lu_solve(rows, values)
        coefficients = [solved[j] for j in range(free)]
        whole = [*fixed, *coefficients]

        def error(x: mp.mpf, whole: list[mp.mpf] = whole) -> mp.mpf:
            return (mp.polyval(list(reversed(whole)), x) - problem.target(x)) * problem.weight(x)

        errors = [error(x) for x in grid]
        worst = max(abs(e) for e in errors)
        if best is None or worst < best[1]:
            best = (coefficients, worst)
        peaks: list[tuple[mp.mpf, mp.mpf]] = []
        for x, e in zip(grid, errors, strict=True):
            if peaks and (e > 0) == (peaks[-1][1] > 0):
                if abs(e) > abs(peaks[-1][1]):
                    peaks[-1] = (x, e)
            else:
                peaks.append((x, e))
        while len(peaks) > free + 1:
            peaks.pop(0 if abs(peaks[0][1]) < abs(peaks[-1][1]) else -1)
        if len(peaks) < free + 1:
            break
        points = [x for x, _ in peaks]
    assert best is not None
    return best


def solve(problem: Problem) -> tuple[list[mp.mpf], mp.mpf]:
    fixed: list[mp.mpf] = []
    worst = mp.mpf(0)
    while len(fixed) <= problem.degree:
        free, worst = fit(problem, fixed)
        fixed.append(round_to(free[0], problem.bits))
    grid = [problem.low + (problem.high - problem.low) * k / 2000 for k in range(2001) if k != 1000]
    worst = max(
        abs((mp.polyval(list(reversed(fixed)), x) - problem.target(x)) * problem.weight(x))
        for x in grid
        if x != 0
    )
    return fixed, worst


def problems() -> list[Problem]:
    ln2, pi4 = mp.log(2), mp.pi / 4
    half = mp.mpf(1) / 2
    s2 = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2  # the largest square of f / (2 + f)

    def exp2_tail(x: mp.mpf) -> mp.mpf:  # 2**x = 1 + x * this
        return mp.expm1(x * ln2) / x if x else ln2

    def log_tail(z: mp.mpf) -> mp.mpf:  # log((1+s)/(1-s)) = 2 s + s * this, z = s * s
        s = mp.sqrt(z)
        return (2 * mp.atanh(s) - 2 * s) / s / z

    def sin_tail(z: mp.mpf) -> mp.mpf:  # sin y = y + y * z * this, z = y * y
        y = mp.sqrt(z)
        return (mp.sin(y) - y) / (y * z)

    def cos_tail(z: mp.mpf) -> mp.mpf:  # cos y = 1 - z / 2 + z * z * this
        y = mp.sqrt(z)
        return (mp.cos(y) - 1 + z / 2) / (z * z)

    out = []
    for bits, exp_degree, log_degree, sin_degree, cos_degree in (
        (32, 6, 3, 3, 2),
        (64, 10, 6, 6, 6),
    ):
        tiny = mp.mpf(2) ** -40
        out += [
            Problem(
                f"EXP2_F{bits}",
                exp2_tail,
                lambda x: abs(x) / mp.mpf(2) ** x,
                -half,
                half,
                exp_degree,
                bits,
            ),
            Problem(f"LOG_F{bits}", log_tail, lambda z: z / 2, tiny, s2, log_degree, bits),
            Problem(f"SIN_F{bits}", sin_tail, lambda z: z, tiny, pi4**2, sin_degree, bits),
            Problem(f"COS_F{bits}", cos_tail, lambda z: z * z, tiny, pi4**2, cos_degree, bits),
        ]
    return out


def main() -> None:
    for problem in problems():
        coefficients, worst = solve(problem)
        print(f"# largest relative error 2**{float(mp.log(worst, 2)):.1f}")
        print(f"{problem.name} = (")
        for c in coefficients:
            print(f"    {float(c).hex()!r},".replace("'", '"'))
        print(")")


if __name__ == "__main__":
    main()
