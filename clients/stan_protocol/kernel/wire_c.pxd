# cython: language_level=3
"""C building blocks of both compiled kernels: NATS frames, protobuf fields, growing buffers.

Promises never to read at or behind `end`, whatever the bytes say. Never makes Python objects, except to raise
MemoryError. Its Python twin is wire_py.py; texts and order of checks are the same there. The protobuf rules are those
of the original's generated Go code (STAN-SPEC 2), the frames those of the NATS client protocol.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memchr, memcmp, memcpy


ctypedef struct Span:
    const uint8_t* at
    Py_ssize_t size


ctypedef struct RawFrame:
    int64_t sid  # 0: a frame of the connection itself
    Span subject  # or its verb
    Span reply
    Span header
    Span payload  # or the rest of its line
    const uint8_t* next


ctypedef struct Field:
    uint32_t number
    uint32_t wire  # 0: `value` is set; 2: `text` is set; 1, 5: skipped
    uint64_t value
    Span text


ctypedef struct Buffer:
    uint8_t* at
    size_t used
    size_t room


cdef enum:
    LINES = 256  # a table of them; a power of two


ctypedef struct Line:
    const uint8_t* at  # the control line of a publish or ack
    Py_ssize_t size
    Py_ssize_t whole  # size of the frame; 0: nothing here yet
    bint unwanted


cdef inline uint8_t* reserve(Buffer* buffer, size_t more) except NULL:
    """Room for *more* bytes behind what is used; the caller adds to `used` what it wrote."""
    cdef size_t room
    cdef uint8_t* grown
    if buffer.at == NULL or buffer.room - buffer.used < more:
        room = buffer.room * 2
        if room < buffer.used + more:
            room = buffer.used + more
        if room < 4096:
            room = 4096
        grown = <uint8_t*> realloc(buffer.at, room)
        if grown == NULL:
            raise MemoryError
        buffer.at = grown
        buffer.room = room
    return buffer.at + buffer.used


cdef inline bint same(Span one, const uint8_t* at, Py_ssize_t size) noexcept:
    return one.size == size and memcmp(one.at, at, <size_t> size) == 0


# --- writing -----------------------------------------------------------------------------------------------------


cdef inline uint8_t* put(uint8_t* out, const uint8_t* at, Py_ssize_t size) noexcept:
    memcpy(out, at, <size_t> size)
    return out + size


cdef inline uint8_t* put_crlf(uint8_t* out) noexcept:
    out[0] = 13
    out[1] = 10
    return out + 2


cdef inline uint8_t* put_u32(uint8_t* out, uint64_t value) noexcept:
    out[0] = value & 0xFF
    out[1] = (value >> 8) & 0xFF
    out[2] = (value >> 16) & 0xFF
    out[3] = (value >> 24) & 0xFF
    return out + 4


cdef inline uint32_t get_u32(const uint8_t* at) noexcept:
    return at[0] | (<uint32_t> at[1] << 8) | (<uint32_t> at[2] << 16) | (<uint32_t> at[3] << 24)


cdef inline Py_ssize_t record_size(const uint8_t* at, const uint8_t* end) except -1:
    """The length in front of a record, checked against what is there."""
    if end - at < 4 or <Py_ssize_t> get_u32(at) > end - at - 4:
        raise ValueError("record cut off")
    return <Py_ssize_t> get_u32(at)


cdef inline uint64_t get_u64(const uint8_t* at) noexcept:
    return <uint64_t> get_u32(at) | (<uint64_t> get_u32(at + 4) << 32)


cdef inline int varint_size(uint64_t value) noexcept:
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t* put_varint(uint8_t* out, uint64_t value) noexcept:
    while value >= 0x80:
        out[0] = (value & 0x7F) | 0x80
        value >>= 7
        out += 1
    out[0] = <uint8_t> value
    return out + 1


cdef inline int decimal_size(uint64_t value) noexcept:
    cdef int size = 1
    while value >= 10:
        value //= 10
        size += 1
    return size


cdef inline uint8_t* put_decimal(uint8_t* out, uint64_t value) noexcept:
    cdef uint8_t* end = out + decimal_size(value)
    cdef uint8_t* at = end
    while True:
        at -= 1
        at[0] = 48 + value % 10
        value //= 10
        if value == 0:
            return end


cdef inline Py_ssize_t text_size(Py_ssize_t size) noexcept:
    """Bytes of a text field with a number below 16, with its tag; 0 if it is empty, because proto3 omits it."""
    return 1 + varint_size(<uint64_t> size) + size if size > 0 else 0


cdef inline Py_ssize_t long_text_size(Py_ssize_t size) noexcept:
    """Bytes of a text field with a number of two bytes, with its tag; also of an empty one."""
    return 2 + varint_size(<uint64_t> size) + size


cdef inline uint8_t* put_long_text(uint8_t* out, uint8_t number, const uint8_t* at, Py_ssize_t size) noexcept:
    """A text field with a number from 16 to 31, also an empty one."""
    out[0] = ((number << 3 | 2) & 0x7F) | 0x80
    out[1] = 1
    return put(put_varint(out + 2, <uint64_t> size), at, size)


cdef inline uint8_t* put_text(uint8_t* out, uint8_t number, const uint8_t* at, Py_ssize_t size) noexcept:
    if size == 0:
        return out
    out[0] = (number << 3) | 2
    return put(put_varint(out + 1, <uint64_t> size), at, size)


cdef inline Py_ssize_t number_size(uint64_t value) noexcept:
    return 1 + varint_size(value) if value > 0 else 0


cdef inline uint8_t* put_number(uint8_t* out, uint8_t number, uint64_t value) noexcept:
    if value == 0:
        return out
    out[0] = number << 3
    return put_varint(out + 1, value)


cdef inline uint8_t* put_pub(uint8_t* out, const uint8_t* subject, Py_ssize_t subject_size, Py_ssize_t size) noexcept:
    """`PUB <subject> <size>\\r\\n`: at most subject_size + 27 bytes."""
    return put_pub_to(out, subject, 0, subject, subject_size, size)


cdef inline uint8_t* put_pub_to(
    uint8_t* out, const uint8_t* to, Py_ssize_t to_size, const uint8_t* subject, Py_ssize_t subject_size, Py_ssize_t size
) noexcept:
    """`PUB <to><subject> <size>\\r\\n`: at most to_size + subject_size + 27 bytes."""
    out = put(out, b"PUB ", 4)
    out = put(out, to, to_size)
    out = put(out, subject, subject_size)
    out[0] = 32
    return put_crlf(put_decimal(out + 1, <uint64_t> size))


# --- protobuf ----------------------------------------------------------------------------------------------------


cdef inline const uint8_t* get_varint(const uint8_t* at, const uint8_t* end, uint64_t* value) noexcept:
    """Behind the varint; NULL if it is cut off or longer than 10 bytes. Bits above 64 are lost, as in Go."""
    cdef uint64_t result = 0
    cdef int shift = 0
    while shift < 64:
        if at >= end:
            return NULL
        result |= <uint64_t> (at[0] & 0x7F) << shift
        at += 1
        if at[-1] < 0x80:
            value[0] = result
            return at
        shift += 7
    return NULL


cdef inline const uint8_t* behind_text(const uint8_t* at, const uint8_t* end, bint empty, Span* text) noexcept:
    """Behind a length and as many bytes; NULL if they are cut off or, unless that is good, *empty*."""
    cdef uint64_t size = 0
    at = get_varint(at, end, &size)
    if at == NULL or size > <uint64_t> (end - at) or (size == 0 and not empty):
        return NULL
    text.at = at
    text.size = <Py_ssize_t> size
    return at + size


cdef inline bint is_header(const uint8_t* at, const uint8_t* end) noexcept:
    """Whether [at, end) is a Header in its one form: key and value in this order, neither empty, both may be absent."""
    cdef Span text
    if at < end and at[0] == 0x0A:
        at = behind_text(at + 1, end, False, &text)
        if at == NULL:
            return False
    if at < end and at[0] == 0x12:
        at = behind_text(at + 1, end, False, &text)
        if at == NULL:
            return False
    return at == end


cdef inline const uint8_t* next_field(const uint8_t* at, const uint8_t* end, Field* field) noexcept:
    """Behind the next field; NULL if it is truncated, a group, or has an illegal tag. Needs at < end."""
    cdef uint64_t value = 0
    field.value = 0
    field.text.at = end
    field.text.size = 0
    at = get_varint(at, end, &value)
    if at == NULL:
        return NULL
    field.number = <uint32_t> (value >> 3)
    field.wire = value & 7
    if field.number == 0 or field.number > 0x7FFFFFFF:
        return NULL
    if field.wire == 0:
        return get_varint(at, end, &field.value)
    if field.wire == 2:
        at = get_varint(at, end, &value)
        if at == NULL or value > <uint64_t> (end - at):
            return NULL
        field.text.at = at
        field.text.size = <Py_ssize_t> value
        return at + value
    if field.wire == 1:
        return at + 8 if end - at >= 8 else NULL
    if field.wire == 5:
        return at + 4 if end - at >= 4 else NULL
    return NULL


# --- NATS frames -------------------------------------------------------------------------------------------------

cdef inline bint get_decimal(Span token, int64_t* value) noexcept:
    """1 to 18 digits and nothing else."""
    cdef Py_ssize_t i
    if token.size < 1 or token.size > 18:
        return False
    value[0] = 0
    for i in range(token.size):
        if token.at[i] < 48 or token.at[i] > 57:
            return False
        value[0] = value[0] * 10 + (token.at[i] - 48)
    return True


cdef inline int split_line(const uint8_t* at, const uint8_t* end, Span* tokens) noexcept:
    """Tokens of a MSG or HMSG line between single spaces, 5 at most; 0 if one is empty or there are more."""
    cdef int count = 0
    cdef const uint8_t* stop
    while count < 5:
        stop = <const uint8_t*> memchr(at, 32, <size_t> (end - at))
        if stop == NULL:
            stop = end
        if stop == at:
            return 0
        tokens[count].at = at
        tokens[count].size = stop - at
        count += 1
        if stop == end:
            return count
        at = stop + 1
    return 0


cdef inline bint is_verb(Span verb) noexcept:
    return (
        same(verb, b"PING", 4) or same(verb, b"PONG", 4) or same(verb, b"+OK", 3)
        or same(verb, b"-ERR", 4) or same(verb, b"INFO", 4)
    )


cdef inline const char* next_frame(
    const uint8_t* at, const uint8_t* end, Py_ssize_t line_max, Py_ssize_t payload_max, RawFrame* frame
) noexcept:
    """Read the frame at *at*; `frame.next` is NULL if it is not whole yet. Returns what is wrong with it, or NULL."""
    cdef Py_ssize_t look = end - at
    cdef const uint8_t* stop
    cdef Span tokens[5]
    cdef int64_t header = 0
    cdef int64_t size = 0
    cdef int count, with_header
    frame.next = NULL
    if look > line_max + 2:
        look = line_max + 2
    stop = <const uint8_t*> memchr(at, 10, <size_t> look)
    if stop == NULL:
        if look == line_max + 2:
            return "NATS: control line too long"
        return NULL
    if stop == at or stop[-1] != 13:
        return "NATS: control line without CRLF"
    stop -= 1
    frame.reply.at = stop
    frame.reply.size = 0
    frame.header = frame.reply
    if stop - at >= 4 and memcmp(at, b"MSG ", 4) == 0:
        with_header = 0
    elif stop - at >= 5 and memcmp(at, b"HMSG ", 5) == 0:
        with_header = 1
    else:
        return _control(at, stop, frame)
    count = split_line(at + 4 + with_header, stop, tokens)
    if count != 3 + with_header and count != 4 + with_header:
        return "NATS: bad message line"
    frame.subject = tokens[0]
    if count == 4 + with_header:
        frame.reply = tokens[2]
    if not get_decimal(tokens[1], &frame.sid) or not get_decimal(tokens[count - 1], &size):
        return "NATS: bad message line"
    if with_header and (not get_decimal(tokens[count - 2], &header) or header > size):
        return "NATS: bad message line"
    if size > payload_max:
        return "NATS: payload too large"
    stop += 2
    if size + 2 > end - stop:
        return NULL
    frame.header.at = stop
    frame.header.size = header
    frame.payload.at = stop + header
    frame.payload.size = size - header
    stop += size
    if stop[0] != 13 or stop[1] != 10:
        return "NATS: payload without CRLF"
    frame.next = stop + 2
    return NULL


cdef inline const char* _control(const uint8_t* at, const uint8_t* stop, RawFrame* frame) noexcept:
    """A frame of the connection itself; its line, without CRLF, is [at, stop)."""
    cdef const uint8_t* space = <const uint8_t*> memchr(at, 32, <size_t> (stop - at))
    if space == NULL:
        space = stop
    frame.sid = 0
    frame.subject.at = at
    frame.subject.size = space - at
    if not is_verb(frame.subject):
        return "NATS: unknown verb"
    frame.payload.at = space + 1 if space < stop else stop
    frame.payload.size = stop - frame.payload.at
    frame.next = stop + 2
    return NULL


cdef inline bint fits(const Line* line, const uint8_t* at, const uint8_t* end) noexcept:
    """Whether a whole frame with this control line stands at *at*."""
    return (
        0 < line.whole <= end - at
        and memcmp(at, line.at, <size_t> line.size) == 0
        and at[line.whole - 2] == 13
        and at[line.whole - 1] == 10
    )


cdef inline Line* line_of(Line* lines, const uint8_t* at, const uint8_t* end, Py_ssize_t line_max) noexcept:
    """Where in *lines* the control line at *at* is kept, or may be; another one may stand there."""
    cdef Py_ssize_t look = end - at if end - at < line_max else line_max
    cdef const uint8_t* stop = <const uint8_t*> memchr(at, 10, <size_t> look)
    cdef uint64_t hash = 0, word
    if stop == NULL:
        return lines
    while stop - at >= 8:
        memcpy(&word, at, 8)
        hash = (hash ^ word) * <uint64_t> 0x9E3779B97F4A7C15
        hash ^= hash >> 32
        at += 8
    while at < stop:
        hash = (hash ^ at[0]) * <uint64_t> 0x9E3779B97F4A7C15
        at += 1
    return lines + (hash >> 32) % LINES
