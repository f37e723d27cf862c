"""All chaos: `python tests/chaos/run.py [--seconds 600] [--rounds 50] [--only kill,restarts,clients,fleet,soak]`.

Ten minutes of faults by default, of which the processes that write to the journal are killed for a part. The soak runs
for `--minutes`, and only when it is asked for by name. Exits with 1 when any part does.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
USUAL = "kill,restarts,clients,fleet"


def main() -> int:
    """Run the parts, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=USUAL, help=f"of {USUAL},soak")
    parser.add_argument("--seconds", type=float, default=600.0, help="of faults of servers")
    parser.add_argument("--rounds", type=int, default=10, help="kills of each kind of journal")
    parser.add_argument("--count", type=int, default=1_000, help="sessions that are left behind")
    parser.add_argument("--minutes", type=float, default=60.0, help="of the soak")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    parts = {
        "kill": ["--rounds", given.rounds, "--seed", given.seed],
        "restarts": [],
        "clients": ["--count", given.count, "--seconds", min(60.0, given.seconds / 5)],
        "fleet": ["--seconds", given.seconds, "--seed", given.seed],
        "soak": ["--minutes", given.minutes],
    }
    failed = []
    for name in given.only.split(","):
        print(f"\n{name}\n", flush=True)
        if subprocess.call([sys.executable, str(HERE / f"{name}.py"), *map(str, parts[name])]):
            failed.append(name)
    print(f"\nbroken: {', '.join(failed) or 'nothing'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
