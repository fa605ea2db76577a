# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The batch kernel of the server, compiled: scan, seal and frames as server_py.py promises them, byte for byte.

Never makes a Python object per message in the steady case (same channel, same publisher as the message before); never
reads behind a buffer, which wire_c.pxd sees to. Becomes the top-level module `_stan_kernel`, so that a source tree
that shadows the installed package still finds it. Modelled on server_py.py, its twin.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy

from wire_c cimport (
    LINES, Buffer, Field, Line, RawFrame, Span, decimal_size, fits, get_decimal, get_u32, get_u64, get_varint, is_header, put_varint,
    line_of, long_text_size, next_field, next_frame, number_size, put, put_crlf, put_decimal, put_long_text, put_number, put_pub, put_pub_to,
    put_text, put_u32, record_size, reserve, same, text_size,
)

from collections import deque

from stan import limits
from stan_protocol.frames import ANYBODY, NO_TIMES, Acks, StreamAcks, Frame, Publishes, Scan, StreamMessages, Times
from stan.protocol.kernel.server_py import Assigned

cdef extern from *:
    ctypedef unsigned long long uint128 "unsigned __int128"  # gcc and clang have it on each host of 64 bits


cdef enum:
    KEY_BYTES = 8  # as in frames.py
    PREFIXES_MAX = 16  # more than a configuration may have of them
    SLOTS = 32768  # as in parted.py
    NO_SLOT = 0xFFFF
    AHEAD = 6  # records that are fetched into the processor's cache before they are read
    ACK_SUBJECT_MAX = 1000  # bytes of a control line up to the end of an ack subject that are looked at in one go
    ROOM = 15  # of PubAck.sequence with a varint of ten bytes, and of PubAck.ack_level with one of a byte

KERNEL_VERSION = 18

cdef Py_ssize_t LINE_MAX = limits.NATS_CONTROL_LINE_BYTES_MAX
cdef Py_ssize_t PAYLOAD_MAX = limits.NATS_PAYLOAD_BYTES_MAX
cdef Py_ssize_t INBOX_MAX = limits.INBOX_BYTES_MAX
cdef Py_ssize_t PUBLISHERS_MAX = limits.PUBLISHERS_PER_BATCH_MAX
cdef Py_ssize_t HEADERS_MAX = limits.HEADERS_BYTES_MAX
cdef Py_ssize_t KEY_MAX = limits.KEY_BYTES_MAX
cdef Py_ssize_t REASON_MAX = limits.REASON_BYTES_MAX
cdef Py_ssize_t RANGE_WORK = limits.RANGE_WORK
cdef Py_ssize_t BATCH_WORK = limits.BATCH_WORK
cdef Py_ssize_t REQUEST_WORK = limits.REQUEST_WORK
cdef Py_ssize_t COMPRESSED_WORK = limits.COMPRESSED_WORK
cdef bytes ZSTD_MAGIC = limits.ZSTD_MAGIC
cdef object _new = tuple.__new__


cdef inline bytes _bytes(const uint8_t* at, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char*> at, size)


cdef inline bytes _text(Span span):
    return PyBytes_FromStringAndSize(<const char*> span.at, span.size)


cdef inline const uint8_t* _start(bytes text):
    return <const uint8_t*> PyBytes_AS_STRING(text)


cdef extern from *:
    void __builtin_prefetch(const void*) noexcept  # of gcc and clang; reads nothing


cdef struct Publish:
    Span[7] texts  # fields 1 to 6
    Span payload
    Span key
    Py_ssize_t headers  # their size as encoded
    uint64_t due  # Unix ns; 0: at once
    bint numbered  # its ack shall tell the sequence, and what it means
    uint64_t ttl  # ns, as it came; 0: none


cdef class _Group:
    """The publishes of one user for one channel; the spans point into the buffer that is being scanned."""

    cdef bytes subject  # of NATS: tells user and channel
    cdef bytes channel
    cdef bytes user
    cdef bytes to  # what goes before the reply subject
    cdef dict publishers  # (clientID, connID) -> place in `publishers` of Publishes
    cdef Buffer bodies
    cdef Buffer acks
    cdef Buffer owners
    cdef Buffer replied
    cdef Buffer keys
    cdef Buffer dues  # empty if they are to be stored at once; else of all up to the last that is due later
    cdef Buffer ttls  # empty if none has any; else of all up to the last that has one
    cdef Span client
    cdef Span conn
    cdef bint keyed
    cdef bint numbered
    cdef uint32_t owner  # place of (client, conn)
    cdef Py_ssize_t divided_owner  # place of the same publisher in the batch that is being divided; -1: of none yet
    cdef Py_ssize_t count
    cdef Py_ssize_t unreplied
    cdef Py_ssize_t payload_bytes

    def __dealloc__(self):
        free(self.bodies.at)
        free(self.acks.at)
        free(self.owners.at)
        free(self.replied.at)
        free(self.keys.at)
        free(self.dues.at)
        free(self.ttls.at)

    cdef object publishes(self):
        return Publishes(
            self.channel,
            self.count,
            _bytes(self.bodies.at, self.bodies.used),
            _bytes(self.acks.at, self.acks.used),
            tuple(self.publishers),
            _bytes(self.owners.at, self.owners.used) if len(self.publishers) > 1 else b"",
            self.payload_bytes,
            _bytes(self.replied.at, self.replied.used) if self.unreplied else b"",
            _bytes(self.keys.at, self.keys.used),
            self.user,
            self.numbered,
            self.times() if self.dues.used or self.ttls.used else NO_TIMES,
        )

    cdef object times(self):
        cdef bytes dues = _bytes(self.dues.at, self.dues.used)
        cdef bytes ttls = _bytes(self.ttls.at, self.ttls.used)
        cdef Py_ssize_t size = 8 * self.count
        return Times(dues.ljust(size, b"\0") if dues else dues, ttls.ljust(size, b"\0") if ttls else ttls)


cdef class _Run:
    """The acks for one ack inbox."""

    cdef bytes inbox
    cdef bytes user
    cdef object group
    cdef object key
    cdef list ranges  # all but the one that still grows
    cdef bint growing
    cdef uint64_t first
    cdef uint64_t last

    cdef object acks(self):
        self.ranges.append((self.first, self.last))
        return Acks(self.group, self.key, self.ranges, self.user)

    cdef object of_consumer(self):
        self.ranges.append((self.first, self.last))
        return StreamAcks(self.group, self.key, self.ranges, self.user)


cdef struct Headers:
    # of a message for a stream of JetStream
    Py_ssize_t size  # as encoded
    Span id  # Nats-Msg-Id; empty: it has none


cdef class _Stream:
    """The messages for one stream of JetStream."""

    cdef object name
    cdef bytes user
    cdef bytes subject  # of all; b"": each has its own, as its key
    cdef bint keyed
    cdef bint replied  # some message has a reply subject
    cdef list ids  # empty if none has any; else of all up to the last that has one
    cdef Buffer bodies
    cdef Buffer replies
    cdef Py_ssize_t count
    cdef Py_ssize_t payload_bytes
    cdef Py_ssize_t largest
    cdef Py_ssize_t largest_body

    def __dealloc__(self):
        free(self.bodies.at)
        free(self.replies.at)

    cdef object messages(self):
        return StreamMessages(
            self.name,
            self.subject,
            self.count,
            _bytes(self.bodies.at, self.bodies.used),
            _bytes(self.replies.at, self.replies.used) if self.replied else b"",
            self.payload_bytes,
            self.largest,
            self.largest_body,
            self.ids + [b""] * (self.count - len(self.ids)) if self.ids else [],
            self.user,
        )


