"""TLS contexts from files: the authorities to trust, and the client's certificate."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from jetspark.errors import ConfigError
from jetspark.small_files import read_small

_PEM_FILES = frozenset({".pem", ".crt", ".cer"})


def client_context(
    ca_file: str | os.PathLike[str] | None,
    ca_dir: str | os.PathLike[str] | None,
    cert_file: str | os.PathLike[str] | None,
    key_file: str | os.PathLike[str] | None,
    key_password: str | None,
) -> ssl.SSLContext:
    """A context that verifies the server and its name. Raises ConfigError for unusable files.

    Without `ca_file` and `ca_dir` the system's authorities are trusted.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file, capath=ca_dir)
        if ca_dir is not None:
            _trust_folder(context, ca_dir)
        if cert_file is not None:
            # Always with a password: without one OpenSSL prompts at the terminal.
            context.load_cert_chain(cert_file, key_file, key_password or "")
    except ssl.SSLError as error:
        hint = ""
        if cert_file is not None and _is_encrypted(key_file or cert_file):
            hint = " (the key is encrypted: it needs the right tls_key_password)"
        raise ConfigError(f"The TLS files cannot be used: {_words(error)}{hint}.") from error
    except OSError as error:
        given = (ca_file, cert_file, key_file)  # OpenSSL's errors name none
        missing = (os.fspath(one) for one in given if one is not None and not os.path.exists(one))
        which = error.filename or next(missing, "")
        named = f"{which}: " if which else ""
        reason = error.strerror or str(error)
        raise ConfigError(f"The TLS files cannot be used: {named}{reason}.") from error
    return context


def _trust_folder(context: ssl.SSLContext, folder: str | os.PathLike[str]) -> None:
    """OpenSSL itself finds only files that are named by hash (c_rehash)."""
    found = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in _PEM_FILES)
    for path in found:
        context.load_verify_locations(cafile=path)
    hashed = any(path.suffix[1:].isdecimal() for path in Path(folder).iterdir())
    if not found and not hashed:
        raise ConfigError(f"The TLS files cannot be used: no certificates in {folder!r}.")


def _is_encrypted(key_file: str | os.PathLike[str]) -> bool:
    # OpenSSL has no error of its own for it; both PEM formats contain the word.
    return b"ENCRYPTED" in read_small(key_file)


def _words(error: ssl.SSLError) -> str:
    return (error.reason or "not the PEM that was expected").replace("_", " ").lower()
