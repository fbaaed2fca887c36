"""What tests of UMB files share."""

from __future__ import annotations

import io
import tarfile


def archive_of(files):
    """Return an archive of (name, content) pairs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def unrolled(model):
    """[slot][row]: outcomes (probability, next slot, reward, constraints...) of a stationary or layered model."""
    stride, payoffs = model.payoffs.stride, model.payoffs
    table = []
    for slot in range(model.num_slots):
        rows = []
        for row in model.rows_of_slot(slot):
            here, first = model.outcomes_of_row(row), int(payoffs.row_payoff[row])
            chances, following = model.outcome_probability[here].tolist(), model.outcome_next[here].tolist()
            records = [first + stride * j for j in range(len(chances))]
            paid = [(float(payoffs.reward[i]), *payoffs.constraints[i].tolist()) for i in records]
            rows.append([(p, s, *each) for p, s, each in zip(chances, following, paid, strict=True)])
        table.append(rows)
    return table