cdef class _Scanner:
    """What one call of scan has gathered so far."""

    cdef dict groups  # NATS subject -> _Group
    cdef dict runs  # ack inbox -> _Run
    cdef list malformed
    cdef list others
    cdef list verdicts
    cdef _Group group  # of the publish before
    cdef _Run run  # of the ack before
    cdef Line run_line  # control line of the ack before, which tells that the next ack belongs to the same run
    cdef const uint8_t* prefix
    cdef Py_ssize_t prefix_size
    cdef int64_t pub_sid
    cdef bint keyed
    cdef object rules
    cdef Span users  # of the rules; empty if there are none
    cdef Span to  # of the rules, likewise
    cdef Span replies[PREFIXES_MAX]
    cdef Span own[PREFIXES_MAX]
    cdef int replies_count
    cdef int own_count
    cdef object take
    cdef object ack_groups
    cdef dict wanted  # channel -> what `take` said
    cdef object subjects  # NATS subscription -> StreamSubject
    cdef int64_t consumer_sid
    cdef bint jetstream  # some of these
    cdef int64_t stream_sid  # of the frame before that was no publish and no ack
    cdef object stream_subject  # its stream, or None
    cdef _Stream stream  # of the message for a stream before
    cdef dict streams  # name and user -> _Stream
    cdef dict consumers  # beginning of an ack subject -> _Run
    cdef _Run consumer  # of the ack to a consumer before
    cdef Span consumer_line  # its control line up to the consumer's name; empty: there was none
    cdef Span consumer_end  # the rest of its frame, from the subject's end on
    cdef Line* lines  # met before, by hash; only if there is something to skip
    cdef Py_ssize_t more_work  # see server_py: the work besides the bytes

    def __dealloc__(self):
        free(self.lines)

    cdef int frame(self, list target, RawFrame* frame) except -1:
        payload = _text(frame.payload)
        if target is not self.others:
            self.more_work += BATCH_WORK
        else:
            self.more_work += COMPRESSED_WORK if ZSTD_MAGIC in payload else REQUEST_WORK
        target.append(
            _new(Frame, (frame.sid, _text(frame.subject), _text(frame.reply), _text(frame.header), payload))
        )
        return 1

    cdef int rule(self, object rules) except -1:
        cdef bytes prefix
        self.rules = rules
        self.users, self.to = _span(rules.users), _span(rules.to)
        self.replies_count, self.own_count = 0, 0
        if len(rules.replies) > PREFIXES_MAX or len(rules.own) > PREFIXES_MAX:
            raise ValueError("too many prefixes of reply subjects")
        for prefix in rules.replies:
            self.replies[self.replies_count] = _span(prefix)
            self.replies_count += 1
        for prefix in rules.own:
            self.own[self.own_count] = _span(prefix)
            self.own_count += 1
        return 0

    cdef bint said(self, Span* subject, Span* user) noexcept:
        """Cut what tells the user off *subject*; False if it should tell one and does not."""
        user.at = subject.at
        user.size = 0
        if self.users.size == 0:
            return True
        if not _cut(subject, self.users.at, self.users.size):
            return False
        user.at = subject.at
        while user.size < subject.size and user.at[user.size] != 46:
            user.size += 1
        subject.at += user.size + 1
        subject.size -= user.size + 1
        return user.size > 0 and subject.size > 0

    cdef bint answers(self, Span reply) noexcept:
        """Whether a publish may have this reply subject."""
        return (
            reply.size <= INBOX_MAX
            and _begins(reply, self.replies, self.replies_count)
            and not _begins(reply, self.own, self.own_count)
        )

    cdef bint unwanted(self, RawFrame* frame) except -1:
        """Whether the caller wants this publish or ack skipped; its subject alone tells."""
        cdef Span subject = frame.subject
        cdef Span user
        cdef int64_t group = 0
        cdef bytes channel
        if frame.sid == self.pub_sid:
            if self.take is None or not self.said(&subject, &user) or not _cut(&subject, self.prefix, self.prefix_size):
                return False
            channel = _text(subject)
            wanted = self.wanted.get(channel)
            if wanted is None:
                wanted = self.wanted[channel] = bool(self.take[channel])
            return not wanted
        if self.ack_groups is None:
            return False
        _last_token(&subject)
        return get_decimal(_last_token(&subject), &group) and group not in self.ack_groups

    cdef int publish(self, RawFrame* frame) except -1:
        """1 if taken, be it as malformed; 0 if the group holds too many publishers already."""
        cdef Publish message
        cdef Span* fields = message.texts
        cdef Span channel
        cdef Span user
        cdef _Group group = self.group
        if group is not None and same(frame.subject, _start(group.subject), PyBytes_GET_SIZE(group.subject)):
            channel.at, channel.size = _start(group.channel), PyBytes_GET_SIZE(group.channel)
        else:
            group = None
            channel = frame.subject
            if not self.said(&channel, &user) or not _cut(&channel, self.prefix, self.prefix_size):
                return self.frame(self.malformed, frame)
        if (
            not _parse_pub(frame.payload, &message)
            or fields[2].size == 0
            or not same(channel, fields[3].at, fields[3].size)
            or (frame.reply.size > 0 and not self.answers(frame.reply))
        ):
            return self.frame(self.malformed, frame)
        if message.due > 0:  # a batch of their own
            if group is not None:
                user = _span(group.user)
            group = self.group_of(_text(frame.subject) + b" later", channel, user)
        elif group is None:
            group = self.group = self.group_of(_text(frame.subject), channel, user)
        if not (
            group.count > 0
            and same(group.client, fields[1].at, fields[1].size)
            and same(group.conn, fields[6].at, fields[6].size)
        ) and not _set_owner(group, fields):
            return 0
        _append(group, frame, &message)
        return 1

    cdef _Group group_of(self, bytes subject, Span channel, Span user):
        cdef _Group group = self.groups.get(subject)
        if group is None:
            group = _Group()
            group.subject, group.channel, group.user, group.keyed = subject, _text(channel), _text(user), self.keyed
            group.to = self.rules.to + group.user + b"." if user.size else b""
            group.publishers = {}
            self.groups[subject] = group
            self.more_work += BATCH_WORK
        return group

    cdef bint acked_again(self, const uint8_t* at, const uint8_t* end) except -1:
        """Take the frame at *at* if it is an ack with the control line of the ack before, and well-formed; True if it is."""
        cdef uint64_t sequence = 0
        cdef bint more = False
        cdef Span payload
        if not fits(&self.run_line, at, end):
            return False
        payload.at = at + self.run_line.size
        payload.size = self.run_line.whole - self.run_line.size - 2
        if not _parse_ack(payload, &sequence, &more) or more:
            return False
        self.acked(self.run, sequence)
        return True

    cdef int ack(self, const uint8_t* at, RawFrame* frame) except -1:
        """Take the ack whose frame begins at *at*, be it as malformed."""
        cdef uint64_t sequence = 0
        cdef bint more = False
        cdef _Run run = self.run
        if not _parse_ack(frame.payload, &sequence, &more):
            return self.frame(self.malformed, frame)
        if run is None or not same(frame.subject, _start(run.inbox), PyBytes_GET_SIZE(run.inbox)):
            run = self.run_of(frame.subject)
            if run is None:
                return self.frame(self.malformed, frame)
            self.run = run
        self.run_line = Line(at, frame.payload.at - at, frame.next - at, False)
        if frame.header.size > 0:
            self.run_line.whole = 0
        if more:
            return self.frame(self.verdicts, frame)
        self.acked(run, sequence)
        return 1

    cdef int acked(self, _Run run, uint64_t sequence) except -1:
        if run.growing and sequence == run.last + 1 and sequence != 0:
            run.last = sequence
            return 1
        if run.growing:
            run.ranges.append((run.first, run.last))
            self.more_work += RANGE_WORK
        run.first = run.last = sequence
        run.growing = True
        return 1

    cdef int other(self, const uint8_t* at, RawFrame* frame) except -1:
        """Take the frame at *at*, which is neither a publish nor an ack; 0 if it is one of JetStream's behind another frame: scan
        must stop."""
        cdef Span named
        cdef Span subject = frame.subject
        cdef Span user
        cdef uint64_t sequence = 0
        cdef Headers headers
        if not self.jetstream or not self.said(&subject, &user):
            return self.frame(self.others, frame)
        if frame.sid == self.consumer_sid:
            if frame.header.size > 0 or not _is_consumer_ack(frame, subject, &named, &sequence):
                return self.frame(self.others, frame)
            if self.others:
                return 0
            self.consumer_line = Span(at, named.at + named.size - at)
            self.consumer_end = Span(frame.subject.at + frame.subject.size, 0)
            self.consumer_end.size = frame.next - self.consumer_end.at
            return self.consumer_ack(named, user, sequence)
        if frame.sid != self.stream_sid:
            self.stream_sid, self.stream_subject = frame.sid, self.subjects.get(frame.sid)
            self.stream = None
        if (
            self.stream_subject is None
            or subject.size > KEY_MAX
            or (frame.reply.size > 0 and not (self.answers(frame.reply) and _is_subject(frame.reply)))
            or not _headers(frame.header, &headers)
        ):
            return self.frame(self.others, frame)
        return 0 if self.others else self.stream_message(frame, subject, user, &headers)

    cdef Py_ssize_t consumer_acked_again(self, const uint8_t* at, const uint8_t* end) except -1:
        """Take the frame at *at* if it is an ack to the consumer of the ack before, and differs in its numbers alone; returns its
        size, 0 if it is another one."""
        cdef const uint8_t* begin = at
        cdef Span number
        cdef int64_t sequence = 0
        cdef int i
        if (
            end - at < self.consumer_line.size + self.consumer_end.size
            or memcmp(at, self.consumer_line.at, <size_t> self.consumer_line.size) != 0
        ):
            return 0
        at += self.consumer_line.size
        for i in range(5):
            if end - at < 2 + self.consumer_end.size or at[0] != 46:
                return 0
            at += 1
            number.at = at
            while at < end and 48 <= at[0] <= 57:
                at += 1
            number.size = at - number.at
            if number.size == 0 or (i == 1 and not get_decimal(number, &sequence)):
                return 0
        if (
            end - at < self.consumer_end.size
            or memcmp(at, self.consumer_end.at, <size_t> self.consumer_end.size) != 0
            or at - begin > ACK_SUBJECT_MAX
        ):
            return 0
        self.acked(self.consumer, <uint64_t> sequence)
        return at + self.consumer_end.size - begin

    cdef int consumer_ack(self, Span named, Span user, uint64_t sequence) except -1:
        """Add an ack to the ranges of its consumer; *named*: its subject up to the consumer's name, *user* included."""
        cdef _Run run = self.consumer
        cdef bytes inbox
        cdef list tokens
        if run is None or not same(named, _start(run.inbox), PyBytes_GET_SIZE(run.inbox)):
            inbox = _text(named)
            run = self.consumers.get(inbox)
            if run is None:
                tokens = inbox.rsplit(b".", 2)
                run = _Run()
                run.inbox, run.user, run.group, run.key, run.ranges = inbox, _text(user), tokens[1], tokens[2], []
                self.consumers[inbox] = run
                self.more_work += BATCH_WORK
            self.consumer = run
        return self.acked(run, sequence)

    cdef _Stream stream_of(self, Span subject, Span user):
        """The stream of a message from that user, a new one if need be."""
        cdef _Stream stream
        cdef bytes name_of_user = _text(user)
        name, keyed = self.stream_subject
        stream = self.streams.get((name, name_of_user))
        if stream is None:
            stream = self.streams[name, name_of_user] = _Stream()
            stream.ids = []
            stream.name, stream.user, stream.keyed = name, name_of_user, keyed
            stream.subject = b"" if keyed else _text(subject)
            self.more_work += BATCH_WORK
        return stream

    cdef int stream_message(self, RawFrame* frame, Span subject, Span user, Headers* headers) except -1:
        """Add a message to those of its stream; *subject*: as its user sent it."""
        cdef _Stream stream = self.stream
        cdef Py_ssize_t size, answered = frame.reply.size
        cdef uint8_t* out
        if stream is None or not same(user, _start(stream.user), PyBytes_GET_SIZE(stream.user)):
            stream = self.stream = self.stream_of(subject, user)
        size = text_size(frame.payload.size) + headers.size
        if stream.keyed:
            size += long_text_size(subject.size)
        if size > stream.largest_body:
            stream.largest_body = size
        out = put_u32(reserve(&stream.bodies, <size_t> size + 4), <uint64_t> size)
        out = put_text(out, 4, frame.payload.at, frame.payload.size)
        if headers.size > 0:
            out = _put_stored_headers(out, frame.header)
        if headers.id.size > 0:
            while len(stream.ids) < stream.count:
                stream.ids.append(b"")
            stream.ids.append(_text(headers.id))
        if stream.keyed:
            put_long_text(out, 17, subject.at, subject.size)
        stream.bodies.used += <size_t> size + 4
        if user.size > 0 and frame.reply.size > 0:
            answered += self.to.size + user.size + 1
        out = put_u32(reserve(&stream.replies, <size_t> answered + 4), <uint64_t> answered)
        if answered > frame.reply.size:
            out = put(put(out, self.to.at, self.to.size), user.at, user.size)
            out[0] = 46
            out += 1
        put(out, frame.reply.at, frame.reply.size)
        stream.replies.used += <size_t> answered + 4
        stream.replied |= answered > 0
        stream.count += 1
        stream.payload_bytes += frame.payload.size
        if frame.header.size + frame.payload.size > stream.largest:
            stream.largest = frame.header.size + frame.payload.size
        return 1

    cdef _Run run_of(self, Span subject):
        """The run of this ack inbox, a new one if need be; None if the inbox does not end with two numbers."""
        cdef bytes inbox = _text(subject)
        cdef _Run run = self.runs.get(inbox)
        cdef Span token
        cdef Span user
        cdef int64_t group = 0, key = 0
        if run is None:
            if not self.said(&subject, &user):
                return None
            token = _last_token(&subject)
            if not get_decimal(token, &key):
                return None
            token = _last_token(&subject)
            if not get_decimal(token, &group):
                return None
            run = _Run()
            run.inbox, run.user, run.group, run.key, run.ranges = inbox, _text(user), group, key, []
            self.runs[inbox] = run
            self.more_work += BATCH_WORK
        return run


