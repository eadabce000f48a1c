"""The sandbox's own time: real UTC plus a shift that the control API sets and that outlives a restart."""

import time


class Clock:
    """Seconds and milliseconds since 1970 (UTC). It never goes back by itself; only `shift` moves it."""

    def __init__(self, shift_ms: int = 0) -> None:
        self.shift_ms = shift_ms

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.shift_ms

    def now(self) -> int:
        return self.now_ms() // 1000
