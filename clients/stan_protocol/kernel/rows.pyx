# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The rows kernel, compiled: everything as rows_py.py promises it, byte for byte.

Never reads behind a buffer; makes no Python object per message unless headers are asked for. Becomes the top-level module
`_stan_rows_kernel`. Modelled on rows_py.py, its twin.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from wire_c cimport (
    Field, Span, behind_text, get_u32, is_header, long_text_size, next_field, number_size, put, put_long_text, put_number,
    put_text, put_u32, record_size, text_size,
)

from stan_protocol import limits
from stan_protocol.kernel.rows_py import Columns, encode_headers

KERNEL_VERSION = 4

cdef enum:
    ID_SIZE = 16
    SLOTS = 32768  # as in parted.py
    NO_SLOT = 0xFFFF

cdef int64_t OFFSET_MAX = 0x7FFFFFFF
cdef Py_ssize_t KEY_MAX = limits.KEY_BYTES_MAX


cdef inline const uint8_t* _start(bytes text) noexcept:
    return <const uint8_t*> PyBytes_AS_STRING(text)


cdef inline bytes _text(Span span):
    return PyBytes_FromStringAndSize(<const char*> span.at, span.size)


cdef inline int32_t _get_i32(const uint8_t* at) noexcept:
    return <int32_t> get_u32(at)


cdef inline uint8_t* _put_u64(uint8_t* out, uint64_t value) noexcept:
    return put_u32(put_u32(out, value & 0xFFFFFFFF), value >> 32)


cdef class _View:
    """The bytes of a buffer, for as long as this lives."""

    cdef Py_buffer buffer
    cdef bint held
    cdef const uint8_t* at
    cdef Py_ssize_t size

    def __cinit__(self, thing):
        PyObject_GetBuffer(thing, &self.buffer, PyBUF_SIMPLE)
        self.held = True
        self.at = <const uint8_t*> self.buffer.buf
        self.size = self.buffer.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


# --- into rows ---------------------------------------------------------------------------------------------------


cdef class _Column:
    """A column of texts, all of its places checked."""

    cdef _View offsets
    cdef _View data
    cdef const uint8_t* at  # of the first row's offset

    def __cinit__(self, offsets, data, Py_ssize_t first, Py_ssize_t count):
        cdef Py_ssize_t row
        cdef int32_t place, before = 0
        if first < 0 or count < 0:
            raise ValueError("first and count cannot be negative")
        self.offsets, self.data = _View(offsets), _View(data)
        if first > self.offsets.size // 4 or count + 1 > self.offsets.size // 4 - first:
            raise ValueError("fewer offsets than rows")
        self.at = self.offsets.at + 4 * first
        for row in range(count + 1):
            place = _get_i32(self.at + 4 * row)
            if place < before:
                raise ValueError("offsets decrease")
            before = place
        if before > self.data.size:
            raise ValueError("offsets lie outside of the data")

    cdef Span value(self, Py_ssize_t row) noexcept:
        cdef int32_t begin = _get_i32(self.at + 4 * row)
        cdef Span span
        span.at = self.data.at + begin
        span.size = _get_i32(self.at + 4 * row + 4) - begin
        return span


def pack_rows(offsets, data, Py_ssize_t first, Py_ssize_t count, *, replies=None, headers=None, keys=None):
    """See rows_py.pack_rows."""
    cdef _Column content = _Column(offsets, data, first, count)
    cdef _Column answers = None if replies is None else _Column(*replies, count)
    cdef _Column names = None if keys is None else _Column(*keys, count)
    cdef list ends = None
    cdef bytes end = b""
    cdef Py_ssize_t row, total = 0
    cdef Span value, reply, key
    cdef uint8_t* out
    cdef Py_ssize_t size
    reply.at, reply.size = NULL, 0
    key.at, key.size = NULL, 0
    if isinstance(headers, bytes):
        end = headers
    elif headers is not None:
        if len(headers) != count:
            raise ValueError("headers are not as many as rows")
        ends = [encode_headers(pairs) if pairs else b"" for pairs in headers]
    for row in range(count):
        if answers is not None:
            reply = answers.value(row)
        if ends is not None:
            end = ends[row]
        if names is not None:
            key = names.value(row)
        total += 4 + text_size(reply.size) + text_size(content.value(row).size) + PyBytes_GET_SIZE(end)
        total += long_text_size(key.size) if key.size > 0 else 0
    cdef bytes rows = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t*> PyBytes_AS_STRING(rows)
    for row in range(count):
        value = content.value(row)
        if answers is not None:
            reply = answers.value(row)
        if ends is not None:
            end = ends[row]
        if names is not None:
            key = names.value(row)
        size = text_size(reply.size) + text_size(value.size) + PyBytes_GET_SIZE(end)
        out = put_u32(out, <uint64_t> (size + (long_text_size(key.size) if key.size > 0 else 0)))
        out = put_text(out, 3, reply.at, reply.size)
        out = put_text(out, 4, value.at, value.size)
        out = put(out, _start(end), PyBytes_GET_SIZE(end))
        if key.size > 0:
            out = put_long_text(out, 17, key.at, key.size)
    return rows