cdef Span _span(bytes text) noexcept:
    """Valid as long as *text* is."""
    cdef Span span
    span.at = _start(text)
    span.size = PyBytes_GET_SIZE(text)
    return span


cdef inline bint _begins(Span text, Span* prefixes, int count) noexcept:
    """Whether *text* begins with one of *prefixes*."""
    cdef int i
    for i in range(count):
        if prefixes[i].size <= text.size and memcmp(text.at, prefixes[i].at, <size_t> prefixes[i].size) == 0:
            return True
    return False


cdef inline bint _cut(Span* subject, const uint8_t* prefix, Py_ssize_t size) noexcept:
    """Cut *prefix* off; False if it does not stand there, or nothing follows."""
    if subject.size <= size or memcmp(subject.at, prefix, <size_t> size) != 0:
        return False
    subject.at += size
    subject.size -= size
    return True


cdef Span _last_token(Span* subject) noexcept:
    """Cut `.<token>` off the end of *subject*; an empty token if there is no dot."""
    cdef Span token
    token.at = subject.at + subject.size
    token.size = 0
    while subject.size > 0:
        subject.size -= 1
        if subject.at[subject.size] == 46:
            return token
        token.at -= 1
        token.size += 1
    token.size = 0
    return token


cdef bint _is_subject(Span text) noexcept:
    """See is_subject in stan_protocol/channels.py; the size is checked elsewhere."""
    cdef Py_ssize_t i, begin = 0
    cdef uint8_t byte
    for i in range(text.size + 1):
        byte = text.at[i] if i < text.size else 46
        if byte == 46:
            if i == begin or (i == begin + 1 and (text.at[begin] == 42 or text.at[begin] == 62)):
                return False
            begin = i + 1
        elif byte == 32 or byte == 9 or byte == 13 or byte == 10 or byte == 0:
            return False
    return True


cdef inline const uint8_t* _line_end(const uint8_t* at, const uint8_t* end) noexcept:
    """Where the CRLF behind the line at *at* stands; NULL if there is none."""
    while at < end:
        at = <const uint8_t*> memchr(at, 13, <size_t> (end - at))
        if at == NULL or end - at < 2:
            return NULL
        if at[1] == 10:
            return at
        at += 1
    return NULL


cdef inline bint _is_blank(uint8_t byte) noexcept:
    return byte == 32 or byte == 9


cdef bint _header_line(const uint8_t* at, const uint8_t* stop, Span* name, Span* value) noexcept:
    """Cut a line `<name>: <value>`; False if it is another."""
    cdef const uint8_t* colon = <const uint8_t*> memchr(at, 58, <size_t> (stop - at))
    if colon == NULL or colon == at or stop - colon < 2 or colon[1] != 32:
        return False
    name.at, name.size = at, colon - at
    value.at, value.size = colon + 2, stop - colon - 2
    return value.size == 0 or not (_is_blank(value.at[0]) or _is_blank((stop - 1)[0]))


cdef bint _headers(Span block, Headers* headers) noexcept:
    """See streams_py.header_fields; False: the message has to be looked at alone."""
    cdef const uint8_t* at = block.at
    cdef const uint8_t* end = block.at + block.size
    cdef const uint8_t* stop
    cdef Span name, value
    cdef Py_ssize_t count = 0, size
    cdef bint named = False
    headers.size = headers.id.size = 0
    headers.id.at = end
    if block.size == 0:
        return True
    if block.size < 12 or memcmp(at, b"NATS/1.0\r\n", 10) != 0:
        return False
    at += 10
    while True:
        stop = _line_end(at, end)
        if stop == NULL:
            return False
        if stop == at:
            break
        if not _header_line(at, stop, &name, &value):
            return False
        if name.size >= 5 and memcmp(name.at, b"Nats-", 5) == 0:
            if named or not same(name, <const uint8_t*> b"Nats-Msg-Id", 11):
                return False
            named = True
            headers.id = value
        size = text_size(name.size) + text_size(value.size)
        headers.size += long_text_size(size)
        count += 1
        at = stop + 2
    return count > 0 and stop + 2 == end and block.size + 16 * count <= HEADERS_MAX


cdef uint8_t* _put_stored_headers(uint8_t* out, Span block) noexcept:
    """The fields of a header block that `_headers` has read, as a message has them."""
    cdef const uint8_t* at = block.at + 10
    cdef const uint8_t* end = block.at + block.size
    cdef const uint8_t* stop = _line_end(at, end)
    cdef Span name, value
    while stop > at:
        _header_line(at, stop, &name, &value)
        out[0], out[1] = 0x82, 1
        out = put_varint(out + 2, <uint64_t> (text_size(name.size) + text_size(value.size)))
        out = put_text(out, 1, name.at, name.size)
        out = put_text(out, 2, value.at, value.size)
        at = stop + 2
        stop = _line_end(at, end)
    return out


cdef bint _is_consumer_ack(RawFrame* frame, Span subject, Span* named, uint64_t* sequence) noexcept:
    """Whether a frame says of one message of a consumer that it is done, and wants no answer; *subject*: as its user sent it;
    *named*: the frame's own subject up to the consumer's name."""
    cdef Span token
    cdef Py_ssize_t i, dots = 0, begin = 0
    cdef int64_t number = 0
    if frame.reply.size > 0 or not (frame.payload.size == 0 or same(frame.payload, <const uint8_t*> b"+ACK", 4)):
        return False
    for i in range(subject.size):
        if subject.at[i] != 46:
            continue
        dots += 1
        if dots == 4:
            named.at, named.size = frame.subject.at, subject.at + i - frame.subject.at
        elif dots == 5:
            begin = i + 1
        elif dots == 6:
            token.at, token.size = subject.at + begin, i - begin
            if not get_decimal(token, &number):
                return False
    sequence[0] = <uint64_t> number
    return dots == 8


