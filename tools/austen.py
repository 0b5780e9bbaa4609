"""Jane Austen's six novels, read from Debian's r-cran-janeaustenr without R.

The package keeps them in R's lazy-load database `Rdata.rdb`: records of a 4-byte big-endian
unpacked size and a zlib stream, each one R object in XDR serialization (R Internals, section 1.8),
here always a character vector with one element per printed line.
"""

import re
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path

PACKAGE = "r-cran-janeaustenr"
DEFAULT_CACHE = Path.home() / ".cache" / "tandem" / "austen"
RDB = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"

STRSXP, CHARSXP = 16, 9

# What stands between a novel's chapters: "CHAPTER I", "Chapter 1", "VOLUME II".
HEADING = re.compile(r"^(chapter|volume)\b.{0,12}$", re.IGNORECASE)
END_OF_BOOK = re.compile(r"^(the end|finis)\.?$", re.IGNORECASE)


def novels(cache: Path = DEFAULT_CACHE) -> dict[str, list[str]]:
    """Title -> chapters; a chapter is its paragraphs, one line each, blank lines between."""
    return {lines[0].title().replace(" And ", " and "): list(chapters(lines))
            for lines in read_rdb(fetch(cache).read_bytes())}


def fetch(cache: Path = DEFAULT_CACHE) -> Path:
    """Downloads and unpacks the package unless that was done before; the path of its Rdata.rdb."""
    rdb = cache / RDB
    if not rdb.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as download:
            subprocess.run(["apt-get", "-qq", "download", PACKAGE], cwd=download, check=True)
            deb = next(Path(download).glob("*.deb"))
            subprocess.run(["dpkg", "-x", str(deb), str(cache)], check=True)
    return rdb


def read_rdb(data: bytes) -> list[list[str]]:
    """The character vectors of an .rdb file, in file order."""
    vectors = []
    while data:
        inflate = zlib.decompressobj()
        vectors.append(_character_vector(inflate.decompress(data[4:])))
        data = inflate.unused_data
    return vectors


def _character_vector(xdr: bytes) -> list[str]:
    def int32() -> int:
        nonlocal at
        at += 4
        return struct.unpack_from(">i", xdr, at - 4)[0]

    if xdr[:2] != b"X\n":
        raise ValueError("not R's XDR serialization")
    at = 2 + 3 * 4  # format version, writer's version, oldest reader's version
    at += 4 + struct.unpack_from(">i", xdr, at)[0]  # name of the native encoding
    if int32() & 0xFF != STRSXP:
        raise ValueError("not a character vector")
    lines = []
    for _ in range(int32()):
        if int32() & 0xFF != CHARSXP:
            raise ValueError("not a string")
        length = int32()
        lines.append(xdr[at : at + length].decode())
        at += length
    return lines


def chapters(lines: list[str]):
    """Yields each chapter's text; what stands before the first heading (title, date) is dropped."""
    paragraphs, paragraph, started = [], [], False
    for line in [*lines, "", "THE END"]:
        line = line.strip()
        if line and not HEADING.match(line) and not END_OF_BOOK.match(line):
            paragraph.append(line.replace("_", ""))  # _word_ is print's italics
            continue
        if paragraph:
            paragraphs.append(re.sub(r"\s+", " ", " ".join(paragraph)))
            paragraph = []
        if line:
            if started and paragraphs:
                yield "\n\n".join(paragraphs)
            paragraphs, started = [], True
