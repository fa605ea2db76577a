"""Cuts the list of a table's files into chunks that are stored once, so that a commit writes only the other files. Pure.

Promises: a chunk stays until one of its files changes, or a small one is joined to its neighbour. Files of two chunks at most are
in none, the newest ones always, for these are merged soon. Of two neighbours one is half full at least.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from stan_lake.manifest import Chunk, DataFile

CHUNK_FILES: Final = 100
"""Files in a chunk; twice as many may be in none."""

Files = tuple[DataFile, ...]


def sealed(files: Files, chunks: Sequence[Chunk], name: Callable[[Files], str], most: int) -> tuple[Chunk, ...]:
    """Return the chunks of a manifest.

    Args:
        files: all of the table, in order.
        chunks: of the manifest before.
        name: returns the name of a new chunk with these files.
        most: files in a chunk.
    """
    parts = list(_parts(files, chunks))
    if sum(len(part) for part, chunk in parts if not chunk) <= 2 * most:
        return tuple(chunk for _, chunk in parts if chunk)
    *parts, (newest, _) = _parts(files, [chunk for chunk in chunks if 2 * len(chunk.files) >= most])
    old = len(newest) // most * most - most if len(newest) >= 2 * most else 0
    known = {chunk.files[0].name: chunk for chunk in chunks}
    made: list[Chunk] = []
    for part, intact in [*parts, (newest[:old], None)]:
        for at in range(0, len(part), most):
            piece = part[at : at + most]
            chunk = intact or known.get(piece[0].name)
            made.append(chunk if chunk and chunk.files == piece else Chunk(name=name(piece), files=piece))
    return tuple(made)


def _parts(files: Files, chunks: Sequence[Chunk]) -> Iterator[tuple[Files, Chunk | None]]:
    """Yield *files* in parts: those of chunks that are intact, and those between them; last the ones after all chunks, if any."""
    by_first = {chunk.files[0].name: chunk for chunk in chunks}
    begin = place = 0
    while place < len(files):
        chunk = by_first.get(files[place].name)
        if chunk and files[place : place + len(chunk.files)] == chunk.files:
            if begin < place:
                yield files[begin:place], None
            yield chunk.files, chunk
            begin = place = place + len(chunk.files)
        else:
            place += 1
    yield files[begin:], None