cdef bint _parse_pub(Span payload, Publish* message) noexcept:
    """PubMsg: the last value of each field wins; sha256 and unknown fields are skipped."""
    cdef const uint8_t* at = payload.at
    cdef const uint8_t* end = at + payload.size
    cdef Field field
    cdef int i
    for i in range(7):
        message.texts[i].at = end
        message.texts[i].size = 0
    message.payload = payload
    message.key = message.texts[0]
    message.headers = 0
    message.due = 0
    message.numbered = False
    message.ttl = 0
    while at < end:
        at = next_field(at, end, &field)
        if at == NULL:
            return False
        if field.number <= 6 or field.number == 10:
            if field.wire != 2:
                return False
            if field.number != 10:
                message.texts[field.number] = field.text
        elif 16 <= field.number <= 21 and not _parse_more(&field, message):
            return False
    return message.headers <= HEADERS_MAX and message.key.size <= KEY_MAX


cdef bint _parse_more(Field* field, Publish* message) noexcept:
    """A field of PubMsg that the original does not know."""
    if field.wire != (2 if field.number <= 17 else 0):
        return False
    if field.number == 16:
        if not is_header(field.text.at, field.text.at + field.text.size):
            return False
        message.headers += long_text_size(field.text.size)
    elif field.number == 17:
        message.key = field.text
    elif field.number == 18:  # before 1970: at once
        message.due = 0 if field.value >> 63 else field.value
    elif field.number == 19:
        message.ttl = field.value
    elif field.number == 21:
        message.numbered = field.value != 0
    return True


cdef bint _parse_ack(Span payload, uint64_t* sequence, bint* more) noexcept:
    """Ack: its sequence, and if it says more than "done"; the ack inbox tells the subscription, so the subject is not looked at."""
    cdef const uint8_t* at = payload.at
    cdef const uint8_t* end = at + payload.size
    cdef Field field
    cdef uint64_t kind = 0, cumulative = 0
    while at < end:
        at = next_field(at, end, &field)
        if at == NULL:
            return False
        if field.number == 2:
            if field.wire != 0:
                return False
            sequence[0] = field.value
        elif field.number == 1 or field.number == 19:
            if field.wire != 2 or (field.number == 19 and field.text.size > REASON_MAX):
                return False
        elif 16 <= field.number <= 18:
            if field.wire != 0:
                return False
            if field.number == 16:
                kind = field.value
            elif field.number == 18:
                cumulative = field.value
    more[0] = kind != 0 or cumulative != 0
    return True


cdef int _set_owner(_Group group, Span* fields) except -1:
    """Make the publisher of *fields* the group's current one; 0 if that is one too many."""
    cdef tuple publisher = (_text(fields[1]), _text(fields[6]))
    owner = group.publishers.get(publisher)
    if owner is None:
        owner = len(group.publishers)
        if owner >= PUBLISHERS_MAX:
            return 0
        group.publishers[publisher] = owner
    group.owner = owner
    group.client = fields[1]
    group.conn = fields[6]
    return 1


cdef uint8_t* _put_headers(uint8_t* out, Span payload) noexcept:
    """The headers of a PubMsg that was parsed before."""
    cdef const uint8_t* at = payload.at
    cdef const uint8_t* end = at + payload.size
    cdef Field field
    while at < end:
        at = next_field(at, end, &field)
        if field.number == 16:
            out = put_long_text(out, 16, field.text.at, field.text.size)
    return out


cdef int _append(_Group group, RawFrame* frame, Publish* message) except -1:
    """Add one message: its body, its owner, and its PubAck if somebody waits for it."""
    cdef Span* fields = message.texts
    cdef Py_ssize_t size = text_size(fields[4].size) + text_size(fields[5].size) + message.headers
    if message.key.size > 0:
        size += long_text_size(message.key.size)
    cdef uint8_t* out = reserve(&group.bodies, <size_t> size + 4)
    out = put_u32(out, <uint64_t> size)
    out = put_text(out, 3, fields[4].at, fields[4].size)
    out = put_text(out, 4, fields[5].at, fields[5].size)
    if message.headers > 0:
        out = _put_headers(out, message.payload)
    if message.key.size > 0:
        out = put_long_text(out, 17, message.key.at, message.key.size)
    if message.due > 0:
        _append_number(&group.dues, message.due)
    if message.ttl != 0:
        _append_late(&group.ttls, group.count, message.ttl)
    group.bodies.used = <size_t> (out - group.bodies.at)
    _append_owner(group)
    reserve(&group.replied, 1)[0] = frame.reply.size > 0
    group.replied.used += 1
    if group.keyed:
        _append_key(&group.keys, fields[2])
    group.count += 1
    group.payload_bytes += frame.payload.size
    if frame.reply.size == 0:
        group.unreplied += 1
        return 0
    cdef Py_ssize_t to_size = PyBytes_GET_SIZE(group.to)
    size = text_size(fields[2].size) + (ROOM if message.numbered else 0)
    out = reserve(&group.acks, <size_t> (to_size + frame.reply.size + 32 + size))
    out = put_pub_to(out, _start(group.to), to_size, frame.reply.at, frame.reply.size, size)
    out = put_text(out, 1, fields[2].at, fields[2].size)
    if message.numbered:
        out = put(out, <const uint8_t*> b"\x80\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00\x88\x01\x00", ROOM)
        group.numbered = True
    out = put_crlf(out)
    group.acks.used = <size_t> (out - group.acks.at)
    return 0


cdef inline int _append_owner(_Group group) except -1:
    """The next message is of the group's current publisher."""
    cdef uint8_t* out = reserve(&group.owners, 2)
    out[0] = group.owner & 0xFF
    out[1] = group.owner >> 8
    group.owners.used += 2
    return 0


cdef inline int _append_number(Buffer* numbers, uint64_t number) except -1:
    cdef int place
    cdef uint8_t* out = reserve(numbers, 8)
    for place in range(8):
        out[place] = <uint8_t> (number >> (8 * place))
    numbers.used += 8
    return 0


cdef inline int _append_late(Buffer* numbers, Py_ssize_t count, uint64_t number) except -1:
    """Add the number of a message behind *count* others, of which some have none."""
    while <Py_ssize_t> numbers.used < 8 * count:
        _append_number(numbers, 0)
    return _append_number(numbers, number)


cdef inline int _append_key(Buffer* keys, Span guid) except -1:
    """Add the key of *guid*, see frames.KEY_MODULUS. By that modulus 2^64 is as much as *fold*: each word is added to what is above
    it, folded in twice. What is kept is below 2^64, at the end below the modulus."""
    cdef uint64_t fold = <uint64_t> 0x9E3779EB
    cdef Py_ssize_t rest = guid.size & 7
    cdef const uint8_t* at = guid.at + guid.size - rest
    cdef uint64_t key = 1
    cdef uint128 folded
    cdef int place
    cdef uint8_t* out = reserve(keys, KEY_BYTES)
    if rest > 0 and guid.size >= 8:
        key = (get_u64(at + rest - 8) >> (64 - 8 * rest)) | (key << (8 * rest))
    else:
        while rest > 0:
            rest -= 1
            key = (key << 8) | at[rest]
    while at > guid.at:
        at -= 8
        folded = <uint128> key * fold + get_u64(at)
        folded = (folded >> 64) * fold + <uint64_t> folded
        key = <uint64_t> folded
        if folded >> 64:
            key += fold
    if key + fold < key:  # at least the modulus
        key += fold
    for place in range(KEY_BYTES):
        out[place] = <uint8_t> (key >> (8 * place))
    keys.used += KEY_BYTES
    return 0


def scan(
    bytes data not None,
    Py_ssize_t start,
    int64_t pub_sid,
    int64_t ack_sid,
    bytes pub_prefix not None,
    take=None,
    groups=None,
    bint keyed=False,
    rules=ANYBODY,
    Py_ssize_t most=0,
    streams=None,
    int64_t consumer_sid=0,
):
    """See server_py.scan."""
    cdef const uint8_t* begin = _start(data)
    cdef const uint8_t* end = begin + PyBytes_GET_SIZE(data)
    cdef const uint8_t* at = begin + start
    cdef const char* wrong
    cdef RawFrame frame
    cdef int taken
    cdef bint choosy = take is not None or groups is not None
    cdef bint known = False
    cdef Line* line
    cdef Py_ssize_t skipped = 0, again
    cdef _Scanner scanner = _Scanner()
    cdef _Group group
    cdef _Run run
    if start < 0 or start > end - begin:
        raise ValueError("start lies outside of the data")
    scanner.groups, scanner.runs, scanner.malformed, scanner.others, scanner.wanted = {}, {}, [], [], {}
    scanner.verdicts, scanner.more_work = [], 0
    scanner.prefix, scanner.prefix_size = _start(pub_prefix), PyBytes_GET_SIZE(pub_prefix)
    scanner.pub_sid, scanner.take, scanner.ack_groups, scanner.keyed = pub_sid, take, groups, keyed
    scanner.rule(rules)
    if streams or consumer_sid:
        scanner.jetstream, scanner.subjects, scanner.consumer_sid = True, streams or {}, consumer_sid
        scanner.streams, scanner.consumers = {}, {}
    if choosy:
        line = scanner.lines = <Line*> calloc(LINES, sizeof(Line))
        if line == NULL:
            raise MemoryError
    while at < end:
        if most and at > begin + start and at - (begin + start) + scanner.more_work >= most:
            break
        if not scanner.others:
            if scanner.acked_again(at, end):
                at += scanner.run_line.whole
                continue
            if scanner.consumer_line.size > 0:
                again = scanner.consumer_acked_again(at, end)
                if again > 0:
                    at += again
                    continue
        if choosy:
            known = fits(line, at, end)
            if not known:
                line = line_of(scanner.lines, at, end, LINE_MAX)
                known = fits(line, at, end)
            if known and line.unwanted:
                skipped += 1
                at += line.whole
                continue
        wrong = next_frame(at, end, LINE_MAX, PAYLOAD_MAX, &frame)
        if wrong != NULL and at == begin + start:
            raise ValueError(wrong.decode("ascii"))
        if wrong != NULL or frame.next == NULL:
            break
        if frame.sid == 0:
            scanner.frame(scanner.others, &frame)
        elif frame.sid != pub_sid and frame.sid != ack_sid:
            if scanner.other(at, &frame) == 0:
                break
        else:
            if choosy and not known:
                line[0] = Line(at, frame.header.at - at, frame.next - at, scanner.unwanted(&frame))
            if choosy and line.unwanted:
                skipped += 1
            elif scanner.others:
                break
            else:
                taken = scanner.publish(&frame) if frame.sid == pub_sid else scanner.ack(at, &frame)
                if taken == 0:
                    break
        at = frame.next
    return Scan(
        at - (begin + start),
        [group.publishes() for group in scanner.groups.values()],
        [run.acks() for run in scanner.runs.values() if run.growing],
        scanner.malformed,
        scanner.others,
        scanner.verdicts,
        skipped,
        at - (begin + start) + scanner.more_work,
        [(<_Stream> stream).messages() for stream in scanner.streams.values()] if scanner.streams else [],
        [(<_Run> consumer).of_consumer() for consumer in scanner.consumers.values()] if scanner.consumers else [],
    )


