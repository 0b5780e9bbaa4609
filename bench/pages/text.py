"""What every page is made of."""


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def verdicts(targets):
    """How many of the targets were met, and which were not."""
    missed = [f"{row['what']}: {row['measured']} instead of {row['wanted']}" for row in targets if not row["met"]]
    return f"{len(targets) - len(missed)} of {len(targets)} targets met" + ("; missed: " + "; ".join(missed) if missed else "")
