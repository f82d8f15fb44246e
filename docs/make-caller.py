#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Makes the pages about the caller from what the header and the program say: docs/make-caller.py BINARY [FOLDER].

docs/api.md and docs/man/libsamekey.3 out of include/samekey/samekey.h; docs/man/samekey-call.1 and samekey-calls.1 out
of `samekey help`. test/caller checks that the pages kept here are what this makes."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADER = ROOT / "include" / "samekey" / "samekey.h"


def esc(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


# ---- the header, as sections of (words, declaration)


def plain(comment):
    """A comment's words, its lines joined into paragraphs; lists and diagrams stay as they are."""
    text = re.sub(r"^/\*+ ?|\s*\*/$", "", comment.strip())
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in text.splitlines()]
    return "\n".join(lines).strip()


def sections():
    text = HEADER.read_text(encoding="utf-8")
    intro = plain(re.search(r"/\*(.*?)\*/", text, re.S)[0]).split("\n", 1)[1].strip()
    body = text[text.index("/* ---- words"):text.rindex("#ifdef __cplusplus")]
    found = []
    for part in re.split(r"/\* -{4} ", body)[1:]:
        title, rest = re.match(r"(.*?) -{4,} \*/\n(.*)", part, re.S).groups()
        blocks = []
        for block in re.split(r"\n\s*\n(?=\S)", rest.strip()):
            words = re.match(r"/\*.*?\*/\n?", block, re.S)
            code = block[words.end():] if words and not block[words.end():].startswith(" ") else block
            blocks.append((plain(words[0]) if words and code is not block else "", code.strip()))
        found.append((title, blocks))
    return intro, found


def api():
    intro, found = sections()
    out = ["# The API of libsamekey", "",
           "Made from `include/samekey/samekey.h` by `docs/make-caller.py`; [library.md](library.md) explains it by task.",
           "", "```text", intro, "```"]
    for title, blocks in found:
        out += ["", f"## {title[0].upper()}{title[1:]}"]
        for words, code in blocks:
            if words:
                out += ["", words]
            if code:
                out += ["", "```c", code.replace("SAMEKEY_API ", ""), "```"]
    return "\n".join(out) + "\n"


# ---- manual pages


def head(name, section, title):
    return f'.\\" SPDX-License-Identifier: MIT\n.TH {esc(name)} {section} "" "samekey" "{title}"\n'


def library_page():
    intro, found = sections()
    out = head("LIBSAMEKEY", 3, "Library functions")
    out += (".SH NAME\nlibsamekey \\- remote calls that are safe to retry\n.SH SYNOPSIS\n.nf\n#include <samekey/samekey.h>\n\n"
            "cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs samekey)\n.fi\n.SH DESCRIPTION\n.nf\n" + esc(intro) + "\n.fi\n")
    for title, blocks in found:
        out += f".SH {title.upper()}\n"
        for words, code in blocks:
            if words:
                out += ".PP\n" + esc(words) + "\n"
            if code:
                out += ".PP\n.nf\n.RS 2\n" + esc(code.replace("SAMEKEY_API ", "")) + "\n.RE\n.fi\n"
    out += ".SH EXAMPLES\nexamples/c/charge.c makes one call; examples/rpc drives the step interface over a Unix socket.\n"
    out += ".SH SEE ALSO\nsamekey\\-call(1), samekey\\-receipt(1), libcurl(3)\n"
    return out


