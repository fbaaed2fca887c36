"""Read TensorBoard's files without TensorBoard."""

from __future__ import annotations

import struct
from pathlib import Path

Points = dict[str, dict[int, float]]


def logged(folder: Path) -> Points:
    """Return what TensorBoard would show of a folder: a file that says so discards earlier points."""
    from tensorboardX.proto.event_pb2 import Event

    points: Points = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        data, place = path.read_bytes(), 0
        while place < len(data):  # length, checksum, content, checksum
            (length,) = struct.unpack_from("<Q", data, place)
            event = Event.FromString(data[place + 12 : place + 12 + length])
            place += 16 + length
            if event.HasField("session_log"):
                points = {tag: {s: v for s, v in found.items() if s < event.step} for tag, found in points.items()}
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    assert event.step not in points.setdefault(value.tag, {})
                    points[value.tag][event.step] = value.simple_value
    return points
