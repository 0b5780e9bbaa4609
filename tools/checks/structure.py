"""The gates on the shape of the code, as pure functions of an outline and the list of known exceptions.

A gate fails when something new is over a limit and also when a listed exception is gone or smaller than the list says,
so that the list always states what is true and every improvement is kept.
"""
import dataclasses
import re

from source_tree import room

MAX_METHODS = 25
MAX_FIELDS = 15
MAX_FUNCTION_LINES = 60
STAND_INS = "tests/simt/include/"  # headers in it are included in place of those of their names


@dataclasses.dataclass
class Exceptions:
    classes: dict = dataclasses.field(default_factory=dict)  # (room, class) -> (methods, fields)
    functions: dict = dataclasses.field(default_factory=dict)  # (room, function) -> lines
    circles: list = dataclasses.field(default_factory=list)  # sets of units

    def lines(self):
        """The text of the file, without its heading."""
        for (where, name), (methods, fields) in sorted(self.classes.items()):
            yield f"class {where} {name} {methods} {fields}"
        for (where, name), lines in sorted(self.functions.items()):
            yield f"function {where} {name} {lines}"
        for circle in sorted(sorted(units) for units in self.circles):
            yield "circle " + " ".join(circle)


def read_exceptions(text):
    found = Exceptions()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0] == "class" and len(words) == 5:
            found.classes[words[1], words[2]] = (int(words[3]), int(words[4]))
        elif words[0] == "function" and len(words) == 4:
            found.functions[words[1], words[2]] = int(words[3])
        elif words[0] == "circle" and len(words) > 2:
            found.circles.append(set(words[1:]))
        else:
            raise ValueError(f"line {number}: {line!r} is none of: class ROOM NAME METHODS FIELDS, "
                             "function ROOM NAME LINES, circle UNIT UNIT ...")
    return found


# Classes

def is_record(described):
    """Flags, options, statistics, parameters of a kernel: independent values without behaviour."""
    return not described.methods


def large_classes(outlines):
    """Every class over a limit, the largest first."""
    over = [described for outline in outlines.values() for described in outline.classes
            if not is_record(described)
            and (len(described.methods) > MAX_METHODS or len(described.fields) > MAX_FIELDS)]
    return sorted(over, key=lambda one: (-len(one.methods) - len(one.fields), one.file, one.name))


def check_classes(outlines, listed):
    problems = []
    seen = set()
    for one in large_classes(outlines):
        key = (room(one.file), one.name)
        seen.add(key)
        now = (len(one.methods), len(one.fields))
        allowed = listed.get(key)
        where = f"{one.file}:{one.line}: {one.name} has {now[0]} methods and {now[1]} fields"
        if allowed is None:
            problems.append(f"{where}; at most {MAX_METHODS} and {MAX_FIELDS} are allowed")
        elif now[0] > allowed[0] or now[1] > allowed[1]:
            problems.append(f"{where}; the list of exceptions allows {allowed[0]} and {allowed[1]}")
        elif now != allowed:
            problems.append(f"{where}; the list still allows {allowed[0]} and {allowed[1]}: shorten it")
    problems += [f"{name} in {where} is within the limits, or gone: shorten the list"
                 for where, name in sorted(set(listed) - seen)]
    return problems


def shrunk_classes(outlines, listed):
    """The list without what is no longer true of it; nothing is ever added or raised."""
    now = {}
    for one in large_classes(outlines):
        key = (room(one.file), one.name)
        now[key] = (len(one.methods), len(one.fields))
    return {key: tuple(map(min, listed[key], now[key])) for key in listed if key in now}


# Names

