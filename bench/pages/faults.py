"""The record of faults, a section of a page."""
import sys

from pages.text import table

HEAD = "## The record"  # up to the next head of its kind


def times(name, entry):
    return [name, f"{entry['count']:,}", *(f"{entry[key]:,.0f}" for key in ("p50_ms", "p99_ms", "max_ms"))]


CAUSES = {"connection": "the connection of a call to a worker ended", "lease": "a worker was not heard of for too long, or lost its name",
          "no_progress": "a worker said that it makes no progress", "hand_off": "a worker did not reach its peer with KV",
          "leaving": "a worker drains"}


def fault_counts(rows, of):
    """Lines of scheduled, hit and missed events, summed over the rows of each `of` ("fault", "fleet")."""
    counts = {}
    for row in rows:
        count = counts.setdefault(row[of], [0, 0, 0])
        for i, key in enumerate(("scheduled", "hit", "missed")):
            count[i] += row[key]
    return [[name, *(f"{number:,}" for number in count)] for name, count in counts.items()]


def fleets_of(result):
    """How many events ran on which fleets, and how much was under way there at once. Older records do not tell."""
    if "fleets_of" not in result:
        return ""
    most = {name: [f"{fleet['not_run']:,}"] + [f"{fleet[key]:,}" for key in (
        "most_sending", "most_waiting_reservations", "most_draining_reservations")]
        for name, fleet in result["fleets_of"].items()}
    lines = [[*line, *most[line[0]]] for line in fault_counts(result["rows"], "fleet")]
    head = ["fleet", "scheduled", "hit at its moment", "missed", "not run", "most hand-offs at once", "waiting", "draining"]
    return table(head, lines) + "\n"


def handoffs(result):
    """What the workers counted, of records that have it of all their lives."""
    if "lives" not in result.get("handoffs", {}):
        return ""
    counts = {name: f"{count:,}" for name, count in result["handoffs"].items()}
    return (f"The workers, {counts['lives']} lives of them, counted {counts['sent']} hand-offs that were acknowledged, "
            f"{counts['retried']} streams opened again, {counts['lapsed']} reservations that lapsed; frames: "
            f"{counts['corrupted_frames']} corrupted, {counts['stale_frames']} stale, {counts['stranger_frames']} of strangers; "
            f"{counts['connections_closed']} connections closed for them.\n\n")


def faults(result):
    head = ["count", "p50 ms", "p99 ms", "max ms"]
    resumes = result["resumes"]
    count = {"count": resumes["lost"] + resumes["migrated"]}
    pauses = [times("all", resumes | count)]
    if "waited" in resumes:  # older records do not tell
        pauses.append(times("all, since the last token before", resumes["waited"] | count))
    pauses += [times(CAUSES[cause], entry) for cause, entry in resumes.get("causes", {}).items()]
    slow = result.get("resumes_with_slow_kv")
    if slow:
        pauses.append(times("where KV is held to a rate", slow | {"count": slow["lost"] + slow["migrated"]}))
    gave_up = resumes["gave_up"] + (slow["gave_up"] if slow else 0)
    noticed = [times(name.replace("_", ", "), entry) for name, entry in result["loss_noticed"].items()]
    if "left" in result:
        noticed.append(times("asked to leave: ended", result["left"]))
    scheduled, hit = (sum(row[key] for row in result["rows"]) for key in ("scheduled", "hit"))
    requests = result["requests"]
    fleets = f" --fleets {result['fleets']}" if result.get("fleets", 1) > 1 else ""
    found = f" ({'; '.join(result['found'])})" if result["found"] else ""
    return f"""{HEAD}

Written by `bench/report.py` from `bench/results/faults.json`; do not edit this section.
Command: `build/release/bin/fault_harness --events {result['events']} --seed {result['seed']}{fleets} --json bench/results/faults.json`,
{result['seconds']:,.0f} s.

{scheduled:,} events, of which {hit:,} hit their moment. Of the requests {requests['whole']:,} ended whole, {requests['cancelled']:,} were cancelled, {requests['expired']:,} expired; wrong were
{requests['wrong']:,}. What was found that must not be: {len(result['found'])}{found}.

{table(["loss noticed", *head], noticed)}
{table(["pause of a request that went on elsewhere", *head], pauses)}
From the loss noticed to the next token told; the largest of the fleets' quantiles, each over the latest 1,000 pauses of
its router. {gave_up:,} gave up.

{handoffs(result)}{fleets_of(result)}{table(['fault', 'scheduled', 'hit at its moment', 'missed'], fault_counts(result['rows'], "fault"))}"""