# --- rows --------------------------------------------------------------------------------------------------------


cdef inline const uint8_t* _row_end(const uint8_t* at, const uint8_t* end) noexcept:
    """Where the row at *at* ends; NULL if it is cut off."""
    if end - at < 4 or <Py_ssize_t> get_u32(at) > end - at - 4:
        return NULL
    return at + 4 + get_u32(at)


cdef inline bint _is_good(const uint8_t* at, const uint8_t* end) noexcept:
    """Whether [at, end) holds the fields of a row."""
    cdef Span text
    if at < end and at[0] == 0x1A:
        at = behind_text(at + 1, end, False, &text)
        if at == NULL:
            return False
    if at < end and at[0] == 0x22:
        at = behind_text(at + 1, end, False, &text)
        if at == NULL:
            return False
    while end - at >= 2 and at[0] == 0x82 and at[1] == 1:
        at = behind_text(at + 2, end, True, &text)
        if at == NULL or not is_header(text.at, text.at + text.size):
            return False
    if end - at >= 2 and at[0] == 0x8A and at[1] == 1:
        at = behind_text(at + 2, end, False, &text)
        if at == NULL or text.size > KEY_MAX:
            return False
    return at == end


def check_rows(bytes rows not None, Py_ssize_t count):
    """See rows_py.check_rows."""
    cdef const uint8_t* at = _start(rows)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(rows)
    cdef const uint8_t* stop
    cdef Py_ssize_t row = 0
    while at < end and row < count:
        stop = _row_end(at, end)
        if stop == NULL or not _is_good(at + 4, stop):
            return row
        at = stop
        row += 1
    return -1 if at == end and row == count else row


def pick_rows(bytes rows not None, bytes mask not None):
    """See rows_py.pick_rows."""
    cdef const uint8_t* at = _start(rows)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(rows)
    cdef const uint8_t* wanted = _start(mask)
    cdef const uint8_t* stop
    cdef Py_ssize_t row, total = 0, count = PyBytes_GET_SIZE(mask)
    cdef uint8_t* out
    for row in range(count):
        stop = _row_end(at, end)
        if stop == NULL:
            raise ValueError("row cut off")
        if wanted[row]:
            total += stop - at
        at = stop
    if at != end:
        raise ValueError("more rows than the mask tells")
    cdef bytes picked = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t*> PyBytes_AS_STRING(picked)
    at = _start(rows)
    for row in range(count):
        stop = at + 4 + get_u32(at)
        if wanted[row]:
            out = put(out, at, stop - at)
        at = stop
    return picked


def behind(records, Py_ssize_t at, Py_ssize_t count, Py_ssize_t bytes_max):
    """See rows_py.behind."""
    cdef _View view = _View(records)
    if at < 0 or at > view.size:
        raise ValueError("no such place")
    cdef const uint8_t* begin = view.at + at
    cdef const uint8_t* place = begin
    cdef const uint8_t* end = view.at + view.size
    cdef const uint8_t* stop
    cdef Py_ssize_t taken = 0
    while taken < count:
        stop = _row_end(place, end)
        if stop == NULL:
            raise ValueError("record cut off")
        if stop - begin > bytes_max:
            break
        place = stop
        taken += 1
    return taken, place - view.at


