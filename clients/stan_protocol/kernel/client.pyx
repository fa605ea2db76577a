# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The client's kernel, compiled: everything as client_py.py promises it, byte for byte.

Never reads behind a buffer, which wire_c.pxd sees to; the load half makes no Python object per message. Becomes the
top-level module `_stan_client_kernel`. Modelled on client_py.py, its twin.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from wire_c cimport (
    Buffer, Field, RawFrame, Span, decimal_size, next_field, next_frame, number_size, put, put_crlf, put_decimal,
    put_number, put_pub, put_text, put_varint, reserve, text_size, varint_size,
)

from stan_protocol import limits
from stan_protocol.frames import Frame
from stan_protocol.kernel.client_py import read_header

KERNEL_VERSION = 4

cdef Py_ssize_t LINE_MAX = limits.NATS_CONTROL_LINE_BYTES_MAX
cdef Py_ssize_t PAYLOAD_MAX = limits.NATS_PAYLOAD_BYTES_MAX
cdef object _new = tuple.__new__


cdef inline bytes _text(Span span):
    return PyBytes_FromStringAndSize(<const char*> span.at, span.size)


cdef inline Span _span(bytes text) noexcept:
    cdef Span span
    span.at = <const uint8_t*> PyBytes_AS_STRING(text)
    span.size = PyBytes_GET_SIZE(text)
    return span


cdef inline object _frame(RawFrame* frame):
    return _new(Frame, (
        frame.sid, _text(frame.subject), _text(frame.reply), _text(frame.header), _text(frame.payload)
    ))


# --- frames in ---------------------------------------------------------------------------------------------------


cdef class _Reader:
    """Walks the whole frames of one buffer; garbage raises only if it stands at the start."""

    cdef bytes data  # keeps the buffer alive
    cdef const uint8_t* start
    cdef const uint8_t* at  # behind the frame that `next` found last
    cdef const uint8_t* end
    cdef RawFrame frame

    cdef bint next(self) except -1:
        cdef const char* wrong
        if self.at >= self.end:
            return False
        wrong = next_frame(self.at, self.end, LINE_MAX, PAYLOAD_MAX, &self.frame)
        if wrong != NULL and self.at == self.start:
            raise ValueError(wrong.decode("ascii"))
        if wrong != NULL or self.frame.next == NULL:
            return False
        self.at = self.frame.next
        return True


cdef _Reader _read(bytes data, Py_ssize_t start):
    cdef Span whole = _span(data)
    cdef _Reader reader = _Reader()
    if start < 0 or start > whole.size:
        raise ValueError("start lies outside of the data")
    reader.data = data
    reader.start = reader.at = whole.at + start
    reader.end = whole.at + whole.size
    return reader


def split(bytes data not None, Py_ssize_t start):
    """See client_py.split."""
    cdef _Reader reader = _read(data, start)
    cdef list frames = []
    while reader.next():
        frames.append(_frame(&reader.frame))
    return reader.at - reader.start, frames


def count_raw(bytes data not None, Py_ssize_t start, int64_t sid):
    """See client_py.count_raw."""
    cdef _Reader reader = _read(data, start)
    cdef list others = []
    cdef Py_ssize_t count = 0
    while reader.next():
        if reader.frame.sid == sid and sid != 0:
            count += 1
        else:
            others.append(_frame(&reader.frame))
    return reader.at - reader.start, count, others


# --- messages ----------------------------------------------------------------------------------------------------

cdef struct _Message:
    uint64_t numbers[8]
    Span texts[5]
    Span key
    uint64_t expires
    bint headers  # there are some


cdef bint _is_header(Span content) noexcept:
    cdef const uint8_t* at = content.at
    cdef const uint8_t* end = at + content.size
    cdef Field field
    while at < end:
        at = next_field(at, end, &field)
        if at == NULL or (field.number <= 2 and field.wire != 2):
            return False
    return True


cdef bint _parse_message(Span payload, _Message* message) noexcept:
    """MsgProto: the last value of each field wins; CRC32 and unknown fields are skipped."""
    cdef const uint8_t* at = payload.at
    cdef const uint8_t* end = at + payload.size
    cdef Field field
    cdef int i
    cdef bint is_text
    for i in range(8):
        message.numbers[i] = 0
    for i in range(5):
        message.texts[i].at = end
        message.texts[i].size = 0
    message.key = message.texts[0]
    message.expires = 0
    message.headers = False
    while at < end:
        at = next_field(at, end, &field)
        if at == NULL:
            return False
        if field.number == 16 or field.number == 17:
            if field.wire != 2:
                return False
            if field.number == 16:
                if not _is_header(field.text):
                    return False
                message.headers = True
            else:
                message.key = field.text
            continue
        if field.number == 18:
            if field.wire != 0:
                return False
            message.expires = field.value
            continue
        if field.number > 7 and field.number != 10:
            continue
        is_text = 2 <= field.number <= 4
        if field.wire != (2 if is_text else 0):
            return False
        if is_text:
            message.texts[field.number] = field.text
        elif field.number <= 7:
            message.numbers[field.number] = field.value
    return True


