"""Seeded damage to files: what a disk, an editor, a merge or a stranger may do.

``damaged`` changes bytes; ``hostile`` changes one value of a JSON document into what
such a place should never hold.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 10**400, 1.5, float("nan"), float("inf"), "", " ", "\x00", "\x1b[31m\n", "\udc80",
    "../../x", "/etc/x", "<script>alert(1)</script>", "]]>", "=1+1", "|`*_", "x" * 3000, "é漢🙂", [], {}, [[]],
    {"a": {}}, [None], ["\x00"], "AGREE", "DIVERGE", "end", "run_started", "sglang/a/b/c", "0.5.23", [0] * 50,
)  # fmt: skip
DEEP = "[" * 200 + "]" * 200
PIECES = (
    b"\x00",
    b"\xff\xfe",
    b"\n",
    b"\n\n",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b"\\",
    b"\r\n",
    b"NaN",
    b"1e999",
    b"'''",
    b"=",
    b"#",
)


def damaged(raw: bytes, rng: random.Random) -> bytes:
    """``raw`` with one to three changes of bytes or lines."""
    for _ in range(rng.randint(1, 3)):
        at, to = sorted((rng.randint(0, len(raw)), rng.randint(0, len(raw))))
        lines = raw.split(b"\n")
        line = rng.randrange(len(lines))
        how = rng.randrange(8)
        if how == 0:
            raw = raw[:at]
        elif how == 1 and raw:
            at = rng.randrange(len(raw))
            raw = raw[:at] + bytes([raw[at] ^ (1 << rng.randrange(8))]) + raw[at + 1 :]
        elif how == 2:
            raw = raw[:at] + rng.choice(PIECES) + raw[at:]
        elif how == 3:
            raw = raw[:at] + raw[min(to, at + 40) :]
        elif how == 4:
            raw = b"\n".join(lines[:line] + lines[line + 1 :])
        elif how == 5:
            raw = b"\n".join(lines[:line] + [lines[line]] * 2 + lines[line + 1 :])
        elif how == 6:
            rng.shuffle(lines)
            raw = b"\n".join(lines)
        else:
            raw = raw[:at] + bytes(rng.randrange(256) for _ in range(rng.randint(1, 8))) + raw[to:]
    return raw


def hostile(document: Any, rng: random.Random) -> str:
    """``document`` as JSON text with one to three values or keys replaced or lost."""
    document = json.loads(json.dumps(document))
    for _ in range(rng.randint(1, 3)):
        places = list(_places(document))
        if not places:
            break
        holder, key = rng.choice(places)
        how = rng.randrange(5)
        if how == 0 and isinstance(holder, dict):
            del holder[key]
        elif how == 1 and isinstance(holder, dict):
            holder[rng.choice([v for v in VALUES if isinstance(v, str)])] = holder.pop(key)
        elif how == 2:
            holder[key] = "DEEP"
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    text = json.dumps(document)
    return text.replace('"DEEP"', DEEP) if rng.random() < 0.5 else text


def _places(document: Any):
    """Every (holder, key) at which a value stands."""
    left = [document]
    while left:
        holder = left.pop()
        if isinstance(holder, dict | list):
            for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
                yield holder, key
                left.append(holder[key])
