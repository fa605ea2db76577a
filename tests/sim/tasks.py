"""Coroutines on virtual time: where real ones wait for a thread or for the database, these let something else happen first."""


class Pause:
    """Awaited: go on a little later."""

    def __await__(self):
        yield


class Turn:
    """asyncio.Lock, as far as stan.state needs it."""

    def __init__(self):
        self._taken = False

    async def __aenter__(self):
        while self._taken:
            await Pause()
        self._taken = True

    async def __aexit__(self, *_):
        self._taken = False


class Tasks:
    """`later(call)` calls something a little later, unless the process is gone by then."""

    def __init__(self, later):
        self._later = later
        self._running = []

    def start(self, coroutine, done):
        """`done(error)`: with None, or with the Exception that ended it."""
        self._running.append(coroutine)
        self._later(lambda: self._step(coroutine, done))

    def drop(self):
        """The process is gone. What its coroutines still close must be dead by now."""
        running, self._running = self._running, []
        for coroutine in running:
            coroutine.close()

    def _step(self, coroutine, done):
        try:
            coroutine.send(None)
        except StopIteration:
            problem = None
        except Exception as error:  # noqa: BLE001 - told
            problem = error
        else:
            self._later(lambda: self._step(coroutine, done))
            return
        self._running.remove(coroutine)
        done(problem)


async def in_thread(call):
    """`stan.edge.storage.storage.Offload`."""
    await Pause()
    result = call()
    await Pause()
    return result
