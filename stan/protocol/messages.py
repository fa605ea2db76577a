"""The place of the payload in a stored message, without decoding it. Pure."""

_SEQUENCE, _SUBJECT, _REPLY, _DATA = 0x08, 0x12, 0x1A, 0x22
"""Tags of MsgProto in the order of every writer of it (STAN-SPEC 2.1)."""


def data_span(message: bytes) -> tuple[int, int]:
    """Place and length of the data in MsgProto bytes; (0, 0) if there is none, or they are no such message."""
    at, end = 0, len(message)
    while at < end:
        tag = message[at]
        at += 1
        value = shift = 0
        while True:
            if at >= end or shift > 63:
                return 0, 0
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if tag == _DATA:
            return (at, value) if at + value <= end else (0, 0)
        if tag in (_SUBJECT, _REPLY):
            at += value
        elif tag != _SEQUENCE:
            return 0, 0
    return 0, 0