cdef bint _parse_puback(Span payload, Span* texts, uint64_t* numbers) noexcept:
    """*numbers*: two, for the sequence and the ack level."""
    cdef const uint8_t* at = payload.at
    cdef const uint8_t* end = at + payload.size
    cdef Field field
    texts[1].at = texts[2].at = end
    texts[1].size = texts[2].size = 0
    numbers[0] = numbers[1] = 0
    while at < end:
        at = next_field(at, end, &field)
        if at == NULL:
            return False
        if field.number <= 2:
            if field.wire != 2:
                return False
            texts[field.number] = field.text
        elif field.number == 16 or field.number == 17:
            if field.wire != 0:
                return False
            numbers[field.number - 16] = field.value
    return True


cdef tuple _headers(Span payload):
    """The headers of a message that was parsed before."""
    cdef const uint8_t* at = payload.at
    cdef const uint8_t* end = at + payload.size
    cdef Field field
    cdef list found = []
    while at < end:
        at = next_field(at, end, &field)
        if field.number == 16:
            found.append(read_header(_text(field.text)))
    return tuple(found)


def decode_message(bytes payload not None):
    """See client_py.decode_message."""
    cdef _Message message
    if not _parse_message(_span(payload), &message):
        raise ValueError("not a MsgProto")
    return (
        message.numbers[1],
        _text(message.texts[2]),
        _text(message.texts[3]),
        _text(message.texts[4]),
        <int64_t> message.numbers[5],
        message.numbers[6] != 0,
        <uint32_t> message.numbers[7],
        _headers(_span(payload)) if message.headers else (),
        _text(message.key),
        <int64_t> message.expires,
    )


def decode_puback(bytes payload not None):
    """See client_py.decode_puback."""
    cdef Span[3] texts
    cdef uint64_t[2] numbers
    if not _parse_puback(_span(payload), texts, numbers):
        raise ValueError("not a PubAck")
    return _text(texts[1]), _text(texts[2]), numbers[0], numbers[1]


# --- frames out --------------------------------------------------------------------------------------------------


cdef inline bytes _subject(bytes subject, bytes reply):
    return subject + b" " + reply if reply else subject


def encode_publish(
    bytes pub_subject not None, bytes nats_reply not None, bytes client_id not None, bytes guid not None,
    bytes channel not None, bytes reply not None, bytes data not None, bytes conn_id not None, bytes more not None=b"",
):
    """See client_py.encode_publish."""
    cdef bytes subject = _subject(pub_subject, nats_reply)
    cdef Span to = _span(subject)
    cdef Span[6] texts = [_span(client_id), _span(guid), _span(channel), _span(reply), _span(data), _span(conn_id)]
    cdef Span rest = _span(more)
    cdef Py_ssize_t size = rest.size
    cdef int i
    for i in range(6):
        size += text_size(texts[i].size)
    cdef bytes result = PyBytes_FromStringAndSize(NULL, _pub_size(to.size, size))
    cdef uint8_t* out = put_pub(<uint8_t*> PyBytes_AS_STRING(result), to.at, to.size, size)
    for i in range(6):
        out = put_text(out, i + 1, texts[i].at, texts[i].size)
    put_crlf(put(out, rest.at, rest.size))
    return result


cdef inline Py_ssize_t _pub_size(Py_ssize_t subject, Py_ssize_t payload) noexcept:
    return 4 + subject + 1 + decimal_size(<uint64_t> payload) + 2 + payload + 2


cdef inline int _append_ack(Buffer* acks, Span inbox, Span channel, uint64_t sequence) except -1:
    cdef Py_ssize_t size = text_size(channel.size) + number_size(sequence)
    cdef uint8_t* out = reserve(acks, <size_t> _pub_size(inbox.size, size))
    out = put_pub(out, inbox.at, inbox.size, size)
    out = put_text(out, 1, channel.at, channel.size)
    out = put_crlf(put_number(out, 2, sequence))
    acks.used = <size_t> (out - acks.at)
    return 0


cdef class _Blob:
    """A growing buffer that frees itself."""

    cdef Buffer buffer

    def __dealloc__(self):
        free(self.buffer.at)

    cdef bytes taken(self):
        return PyBytes_FromStringAndSize(<const char*> self.buffer.at, <Py_ssize_t> self.buffer.used)


