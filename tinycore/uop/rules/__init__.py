"""Rule tables by topic. `tinycore.uop.symbolic` puts them together.

Values are scalars or vectors without a shape, as kernels have them. Integer rules that assume that
nothing wraps claim `weakint` only; those that claim sized integers hold modulo 2**bits.
"""
