"""The table of all metrics, a section of a page. It is read from the tables of names in server/admin and from the
messages that these name."""
import pathlib
import re

from pages.text import table

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ADMIN = ROOT / "server" / "admin"
PROTO = ROOT / "proto" / "tandem" / "v1"

HEAD = "## All metrics"  # up to the next head of its kind

TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|//[^\n]*|([{}])|(,)|[^",{}]+')


def rows(source):
    """The texts of each innermost pair of braces in C++ source, adjacent ones joined as the compiler joins them.
    Braces within braces have rows of their own, with what stood before them."""
    found, stack = [], [[]]
    text, joined = None, False
    for match in TOKEN.finditer(source):
        literal, brace, comma = match.groups()
        if literal is not None:
            stack[-1].append(stack[-1].pop() + literal if joined else literal)
            joined = True
            continue
        if brace == "{":
            stack.append([])
        elif brace == "}":
            found.append(stack.pop() if len(stack) > 1 else [])
        if brace or comma:
            joined = False
    return [row for row in found if row and re.match(r"(tandem_|vllm:)[a-z0-9_]+$", row[0])]


def workers_messages():
    """The names of the messages that a worker's report is made of."""
    source = "\n".join(path.read_text() for path in sorted(PROTO.glob("*.proto")))
    source = re.sub(r"//[^\n]*", "", source)
    types = {}
    for match in re.finditer(r"message (\w+) \{", source):
        depth, end = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            end += 1
        fields = re.findall(r"^\s*(?:repeated |optional )?(\w+) \w+ = \d+", source[match.end():end], re.M)
        types[match[1]] = set(fields)
    known, new = set(), {"WorkerLoad"}
    while new:
        known |= new
        new = {field for name in new for field in types[name] if field in types} - known
    return known


def where(metric_sources, of_worker):
    messages = {source.split(".")[0] for source in metric_sources}
    if messages == {"WorkerStatus"}:
        return "router" if any("." in source for source in metric_sources) else "router, worker"
    return "router, worker" if messages & of_worker else "router"


def kind(name, histograms=()):
    return "histogram" if name in histograms else "counter" if name.endswith("_total") else "gauge"


def line(name, of_kind, at, help_text):
    return [f"`{name}`", of_kind, at, help_text.replace("|", "\\|")]


def of_status():
    """Those of metrics_table.cc: name, source, help, label, value."""
    families = {}
    for row in rows((ADMIN / "metrics_table.cc").read_text()):
        families.setdefault(row[0], []).append(row)
    of_worker = workers_messages()
    return [line(name, kind(name), where([row[1] for row in family], of_worker), family[0][2])
            for name, family in families.items()]


def of_field():
    """Those of field_metrics.cc: name, help. Which are histograms, and which a worker has, its arrays say."""
    source = (ADMIN / "field_metrics.cc").read_text()
    parts = {"histogram": [], "router": [], "both": []}
    for array in re.finditer(r"constexpr (\w+) (\w+)(?:\[\])? =? ?\{.*?\n\};|constexpr FieldMetric \w+ = \{.*?\};", source, re.S):
        text = array[0]
        group = ("histogram" if "FieldHistogram" in text else
                 "both" if re.search(r"kGauges|kCounters|kCacheConfig", text.split("{")[0]) else "router")
        parts[group] += rows(text)
    lines = [line(name, kind(name), "router, worker", help_text) for name, help_text in parts["both"]]
    lines += [line(name, kind(name), "router", help_text) for name, help_text in parts["router"]]
    return lines + [line(name, "histogram", "router", help_text) for name, help_text in parts["histogram"]]


def of_http():
    def at(name):
        return "router, worker" if name.startswith("tandem_metrics_port_") else "router"
    return [line(row[0], kind(row[0]), at(row[0]), row[1]) for row in rows((ADMIN / "http_metrics.cc").read_text())]


def of_trace():
    return [line(row[0], kind(row[0]), "router, worker", row[1]) for row in rows((ADMIN / "trace_metrics.cc").read_text())]


def all_metrics():
    return of_status() + of_http() + of_trace() + of_field()


def with_metrics(page):
    """The page with its section of metrics written anew."""
    begin = page.index(HEAD)
    after = page.find("\n## ", begin + len(HEAD))
    rest = "" if after < 0 else page[after:]
    text = ("\n\nWritten by `bench/report.py` from the tables in `server/admin/`; do not edit. A router has those of its workers with "
            "the labels `worker` and `role`; `tandem_connections` and others that every process has, with the label `server`.\n\n"
            + table(["metric", "kind", "on the page of", "meaning"], all_metrics()))
    return page[:begin] + HEAD + text + rest