def check_names(outlines):
    """No two files define a type of one name in one namespace: where both are in a program, the linker keeps the
    functions of either of them for both."""
    places = {}
    for file, outline in outlines.items():
        if file.startswith(STAND_INS):
            continue
        for one in outline.classes:
            # What is in an anonymous namespace, or in another class or function, belongs to its file.
            if "::" not in one.name and "(anonymous)" not in f"{one.namespace} {one.name}":
                places.setdefault((one.namespace, one.name), {})[one.file] = one.line
    return [f"{namespace}::{name} is defined in " + ", ".join(f"{file}:{line}" for file, line in sorted(files.items()))
            for (namespace, name), files in sorted(places.items()) if len(files) > 1]


# Functions

def long_functions(outlines):
    over = [one for outline in outlines.values() for one in outline.functions
            if one.lines > MAX_FUNCTION_LINES]
    return sorted(over, key=lambda one: (-one.lines, one.file, one.name))


def check_functions(outlines, listed):
    problems = []
    seen = set()
    for one in long_functions(outlines):
        key = (room(one.file), one.name)
        seen.add(key)
        allowed = listed.get(key)
        where = f"{one.file}:{one.first_line}: {one.name} has {one.lines} lines"
        if allowed is None:
            problems.append(f"{where}; at most {MAX_FUNCTION_LINES} are allowed")
        elif one.lines > allowed:
            problems.append(f"{where}; the list of exceptions allows {allowed}")
        elif one.lines < allowed:
            problems.append(f"{where}; the list still allows {allowed}: shorten it")
    problems += [f"{name} in {where} is within the limit, or gone: shorten the list"
                 for where, name in sorted(set(listed) - seen)]
    return problems


def shrunk_functions(outlines, listed):
    now = {(room(one.file), one.name): one.lines for one in long_functions(outlines)}
    return {key: min(listed[key], now[key]) for key in listed if key in now}


# Circles

def unit(file):
    """A header and its source are one unit: router/dispatch."""
    return re.sub(r"(-inl)?\.(h|cc|cu|cuh)$", "", file)


def circles(includes):
    """Sets of two and more units that all include each other, directly or through others."""
    graph = {}
    for file, edges in includes.items():
        graph.setdefault(unit(file), set()).update(unit(edge) for edge in edges)
    return [component for component in _components(graph) if len(component) > 1]


def check_circles(includes, listed):
    now = circles(includes)
    problems = []
    for circle in now:
        if not any(circle <= known for known in listed):
            known = max(listed, key=lambda known: len(circle & known), default=set())
            new = sorted(circle - known) if circle & known else sorted(circle)
            problems.append(f"{len(circle)} units include each other in a circle, new in it: {', '.join(new)}"
                            f" (for instance {' -> '.join(shortest_circle(includes, new[0], circle))})")
    still = set().union(*now) if now else set()
    for known in listed:
        gone = sorted(known - still)
        if gone:
            problems.append(f"no longer in a circle: {', '.join(gone)}: shorten the list")
    return problems


def shrunk_circles(includes, listed):
    return [circle for circle in circles(includes) if any(circle <= known for known in listed)]


def shortest_circle(includes, start, within):
    """The units on a shortest way from `start` back to itself."""
    edges = {}
    for file, targets in includes.items():
        edges.setdefault(unit(file), set()).update(unit(target) for target in targets)
    ways = [[start]]
    reached = set()
    while ways:
        way = ways.pop(0)
        for target in sorted(edges.get(way[-1], set()) & within - {way[-1]}):
            if target == start:
                return way + [start]
            if target not in reached:
                reached.add(target)
                ways.append(way + [target])
    return [start]


def _components(graph):
    """Strongly connected components (Tarjan), without recursion."""
    index, low, on_stack, stack, found = {}, {}, set(), [], []
    for root in sorted(graph):
        if root in index:
            continue
        work = [(root, iter(sorted(graph.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, edges = work[-1]
            advanced = False
            for target in edges:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(graph.get(target, ())))))
                    advanced = True
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            if advanced:
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                component = set()
                while node not in component:
                    component.add(stack.pop())
                on_stack -= component
                found.append(component)
    return found