CALL = r"""One call is one intention. It is written to the journal before its first byte leaves, and gets a callId that stays the
same over all its attempts. After an attempt that may have run (no answer in time, a cut answer, a 502) nothing is sent
again before the receipt was asked; after one that is proved not to have run (connection refused, 429) it is sent again
with a growing wait.
.PP
The same command run again, after a crash, a kill or by cron, takes up the same callId: an open call is asked about first,
an ended one is told from the journal and nothing is sent. Runs of one key at the same time share one ending: one works,
the others wait.
.PP
Without \fB\-\-key\fR the call has no name that a later run could find it by: nothing is sent again after it may have
run, and \fBsamekey calls resume\fR finishes it."""
CALL_EXITS = r""".TP
.B 0
SUCCESS: it took effect, once. Go on.
.TP
.B 3
FAILED: nothing took effect through this call. \fBnext_action\fR of \fB\-\-format json\fR says what next: \fBfix_request\fR
(mend it, then a new run makes a new call) or \fBretry_same_call\fR (run the same command later; \fBretry_in_ms\fR says when).
.TP
.B 4
UNKNOWN, or another process still works on it: it may have taken effect. Run the same command again later, which asks
first. Never use another key for the same business action.
.TP
.B 64
Usage, or the journal knows the key with another request. Nothing was sent.
.TP
.B 70, 71
libcurl cannot be started; no memory. Nothing was sent.
.TP
.B 73
The result cannot be written, or the file of \fB\-o\fR not opened (then nothing was sent); standard error says which, and
how the call ended.
.TP
.B 74
The journal cannot be written. Nothing was sent."""
CALL_FILES = r""".TP
.I $XDG_STATE_HOME/samekey/journal.db
The journal (\fI~/.local/state\fR where the variable is not set), SQLite, readable by its owner only. It holds the requests with
their bodies and headers, credentials too, until 30 days after their ending; see \fB\-\-no\-journal\-body\fR and
\fB\-\-no\-journal\fR.
.TP
.I limits.db
Beside it: the retry budget and the breakers that all runs of a user share. May be removed at any time."""
CALL_EXAMPLES = r"""samekey call http://127.0.0.1:8080/orders \-\-key order:42:create \-\-data @order.json
.PP
samekey call http://127.0.0.1:8080/reports \-\-key 'report:{date}' \-\-data '{"report":"daily"}'
.PP
samekey call DELETE https://api.test/cards/7 \-\-key card:7:close \-H "Authorization: Bearer $TOKEN" \-\-receipt
'{origin}/receipts/{call_id}'"""


def command_page(binary, command, line, text, more):
    usage = subprocess.run([binary, "help", command], stdout=subprocess.PIPE, text=True, check=True).stdout
    first, rest = usage.split("\n\n", 1)
    page = head(f"SAMEKEY-{command.upper()}", 1, "User commands")
    page += f".SH NAME\nsamekey\\-{command} \\- {line}\n.SH SYNOPSIS\n.nf\n{esc(first.replace('usage: ', ''))}\n.fi\n"
    page += f".SH DESCRIPTION\n{text}\n.SH OPTIONS\n.nf\n{esc(rest.split(chr(10) + 'exit:')[0].rstrip())}\n.fi\n"
    for title, words in more:
        page += f".SH {title}\n{words}\n"
    return page


def pages(binary):
    return {
        "api.md": api(),
        "man/libsamekey.3": library_page(),
        "man/samekey-call.1": command_page(binary, "call", "make one call that is safe to run again", CALL, [
            ("EXIT STATUS", CALL_EXITS), ("FILES", CALL_FILES),
            ("ENVIRONMENT", "\\fBXDG_STATE_HOME\\fR, \\fBHOME\\fR: where the journal is. \\fBTRACEPARENT\\fR: the trace.\n"
                            "\\fBNO_COLOR\\fR: no colour. \\fBhttps_proxy\\fR and the others that libcurl knows."),
            ("EXAMPLES", CALL_EXAMPLES),
            ("SEE ALSO", "samekey(1), samekey\\-calls(1), samekey\\-receipt(1), libsamekey(3)")]),
        "man/samekey-calls.1": command_page(
            binary, "calls", "list, finish or forget the calls that were written down",
            "The journal of samekey\\-call(1): what is open, what is known of a call, and finishing it under its callId.",
            [("EXIT STATUS", "As samekey\\-call(1); \\fBresume\\fR without a callId gives the worst of its calls; 66 no such call."),
             ("SEE ALSO", "samekey\\-call(1), samekey(1)")]),
    }


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs"
    for name, content in pages(sys.argv[1]).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