def seal(bytes channel not None, uint64_t base_sequence, int64_t timestamp, bodies):
    """See rows_py.seal."""
    cdef list parts = list(bodies)
    cdef const uint8_t* name = _start(channel)
    cdef Py_ssize_t name_size = PyBytes_GET_SIZE(channel)
    cdef Py_ssize_t fixed = text_size(name_size) + number_size(<uint64_t> timestamp)
    cdef Py_ssize_t total = 0, size
    cdef uint64_t sequence = base_sequence
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef uint8_t* out
    cdef bytes part
    if base_sequence < 1:
        raise ValueError("base_sequence must be 1 or more")
    for part in parts:
        at = _start(part)
        end = at + PyBytes_GET_SIZE(part)
        while at < end:
            size = record_size(at, end)
            total += 4 + number_size(sequence) + fixed + size
            at += 4 + size
            sequence += 1
    cdef bytes records = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t*> PyBytes_AS_STRING(records)
    sequence = base_sequence
    for part in parts:
        at = _start(part)
        end = at + PyBytes_GET_SIZE(part)
        while at < end:
            size = <Py_ssize_t> get_u32(at)
            out = put_u32(out, <uint64_t> (number_size(sequence) + fixed + size))
            out = put_number(out, 1, sequence)
            out = put_text(out, 2, name, name_size)
            out = put(out, at + 4, size)
            out = put_number(out, 5, <uint64_t> timestamp)
            at += 4 + size
            sequence += 1
    return records


def slots(records):
    """See rows_py.slots."""
    cdef Py_buffer view
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        return _slots(<const uint8_t*> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef tuple _slots(const uint8_t* begin, Py_ssize_t length):
    cdef const uint8_t* at = begin
    cdef const uint8_t* end = begin + length
    cdef Py_ssize_t count = 0, size
    cdef uint32_t slot
    while at < end:
        at += 4 + record_size(at, end)
        count += 1
    cdef bytes found = PyBytes_FromStringAndSize(NULL, 2 * count)
    cdef bytes ends = PyBytes_FromStringAndSize(NULL, 4 * count)
    cdef uint8_t* into = <uint8_t*> PyBytes_AS_STRING(found)
    cdef uint8_t* place = <uint8_t*> PyBytes_AS_STRING(ends)
    at = begin
    while at < end:
        size = <Py_ssize_t> get_u32(at)
        slot = _slot_of(at + 4, at + 4 + size)
        into[0] = slot & 0xFF
        into[1] = slot >> 8
        into += 2
        at += 4 + size
        place = put_u32(place, <uint64_t> (at - begin))
    return found, ends


cdef uint32_t _slot_of(const uint8_t* at, const uint8_t* end) noexcept:
    """A hash of the key of a MsgProto: FNV-1a of 32 bits, folded."""
    cdef Field field
    cdef Span key
    cdef uint32_t hashed = 0x811C9DC5
    cdef Py_ssize_t i
    key.at = end
    key.size = 0
    while at < end:
        at = next_field(at, end, &field)
        if at == NULL or (field.number == 17 and field.wire != 2):
            return NO_SLOT
        if field.number == 17:
            key = field.text
    if key.size == 0:
        return NO_SLOT
    for i in range(key.size):
        hashed = (hashed ^ key.at[i]) * <uint32_t> 0x01000193
    return (hashed ^ (hashed >> 16)) % SLOTS


# --- out of records ----------------------------------------------------------------------------------------------


cdef struct _Message:
    uint64_t sequence
    uint64_t timestamp
    Span data
    Span reply
    Span key


cdef inline bint _parse(const uint8_t* at, const uint8_t* end, _Message* message) noexcept:
    """MsgProto: the last value of each field wins; headers and unknown fields are skipped."""
    cdef Field field
    message.sequence = message.timestamp = 0
    message.data.at = message.reply.at = message.key.at = end
    message.data.size = message.reply.size = message.key.size = 0
    while at < end:
        at = next_field(at, end, &field)
        if at == NULL:
            return False
        if 2 <= field.number <= 4 or field.number == 16 or field.number == 17:
            if field.wire != 2:
                return False
            if field.number == 4:
                message.data = field.text
            elif field.number == 3:
                message.reply = field.text
            elif field.number == 17:
                message.key = field.text
        elif field.number <= 7 or field.number == 10:
            if field.wire != 0:
                return False
            if field.number == 1:
                message.sequence = field.value
            elif field.number == 5:
                message.timestamp = field.value
    return True


cdef class _Spans:
    """Data, reply and key of each message, and the sizes of all."""

    cdef Span* at
    cdef int64_t[3] sizes

    def __cinit__(self, Py_ssize_t count):
        self.at = <Span*> malloc(<size_t> (3 * count + 1) * sizeof(Span))
        if self.at == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.at)

    cdef bytes column(self, Py_ssize_t which, Py_ssize_t count):
        """The bytes of all of one column's values."""
        cdef bytes column = PyBytes_FromStringAndSize(NULL, self.sizes[which])
        cdef uint8_t* out = <uint8_t*> PyBytes_AS_STRING(column)
        cdef Py_ssize_t row
        if PyBytes_GET_SIZE(column) == 0:
            return column
        for row in range(count):
            out = put(out, self.at[3 * row + which].at, self.at[3 * row + which].size)
        return column

    cdef bytes offsets(self, Py_ssize_t which, Py_ssize_t count):
        """Where each value of a column begins in `column`, and where the last one ends."""
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, 4 * count + 4)
        cdef uint8_t* out = put_u32(<uint8_t*> PyBytes_AS_STRING(offsets), 0)
        cdef int64_t place = 0
        cdef Py_ssize_t row
        for row in range(count):
            place += self.at[3 * row + which].size
            out = put_u32(out, <uint64_t> place)
        return offsets


