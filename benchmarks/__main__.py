"""``python -m benchmarks``: run every benchmark; exit 1 when one is outside its expected range."""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run ``python -m benchmarks.<claim>`` for each folder that has an entry."""
    entries = sorted(Path(__file__).parent.glob("*/__main__.py"))
    outside = []
    for entry in entries:
        name = f"benchmarks.{entry.parent.name}"
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", name], check=False).returncode != 0:
            outside.append(name)
    print(f"outside their expected range: {', '.join(outside) or 'none'}")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
