"""The system around this process: kernel, distribution, container, WSL, rights on device nodes."""

from __future__ import annotations

from attnctl.probe.host import Host, HostError, env, exists, read, table
from attnctl.probe.ledger import Ledger

OS_RELEASE = "/etc/os-release"

# a file or a variable that each container engine leaves behind
_MARKS = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}
_CGROUP_MARKS = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "lxc": "lxc"}


def probe_system(host: Host, ledger: Ledger) -> dict[str, str]:
    """system, kernel, distribution, python, and container and wsl where there is one."""
    take = ledger.take
    kernel = take("os.kernel", "uname", lambda: _word(host, "uname", "release"))
    container, source = container_of(host)
    found = {
        "system": take("os.system", "uname", lambda: _word(host, "uname", "system")),
        "kernel": kernel,
        "distribution": take("os.distribution", OS_RELEASE, lambda: _distribution(host)),
        "python": take("os.python", "sys.version_info", lambda: _word(host, "python", "version")),
        "container": ledger.note(
            "os.container", source, container, "no mark of a container engine is there"
        ),
        "wsl": ledger.note(
            "os.wsl", "uname", wsl_version(kernel or ""), "the kernel is not Microsoft's"
        ),
    }
    return {name: value for name, value in found.items() if value is not None}


def _word(host: Host, op: str, key: str) -> str | None:
    value = table(host, op).get(key)
    return value if isinstance(value, str) and value else None


def _distribution(host: Host) -> str | None:
    for line in read(host, OS_RELEASE).splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip().strip("\"'") or None
    return None


def container_of(host: Host) -> tuple[str | None, str]:
    """(name of the container engine, what gave it away)."""
    for path, name in _MARKS.items():
        if exists(host, path):
            return name, path
    for variable in ("KUBERNETES_SERVICE_HOST", "container"):
        try:
            value = env(host, variable)
        except HostError:
            continue
        if value:
            # systemd-nspawn and LXC write their own name into the second
            name = value if variable == "container" else "kubernetes"
            return name, f"variable {variable}"
    for path in ("/proc/1/cgroup", "/proc/self/cgroup"):
        try:
            text = read(host, path)
        except HostError:
            continue
        for mark, name in _CGROUP_MARKS.items():
            if f"/{mark}" in text:
                return name, path
    return None, ", ".join(_MARKS)


def wsl_version(kernel: str) -> str | None:
    """ "1" or "2" on Windows' subsystem for Linux, by the kernel's release."""
    kernel = kernel.lower()
    if "microsoft" not in kernel:
        return None
    # version 1 emulates a 4.4 kernel and does not call itself WSL2
    return "1" if "wsl2" not in kernel and kernel.startswith("4.4.") else "2"