def columns(records, Py_ssize_t count, *, bint headers=False, bint keys=False):
    """See rows_py.columns."""
    cdef _View view = _View(records)
    cdef const uint8_t* at = view.at
    cdef const uint8_t* end = at + view.size
    cdef const uint8_t* stop
    cdef _Message message
    cdef Py_ssize_t row = 0
    if count < 0:
        raise ValueError("count cannot be negative")
    if count > view.size // 4:  # before room is made for them
        raise ValueError("fewer records than were told")
    cdef _Spans spans = _Spans(count)
    cdef bytes sequences = PyBytes_FromStringAndSize(NULL, 8 * count)
    cdef bytes timestamps = PyBytes_FromStringAndSize(NULL, 8 * count)
    cdef uint8_t* sequence_out = <uint8_t*> PyBytes_AS_STRING(sequences)
    cdef uint8_t* timestamp_out = <uint8_t*> PyBytes_AS_STRING(timestamps)
    while at < end:
        stop = _row_end(at, end)
        if stop == NULL:
            raise ValueError("record cut off")
        if row == count:
            raise ValueError("more records than were told")
        if not _parse(at + 4, stop, &message):
            raise ValueError("not a MsgProto")
        spans.sizes[0] += message.data.size
        spans.sizes[1] += message.reply.size
        spans.sizes[2] += message.key.size
        if spans.sizes[0] > OFFSET_MAX or spans.sizes[1] > OFFSET_MAX or spans.sizes[2] > OFFSET_MAX:
            raise ValueError("a column of 2 GiB or more")
        spans.at[3 * row] = message.data
        spans.at[3 * row + 1] = message.reply
        spans.at[3 * row + 2] = message.key
        sequence_out = _put_u64(sequence_out, message.sequence)
        timestamp_out = _put_u64(timestamp_out, message.timestamp)
        at = stop
        row += 1
    if row != count:
        raise ValueError("fewer records than were told")
    return Columns(
        sequences,
        timestamps,
        spans.offsets(0, count),
        spans.column(0, count),
        spans.offsets(1, count),
        spans.column(1, count),
        _all_headers(view.at, end, count) if headers else None,
        (spans.offsets(2, count), spans.column(2, count)) if keys else None,
    )


cdef list _all_headers(const uint8_t* at, const uint8_t* end, Py_ssize_t count):
    """The headers of each message; they are known to be whole."""
    cdef list found = []
    cdef const uint8_t* stop
    cdef Field field
    field.number = 0
    while at < end:
        stop = at + 4 + get_u32(at)
        at += 4
        pairs = ()
        while at < stop:
            at = next_field(at, stop, &field)
            if field.number == 16:
                pairs += (_pair(field.text),)
        found.append(pairs)
    return found


cdef tuple _pair(Span content):
    cdef const uint8_t* at = content.at
    cdef const uint8_t* end = at + content.size
    cdef Span key, value
    cdef Field field
    key.at = value.at = end
    key.size = value.size = 0
    while at < end:
        at = next_field(at, end, &field)
        if at == NULL or (field.number <= 2 and field.wire != 2):
            raise ValueError("not a header")
        if field.number == 1:
            key = field.text
        elif field.number == 2:
            value = field.text
    return _text(key), _text(value)


# --- ids ---------------------------------------------------------------------------------------------------------


cdef enum:
    BLAKE_BLOCK = 128
    BLAKE_TEXT = 16  # salt, and person

