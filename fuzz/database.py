"""Where the choices that led to finds are kept, so that later runs begin with them.

An example database of Hypothesis: a folder, or a Redis server that several machines share. It
is kept by contract: what made one target diverge is the first thing that every target of that
contract is shown, in every run over it. Hypothesis itself never fills it, because no case
fails in its eyes; and what stands in it is anybody's, so choices out of bounds are drawn
nearest within. The trade: a run with a database of others is a function of the seed only
behind what it was given. A server that goes away costs the run its database and no more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PREFIX = b"specoracle:"
EXPIRE_AFTER = timedelta(days=90)  # of a contract that no run looked for; Hypothesis's own 8 are for tests
MAX_STORED = 100  # cases of a contract that a target is shown, the shortest first
SERVER_DEADLINE_S = 5.0
NUMBER = re.compile(r"(/\d*)?")  # of a database on a server; anything else may be a piece of a password
ASKED = re.compile("db|username|password|ssl_.*")  # what a URL may ask for: not to wait longer than the deadline


class DatabaseError(Exception):
    """``--database`` cannot be used. The message says what to do."""


@dataclass
class Store:
    """An example database, what it is called, and which errors mean that it is gone;
    ``lost`` says so once it is."""

    database: Any
    name: str
    errors: tuple[type[Exception], ...] = (OSError,)
    lost: str | None = None

    def stored(self, contract: str) -> Iterator[list[int]]:
        """Choices that led to finds of a contract, the shortest first."""
        from hypothesis.database import choices_from_bytes

        if self.lost:
            return
        try:
            found = sorted(self.database.fetch(PREFIX + contract.encode()), key=lambda raw: (len(raw), raw))
        except self.errors as error:
            self.lost = f"{type(error).__name__}: {error}"
            return
        for raw in found[:MAX_STORED]:
            choices = choices_from_bytes(raw)
            if choices is not None and all(type(choice) is int for choice in choices):
                yield list(choices)

    def save(self, contract: str, choices: Sequence[int]) -> None:
        """Keep the choices that led to a find."""
        from hypothesis.database import choices_to_bytes

        if self.lost:
            return
        try:
            self.database.save(PREFIX + contract.encode(), choices_to_bytes(choices))
        except self.errors as error:
            self.lost = f"{type(error).__name__}: {error}"


def open_store(where: str | None, own: Path) -> Store:
    """The database that ``--database`` names, by default the run's ``own`` folder. Raises
    DatabaseError."""
    from hypothesis.database import DirectoryBasedExampleDatabase

    if where is None:
        return Store(DirectoryBasedExampleDatabase(own), str(own))
    if "://" in where:
        return _redis(where)
    try:
        os.makedirs(where, exist_ok=True)
    except (OSError, ValueError) as error:
        raise DatabaseError(f"--database {where} is no folder and cannot be made one: {error}") from None
    if not os.access(where, os.W_OK):
        raise DatabaseError(f"--database {where} cannot be written; name a folder that you may write to")
    return Store(DirectoryBasedExampleDatabase(where), where)


def _redis(url: str) -> Store:
    """The database on a server that answers now."""
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname or ''}:{parts.port or 6379}{parts.path}"
    except ValueError:
        parts, place = None, ""
    fits = parts is not None and parts.scheme in ("redis", "rediss") and parts.hostname and NUMBER.fullmatch(parts.path)
    if not fits or not all(map(ASKED.fullmatch, parse_qs(parts.query))):
        raise DatabaseError("--database is a folder or redis://HOST:PORT or redis://HOST:PORT/NUMBER")
    name = f"{parts.scheme}://{place}"  # without the password that a URL may hold
    try:
        import redis
        from hypothesis.extra.redis import RedisExampleDatabase
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        raise DatabaseError(
            f"--database {name} needs the package redis: python -m pip install 'specoracle[redis]'"
        ) from None
    options = {"socket_timeout": SERVER_DEADLINE_S, "socket_connect_timeout": SERVER_DEADLINE_S}
    try:
        client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 1), **options)
        client.ping()
    except (redis.RedisError, OSError, TypeError, ValueError) as error:  # TypeError: an option that it does not know
        said = str(error).partition("\n")[0] or type(error).__name__
        raise DatabaseError(
            f"--database {name} cannot be used: {said}; start the server, or name a folder that the runs share"
        ) from None
    database = RedisExampleDatabase(client, expire_after=EXPIRE_AFTER, key_prefix=b"")
    return Store(database, name, (redis.RedisError, OSError))
