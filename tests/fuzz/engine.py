"""Feeds a parser inputs made from good ones by chance: it may refuse them in its own words, and do nothing else.

A complaint is an exception that the parser does not name, an input that takes longer than HANG_S, and memory that grows with the
number of inputs. One seed always makes the same inputs.
"""

import gc
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HANG_S = 10.0
GROWTH_BYTES_MAX = 48 << 20
WARM_PART = 0.3
"""Inputs after which memory counts: caches are full by then."""
INPUT_BYTES_MAX = 1 << 14
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)


@dataclass(frozen=True)
class Parser:
    """One parser: what good input looks like, how it is called, and how it may refuse."""

    name: str
    samples: Sequence[bytes]
    parse: Callable[[bytes], object]
    refuses: tuple[type[BaseException], ...] = ()
    words: Sequence[bytes] = field(default_factory=tuple)  # that are put in now and then


class HangError(Exception):
    """An input took too long."""


def inputs(parser: Parser, seed: int) -> Iterator[bytes]:
    """Endless inputs."""
    dice = random.Random(f"{parser.name} {seed}")
    yield from parser.samples
    yield b""
    while True:
        if dice.random() < 0.05:
            yield dice.randbytes(dice.choice((1, 4, 16, 64, 300)))
            continue
        data = bytearray(dice.choice(parser.samples))
        for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
            _mutate(data, dice, parser)
        yield bytes(data[:INPUT_BYTES_MAX])


def _mutate(data: bytearray, dice: random.Random, parser: Parser) -> None:
    at = dice.randrange(len(data) + 1)
    size = dice.choice((1, 1, 2, 4, 8, 32))
    match dice.randrange(9):
        case 0 if at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        case 1 if at < len(data):
            data[at] = dice.randrange(256)
        case 2:
            data[at:at] = dice.randbytes(size)
        case 3:
            del data[at : at + size]
        case 4:
            del data[at:]
        case 5:
            data[at:at] = data[at : at + size] * dice.choice((1, 1, 2, 50))
        case 6:
            width = dice.choice((1, 2, 4, 8))
            value = dice.choice(INTERESTING) & ((1 << (8 * width)) - 1)
            data[at : at + width] = value.to_bytes(width, dice.choice(("little", "big")))
        case 7:
            other = dice.choice(parser.samples)
            start = dice.randrange(len(other) + 1)
            data[at : at + size] = other[start : start + dice.choice((4, 16, 200))]
        case _:
            data[at:at] = dice.choice(parser.words) if parser.words else bytes((dice.randrange(256),)) * size


def fuzz(parser: Parser, count: int, seed: int) -> Iterator[str]:
    """Complaints about *count* inputs; stops at the first input that one is about."""

    def rings(_number: int, _frame: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, rings)
    base, at = 0, 0
    warm = int(count * WARM_PART)
    try:
        for at, data in zip(range(count), inputs(parser, seed), strict=False):
            if at % 64 == 0:  # one alarm for some inputs: it costs
                signal.setitimer(signal.ITIMER_REAL, HANG_S)
            try:
                parser.parse(data)
            except parser.refuses:
                pass
            except HangError:
                yield f"{parser.name}: input {at} of seed {seed} takes more than {HANG_S:g} s: {data!r}"
                return
            except BaseException as error:
                signal.setitimer(signal.ITIMER_REAL, 0)
                if isinstance(error, KeyboardInterrupt):
                    raise
                yield f"{parser.name}: input {at} of seed {seed}: {type(error).__name__}: {error}: {data!r}"
                return
            if at == warm:
                base = _resident()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    grown = _resident() - base
    if count >= 1000 and grown > GROWTH_BYTES_MAX:
        yield f"{parser.name}: {grown >> 20} MiB more memory after {count} inputs of seed {seed}"


def _resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux: not looked at
        return 0


def run(parser: Parser, count: int, seed: int) -> tuple[list[str], float]:
    """Complaints, and inputs a second."""
    began = time.monotonic()
    found = list(fuzz(parser, count, seed))
    return found, count / max(time.monotonic() - began, 1e-9)