cdef uint64_t[8] BLAKE_START = [
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
]
cdef uint8_t[12][16] BLAKE_ORDER = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
]


cdef inline uint64_t _get_u64(const uint8_t* at) noexcept:
    return get_u32(at) | <uint64_t> get_u32(at + 4) << 32


cdef inline uint64_t _turned(uint64_t value, int bits) noexcept:
    return value >> bits | value << (64 - bits)


cdef inline void _mix(uint64_t* a, uint64_t* b, uint64_t* c, uint64_t* d, uint64_t x, uint64_t y) noexcept:
    a[0] += b[0] + x
    d[0] = _turned(d[0] ^ a[0], 32)
    c[0] += d[0]
    b[0] = _turned(b[0] ^ c[0], 24)
    a[0] += b[0] + y
    d[0] = _turned(d[0] ^ a[0], 16)
    c[0] += d[0]
    b[0] = _turned(b[0] ^ c[0], 63)


cdef void _take_block(uint64_t* state, const uint8_t* block, uint64_t taken, bint last) noexcept:
    """One block of BLAKE2b, up to byte *taken* of the input."""
    cdef uint64_t[16] words
    cdef uint64_t[16] v
    cdef const uint8_t* order
    cdef int at, turn
    for at in range(16):
        words[at] = _get_u64(block + 8 * at)
    for at in range(8):
        v[at] = state[at]
        v[8 + at] = BLAKE_START[at]
    v[12] ^= taken
    if last:
        v[14] = ~v[14]
    for turn in range(12):
        order = BLAKE_ORDER[turn]
        _mix(&v[0], &v[4], &v[8], &v[12], words[order[0]], words[order[1]])
        _mix(&v[1], &v[5], &v[9], &v[13], words[order[2]], words[order[3]])
        _mix(&v[2], &v[6], &v[10], &v[14], words[order[4]], words[order[5]])
        _mix(&v[3], &v[7], &v[11], &v[15], words[order[6]], words[order[7]])
        _mix(&v[0], &v[5], &v[10], &v[15], words[order[8]], words[order[9]])
        _mix(&v[1], &v[6], &v[11], &v[12], words[order[10]], words[order[11]])
        _mix(&v[2], &v[7], &v[8], &v[13], words[order[12]], words[order[13]])
        _mix(&v[3], &v[4], &v[9], &v[14], words[order[14]], words[order[15]])
    for at in range(8):
        state[at] ^= v[at] ^ v[8 + at]


def digests(offsets, data, Py_ssize_t first, Py_ssize_t count, *, bytes salt=b"", bytes person=b""):
    """See rows_py.digests."""
    cdef _Column column = _Column(offsets, data, first, count)
    if max(len(salt), len(person)) > BLAKE_TEXT:
        raise ValueError("salt and person have 16 bytes at most")
    cdef bytes texts = salt.ljust(BLAKE_TEXT, b"\0") + person.ljust(BLAKE_TEXT, b"\0")
    cdef bytes found = PyBytes_FromStringAndSize(NULL, ID_SIZE * count)
    cdef uint8_t* out = <uint8_t*> PyBytes_AS_STRING(found)
    cdef uint64_t[8] begin
    cdef uint64_t[8] state
    cdef uint8_t[BLAKE_BLOCK] block
    cdef Py_ssize_t row, at, left
    cdef Span value
    for at in range(8):
        begin[at] = BLAKE_START[at]
    begin[0] ^= 0x01010000 ^ ID_SIZE  # one leaf, no key
    for at in range(4):
        begin[4 + at] ^= _get_u64(_start(texts) + 8 * at)
    for row in range(count):
        value = column.value(row)
        memcpy(state, begin, sizeof(begin))
        at = 0
        while value.size - at > BLAKE_BLOCK:
            _take_block(state, value.at + at, at + BLAKE_BLOCK, False)
            at += BLAKE_BLOCK
        left = value.size - at
        if left == BLAKE_BLOCK:
            _take_block(state, value.at + at, value.size, True)
        else:
            memset(block, 0, BLAKE_BLOCK)
            if left > 0:
                memcpy(block, value.at + at, left)
            _take_block(state, block, value.size, True)
        out = _put_u64(_put_u64(out, state[0]), state[1])
    return found


