"""Stopping a run from outside: Ctrl-C, and SIGTERM as clusters send it."""

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 5.0
"""Seconds that the epoch in progress has to come to its end."""
ECHO = 0.5
"""Seconds in which a second signal is the same wish: make and launchers pass theirs on too."""


class Stopped(KeyboardInterrupt):
    """The run was asked to stop, and has saved what it needs to go on."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.code = 128 + number
        """Exit code, as shells count them."""


@contextmanager
def stop_at_once(message: str) -> Iterator[None]:
    """Raise `Stopped` at a signal: for work in Python that leaves nothing to be saved."""

    def stop(number: int, _: Any) -> None:
        raise Stopped(message, number)

    mine = SIGNALS if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, stop) for number in mine}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupt:
    """Notes the first signal; after a grace period, or at the second signal, ends the process.

    Python runs signal handlers between its own instructions, and so not while a compiled step
    runs, which may take minutes. A thread of its own waits for the signals instead. Outside the
    main thread signals cannot be caught, and nothing is changed.
    """

    def __init__(self, first: Callable[[], None], last_resort: Callable[[], None]):
        """`first` is called at the first signal, `last_resort` when the grace period is over."""
        self.number: int | None = None
        self._first, self._last_resort = first, last_resort
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> "Interrupt":
        if self._active:
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            self._handlers = {s: signal.signal(s, lambda *_: None) for s in SIGNALS}
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._active:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._pipe[1])
            self._thread.join()
            os.close(self._pipe[0])

    def _watch(self) -> None:
        number = self._next(None)
        if not number:
            return
        self.number = number
        asked = time.monotonic()
        with suppress(Exception):  # or nobody would hear the signals any more
            self._first()
        while (left := asked + GRACE - time.monotonic()) > 0:
            again = self._next(left)
            if again == 0:
                return  # the run has ended by itself
            if again and time.monotonic() > asked + ECHO:
                os._exit(128 + again)
        try:
            self._last_resort()
        finally:
            os._exit(128 + number)

    def _next(self, timeout: float | None) -> int | None:
        """The next signal; 0 when there will be none, None when time is up."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([self._pipe[0]], [], [], left)[0]:
                return None
            byte = os.read(self._pipe[0], 1)
            if not byte or byte[0] in SIGNALS:  # others have handlers too, such as SIGCHLD
                return byte[0] if byte else 0
