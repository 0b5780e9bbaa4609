"""Memory and descriptors of processes while they serve, and whether they grew."""
import pathlib
import statistics
import threading
import time

# What may be added between two windows of a process that does the same all the time: allocators keep what they have had.
GROWTH_SHARE = 0.10
GROWTH_KIB = 16 << 10
DESCRIPTOR_SLACK = 8


def resident_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0  # a process that has ended and was not waited for


def descriptors(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


class Watch:
    """Looks at the processes of a fleet once a second, on a thread of its own, until `stop`."""

    def __init__(self, fleet):
        self._fleet = fleet
        self._samples = {}  # by name and pid: (time, KiB)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._ended.wait(1):
            for name, pid in self._fleet.processes().items():
                try:
                    self._samples.setdefault((name, pid), []).append((time.monotonic(), resident_kib(pid)))
                except OSError:
                    pass  # it has just ended

    def stop(self):
        self._ended.set()
        self._thread.join()

    def windows(self, begin, end, there):
        """For each process that was `there` (a name and a pid) at the beginning and lived until the end: the medians of its memory in
        the first and in the last quarter."""
        medians = {}
        width = (end - begin) / 4
        for (name, pid), samples in self._samples.items():
            first = [kib for at, kib in samples if begin <= at < begin + width]
            last = [kib for at, kib in samples if end - width <= at < end]
            if first and last and (name, pid) in there:
                medians[name] = (statistics.median(first), statistics.median(last))
        return medians


def grown(windows):
    """What of the memory has grown too much."""
    return [f"{name} grew from {first:.0f} to {last:.0f} KiB" for name, (first, last) in windows.items()
            if last > first * (1 + GROWTH_SHARE) + GROWTH_KIB]


def leaked(before, after):
    """Which processes have more descriptors than `before`; both are counts at rest by name and pid."""
    return [f"{name} has {after[name, pid]} descriptors, had {count}" for (name, pid), count in before.items()
            if (name, pid) in after and after[name, pid] > count + DESCRIPTOR_SLACK]
