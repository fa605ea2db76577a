"""The client's kernel: the compiled twin if it is there and of the same version, else the plain one.

Promises the contract that client_py.py states, whichever runs; NAME says which. STAN_KERNEL=python in the
environment asks for the plain one. Never holds anything of its own.
"""

from typing import TYPE_CHECKING

from stan_protocol.kernel import client_py
from stan_protocol.kernel.client_py import encode_cumulative_ack, encode_more, encode_verdict
from stan_protocol.kernel.twins import choose

__all__ = [
    "NAME",
    "absorb",
    "count_raw",
    "decode_message",
    "decode_puback",
    "encode_acks",
    "encode_cumulative_ack",
    "encode_more",
    "encode_publish",
    "encode_verdict",
    "load_publishes",
    "raw_publishes",
    "split",
]

NAME, _module = choose("_stan_client_kernel", client_py)

if TYPE_CHECKING:
    from stan_protocol.kernel.client_py import (
        absorb,
        count_raw,
        decode_message,
        decode_puback,
        encode_acks,
        encode_publish,
        load_publishes,
        raw_publishes,
        split,
    )
else:
    absorb = _module.absorb
    count_raw = _module.count_raw
    decode_message = _module.decode_message
    decode_puback = _module.decode_puback
    encode_acks = _module.encode_acks
    encode_publish = _module.encode_publish
    load_publishes = _module.load_publishes
    raw_publishes = _module.raw_publishes
    split = _module.split