def with_record(page, record):
    begin = page.index(HEAD)
    end = page.find("\n## ", begin)
    return page[:begin] + record + (page[end:] if end >= 0 else "")


def check_faults():
    """Renders a made-up record: every count once, kinds of faults summed over their rows, causes where there are."""
    entry = {"count": 3, "p50_ms": 1.4, "p99_ms": 2345.6, "max_ms": 7.0}
    row = {"fleet": "tcp", "moment": "commit", "target": "decode", "fault": "kill", "scheduled": 1200, "hit": 1100,
           "missed": 100}
    fleet = {"not_run": 7, "most_sending": 5, "most_waiting_reservations": 6, "most_draining_reservations": 1}
    made_up = {"events": 9999, "seed": 9, "fleets": 4, "seconds": 10.2, "found": ["x"],
               "requests": {"whole": 11, "cancelled": 12, "expired": 13, "wrong": 14},
               "loss_noticed": {"killed": entry, "hanging_idle": entry},
               "resumes": {"lost": 20, "migrated": 1, "gave_up": 2, "p50_ms": 5.0, "p99_ms": 6.0, "max_ms": 7.0},
               "rows": [row, row | {"moment": "ack"}, row | {"fault": "drop", "hit": 5}]}
    page = faults(made_up)
    with_causes = faults(made_up | {"resumes": made_up["resumes"] | {"causes": {"lease": entry}}})
    with_waits = faults(made_up | {"resumes": made_up["resumes"] | {"waited": entry}})
    with_fleets = faults(made_up | {"fleets_of": {"tcp": fleet}, "left": entry,
                                     "resumes_with_slow_kv": made_up["resumes"] | {"lost": 30, "p50_ms": 9.0}})
    around = with_record(f"# A\n\n{HEAD}\nold\n\n## After\nkept\n", page)
    lives = {"lives": 1234, "sent": 5, "retried": 6, "lapsed": 7, "corrupted_frames": 8, "stale_frames": 9,
             "stranger_frames": 10, "connections_closed": 11}
    with_handoffs = faults(made_up | {"handoffs": lives})
    facts = {
        "counts of all lives": "1,234 lives of them, counted 5 hand-offs" in with_handoffs and "lives of them" not in page,
        "command": "--events 9999 --seed 9 --fleets 4 --json" in page,
        "what ran, not what was asked for": "3,600 events, of which 2,205 hit" in page and "9,999" not in page,
        "fleets": "| tcp | 3,600 | 2,205 | 300 | 7 | 5 | 6 | 1 |" in with_fleets and "most hand-offs" not in page,
        "left": "| asked to leave: ended | 3 | 1 | 2,346 | 7 |" in with_fleets and "asked to leave" not in page,
        "slow apart": "| where KV is held to a rate | 31 | 9 | 6 | 7 |" in with_fleets and "4 gave up" in with_fleets,
        "endings": "11 ended whole, 12 were cancelled, 13 expired; wrong were\n14." in page,
        "found": "must not be: 1 (x)." in page,
        "times": "| hanging, idle | 3 | 1 | 2,346 | 7 |" in page,
        "all pauses": "| all | 21 | 5 | 6 | 7 |" in page and "2 gave up" in page,
        "waits": "| all, since the last token before | 21 | 1 | 2,346 | 7 |" in with_waits and "token before" not in page,
        "kinds summed": "| kill | 2,400 | 2,200 | 200 |" in page and "| drop | 1,200 | 5 | 100 |" in page,
        "causes": "not heard of" not in page and "for too long, or lost its name | 3 | 1 |" in with_causes,
        "only its section": around.startswith("# A\n\n" + page) and around.endswith("\n## After\nkept\n"),
    }
    wrong = [name for name, holds in facts.items() if not holds]
    if wrong:
        sys.exit(f"bench/report.py renders a record of faults wrong: {', '.join(wrong)}\n{page}")