cdef class _Sender:
    """The frames of one sender."""

    cdef Buffer frames

    def __dealloc__(self):
        free(self.frames.at)


def by_sender(bytes data not None, Py_ssize_t start, bytes users not None, bytes replies not None):
    """See server_py.by_sender."""
    cdef const uint8_t* begin = _start(data)
    cdef const uint8_t* end = begin + PyBytes_GET_SIZE(data)
    cdef const uint8_t* at = begin + start
    cdef const uint8_t* dot
    cdef const char* wrong
    cdef RawFrame frame
    cdef Span user
    cdef dict senders = {}
    cdef _Sender sender = None
    cdef bytes name = None
    if start < 0 or start > end - begin:
        raise ValueError("start lies outside of the data")
    while at < end:
        wrong = next_frame(at, end, LINE_MAX, PAYLOAD_MAX, &frame)
        if wrong != NULL and at == begin + start:
            raise ValueError(wrong.decode("ascii"))
        if wrong != NULL or frame.next == NULL:
            break
        user = frame.subject
        if PyBytes_GET_SIZE(users) == 0:
            user.size = 0
        elif _cut(&user, _start(users), PyBytes_GET_SIZE(users)):
            dot = <const uint8_t*> memchr(user.at, 46, user.size)
            user.size = dot - user.at if dot != NULL else user.size
        elif _cut(&user, _start(replies), PyBytes_GET_SIZE(replies)):
            dot = <const uint8_t*> memchr(user.at, 46, user.size)
            user.size = user.size - (dot + 1 - user.at) if dot != NULL else 0
            user.at = dot + 1
        else:
            user.size = 0
        if name is None or not same(user, _start(name), PyBytes_GET_SIZE(name)):
            name = _text(user)
            sender = senders.get(name)
            if sender is None:
                sender = senders[name] = _Sender()
        _copy(&sender.frames, at, frame.next - at)
        at = frame.next
    return at - begin, {name: _frames_of(sender) for name, sender in senders.items()}


cdef bytes _frames_of(_Sender sender):
    return _bytes(sender.frames.at, sender.frames.used)


def frames(
    records, uint64_t base_sequence, uint64_t first, uint64_t last, bytes inbox not None, uint32_t redelivery_count
):
    """See server_py.frames."""
    cdef Py_buffer view
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        return _frames(
            <const uint8_t*> view.buf, view.len, base_sequence, first, last, inbox, redelivery_count
        )
    finally:
        PyBuffer_Release(&view)


cdef bytes _frames(
    const uint8_t* at, Py_ssize_t length, uint64_t sequence, uint64_t first, uint64_t last, bytes inbox, uint32_t count
):
    cdef const uint8_t* end = at + length
    cdef const uint8_t* begin
    cdef Py_ssize_t inbox_size = PyBytes_GET_SIZE(inbox)
    cdef Py_ssize_t extra = 2 + number_size(count) if count else 0
    cdef Py_ssize_t total = 0, size
    cdef uint8_t* out
    while at < end and sequence < first and sequence <= last:
        size = record_size(at, end)
        __builtin_prefetch(at + AHEAD * (4 + size))
        at += 4 + size
        sequence += 1
    begin = at
    while at < end and sequence <= last:
        size = record_size(at, end)
        __builtin_prefetch(at + AHEAD * (4 + size))
        total += 4 + inbox_size + 1 + decimal_size(<uint64_t> (size + extra)) + 2 + size + extra + 2
        at += 4 + size
        sequence += 1
    end = at
    at = begin
    cdef bytes result = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t*> PyBytes_AS_STRING(result)
    while at < end:
        size = <Py_ssize_t> get_u32(at)
        out = put_pub(out, _start(inbox), inbox_size, size + extra)
        out = put(out, at + 4, size)
        if count:
            out = put_number(put_number(out, 6, 1), 7, count)
        out = put_crlf(out)
        at += 4 + size
    return result


# --- parts of channels -------------------------------------------------------------------------------------------


cdef struct Columns:
    # of a batch of publishes; NULL: it has no such column
    const uint8_t* owners
    const uint8_t* replied
    const uint8_t* keys
    const uint8_t* dues
    const uint8_t* ttls


cdef const uint8_t* _column(bytes column, Py_ssize_t size) except? NULL:
    """The start of a column of a batch, NULL if it has none. Raises ValueError: it is of another number of messages."""
    if PyBytes_GET_SIZE(column) == 0:
        return NULL
    if PyBytes_GET_SIZE(column) != size:
        raise ValueError("columns of other lengths")
    return _start(column)


cdef const uint8_t* _ack_frame(const uint8_t* at, const uint8_t* end, Span* payload) except NULL:
    """Behind the prepared PubAck frame at *at*."""
    cdef const uint8_t* stop = <const uint8_t*> memchr(at, 13, <size_t> (end - at)) if at < end else NULL
    cdef Span line, size
    cdef int64_t number = 0
    if stop == NULL:
        raise ValueError("acks are missing")
    line = Span(at, stop - at)
    size = Span(stop, 0)
    while size.at > at and (size.at - 1)[0] != 32:
        size.at -= 1
        size.size += 1
    if size.at == at or not get_decimal(size, &number) or number > end - stop - 4:
        raise ValueError("an ack is cut off")
    payload.at = stop + 2
    payload.size = <Py_ssize_t> number
    return payload.at + number + 2


cdef bint _has_room(Span payload) noexcept:
    """Whether a prepared PubAck has room for more behind its guid."""
    cdef uint64_t size = 0
    cdef const uint8_t* end = payload.at + payload.size
    cdef const uint8_t* at = get_varint(payload.at + 1, end, &size) if payload.size > 1 else NULL
    return at != NULL and <uint64_t> (end - at) == size + ROOM


def divide(publishes not None, numbers):
    """See server_py.divide."""
    cdef list of_messages = list(numbers)
    cdef Py_ssize_t count = len(of_messages), at, size, owner, all_owners
    cdef tuple publishers = publishes.publishers
    cdef bytes bodies = publishes.bodies, acks = publishes.acks
    cdef bytes owners = publishes.owners, replied = publishes.replied, keys = publishes.keys
    cdef bytes dues = publishes.times.dues, ttls = publishes.times.ttls
    cdef bint numbered = publishes.numbered
    cdef dict groups = {}
    cdef _Group group = None
    cdef object number, number_before = None
    cdef const uint8_t* body = _start(bodies)
    cdef const uint8_t* body_end = body + PyBytes_GET_SIZE(bodies)
    cdef const uint8_t* ack = _start(acks)
    cdef const uint8_t* acks_end = ack + PyBytes_GET_SIZE(acks)
    cdef const uint8_t* behind
    cdef Span payload
    cdef Columns columns
    all_owners = len(publishers)
    columns.owners = _column(owners, 2 * count)
    columns.replied = _column(replied, count)
    columns.keys = _column(keys, KEY_BYTES * count)
    columns.dues = _column(dues, 8 * count)
    columns.ttls = _column(ttls, 8 * count)
    for at in range(count):
        number = of_messages[at]
        if group is None or number is not number_before:
            group = groups.get(number)
            number_before = number
            if group is None:
                group = groups[number] = _Group()
                group.channel, group.user, group.publishers = publishes.channel, publishes.user, {}
                group.divided_owner = -1
        owner = columns.owners[2 * at] | (<Py_ssize_t> columns.owners[2 * at + 1] << 8) if columns.owners != NULL else 0
        if owner != group.divided_owner:
            if owner >= all_owners:
                raise ValueError("a message of nobody")
            group.owner = group.publishers.setdefault(publishers[owner], len(group.publishers))
            group.divided_owner = owner
        size = 4 + record_size(body, body_end)
        _copy(&group.bodies, body, size)
        group.payload_bytes += size - 4
        body += size
        if columns.replied == NULL or columns.replied[at] != 0:
            behind = _ack_frame(ack, acks_end, &payload)
            _copy(&group.acks, ack, behind - ack)
            group.numbered |= numbered and _has_room(payload)
            ack = behind
            reserve(&group.replied, 1)[0] = 1
        else:
            group.unreplied += 1
            reserve(&group.replied, 1)[0] = 0
        group.replied.used += 1
        _append_owner(group)
        if columns.keys != NULL:
            _copy(&group.keys, columns.keys + KEY_BYTES * at, KEY_BYTES)
        if columns.dues != NULL and get_u64(columns.dues + 8 * at) != 0:
            _append_late(&group.dues, group.count, get_u64(columns.dues + 8 * at))
        if columns.ttls != NULL and get_u64(columns.ttls + 8 * at) != 0:
            _append_late(&group.ttls, group.count, get_u64(columns.ttls + 8 * at))
        group.count += 1
    if body != body_end or ack != acks_end:
        raise ValueError("more bodies or acks than messages")
    return _divided(groups, publishes.payload_bytes, max(PyBytes_GET_SIZE(bodies), 1))


