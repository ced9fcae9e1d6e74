"""Stop a run by a signal: Ctrl-C, or SIGTERM as cluster schedulers send it.

Imported before anything heavy, so it imports nothing heavy.
"""

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 5.0
"""Seconds that the current epoch has to end after the first signal."""
DEBOUNCE = 0.5
"""Seconds in which a second signal is ignored: make and launchers forward the first one."""


class Stopped(KeyboardInterrupt):
    """A signal stopped the run; its state is saved."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.code = 128 + number
        """Exit code, by the convention of shells."""


def end_at_signals() -> None:
    """Let signals end this process, whatever it does: for programs that have nothing to save.

    An exception that a handler raises may be lost: JAX's callbacks drop it.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def stop_at_once(message: str) -> Iterator[None]:
    """Raise `Stopped` at a signal, for work that has nothing to save."""

    def stop(number: int, _: FrameType | None) -> None:
        raise Stopped(message, number)

    signals = SIGNALS if threading.current_thread() is threading.main_thread() else ()
    previous = {number: signal.signal(number, stop) for number in signals}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Interrupt:
    """Records the first signal; ends the process after a grace period or at a second signal.

    Python runs signal handlers between its own instructions, so not during a compiled step, which
    may take minutes. A separate thread waits for signals instead. Outside the main thread signals
    cannot be caught, and this class does nothing.
    """

    def __init__(
        self,
        on_signal: Callable[[], None] = lambda: None,
        last_resort: Callable[[], None] = lambda: None,
        farewell: Callable[[], None] = lambda: None,
    ):
        """`on_signal` is called at the first signal, `last_resort` after the grace period, and
        `farewell` before this class ends the process."""
        self.number: int | None = None
        """The first signal."""
        self._on_signal, self._last_resort, self._farewell = on_signal, last_resort, farewell
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> "Interrupt":
        if self._active:
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            self._handlers = {s: signal.signal(s, self._record) for s in SIGNALS}
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._active:
            # After `end_at_signals`, the program reports the stop before another signal counts.
            program = self._handlers[signal.SIGINT] == signal.SIG_DFL
            for number, handler in self._handlers.items():
                signal.signal(number, signal.SIG_IGN if program and self.number else handler)
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._pipe[1])
            self._thread.join()
            os.close(self._pipe[0])

    def check(self, message: Callable[[], str]) -> None:
        """Raise `Stopped` if there was a signal."""
        if self.number:
            raise Stopped(message(), self.number)

    def _record(self, number: int, _: FrameType | None = None) -> None:
        self.number = self.number or number

    def _watch(self) -> None:
        number = self._next(None)
        if not number:
            return
        self._record(number)
        first = time.monotonic()
        _aside(self._on_signal)
        while (second := self._next(first + GRACE)) is not None:
            if second == 0:
                return  # the run ended in time
            if time.monotonic() > first + DEBOUNCE:
                self._end(second)
        with suppress(Exception):
            self._last_resort()
        self._end(number)

    def _end(self, number: int) -> None:
        _aside(self._farewell)
        os._exit(128 + number)

    def _next(self, end: float | None) -> int | None:
        """The next signal; 0 if the pipe was closed, None if there is none until `end`."""
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([self._pipe[0]], [], [], left)[0]:
                return None
            byte = os.read(self._pipe[0], 1)
            if not byte or byte[0] in SIGNALS:  # other signals with handlers, such as SIGCHLD
                return byte[0] if byte else 0


def _aside(call: Callable[[], None]) -> None:
    """Call a function that may fail, or wait for what the main thread holds: at most a second."""

    def attempt() -> None:
        with suppress(Exception):
            call()

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(1.0)
