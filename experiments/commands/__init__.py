"""The commands, a file each: its docstring is its help; `arguments` it takes, `carry_out` answers an exit code."""

COMMANDS = (
    "run",
    "watch",
    "sweep",
    "plot",
    "table",
    "trace",
    "report",
    "validate",
    "list",
    "new",
    "verify",
    "reproduce",
    "bench",
    "doctor",
)

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def count(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
