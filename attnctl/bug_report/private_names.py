"""Whose machine it is: names and secrets that stand in the process, struck out of what is sent on.

attnctl.probe.redact knows what private things look like; a bare user name, host name or password
looks like any word, so that these are taken from where they are set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

# accounts and hosts that tell nothing, and words without which a report could not be read
_PLAIN = re.compile(
    r"root|users?|admin|nobody|ubuntu|debian|home|localhost|localdomain|runner|container|docker"
    r"|nvidia|amd|intel|cuda|rocm|xpu|cpu|gpu|linux|python|torch|triton|attnctl|x86_64|aarch64"
    r"|absent|failed|true|false|none",
    re.IGNORECASE,
)
_SHORTEST = 3
_SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|(API|ACCESS|PRIVATE)_?KEY", re.IGNORECASE
)
_SHORTEST_SECRET = 6


class PrivateNames(msgspec.Struct, frozen=True):
    """Words to strike out: of people, of hosts, and values that open something."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    def without(self, value: Any) -> Any:
        """A JSON value with none of them in any text of it; keys stay as they are."""
        return self._without(value, self._patterns())

    def _patterns(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        secrets = [re.escape(word) for word in _longest_first(self.secrets)]
        found = [(re.compile("|".join(secrets)), "token")] if secrets else []
        for words, put in ((self.users, "user"), (self.hosts, "host")):
            if words:
                any_of = "|".join(map(re.escape, _longest_first(words)))
                # a name inside a longer one of letters and digits is another name
                pattern = rf"(?<![^\W_])(?:{any_of})(?![^\W_])"
                found.append((re.compile(pattern, re.IGNORECASE), put))
        return tuple(found)

    def _without(self, value: Any, patterns: tuple[tuple[re.Pattern[str], str], ...]) -> Any:
        if isinstance(value, str):
            for pattern, put in patterns:
                value = pattern.sub(put, value)
            return value
        if isinstance(value, dict):
            return {key: self._without(inner, patterns) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._without(inner, patterns) for inner in value]
        return value


def private_names(
    environ: Mapping[str, str], nodename: str, account: Iterable[str] = ()
) -> PrivateNames:
    """The names in an environment, of a host, and of an account (its name and its owner's).

    Environment: USER, LOGNAME, SUDO_USER, the last part of HOME, HOSTNAME, and the value of every
    variable whose name is that of a secret.
    """
    users = [environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")]
    users += [environ.get("HOME", "").rstrip("/").rpartition("/")[2], *account]
    hosts = [nodename, environ.get("HOSTNAME", ""), environ.get("HOST", "")]
    hosts += [host.partition(".")[0] for host in hosts]
    secrets = {
        value
        for name, value in environ.items()
        if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET
    }
    return PrivateNames(_telling(users), _telling(hosts), tuple(sorted(secrets)))


def here() -> PrivateNames:
    """Those of this process."""
    import os

    return private_names(os.environ, os.uname().nodename, _account())


def _account() -> tuple[str, ...]:
    import os
    import pwd

    try:
        found = pwd.getpwuid(os.getuid())
    except (KeyError, OSError):  # an account without an entry, as in many containers
        return ()
    return (found.pw_name, found.pw_gecos.partition(",")[0])


def _telling(names: Iterable[str]) -> tuple[str, ...]:
    found = {name for name in names if len(name) >= _SHORTEST and not _PLAIN.fullmatch(name)}
    return tuple(sorted(found))


def _longest_first(words: Iterable[str]) -> list[str]:
    return sorted(words, key=lambda word: (-len(word), word))
