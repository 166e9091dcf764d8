"""Every way to write a secret that a log or a reply might have; made apart from the product's own forms."""

import base64
import html
import json
import urllib.parse
from collections.abc import Iterator


def spellings(secret: str) -> set[bytes]:
    """All of them, those that nobody would undo in one step as well."""
    data = secret.encode()
    percent = "".join(f"%{byte:02X}" for byte in data)
    found = {
        secret, urllib.parse.quote(secret, safe=""), urllib.parse.quote(secret), urllib.parse.quote_plus(secret),
        urllib.parse.quote(urllib.parse.quote(secret, safe=""), safe=""), percent, percent.lower(),
        json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], json.dumps(json.dumps(secret))[3:-3],
        "".join(f"\\u{ord(letter):04x}" for letter in secret), html.escape(secret), html.escape(secret, quote=False),
        "".join(f"&#{ord(letter)};" for letter in secret), "".join(f"&#x{ord(letter):X};" for letter in secret),
        data.hex(), data.hex().upper(), repr(secret)[1:-1], repr(data)[2:-1],
    }  # fmt: skip
    return {text.encode() for text in found} | set(in_base64(data))


def in_base64(data: bytes) -> Iterator[bytes]:
    """In both alphabets, wherever it begins in what was encoded, without the letters that its neighbours change."""
    for shift in range(3):
        whole = bytes(shift) + data
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            first = (0, 2, 3)[shift]
            yield encode(whole)[first : len(whole) * 4 // 3]


def reflected(secret: str) -> list[bytes]:
    """Spellings that are looked for in replies: those that some encoder writes in one step."""
    twice = {urllib.parse.quote(urllib.parse.quote(secret, safe=""), safe=""), json.dumps(json.dumps(secret))[3:-3]}
    python = {repr(secret)[1:-1], repr(secret.encode())[2:-1]}
    references = {"".join(form.format(ord(letter)) for letter in secret) for form in ("&#{};", "&#x{:X};")}
    unsaid = {text.encode() for text in twice | python | references} - {secret.encode()}
    return sorted(spellings(secret) - unsaid)
