"""Methods for machines and services that tinycore does not reach: each says so, and why."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from tinycore.errors import UnsupportedError


class Absent:
    """Names that programs may hold, and that raise UnsupportedError, a NotImplementedError."""

    __slots__ = ()

    CHUNK_SIZE: ClassVar[int] = 1 << 20
    """Bytes of one block of the file store that `fs_load` and `fs_store` are about."""

    def decode_hevc_frame(
        self,
        frame_pos: Any,
        shape: tuple[int, ...],
        state: Any,
        ref_frames: list[Any] | None = None,
    ) -> NoReturn:
        """Raises UnsupportedError: no device here has a video decoder.

        >>> Tensor([1, 2]).decode_hevc_frame(0, (2,), None)
        Traceback (most recent call last):
        tinycore.errors.UnsupportedError: [decode_hevc_frame] no device here has a video decoder...
        """
        raise UnsupportedError(
            "[decode_hevc_frame] no device here has a video decoder; decode on the host and give "
            "the frames as arrays"
        )

    def image_dot(self, w: Any, dtype: Any = None) -> NoReturn:
        """Raises UnsupportedError: no device here has image memory; `dot` gives the value.

        >>> Tensor.ones(2, 2).image_dot(Tensor.ones(2, 2))
        Traceback (most recent call last):
        tinycore.errors.UnsupportedError: [image_dot] no device here has image memory; use dot
        """
        raise UnsupportedError("[image_dot] no device here has image memory; use dot")

    def image_conv2d(
        self,
        weight: Any,
        bias: Any = None,
        groups: int = 1,
        stride: int = 1,
        dilation: int = 1,
        padding: Any = 0,
        dtype: Any = None,
    ) -> NoReturn:
        """Raises UnsupportedError: no device here has image memory; `conv2d` gives the value.

        >>> Tensor.ones(1, 1, 4, 4).image_conv2d(Tensor.ones(1, 1, 2, 2))
        Traceback (most recent call last):
        tinycore.errors.UnsupportedError: [image_conv2d] no device here has image memory; use conv2d
        """
        raise UnsupportedError("[image_conv2d] no device here has image memory; use conv2d")

    def fs_load(self, size: int) -> NoReturn:
        """Raises UnsupportedError: there is no network file store; DISK tensors read files.

        >>> Tensor([1, 2]).fs_load(16)
        Traceback (most recent call last):
        tinycore.errors.UnsupportedError: [fs_load] there is no network file store...
        """
        raise UnsupportedError(
            "[fs_load] there is no network file store; a DISK tensor reads a file"
        )

    def fs_store(self) -> NoReturn:
        """Raises UnsupportedError: there is no network file store; DISK tensors write files.

        >>> Tensor([1, 2]).fs_store()
        Traceback (most recent call last):
        tinycore.errors.UnsupportedError: [fs_store] there is no network file store...
        """
        raise UnsupportedError(
            "[fs_store] there is no network file store; a DISK tensor writes a file"
        )
