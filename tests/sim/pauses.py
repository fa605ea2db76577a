"""A process that is stopped and goes on, as by SIGSTOP or for want of CPU: between two things that it does, or amid one."""

from collections import deque


class Gone(BaseException):
    """The process ended while it was stopped amid something, which it does not finish."""


def nobody_asks():
    """Nobody wants to know when it is stopped."""


class Pauses:
    """Of one simulated node, which runs everything by way of `put_off`."""

    def __init__(self, node):
        self._node = node
        self._loop = node.world.loop
        self.forget()

    def forget(self):
        """A new process."""
        self.until = 0
        self._backlog = deque()  # what happens to a stopped process happens when it goes on
        self._armed = 0
        self._told = nobody_asks

    def put_off(self, call, args):
        """Whether the process is stopped; the call comes when it goes on."""
        if self.until:
            self._backlog.append((call, args))
        return bool(self.until)

    def begin(self, length):
        """Stop it now."""
        if self._node.alive and not self.until:
            self.until = self._loop.now + length
            self._loop.after(length, self._go_on, self._node.lives)

    def _go_on(self, life):
        if self._node.alive and self._node.lives == life and self.until:
            self.until = 0
            while self._backlog and not self.until and self._node.lives == life:  # else it was stopped again, or ended
                call, args = self._backlog.popleft()
                self._node.run(call, *args)

    def arm(self, length, told=nobody_asks):
        """Stop it for so long the next time that it comes to `amid`; *told* is called then."""
        self._armed, self._told = length, told

    def amid(self):
        """A place at which it can be stopped amid something: the others go on meanwhile. Raises Gone."""
        length, self._armed = self._armed, 0
        if not length or self.until:
            return
        self._told()
        life, self.until = self._node.lives, self._loop.now + length
        self._loop.run_until(self.until)
        if not self._node.alive or self._node.lives != life:
            raise Gone
        self._loop.after(0, self._go_on, life)  # what has come meanwhile is looked at when this is done
        self.until = self._loop.now
