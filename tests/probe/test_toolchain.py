"""Compiler, headers and assembler: what Triton needs before its first kernel."""

import pytest

from attnctl.machine import Gpu, Package
from attnctl.probe.compatibility import fitted_triton
from attnctl.probe.host import HostError
from attnctl.probe.ledger import Ledger
from attnctl.probe.tape import Replay
from attnctl.probe.toolchain import Toolchain, probe_toolchain, triton_usable

GOOD = {"cc": "/usr/bin/gcc", "python_headers": True}
TRITON = "/opt/triton"
BIN = f"{TRITON}/backends/nvidia/bin"


def nvidia(major, minor):
    return Gpu(index=0, arch=f"sm_{major}{minor}", capability=(major, minor))


def unmet(gpu, **tools):
    usable, findings = triton_usable(gpu, Toolchain(**tools))
    return usable, [finding for finding in findings if not finding.met]


@pytest.mark.parametrize(
    ("capability", "ptxas", "usable"),
    [
        ((12, 1), "12.8", False),
        ((12, 1), "12.9", None),
        ((12, 1), "13.1", None),
        ((12, 0), "12.8", None),
        ((10, 3), "12.8", False),
        ((11, 0), "12.9", False),
        ((9, 0), "12.8", None),
        ((8, 9), "11.7", False),
        # a GPU that the table does not have yet
        ((15, 0), "13.1", None),
    ],
)
def test_an_assembler_must_be_as_new_as_the_gpu(capability, ptxas, usable):
    """Each target came with a release of CUDA."""
    found, problems = unmet(nvidia(*capability), ptxas=ptxas, **GOOD)
    assert found is usable
    assert bool(problems) is (usable is False)


def test_an_old_assembler_is_named_with_the_variable_that_replaces_it():
    """The user reads target, version found, version needed and the variable."""
    _, (finding,) = unmet(nvidia(12, 1), ptxas="12.8", **GOOD)
    assert finding.found == "ptxas 12.8 cannot assemble sm_121a"
    assert finding.fix == "point TRITON_PTXAS_PATH at the ptxas of CUDA >= 12.9"


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ({"cc": "", "python_headers": True}, "no C compiler: Triton launcher cannot be built"),
        ({"cc": "cc", "python_headers": False}, "no Python.h: Triton launcher cannot be built"),
        (
            {"cc": "", "python_headers": False},
            "no C compiler or Python.h: Triton launcher cannot be built",
        ),
    ],
)
def test_without_compiler_or_headers_triton_cannot_start(tools, text):
    """On any vendor's GPU."""
    for gpu in (nvidia(8, 0), Gpu(index=0, arch="gfx942")):
        usable, (finding,) = unmet(gpu, **tools)
        assert (usable, finding.found) == (False, text)


def test_a_cache_that_has_entries_leaves_it_open():
    """Kernels that were compiled here before still start."""
    usable, (finding,) = unmet(nvidia(8, 0), cc="", python_headers=True, cache_warm=True)
    assert usable is None
    assert finding.verdict == "unknown"


def test_tools_that_nobody_could_look_for_are_not_missing():
    """Neither are compilers: None is not False."""
    assert unmet(nvidia(8, 0), cc=None, python_headers=None) == (None, [])


def test_every_problem_is_listed_and_the_package_is_unusable():
    """All checks run; the package carries all the reasons."""
    ledger = Ledger()
    tools = Toolchain(cc="", python_headers=False, ptxas="12.8")
    package = Package(status="ok", source="x", version="3.4.0")
    fitted = fitted_triton(package, (nvidia(12, 1), nvidia(12, 1)), tools, ledger)
    assert fitted.usable is False
    assert fitted.build == {"ptxas": "12.8"}
    assert [finding.code for finding in ledger.findings] == [
        "toolchain.launcher",
        "toolchain.ptxas",
    ]
    assert "Python.h" in fitted.reason
    assert "sm_121a" in fitted.reason


def test_without_a_gpu_nothing_is_said_against_the_tools():
    """On a CPU box a missing compiler is no finding."""
    ledger = Ledger()
    package = Package(status="ok", source="x", version="3.7.1")
    fitted = fitted_triton(package, (), Toolchain(), ledger)
    assert (fitted.usable, ledger.findings) == (None, [])
    assert "interpreter" in fitted.reason


def tools(answers, gpu, triton=TRITON):
    return probe_toolchain(Replay.of(answers), Ledger(), triton, (gpu,))


def test_the_second_assembler_is_taken_for_blackwell():
    """Triton ships two; the variable to override it differs too."""
    answers = {
        ("list", BIN): ["ptxas", "ptxas-blackwell"],
        ("child", "ask_ptxas", f"{BIN}/ptxas-blackwell"): "13.1",
    }
    found = tools(answers, nvidia(12, 1))
    assert (found.ptxas, found.ptxas_path) == ("13.1", f"{BIN}/ptxas-blackwell")
    assert found.ptxas_variable == "TRITON_PTXAS_BLACKWELL_PATH"


def test_a_variable_overrides_the_assembler():
    """Also for older GPUs, where the one that Triton ships is never asked."""
    answers = {
        ("env", "TRITON_PTXAS_PATH"): "/usr/local/cuda/bin/ptxas",
        ("child", "ask_ptxas", "/usr/local/cuda/bin/ptxas"): "11.5",
    }
    assert tools(answers, nvidia(9, 0)).ptxas == "11.5"
    assert tools({}, nvidia(9, 0)).ptxas_path is None


def test_an_assembler_that_does_not_answer_is_unknown():
    """It may work for Triton and hang here."""
    answers = {("child", "ask_ptxas", f"{BIN}/ptxas"): HostError("timeout", "no answer")}
    answers |= {("which", "gcc"): "/usr/bin/gcc", ("access", "/usr/include/Python.h"): "r"}
    answers |= {("python",): {"include": "/usr/include"}}
    usable, findings = triton_usable(nvidia(12, 1), tools(answers, nvidia(12, 1)))
    assert usable is None
    assert "ptxas could not be asked: no answer" in [finding.found for finding in findings]


@pytest.mark.parametrize(
    ("answers", "cc"),
    [
        ({("which", "gcc"): "/usr/bin/gcc", ("which", "clang"): "/usr/bin/clang"}, "/usr/bin/gcc"),
        ({("which", "clang"): "/usr/bin/clang"}, "/usr/bin/clang"),
        ({("env", "CC"): "icx", ("which", "icx"): "/opt/icx"}, "/opt/icx"),
        # nor does it take the variable apart
        ({("env", "CC"): "ccache gcc", ("which", "ccache"): "/bin/ccache"}, ""),
        ({("env", "CC"): "icx", ("which", "gcc"): "/usr/bin/gcc"}, ""),
        # Triton does not look for plain cc
        ({("which", "cc"): "/usr/bin/cc"}, ""),
        ({("which", "gcc"): HostError("denied", "no")}, None),
    ],
)
def test_the_compiler_is_the_one_that_triton_would_take(answers, cc):
    """The variable, then gcc, then clang."""
    assert tools(answers, nvidia(8, 0)).cc == cc
