"""Who may ask: hosts that the server answers to, sites that may call it, keys.

Everything is denied unless a key is right; only the route that tells whether the server lives is open. Without keys the
server listens to this machine alone, and then it is pages of other sites, opened in a browser here, that it must not
obey: they are known by the Host header (a name of theirs that leads here) and by Origin.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from ....core.errors import ConfigError, InputError
from .refusal import Refusal

SHORTEST, LONGEST, MOST = 16, 512, 4096  # characters of a key, and how many keys there may be
HERE = frozenset({"localhost", "127.0.0.1", "[::1]"})
PAGE = "/"  # where a browser asks for the key by itself


@dataclass(frozen=True)
class Keys:
    """Digests of the keys that open the server, each with the name of its owner; none: it is open to this machine."""

    owners: Mapping[bytes, str]

    @classmethod
    def read(cls, path: Path | None) -> Keys:
        """One key per line; lines that are empty or begin with # are passed over."""
        if path is None:
            return cls({})
        try:
            if path.stat().st_size > MOST * (LONGEST + 2):
                raise ConfigError(f"{path} has {path.stat().st_size:,} bytes; a file of keys has one key per line")
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ConfigError(f"the file of keys {path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"the file of keys {path} is not UTF-8") from None
        keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not keys:
            raise ConfigError(f"{path} holds no key; write one per line, of {SHORTEST} characters or more")
        for number, key in enumerate(keys, 1):
            if not (SHORTEST <= len(key) <= LONGEST and key.isascii() and key.isprintable() and " " not in key):
                raise ConfigError(
                    f"key {number} of {path} has {len(key)} characters; a key has {SHORTEST} to {LONGEST} of ASCII and "
                    'no spaces, for example: python -c "import secrets; print(secrets.token_urlsafe(32))"'
                )
        return cls({_digest(key): _digest(key).hex()[:12] for key in keys})

    def owner(self, given: str) -> str | None:
        """Whose key this is. Every key is compared, in the same time wherever they differ."""
        digest, found = _digest(given), None
        for known, owner in self.owners.items():
            if hmac.compare_digest(known, digest):
                found = owner
        return found


@dataclass(frozen=True)
class Guard:
    """Lets a request pass, or refuses it."""

    keys: Keys
    hosts: frozenset[str]  # that the Host header may name, without port; empty: any

    @classmethod
    def of(cls, keys: Keys, host: str, allowed: Collection[str] = ()) -> Guard:
        """Without keys only this machine may be listened to, and only names of it are answered to."""
        if not keys.owners and bare(host) not in HERE:
            raise InputError(
                f"--host {host} opens the server to others, which needs keys: add --api-key-file FILE with one key per "
                "line, or listen to this machine alone with --host 127.0.0.1"
            )
        named = frozenset(bare(one) for one in allowed)
        return cls(keys, named | (HERE if not keys.owners or named else frozenset()))

    def admit(self, request: Request, *, open: bool) -> str:  # the word for it
        """The owner of a request that may pass: of its key, or "" if there are none."""
        host = bare(request.headers.get("host", ""))
        if self.hosts and host not in self.hosts:
            raise Refusal(421, "this server does not answer to that Host; --allow-host NAME adds one", code="bad_host")
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != request.headers.get("host", "").lower():
            raise Refusal(403, "pages of other sites may not call this server", code="bad_origin")
        if open or not self.keys.owners:
            return ""
        owner = self.keys.owner(_given(request.headers.get("authorization", "")))
        if owner is None:
            way = 'Basic realm="heed", charset="UTF-8"' if request.scope["path"] == PAGE else "Bearer"
            message = 'a key of this server is needed: send the header "Authorization: Bearer KEY"'
            raise Refusal(401, message, code="invalid_api_key", headers={"www-authenticate": way})
        return owner


def bare(host: str) -> str:
    """A host without its port, in brackets if it is an address of IPv6."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return f"[{host}]" if host.count(":") > 1 else host.partition(":")[0]


def _given(header: str) -> str:
    """The key in an Authorization header: a bearer's, or the password that a browser asked for."""
    scheme, _, value = header.strip().partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()
