"""Freed memory stays with the process while a model trains.

By default the C library hands large freed blocks back to the system, and every step pays for the same pages
again: thousands of page faults. GNU's library can be told otherwise; elsewhere nothing happens.
Source: mallopt(3), https://man7.org/linux/man-pages/man3/mallopt.3.html.
"""

import ctypes
import platform
from contextlib import suppress

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
KEEP = {MMAP_THRESHOLD: 32 * 2**20, TRIM_THRESHOLD: 2**31 - 1}
RETURN = {TRIM_THRESHOLD: 128 * 2**10}


def keep_freed_memory() -> None:
    """Blocks up to 32 MiB come from memory that the process keeps."""
    set_options(KEEP)


def return_freed_memory() -> None:
    """What is free goes back to the system, now and from now on."""
    set_options(RETURN)
    with suppress(AttributeError, OSError):
        if platform.libc_ver()[0] == "glibc":
            ctypes.CDLL(None).malloc_trim(0)


def set_options(options: dict[int, int]) -> None:
    with suppress(AttributeError, OSError):
        if platform.libc_ver()[0] == "glibc":
            for option, value in options.items():
                ctypes.CDLL(None).mallopt(option, value)
