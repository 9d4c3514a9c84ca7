"""Whether a process may bind its memory to NUMA nodes, which containers forbid by default."""

from __future__ import annotations

from attnctl.findings import Finding, unmet
from attnctl.probe.host import Host, HostError

CODE = "cpu.numa_policy"


def numa_findings(host: Host, nodes: int | None) -> tuple[Finding, ...]:
    """One finding where there are several nodes and the kernel refuses to talk about policies.

    Nothing where it does not refuse, where there is one node, or where nobody could ask.
    """
    if nodes is None or nodes < 2:
        return ()
    try:
        host.ask("numa_policy")
    except HostError as error:
        if error.kind == "denied":
            wanted = f"memory may be bound to the {nodes} NUMA nodes"
            found = f"get_mempolicy: {error.detail}; what binds its memory fails or is slower"
            fix = "docker run --cap-add SYS_NICE"
            return (unmet(CODE, wanted, found, "get_mempolicy", fix),)
    return ()
