"""The experiment `certificates` at a small size."""

from dataclasses import replace

from peakrl.paper.certificates import NOTHING, QUICK, measure
from peakrl.paper.records import Request, read_figure
from peakrl.report import draw_figure


def test_certificates_are_counted_beside_theorem_1_and_none_is_false(tmp_path):
    settings = replace(QUICK, peaks=(), shares=(0.5, 0.2), episodes=50_000)
    record = measure(Request(tmp_path, workers=1, quick=True), settings)
    by_name = {(row.curve, row.measure): row.mean for row in record.rows}
    # One walk of a deterministic problem is one episode; Theorem 1's number is that of `pac_plan`, above 1e9 here.
    assert by_name["deterministic", "median episodes to 20 %"] <= 60
    assert by_name["deterministic", "median episodes to 20 %"] < by_name[NOTHING, "median episodes to 20 %"]
    assert by_name["Theorem 1", "median episodes to 20 %"] > 1e9
    issued, false = record.checks
    assert issued.ours == issued.expected == 4
    assert false.ours == 0
    record.write(tmp_path)
    assert read_figure(tmp_path, "certificates").rows == record.rows
    assert all(path.stat().st_size > 5_000 for path in draw_figure("certificates", tmp_path))
