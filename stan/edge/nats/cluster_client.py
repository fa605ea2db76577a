"""Requests of a node to the whole cluster, itself included, over its own NATS connection: those of admin.proto and others.

Only the server that a request concerns answers it, and none does while a group has no leader: after silence, and after an answer
that reports this, the request is repeated. Promises: bounded patience; every request may be repeated as it is; no request is sent
unless a method is called.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Protocol

from google.protobuf.message import DecodeError, Message
from stan_protocol.channels import extension_subject
from stan_protocol.frames import Frame
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.retries import A, Attempts, L, missing

from stan.edge.nats.gateway import Gateway
from stan.errors import Refused, Unanswered

PATIENCE_S: Final = 5.0
"""Time for which a request is repeated."""
SILENCE_S: Final = 2.0
"""Time to wait for an answer before the request is repeated."""
RETRY_FIRST_S: Final = 0.02
"""The first pause before a request is made again."""


class Port(Protocol):
    """The port that requests are sent by (`OwnRequests`)."""

    async def ask_all(self, subject: str, payload: bytes, on_answer: Callable[[Frame], bool], timeout_s: float) -> None:
        """Send a request, and pass its answers to *on_answer* until that returns True or *timeout_s* seconds have passed."""


class ClusterClient:
    """Sends requests, repeats them, and decodes their answers. *kind* is the end of a request's subject, behind
    `_STAN.x.<cluster>.`; *patience_s* is the time, in seconds, for which a request is repeated."""

    def __init__(self, port: Port, cluster_id: str, patience_s: float = PATIENCE_S) -> None:
        self._port = port
        self._patience_s = patience_s
        self._prefix = f"{extension_subject(cluster_id)}."

    async def ask(self, kind: str, request: Message, answer: type[A]) -> A:
        """Return the answer of the server that the request concerns.

        Raises:
            Refused: the answer is an error, and repeating the request would not help.
            Unanswered: no answer within the patience, or only answers that ask for a repetition.
        """
        payload = request.SerializeToString()
        answers: list[A] = []
        attempts = _Attempts(kind, self._patience_s)

        def on_answer(frame: Frame) -> bool:
            attempts.take_in(frame, answer, answers)
            return True

        while True:
            await self._port.ask_all(self._subject(kind), payload, on_answer, attempts.silence_s)
            if answers:
                return answers[0]
            attempts.check()
            await attempts.pause()

    async def ask_leaders(self, kind: str, request: Message, answer: type[L]) -> tuple[list[L], set[int]]:
        """Return the answers of all leaders, newest last, and the groups without an answer within the patience.

        Raises:
            Refused: an answer is an error, and repeating the request would not help.
            Unanswered: no leader answered within the patience.
        """
        payload = request.SerializeToString()
        answers: list[L] = []
        attempts = _Attempts(kind, self._patience_s)

        def on_answer(frame: Frame) -> bool:
            return not attempts.take_in(frame, answer, answers) or not missing(answers)

        while True:
            await self._port.ask_all(self._subject(kind), payload, on_answer, attempts.silence_s)
            attempts.check()
            if answers and not missing(answers):
                return answers, set()
            try:
                await attempts.pause()
            except Unanswered:
                if answers:
                    return answers, missing(answers)
                raise

    async def ask_each(
        self,
        kind: str,
        request: Message,
        answer: type[A],
        enough: Callable[[list[A]], bool],
        wait_s: float,
        refused: list[A] | None = None,
    ) -> list[A]:
        """Return the nodes' answers: all that come before *enough* returns True for them, or *wait_s* seconds have passed.

        Answers with an error are appended to *refused* instead. The request is not repeated."""
        answers: list[A] = []
        attempts = _Attempts(kind, wait_s)

        def on_answer(frame: Frame) -> bool:
            attempts.take_in(frame, answer, answers, refused)
            return frame.no_responders or enough(answers)

        await self._port.ask_all(self._subject(kind), request.SerializeToString(), on_answer, wait_s)
        return answers

    def _subject(self, kind: str) -> str:
        return self._prefix + kind


def subscribe_events(gateway: Gateway, take_in: Callable[[admin.Event], None]) -> None:
    """Call *take_in* with each event of the cluster from then on that the gateway listens; call this before it does."""

    def on_frame(frame: Frame) -> None:
        with contextlib.suppress(DecodeError):
            take_in(admin.Event.FromString(frame.payload))

    gateway.serve_requests(f"{extension_subject(gateway.broker.view.config.cluster_id)}.events.>", on_frame)


class _Attempts(Attempts):
    """The attempts of one request: its answers so far, and the time that is left."""

    def __init__(self, kind: str, patience_s: float) -> None:
        super().__init__(kind, patience_s, RETRY_FIRST_S)
        self._clock = asyncio.get_running_loop().time
        self._until = self._clock() + patience_s
        self._refused = False

    @property
    def silence_s(self) -> float:
        """Time to wait for the next answer."""
        return max(0.01, min(SILENCE_S, self._until - self._clock()))

    def take_in(self, frame: Frame, answer: type[A], answers: list[A], refused: list[A] | None = None) -> bool:
        """Append an answer to *answers* if it has no error, else to *refused*; returns True for *answers*."""
        if frame.no_responders:
            self.no_responders()
            return False
        try:
            response = answer.FromString(frame.payload)
        except DecodeError:
            self.said = "an answer that cannot be read"
            return False
        if response.error:
            self.accepted(response, "replace")
            self._refused |= not response.retry
            if refused is not None:
                refused.append(response)
            return False
        answers.append(response)
        return True

    def check(self) -> None:
        """Raise Refused if an answer did."""
        if self._refused:
            raise Refused(self.said)

    async def pause(self) -> None:
        """Wait before the request is repeated. Raises Unanswered if the patience ends before that."""
        if self._clock() + self.pause_s >= self._until:
            text = f"{self.kind}: no answer within {self.patience_s:g} s"
            raise Unanswered(f"{text}, last: {self.said}" if self.said else text)
        await asyncio.sleep(self.pause_s)
        self.paused()