cdef dict _divided(dict groups, object payload_bytes, object bodies_size):
    """The batches of *groups*, each with its share of the payload's bytes."""
    cdef dict found = {}
    cdef _Group group
    for number, made in groups.items():
        group = <_Group> made
        group.payload_bytes = payload_bytes * group.payload_bytes // bodies_size
        found[number] = group.publishes()
    return found


cdef inline int _copy(Buffer* into, const uint8_t* at, Py_ssize_t size) except -1:
    put(reserve(into, <size_t> size), at, size)
    into.used += <size_t> size
    return 0


# --- order by key ------------------------------------------------------------------------------------------------


cdef class _AssignBuffers:
    """Buffers of one call of assign, and what each member gets."""

    cdef Py_buffer records
    cdef Py_buffer takers
    cdef Py_buffer room
    cdef Py_buffer in_flight
    cdef int open  # how many buffers are
    cdef Py_ssize_t members
    cdef uint32_t* owners  # per message: number of the member; 0: it waits
    cdef Py_ssize_t* sizes  # per member: bytes of its records

    def __cinit__(self, records, takers, room, in_flight, Py_ssize_t count):
        PyObject_GetBuffer(records, &self.records, PyBUF_SIMPLE)
        self.open = 1
        PyObject_GetBuffer(takers, &self.takers, PyBUF_WRITABLE)
        self.open = 2
        PyObject_GetBuffer(room, &self.room, PyBUF_WRITABLE)
        self.open = 3
        PyObject_GetBuffer(in_flight, &self.in_flight, PyBUF_WRITABLE)
        self.open = 4
        self.members = self.room.len // 8
        self.owners = <uint32_t*> calloc(<size_t> count + 1, sizeof(uint32_t))
        self.sizes = <Py_ssize_t*> calloc(<size_t> self.members + 1, sizeof(Py_ssize_t))
        if self.owners == NULL or self.sizes == NULL:
            raise MemoryError
        if self.in_flight.len != self.room.len or self.takers.len < 2 * SLOTS:
            raise ValueError("tables of other sizes")

    def __dealloc__(self):
        if self.open > 0:
            PyBuffer_Release(&self.records)
        if self.open > 1:
            PyBuffer_Release(&self.takers)
        if self.open > 2:
            PyBuffer_Release(&self.room)
        if self.open > 3:
            PyBuffer_Release(&self.in_flight)
        free(self.owners)
        free(self.sizes)

    cdef Py_ssize_t next_taker(self, Py_ssize_t turn) noexcept:
        cdef int64_t* room = <int64_t*> self.room.buf
        cdef int64_t* in_flight = <int64_t*> self.in_flight.buf
        cdef Py_ssize_t best = 0, step, number
        for step in range(self.members):
            number = (turn + 1 + step) % self.members
            if number > 0 and room[number] > 0 and (best == 0 or in_flight[number] < in_flight[best]):
                best = number
        return best


def assign(
    tuple cut not None,
    uint64_t base_sequence,
    Py_ssize_t start,
    Py_ssize_t stop,
    tables,
    windows,
    hold,
    Py_ssize_t turn,
    int64_t level,
):
    """See server_py.assign."""
    cdef bytes found = cut[0]
    cdef bytes ends = cut[1]
    cdef dict slot_of = tables[0]
    cdef dict heads = tables[1]
    cdef dict behind = tables[2]
    if start < 0 or 2 * stop > PyBytes_GET_SIZE(found) or 4 * stop > PyBytes_GET_SIZE(ends):
        raise ValueError("places outside of the batch")
    cdef _AssignBuffers buffers = _AssignBuffers(cut[2], tables[3], windows[0], windows[1], stop - start if stop > start else 0)
    cdef uint16_t* takers = <uint16_t*> buffers.takers.buf
    cdef int64_t* room = <int64_t*> buffers.room.buf
    cdef int64_t* in_flight = <int64_t*> buffers.in_flight.buf
    cdef Py_ssize_t members = buffers.members
    cdef Py_ssize_t few = hold[0], most = hold[1], in_use = hold[2]
    cdef Py_ssize_t waiting = len(slot_of) - len(heads), number, chosen = 0, at = start
    cdef const uint8_t* slots_at = _start(found)
    cdef uint32_t slot
    cdef object sequence, key, queue
    cdef list held = [], held_records = []
    cdef const uint8_t* ends_at = _start(ends)
    cdef const uint8_t* records = <const uint8_t*> buffers.records.buf
    cdef Py_ssize_t begin, end
    while at < stop:
        slot = slots_at[2 * at] | (<uint32_t> slots_at[2 * at + 1] << 8)
        number = 0
        if slot != NO_SLOT:
            key = slot
            sequence = base_sequence + <uint64_t> at
            if key in heads:
                if waiting >= few and (waiting >= most or len(heads) > in_use):
                    break
                waiting += 1
                slot_of[sequence] = key
                queue = behind.get(key)
                if queue is None:
                    queue = behind[key] = deque()
                queue.append(sequence)
                begin = <Py_ssize_t> get_u32(ends_at + 4 * at - 4) if at else 0
                end = <Py_ssize_t> get_u32(ends_at + 4 * at)
                if begin > end or end > buffers.records.len:
                    raise ValueError("places outside of the batch")
                held.append(sequence)
                held_records.append(_bytes(records + begin, end - begin))
                at += 1
                continue
            number = takers[slot] if slot < SLOTS else 0
        if number >= members or room[number] <= 0:
            if chosen == 0 or room[chosen] <= 0 or in_flight[chosen] >= level:
                chosen = buffers.next_taker(turn)
                if chosen == 0:
                    break
                turn = chosen
            number = chosen
        if slot != NO_SLOT:
            if slot < SLOTS:
                takers[slot] = <uint16_t> number
            heads[key] = sequence
            slot_of[sequence] = key
        room[number] -= 1
        in_flight[number] += 1
        buffers.owners[at - start] = <uint32_t> number
        at += 1
    return Assigned(at, turn, _parts(buffers, ends, base_sequence, start, at), held, held_records)


cdef list _parts(_AssignBuffers windows, bytes ends, uint64_t base_sequence, Py_ssize_t start, Py_ssize_t stop):
    """What each member gets of the messages at places [start, stop)."""
    cdef const uint8_t* ends_at = _start(ends)
    cdef const uint8_t* records = <const uint8_t*> windows.records.buf
    cdef Py_ssize_t at, number, size, begin, end
    cdef list parts = [], by_number = [None] * windows.members
    cdef list lasts
    cdef tuple part
    cdef uint32_t* owners = windows.owners
    cdef object place
    for at in range(start, stop):
        begin = <Py_ssize_t> get_u32(ends_at + 4 * at - 4) if at else 0
        end = <Py_ssize_t> get_u32(ends_at + 4 * at)
        if begin > end or end > windows.records.len:
            raise ValueError("places outside of the batch")
        windows.sizes[owners[at - start]] += end - begin
    for number in range(1, windows.members):
        if windows.sizes[number] > 0:
            part = (number, [], [], PyBytes_FromStringAndSize(NULL, windows.sizes[number]))
            by_number[number] = part
            parts.append(part)
            windows.sizes[number] = 0
    for at in range(start, stop):
        number = owners[at - start]
        if number == 0:
            continue
        part = <tuple> by_number[number]
        begin = <Py_ssize_t> get_u32(ends_at + 4 * at - 4) if at else 0
        size = <Py_ssize_t> get_u32(ends_at + 4 * at) - begin
        memcpy(<uint8_t*> PyBytes_AS_STRING(<bytes> part[3]) + windows.sizes[number], records + begin, <size_t> size)
        windows.sizes[number] += size
        place = base_sequence + <uint64_t> at
        if at == start or owners[at - start - 1] != <uint32_t> number:
            (<list> part[1]).append(place)
        if at + 1 == stop or owners[at - start + 1] != <uint32_t> number:
            (<list> part[2]).append(place)
    return parts


