"""ONNX Runtime: sessions of one thread, and one C++ runtime in a process that has usearch, too.

On Linux, usearch's wheel has a libstdc++ of its own linked in, and exports it. The loader makes it
share the ids of most locale facets with the system's libstdc++ (they are `STB_GNU_UNIQUE`), but
each of the two numbers the eight in `_OWN_IDS` by itself. Loaded first, usearch gives the shared
ids numbers that libstdc++ later gives its own eight once more; the next `std::regex`, which ONNX
Runtime and torch make when they are imported, then calls a facet of the wrong type. Whoever imports
usearch calls `share` before; `onnx_session` calls `repair` before it imports ONNX Runtime.
"""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["onnx_session", "repair", "share"]

_NAME = "libstdc++.so.6"

_OWN_IDS = tuple(
    f"_ZNSt{facet}2idE"
    for facet in (
        "5ctypeIcE",
        "5ctypeIwE",
        "7codecvtIcc11__mbstate_tE",
        "7codecvtIwc11__mbstate_tE",
        "7codecvtIDsc11__mbstate_tE",
        "7codecvtIDic11__mbstate_tE",
        "7codecvtIDsDu11__mbstate_tE",
        "7codecvtIDiDu11__mbstate_tE",
    )
)


def share() -> None:
    """Have the usearch that is imported next use the system's libstdc++, not its own copy."""
    if sys.platform == "linux":
        with suppress(OSError):  # there is none: nothing that could clash with the copy
            ctypes.CDLL(_NAME, mode=ctypes.RTLD_GLOBAL)


def repair() -> None:
    """Undo what a usearch imported without `share` did to libstdc++; otherwise, do nothing.

    libstdc++ takes over the numbers that usearch's copy gave its eight ids, so that no two facets
    have the same. An id that libstdc++ has numbered already is left alone.
    """
    usearch = sys.modules.get("usearch.compiled")
    if usearch is None or usearch.__file__ is None or sys.platform != "linux":
        return
    with suppress(OSError):
        shared, copied = ctypes.CDLL(_NAME), ctypes.CDLL(usearch.__file__)
        for symbol in _OWN_IDS:
            with suppress(ValueError):  # an older libstdc++ has no facets for char8_t
                number = ctypes.c_size_t.in_dll(copied, symbol).value
                own = ctypes.c_size_t.in_dll(shared, symbol)
                own.value = own.value or number


def onnx_session(path: Path) -> "onnxruntime.InferenceSession":
    """Load the model at *path*; its errors are ONNX Runtime's own, which has a dozen."""
    # From 1.29 on, it reports to its maker, and must be told not to before it is imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    repair()
    import onnxruntime  # noqa: PLC0415 - after the repair

    options = onnxruntime.SessionOptions()
    # A text is too small to share among threads; two texts at a time use two cores better.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # Weights of the layers that compute in floating point are decoded once, not for every text.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.log_severity_level = 3  # it would write warnings to stderr
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
