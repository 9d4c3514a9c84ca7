"""A library that fails in the way that its argument says."""

from attnctl.probe.host import HostError


def answer(how):
    if how == "typed":
        raise HostError("denied", "no access to /dev/nvidiactl")
    if how == "exit":
        raise SystemExit(3)
    if how == "import":
        import no_such_library_at_all  # noqa: F401
    if how == "object":
        return object()
    raise KeyError("libamd_smi.so")