def assign_again(list messages not None, list records not None, tables, windows):
    """See server_py.assign_again."""
    cdef dict slot_of = tables[0]
    cdef _AssignBuffers buffers = _AssignBuffers(b"", tables[3], windows[0], windows[1], 0)
    cdef uint16_t* takers = <uint16_t*> buffers.takers.buf
    cdef int64_t* room = <int64_t*> buffers.room.buf
    cdef int64_t* in_flight = <int64_t*> buffers.in_flight.buf
    cdef Py_ssize_t number, place
    cdef uint32_t slot
    cdef list by_number = [None] * buffers.members
    cdef tuple part
    cdef object found
    if len(messages) != len(records):
        raise ValueError("records are not as many as the messages")
    for place in range(len(messages)):
        found = slot_of.get(messages[place])
        slot = NO_SLOT if found is None else found
        number = takers[slot] if slot < SLOTS else 0
        if number >= buffers.members or room[number] <= 0:
            number = buffers.next_taker(0)
            if number == 0:
                raise ValueError("nobody has room")
            if slot < SLOTS:
                takers[slot] = <uint16_t> number
        room[number] -= 1
        in_flight[number] += 1
        found = by_number[number]
        if found is None:
            found = by_number[number] = ([], [])
        part = <tuple> found
        (<list> part[0]).append(messages[place])
        (<list> part[1]).append(records[place])
    return [(number, by_number[number][0], b"".join(by_number[number][1]))
            for number in range(buffers.members) if by_number[number] is not None]


def settle(runs, tables):
    """See server_py.settle."""
    cdef dict slot_of = tables[0]
    cdef dict heads = tables[1]
    cdef dict behind = tables[2]
    cdef list freed = []
    cdef uint64_t first, last, number
    for run in runs:
        first, last = run[0], run[1]
        if last >= first and last - first >= <uint64_t> len(slot_of):
            for sequence in [sequence for sequence in slot_of if run[0] <= sequence <= run[1]]:
                _settle(sequence, slot_of, heads, behind, freed)
            continue
        number = first
        while number <= last:
            _settle(run[0] if number == first else number, slot_of, heads, behind, freed)
            number += 1
    return freed


cdef int _settle(object sequence, dict slot_of, dict heads, dict behind, list freed) except -1:
    cdef object slot = slot_of.pop(sequence, None)
    cdef object queue
    if slot is None:
        return 0
    queue = behind.get(slot) if behind else None
    if heads[slot] != sequence:
        behind[slot].remove(sequence)
    elif queue is not None:
        sequence = queue.popleft()
        heads[slot] = sequence
        freed.append(sequence)
    else:
        del heads[slot]
    if queue is not None and not queue:
        del behind[slot]
    return 0


def take(list runs not None, parts):
    """See server_py.take."""
    cdef list taken = [], kept = [], wanted = list(parts)
    cdef tuple run, part
    cdef uint64_t begin, end, first = 0, last = 0, until, size = 0
    cdef Py_ssize_t at = 0, count = len(wanted)
    if count > 0:
        part = <tuple> wanted[0]
        first, last = part[0], part[1]
    for item in runs:
        run = <tuple> item
        begin, end = run[0], run[1]
        while at < count and last < begin:
            at += 1
            if at < count:
                part = <tuple> wanted[at]
                first, last = part[0], part[1]
        while at < count and first <= end:
            if begin < first:
                kept.append(_cut_run(run, begin, first - 1))
                begin = first
            until = end if end < last else last
            taken.append(_cut_run(run, begin, until))
            size += until - begin + 1
            begin = until + 1
            if last > end:
                break
            at += 1
            if at < count:
                part = <tuple> wanted[at]
                first, last = part[0], part[1]
        if begin <= end:
            kept.append(_cut_run(run, begin, end))
    return taken, kept, size


cdef inline object _cut_run(tuple run, uint64_t first, uint64_t last):
    if <uint64_t> run[0] == first and <uint64_t> run[1] == last:
        return run
    return _new(type(run), (first, last, *run[2:]))


def shared(list runs not None, list others not None):
    """See server_py.shared."""
    cdef list found = []
    cdef tuple run, other
    cdef Py_ssize_t at = 0, here, i, count = len(runs)
    cdef uint64_t first, last, begin, end
    for i in range(len(others)):
        other = <tuple> others[i]
        first, last = other[0], other[1]
        while at < count and <uint64_t> (<tuple> runs[at])[1] < first:
            at += 1
        here = at
        while here < count:
            run = <tuple> runs[here]
            begin = run[0]
            if begin > last:
                break
            end = run[1]
            found.append((run[0] if begin > first else other[0], run[1] if end < last else other[1]))
            here += 1
    return found


def joined(parts):
    """See server_py.joined."""
    cdef list out = []
    cdef list ordered = sorted(parts)
    cdef tuple part
    cdef object begin = None, stop = None
    cdef uint64_t first, last, end = 0
    cdef Py_ssize_t i
    for i in range(len(ordered)):
        part = <tuple> ordered[i]
        first, last = part[0], part[1]
        if begin is not None and (first <= end or first - end == 1):
            if last > end:
                stop, end = part[1], last
            continue
        if begin is not None:
            out.append((begin, stop))
        begin, stop, end = part[0], part[1], last
    if begin is not None:
        out.append((begin, stop))
    return out


def flat(parts):
    """See server_py.flat."""
    cdef list out = []
    cdef uint64_t before = 0
    cdef Py_ssize_t used = 0
    cdef tuple part
    for item in parts:
        part = <tuple> item
        if used and before + 1 == <uint64_t> part[0]:
            out[used - 1] = part[1]
        else:
            out.append(part[0])
            out.append(part[1])
            used += 2
        before = part[1]
    return out


def merged(list runs not None, list added not None):
    """See server_py.merged."""
    cdef list out = []
    cdef Py_ssize_t one = 0, other = 0, ones = len(runs), others = len(added)
    cdef uint64_t before = 0, first, following = 0
    cdef tuple run
    if others:
        following = (<tuple> added[0])[0]
    while one < ones or other < others:
        if one < ones:
            run = <tuple> runs[one]
            first = run[0]
        if one == ones or (other < others and following < first):
            run = <tuple> added[other]
            first = following
            other += 1
            if other < others:
                following = (<tuple> added[other])[0]
        else:
            one += 1
        if out and first <= before:
            return None
        before = run[1]
        out.append(run)
    return out


def disjoint(list runs not None):
    """See server_py.disjoint."""
    cdef uint64_t before = 0
    cdef Py_ssize_t at
    cdef tuple run
    for at in range(len(runs)):
        run = <tuple> runs[at]
        if at > 0 and <uint64_t> run[0] <= before:
            return False
        before = run[1]
    return True


# --- deliveries to consumers of JetStream --------------------------------------------------------------------------

cdef struct Stored:
    # a message of a record batch, as a consumer's client gets it
    int64_t timestamp
    Span subject
    Span key
    Span data
    Py_ssize_t block  # bytes of its headers as lines


cdef struct Numeral:
    # a number and its digits, as most messages of a piece have the same one as the message before, or the next one
    uint64_t value
    int size  # of the digits; 0: there are none yet
    uint8_t[24] digits


cdef struct Delivering:
    # what is the same for all messages of a piece, and numbers of the message before
    Span head  # LMSG, to whom, and the ack subject up to the sequence
    Span subject  # b"": each message has its own
    Span queue
    uint64_t first
    uint64_t number
    uint64_t pending
    bint headers_only
    Numeral sequence
    Numeral consumer_sequence
    Numeral timestamp
    Numeral left
    Numeral size


cdef Span _span_of(bytes text):
    cdef Span span
    span.at = _start(text)
    span.size = PyBytes_GET_SIZE(text)
    return span


def leaf_frames(
    records,
    uint64_t base_sequence,
    tuple piece not None,
    bytes ack_prefix not None,
    uint64_t delivered,
    bytes subject not None,
    bytes queue not None,
    bint headers_only,
):
    """See leaf_py.leaf_frames."""
    cdef Py_buffer view
    cdef Delivering how
    cdef bytes to, head, plain
    cdef uint64_t last
    to, first, last, number, pending = piece
    head = b"LMSG %b %b%b%d." % (to, b"+ " if queue else b"", ack_prefix, delivered)
    plain = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(subject))
    _put_plain(<uint8_t*> PyBytes_AS_STRING(plain), _span_of(subject))
    how.head, how.subject, how.queue = _span_of(head), _span_of(plain), _span_of(queue)
    how.first, how.number, how.pending = first, number, pending
    how.headers_only = headers_only
    how.sequence.size = how.consumer_sequence.size = how.timestamp.size = how.left.size = how.size.size = 0
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        return _leaf_frames(<const uint8_t*> view.buf, view.len, base_sequence, last, &how)
    finally:
        PyBuffer_Release(&view)


