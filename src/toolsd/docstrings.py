"""What a docstring says about a tool and its parameters.

Owns the reading of google, numpy and sphinx styles, through `docstring-parser`, which is imported only for a docstring
that has sections: it costs more than the rest of a small source's start. Must not know signatures or schemas.
"""

from __future__ import annotations

import re
from inspect import cleandoc

_SECTIONS = re.compile(
    r"^\s*(?:(?:args|arguments|parameters|params|returns?|raises|yields|examples?|notes?|attributes)\s*:?\s*$"
    r"|:(?:param|parameter|arg|argument|key|keyword|type|returns?|raises?|rtype)\b|@param\b)",
    re.IGNORECASE | re.MULTILINE,
)


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The description of a tool, and that of each parameter the docstring names."""
    if not text:
        return "", {}
    clean = cleandoc(text).strip()
    if not _SECTIONS.search(clean):
        return clean, {}
    import docstring_parser

    try:
        parsed = docstring_parser.parse(clean)
    except (docstring_parser.ParseError, LookupError, ValueError, TypeError, AttributeError):
        return clean, {}  # sections that only look like some (`:param` alone): the parser stumbles, the text stays
    said = {param.arg_name.lstrip("*"): _joined(param.description) for param in parsed.params if param.description}
    description = "\n\n".join(part for part in (parsed.short_description, parsed.long_description) if part)
    return description.strip(), said


def _joined(text: str) -> str:
    """A parameter's text as one line: its breaks are the width of the author's editor, not meaning."""
    return " ".join(text.split())