def encode_acks(bytes ack_inbox not None, bytes channel not None, uint64_t first, uint64_t last):
    """See client_py.encode_acks."""
    cdef _Blob blob = _Blob()
    cdef Span inbox = _span(ack_inbox)
    cdef Span name = _span(channel)
    cdef uint64_t sequence = first
    while sequence <= last:
        _append_ack(&blob.buffer, inbox, name, sequence)
        if sequence == last:  # which may be the largest there is
            break
        sequence += 1
    return blob.taken()


# --- load --------------------------------------------------------------------------------------------------------


def load_publishes(
    bytes pub_subject not None, bytes nats_reply not None, bytes client_id not None, bytes channel not None,
    bytes conn_id not None, bytes guid_prefix not None, uint64_t first, Py_ssize_t count, bytes data not None,
):
    """See client_py.load_publishes."""
    cdef bytes subject = _subject(pub_subject, nats_reply)
    cdef Span to = _span(subject), client = _span(client_id), name = _span(channel)
    cdef Span conn = _span(conn_id), prefix = _span(guid_prefix), content = _span(data)
    cdef Py_ssize_t fixed = text_size(client.size) + text_size(name.size) + text_size(content.size) + text_size(conn.size)
    cdef Py_ssize_t total = 0, place, guid
    cdef uint8_t* out
    for place in range(count):
        guid = prefix.size + decimal_size(first + <uint64_t> place)
        total += _pub_size(to.size, fixed + text_size(guid))
    cdef bytes result = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t*> PyBytes_AS_STRING(result)
    for place in range(count):
        guid = prefix.size + decimal_size(first + <uint64_t> place)
        out = put_pub(out, to.at, to.size, fixed + text_size(guid))
        out = put_text(out, 1, client.at, client.size)
        out[0] = 2 << 3 | 2
        out = put(put_varint(out + 1, <uint64_t> guid), prefix.at, prefix.size)
        out = put_decimal(out, first + <uint64_t> place)
        out = put_text(out, 3, name.at, name.size)
        out = put_text(out, 5, content.at, content.size)
        out = put_crlf(put_text(out, 6, conn.at, conn.size))
    return result


def raw_publishes(bytes subject not None, Py_ssize_t count, bytes data not None):
    """See client_py.raw_publishes."""
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(data), data) * count


cdef class _Tally:
    """What has come for one NATS subscription."""

    cdef bytes inbox_bytes
    cdef bytes channel_bytes
    cdef Span inbox
    cdef Span channel
    cdef Py_ssize_t count
    cdef Py_ssize_t redelivered
    cdef uint64_t first
    cdef uint64_t last
    cdef bint in_order

    cdef void add(self, uint64_t sequence, bint redelivered) noexcept:
        self.count += 1
        if redelivered:
            self.redelivered += 1
            return
        if self.count - self.redelivered == 1:
            self.first = sequence
        elif sequence <= self.last:
            self.in_order = False
        self.last = sequence


cdef _Tally _tally(tuple target):
    cdef _Tally tally = _Tally()
    tally.inbox_bytes, tally.channel_bytes = target
    tally.inbox = _span(tally.inbox_bytes)
    tally.channel = _span(tally.channel_bytes)
    tally.in_order = True
    return tally


def absorb(bytes data not None, Py_ssize_t start, int64_t ack_sid, dict ack_inboxes not None):
    """See client_py.absorb."""
    cdef _Reader reader = _read(data, start)
    cdef _Blob acks = _Blob()
    cdef _Message message
    cdef Span texts[3]
    cdef uint64_t[2] stored
    cdef Py_ssize_t good = 0, bad = 0
    cdef dict tallies = {}
    cdef list others = []
    cdef int64_t sid, current = 0
    cdef _Tally tally = None
    while reader.next():
        sid = reader.frame.sid
        if sid != 0 and sid == ack_sid and _parse_puback(reader.frame.payload, texts, stored):
            if texts[2].size > 0:
                bad += 1
            else:
                good += 1
            continue
        if sid == 0 or sid == ack_sid or not _parse_message(reader.frame.payload, &message):
            others.append(_frame(&reader.frame))
            continue
        if sid != current:
            target = ack_inboxes.get(sid)
            if target is None:
                others.append(_frame(&reader.frame))
                continue
            tally = tallies.get(sid)
            if tally is None:
                tally = tallies[sid] = _tally(target)
            current = sid
        tally.add(message.numbers[1], message.numbers[6] != 0)
        _append_ack(&acks.buffer, tally.inbox, tally.channel, message.numbers[1])
    counts = {
        sid: (tally.count, tally.first, tally.last, tally.redelivered, tally.in_order)
        for sid, tally in tallies.items()
    }
    return reader.at - reader.start, good, bad, counts, acks.taken(), others
