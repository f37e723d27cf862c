"""A folder of meeting notes: long ones, with one decision in each."""

from __future__ import annotations

from pathlib import Path

NOTES = 20
_TALK = (
    "Ana went through the open points of last week and asked who could take which of them until Friday.",
    "Ben had looked at the figures of the trial and found them within what was expected, but for two days in May.",
    "There was some talk about the order of the next steps, and about who has to be asked before they are taken.",
    "Eva told what the customers in the second region had said about the new pages, good and bad, with examples.",
)


def write_notes(folder: Path, count: int = NOTES) -> list[Path]:
    """Write so many notes; each decides one thing."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number in range(count):
        talk = "\n\n".join(_TALK[(number + turn) % len(_TALK)] for turn in range(10))
        who = ("Ana", "Ben", "Eva")[number % 3]
        file = folder / f"meeting-{number:02}.md"
        file.write_text(f"# Meeting {number}\n\n{talk}\n\nDECIDED: step {number} goes ahead ({who})\n\n{talk}\n")
        files.append(file)
    return files
