"""Variables that a shell command line changes. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

_END = frozenset(";&|()\n")
_ASSIGNMENT, _UNSET = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL), re.compile(r"(?:-u|--unset=)(.+)")
#: Words after which a command follows, and after which assignments do.
_PREFIXES = frozenset(("{", "!", "if", "then", "elif", "else", "while", "until", "do", "exec", "time", "nice", "nohup"))
_DECLARATIONS = frozenset(("export", "declare", "readonly", "typeset"))


def changed_variables(command: str) -> Iterator[tuple[str, str]]:
    """Yield (`sets` or `unsets`, variable), as far as the command line shows it.

    A value that contains the variable itself, such as a default, does not count, and neither do arguments of programs.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars="".join(_END))
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    #: The command whose arguments are read; empty: a command may start.
    name = before = ""
    try:
        for word in lexer:
            match = _ASSIGNMENT.fullmatch(word)
            if _END.issuperset(word) or word in _PREFIXES:
                name = "" if _END.issuperset(word) else name
            elif name.endswith("sh") and before in ("-c", "-lc", "-ec"):
                yield from changed_variables(word)
            elif match and name in ("", "env", *_DECLARATIONS):
                yield from () if re.search(rf"\$\{{?{match[1]}\b", match[2]) else [("sets", match[1])]
            elif (name == "unset" and not word.startswith("-")) or (name == "env" and before in ("-u", "--unset")):
                yield "unsets", word
            elif name == "env" and (option := _UNSET.fullmatch(word)):
                yield "unsets", option[1]
            elif not name or word == "env" or (name == "env" and not word.startswith("-")):
                name = word
            before = word
    except ValueError:  # a quote without its end, of which the shell will complain
        return
