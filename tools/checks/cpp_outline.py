"""Reads the outline of a C++ or CUDA file: its classes with their members, and the functions that it defines.

This is not a compiler. It reads what clang-format and Google style leave possible, without resolving names, macros or
overloads, so that the whole tree takes seconds and needs nothing but Python. Where an #if has several branches only the
first counts, because the braces of all of them together need not match.

How members are counted:
  methods  every member function that the class body declares or defines, private, static and overloaded ones included.
           Constructors, the destructor, and functions that are deleted or defaulted do not count, nor do friends.
  fields   every non-static data member. Members of an anonymous union or struct count for the class around it.
           Constants (static members) do not count.
The members of a nested class count for that class alone. Members that a macro declares are not seen.
"""
import bisect
import dataclasses
import re

_TOKEN = re.compile(
    r"""(?P<directive>^[ \t]*\#(?:\\\r?\n|[^\n])*)
      | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
      | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
      | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
      | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
      | (?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<mark2>::|->|<=>|<=|>=|&&|\|\||[{}()\[\]<>;:,=~*&.+\-/%!?^|])
    """, re.MULTILINE | re.DOTALL | re.VERBOSE)

_LITERALS = {"raw": '""', "mark": '""', "string": '""', "char": "0", "number": "0"}
_CLOSING = {"(": ")", "{": "}", "[": "]"}
# Words that may stand before a parenthesis without being the name of a function.
_NOT_A_NAME = re.compile(r"ABSL_[A-Z_]+|__\w+__|alignas|explicit|noexcept|decltype|requires|throw|__declspec")
_WORD = re.compile(r"[A-Za-z_]")


@dataclasses.dataclass
class Class:
    name: str  # with the classes around it, without namespaces: Scheduler::Outlook
    file: str
    line: int
    namespace: str = ""  # "tandem::loadgen"; each part without a name is "(anonymous)"
    methods: list = dataclasses.field(default_factory=list)
    fields: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Function:
    name: str  # with its class: Scheduler::Plan; a test has the name Suite.Test
    file: str
    first_line: int
    last_line: int

    @property
    def lines(self):
        return self.last_line - self.first_line + 1


@dataclasses.dataclass
class Outline:
    classes: list = dataclasses.field(default_factory=list)
    functions: list = dataclasses.field(default_factory=list)


def outline(text, file):
    """The Outline of a file with this text; `file` is only copied into the results."""
    reader = _Reader(_tokens(text), file)
    reader.scope(None)
    return reader.result


def _tokens(text):
    """Pairs of text and line, without comments and directives; literals are reduced to their kind."""
    tokens = []
    line, counted = 1, 0
    branches = []  # for every open #if: whether its text is "before", "taken" or "after" the branch that counts
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "comment":
            continue
        start = match.start()
        line += text.count("\n", counted, start)
        counted = start
        if kind == "directive":
            _follow_branch(match.group().strip().lstrip("#").split(), branches)
        elif all(branch == "taken" for branch in branches):
            tokens.append((_LITERALS.get(kind) or match.group(), line))
    return tokens


def _follow_branch(words, branches):
    if not words:
        return
    if words[0] in ("if", "ifdef", "ifndef"):
        branches.append("before" if words[:2] == ["if", "0"] else "taken")
    elif words[0] in ("else", "elif") and branches:
        branches[-1] = "taken" if branches[-1] == "before" else "after"
    elif words[0] == "endif" and branches:
        branches.pop()


def _partners(tokens):
    """For every opening bracket, the index of the one that closes it."""
    partners = {}
    unclosed = []
    for at, (token, _) in enumerate(tokens):
        if token in _CLOSING:
            unclosed.append(at)
        elif token in ")}]":
            while unclosed:
                opening = unclosed.pop()
                partners[opening] = at
                if _CLOSING[tokens[opening][0]] == token:
                    break
    return partners