cdef inline uint64_t _hash(const uint8_t* at) noexcept:
    cdef uint64_t one, two
    memcpy(&one, at, 8)
    memcpy(&two, at + 8, 8)
    one = (one ^ (one >> 32)) * <uint64_t> 0x9E3779B97F4A7C15
    two = (two ^ (two >> 29) ^ one) * <uint64_t> 0xBF58476D1CE4E5B9
    two ^= two >> 32
    two *= <uint64_t> 0x94D049BB133111EB
    return two ^ (two >> 31)


cdef class IdSet:
    """See rows_py.IdSet. A table with open addressing, at most two thirds full."""

    cdef uint8_t* slots  # ID_SIZE bytes each
    cdef uint8_t* taken  # one byte each
    cdef size_t room  # a power of two, or 0
    cdef size_t count

    def __dealloc__(self):
        free(self.slots)
        free(self.taken)

    def __len__(self):
        return self.count

    cdef size_t place(self, const uint8_t* item) noexcept:
        """Where *item* is, or may be put; there is room."""
        cdef size_t at = <size_t> _hash(item) & (self.room - 1)
        while self.taken[at] and memcmp(self.slots + ID_SIZE * at, item, ID_SIZE) != 0:
            at = (at + 1) & (self.room - 1)
        return at

    cdef int grow(self, size_t more) except -1:
        """Make room for *more* ids."""
        cdef uint8_t* slots = self.slots
        cdef uint8_t* taken = self.taken
        cdef size_t old = self.room, room = 64, at, to
        while room * 2 < (self.count + more) * 3:
            room *= 2
        if room <= old:
            return 0
        cdef uint8_t* new_slots = <uint8_t*> malloc(room * ID_SIZE)
        cdef uint8_t* new_taken = <uint8_t*> calloc(room, 1)
        if new_slots == NULL or new_taken == NULL:
            free(new_slots)
            free(new_taken)
            raise MemoryError
        self.slots, self.taken, self.room = new_slots, new_taken, room
        for at in range(old):
            if taken[at]:
                to = self.place(slots + ID_SIZE * at)
                memcpy(new_slots + ID_SIZE * to, slots + ID_SIZE * at, ID_SIZE)
                new_taken[to] = 1
        free(slots)
        free(taken)
        return 0

    def add(self, bytes ids not None):
        """See rows_py.IdSet.add."""
        cdef const uint8_t* item = _start(ids)
        cdef Py_ssize_t row, count = _count(ids)
        cdef bytes mask = PyBytes_FromStringAndSize(NULL, count)
        cdef uint8_t* out = <uint8_t*> PyBytes_AS_STRING(mask)
        cdef size_t at
        self.grow(<size_t> count)
        for row in range(count):
            at = self.place(item)
            out[row] = not self.taken[at]
            if not self.taken[at]:
                memcpy(self.slots + ID_SIZE * at, item, ID_SIZE)
                self.taken[at] = 1
                self.count += 1
            item += ID_SIZE
        return mask

    def missing(self, bytes ids not None):
        """See rows_py.IdSet.missing."""
        cdef const uint8_t* item = _start(ids)
        cdef Py_ssize_t row, count = _count(ids)
        cdef bytes mask = PyBytes_FromStringAndSize(NULL, count)
        cdef uint8_t* out = <uint8_t*> PyBytes_AS_STRING(mask)
        for row in range(count):
            out[row] = self.room == 0 or not self.taken[self.place(item)]
            item += ID_SIZE
        return mask


def pick_ids(bytes ids not None, bytes mask not None):
    """See rows_py.pick_ids."""
    cdef const uint8_t* item = _start(ids)
    cdef const uint8_t* wanted = _start(mask)
    cdef Py_ssize_t row, total = 0, count = PyBytes_GET_SIZE(mask)
    cdef uint8_t* out
    if PyBytes_GET_SIZE(ids) != ID_SIZE * count:
        raise ValueError("ids are not as many as the mask tells")
    for row in range(count):
        total += wanted[row] != 0
    cdef bytes picked = PyBytes_FromStringAndSize(NULL, ID_SIZE * total)
    out = <uint8_t*> PyBytes_AS_STRING(picked)
    for row in range(count):
        if wanted[row]:
            out = put(out, item, ID_SIZE)
        item += ID_SIZE
    return picked


cdef inline Py_ssize_t _count(bytes ids) except -1:
    if PyBytes_GET_SIZE(ids) % ID_SIZE:
        raise ValueError("an id is cut off")
    return PyBytes_GET_SIZE(ids) // ID_SIZE