cdef bytes _leaf_frames(const uint8_t* at, Py_ssize_t length, uint64_t sequence, uint64_t last, Delivering* how):
    cdef const uint8_t* end = at + length
    cdef Py_ssize_t each = how.head.size + how.subject.size + how.queue.size + 240, size
    cdef Py_ssize_t times = 1 if how.subject.size else 2  # a key is in the frame twice at most, the rest once
    cdef uint64_t alike
    cdef Stored message
    cdef Buffer out
    cdef uint8_t* to
    out.at, out.used, out.room = NULL, 0, 0
    while at < end and sequence < how.first and sequence <= last:
        size = record_size(at, end)
        __builtin_prefetch(at + AHEAD * (4 + size))
        at += 4 + size
        sequence += 1
    try:
        while at < end and sequence <= last:
            size = record_size(at, end)
            __builtin_prefetch(at + AHEAD * (4 + size))
            if out.room - out.used < <size_t> (times * size + each):
                alike = <uint64_t> ((end - at) // (4 + size))  # so many may follow
                if alike > last - sequence + 1:
                    alike = last - sequence + 1
                reserve(&out, <size_t> (times * size + each) * <size_t> alike)
            at += 4
            if not _stored(at, at + size, &message):
                raise ValueError("record is no message")
            to = out.at + out.used
            out.used += <size_t> (_put_delivery(to, at, at + size, sequence, &message, how) - to)
            at += size
            sequence += 1
        return _bytes(out.at, <Py_ssize_t> out.used)
    finally:
        free(out.at)


cdef bint _stored(const uint8_t* at, const uint8_t* end, Stored* message) noexcept:
    cdef Field field
    cdef Span name, value
    message.timestamp = 0
    message.subject.size = message.key.size = message.data.size = 0
    message.subject.at = message.key.at = message.data.at = end
    message.block = 0
    while at < end:
        at = next_field(at, end, &field)
        if at == NULL:
            return False
        if field.number == 5 and field.wire == 0:
            message.timestamp = <int64_t> field.value
        elif field.wire != 2:
            continue
        elif field.number == 2:
            message.subject = field.text
        elif field.number == 4:
            message.data = field.text
        elif field.number == 17:
            message.key = field.text
        elif field.number == 16:
            if not _header_of(field.text, &name, &value):
                return False
            if name.size:
                message.block += name.size + value.size + 4
    return True


cdef bint _header_of(Span text, Span* name, Span* value) noexcept:
    cdef const uint8_t* at = text.at
    cdef const uint8_t* end = text.at + text.size
    cdef Field field
    name.at = value.at = end
    name.size = value.size = 0
    while at < end:
        at = next_field(at, end, &field)
        if at == NULL:
            return False
        if field.wire == 2 and field.number == 1:
            name[0] = field.text
        elif field.wire == 2 and field.number == 2:
            value[0] = field.text
    return True


cdef uint8_t* _put_delivery(
    uint8_t* to, const uint8_t* at, const uint8_t* end, uint64_t sequence, const Stored* message, Delivering* how
) noexcept:
    cdef uint64_t behind = sequence - how.first
    cdef uint64_t pending = how.pending - behind if how.pending > behind else 0
    cdef Py_ssize_t sized = message.data.size if how.headers_only else 0
    cdef Py_ssize_t body = 0 if how.headers_only else message.data.size
    cdef Py_ssize_t block = message.block
    cdef uint8_t* begin = to
    if how.headers_only:
        block += 17 + decimal_size(<uint64_t> sized)
    to = put(to, how.head.at, how.head.size)
    if block:
        block += 12
        begin[0] = 72  # HMSG
    to = _put_numeral(to, &how.sequence, sequence, 46)
    to = _put_numeral(to, &how.consumer_sequence, how.number + behind, 46)
    if message.timestamp < 0:
        to[0] = 45
        to = _put_part(to + 1, <uint64_t> -message.timestamp, 46)
    else:
        to = _put_numeral(to, &how.timestamp, <uint64_t> message.timestamp, 46)
    to = _put_numeral(to, &how.left, pending, 64)
    if how.subject.size:
        to = put(to, how.subject.at, how.subject.size)
    else:
        to = _put_plain(to, message.key if message.key.size else message.subject)
    to[0] = 32
    to += 1
    if how.queue.size:
        to = put(to, how.queue.at, how.queue.size)
        to[0] = 32
        to += 1
    if block:
        to = _put_part(to, <uint64_t> block, 32)
    to = _put_numeral(to, &how.size, <uint64_t> (block + body), 13)
    to[0] = 10
    to += 1
    if block:
        to = _put_block(to, at, end, sized, how.headers_only)
    if body:
        to = put(to, message.data.at, body)
    return put_crlf(to)


cdef inline uint8_t* _put_numeral(uint8_t* to, Numeral* known, uint64_t value, uint8_t separator) noexcept:
    """Put a number and what is behind it; *known*: the one that stood here before, to be changed where that is enough. Writes up
    to 24 bytes, of which the last ones are of no account."""
    cdef uint8_t* digit = known.digits + known.size - 1
    if known.size and value == known.value + 1 and digit[0] != 57:
        digit[0] += 1
    elif known.size and value + 1 == known.value and digit[0] != 48:
        digit[0] -= 1
    elif not known.size or value != known.value:
        known.size = <int> (put_decimal(known.digits, value) - known.digits)
    known.value = value
    memcpy(to, known.digits, 24)
    to[known.size] = separator
    return to + known.size + 1


cdef inline uint8_t* _put_plain(uint8_t* to, Span subject) noexcept:
    """Put a subject, in which no byte ends a token of a line: a key may have any."""
    cdef Py_ssize_t i
    for i in range(subject.size):
        to[i] = 95 if subject.at[i] <= 32 or subject.at[i] == 127 else subject.at[i]
    return to + subject.size


cdef inline uint8_t* _put_part(uint8_t* to, uint64_t number, uint8_t separator) noexcept:
    to = put_decimal(to, number)
    to[0] = separator
    return to + 1


cdef uint8_t* _put_block(uint8_t* to, const uint8_t* at, const uint8_t* end, Py_ssize_t size, bint sized) noexcept:
    cdef Field field
    cdef Span name, value
    to = put(to, b"NATS/1.0\r\n", 10)
    while at < end:
        at = next_field(at, end, &field)
        if field.number != 16 or field.wire != 2:
            continue
        _header_of(field.text, &name, &value)
        if name.size:
            to = _put_line(to, name)
            to = put(to, b": ", 2)
            to = put_crlf(_put_line(to, value))
    if sized:
        to = put(to, b"Nats-Msg-Size: ", 15)
        to = put_crlf(put_decimal(to, <uint64_t> size))
    return put_crlf(to)


cdef uint8_t* _put_line(uint8_t* to, Span text) noexcept:
    """Put a text without line ends, which NATS cannot carry in a header."""
    cdef Py_ssize_t i
    for i in range(text.size):
        to[i] = 32 if text.at[i] == 13 or text.at[i] == 10 else text.at[i]
    return to + text.size


# --- publishes to streams of JetStream -----------------------------------------------------------------------------


def stream_acks(bytes replies not None, bytes begins not None, uint64_t first):
    """See streams_py.stream_acks."""
    cdef const uint8_t* at = _start(replies)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(replies)
    cdef Py_ssize_t begins_size = PyBytes_GET_SIZE(begins), size, payload
    cdef Buffer out
    cdef uint8_t* to
    out.at, out.used, out.room = NULL, 0, 0
    try:
        while at < end:
            size = record_size(at, end)
            at += 4
            if size > 0:
                payload = begins_size + 8 + decimal_size(first)
                to = reserve(&out, <size_t> (size + payload + 32))
                to = put_pub(to, at, size, payload)
                to = put(to, _start(begins), begins_size)
                to = put_decimal(put(to, <const uint8_t*> b',"seq":', 7), first)
                to[0] = 125
                to = put_crlf(to + 1)
                out.used = <size_t> (to - out.at)
            at += size
            first += 1
        return _bytes(out.at, <Py_ssize_t> out.used)
    finally:
        free(out.at)


def noted(records, uint64_t first):
    """See streams_py.noted."""
    cdef Py_buffer view
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        return _noted(<const uint8_t*> view.buf, view.len, first)
    finally:
        PyBuffer_Release(&view)


cdef tuple _noted(const uint8_t* at, Py_ssize_t length, uint64_t sequence):
    cdef const uint8_t* end = at + length
    cdef const uint8_t* stop
    cdef dict newest = {}
    cdef list ids = []  # empty as long as no message has any
    cdef bytes key = None  # of the message before
    cdef Span text, message_id
    cdef Py_ssize_t count = 0
    while at < end:
        stop = at + 4 + record_size(at, end)
        if not _key_and_id(at + 4, stop, &text, &message_id):
            raise ValueError("record is no message")
        if key is None or not same(text, _start(key), PyBytes_GET_SIZE(key)):
            key = _text(text)
        newest[key] = sequence
        if message_id.size > 0:
            ids.extend([b""] * (count - len(ids)))
            ids.append(_text(message_id))
        at = stop
        sequence += 1
        count += 1
    if ids:
        ids.extend([b""] * (count - len(ids)))
    return newest, ids


cdef bint _key_and_id(const uint8_t* at, const uint8_t* end, Span* key, Span* message_id) noexcept:
    """The key and the Nats-Msg-Id of a stored message; False if it is none."""
    cdef Field field
    cdef Span name, value
    cdef bint named = False
    key.at = message_id.at = end
    key.size = message_id.size = 0
    while at < end:
        at = next_field(at, end, &field)
        if at == NULL:
            return False
        if field.wire == 2 and field.number == 17:
            key[0] = field.text
        elif field.wire == 2 and field.number == 16:
            if not _header_of(field.text, &name, &value):
                return False
            if not named and same(name, <const uint8_t*> b"Nats-Msg-Id", 11):
                named = True
                message_id[0] = value
    return True