class _Reader:
    def __init__(self, tokens, file):
        self._tokens = tokens
        self._partners = _partners(tokens)
        self._class_words = [at for at, (token, _) in enumerate(tokens) if token in ("class", "struct")]
        self._at = 0
        self._namespaces = []
        self._file = file
        self.result = Outline()

    # Tokens

    def _peek(self, ahead=0):
        at = self._at + ahead
        return self._tokens[at][0] if at < len(self._tokens) else ""

    def _line(self):
        return self._tokens[min(self._at, len(self._tokens) - 1)][1]

    def _skip_balanced(self):
        """From an opening bracket to behind the one that closes it."""
        self._at = self._partners.get(self._at, len(self._tokens)) + 1

    def _skip_angles(self):
        """From `<` to behind its `>`; past the `<` alone where it turns out to be a comparison."""
        start = self._at
        depth = 0
        while self._at < len(self._tokens):
            token = self._peek()
            if token in _CLOSING:
                self._skip_balanced()
                continue
            if token in ("<", ">"):
                depth += 1 if token == "<" else -1
            elif token in (";", "}", ")"):
                break
            self._at += 1
            if depth == 0:
                return
        self._at = start + 1

    def _skip_to(self, *ends):
        """To the first of `ends` that is outside of all brackets."""
        while self._peek() and self._peek() not in ends:
            if self._peek() in _CLOSING:
                self._skip_balanced()
            else:
                self._at += 1

    def _skip_statement(self):
        self._skip_to(";", "}")
        if self._peek() == ";":
            self._at += 1

    # Scopes

    def scope(self, owner):
        """Statements up to and with the closing brace of a namespace or of the class `owner`."""
        while self._at < len(self._tokens):
            token = self._peek()
            if token == "}":
                self._at += 1
                return
            before = self._at
            self._statement(token, owner)
            if self._at == before:
                self._at += 1

    def _statement(self, token, owner):
        if token in ("public", "private", "protected") and self._peek(1) == ":":
            self._at += 2
        elif token == "namespace" or (token == "inline" and self._peek(1) == "namespace"):
            start = self._at
            self._skip_to("{", ";", "=")
            if self._peek() == "{":
                words = [word for word, _ in self._tokens[start:self._at]]
                self._namespaces.append("".join(words[words.index("namespace") + 1:]) or "(anonymous)")
                self._at += 1
                self.scope(None)
                self._namespaces.pop()
            else:
                self._skip_statement()
        elif token == "extern" and self._peek(1) == '""':
            self._at += 2
            if self._peek() == "{":
                self._at += 1
                self.scope(None)
        elif token == "template" and self._peek(1) == "<":
            self._at += 1
            self._skip_angles()
            if self._peek() == "requires":
                self._skip_constraint()
        elif token in ("using", "typedef", "static_assert", "concept"):
            self._skip_statement()
        elif token == "friend":
            self._at += 1
            self._declaration(None)
        elif token == "enum":
            self._enum(owner)
        elif token in ("class", "struct", "union") and self._class(owner):
            pass
        else:
            self._declaration(owner)

    def _enum(self, owner):
        self._skip_to("{", ";", "=", "(", "}")
        if self._peek() == "{":
            self._skip_balanced()
            if owner is not None and _WORD.match(self._peek()):
                owner.fields.append(self._peek())
        self._skip_statement()

    def _skip_constraint(self):
        """A requires-clause between a template's parameters and its declaration."""
        self._at += 1
        while True:
            if self._peek() == "(":
                self._skip_balanced()
            else:
                while _WORD.match(self._peek()) or self._peek() == "::":
                    self._at += 1
                    if self._peek() == "<":
                        self._skip_angles()
                        break
            if self._peek() not in ("&&", "||"):
                return
            self._at += 1

    def _class(self, owner):
        """A class with its body; false, and nothing read, where no body follows."""
        start, line = self._at, self._line()
        self._at += 1
        names = []
        while True:
            token = self._peek()
            if token == "[":
                self._skip_balanced()
            elif _NOT_A_NAME.fullmatch(token) and self._peek(1) == "(":
                self._at += 1
                self._skip_balanced()
            elif token == "<":
                self._skip_angles()
            elif _WORD.match(token) or token == "::":
                names.append(token)
                self._at += 1
            else:
                break
        words = [word for word in names if word != "final"]
        # `struct stat about{}` is a variable; the names of macros are in capitals.
        if any(_WORD.match(one) and _WORD.match(two) and not one.isupper() for one, two in zip(words, words[1:])):
            self._at = start
            return False
        name = self._qualified(words) if words else ""
        if self._peek() == ":":
            self._skip_bases()
        if self._peek() != "{":
            self._at = start
            if self._peek(2) == ";":  # only announces the class
                self._at += 3
                return True
            return False
        self._at += 1
        outer = owner.name + "::" if owner else ""
        described = Class(outer + (name or "(anonymous)"), self._file, line, "::".join(self._namespaces))
        self.scope(described)
        declares = _WORD.match(self._peek()) or self._peek() == "*"
        if name or declares or owner is None:
            self.result.classes.append(described)
            if declares and owner is not None:
                owner.fields.append(self._peek())
        else:
            owner.methods += described.methods
            owner.fields += described.fields
        self._skip_statement()
        return True

    def _skip_bases(self):
        while self._peek() and self._peek() not in ("{", ";"):
            if self._peek() == "<":
                self._skip_angles()
            elif self._peek() == "(":
                self._skip_balanced()
            else:
                self._at += 1

    # Declarations

    def _declaration(self, owner):
        """A function, variable or field. Reads the specifiers up to what tells which one it is."""
        line = self._line()
        words = []  # of the declaration so far; template arguments are left out
        while self._at < len(self._tokens):
            token = self._peek()
            if token == "[" and self._peek(1) == "[":
                self._skip_balanced()
            elif token == "operator":
                return self._function(owner, line, words + [self._operator_name()])
            elif _NOT_A_NAME.fullmatch(token):
                self._at += 1
                if token == "decltype":
                    words.append(token)
                if self._peek() == "(":
                    self._skip_balanced()
            elif token == "<" and words and _WORD.match(words[-1]):
                self._skip_angles()
            elif token == "(" and self._peek(1) not in ("*", "&") and words and _WORD.match(words[-1]):
                return self._function(owner, line, words)
            elif token in ("=", "{", "(", "[", ":", ",", ";", "}"):
                return self._variables(owner, words)
            else:
                words.append(token)
                self._at += 1

    def _operator_name(self):
        name = ""
        while self._peek() and (self._peek() != "(" or (name == "operator" and self._peek(1) == ")")):
            name += (" " if _WORD.match(self._peek()) and name else "") + self._peek()
            self._at += 1
            if name == "operator(":
                name += self._peek()
                self._at += 1
        return name

    def _variables(self, owner, words):
        static = "static" in words
        names = [words[-1]] if words and _WORD.match(words[-1]) else []
        if self._peek() == "(" and self._peek(1) in ("*", "&"):  # a pointer to a function
            names = [self._peek(2)]
        while self._peek() and self._peek() not in (";", "}"):
            token = self._peek()
            if token in _CLOSING:
                self._skip_balanced()
                continue
            self._at += 1
            if token == ",":
                while self._peek() in ("*", "&"):
                    self._at += 1
                if _WORD.match(self._peek()) and self._peek(1) in ("=", ",", ";", "{", "[", ":"):
                    names.append(self._peek())
        if self._peek() == ";":
            self._at += 1
        if owner is not None and not static and len(words) + len(names) > 1:
            owner.fields += names

    def _function(self, owner, line, words):
        """From the parameters on. `words` end with the name."""
        name = self._qualified(words)
        parameters = self._at
        self._skip_balanced()
        in_class = owner is not None
        own_name = in_class and owner.name.split("::")[-1] in (name, name.lstrip("~"))
        # A single word without a type is a macro, except for the operators of conversion.
        counts = in_class and not own_name and (len(words) > 1 or name.startswith("operator"))
        while self._at < len(self._tokens):
            token = self._peek()
            if token == "{":
                self._body(name if not in_class else f"{owner.name}::{name}", line, words, parameters)
                break
            if token == ":":
                self._initialisers()
            elif token == "=":
                counts = counts and self._peek(1) not in ("default", "delete")
                self._skip_statement()
                break
            elif token in (";", "}"):
                self._at += token == ";"
                break
            elif token == "<":
                self._skip_angles()
            elif token in _CLOSING:
                self._skip_balanced()
            else:
                self._at += 1
        if counts:
            owner.methods.append(name)

    @staticmethod
    def _qualified(words):
        """`Class::Name` from the end of a declaration's words."""
        at = len(words) - 1
        while at > 0 and words[at - 1] in ("::", "~"):
            at -= 1 if words[at - 1] == "~" else 2
        return "".join(words[max(at, 0):]).lstrip(":")

    def _initialisers(self):
        """The member initialisers of a constructor, up to its body."""
        while self._peek() in (":", ","):
            self._at += 1
            while self._peek() and self._peek() not in ("(", "{", ";"):
                if self._peek() == "<":
                    self._skip_angles()
                else:
                    self._at += 1
            self._skip_balanced()
            while self._peek() == ".":  # a pack
                self._at += 1

    def _body(self, name, line, words, parameters):
        if len(words) == 1 and "::" not in name:  # a macro: the name of a test is in its arguments
            arguments = [token for token, _ in self._tokens[parameters:self._at] if _WORD.match(token)]
            name = ".".join(arguments) or name
        start = self._at
        self._skip_balanced()
        end = self._at
        self.result.functions.append(Function(name, self._file, line, self._tokens[end - 1][1]))
        self._local_classes(start + 1, end)

    def _local_classes(self, start, end):
        self._at = start
        for at in self._class_words[bisect.bisect_left(self._class_words, start):]:
            if at >= end:
                break
            if at >= self._at and self._tokens[at - 1][0] in ("{", "}", ";"):
                self._at = at
                self._class(None)
        self._at = end
