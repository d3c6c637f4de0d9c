"""Reading which symbols a shared library exports, without tools that may be missing."""

from __future__ import annotations

import struct
from pathlib import Path

_DYNSYM = 11
_LINKER_SYMBOLS = ("_init", "_fini", "_edata", "_end", "__bss_start")


def exported_symbols(path: str) -> list[str]:
    """Return the names a 64-bit ELF library exports, sorted; those that linkers add to every library are
    left out."""
    image = Path(path).read_bytes()
    (section_offset,) = struct.unpack_from("<Q", image, 40)
    entry_size, count = struct.unpack_from("<HH", image, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", image, section_offset + at * entry_size) for at in range(count)
    ]
    names: list[str] = []
    for section in sections:
        if section[1] != _DYNSYM:
            continue
        strings = sections[section[6]]
        for offset in range(section[4], section[4] + section[5], 24):
            name, info, other, index, _, _ = struct.unpack_from("<IBBHQQ", image, offset)
            is_global = info >> 4 in (1, 2)
            if index == 0 or not is_global or other & 3 not in (0, 3):
                continue
            start = strings[4] + name
            names.append(image[start : image.index(b"\0", start)].decode())
    return sorted(name for name in set(names) if name and name not in _LINKER_SYMBOLS)
