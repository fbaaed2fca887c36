"""Compare what peakrl computes with the golden manifest: `python tests/golden`; with `--write`, store it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from golden.cases import cases
from golden.manifest import MANIFEST, differences, recorded


def main() -> int:
    """Run every case, or those whose names contain a word."""
    parser = argparse.ArgumentParser(prog="python tests/golden", description=__doc__)
    parser.add_argument("words", nargs="*", help="run only cases whose names contain one of these")
    parser.add_argument("--write", action="store_true", help="store the results as the new manifest")
    options = parser.parse_args()
    found = {
        name: recorded(case)
        for name, case in cases()
        if not options.words or any(word in name for word in options.words)
    }
    if not found:
        parser.error(f"no case has {' or '.join(options.words)} in its name")
    if options.write:
        stored = json.loads(MANIFEST.read_text()) if options.words else {}
        MANIFEST.write_text(json.dumps(stored | found, indent=1, sort_keys=True) + "\n")
    lines = [line for name, record in found.items() for line in differences(name, record)]
    print(*lines, f"{len(found)} cases, {len(lines)} differences", sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
