"""The host that asks this machine."""

from __future__ import annotations

import os
import sys
from typing import Any

from attnctl.probe.host import HostError

# no file that the probe reads is larger; some files under /sys never end
READ_LIMIT_BYTES = 4 << 20
# a folder of site-packages holds some hundred names; a broken mount can hold millions
LIST_LIMIT = 100_000

# linux/auxvec.h
AT_HWCAP, AT_HWCAP2 = 16, 26
# linux/prctl.h: PR_SVE_GET_VL, and the part of its answer that is the length in bytes
PR_SVE_GET_VL, PR_SVE_VL_LEN_MASK = 51, 0xFFFF

# get_mempolicy(2): asm-generic/unistd.h, arch/x86/entry/syscalls/syscall_64.tbl
GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236, "riscv64": 236}


class RealHost:
    """Asks this machine. Each method named `_op` answers the question `op`."""

    def ask(self, op: str, *args: Any) -> Any:
        handler = getattr(self, f"_{op}", None)
        if handler is None:
            raise HostError("failed", f"no such question: {op}")
        try:
            return handler(*args)
        except HostError:
            raise
        except (FileNotFoundError, NotADirectoryError) as error:
            raise HostError("absent", error.strerror or str(error)) from error
        except PermissionError as error:
            raise HostError("denied", error.strerror or str(error)) from error
        except OSError as error:
            raise HostError("failed", error.strerror or str(error)) from error
        except (AttributeError, ValueError) as error:
            # a system without this call, or a path with a zero byte in it
            raise HostError("failed", f"{type(error).__name__}: {error}") from error

    def _read(self, path: str) -> str:
        # non-blocking, so that a pipe in the place of a file cannot hang the probe
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return (file.read(READ_LIMIT_BYTES) or b"").decode("utf-8", "replace")

    def _list(self, path: str) -> list[str]:
        names = []
        with os.scandir(path) as entries:
            for entry in entries:
                names.append(_clean(entry.name))
                if len(names) == LIST_LIMIT:
                    break
        return sorted(names)

    def _link(self, path: str) -> str:
        return _clean(os.readlink(path))  # noqa: PTH115  (pathlib costs start-up here)

    def _real(self, path: str) -> str:
        return _clean(os.path.realpath(path))

    def _loader_cache(self) -> dict[str, str]:
        from attnctl.probe.library_names import library_of
        from attnctl.probe.loader_cache import PATH, parse

        with open(PATH, "rb") as file:  # noqa: PTH123
            found = parse(file.read(READ_LIMIT_BYTES), os.uname().machine)
        return {name: path for name, path in found.items() if library_of(name)}

    def _access(self, path: str) -> str:
        os.stat(path)  # noqa: PTH116
        return ("r" if os.access(path, os.R_OK) else "") + ("w" if os.access(path, os.W_OK) else "")

    def _stat(self, path: str) -> dict[str, int]:
        found = os.stat(path)  # noqa: PTH116
        return {"mode": found.st_mode & 0o7777, "uid": found.st_uid, "gid": found.st_gid}

    def _which(self, name: str) -> str:
        """The path of a program: as given, or the first of that name on PATH."""
        folders = [""] if "/" in name else os.environ.get("PATH", os.defpath).split(os.pathsep)
        for folder in folders:
            path = f"{folder}/{name}" if folder else name
            if os.access(path, os.X_OK) and not os.path.isdir(path):  # noqa: PTH112
                return _clean(path)
        raise HostError("absent", f"{name} is not on PATH")

    def _filled(self, path: str) -> bool:
        """Whether a folder has anything in it; what that is stays unasked."""
        with os.scandir(path) as entries:
            return next(entries, None) is not None

    def _env(self, name: str) -> str | None:
        value = os.environ.get(name)
        return None if value is None else _clean(value)

    def _affinity(self) -> list[int]:
        return sorted(os.sched_getaffinity(0))

    def _ids(self) -> dict[str, Any]:
        return {"uid": os.geteuid(), "gid": os.getegid(), "groups": sorted(os.getgroups())}

    def _uname(self) -> dict[str, str]:
        name = os.uname()
        return {
            "system": name.sysname,
            "release": name.release,
            "version": name.version,
            "machine": name.machine,
        }

    def _python(self) -> dict[str, str]:
        return {
            "version": "{}.{}.{}".format(*sys.version_info[:3]),
            "implementation": sys.implementation.name,
            "executable": _clean(sys.executable or ""),
            "include": _include_dir(),
        }

    def _site_dirs(self) -> list[str]:
        # the standard library holds no packages; the first entry may be the current folder
        own = {os.path.dirname(os.__file__), _current_dir()}  # noqa: PTH120
        return [
            _clean(path)
            for path in dict.fromkeys(sys.path)
            if path and path not in own and not path.endswith((".zip", "/lib-dynload"))
        ]

    def _auxv(self) -> dict[str, int]:
        with open("/proc/self/auxv", "rb") as file:  # noqa: PTH123
            words = memoryview(file.read(READ_LIMIT_BYTES)).cast("L")
        pairs = dict(zip(words[::2], words[1::2], strict=False))
        return {"hwcap": pairs.get(AT_HWCAP, 0), "hwcap2": pairs.get(AT_HWCAP2, 0)}

    def _sve_bytes(self) -> int:
        import ctypes

        answer = ctypes.CDLL(None, use_errno=True).prctl(PR_SVE_GET_VL)
        if answer < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return int(answer) & PR_SVE_VL_LEN_MASK

    def _numa_policy(self) -> bool:
        """True where the kernel tells this process its memory policy; a filter denies it."""
        import ctypes

        number = GET_MEMPOLICY.get(os.uname().machine)
        if number is None:
            raise HostError("failed", "the number of get_mempolicy is not known here")
        if ctypes.CDLL(None, use_errno=True).syscall(number, None, None, 0, None, 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return True

    def _child(self, library: str, *args: Any) -> Any:
        from attnctl.probe.children import ask_child

        return ask_child(library, args)


def _include_dir() -> str:
    # sysconfig says the same and costs 10 ms; a virtual environment has no headers of its own
    flags = getattr(sys, "abiflags", "")
    return f"{sys.base_prefix}/include/python{sys.version_info[0]}.{sys.version_info[1]}{flags}"


def _current_dir() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # it was removed under us
        return None


def _clean(text: str) -> str:
    """The text with bytes that are not UTF-8 replaced, so that it goes to JSON."""
    return text if text.isascii() else os.fsencode(text).decode("utf-8", "replace")
