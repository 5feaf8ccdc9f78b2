"""Relink libmesos for current systems by editing the ELF file in place.

libmesos was linked with OpenSSL 1.0 and an old libcurl. Current systems have the symbols, but not these symbol
*versions*. Relinking marks the required versions as weak, makes the symbols that use them unversioned, and replaces the
names of the OpenSSL libraries by those of OpenSSL 3. Functions missing from OpenSSL 3 stay unresolved. That is safe,
because they are bound at their first call (RTLD_LAZY), and called only with LIBPROCESS_SSL_ENABLED.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Iterator

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import StringTableSection

from mesos_local.host import MesosLocalError

from .native import LIBRARY_SHA256, OBSOLETE_VERSIONS, RENAMED_LIBRARIES

_VER_FLG_WEAK = 0x2
_VER_NDX_GLOBAL = 1  # the index of "global, without a version"
_FLAGS_IN_VERNAUX = 4  # Elf64_Vernaux: vna_hash (4 bytes), then vna_flags (2 bytes)
_HIDDEN_BIT = 0x8000  # of a .gnu.version entry; the rest is the index


def relink(library: bytes) -> bytes:
    """Relink the pinned library. Raises MesosLocalError if the digest is wrong."""
    elf = bytearray(library)
    try:
        parsed = ELFFile(io.BytesIO(library))
        _unversion(elf, parsed, set(_weaken(elf, parsed)))
        _rename(elf, parsed)
    except Exception as error:  # pyelftools has no common base class for errors of damaged files
        raise MesosLocalError(f"cannot relink libmesos: {error!r}") from error
    if hashlib.sha256(elf).hexdigest() != LIBRARY_SHA256:
        raise MesosLocalError("cannot relink libmesos: it is not the expected build")
    return bytes(elf)


def _weaken(elf: bytearray, parsed: ELFFile) -> Iterator[int]:
    """Mark the obsolete required versions (vernaux) as weak; yield their indices."""
    section = parsed.get_section_by_name(".gnu.version_r")
    assert isinstance(section, GNUVerNeedSection)
    need_at = section["sh_offset"]
    for need, auxiliaries in section.iter_versions():
        at = need_at + need["vn_aux"]
        for auxiliary in auxiliaries:
            if auxiliary.name.startswith(OBSOLETE_VERSIONS):
                struct.pack_into("<H", elf, at + _FLAGS_IN_VERNAUX, auxiliary["vna_flags"] | _VER_FLG_WEAK)
                yield auxiliary["vna_other"]
            at += auxiliary["vna_next"]
        need_at += need["vn_next"]


def _unversion(elf: bytearray, parsed: ELFFile, obsolete: set[int]) -> None:
    section = parsed.get_section_by_name(".gnu.version")
    assert isinstance(section, GNUVerSymSection)
    start, size = section["sh_offset"], section["sh_size"]
    with memoryview(elf)[start : start + size].cast("H") as indices:
        for position, index in enumerate(indices):
            if index & ~_HIDDEN_BIT in obsolete:
                indices[position] = _VER_NDX_GLOBAL


def _rename(elf: bytearray, parsed: ELFFile) -> None:
    strings, dynamic = parsed.get_section_by_name(".dynstr"), parsed.get_section_by_name(".dynamic")
    assert isinstance(strings, StringTableSection)
    assert isinstance(dynamic, DynamicSection)
    for tag in dynamic.iter_tags("DT_NEEDED"):
        old = strings.get_string(tag.entry.d_val).encode()
        if new := RENAMED_LIBRARIES.get(old):
            at = strings["sh_offset"] + tag.entry.d_val
            elf[at : at + len(old)] = new.ljust(len(old), b"\0")
