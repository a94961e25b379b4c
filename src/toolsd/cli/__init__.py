"""The command line. One verb, one file; `app` finds the verb and turns what goes wrong into one line and a status.

Exit statuses: 0 ok, 1 a tool or turn failed, 2 usage, 69 no coordinator, 70 a bug in toolsd, 75 try later,
77 key refused, 78 configuration, 130 and 143 ended by SIGINT and SIGTERM, 141 the reader of our output left.

Layout: `app` (entry, global options), `output` (everything that is printed; the only importer of rich), `chunks`
(recorded streams from files), `connect` (a client for a daemon or an embedded coordinator), and a file per verb.
"""

from __future__ import annotations


def main() -> None:
    """The console script `toolsd`."""
    import sys

    try:
        from toolsd.cli.app import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # before or after `run` could take care of it
        sys.stderr.write("toolsd: interrupted\n")
        status = 130
    sys.exit(status)
