"""The command `peakrl`, also `python -m peakrl`: an interrupt is reported while modules load, too."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from peakrl.cli import main as run

        run()
    except KeyboardInterrupt:
        print("peakrl: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
