"""Guids of all the shapes that clients give to their publishes, as an endless row of different ones.

The published clients number them (NUIDs of Go, JavaScript and C), or draw them (88 bits in hex of the Python client); any text is
allowed, so there are those that are equal but for a few bytes in front, in the middle or at the end, tiny ones and long ones.
"""

from itertools import count, cycle

_BASE62 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _nuids(random):
    """12 random characters, 10 of a counter with a step of its own."""
    head = bytes(random.choices(_BASE62, k=12))
    step = random.randint(33, 332)
    for number in count(random.randrange(62**9), step):
        yield head + bytes(_BASE62[number // 62**place % 62] for place in reversed(range(10)))


def _drawn(random):
    met = set()
    while True:
        guid = b"%x" % random.getrandbits(88)
        if guid not in met:
            met.add(guid)
            yield guid


def _equal_tails(_random):
    for number in count():
        yield b"%x-of-the-same-publisher" % number


def _equal_heads(_random):
    for number in count():
        yield b"of-the-same-publisher-%x" % number


def _tiny(_random):
    """As few bytes as will do."""
    for number in count(1):
        yield number.to_bytes((number.bit_length() + 7) // 8, "little")


def _long(random):
    """200 bytes, different in the middle."""
    before = random.randint(0, 190)
    for number in count():
        yield b"a" * before + b"%010d" % number + b"z" * (190 - before)


def _padded(_random):
    """Of all lengths, and of one byte."""
    for number in count():
        yield bytes([number % 2]) * (1 + number // 2)


SHAPES = {
    "nuid": _nuids,
    "drawn": _drawn,
    "equal tails": _equal_tails,
    "equal heads": _equal_heads,
    "tiny": _tiny,
    "long": _long,
    "padded": _padded,
}


def guids(random, shape=""):
    """Different ones, without end, of one shape; of any if none is named."""
    return SHAPES[shape or random.choice(sorted(SHAPES))](random)


def mixed(random):
    """Different ones, without end, of all shapes in turn."""
    met = set()
    for row in cycle([make(random) for make in SHAPES.values()]):
        guid = next(guid for guid in row if guid not in met)
        met.add(guid)
        yield guid
