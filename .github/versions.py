"""Print constraints for pip: `lowest` pins the required packages to their lower bounds, `newest` constrains nothing."""

import sys
import tomllib
from pathlib import Path

if sys.argv[1:] == ["lowest"]:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    print("\n".join(line.replace(">=", "==") for line in project["dependencies"]))
elif sys.argv[1:] != ["newest"]:
    sys.exit("usage: python .github/versions.py lowest|newest")
